"""Checks which arguments client/python/generate.py refuses. It needs no gRPC."""

import contextlib
import importlib.util
import io
import os
import pathlib
import sys
import types
import unittest
from unittest import mock

sys.modules["grpc"] = None  # An import of gRPC would fail.
PATH = pathlib.Path(__file__).resolve().parents[3] / "client/python/generate.py"
spec = importlib.util.spec_from_file_location("generate", PATH)
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)


def error_of(*arguments, token=""):
    """Returns the error of the program for these arguments and $QUIRE_TOKEN, or None."""
    output = io.StringIO()
    with (mock.patch.object(sys, "argv", ["generate.py", *arguments]),
          mock.patch.dict(os.environ, {"QUIRE_TOKEN": token}), contextlib.redirect_stderr(output)):
        try:
            generate.read_arguments()
        except SystemExit as end:
            assert end.code == 2
            return output.getvalue().strip().split("generate.py: error: ")[-1]
    return None


class RpcError(Exception):
    """An error as gRPC raises it."""

    def __init__(self, code, details="", trailing=()):
        super().__init__(details)
        self.code, self.details, self.trailing_metadata = lambda: code, lambda: details, lambda: trailing


class ScriptedStub:
    """Answers each call with the next step of its script: responses, and an error that may follow them."""

    def __init__(self, *script):
        self.script, self.calls = list(script), []

    def answer(self, *call):
        self.calls.append(call)
        responses, error = self.script.pop(0)
        yield from responses
        if error is not None:
            raise error

    def Generate(self, request, timeout, metadata):
        continued = [(s.index, list(s.token_ids)) for s in request.continue_from]
        return self.answer("Generate", request.on_disconnect, *continued)

    def Resume(self, request, timeout, metadata):
        return self.answer("Resume", request.resume_token, [r.next_position for r in request.received])

    def Abort(self, request, timeout, metadata):
        self.calls.append(("Abort", request.request_id))


class Request:
    """The part of a GenerateRequest that resuming needs."""

    request_id, on_disconnect, n, best_of = "r", 2, 0, 0
    DESCRIPTOR = types.SimpleNamespace(fields_by_name={"on_disconnect": types.SimpleNamespace(number=19)})

    def __init__(self, beam=False):
        self.beam, self.continue_from, self.sampling = beam, [], types.SimpleNamespace(seed=None)

    def HasField(self, name):
        return name == "beam" and self.beam

    def ClearField(self, name):
        setattr(self, name, 0)


def response(position, token="", seed=None):
    return types.SimpleNamespace(index=0, position=position, token_ids=[position], finish_reason=0, resume_token=token,
                                 numerics_fingerprint="bits", seed=seed, HasField=lambda name: seed is not None)


CUT = RpcError("UNAVAILABLE", "Socket closed")

# A google.rpc.Status as a manager sends it: {code: 14, details: [ErrorInfo {reason: "RESTORING", domain: "quire"}]}.
RESTORING = (b"\x08\x0e\x1a\x3e\x0a\x28type.googleapis.com/google.rpc.ErrorInfo"
             b"\x12\x12\x0a\x09RESTORING\x12\x05quire")


class StreamTest(unittest.TestCase):
    def setUp(self):
        codes = types.SimpleNamespace(UNAVAILABLE="UNAVAILABLE", CANCELLED="CANCELLED", INTERNAL="INTERNAL",
                                      UNKNOWN="UNKNOWN", INVALID_ARGUMENT="INVALID_ARGUMENT")
        fakes = {"grpc": types.SimpleNamespace(RpcError=RpcError, StatusCode=codes),
                 "common": types.SimpleNamespace(FINISH_REASON_UNSPECIFIED=0),
                 "inference": types.SimpleNamespace(ResumeRequest=types.SimpleNamespace,
                                                    ReceivedSample=types.SimpleNamespace,
                                                    ContinuedSample=lambda index: types.SimpleNamespace(
                                                        index=index, token_ids=[], has_finish=False),
                                                    AbortRequest=types.SimpleNamespace)}
        for name, fake in fakes.items():
            patch = mock.patch.object(generate, name, fake, create=True)
            patch.start()
            self.addCleanup(patch.stop)

    def positions(self, stub, **options):
        return [r.position for r in generate.stream(stub, Request(), [], **options)]

    def test_a_call_that_was_cut_goes_on_with_what_is_missing(self):
        stub = ScriptedStub(([response(5, "one")], CUT), ([response(6, "two")], CUT), ([response(7)], None))
        self.assertEqual(self.positions(stub), [5, 6, 7])
        self.assertEqual(stub.calls, [("Generate", 2), ("Resume", "one", [6]), ("Resume", "two", [7])])

    def test_without_a_token_nothing_is_sent_again(self):
        stub = ScriptedStub(([response(5)], CUT))
        with self.assertRaises(RpcError):
            self.positions(stub)
        self.assertEqual(stub.calls, [("Generate", 2)])

    def test_the_first_error_is_raised_in_the_end(self):
        stub = ScriptedStub(([response(5, "one")], CUT), *[([], RpcError("UNAVAILABLE", "refused"))] * 9)
        with self.assertRaises(RpcError) as raised:
            self.positions(stub, resume_time=0.3)
        self.assertIs(raised.exception, CUT)

    def test_an_error_of_the_manager_is_raised(self):
        error = RpcError("UNAVAILABLE", "no worker", [("grpc-status-details-bin", b"x")])
        stub = ScriptedStub(([response(5, "one")], CUT), ([], error))
        with self.assertRaises(RpcError) as raised:
            self.positions(stub)
        self.assertIs(raised.exception, error)

    def test_a_manager_that_restores_its_requests_is_asked_again(self):
        restoring = RpcError("UNAVAILABLE", "just started", [("grpc-status-details-bin", RESTORING)])
        stub = ScriptedStub(([response(5, "one")], CUT), ([], restoring), ([], CUT), ([response(6)], None))
        self.assertEqual(self.positions(stub), [5, 6])
        self.assertEqual(stub.calls, [("Generate", 2)] + 3 * [("Resume", "one", [6])])
        stub = ScriptedStub(([], restoring), ([response(5)], None))
        self.assertEqual(self.positions(stub), [5])
        self.assertEqual(stub.calls, 2 * [("Generate", 2)])

    def test_a_manager_that_restores_for_too_long_is_given_up(self):
        restoring = RpcError("UNAVAILABLE", "just started", [("grpc-status-details-bin", RESTORING)])
        stub = ScriptedStub(*[([], restoring)] * 9)
        with self.assertRaises(RpcError) as raised:
            self.positions(stub, resume_time=0.45)
        self.assertGreater(len(stub.calls), 3, "the delay does not grow")
        self.assertIs(raised.exception, restoring)

    def test_of_several_managers_the_one_that_leads_is_found(self):
        standby = RpcError("UNAVAILABLE", "stands by", [("grpc-status-details-bin", b"\x0a\x0aNOT_LEADER")])
        first = ScriptedStub(([], standby), ([], CUT), ([response(7)], None))
        second = ScriptedStub(([response(5, "one"), response(6)], CUT), ([], standby))
        self.assertEqual(self.positions([first, second]), [5, 6, 7])
        self.assertEqual(first.calls, [("Generate", 2)] + 2 * [("Resume", "one", [7])])
        self.assertEqual(second.calls, [("Generate", 2), ("Resume", "one", [7])])

    def test_when_no_manager_can_be_reached_each_is_asked_once(self):
        stubs = [ScriptedStub(([], CUT)), ScriptedStub(([], CUT))]
        with self.assertRaises(RpcError):
            self.positions(stubs)
        self.assertEqual([len(stub.calls) for stub in stubs], [1, 1])

    def test_a_request_that_the_manager_does_not_know_is_continued(self):
        unknown = RpcError("NOT_FOUND", "unknown", [("grpc-status-details-bin", b"\x0a\x0fREQUEST_UNKNOWN")])
        starting = RpcError("UNAVAILABLE", "no worker", [("grpc-status-details-bin", b"\x0a\x09NO_WORKER")])
        stub = ScriptedStub(([response(5, "one", seed=9), response(6)], CUT), ([], unknown), ([], starting), ([], CUT),
                            ([response(7, "two")], CUT), ([], unknown), ([response(8)], None))
        self.assertEqual(self.positions(stub), [5, 6, 7, 8])
        again = ("Generate", 2, (0, [5, 6]))
        self.assertEqual(stub.calls, [("Generate", 2), ("Resume", "one", [7]), again, again, again,
                                      ("Resume", "two", [8]), ("Generate", 2, (0, [5, 6, 7]))])

    def test_a_beam_search_is_not_continued(self):
        unknown = RpcError("NOT_FOUND", "unknown", [("grpc-status-details-bin", b"\x0a\x0fREQUEST_UNKNOWN")])
        stub = ScriptedStub(([response(5, "one")], CUT), ([], unknown))
        with self.assertRaises(RpcError) as raised:
            list(generate.stream(stub, Request(beam=True), []))
        self.assertIs(raised.exception, unknown)

    def test_an_older_manager_gets_the_request_without_on_disconnect(self):
        error = RpcError("INVALID_ARGUMENT",
                         "19: field number 19 of quire.v1.GenerateRequest is not known to this server")
        stub = ScriptedStub(([], error), ([response(5)], None))
        self.assertEqual(self.positions(stub), [5])
        self.assertEqual(stub.calls, [("Generate", 2), ("Generate", 0)])

    def test_a_caller_that_stops_ends_the_request(self):
        stub = ScriptedStub(([response(5, "one"), response(6)], None))
        with contextlib.closing(generate.stream(stub, Request(), [])) as responses:
            next(responses)
        self.assertEqual(stub.calls[-1], ("Abort", "r"))
        stub = ScriptedStub(([response(5, "one")], KeyboardInterrupt()))
        with self.assertRaises(KeyboardInterrupt):
            self.positions(stub)
        self.assertEqual(stub.calls[-1], ("Abort", "r"))


class GenerateTest(unittest.TestCase):
    def test_the_prompt_is_text_or_a_message(self):
        for flags, fields in (([], {"text": "Hi"}),
                              (["--chat"], {"chat": {"messages": [{"role": "user", "content": "Hi"}]}})):
            with mock.patch.object(sys, "argv", ["generate.py", "Hi", *flags]):
                self.assertEqual(generate.prompt_fields(generate.read_arguments()), fields)

    def test_the_other_tls_options_need_the_authority(self):
        error = "--tls-ca is missing: --tls-cert, --tls-key and --tls-name mean nothing without it"
        for flags in (["--tls-cert=c", "--tls-key=k"], ["--tls-name=quire-manager"]):
            self.assertEqual(error_of(*flags), error)
        self.assertIsNone(error_of("--tls-ca=ca", "--tls-cert=c", "--tls-key=k", "--tls-name=n"))

    def test_a_certificate_and_its_key_belong_together(self):
        for flag in ("--tls-cert=c", "--tls-key=k"):
            self.assertEqual(error_of("--tls-ca=ca", flag),
                             "--tls-cert and --tls-key belong together: one of them is missing")

    def test_a_token_leaves_this_machine_only_with_tls(self):
        for endpoint in ("node1:50051", "10.0.0.1:50051", "dns:///node1:50051", "ipv4:127.0.0.1:1,10.0.0.1:1",
                         "[2001:db8::1]:50051"):
            error = f"--tls-ca is missing: a token is not sent to {endpoint} in plain text"
            self.assertEqual(error_of("Once", endpoint, "--token=secret"), error)
            self.assertEqual(error_of("Once", endpoint, token="secret"), error)
            self.assertIsNone(error_of("Once", endpoint))
        self.assertIsNone(error_of("Once", "node1:50051", "--token=secret", "--tls-ca=ca"))
        for endpoint in ("127.0.0.1:50051", "localhost:50051", "dns:///localhost:50051", "[::1]:50051",
                         "unix:/run/quire.sock"):
            self.assertIsNone(error_of("Once", endpoint, "--token=secret"))


if __name__ == "__main__":
    unittest.main()
