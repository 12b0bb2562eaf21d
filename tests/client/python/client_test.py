# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python client without a manager. It runs where the package is installed; tests/package/python_test.py
installs it."""

import asyncio
import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent import futures
from unittest import mock

import grpc
import quire
from quire import __main__ as program
from quire import _connection, _requests, _wire, guides, v1
from quire._resume import Resumption

ROOT = pathlib.Path(__file__).resolve().parents[3]


def details_of(*details):
    """Returns the trailing metadata with google.rpc details: tuples of a name and fields."""
    status = _wire.message("google.rpc.Status")()
    for name, fields in details:
        status.details.add().Pack(_wire.message(f"google.rpc.{name}")(**fields))
    return [("grpc-status-details-bin", status.SerializeToString())]


class FakeError(grpc.RpcError):
    def __init__(self, code, details="", trailing=()):
        super().__init__(details)
        self.code, self.details, self.trailing_metadata = lambda: code, lambda: details, lambda: trailing


def error_with_reason(code, reason, message=""):
    return FakeError(code, message, details_of(("ErrorInfo", {"reason": reason, "domain": "quire"})))


CODES = grpc.StatusCode
CUT = FakeError(CODES.UNAVAILABLE, "Socket closed")
REFUSED = FakeError(CODES.UNAVAILABLE, "failed to connect to all addresses; last error: UNKNOWN: connection refused")
RESTORING = error_with_reason(CODES.UNAVAILABLE, "RESTORING", "just started")
UNKNOWN = error_with_reason(CODES.NOT_FOUND, "REQUEST_UNKNOWN")
NO_WORKER = error_with_reason(CODES.UNAVAILABLE, "NO_WORKER")


def response(position, token="", seed=None, index=0):
    return v1.GenerateResponse(index=index, position=position, token_ids=[position], resume_token=token,
                               seed=seed)


class ScriptedCall:
    """A call that gives some responses, and then an error if there is one. It is open until its end or `cancel`."""

    def __init__(self, responses, error):
        self.responses, self.error, self.is_open = responses, error, True

    def __iter__(self):
        yield from self.responses
        self.is_open = False
        if self.error is not None:
            raise self.error

    async def __aiter__(self):
        for r in iter(self):
            yield r

    def cancel(self):
        self.is_open = False


class ScriptedStub:
    """Answers each call with the next step of its script: responses, and an error that may follow them."""

    def __init__(self, script, is_async):
        self.script, self.is_async, self.calls, self.answers = list(script), is_async, [], []

    def answer(self, *call):
        self.calls.append(call)
        self.answers.append(ScriptedCall(*self.script.pop(0)))
        return self.answers[-1]

    def Generate(self, request, timeout, metadata):
        continued = [(s.index, list(s.token_ids)) for s in request.continue_from]
        return self.answer("Generate", request.on_disconnect, *continued)

    def Resume(self, request, timeout, metadata):
        return self.answer("Resume", request.resume_token, [r.next_position for r in request.received])

    def Abort(self, request, timeout, metadata):
        self.calls.append(("Abort", request.request_id))
        return asyncio.sleep(0) if self.is_async else None


class StreamTest(unittest.TestCase):
    """Every test runs with both clients. No stream may leave a call open."""

    def run_script(self, is_async, script, request, stop_after, options):
        stub = ScriptedStub(script, is_async)
        positions, raised = [], None

        async def run():
            async with quire.AsyncClient("127.0.0.1:1") as client:
                client._managers.current.inference = stub
                async with contextlib.aclosing(client.stream(request, **options)) as responses:
                    async for r in responses:
                        positions.append(r.position)
                        if len(positions) == stop_after:
                            return

        try:
            if is_async:
                asyncio.run(run())
            else:
                with quire.Client("127.0.0.1:1") as client:
                    client._managers.current.inference = stub
                    with contextlib.closing(client.stream(request, **options)) as responses:
                        for r in responses:
                            positions.append(r.position)
                            if len(positions) == stop_after:
                                break
        except BaseException as error:
            raised = error
        self.assertFalse([call for call in stub.answers if call.is_open], "the stream has left a call open")
        return positions, stub.calls, raised

    def check(self, script, positions, calls, error=None, request=None, stop_after=None, **options):
        """`error` is what the stream must raise, as gRPC has given it to the client."""
        if request is None:
            request = v1.GenerateRequest(text="Hi", request_id="r", on_disconnect=v1.ON_DISCONNECT_DETACH)
        for is_async in (False, True):
            with self.subTest(is_async=is_async):
                found, made, raised = self.run_script(is_async, script, request, stop_after, options)
                self.assertEqual(found, positions)
                if calls is not None:
                    self.assertEqual(made, calls)
                if error is None:
                    self.assertIsNone(raised)
                else:
                    self.assertIsInstance(raised, quire.Error)
                    self.assertEqual(str(raised), str(quire.Error(error)))

    def test_a_call_that_was_cut_continues_with_what_is_missing(self):
        self.check([([response(5, "one")], CUT), ([response(6, "two")], CUT), ([response(7)], None)], [5, 6, 7],
                   [("Generate", 2), ("Resume", "one", [6]), ("Resume", "two", [7])])

    def test_a_request_of_which_nothing_is_known_is_repeated_by_its_name(self):
        self.check([([], CUT), ([], REFUSED), ([response(5, "one")], None)], [5], 3 * [("Generate", 2)])

    def test_without_a_connection_nothing_is_repeated(self):
        self.check([([], REFUSED)], [], [("Generate", 2)], error=REFUSED)

    def test_responses_without_a_token_cannot_be_resumed(self):
        self.check([([response(5)], CUT)], [5], [("Generate", 2)], error=CUT)

    def test_a_request_that_ends_with_its_call_is_not_repeated(self):
        self.check([([], CUT)], [], [("Generate", 0)], error=CUT, request=v1.GenerateRequest(text="Hi"))

    def test_the_first_error_is_raised_in_the_end(self):
        self.check([([response(5, "one")], CUT), *[([], REFUSED)] * 9], [5], None, error=CUT, resume_time=0.3)

    def test_a_call_that_was_taken_is_progress_without_a_response(self):
        with mock.patch("quire._resume.TAKEN_AFTER_S", 0):
            self.check([*[([], CUT)] * 5, ([response(5)], None)], [5], 6 * [("Generate", 2)], resume_time=0.15)
            self.check([([], CUT), *[([], REFUSED)] * 5], [], None, error=CUT, resume_time=0.15)

    def test_an_error_of_the_manager_is_raised(self):
        self.check([([response(5, "one")], CUT), ([], NO_WORKER)], [5], None, error=NO_WORKER)

    def test_a_manager_that_restores_its_requests_is_asked_again(self):
        self.check([([response(5, "one")], CUT), ([], RESTORING), ([], CUT), ([response(6)], None)], [5, 6],
                   [("Generate", 2)] + 3 * [("Resume", "one", [6])])
        self.check([([], RESTORING), ([response(5)], None)], [5], 2 * [("Generate", 2)])

    def test_a_manager_that_restores_for_too_long_is_given_up(self):
        self.check([([], RESTORING)] * 9, [], None, error=RESTORING, resume_time=0.3)

    def test_the_delay_grows_except_while_the_manager_restores(self):
        request = v1.GenerateRequest(text="Hi", request_id="r", on_disconnect=v1.ON_DISCONNECT_DETACH)
        for error, delays in ((CUT, [0.1, 0.2, 0.4, 0.5, 0.5]), (RESTORING, 5 * [0.1])):
            state = Resumption(request, timeout=1000, resume_time=1000)
            self.assertEqual([state.delay_after(quire.Error(error)) for _ in delays], delays)

    def test_resume_tells_where_the_numerics_have_changed_until_the_request_is_continued(self):
        request = v1.GenerateRequest(text="Hi", request_id="r", on_disconnect=v1.ON_DISCONNECT_DETACH)
        state = Resumption(request, timeout=1000, resume_time=1000)
        changed = response(5, "one")
        changed.numerics_changed_at = 5
        state.note(changed)
        state.note(response(6))
        self.assertEqual(state.next_call()[1].received[0].numerics_changed_at, 5)
        state.delay_after(quire.Error(UNKNOWN))
        state.note(response(7, "two"))
        self.assertEqual(state.next_call()[1].received[0].next_position, 8)
        self.assertFalse(state.next_call()[1].received[0].HasField("numerics_changed_at"))

    def test_a_request_that_the_manager_does_not_know_is_continued(self):
        again = ("Generate", 2, (0, [5, 6]))
        self.check([([response(5, "one", seed=9), response(6)], CUT), ([], UNKNOWN), ([], NO_WORKER), ([], CUT),
                    ([response(7, "two")], CUT), ([], UNKNOWN), ([response(8)], None)], [5, 6, 7, 8],
                   [("Generate", 2), ("Resume", "one", [7]), again, again, again, ("Resume", "two", [8]),
                    ("Generate", 2, (0, [5, 6, 7]))])

    def test_a_request_that_was_continued_is_continued_again_with_all_that_was_received(self):
        self.check([([response(5, "one")], CUT), ([], UNKNOWN), ([response(6), response(5, index=1)], CUT),
                    ([response(7), response(6, index=1)], CUT), ([response(8)], None)], [5, 6, 5, 7, 6, 8],
                   [("Generate", 2), ("Resume", "one", [6]), ("Generate", 2, (0, [5])),
                    ("Generate", 2, (0, [5, 6]), (1, [5])), ("Generate", 2, (0, [5, 6, 7]), (1, [5, 6]))])

    def test_a_request_that_continues_another_one_is_sent_again_with_all_that_was_received(self):
        request = v1.GenerateRequest(text="Hi", request_id="r", continue_from=[{"token_ids": [4]}])
        running = error_with_reason(CODES.ALREADY_EXISTS, "REQUEST_RUNNING")
        self.check([([], CUT), ([response(5)], CUT), ([], running), ([response(6)], None)], [5, 6],
                   [*[("Generate", 0, (0, [4]))] * 2, *[("Generate", 0, (0, [4, 5]))] * 2], request=request)

    def test_a_request_without_a_name_gets_that_of_its_first_response(self):
        request = v1.GenerateRequest(text="Hi", on_disconnect=v1.ON_DISCONNECT_DETACH)
        self.check([([], CUT)], [], [("Generate", 2)], error=CUT, request=request)
        state = Resumption(request, timeout=1000, resume_time=1000)
        first = response(5, "one")
        first.request_id = "chosen"
        state.note(first)
        state.delay_after(quire.Error(CUT))
        state.delay_after(quire.Error(UNKNOWN))
        self.assertEqual(state.next_call()[1].request_id, "chosen", "so it cannot start twice")

    def test_tokens_that_were_received_before_are_an_error(self):
        error = FakeError(CODES.INTERNAL, "the manager has sent position 5 of sample 0 again, the next one is 6")
        self.check([([response(5, "one"), response(5, "one")], None)], [5], None, error=error)

    def test_a_beam_search_is_not_continued(self):
        request = v1.GenerateRequest(text="Hi", request_id="r", on_disconnect=2, beam=v1.BeamParams(width=2))
        self.check([([response(5, "one")], CUT), ([], UNKNOWN)], [5], None, error=UNKNOWN, request=request)

    def test_only_a_stream_that_can_be_continued_keeps_its_tokens(self):
        detach = v1.ON_DISCONNECT_DETACH
        for is_kept, fields in ((True, {"on_disconnect": detach}), (True, {"continue_from": [{"token_ids": [4]}]}),
                                (True, {"on_disconnect": detach, "n": 2, "best_of": 2}), (False, {}),
                                (False, {"on_disconnect": detach, "beam": {"width": 2}}),
                                (False, {"on_disconnect": detach, "n": 2, "best_of": 3})):
            with self.subTest(fields=fields):
                state = Resumption(v1.GenerateRequest(text="Hi", request_id="r", **fields), timeout=9, resume_time=9)
                state.note(response(5))
                kept = [token for sample in state._continued.values() for token in sample.token_ids]
                self.assertEqual(kept.count(5), 1 if is_kept else 0)

    def test_an_older_manager_gets_the_request_without_on_disconnect(self):
        error = FakeError(CODES.INVALID_ARGUMENT,
                          "19: field number 19 of quire.v1.GenerateRequest is not known to this server")
        self.check([([], error), ([response(5)], None)], [5], [("Generate", 2), ("Generate", 0)])

    def test_a_caller_that_stops_ends_the_request(self):
        self.check([([response(5, "one"), response(6)], None)], [5], [("Generate", 2), ("Abort", "r")], stop_after=1)
        for is_async, stop in ((False, KeyboardInterrupt), (False, SystemExit), (False, ValueError),
                               (True, asyncio.CancelledError), (True, ValueError)):
            request = v1.GenerateRequest(text="Hi", request_id="r", on_disconnect=v1.ON_DISCONNECT_DETACH)
            _, calls, raised = self.run_script(is_async, [([response(5, "one")], stop())], request, None, {})
            self.assertEqual(calls[-1], ("Abort", "r"))
            self.assertIsInstance(raised, stop)

    def test_the_request_of_the_caller_stays_as_it_is(self):
        request = v1.GenerateRequest(text="Hi", request_id="r", on_disconnect=v1.ON_DISCONNECT_DETACH)
        self.check([([response(5, "one", seed=9)], CUT), ([], UNKNOWN), ([], None)], [5], None, request=request)
        self.assertFalse(request.continue_from)


class RequestTest(unittest.TestCase):
    def test_options_become_fields(self):
        request = _requests.make_request("Hi", None, {
            "temperature": 0.5, "logit_bias": {7: 1.5}, "max_tokens": 9, "stop": ["."], "n": 2, "beam": {"width": 3},
            "guide": guides.regex("a+"), "seed": None})
        self.assertEqual((request.text, request.sampling.temperature, dict(request.sampling.logit_bias)),
                         ("Hi", 0.5, {7: 1.5}))
        self.assertEqual((request.stopping.max_tokens, list(request.stopping.stop), request.n), (9, ["."], 2))
        self.assertEqual((request.beam.width, request.guided.regex), (3, "a+"))
        self.assertFalse(request.sampling.HasField("seed"))
        self.assertEqual(request.on_disconnect, v1.ON_DISCONNECT_DETACH)
        self.assertNotEqual(request.request_id, _requests.make_request("Hi", None, {}).request_id)
        self.assertEqual(list(_requests.make_request([1, 2], None, {}).token_ids.ids), [1, 2])

    def test_every_field_is_an_option_and_every_option_is_a_field(self):
        fields = _requests._SAMPLING | _requests._STOPPING | _requests._REQUEST | {"guide"}
        self.assertEqual(set(_requests.Options.__annotations__), fields)

    def test_inputs_of_embeddings_are_texts_or_token_ids(self):
        request = _requests.make_embed_request(["Hi", [1, 2]], {"dimensions": 8, "normalize": False, "tenant": None})
        self.assertEqual((request.inputs[0].text, list(request.inputs[1].token_ids.ids)), ("Hi", [1, 2]))
        self.assertEqual((request.dimensions, request.normalize), (8, False))
        self.assertEqual([i.text for i in _requests.make_embed_request("Hi", {}).inputs], ["Hi"])
        fields = _requests._fields(v1.EmbedRequest) - {"inputs"}
        self.assertEqual(set(_requests.EmbedOptions.__annotations__), fields)
        with self.assertRaisesRegex(TypeError, "there is no option dimension; did you mean dimensions?"):
            _requests.make_embed_request(["Hi"], {"dimension": 1})

    def test_an_option_that_does_not_exist_is_refused(self):
        with self.assertRaisesRegex(TypeError, "there is no option max_token; did you mean max_tokens?"):
            _requests.make_request("Hi", None, {"max_token": 1})
        for name in ("text", "on_disconnect", "continue_from", "guided"):
            with self.assertRaisesRegex(TypeError, f"there is no option {name}"):
                _requests.make_request("Hi", None, {name: "x"})
        with self.assertRaisesRegex(TypeError, "stop takes several texts"):
            _requests.make_request("Hi", None, {"stop": "end"})

    def test_a_conversation_has_messages_tools_and_variables(self):
        chat = _requests.make_chat([{"role": "user", "content": "Hi"}, v1.ChatMessage(role="assistant", content="Yes")],
                                   [{"type": "function"}], {"enable_thinking": False})
        self.assertEqual([m.role for m in chat.messages], ["user", "assistant"])
        self.assertEqual((chat.tools, chat.template_kwargs), ('[{"type": "function"}]', '{"enable_thinking": false}'))

    def test_guides_have_their_fields(self):
        class Model:
            @staticmethod
            def model_json_schema():
                return {"type": "object"}

        for schema in (Model, {"type": "object"}, '{"type": "object"}'):
            self.assertEqual(guides.json_schema(schema).json_schema, '{"type": "object"}')
        self.assertTrue(guides.json_object().json_object)
        self.assertEqual(guides.grammar("g").grammar, "g")
        self.assertEqual(list(guides.choice(["a", "b"]).choice.texts), ["a", "b"])
        with self.assertRaises(TypeError):
            guides.choice("ab")

    def test_samples_are_joined(self):
        collector = _requests.Collector()
        for index, text, reason in ((1, "b", 0), (0, "a", 1), (1, "c", 2)):
            collector.add(v1.GenerateResponse(index=index, text_delta=text, token_ids=[index], finish_reason=reason))
        self.assertEqual([(s.text, s.token_ids, s.finish_reason) for s in collector.samples()],
                         [("a", [0], 1), ("bc", [1, 1], 2)])


class ErrorTest(unittest.TestCase):
    def test_an_error_has_the_details_of_the_manager(self):
        error = quire.Error(FakeError(CODES.INVALID_ARGUMENT, "bad", details_of(
            ("ErrorInfo", {"reason": "QUEUE_FULL", "metadata": {"limit": "8"}}),
            ("BadRequest", {"field_violations": [{"field": "sampling.top_p", "description": "it is 2"}]}),
            ("RetryInfo", {"retry_delay": {"seconds": 1, "nanos": 500_000_000}}))))
        self.assertEqual((str(error), error.reason, error.metadata), ("INVALID_ARGUMENT: bad", "QUEUE_FULL",
                                                                      {"limit": "8"}))
        self.assertEqual((error.fields, error.retry_after), ({"sampling.top_p": "it is 2"}, 1.5))
        self.assertTrue(error.is_from_manager)
        self.assertFalse(quire.Error(CUT).is_from_manager)

    def test_an_error_names_the_argument(self):
        for said, text in (
            ("sampling.temperature: is -1, must be at least 0 and finite",
             "temperature: is -1, must be at least 0 and finite"),
            ("prompt has 5 tokens and stopping.max_tokens is 9.", "prompt has 5 tokens and max_tokens is 9."),
            ("token_ids.ids[1]: is 99999, the vocabulary has 2048 tokens (and 1 more error)",
             "prompt[1]: is 99999, the vocabulary has 2048 tokens (and 1 more error)"),
            ("text: needs a tokenizer", "prompt: needs a tokenizer"),
            ("chat.messages[0].role: is empty", "messages[0].role: is empty"),
            ("chat.template_kwargs: is no JSON object", "template: is no JSON object"),
            ('guided.regex: at byte 0, "stopping.stop\\" [": see sampling.seed',
             'guide.regex: at byte 0, "stopping.stop\\" [": see seed'),
            ("beam.width: is 300, it is at 127.0.0.1:1", "beam.width: is 300, it is at 127.0.0.1:1"),
        ):
            details = details_of(("BadRequest", {"field_violations": [{"field": "sampling.top_p"}]}))
            error = quire.Error(FakeError(CODES.INVALID_ARGUMENT, said, details), is_of_prompt=True)
            self.assertEqual((error.message, str(error)), (text, f"INVALID_ARGUMENT: {text}"))
        tokenize = quire.Error(FakeError(CODES.FAILED_PRECONDITION, "text: needs a tokenizer", details))
        self.assertEqual(tokenize.message, "text: needs a tokenizer")
        self.assertEqual(quire.Error(FakeError(CODES.INTERNAL, "sampling.seed", details)).message, "sampling.seed")


class ConnectionTest(unittest.TestCase):
    def test_a_pause_ends_when_the_lost_connection_is_there_again(self):
        with tempfile.TemporaryDirectory() as folder, futures.ThreadPoolExecutor() as pool:
            server = grpc.server(pool)
            server.add_insecure_port(f"unix:{folder}/socket")
            with quire.Client(f"unix:{folder}/socket") as client:
                manager = client._managers.current
                start = threading.Timer(0.3, server.start)
                start.start()
                begin = time.monotonic()
                _connection.pause(manager, 60.0)
                self.assertLess(time.monotonic() - begin, 30.0)
                start.join()
                # The connection is not what this pause waits for.
                begin = time.monotonic()
                _connection.pause(manager, 0.2)
                self.assertGreaterEqual(time.monotonic() - begin, 0.2)
            server.stop(None).wait()

    def error_of(self, endpoint="node1:50051", **options):
        try:
            quire.Client(endpoint, **options).close()
        except (ValueError, OSError) as error:
            return str(error)
        return None

    def test_the_other_tls_options_need_the_authority(self):
        error = "tls_ca is missing: tls_cert, tls_key and tls_name mean nothing without it"
        self.assertEqual(self.error_of(tls_cert="c", tls_key="k"), error)
        self.assertEqual(self.error_of(tls_name="n"), error)

    def test_a_certificate_and_its_key_belong_together(self):
        for name in ("tls_cert", "tls_key"):
            self.assertEqual(self.error_of(tls_ca="ca", **{name: "x"}),
                             "tls_cert and tls_key belong together: one of them is missing")

    def test_a_token_leaves_this_machine_only_with_tls(self):
        for endpoint in ("node1:50051", "10.0.0.1:50051", "dns:///node1:50051", "ipv4:127.0.0.1:1,10.0.0.1:1",
                         "[2001:db8::1]:50051"):
            self.assertEqual(self.error_of(endpoint, token="secret"),
                             f"tls_ca is missing: a token is not sent to {endpoint} in plain text")
            self.assertIsNone(self.error_of(endpoint))
        self.assertIn("No such file", self.error_of(token="secret", tls_ca="/nowhere/ca"))
        for endpoint in ("127.0.0.1:50051", "localhost:50051", "dns:///localhost:50051", "[::1]:50051",
                         "unix:/run/quire.sock"):
            self.assertIsNone(self.error_of(endpoint, token="secret"))


class ProgramTest(unittest.TestCase):
    def test_an_unknown_option_is_told_what_was_meant(self):
        for argument, hint in (
            ("--manager=node1:1", "unexpected argument --manager=node1:1; the manager is the second argument"),
            ("--endpoint=node1:1", "; the manager is the second argument"),
            ("--max-tokns=5", "unexpected argument --max-tokns=5; did you mean --max-tokens?\n"),
            ("--zebra", "unexpected argument --zebra\n"),
        ):
            output = io.StringIO()
            with (mock.patch.object(sys, "argv", ["quire-generate", "Once", argument]),
                  contextlib.redirect_stderr(output), self.assertRaises(SystemExit) as end):
                program.main()
            self.assertEqual(end.exception.code, 2)
            self.assertIn(hint, output.getvalue())

    def test_errors_of_the_command_line_have_exit_code_2(self):
        for arguments, token, error in (
            (["Once", "node1:1", "--token=secret"], "", "a token is not sent to node1:1 in plain text"),
            (["Once", "node1:1"], "secret", "a token is not sent to node1:1 in plain text"),
            (["Once", "--grammar=/nowhere/grammar"], "", "No such file"),
            (["Once", "-n", "-1"], "", "the option max_tokens: Value out of range: -1"),
            (["Once", "--chat", "--seed", "-1"], "", "the option seed: Value out of range: -1"),
        ):
            output = io.StringIO()
            with (mock.patch.object(sys, "argv", ["quire-generate", *arguments]),
                  mock.patch.dict(os.environ, {"QUIRE_TOKEN": token}), contextlib.redirect_stderr(output)):
                self.assertEqual(program.main(), 2)
            self.assertIn(error, output.getvalue())


class PackageTest(unittest.TestCase):
    def test_the_version_is_that_of_the_programs(self):
        self.assertIn(f'"{quire.__version__}"', (ROOT / "base/version.h").read_text())

    def test_the_stub_for_type_checkers_has_every_name(self):
        text = (pathlib.Path(v1.__file__).with_suffix(".pyi")).read_text()
        compile(text, "v1.pyi", "exec")
        for name in _wire.names_of("quire.v1"):
            self.assertRegex(text, rf"(?m)^(class {name}\(|{name}: )")
        self.assertTrue((pathlib.Path(quire.__file__).parent / "py.typed").exists())

    def test_the_protos_of_others_stay_out_of_the_common_pool(self):
        code = ("import quire\nfrom google.protobuf import descriptor_pool\n"
                "try: descriptor_pool.Default().FindMessageTypeByName('google.rpc.Status')\n"
                "except KeyError: print('none')")
        self.assertEqual(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                        check=True).stdout, "none\n")


if __name__ == "__main__":
    unittest.main()
