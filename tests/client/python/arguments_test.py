# SPDX-License-Identifier: Apache-2.0
"""Tests what the Python client says about arguments that it cannot send. It runs where the package is installed."""

import re
import unittest

import quire
from quire import _requests, guides, v1

USER = {"role": "user", "content": "Hi"}


class ArgumentsTest(unittest.TestCase):
    def check_refused(self, cases, make):
        """`cases` are pairs of an argument of `make` and the whole text of the error."""
        for value, text in cases:
            with self.subTest(value=value), self.assertRaises((TypeError, ValueError)) as caught:
                make(value)
            self.assertEqual(str(caught.exception), text)

    def test_a_prompt_is_text_or_token_ids(self):
        self.check_refused((
            (b"Once", "prompt is bytes, it must be text or token ids"),
            (bytearray(b"Once"), "prompt is bytes, it must be text or token ids"),
            (memoryview(b"Once"), "prompt is bytes, it must be text or token ids"),
            (None, "prompt is None, it must be text or token ids"),
            (7, "prompt is of the type int, it must be text or token ids"),
            ({7: 1}, "prompt is a map, it must be text or token ids"),
            (["Once"], "prompt[0] is text, it must be a token id"),
            ([7, None], "prompt[1] is None, it must be a token id"),
            ([7, -1], "prompt[1] is -1, it must be a token id"),
            ([7, 2**32], "prompt[1] is 4294967296, it must be a token id"),
            ([7, 0.5], "prompt[1] is of the type float, it must be a token id"),
        ), lambda prompt: _requests.make_request(prompt, None, {}))
        for ids in ([1, 2], (1, 2), range(1, 3), (i for i in (1, 2))):
            self.assertEqual(list(_requests.make_request(ids, None, {}).token_ids.ids), [1, 2])

    def test_the_other_methods_that_take_text_or_token_ids_check_them(self):
        with quire.Client("127.0.0.1:1") as client:
            for call, text in (
                (lambda: client.detokenize(b"Once"), "token_ids is bytes, it must be a list of token ids"),
                (lambda: client.detokenize("Once"), "token_ids is text, it must be a list of token ids"),
                (lambda: client.detokenize([-1]), "token_ids[0] is -1, it must be a token id"),
                (lambda: client.tokenize([1]), "text is a list, it must be text"),
                (lambda: client.embed(b"Once"), "inputs is bytes, it must be a list of texts or of token ids"),
                (lambda: client.embed(["Once", 7]), "inputs[1] is of the type int, it must be text or token ids"),
                (lambda: client.embed([[-1]]), "inputs[0][0] is -1, it must be a token id"),
            ):
                with self.assertRaises((TypeError, ValueError)) as caught:
                    call()
                self.assertEqual(str(caught.exception), text)

    def test_a_message_that_is_wrong_is_named_with_its_field(self):
        parts = [{"type": "text", "text": "x"}]
        of_openai = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        is_no_list = 'it must be a list of messages such as {"role": "user", "content": "Hi"}'
        self.check_refused((
            ([{"role": "user", "content": parts}], "messages[0].content is a list, it must be text"),
            ([USER, {"role": 5, "content": "x"}], "messages[1].role is of the type int, it must be text"),
            ([USER, {"role": "assistant", "tool_calls": [of_openai]}],
             'messages[1].tool_calls[0] has the field "type", it may have id, name, arguments'),
            ([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"a": 1}}]}],
             "messages[0].tool_calls[0].arguments is a map, it must be text"),
            ([{"role": "assistant", "tool_calls": {"name": "f"}}],
             "messages[0].tool_calls is a map, it must be a list"),
            ([{"role": "assistant", "tool_calls": ["f"]}], "messages[0].tool_calls[0] is text, it must be a map"),
            ([{"role": "user", "contents": "x"}],
             'messages[0] has the field "contents", it may have role, content, tool_calls, tool_call_id, name, '
             "reasoning_content, thinking, reasoning, content_parts"),
            ([{"role": "user", "content_parts": "x"}], "messages[0].content_parts is text, it must be a list"),
            (["Hi"], "messages[0] is text, it must be a map"),
            ("Hi", f"messages is text, {is_no_list}"),
            (USER, f"messages is a map, {is_no_list}"),
            (None, f"messages is None, {is_no_list}"),
        ), lambda messages: _requests.make_chat(messages, "", {}))
        parts = _requests.make_chat([{"role": "user", "content_parts": ["a", "b"]}], "", {})
        self.assertEqual(list(parts.messages[0].content_parts), ["a", "b"])
        call = v1.ToolCall(name="g", arguments="{}")
        chat = _requests.make_chat([{**USER, "name": None}, {"role": "assistant", "content": None, "tool_calls": [
            {"name": "f", "arguments": "{}"}, call]}], "", {})
        self.assertFalse(chat.messages[0].HasField("name") or chat.messages[1].HasField("content"))
        self.assertEqual([c.name for c in chat.messages[1].tool_calls], ["f", "g"])

    def test_a_guide_that_is_wrong_is_named(self):
        for make, value, text in (
            (guides.regex, re.compile("a"), "pattern is of the type Pattern, it must be text"),
            (guides.grammar, b"g", "text is bytes, it must be text"),
            (guides.choice, ["a", 5], "texts[1] is of the type int, it must be text"),
            (guides.choice, None, "texts is None, it must be a list of texts"),
            (guides.json_schema, [1], "schema is a list, it must be a map, text, a bool or a class of pydantic"),
        ):
            self.check_refused([(value, text)], make)
        self.assertEqual(guides.json_schema(True).json_schema, "true")

    def test_an_iterable_is_read_once(self):
        request = _requests.make_request("Hi", None, {"allowed_token_ids": (i for i in (1, 2))})
        self.assertEqual(list(request.sampling.allowed_token_ids), [1, 2])
        chat = _requests.make_chat((m for m in (USER, USER)), "", {})
        self.assertEqual(len(chat.messages), 2)

    def test_an_option_that_is_wrong_is_named(self):
        for name, value in (("stop", [5]), ("temperature", "hot"), ("max_tokens", -1), ("guide", "a+"), ("n", "two"),
                            ("logit_bias", {"a": 1}), ("beam", {"widths": 3})):
            with self.subTest(name=name), self.assertRaisesRegex((TypeError, ValueError), f"^the option {name}: ."):
                _requests.make_request("Hi", None, {"top_k": 3, name: value})


if __name__ == "__main__":
    unittest.main()
