# SPDX-License-Identifier: Apache-2.0
"""Speaks HTTP with quire-openai in front of a manager and a worker. The argument is the folder of our programs."""

import asyncio
import base64
import gzip
import hashlib
import json
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import unittest

from openai_programs import ROOT, TIMEOUT_S, events_of, simulated_worker, started, wait_for

PROMPT = "Once upon a time"
CONTEXT = 1024
GREEDY = {"model": "tales", "prompt": PROMPT, "max_tokens": 20, "temperature": 0}


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.quire = started(cls, BIN)
        cls.story = cls.quire.quirectl("generate", PROMPT, "-n", "20", "-t", "0")[:-1]

    def error(self, path, body, code=400):
        status, answer, _ = self.quire.call(path, body)
        self.assertEqual(status, code, answer)
        self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
        return answer["error"]

    def test_models_are_listed(self):
        code, models, _ = self.quire.call("/v1/models")
        self.assertEqual(code, 200)
        self.assertEqual([model["id"] for model in models["data"]], ["tales"])
        self.assertEqual(models["data"][0]["max_model_len"], 1024)
        self.assertEqual(self.quire.call("/v1/models/tales")[1]["object"], "model")
        self.assertEqual(self.quire.call("/v1/models/tails")[0], 404)
        self.assertEqual(self.quire.call("/v1/models/")[1]["object"], "list")

    def test_a_completion_is_what_quirectl_prints(self):
        code, answer, _ = self.quire.call("/v1/completions", GREEDY)
        self.assertEqual(code, 200, answer)
        self.assertEqual(answer["choices"][0]["text"], self.story)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"]["completion_tokens"], 20)

    def test_a_stream_joined_is_the_whole_text(self):
        body = {**GREEDY, "stream_options": {"include_usage": True}}
        *events, usage, end = self.quire.stream("/v1/completions", body)
        self.assertEqual("".join(event["choices"][0]["text"] for event in events), self.story)
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(usage["usage"]["completion_tokens"], 20)
        self.assertEqual(end, "[DONE]")

    def test_a_chat_is_answered_with_and_without_a_stream(self):
        # The template of this model continues stories.
        body = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_completion_tokens": 20}
        code, answer, _ = self.quire.call("/v1/chat/completions", body)
        self.assertEqual(code, 200, answer)
        self.assertEqual(answer["choices"][0]["message"]["content"], self.story)
        first, *events, end = self.quire.stream("/v1/chat/completions", body)
        self.assertEqual(first["choices"][0]["delta"]["role"], "assistant")
        deltas = [event["choices"][0]["delta"].get("content", "") for event in events]
        self.assertEqual("".join(deltas), self.story)
        self.assertEqual(end, "[DONE]")

    def test_a_chat_without_a_limit_may_fill_the_context(self):
        messages = [{"role": "user", "content": f"{PROMPT}, " * 130}]
        body = {"messages": messages, "temperature": 0, "ignore_eos": True}
        code, answer, _ = self.quire.call("/v1/chat/completions", body)
        self.assertEqual(code, 200, answer)
        self.assertEqual(answer["usage"]["total_tokens"], 1024)
        self.assertLess(answer["usage"]["completion_tokens"], 500)

    def test_prompts_and_samples_have_choices_of_their_own(self):
        body = {**GREEDY, "temperature": 0.8, "seed": 7, "n": 2, "prompt": [PROMPT, "One day"]}
        answer = self.quire.call("/v1/completions", body)[1]
        texts = [choice["text"] for choice in answer["choices"]]
        self.assertEqual([choice["index"] for choice in answer["choices"]], [0, 1, 2, 3])
        self.assertEqual(len(set(texts)), 4)
        self.assertEqual(answer["usage"]["completion_tokens"], 80)
        joined = [""] * 4
        for event in self.quire.stream("/v1/completions", body)[:-1]:
            joined[event["choices"][0]["index"]] += event["choices"][0]["text"]
        self.assertEqual(joined, texts)

    def test_the_bundled_model_calls_a_tool_and_reads_the_result(self):
        parameters = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
        tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
        messages = [{"role": "user", "content": PROMPT}]
        body = {"messages": messages, "tools": tools, "max_tokens": 200}
        choice = self.quire.call("/v1/chat/completions", {**body, "tool_choice": "required"})[1]["choices"][0]
        (call, *_) = choice["message"]["tool_calls"]
        self.assertIn(json.loads(call["function"]["arguments"])["city"], ("Rome", "Oslo"))
        result = {"role": "tool", "tool_call_id": call["id"], "content": "The sun shines."}
        answer = {**choice["message"], "tool_calls": [call]}
        code, told, _ = self.quire.call("/v1/chat/completions", {**body, "messages": [*messages, answer, result]})
        self.assertEqual(code, 200)
        self.assertTrue(told["choices"][0]["message"]["content"])

    def test_beams_are_those_of_quirectl(self):
        body = {**GREEDY, "use_beam_search": True, "n": 2}
        code, answer, _ = self.quire.call("/v1/completions", body)
        self.assertEqual(code, 200, answer)
        beams = self.quire.quirectl("generate", PROMPT, "-n", "20", "--beam", "2", "--return", "2")
        for choice in answer["choices"]:
            self.assertIn(choice["text"], beams)

    def test_beams_of_a_guide_differ_in_their_tokens(self):
        # A guide bounds the text, which may be divided into tokens in several ways.
        body = {**GREEDY, "use_beam_search": True, "n": 3, "return_token_ids": True}
        for guide, num_texts in (({"guided_choice": ["one"]}, 1), ({"guided_regex": "a{1,3}"}, 3)):
            code, answer, _ = self.quire.call("/v1/completions", {**body, **guide})
            self.assertEqual(code, 200, answer)
            self.assertEqual(len({tuple(choice["token_ids"]) for choice in answer["choices"]}), 3, answer)
            self.assertEqual(len({choice["text"] for choice in answer["choices"]}), num_texts, answer)

    def test_an_answer_follows_its_guide(self):
        schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"]}
        body = {
            "messages": [{"role": "user", "content": PROMPT}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
            "temperature": 1.5,
        }
        code, answer, _ = self.quire.call("/v1/chat/completions", body)
        self.assertEqual(code, 200, answer)
        self.assertLessEqual(json.loads(answer["choices"][0]["message"]["content"])["age"], 99)
        choice = {**GREEDY, "structured_outputs": {"choice": ["one", "two"]}}
        code, answer, _ = self.quire.call("/v1/completions", choice)
        self.assertEqual(code, 200, answer)
        self.assertIn(answer["choices"][0]["text"], ["one", "two"])
        wrong = {**GREEDY, "response_format": {"type": "json_schema", "json_schema": {"schema": {"disallow": {}}}}}
        error = self.error("/v1/completions", wrong)
        self.assertEqual(error["param"], "response_format.json_schema.schema")
        self.assertIn('the keyword "disallow" is not supported', error["message"])

    def test_logprobs_and_echo(self):
        answer = self.quire.call("/v1/completions", {**GREEDY, "max_tokens": 3, "logprobs": 2, "echo": True})[1]
        choice = answer["choices"][0]
        self.assertTrue(choice["text"].startswith(PROMPT))
        logprobs = choice["logprobs"]
        self.assertEqual(len(logprobs["tokens"]), answer["usage"]["total_tokens"])
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertTrue(all(value <= 0 for value in logprobs["token_logprobs"][1:]))
        # The text does not show the first token.
        self.assertEqual((logprobs["tokens"][0], logprobs["text_offset"][:2]), ("<|begin_of_text|>", [0, 0]))
        ends = [*logprobs["text_offset"][1:], len(choice["text"])]
        pieces = [choice["text"][begin:end] for begin, end in zip(logprobs["text_offset"], ends)]
        self.assertEqual(pieces[1:], logprobs["tokens"][1:])
        body = {**GREEDY, "max_tokens": 0, "logprobs": 2, "echo": True}
        echo = self.quire.call("/v1/completions", body)[1]
        self.assertEqual((echo["choices"][0]["text"], echo["usage"]["completion_tokens"]), (PROMPT, 0))
        self.assertEqual(echo["choices"][0]["logprobs"]["tokens"], logprobs["tokens"][:-3])
        for length in (1, CONTEXT - 1, CONTEXT):
            body = {"prompt": [5] * length, "max_tokens": 0, "logprobs": 1, "echo": True}
            code, whole, _ = self.quire.call("/v1/completions", body)
            self.assertEqual(code, 200, whole)
            self.assertEqual(len(whole["choices"][0]["logprobs"]["token_logprobs"]), length)
        for change in ({"max_tokens": 1}, {"prompt": [5] * (CONTEXT + 1)}):
            self.error("/v1/completions", {**body, **change})
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 3, "logprobs": True, "top_logprobs": 2}
        content = self.quire.call("/v1/chat/completions", body)[1]["choices"][0]["logprobs"]["content"]
        self.assertEqual([len(entry["top_logprobs"]) for entry in content], [2, 2, 2])

    def test_a_stop_string_may_be_a_special_token_that_the_text_hides(self):
        body = {**GREEDY, "allowed_token_ids": [0], "stop": ["<|begin_of_text|>"]}
        whole = self.quire.call("/v1/completions", body)[1]
        *_, last, _ = self.quire.stream("/v1/completions", body)
        for answer in (whole, last):
            choice = answer["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), ("", "stop"))
            self.assertEqual(choice["stop_reason"], "<|begin_of_text|>")

    def test_errors_name_the_field(self):
        for body, param in (
            ({**GREEDY, "temperature": -1}, "temperature"),
            ({**GREEDY, "top_p": 0}, "top_p"),
            ({**GREEDY, "stop": [""]}, "stop[0]"),
            ({**GREEDY, "stop": ["a", ""], "stream": True}, "stop[1]"),
            ({**GREEDY, "prompt": [1, 999999]}, "prompt[1]"),
            ({**GREEDY, "prompt": [[1], [2, 999999]]}, "prompt[1][1]"),
            ({**GREEDY, "logprobs": 21}, "logprobs"),
            ({**GREEDY, "n": 2}, "n"),
            ({**GREEDY, "temprature": 1}, "temprature"),
        ):
            error = self.error("/v1/completions", body)
            self.assertEqual(error["param"], param, error)
        error = self.error("/v1/completions", {**GREEDY, "max_tokens": 5000})
        self.assertEqual((error["param"], error["code"]), ("max_tokens", "context_length_exceeded"))
        self.assertEqual(self.error("/v1/completions", {**GREEDY, "model": "gpt-4"}, 404)["code"], "model_not_found")
        self.error("/v1/completions", b"{")
        self.error("/v1/nothing", {}, 404)
        self.assertIn("did you mean /v1/completions?", self.error("/completions", {}, 404)["message"])
        self.error("/v1/models", {}, 405)
        chat = {"messages": [{"role": "", "content": "x"}], "max_tokens": 2}
        self.assertEqual(self.error("/v1/chat/completions", chat)["param"], "messages[0].role")
        chat = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "top_logprobs": 21, "max_tokens": 2}
        self.assertEqual(self.error("/v1/chat/completions", chat)["param"], "top_logprobs")

    def test_texts_and_tokens_are_converted(self):
        code, answer, _ = self.quire.call("/tokenize", {"prompt": PROMPT, "return_token_strs": True})
        self.assertEqual(code, 200, answer)
        self.assertEqual((answer["count"], answer["max_model_len"]), (len(answer["tokens"]), 1024))
        self.assertEqual(len(answer["token_strs"]), answer["count"])
        tokens = self.quire.call("/tokenize", {"prompt": PROMPT, "add_special_tokens": False})[1]["tokens"]
        self.assertEqual(self.quire.call("/detokenize", {"tokens": tokens})[1], {"prompt": PROMPT})
        # The tokens as a prompt give the same story.
        body = {**GREEDY, "prompt": answer["tokens"]}
        self.assertEqual(self.quire.call("/v1/completions", body)[1]["choices"][0]["text"], self.story)
        chat = {"messages": [{"role": "user", "content": PROMPT}]}
        self.assertEqual(self.quire.call("/tokenize", chat)[1]["tokens"], answer["tokens"])
        self.assertEqual(self.error("/tokenize", {"prompt": 5})["param"], "prompt")
        self.assertEqual(self.error("/tokenize", {"prompt": "x", "model": "other"}, 404)["param"], "model")
        self.assertEqual(self.error("/detokenize", {"tokens": [1, 999999]})["param"], "tokens[1]")

    def test_token_ids_come_with_the_answer(self):
        tokens = self.quire.call("/tokenize", {"prompt": PROMPT})[1]["tokens"]
        body = {**GREEDY, "return_token_ids": True}
        code, answer, _ = self.quire.call("/v1/completions", body)
        self.assertEqual(code, 200, answer)
        choice = answer["choices"][0]
        self.assertEqual((choice["text"], choice["prompt_token_ids"]), (self.story, tokens))
        self.assertEqual(len(choice["token_ids"]), 20)
        self.assertEqual(self.quire.call("/detokenize", {"tokens": choice["token_ids"]})[1], {"prompt": self.story})
        events = [event["choices"][0] for event in self.quire.stream("/v1/completions", body)[:-1]]
        self.assertEqual([id for event in events for id in event["token_ids"]], choice["token_ids"])
        self.assertEqual([event.get("prompt_token_ids") for event in events], [tokens] + [None] * (len(events) - 1))
        # Prompts of texts and of tokens, without the token that begins a sequence.
        several = {**body, "prompt": ["One day", [5, 6], "Tim"], "add_special_tokens": False}
        for text, choice in zip(("One day", None, "Tim"), self.quire.call("/v1/completions", several)[1]["choices"]):
            plain = {"prompt": text, "add_special_tokens": False}
            expected = [5, 6] if text is None else self.quire.call("/tokenize", plain)[1]["tokens"]
            self.assertEqual(choice["prompt_token_ids"], expected)
        chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 20, "temperature": 0}
        chat["return_token_ids"] = True
        answer = self.quire.call("/v1/chat/completions", chat)[1]
        self.assertEqual(answer["prompt_token_ids"], tokens)
        ids = answer["choices"][0]["token_ids"]
        events = self.quire.stream("/v1/chat/completions", chat)[:-1]
        self.assertEqual([id for event in events for id in event["choices"][0].get("token_ids", [])], ids)
        self.assertEqual([event.get("prompt_token_ids") for event in events], [tokens] + [None] * (len(events) - 1))
        self.assertNotIn("token_ids", self.quire.call("/v1/completions", GREEDY)[1]["choices"][0])

    def test_head_is_get_without_a_body(self):
        connection = self.quire.connect()
        self.addCleanup(connection.close)
        for path in ("/metrics", "/health", "/v1/models"):
            connection.request("HEAD", path)
            response = connection.getresponse()
            self.assertEqual((response.status, response.read()), (200, b""), path)
            self.assertGreater(int(response.headers["Content-Length"]), 0)
        connection.request("HEAD", "/v1/completions")
        self.assertEqual(connection.getresponse().status, 405)

    def test_running_usage_counts_up_to_the_usage_of_the_answer(self):
        options = {"include_usage": True, "continuous_usage_stats": True}
        *events, last, _ = self.quire.stream("/v1/completions", {**GREEDY, "stream_options": options})
        counts = [event["usage"]["completion_tokens"] for event in events]
        self.assertEqual(counts, sorted(counts))
        self.assertGreaterEqual(counts[0], 1)
        self.assertEqual(counts[-1], 20)
        for event in events:
            self.assertEqual(event["usage"]["prompt_tokens"], last["usage"]["prompt_tokens"])

    def test_a_body_may_come_in_chunks(self):
        text = json.dumps(GREEDY).encode()
        code, answer, _ = self.quire.call("/v1/completions", iter([text[:10], text[10:]]))
        self.assertEqual(code, 200)
        self.assertEqual(answer["choices"], self.quire.call("/v1/completions", GREEDY)[1]["choices"])

    def test_a_compressed_body_is_refused_by_the_name_of_the_header(self):
        connection = self.quire.connect()
        self.addCleanup(connection.close)
        body = gzip.compress(json.dumps(GREEDY).encode())
        connection.request("POST", "/v1/completions", body, {"Content-Encoding": "gzip"})
        response = connection.getresponse()
        self.assertEqual(response.status, 415)
        self.assertIn("Content-Encoding", json.loads(response.read())["error"]["message"])

    def test_the_manager_ends_a_request_at_the_deadline_that_its_header_says(self):
        body = {"prompt": "Once", "max_tokens": 900, "ignore_eos": True}
        for header in ("X-Request-Timeout", "X-Stainless-Read-Timeout", "X-Stainless-Timeout"):
            connection = self.quire.connect()
            self.addCleanup(connection.close)
            connection.request("POST", "/v1/completions", json.dumps(body).encode(),
                               {"Content-Type": "application/json", header: "0.001"})
            response = connection.getresponse()
            error = json.loads(response.read())["error"]
            # A manager that has the request in less than the millisecond refuses it, because it would wait too long.
            self.assertIn((response.status, error["code"]), ((504, "deadline_exceeded"), (429, "overloaded")))

    def test_a_request_for_too_many_logprobs_is_refused_before_it_begins(self):
        body = {"prompt": [[5] * 900] * 64, "max_tokens": 0, "echo": True, "logprobs": 20, "prompt_logprobs": 20}
        code, answer, _ = self.quire.call("/v1/completions", body)
        self.assertEqual(code, 400)
        self.assertEqual(
            answer["error"]["message"],
            "prompt_logprobs is 20, and with 64 prompts and n 1 the answer has at least 2419200 logprobs; at most "
            "1048576 are allowed (--max-answer-logprobs)",
        )

    def test_version_and_metrics(self):
        self.assertRegex(self.quire.call("/version")[1]["version"], r"^\d+\.\d+\.\d+$")
        self.quire.call("/v1/nothing")
        connection = self.quire.connect()
        self.addCleanup(connection.close)
        connection.request("GET", "/version", headers={"X": "x" * 20000})
        self.assertEqual(connection.getresponse().status, 431)
        metrics = self.quire.metrics()
        self.assertIn('quire_openai_answers_total{path="unread",code="431"}', metrics)
        self.assertIn('quire_openai_answers_total{path="/version",code="200"}', metrics)
        self.assertIn('quire_openai_answers_total{path="other",code="404"}', metrics)
        self.assertRegex(metrics, r"quire_openai_running \d+\n")
        self.assertIn('quire_port_connections{port="listen"}', metrics)
        documented = (ROOT / "docs/openai.md").read_text()
        for name in set(re.findall(r"^# TYPE (quire_openai_\w+)", metrics, re.MULTILINE)):
            self.assertIn(f"`{name}`", documented)

    def test_the_chat_page_is_one_document_whose_script_may_run(self):
        connection = self.quire.connect()
        self.addCleanup(connection.close)
        connection.request("GET", "/")
        response = connection.getresponse()
        page = response.read().decode()
        self.assertEqual((response.status, response.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        script = re.search(r"<script>(.*)</script>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        self.assertIn(f"script-src 'sha256-{digest}'", response.headers["Content-Security-Policy"])
        self.assertNotRegex(page.replace(script, ""), r"src=|https?://")

    def test_a_stream_that_is_cut_continues_behind_the_last_event(self):
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 100, "temperature": 0.8, "seed": 7}
        body |= {"n": 2, "ignore_eos": True}
        whole = self.quire.call("/v1/chat/completions", body)[1]
        body |= {"stream": True, "stream_options": {"resumable": True}}
        texts, last_id, names, num_cuts, is_done = ["", ""], None, set(), 0, False
        while not is_done:
            connection = self.quire.connect()
            headers = {} if last_id is None else {"Last-Event-ID": last_id}
            connection.request("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
            response = connection.getresponse()
            self.assertEqual(response.status, 200, response.read() if response.status != 200 else "")
            event_id, num_events = None, 0
            for line in response:
                line = line.decode().rstrip("\n")
                if line.startswith("id: "):
                    event_id = line[len("id: ") :]
                elif line == "data: [DONE]":
                    is_done = True
                elif line.startswith("data: "):
                    event = json.loads(line[len("data: ") :])
                    names.add(event["id"])
                    choice = event["choices"][0]
                    texts[choice["index"]] += choice["delta"].get("content", "")
                elif event_id is not None:
                    last_id, num_events = event_id, num_events + 1
                    if num_events == 10:
                        num_cuts += 1
                        break
            response.close()
            connection.close()
        self.assertEqual(texts, [choice["message"]["content"] for choice in whole["choices"]])
        self.assertEqual(len(names), 1)
        self.assertGreater(num_cuts, 0)

    def test_a_last_event_id_must_be_one_of_ours(self):
        connection = self.quire.connect()
        self.addCleanup(connection.close)
        for options, event_id in (({}, "x:0.1"), ({"resumable": True}, "x"), ({"resumable": True}, "x:")):
            body = {**GREEDY, "stream": True, "stream_options": options}
            connection.request("POST", "/v1/completions", json.dumps(body).encode(), {"Last-Event-ID": event_id})
            response = connection.getresponse()
            self.assertEqual(response.status, 400, response.read())
            response.read()

    def test_a_client_that_leaves_ends_its_request(self):
        connection = self.quire.connect()
        body = {**GREEDY, "max_tokens": 1000, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body).encode())
        response = connection.getresponse()
        name = next(events_of(response))["id"]
        response.close()
        connection.close()
        wait_for(lambda: name not in self.quire.quirectl("requests"))


class LimitsTest(unittest.TestCase):
    def test_a_request_beyond_the_limit_gets_429(self):
        # An answer takes 100 s, so no stream ends before the last request comes, however slow this machine is.
        quire = started(
            self, BIN, manager_flags=["--max-requests=1"], worker_flags=simulated_worker(self, "100ms"))
        body = {**GREEDY, "max_tokens": 1000, "ignore_eos": True, "stream": True}
        # The limit has a small reserve. All streams stay open until one is refused.
        for _ in range(20):
            connection = quire.connect()
            self.addCleanup(connection.close)
            connection.request("POST", "/v1/completions", json.dumps(body).encode())
            response = connection.getresponse()
            if response.status != 200:
                break
        self.assertEqual(response.status, 429)
        self.assertGreaterEqual(int(response.headers["Retry-After"]), 1)
        self.assertEqual(json.loads(response.read())["error"]["type"], "rate_limit_error")

    def test_the_gateway_survives_its_manager_and_drains(self):
        quire = started(self, BIN)
        self.assertEqual(quire.call("/v1/completions", GREEDY)[0], 200)
        quire.manager.end()
        self.assertEqual(quire.call("/health")[0], 503)
        code, error, _ = quire.call("/v1/completions", GREEDY)
        self.assertEqual(code, 503, error)
        quire.start_manager()
        quire.wait_until_ready()
        self.assertEqual(quire.call("/v1/completions", GREEDY)[0], 200)
        quire.gateway.process.send_signal(signal.SIGTERM)
        self.assertEqual(quire.gateway.process.wait(timeout=60), 0)


class NamesTest(unittest.TestCase):
    def test_the_model_has_the_names_of_the_flag(self):
        quire = started(self, BIN, gateway_flags=["--served-model-name=gpt-4o,owner/name"])
        self.assertEqual([m["id"] for m in quire.call("/v1/models")[1]["data"]], ["gpt-4o", "owner/name"])
        self.assertEqual(quire.call("/v1/models/owner/name")[1]["id"], "owner/name")
        self.assertEqual(quire.call("/v1/models/tales")[0], 404)
        body = {"prompt": "Once", "max_tokens": 1}
        for name in ("gpt-4o", "owner/name"):
            self.assertEqual(quire.call("/v1/completions", {**body, "model": name})[1]["model"], name)
            self.assertEqual(quire.stream("/v1/completions", {**body, "model": name})[0]["model"], name)
            self.assertEqual(quire.call("/tokenize", {"prompt": "Once", "model": name})[0], 200)
        self.assertEqual(quire.call("/v1/completions", body)[1]["model"], "gpt-4o")
        self.assertEqual(quire.call("/v1/completions", {**body, "model": "tales"})[0], 404)


class ThoughtsTest(unittest.TestCase):
    """A model whose chat template ends in the thoughts of the model."""

    @classmethod
    def setUpClass(cls):
        template = "{{ messages[0].content }}{% if thinks %}<think>\n{% endif %}{# </think> [TOOL_CALLS] #}"
        template += "{% if tools and tools[0].function.name == 'no' %}{{ raise_exception('no tools') }}{% endif %}"
        cls.quire = started(cls, BIN, chat_template=template)

    def test_thoughts_are_no_content(self):
        body = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 0, "max_tokens": 10}
        text = self.quire.call("/v1/chat/completions", body)[1]["choices"][0]["message"]
        self.assertNotIn("reasoning_content", text)
        self.assertTrue(text["content"])
        body["chat_template_kwargs"] = {"thinks": True}
        thoughts = self.quire.call("/v1/chat/completions", body)[1]["choices"][0]["message"]
        self.assertEqual(thoughts["content"], "")
        self.assertTrue(thoughts["reasoning_content"])
        self.assertEqual(thoughts["reasoning"], thoughts["reasoning_content"])
        deltas = [event["choices"][0]["delta"] for event in self.quire.stream("/v1/chat/completions", body)[:-1]]
        joined = "".join(delta.get("reasoning_content", "") for delta in deltas)
        self.assertEqual(joined, thoughts["reasoning_content"])

    def test_what_cannot_be_done_is_refused_by_name(self):
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 2, "stream": True}
        body["stream_options"] = {"resumable": True}
        code, answer, _ = self.quire.call("/v1/chat/completions", body)
        self.assertEqual((code, answer["error"]["param"]), (400, "stream_options.resumable"))
        body = {"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "no"}}]}
        code, answer, _ = self.quire.call("/v1/chat/completions", body)
        self.assertEqual((code, answer["error"]["param"]), (400, "tools"))

    def test_a_request_with_tools_is_answered(self):
        body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 5, "ignore_eos": True}
        body["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
        code, answer, _ = self.quire.call("/v1/chat/completions", body)
        self.assertEqual((code, answer["choices"][0]["finish_reason"]), (200, "length"))


class TokenIdsTest(unittest.TestCase):
    """A model without a tokenizer, whose answers are token ids."""

    def test_token_ids_are_answered_with_token_ids(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(ROOT / "models/tales/config.json", folder)
            quire = started(self, BIN, worker_flags=[f"--model={folder}", "--device=simulated"])
        body = {"prompt": [[5, 6], [7]], "max_tokens": 4, "temperature": 0, "return_token_ids": True}
        code, answer, _ = quire.call("/v1/completions", body)
        self.assertEqual(code, 200, answer)
        self.assertEqual([choice["prompt_token_ids"] for choice in answer["choices"]], [[5, 6], [7]])
        ids = [choice["token_ids"] for choice in answer["choices"]]
        self.assertEqual([len(tokens) for tokens in ids], [4, 4])
        joined = [[], []]
        for event in quire.stream("/v1/completions", body)[:-1]:
            joined[event["choices"][0]["index"]] += event["choices"][0]["token_ids"]
        self.assertEqual(joined, ids)
        code, answer, _ = quire.call("/v1/completions", {**body, "prompt": ["x", "y"]})
        self.assertEqual((code, answer["error"]["code"]), (400, "no_tokenizer"))


class ForcedCallsTest(unittest.TestCase):
    """A model of stories that must call tools all the same."""

    TOOLS = [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "maximum": 9}},
                    "required": ["city"],
                    "additionalProperties": False,
                },
            },
        },
        {"type": "function", "function": {"name": "stop"}},
    ]

    def start(self, gateway_flags=()):
        template = "{{ messages[0].content }}{% if thinks %}<think>\n{% endif %}{# </think> <tool_call> #}"
        template += "{% if thinks is false %}<think>\n\n</think>\n\n{% endif %}"
        return started(self, BIN, chat_template=template, gateway_flags=gateway_flags)

    def body(self, choice, **fields):
        messages = [{"role": "user", "content": PROMPT}]
        body = {"messages": messages, "tools": self.TOOLS, "tool_choice": choice, "max_tokens": 300, "seed": 5}
        return {**body, **fields}

    def check_calls(self, calls):
        for call in calls:
            self.assertEqual(call["type"], "function")
            arguments = json.loads(call["function"]["arguments"])
            if call["function"]["name"] == "stop":
                self.assertEqual(arguments, {})
            else:
                self.assertIn(arguments["city"], ["Rome", "Oslo"])

    def test_calls_in_every_format(self):
        named = {"type": "function", "function": {"name": "get_weather"}}
        for tool_calls in ("hermes", "llama3", "mistral", "qwen3_xml", "openai", "deepseek_v31", "gemma4"):
            with self.subTest(tool_calls):
                quire = self.start([f"--tool-call-format={tool_calls}", "--reasoning-format=none"])
                code, answer, _ = quire.call("/v1/chat/completions", self.body(named, temperature=1.5))
                self.assertEqual(code, 200, answer)
                choice = answer["choices"][0]
                self.assertIsNone(choice["message"]["content"])
                names = [call["function"]["name"] for call in choice["message"]["tool_calls"]]
                self.assertEqual(names, ["get_weather"])
                self.check_calls(choice["message"]["tool_calls"])
                self.assertEqual(choice["finish_reason"], "stop")
                required = self.body("required", temperature=1.5, parallel_tool_calls=False)
                code, answer, _ = quire.call("/v1/chat/completions", required)
                self.assertEqual(code, 200, answer)
                choice = answer["choices"][0]
                self.assertEqual(len(choice["message"]["tool_calls"]), 1)
                self.check_calls(choice["message"]["tool_calls"])
                self.assertEqual(choice["finish_reason"], "tool_calls")

    def test_streams_thoughts_and_errors(self):
        quire = self.start(["--tool-call-format=hermes", "--reasoning-format=none"])
        # A stream of the same request has the same calls.
        body = self.body("required", parallel_tool_calls=False)
        whole = quire.call("/v1/chat/completions", body)[1]["choices"][0]["message"]["tool_calls"]
        events = quire.stream("/v1/chat/completions", body)[:-1]
        deltas = [delta for event in events for delta in event["choices"][0]["delta"].get("tool_calls", [])]
        self.assertEqual(deltas[0]["function"]["name"], whole[0]["function"]["name"])
        arguments = "".join(delta["function"]["arguments"] for delta in deltas)
        self.assertEqual(arguments, whole[0]["function"]["arguments"])
        self.assertEqual(events[-1]["choices"][0]["finish_reason"], "tool_calls")
        metrics = quire.metrics()
        self.assertIn('quire_openai_stream_start_seconds_count{path="/v1/chat/completions"} 1', metrics)
        self.assertIn('quire_openai_stream_start_seconds_bucket{path="/v1/chat/completions",le="+Inf"} 1', metrics)
        # The prompt ends in thoughts, which come first.
        body = self.body("required", chat_template_kwargs={"thinks": True}, temperature=0)
        thinker = self.start(["--tool-call-format=hermes", "--reasoning-format=think"])
        code, answer, _ = thinker.call("/v1/chat/completions", {**body, "max_tokens": 20})
        self.assertEqual((code, answer["choices"][0]["finish_reason"]), (200, "length"))
        self.assertTrue(answer["choices"][0]["message"]["reasoning_content"])
        # The template has ended the thoughts, so the call comes at once. This model would begin them otherwise.
        tag = thinker.call("/tokenize", {"prompt": "<think>", "add_special_tokens": False})[1]["tokens"]
        bias = {str(token): 100 for token in tag}
        body = self.body("required", chat_template_kwargs={"thinks": False}, logit_bias=bias, temperature=0)
        code, answer, _ = thinker.call("/v1/chat/completions", {**body, "parallel_tool_calls": False})
        self.assertEqual((code, answer["choices"][0]["finish_reason"]), (200, "tool_calls"))
        self.assertNotIn("reasoning_content", answer["choices"][0]["message"])
        # Errors name the field.
        tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "disallow": {}}}}]
        code, answer, _ = quire.call("/v1/chat/completions", self.body("required") | {"tools": tools})
        self.assertEqual((code, answer["error"]["param"]), (400, "tools[0].function.parameters"))
        self.assertEqual(answer["error"]["message"],
                         'tools[0].function.parameters at #/disallow: the keyword "disallow" is not supported; its '
                         'value is {}')
        # The schema of a strict tool counts where the model chooses as well.
        tools[0]["function"]["strict"] = True
        code, answer, _ = quire.call("/v1/chat/completions", self.body("auto") | {"tools": tools})
        self.assertEqual((code, answer["error"]["param"]), (400, "tools[0].function.parameters"))
        del tools[0]["function"]["parameters"]["disallow"]
        code, answer, _ = quire.call("/v1/chat/completions", self.body("auto") | {"tools": tools})
        self.assertEqual(code, 200, answer)
        code, answer, _ = quire.call("/v1/chat/completions", self.body("required", ignore_eos=True))
        self.assertEqual((code, answer["error"]["param"]), (400, "ignore_eos"))
        self.assertEqual(answer["error"]["message"],
                         "ignore_eos is true, which cannot be combined with tool_choice, which is \"required\"")
        plain = self.start(["--tool-call-format=none"])
        code, answer, _ = plain.call("/v1/chat/completions", self.body("required"))
        self.assertEqual((code, answer["error"]["param"]), (400, "tool_choice"))


class ManyStreamsTest(unittest.TestCase):
    # More than one call of GenerateBatch takes.
    NUM_STREAMS = 600

    def test_many_streams_wait_at_the_same_time(self):
        quire = started(
            self,
            BIN,
            # A slow step would otherwise take the prompts of few requests.
            manager_flags=["--max-step-ms=0"],
            worker_flags=[*simulated_worker(self, "1s"), f"--max-sequences={self.NUM_STREAMS}"],
        )
        asyncio.run(asyncio.wait_for(self.open_streams(quire), TIMEOUT_S))
        wait_for(lambda: "cmpl-" not in quire.quirectl("requests"))  # All clients have left.

    async def open_streams(self, quire):
        """Returns when all streams have got a token and none has ended."""
        data = json.dumps({**GREEDY, "max_tokens": 1000, "ignore_eos": True, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: gateway\r\nContent-Length: {len(data)}\r\n\r\n".encode()

        async def open_stream():
            reader, writer = await asyncio.open_connection("127.0.0.1", quire.port)
            writer.write(head + data)
            self.assertIn(b"200 OK", await reader.readline())
            while not (await reader.readline()).startswith(b"data: "):
                pass
            return reader, writer

        streams = await asyncio.gather(*(open_stream() for _ in range(self.NUM_STREAMS)))
        self.assertIn(f"quire_openai_running {self.NUM_STREAMS}\n", quire.metrics())
        self.assertFalse(any(reader.at_eof() for reader, _ in streams))
        for _, writer in streams:
            writer.close()


class TokensTest(unittest.TestCase):
    def test_the_token_of_a_request_is_that_of_the_manager(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        tokens = pathlib.Path(folder.name) / "tokens"
        tokens.write_text(f"tenant-a {hashlib.sha256(b'secret-of-a').hexdigest()}\n")
        quire = started(self, BIN, manager_flags=[f"--tokens={tokens}"], gateway_flags=["--require-tokens"])
        code, error, headers = quire.call("/v1/completions", GREEDY)
        self.assertEqual((code, error["error"]["code"]), (401, "invalid_api_key"))
        self.assertEqual(headers["WWW-Authenticate"], "Bearer")
        self.assertEqual(quire.call("/v1/completions", GREEDY, token="wrong")[0], 401)
        self.assertEqual(quire.call("/v1/models", token="wrong")[0], 401)
        self.assertEqual(quire.call("/v1/models")[0], 401)
        code, answer, _ = quire.call("/v1/completions", GREEDY, token="secret-of-a")
        self.assertEqual(code, 200, answer)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
