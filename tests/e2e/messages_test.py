# SPDX-License-Identifier: Apache-2.0
"""Speaks the Messages interface of Anthropic with quire-openai in front of a manager and a worker. The argument is the
folder of our programs."""

import hashlib
import json
import pathlib
import sys
import tempfile
import threading
import unittest

from messages_programs import stream_message
from openai_programs import answers_across_restart, resumable_installation, started

PROMPT = "Once upon a time"
USER = {"role": "user", "content": PROMPT}
GREEDY = {"model": "tales", "max_tokens": 20, "temperature": 0, "messages": [USER]}


def text_of(message):
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def prompt_tokens(usage):
    return usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]


def without_names(message):
    """A message without what differs between equal answers."""
    content = [{name: value for name, value in block.items() if name != "id"} for block in message["content"]]
    return content, message["stop_reason"], message["stop_sequence"], message["usage"]["output_tokens"]


class MessagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.quire = started(cls, BIN)
        cls.story = cls.quire.quirectl("generate", PROMPT, "-n", "20", "-t", "0")[:-1]

    def create(self, **fields):
        code, message, _ = self.quire.call("/v1/messages", {**GREEDY, **fields})
        self.assertEqual(code, 200, message)
        return message

    def error(self, body, code=400, path="/v1/messages"):
        status, answer, headers = self.quire.call(path, body)
        self.assertEqual(status, code, answer)
        self.assertEqual((answer["type"], answer["request_id"]), ("error", headers["X-Request-Id"]))
        return answer["error"]

    def test_a_message_is_what_quirectl_prints(self):
        message = self.create()
        self.assertRegex(message["id"], "^msg_")
        self.assertEqual((message["type"], message["role"], message["model"]), ("message", "assistant", "tales"))
        self.assertEqual(message["content"], [{"type": "text", "text": self.story}])
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("max_tokens", None))
        self.assertEqual(message["usage"]["output_tokens"], 20)
        self.assertEqual(self.quire.call("/v1/messages?beta=true", GREEDY)[0], 200)

    def test_a_stream_joined_is_the_whole_message(self):
        events = []
        message = stream_message(self.quire, GREEDY, on_event=events.append)
        self.assertEqual(without_names(message), without_names(self.create()))
        kinds = [event["type"] for event in events]
        self.assertEqual(kinds[:4], ["message_start", "content_block_start", "ping", "content_block_delta"])
        self.assertEqual(kinds[-3:], ["content_block_stop", "message_delta", "message_stop"])
        counted = self.quire.call("/v1/messages/count_tokens", GREEDY)[1]["input_tokens"]
        self.assertEqual(events[0]["message"]["usage"]["input_tokens"], counted)

    def test_counted_tokens_are_those_of_the_message(self):
        messages = [USER, {"role": "assistant", "content": "Yes"}, USER]
        body = {**GREEDY, "system": "You tell stories.", "messages": messages}
        usage = self.create(**body)["usage"]
        num_tokens = prompt_tokens(usage)
        del body["max_tokens"]
        self.assertEqual(self.quire.call("/v1/messages/count_tokens", body)[1], {"input_tokens": num_tokens})

    def test_a_stop_sequence_is_named(self):
        message = self.create(max_tokens=200, stop_sequences=["zzz", "."])
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("stop_sequence", "."))
        self.assertNotIn(".", text_of(message))

    def test_a_message_without_tokens_fills_the_prefix_cache(self):
        story = {"role": "user", "content": "The owl, the bear and the bee had a feast in the wood. " * 10}
        first = self.create(max_tokens=0, messages=[story])
        self.assertEqual((first["content"], first["stop_reason"]), ([], "max_tokens"))
        self.assertEqual(first["usage"]["output_tokens"], 0)
        self.assertGreater(self.create(max_tokens=1, messages=[story])["usage"]["cache_read_input_tokens"], 50)

    def test_an_answer_at_the_end_is_continued(self):
        # The template of this model joins the contents.
        begin = self.story[:7]
        message = self.create(messages=[USER, {"role": "assistant", "content": begin}])
        self.assertTrue((begin + text_of(message)).startswith(self.story[:14]))

    def test_an_answer_ends_where_the_context_does(self):
        long = {"role": "user", "content": f"{PROMPT}, " * 130}
        message = self.create(max_tokens=32000, messages=[long])
        if message["stop_reason"] != "end_turn":  # The model may have ended its story.
            self.assertEqual(message["stop_reason"], "model_context_window_exceeded")
            usage = message["usage"]
            self.assertEqual(prompt_tokens(usage) + usage["output_tokens"], 1024)
        error = self.error({**GREEDY, "messages": [{"role": "user", "content": f"{PROMPT}, " * 1000}]})
        self.assertRegex(error["message"], "^prompt is too long: messages has .* context is 1024")

    def test_errors_name_field_value_and_limit(self):
        error = self.error({**GREEDY, "temperature": -1})
        self.assertEqual(error["type"], "invalid_request_error")
        self.assertRegex(error["message"], "^temperature .*-1")
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
        error = self.error({**GREEDY, "messages": [{"role": "user", "content": [image]}]})
        self.assertRegex(error["message"], r'^messages\[0\].content\[0\].type is "image", which is not supported')
        error = self.error({**GREEDY, "model": "other"}, 404)
        self.assertEqual(error["type"], "not_found_error")
        self.assertEqual(error["message"], 'the model "other" does not exist; this server has "tales"')
        error = self.error({**GREEDY, "model": "x"}, 404, "/v1/messages/count_tokens")
        self.assertEqual(error["type"], "not_found_error")
        self.assertEqual(self.error(None, 405)["type"], "invalid_request_error")
        self.assertEqual(self.error(b"{", 400)["type"], "invalid_request_error")
        self.assertEqual(self.error(b"x" * (17 << 20), 413)["type"], "request_too_large")
        stops = [str(i) for i in range(17)]
        self.assertRegex(self.error({**GREEDY, "stop_sequences": stops})["message"], "^stop_sequences .*17.*16")

    def test_metrics_have_the_path(self):
        self.create()
        self.quire.call("/v1/messages/count_tokens", GREEDY)
        self.assertRegex(self.quire.metrics(), r'quire_openai_answers_total{path="/v1/messages",code="200"} \d+')
        self.assertRegex(self.quire.metrics(),
                         r'quire_openai_answers_total{path="/v1/messages/count_tokens",code="200"} \d+')


class MessageToolsTest(unittest.TestCase):
    """A model of stories that must call tools, and may think."""

    TOOLS = [
        {
            "name": "get_weather",
            "description": "Get the weather",
            "input_schema": {
                "type": "object",
                "properties": {"city": {"enum": ["Rome", "Oslo"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
        {"name": "stop", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}},
    ]

    def start(self, *gateway_flags):
        template = "{% for m in messages %}{{ m.reasoning_content }}{{ '' + m.content }}"
        template += "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}"
        template += "{% if enable_thinking %}<think>\n{% endif %}{# </think> <tool_call> 'tool' #}"
        return started(self, BIN, chat_template=template, gateway_flags=gateway_flags)

    def call(self, quire, **fields):
        body = {"messages": [USER], "tools": self.TOOLS, "max_tokens": 300, "seed": 5, "temperature": 1, **fields}
        code, message, _ = quire.call("/v1/messages", body)
        self.assertEqual(code, 200, message)
        self.assertEqual(without_names(stream_message(quire, body)), without_names(message))
        return message

    def test_calls_that_are_forced(self):
        for tool_calls in ("hermes", "llama3", "mistral"):
            with self.subTest(tool_calls):
                quire = self.start(f"--tool-call-format={tool_calls}", "--reasoning-format=none")
                named = self.call(quire, tool_choice={"type": "tool", "name": "get_weather"})
                self.assertEqual([block["type"] for block in named["content"]], ["tool_use"])
                self.assertEqual(named["content"][0]["name"], "get_weather")
                self.assertIn(named["content"][0]["input"]["city"], ["Rome", "Oslo"])
                self.assertEqual(named["stop_reason"], "tool_use")
                choice = {"type": "any", "disable_parallel_tool_use": True}
                any_tool = self.call(quire, tool_choice=choice)
                self.assertEqual([block["type"] for block in any_tool["content"]], ["tool_use"])
                # The answer is accepted back, with the result of the tool.
                block = named["content"][0]
                result = {"type": "tool_result", "tool_use_id": block["id"], "content": "warm"}
                messages = [USER, {"role": "assistant", "content": named["content"]}]
                messages.append({"role": "user", "content": [result]})
                self.call(quire, messages=messages, tool_choice=choice)

    def test_thoughts_and_their_way_back(self):
        quire = self.start("--tool-call-format=none", "--reasoning-format=think")
        body = {"messages": [USER], "max_tokens": 10, "temperature": 0}
        code, message, _ = quire.call("/v1/messages", {**body, "thinking": {"type": "enabled", "budget_tokens": 1024}})
        self.assertEqual(code, 200, message)
        self.assertEqual([block["type"] for block in message["content"]], ["thinking"])
        self.assertEqual(message["stop_reason"], "max_tokens")
        code, plain, _ = quire.call("/v1/messages", body)
        self.assertEqual([block["type"] for block in plain["content"]], ["text"], "nobody asked for thoughts")
        history = [USER, {"role": "assistant", "content": message["content"]}, {"role": "user", "content": "go on"}]
        code, message, _ = quire.call("/v1/messages", {**body, "messages": history})
        self.assertEqual(code, 200, message)

    def test_a_changing_billing_line_does_not_spoil_the_prefix_cache(self):
        quire = self.start("--reasoning-format=none")
        story = {"type": "text", "text": "The fox and the hen went to the river. " * 20}
        reads = []
        for call in ("1a2b", "3c4d"):
            billing = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.0; cch={call}"}
            body = {"system": [billing, story], "messages": [USER], "max_tokens": 2, "temperature": 0}
            code, message, _ = quire.call("/v1/messages", body)
            self.assertEqual(code, 200, message)
            reads.append(message["usage"])
        self.assertEqual(reads[0]["cache_read_input_tokens"], 0)
        self.assertGreater(reads[1]["cache_read_input_tokens"], 100)
        self.assertEqual(prompt_tokens(reads[0]), prompt_tokens(reads[1]))

    def test_a_schema_that_is_not_supported_is_named(self):
        quire = self.start("--tool-call-format=hermes")
        tools = [{"name": "f", "input_schema": {"type": "object", "disallow": {}}}]
        body = {"messages": [USER], "max_tokens": 9, "tools": tools, "tool_choice": {"type": "any"}}
        code, answer, _ = quire.call("/v1/messages", body)
        self.assertEqual(code, 400)
        self.assertRegex(answer["error"]["message"], r'^tools\[0\].input_schema at #/disallow')


class CacheControlTest(unittest.TestCase):
    """A pool of 768 tokens, of which pins may hold half."""

    def start(self, *manager_flags):
        return started(self, BIN, pool="--num-blocks=48", worker_flags=["--block-size=16"],
                       manager_flags=["--max-pinned-share=0.5", *manager_flags])

    def usage(self, quire, messages):
        body = {"messages": messages, "max_tokens": 3, "temperature": 0}
        code, message, _ = quire.call("/v1/messages", body)
        self.assertEqual(code, 200, message)
        return message["usage"]

    @staticmethod
    def turns(story, control):
        """The first turn of a conversation, and the second one, which begins with it."""
        first = [{"role": "user", "content": [{"type": "text", "text": story, **control}]}]
        answer = {"role": "assistant", "content": "And then they went home."}
        return first, [*first, answer, {"role": "user", "content": "Tell me more."}]

    def evict(self, quire):
        for name in ("Tom", "Anna", "Max"):
            story = {"role": "user", "content": f"{name} had a red ball and a big dog. " * 35}
            self.assertGreater(prompt_tokens(self.usage(quire, [story])), 300)

    def test_the_second_turn_reads_what_memory_pressure_would_have_evicted(self):
        quire = self.start()
        story = "The owl, the bear and the bee had a feast in the wood. " * 10
        for control, is_kept in (
            ({}, False),
            ({"cache_control": {"type": "ephemeral"}}, True),
            ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, True),
        ):
            with self.subTest(control):
                self.evict(quire)
                # Nothing but the BOS token is shared with the stories before.
                first, second = self.turns(f"{len(str(control))} {story}", control)
                made = self.usage(quire, first)
                self.assertLessEqual(made["cache_read_input_tokens"], 1)
                self.evict(quire)
                read = self.usage(quire, second)
                if not is_kept:
                    self.assertEqual(made["cache_creation_input_tokens"], 0)
                    self.assertLessEqual(read["cache_read_input_tokens"], 1, "so the pressure is enough")
                    continue
                created = made["cache_creation_input_tokens"]
                pinned = made["cache_read_input_tokens"] + created
                self.assertGreater(pinned, 100)
                self.assertEqual(pinned % 16, 0, "whole blocks")
                kind = "ephemeral_1h_input_tokens" if "ttl" in control["cache_control"] else "ephemeral_5m_input_tokens"
                self.assertEqual(made["cache_creation"][kind], created)
                self.assertGreaterEqual(read["cache_read_input_tokens"], pinned)
                self.assertEqual(read["cache_creation_input_tokens"], 0, "it is pinned already")
        self.assertRegex(quire.quirectl("status"), "blocks are pinned")

    def test_a_stream_has_the_numbers_of_the_prompt_at_once(self):
        quire = self.start()
        first, _ = self.turns("The cat sat in the sun. " * 20, {"cache_control": {"type": "ephemeral"}})
        events = []
        body = {"messages": first, "max_tokens": 3, "temperature": 0}
        message = stream_message(quire, body, on_event=events.append)
        begin = events[0]["message"]["usage"]
        self.assertGreater(begin["cache_creation_input_tokens"], 50)
        self.assertEqual({**begin, "output_tokens": 3}, message["usage"])
        whole = self.usage(quire, first)
        self.assertEqual(prompt_tokens(whole), prompt_tokens(begin))
        self.assertGreaterEqual(whole["cache_read_input_tokens"], begin["cache_creation_input_tokens"])

    def test_beyond_the_limit_of_the_tenant_requests_run_unpinned(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "tenants.yaml").write_text('"": {max_blocks_share: 0.5}\n')  # Pins hold 12 blocks, 192 tokens.
        quire = self.start(f"--tenants={folder}/tenants.yaml")
        made = []
        for name in ("owl", "bear"):
            story = f"The {name} and the bee had a feast in the wood. " * 10
            first, _ = self.turns(story, {"cache_control": {"type": "ephemeral"}})
            usage = self.usage(quire, first)
            self.assertGreater(prompt_tokens(usage), 100)
            made.append(usage["cache_creation_input_tokens"])
        self.assertGreater(made[0], 96)
        self.assertEqual(made[1], 0)

    def test_wrong_breakpoints_are_named(self):
        quire = self.start()
        first, _ = self.turns("Once", {"cache_control": {"type": "ephemeral", "ttl": "2h"}})
        code, answer, _ = quire.call("/v1/messages", {"messages": first, "max_tokens": 3})
        self.assertEqual((code, answer["error"]["type"]), (400, "invalid_request_error"))
        self.assertEqual(answer["error"]["message"],
                         'messages[0].content[0].cache_control.ttl is "2h", it must be 5m or 1h')


class TokensTest(unittest.TestCase):
    def test_the_token_comes_in_either_header(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        tokens = folder / "tokens"
        tokens.write_text(f"tenant-a {hashlib.sha256(b'secret-of-a').hexdigest()}\n")
        quire = started(self, BIN, manager_flags=[f"--tokens={tokens}"], gateway_flags=["--require-tokens"])
        for headers, code in (
            ({"x-api-key": "secret-of-a"}, 200),
            ({"Authorization": "Bearer secret-of-a"}, 200),
            ({"Authorization": "Basic dTpw", "x-api-key": "secret-of-a"}, 200),
            ({"Authorization": "Bearer secret-of-a", "x-api-key": "unused"}, 200),
            ({"x-api-key": "wrong"}, 401),
            ({}, 401),
        ):
            connection = quire.connect()
            self.addCleanup(connection.close)
            headers = {"anthropic-version": "2023-06-01", "Content-Type": "application/json", **headers}
            connection.request("POST", "/v1/messages", json.dumps(GREEDY).encode(), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            self.assertEqual(response.status, code, answer)
            if code == 401:
                self.assertEqual(answer["error"]["type"], "authentication_error")


class LostManagerTest(unittest.TestCase):
    def test_answers_continue_with_the_next_manager(self):
        quire = resumable_installation(self, BIN)
        # A pattern keeps the model from ending its answer.
        schema = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 400, "maxItems": 400}
        body = {"messages": [USER], "max_tokens": 900, "temperature": 0.8, "seed": 3}
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        code, expected, _ = quire.call("/v1/messages", body)
        self.assertEqual(code, 200, expected)
        self.assertGreater(expected["usage"]["output_tokens"], 200)
        whole, streamed = answers_across_restart(
            quire, lambda: quire.call("/v1/messages", body)[1], lambda: stream_message(quire, body)
        )
        self.assertEqual(without_names(whole), without_names(expected))
        self.assertEqual(without_names(streamed), without_names(expected))

    def test_a_stream_that_nobody_continues_ends_with_an_error_event(self):
        quire = started(self, BIN, gateway_flags=["--resume-time=0"])
        has_begun = threading.Event()
        answers = {}

        def stream():
            body = {"messages": [USER], "max_tokens": 1000}
            answers["end"] = stream_message(quire, body, on_event=lambda event: has_begun.set())

        thread = threading.Thread(target=stream)
        thread.start()
        has_begun.wait()
        quire.manager.end()
        thread.join()
        if answers["end"]["type"] == "error":  # The story may have ended before the manager.
            self.assertEqual(answers["end"]["error"]["type"], "overloaded_error")


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
