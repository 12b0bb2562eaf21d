#!/usr/bin/env python3
"""Prints the text that a Quire manager generates for a prompt. Needs: pip install grpcio grpcio-tools protobuf"""

import argparse
import ipaddress
import os
import pathlib
import re
import sys
import time
import uuid


def is_on_this_machine(endpoint: str) -> bool:
    if endpoint.startswith(("unix:", "unix-abstract:")):
        return True
    host = re.sub("^(dns:///|dns:|ipv4:|ipv6:)", "", endpoint).rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument("endpoint", nargs="?", default="127.0.0.1:50051")
    parser.add_argument("--tls-ca", help="use TLS; PEM file of the authority that issued the manager's certificate")
    parser.add_argument("--tls-cert", help="PEM file of the client's certificate")
    parser.add_argument("--tls-key", help="PEM file of the client's private key")
    parser.add_argument("--tls-name", help="name in the manager's certificate, if it is not the endpoint's host")
    parser.add_argument("--token", default=os.environ.get("QUIRE_TOKEN"), help="bearer token; also $QUIRE_TOKEN")
    args = parser.parse_args()
    if not args.tls_ca and (args.tls_cert or args.tls_key or args.tls_name):
        parser.error("--tls-ca is missing: --tls-cert, --tls-key and --tls-name mean nothing without it")
    if bool(args.tls_cert) != bool(args.tls_key):
        parser.error("--tls-cert and --tls-key belong together: one of them is missing")
    if args.token and not args.tls_ca and not is_on_this_machine(args.endpoint):
        parser.error(f"--tls-ca is missing: a token is not sent to {args.endpoint} in plain text")
    return args


def connect(args: argparse.Namespace) -> "grpc.Channel":
    if not args.tls_ca:
        return grpc.insecure_channel(args.endpoint)
    files = [args.tls_ca, args.tls_key, args.tls_cert]
    credentials = grpc.ssl_channel_credentials(*[name and pathlib.Path(name).read_bytes() for name in files])
    options = [("grpc.ssl_target_name_override", args.tls_name)] if args.tls_name else []
    return grpc.secure_channel(args.endpoint, credentials, options)


def is_cut(error: "grpc.RpcError") -> bool:
    """Whether the connection was lost. The manager's own errors have details for programs, which gRPC's have not."""
    codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    has_details = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
    return error.code() in codes and not has_details


def stream(stub, request, metadata, timeout=60.0, max_attempts=8):
    """Yields the responses of a request whose on_disconnect is DETACH, each token once, across lost connections."""
    end = time.monotonic() + timeout
    token, received, attempts = "", {}, 0
    while True:
        left = end - time.monotonic()
        if token:
            resume = inference.ResumeRequest(resume_token=token, received=received.values())
            call = stub.Resume(resume, timeout=left, metadata=metadata)
        else:
            call = stub.Generate(request, timeout=left, metadata=metadata)
        try:
            for response in call:
                token, attempts = response.resume_token or token, 0
                received[response.index] = inference.ReceivedSample(
                    index=response.index,
                    next_position=response.position + len(response.token_ids),
                    has_finish=response.finish_reason != common.FINISH_REASON_UNSPECIFIED,
                )
                yield response
            return
        except grpc.RpcError as error:
            delay = min(0.1 * 2**attempts, 3.0)
            attempts += 1
            if not token or not is_cut(error) or attempts > max_attempts or time.monotonic() + delay >= end:
                raise
            time.sleep(delay)


def main(args: argparse.Namespace) -> int:
    metadata = [("authorization", f"Bearer {args.token}")] if args.token else []
    request = inference.GenerateRequest(
        text=args.prompt,
        sampling=common.SamplingParams(temperature=0.7, top_p=0.95),
        stopping=common.StoppingParams(max_tokens=200),
        # The request has a name and goes on without its client, so that a call that was cut off can be resumed.
        request_id=f"python-{uuid.uuid4()}",
        on_disconnect=inference.ON_DISCONNECT_DETACH,
    )
    with connect(args) as channel:
        try:
            for response in stream(services.InferenceServiceStub(channel), request, metadata):
                print(response.text_delta, end="", flush=True)
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    print()
    return 0


if __name__ == "__main__":
    arguments = read_arguments()
    # gRPC is imported here, so that --help and errors of the command line need no packages.
    import grpc

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "proto"))
    common = grpc.protos("quire/v1/common.proto")
    inference, services = grpc.protos_and_services("quire/v1/inference.proto")
    sys.exit(main(arguments))
