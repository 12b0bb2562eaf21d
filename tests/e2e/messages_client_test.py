# SPDX-License-Identifier: Apache-2.0
"""Runs the documented examples of Anthropic's Python client against quire-openai. The argument is the folder of our
programs. Ends with 77 when the package anthropic is not installed."""

import asyncio
import pathlib
import sys
import unittest

try:
    import anthropic
except ImportError:
    sys.exit(77)

from openai_programs import started

USER = {"role": "user", "content": "Once upon a time"}
SYSTEM = [{"type": "text", "text": "You tell stories.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
# The client has no argument for the temperature any more.
GREEDY = {"model": "tales", "max_tokens": 20, "messages": [USER], "system": SYSTEM, "extra_body": {"temperature": 0}}


def client_of(quire, kind=anthropic.Anthropic, **options):
    return kind(base_url=f"http://127.0.0.1:{quire.port}", api_key="unused", max_retries=0, **options)


class AnthropicClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.quire = started(cls, BIN)
        cls.client = client_of(cls.quire)
        cls.addClassCleanup(cls.client.close)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tales"])
        self.assertEqual(self.client.models.retrieve("tales").id, "tales")

    def test_a_message(self):
        message = self.client.messages.create(**GREEDY, metadata={"user_id": "u"}, service_tier="auto")
        self.assertEqual((message.type, message.role, message.stop_reason), ("message", "assistant", "max_tokens"))
        self.assertEqual([block.type for block in message.content], ["text"])
        self.assertEqual(message.usage.output_tokens, 20)

    def test_a_stream(self):
        whole = self.client.messages.create(**GREEDY)
        with self.client.messages.stream(**GREEDY) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual((final.stop_reason, final.usage.output_tokens), ("max_tokens", 20))
        usage = final.usage
        num_input = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
        self.assertEqual(self.client.messages.count_tokens(
            model="tales", messages=[USER], system=SYSTEM).input_tokens, num_input)

    def test_the_asynchronous_client(self):
        async def run():
            async with client_of(self.quire, anthropic.AsyncAnthropic) as client:
                stream = await client.messages.create(**GREEDY, stream=True)
                return [event async for event in stream]

        events = asyncio.run(run())
        self.assertEqual((events[0].type, events[-1].type), ("message_start", "message_stop"))

    def test_the_answer_continues(self):
        first = self.client.messages.create(**GREEDY)
        messages = [USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": "And then?"}]
        second = self.client.messages.create(**{**GREEDY, "messages": messages})
        self.assertGreater(second.usage.input_tokens + second.usage.cache_read_input_tokens, 20)

    def test_errors_are_exceptions(self):
        with self.assertRaises(anthropic.BadRequestError) as bad:
            self.client.messages.create(**{**GREEDY, "extra_body": {"temperature": -1}})
        self.assertEqual(bad.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.create(**{**GREEDY, "model": "other"})
        tools = [{"type": "web_search_20250305", "name": "web_search"}]
        with self.assertRaisesRegex(anthropic.BadRequestError, "web_search_20250305"):
            self.client.messages.create(**GREEDY, tools=tools)


class ToolsTest(unittest.TestCase):
    """The documented examples of tools and thoughts, with a model that only tells stories."""

    TOOLS = [
        {
            "name": "get_weather",
            "description": "Get the current weather in a given location",
            "input_schema": {
                "type": "object",
                "properties": {
                    "location": {"type": "string", "maxLength": 12, "description": "The city and state"},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
                "required": ["location", "unit"],
                "additionalProperties": False,
            },
        }
    ]

    def start(self, *gateway_flags):
        template = "{% for m in messages %}{{ m.reasoning_content }}{{ '' + m.content }}{% endfor %}"
        template += "{% if enable_thinking %}<think>\n{% endif %}{# </think> <tool_call> 'tool' 'tool_calls' #}"
        quire = started(self, BIN, chat_template=template, gateway_flags=gateway_flags)
        client = client_of(quire)
        self.addCleanup(client.close)
        return client

    def test_a_tool_is_used(self):
        client = self.start("--tool-call-format=hermes", "--reasoning-format=none")
        options = {"model": "caller", "max_tokens": 300, "messages": [USER], "tools": self.TOOLS}
        options["tool_choice"] = {"type": "tool", "name": "get_weather"}
        with client.messages.stream(**options) as stream:
            message = stream.get_final_message()
        self.assertEqual((message.stop_reason, len(message.content)), ("tool_use", 1))
        used = message.content[0]
        self.assertEqual((used.type, used.name), ("tool_use", "get_weather"))
        self.assertEqual(list(used.input), ["location", "unit"])
        self.assertIn(used.input["unit"], ["celsius", "fahrenheit"])
        result = {"type": "tool_result", "tool_use_id": used.id, "content": "15 degrees"}
        options["messages"] = [USER, {"role": "assistant", "content": message.content},
                               {"role": "user", "content": [result]}]
        self.assertEqual(client.messages.create(**options).content[0].type, "tool_use")

    def test_thoughts_are_blocks(self):
        client = self.start("--tool-call-format=none", "--reasoning-format=think")
        options = {"model": "caller", "max_tokens": 20, "messages": [USER]}
        options |= {"thinking": {"type": "enabled", "budget_tokens": 1024}, "extra_body": {"temperature": 0}}
        whole = client.messages.create(**options)
        with client.messages.stream(**options) as stream:
            message = stream.get_final_message()
        self.assertEqual(message.content[0].type, "thinking")
        self.assertEqual(message.content[0].thinking, whole.content[0].thinking)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
