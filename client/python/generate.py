#!/usr/bin/env python3
"""Prints the text that a Quire manager generates for a prompt. Needs: pip install grpcio grpcio-tools protobuf"""

import argparse
import contextlib
import copy
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


def split_endpoints(endpoints: str) -> list[str]:
    """The addresses of several managers. The list of gRPC that begins with ipv4: or ipv6: is one endpoint."""
    return [endpoints] if endpoints.startswith(("ipv4:", "ipv6:")) else endpoints.split(",")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument(
        "endpoint",
        nargs="?",
        default="127.0.0.1:50051",
        help="address of the manager, or of several managers of which one leads, separated by commas",
    )
    parser.add_argument("--chat", action="store_true", help="send the prompt as a message, for a model with a template")
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
    for endpoint in split_endpoints(args.endpoint):
        if args.token and not args.tls_ca and not is_on_this_machine(endpoint):
            parser.error(f"--tls-ca is missing: a token is not sent to {endpoint} in plain text")
    return args


def connect(args: argparse.Namespace, endpoint: str) -> "grpc.Channel":
    # A manager that is started again is found soon.
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]
    if not args.tls_ca:
        return grpc.insecure_channel(endpoint, options)
    files = [args.tls_ca, args.tls_key, args.tls_cert]
    credentials = grpc.ssl_channel_credentials(*[name and pathlib.Path(name).read_bytes() for name in files])
    if args.tls_name:
        options.append(("grpc.ssl_target_name_override", args.tls_name))
    return grpc.secure_channel(endpoint, credentials, options)


def is_cut(error: "grpc.RpcError") -> bool:
    """Whether the connection was lost. The manager's own errors have details for programs, which gRPC's have not."""
    codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    has_details = any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())
    return error.code() in codes and not has_details


def has_reason(error: "grpc.RpcError", reason: str) -> bool:
    # The details are a google.rpc.Status with an ErrorInfo, whose first field is the reason: a string.
    details = (value for key, value in error.trailing_metadata() or () if key == "grpc-status-details-bin")
    return any(bytes([0x0A, len(reason)]) + reason.encode() in value for value in details)


def is_restoring(error: "grpc.RpcError") -> bool:
    """Whether the manager has just started and still asks its workers for their requests."""
    return has_reason(error, "RESTORING")


class Managers:
    """The stubs of managers of which one leads. Calls go to the current one."""

    def __init__(self, stubs):
        self.stubs, self.current = stubs, 0
        self.num_left, self.has_standby = 0, False  # Since the last response.

    def stub(self):
        return self.stubs[self.current]

    def leave(self, stands_by: bool) -> bool:
        """Goes to the next manager. False when none of them could be reached."""
        self.current = (self.current + 1) % len(self.stubs)
        self.num_left += 1
        self.has_standby = self.has_standby or stands_by
        return self.has_standby or self.num_left < len(self.stubs)

    def note(self):
        self.num_left, self.has_standby = 0, False


class Received:
    """What a client has of a stream."""

    def __init__(self, continue_from):
        self.token = ""  # With which it is resumed.
        self.positions, self.continued = {}, {sample.index: sample for sample in continue_from}  # By index.
        self.numerics, self.seed = "", None

    def note(self, response):
        index = response.index
        has_finish = response.finish_reason != common.FINISH_REASON_UNSPECIFIED
        self.token = response.resume_token or self.token
        self.numerics = response.numerics_fingerprint or self.numerics
        if response.HasField("seed"):
            self.seed = (response.seed - index) % 2**64
        self.positions[index] = inference.ReceivedSample(
            index=index, next_position=response.position + len(response.token_ids), has_finish=has_finish
        )
        continued = self.continued.setdefault(index, inference.ContinuedSample(index=index))
        continued.token_ids.extend(response.token_ids)
        continued.has_finish = has_finish

    def continue_request(self, request) -> bool:
        """Makes the request one that continues its stream, which the manager does not know any more."""
        is_ranked = request.HasField("beam") or request.best_of > max(request.n, 1)
        if not self.continued or is_ranked or (request.HasField("prompt_logprobs") and 0 not in self.continued):
            return False
        self.token = ""
        if self.seed is not None:
            request.sampling.seed = self.seed
        request.continue_numerics = self.numerics
        samples = list(self.continued.values())
        del request.continue_from[:]
        request.continue_from.extend(samples)
        return True


def is_unknown_field(error: "grpc.RpcError", field: int) -> bool:
    """Whether a manager has refused the request because it is too old to know this field."""
    details = error.details() or ""
    is_unknown = f"field number {field} of " in details and " is not known to this server" in details
    return error.code() == grpc.StatusCode.INVALID_ARGUMENT and is_unknown


def stream(stub, request, metadata, timeout=60.0, resume_time=30.0):
    """Yields the responses of a request whose on_disconnect is DETACH, each token once, across lost connections. Tries
    to resume for `resume_time` seconds without progress, and raises the first error then. A request that the manager
    does not know any more is continued from what was received. When the caller stops, the request ends as well. `stub`
    may be a list of the stubs of several managers of which one leads."""
    managers = Managers(stub if isinstance(stub, list) else [stub])
    try:
        yield from resuming_stream(managers, copy.deepcopy(request), metadata, timeout, resume_time)
    except (KeyboardInterrupt, GeneratorExit):
        with contextlib.suppress(grpc.RpcError):
            managers.stub().Abort(inference.AbortRequest(request_id=request.request_id), timeout=1.0, metadata=metadata)
        raise


def resuming_stream(managers, request, metadata, timeout, resume_time):
    end = time.monotonic() + timeout
    received, cut, give_up, delay = Received(request.continue_from), None, 0.0, 0.0
    while True:
        left = end - time.monotonic()
        stub = managers.stub()
        if received.token:
            resume = inference.ResumeRequest(resume_token=received.token, received=received.positions.values())
            call = stub.Resume(resume, timeout=left, metadata=metadata)
        else:
            call = stub.Generate(request, timeout=left, metadata=metadata)
        try:
            for response in call:
                cut = None
                managers.note()
                received.note(response)
                yield response
            return
        except grpc.RpcError as error:
            if is_unknown_field(error, request.DESCRIPTOR.fields_by_name["on_disconnect"].number):
                request.ClearField("on_disconnect")
                continue
            if received.token and has_reason(error, "REQUEST_UNKNOWN") and received.continue_request(request):
                continue
            is_alone = len(managers.stubs) == 1
            stands_by = not is_alone and has_reason(error, "NOT_LEADER")
            is_other_known = not is_alone and (stands_by or is_cut(error)) and managers.leave(stands_by)
            # A request with a name can be sent twice, and starts once.
            may_repeat = received.token or request.continue_from or (is_other_known and request.request_id)
            # While the manager restores, a request that it does not know has not been started by it either. A manager
            # that has just started waits for its workers.
            is_starting = stands_by or is_restoring(error) or (request.continue_from and has_reason(error, "NO_WORKER"))
            if not is_starting and (not may_repeat or not is_cut(error)):
                raise
            if cut is None:
                cut, delay, give_up = error, 0.1, min(end, time.monotonic() + resume_time)
            if is_restoring(error):
                delay = 0.1  # It takes no longer than the workers need to answer.
            if time.monotonic() + delay >= give_up:
                raise cut from None
            time.sleep(delay)
            delay = min(2 * delay, 0.5)


def prompt_fields(args: argparse.Namespace) -> dict:
    """The prompt as fields of GenerateRequest."""
    if args.chat:
        return {"chat": {"messages": [{"role": "user", "content": args.prompt}]}}
    return {"text": args.prompt}


def main(args: argparse.Namespace) -> int:
    metadata = [("authorization", f"Bearer {args.token}")] if args.token else []
    request = inference.GenerateRequest(
        **prompt_fields(args),
        sampling=common.SamplingParams(temperature=0.7, top_p=0.95),
        stopping=common.StoppingParams(max_tokens=200),
        # The request has a name and goes on without its client, so that a call that was cut off can be resumed.
        request_id=f"python-{uuid.uuid4()}",
        on_disconnect=inference.ON_DISCONNECT_DETACH,
    )
    with contextlib.ExitStack() as channels:
        connections = [channels.enter_context(connect(args, one)) for one in split_endpoints(args.endpoint)]
        stubs = [services.InferenceServiceStub(connection) for connection in connections]
        try:
            with contextlib.closing(stream(stubs, request, metadata)) as responses:
                for response in responses:
                    print(response.text_delta, end="", flush=True)
                    if response.HasField("numerics_changed_at"):
                        at = response.numerics_changed_at
                        print(f"\nFrom position {at} on, the numerics are others.", file=sys.stderr)
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
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
