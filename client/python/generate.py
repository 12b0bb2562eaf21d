#!/usr/bin/env python3
"""Streams a generation from a Quire manager with stock gRPC: pip install grpcio grpcio-tools protobuf"""

import pathlib
import sys

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "proto"))
common = grpc.protos("quire/v1/common.proto")
inference, services = grpc.protos_and_services("quire/v1/inference.proto")


def main() -> int:
    prompt = sys.argv[1] if len(sys.argv) > 1 else "Once upon a time"
    endpoint = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:50051"
    request = inference.GenerateRequest(
        text=prompt,
        sampling=common.SamplingParams(temperature=0.7, top_p=0.95),
        stopping=common.StoppingParams(max_tokens=200),
    )
    with grpc.insecure_channel(endpoint) as channel:
        try:
            for response in services.InferenceServiceStub(channel).Generate(request, timeout=60):
                print(response.text_delta, end="", flush=True)
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
