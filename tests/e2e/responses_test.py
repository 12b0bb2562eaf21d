# SPDX-License-Identifier: Apache-2.0
"""Speaks the Responses interface of OpenAI with quire-openai in front of a manager and a worker. The argument is the
folder of our programs."""

import hashlib
import json
import pathlib
import sys
import tempfile
import threading
import unittest

from cutting_proxy import CuttingProxy
from openai_programs import Program, answers_across_restart, resumable_installation, started, wait_for
from responses_programs import joined, stream_response

PROMPT = "Once upon a time"
USER = {"role": "user", "content": PROMPT}
GREEDY = {"model": "tales", "max_output_tokens": 20, "temperature": 0, "input": PROMPT}


def text_of(response):
    return "".join(
        part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
    )


def without_names(response):
    """A response without what differs between equal answers."""
    output = [{key: value for key, value in item.items() if key != "id"} for item in response["output"]]
    for item in output:
        item.pop("call_id", None)
    usage = response["usage"]
    return output, response["status"], usage["input_tokens"], usage["output_tokens"]


class ResponsesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.quire = started(cls, BIN)
        cls.story = cls.quire.quirectl("generate", PROMPT, "-n", "20", "-t", "0")[:-1]

    def create(self, **fields):
        code, response, _ = self.quire.call("/v1/responses", {**GREEDY, **fields})
        self.assertEqual(code, 200, response)
        return response

    def error(self, body, code=400, path="/v1/responses"):
        status, answer, headers = self.quire.call(path, body)
        self.assertEqual(status, code, answer)
        self.assertIn("X-Request-Id", headers)
        return answer["error"]

    def test_a_response_is_what_quirectl_prints(self):
        response = self.create(metadata={"a": "b"})
        self.assertRegex(response["id"], "^resp_")
        self.assertEqual((response["object"], response["model"]), ("response", "tales"))
        self.assertEqual(text_of(response), self.story)
        self.assertEqual((response["status"], response["incomplete_details"]),
                         ("incomplete", {"reason": "max_output_tokens"}))
        self.assertEqual((response["metadata"], response["store"]), ({"a": "b"}, False))
        usage = response["usage"]
        self.assertEqual(usage["output_tokens"], 20)
        self.assertEqual(usage["total_tokens"], usage["input_tokens"] + 20)
        tokenized = self.quire.call("/tokenize", {"messages": [USER]})[1]["count"]
        self.assertEqual(usage["input_tokens"], tokenized)

    def test_a_chat_gives_the_same(self):
        chat = {"messages": [{"role": "system", "content": "Tell."}, USER], "max_tokens": 20, "temperature": 0}
        code, answer, _ = self.quire.call("/v1/chat/completions", chat)
        self.assertEqual(code, 200, answer)
        self.assertEqual(text_of(self.create(instructions="Tell.")), answer["choices"][0]["message"]["content"])

    def test_the_events_of_a_stream_give_the_whole_response(self):
        response, events = stream_response(self.quire, GREEDY)
        self.assertEqual(without_names(response), without_names(self.create()))
        kinds = [event["type"] for event in events]
        self.assertEqual(kinds[:4], ["response.created", "response.in_progress", "response.output_item.added",
                                     "response.content_part.added"])
        self.assertEqual(kinds[-4:], ["response.output_text.done", "response.content_part.done",
                                      "response.output_item.done", "response.incomplete"])
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        self.assertEqual("".join(deltas), text_of(response))
        self.assertGreater(len(deltas), 1)
        self.assertEqual({event["item_id"] for event in events if "item_id" in event}, {response["output"][0]["id"]})

    def test_the_same_prefix_is_cached(self):
        story = "The owl, the bear and the bee had a feast in the wood. " * 10
        self.create(input=story, max_output_tokens=1)
        usage = self.create(input=story, max_output_tokens=1)["usage"]
        self.assertGreater(usage["input_tokens_details"]["cached_tokens"], 50)

    def test_a_schema_holds_for_the_answer(self):
        schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"],
                  "additionalProperties": False}
        form = {"type": "json_schema", "name": "cat", "strict": True, "schema": schema}
        response = self.create(text={"format": form}, max_output_tokens=200)
        self.assertEqual(response["status"], "completed")
        self.assertEqual(list(json.loads(text_of(response))), ["age"])
        form["schema"] = {"type": "object", "disallow": {}}
        error = self.error({**GREEDY, "text": {"format": form}})
        self.assertEqual(error["param"], "text.format.schema")

    def test_logprobs_are_those_of_a_chat(self):
        response = self.create(include=["message.output_text.logprobs"], top_logprobs=2)
        chat = {"messages": [USER], "max_tokens": 20, "temperature": 0, "logprobs": True, "top_logprobs": 2}
        expected = self.quire.call("/v1/chat/completions", chat)[1]["choices"][0]["logprobs"]["content"]
        self.assertEqual(response["output"][0]["content"][0]["logprobs"], expected)
        streamed, events = stream_response(self.quire, {**GREEDY, "include": ["message.output_text.logprobs"],
                                                        "top_logprobs": 2})
        self.assertEqual(streamed["output"][0]["content"][0]["logprobs"], expected)
        deltas = [event["logprobs"] for event in events if event["type"] == "response.output_text.delta"]
        self.assertEqual(sum(deltas, []), expected)

    def test_an_answer_ends_where_the_context_does(self):
        response = self.create(input=f"{PROMPT}, " * 130, max_output_tokens=32000)
        if response["status"] != "completed":  # The model may have ended its story.
            self.assertEqual(response["incomplete_details"]["reason"], "max_output_tokens")
            self.assertEqual(response["usage"]["total_tokens"], 1024)
        error = self.error({**GREEDY, "input": f"{PROMPT}, " * 1000})
        self.assertEqual((error["code"], error["param"]), ("context_length_exceeded", "input"))

    def test_errors_name_field_value_and_limit(self):
        error = self.error({**GREEDY, "temperature": -1})
        self.assertEqual((error["type"], error["param"]), ("invalid_request_error", "temperature"))
        error = self.error({**GREEDY, "previous_response_id": "resp_1"})
        self.assertEqual(error["param"], "previous_response_id")
        self.assertIn("send the whole conversation in input", error["message"])
        error = self.error({**GREEDY, "tools": [{"type": "web_search"}]})
        self.assertEqual(error["param"], "tools[0].type")
        error = self.error({**GREEDY, "model": "other"}, 404)
        self.assertEqual(error["code"], "model_not_found")
        self.assertIn("did you mean input?", self.error({"inptu": "x"})["message"])
        self.assertEqual(self.error(None, 405)["code"], "method_not_allowed")
        self.assertIn("stored responses", self.error(None, 404, "/v1/responses/resp_1")["message"])

    def test_metrics_have_the_path(self):
        self.create()
        self.assertRegex(self.quire.metrics(), r'quire_openai_answers_total{path="/v1/responses",code="200"} \d+')
        stream_response(self.quire, GREEDY)
        self.assertRegex(self.quire.metrics(), r'quire_openai_stream_start_seconds_count{path="/v1/responses"} \d+')


class ResponseToolsTest(unittest.TestCase):
    """A model of stories that must call tools, and may think."""

    WEATHER = {
        "type": "function",
        "name": "get_weather",
        "description": "Get the weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    }
    PATCH = {"type": "custom", "name": "patch", "description": "Edits a file"}
    MAIL = {
        "type": "namespace",
        "name": "mail",
        "description": "Letters",
        "tools": [{"type": "function", "name": "count", "parameters": {"type": "object", "properties": {},
                                                                       "additionalProperties": False}}],
    }

    def start(self, *gateway_flags):
        template = "{% for m in messages %}{{ m.reasoning_content }}{{ '' + m.content }}"
        template += "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}"
        template += "{% if enable_thinking %}<think>\n{% endif %}{# </think> <tool_call> 'tool' #}"
        return started(self, BIN, chat_template=template, gateway_flags=gateway_flags)

    def call(self, quire, **fields):
        body = {"input": PROMPT, "tools": [self.WEATHER, self.PATCH, self.MAIL], "max_output_tokens": 300, "seed": 5,
                "temperature": 1, **fields}
        code, response, _ = quire.call("/v1/responses", body)
        self.assertEqual(code, 200, response)
        self.assertEqual(without_names(stream_response(quire, body)[0]), without_names(response))
        return response

    def test_calls_that_are_forced(self):
        for tool_calls in ("hermes", "llama3", "mistral"):
            with self.subTest(tool_calls):
                quire = self.start(f"--tool-call-format={tool_calls}", "--reasoning-format=none")
                named = self.call(quire, tool_choice={"type": "function", "name": "get_weather"})
                self.assertEqual([item["type"] for item in named["output"]], ["function_call"])
                called = named["output"][0]
                self.assertEqual((called["name"], called["status"]), ("get_weather", "completed"))
                self.assertIn(json.loads(called["arguments"])["city"], ["Rome", "Oslo"])
                choice = {"type": "allowed_tools", "mode": "required",
                          "tools": [{"type": "function", "name": "mail.count"}]}
                counted = self.call(quire, tool_choice=choice, parallel_tool_calls=False)["output"]
                self.assertEqual([(item["namespace"], item["name"]) for item in counted], [("mail", "count")])
                # The answer is accepted back, with the result of the tool.
                history = [USER, *named["output"], *counted]
                for item in (called, counted[0]):
                    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "warm"}
                    history.append(result)
                self.call(quire, input=history, tool_choice="required", parallel_tool_calls=False)

    def test_the_input_of_a_custom_tool_is_a_text(self):
        quire = self.start("--tool-call-format=hermes", "--reasoning-format=none")
        response = self.call(quire, tool_choice={"type": "custom", "name": "patch"}, max_output_tokens=900)
        called = response["output"][0]
        self.assertEqual((called["type"], called["name"]), ("custom_tool_call", "patch"))
        if called["status"] == "completed":  # The story may be longer.
            self.assertNotIn('{"input"', called["input"])
        result = {"type": "custom_tool_call_output", "call_id": called["call_id"], "output": "done"}
        self.call(quire, input=[USER, called, result], tool_choice="none", max_output_tokens=5)

    def test_thoughts_and_their_way_back(self):
        quire = self.start("--tool-call-format=none", "--reasoning-format=think")
        body = {"input": PROMPT, "max_output_tokens": 10, "temperature": 0,
                "chat_template_kwargs": {"enable_thinking": True}, "include": ["reasoning.encrypted_content"]}
        code, response, _ = quire.call("/v1/responses", body)
        self.assertEqual(code, 200, response)
        self.assertEqual([item["type"] for item in response["output"]], ["reasoning"])
        self.assertEqual(response["usage"]["output_tokens_details"]["reasoning_tokens"], 10)
        self.assertEqual(without_names(stream_response(quire, body)[0]), without_names(response))
        thought = response["output"][0]
        lengths = set()
        for lost in (None, "content", "encrypted_content"):  # Codex gives encrypted_content back, and not the text.
            history = [USER, {name: value for name, value in thought.items() if name != lost},
                       {"role": "user", "content": "go on"}]
            code, response, _ = quire.call("/v1/responses", {**body, "input": history, "max_output_tokens": 1})
            self.assertEqual(code, 200, response)
            lengths.add(response["usage"]["input_tokens"])
        self.assertEqual(len(lengths), 1)
        code, forgotten, _ = quire.call("/v1/responses", {**body, "input": [USER, history[2]], "max_output_tokens": 1})
        self.assertLess(forgotten["usage"]["input_tokens"], lengths.pop())

    def test_a_schema_that_is_not_supported_is_named(self):
        quire = self.start("--tool-call-format=hermes")
        inner = {"type": "function", "name": "f", "parameters": {"type": "object", "disallow": {}}}
        space = {"type": "namespace", "name": "n", "description": "d", "tools": [inner]}
        body = {"input": PROMPT, "tools": [self.WEATHER, space], "tool_choice": "required"}
        code, answer, _ = quire.call("/v1/responses", body)
        self.assertEqual(code, 400)
        self.assertRegex(answer["error"]["message"], r"^tools\[1\].tools\[0\].parameters at #/disallow")


class TokensTest(unittest.TestCase):
    def test_a_token_is_needed_as_for_chats(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        tokens = folder / "tokens"
        tokens.write_text(f"tenant-a {hashlib.sha256(b'secret-of-a').hexdigest()}\n")
        quire = started(self, BIN, manager_flags=[f"--tokens={tokens}"], gateway_flags=["--require-tokens"])
        self.assertEqual(quire.call("/v1/responses", GREEDY, "secret-of-a")[0], 200)
        for token in (None, "wrong"):
            code, answer, _ = quire.call("/v1/responses", GREEDY, token)
            self.assertEqual((code, answer["error"]["code"]), (401, "invalid_api_key"))


class LostManagerTest(unittest.TestCase):
    def test_answers_continue_with_the_next_manager(self):
        quire = resumable_installation(self, BIN)
        # A pattern keeps the model from ending its answer.
        schema = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 400, "maxItems": 400}
        body = {"input": PROMPT, "max_output_tokens": 900, "temperature": 0.8, "seed": 3}
        body["text"] = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
        code, expected, _ = quire.call("/v1/responses", body)
        self.assertEqual(code, 200, expected)
        self.assertGreater(expected["usage"]["output_tokens"], 200)
        whole, streamed = answers_across_restart(
            quire, lambda: quire.call("/v1/responses", body)[1], lambda: stream_response(quire, body)[0]
        )
        self.assertEqual(without_names(whole), without_names(expected))
        self.assertEqual(without_names(streamed), without_names(expected))

    def expect_same_streams(self, quire, trouble):
        """Compares streams with what they are without `trouble`, which runs when all have begun."""
        numbers = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 200, "maxItems": 200}
        common = {"input": PROMPT, "max_output_tokens": 900, "temperature": 0.8, "seed": 3}
        text = {**common, "text": {"format": {"type": "json_schema", "name": "n", "schema": numbers}}}
        text |= {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
        tool = {"type": "function", "name": "count", "strict": True}
        tool["parameters"] = {"type": "object", "properties": {"n": numbers}, "required": ["n"],
                              "additionalProperties": False}
        bodies = [text, {**common, "tools": [tool], "tool_choice": "required"}]
        expected = [joined(stream_response(quire, body)[1]) for body in bodies]
        found, num_events = [None] * len(bodies), [0] * len(bodies)

        def stream(i):
            def count(_event):
                num_events[i] += 1

            found[i] = joined(stream_response(quire, bodies[i], on_event=count)[1])

        threads = [threading.Thread(target=stream, args=[i]) for i in range(len(bodies))]
        for thread in threads:
            thread.start()
        trouble(num_events)
        for thread in threads:
            thread.join()
        self.assertEqual(found, expected)

    def caller(self):
        """An installation whose model is known to write calls in the format of Hermes."""
        return resumable_installation(self, BIN, ["--tool-call-format=hermes"])

    def test_a_stream_survives_its_worker_and_then_its_manager(self):
        quire = self.caller()

        def lose_both(num_events):
            wait_for(lambda: quire.num_begun() == 2)
            quire.worker.end()
            quire.start_worker()
            before = list(num_events)
            wait_for(lambda: all(now > then + 5 for now, then in zip(num_events, before, strict=True)))
            quire.manager.end()
            quire.start_manager()

        self.expect_same_streams(quire, lose_both)

    def test_a_stream_survives_cuts_of_the_connection_to_the_manager(self):
        quire = self.caller()
        proxy = CuttingProxy(f"{quire.folder}/manager", num_bytes=10_000)
        self.addCleanup(proxy.listener.close)
        gateway = Program(
            quire.stack,
            [BIN / "quire-openai", f"--manager={proxy.endpoint}", "--listen=127.0.0.1:0", "--tool-call-format=hermes"],
            r"listening on 127\.0\.0\.1:(\d+)")
        quire.port = int(gateway.found)
        quire.wait_until_ready()
        self.expect_same_streams(quire, lambda num_events: None)
        self.assertGreater(proxy.num_cuts, 3)

    def test_a_stream_that_nobody_continues_has_failed(self):
        quire = started(self, BIN, gateway_flags=["--resume-time=0"])
        has_begun = threading.Event()
        answers = {}

        def stream():
            body = {"input": PROMPT, "max_output_tokens": 1000}
            answers["end"], answers["events"] = stream_response(quire, body, on_event=lambda event: has_begun.set())

        thread = threading.Thread(target=stream)
        thread.start()
        has_begun.wait()
        quire.manager.end()
        thread.join()
        if answers["end"]["status"] == "failed":  # The story may have ended before the manager.
            self.assertEqual(answers["end"]["error"]["code"], "server_error")
            error = answers["events"][-2]
            self.assertEqual((error["type"], error["code"]), ("error", "manager_lost"))


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
