#!/usr/bin/env python3
"""Prints the text that a Quire manager generates for a prompt. Needs: pip install grpcio grpcio-tools protobuf"""

import argparse
import ipaddress
import os
import pathlib
import re
import sys


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


def main(args: argparse.Namespace) -> int:
    metadata = [("authorization", f"Bearer {args.token}")] if args.token else []
    request = inference.GenerateRequest(
        text=args.prompt,
        sampling=common.SamplingParams(temperature=0.7, top_p=0.95),
        stopping=common.StoppingParams(max_tokens=200),
    )
    with connect(args) as channel:
        try:
            for response in services.InferenceServiceStub(channel).Generate(request, timeout=60, metadata=metadata):
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
