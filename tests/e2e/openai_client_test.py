# SPDX-License-Identifier: Apache-2.0
"""Runs the documented examples of OpenAI's Python client against quire-openai. The argument is the folder of our
programs. Ends with 77 when the package openai is not installed."""

import asyncio
import json
import pathlib
import sys
import unittest

try:
    import openai
except ImportError:
    sys.exit(77)

from openai_programs import WEATHER, started

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORY = "Once upon a time"
MESSAGES = [{"role": "system", "content": "You tell stories."}, {"role": "user", "content": STORY}]


class OpenAiClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.quire = started(cls, BIN)
        cls.url = f"http://127.0.0.1:{cls.quire.port}/v1"
        cls.client = openai.OpenAI(base_url=cls.url, api_key="unused", max_retries=0)
        cls.addClassCleanup(cls.client.close)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tales"])
        self.assertEqual(self.client.models.retrieve("tales").id, "tales")

    def test_completion(self):
        done = self.client.completions.create(model="tales", prompt=STORY, max_tokens=7, temperature=0)
        self.assertEqual(done.usage.completion_tokens, 7)
        self.assertEqual(done.choices[0].finish_reason, "length")
        stream = self.client.completions.create(model="tales", prompt=STORY, max_tokens=7, temperature=0, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in stream), done.choices[0].text)

    def test_chat_completion(self):
        done = self.client.chat.completions.create(
            model="tales", messages=MESSAGES, max_completion_tokens=12, temperature=0, logprobs=True, top_logprobs=2
        )
        self.assertEqual(done.choices[0].message.role, "assistant")
        self.assertEqual(len(done.choices[0].logprobs.content), 12)
        self.assertEqual(len(done.choices[0].logprobs.content[0].top_logprobs), 2)

    def test_streaming(self):
        # The helper `stream` takes an answer that ends at max_tokens for an error.
        options = {"model": "tales", "messages": MESSAGES, "max_tokens": 200, "temperature": 0, "stop": ["."]}
        done = self.client.chat.completions.create(**options)
        text, usage = "", None
        stream = self.client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
        self.assertEqual(text, done.choices[0].message.content)
        self.assertEqual(usage.completion_tokens, done.usage.completion_tokens)
        with self.client.chat.completions.stream(**options) as events:
            self.assertEqual(events.get_final_completion().choices[0].message.content, text)

    def test_the_asynchronous_client(self):
        async def run():
            async with openai.AsyncOpenAI(base_url=self.url, api_key="unused") as client:
                stream = await client.chat.completions.create(
                    model="tales", messages=MESSAGES, max_tokens=5, stream=True
                )
                return [chunk async for chunk in stream]

        self.assertEqual(asyncio.run(run())[-1].choices[0].finish_reason, "length")

    def test_the_extras_of_vllm(self):
        done = self.client.completions.create(
            model="tales",
            prompt=STORY,
            max_tokens=5,
            extra_body={"top_n_sigma": 1.5, "top_k": 5, "min_p": 0.1, "xtc_probability": 0.5,
                        "repetition_penalty": 1.1, "ignore_eos": True, "prompt_logprobs": 0},
        )
        self.assertEqual(done.usage.completion_tokens, 5)
        self.assertIsNone(done.choices[0].prompt_logprobs[0])

    def test_a_request_with_tools(self):
        parameters = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}]
        for choice in ("none", "auto"):  # The bundled model calls no tool by itself.
            done = self.client.chat.completions.create(
                model="tales", messages=MESSAGES, tools=tools, tool_choice=choice, max_tokens=5
            )
            self.assertIsNone(done.choices[0].message.tool_calls)
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            done = self.client.chat.completions.create(
                model="tales", messages=MESSAGES, tools=tools, tool_choice=choice, max_tokens=200
            )
            (call, *_) = done.choices[0].message.tool_calls
            self.assertIn(json.loads(call.function.arguments)["city"], ("Rome", "Oslo"))

    def test_an_answer_that_follows_a_schema(self):
        schema = {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 99}},
            "required": ["name", "age"],
            "additionalProperties": False,
        }
        done = self.client.chat.completions.create(
            model="tales",
            messages=MESSAGES,
            response_format={"type": "json_schema", "json_schema": {"name": "cat", "strict": True, "schema": schema}},
            temperature=1.5,
            max_tokens=200,
        )
        answer = json.loads(done.choices[0].message.content)
        self.assertEqual(list(answer), ["name", "age"])
        self.assertLessEqual(answer["age"], 99)
        with self.assertRaises(openai.BadRequestError) as bad:
            self.client.completions.create(model="tales", prompt=STORY, extra_body={"guided_regex": "(?=a)"})
        self.assertEqual(bad.exception.param, "guided_regex")

    def test_errors_are_exceptions_with_the_field(self):
        with self.assertRaises(openai.BadRequestError) as bad:
            self.client.completions.create(model="tales", prompt=STORY, temperature=-1)
        self.assertEqual(bad.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError) as missing:
            self.client.completions.create(model="other", prompt=STORY)
        self.assertEqual(missing.exception.code, "model_not_found")


class ToolsTest(unittest.TestCase):
    """The documented examples of calls of functions, with a model that only tells stories."""

    @classmethod
    def setUpClass(cls):
        template = "{{ messages[0].content }}{# <tool_call> #}"
        flags = ["--tool-call-format=hermes", "--reasoning-format=none"]
        cls.quire = started(cls, BIN, chat_template=template, gateway_flags=flags)
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.quire.port}/v1", api_key="unused", max_retries=0)
        cls.addClassCleanup(cls.client.close)
        cls.model = next(iter(cls.client.models.list())).id

    def create(self, **fields):
        return self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": STORY}],
            tools=[{"type": "function", "function": WEATHER}],
            max_completion_tokens=300,
            **fields,
        )

    def check(self, name, arguments):
        self.assertEqual(name, "get_weather")
        read = json.loads(arguments)
        self.assertEqual(list(read), ["location", "units"])
        self.assertIn(read["units"], ["celsius", "fahrenheit"])

    def test_a_call_that_is_required(self):
        choice = self.create(tool_choice="required", seed=5, parallel_tool_calls=False).choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        for call in choice.message.tool_calls:
            self.check(call.function.name, call.function.arguments)

    def test_a_call_of_the_named_function(self):
        named = {"type": "function", "function": {"name": "get_weather"}}
        choice = self.create(tool_choice=named).choices[0]
        self.assertEqual((choice.finish_reason, len(choice.message.tool_calls)), ("stop", 1))
        self.check(choice.message.tool_calls[0].function.name, choice.message.tool_calls[0].function.arguments)

    def test_a_stream_of_calls(self):
        final_tool_calls = {}
        for chunk in self.create(tool_choice="required", parallel_tool_calls=False, stream=True):
            for tool_call in chunk.choices[0].delta.tool_calls or []:
                if tool_call.index not in final_tool_calls:
                    final_tool_calls[tool_call.index] = tool_call
                else:
                    final_tool_calls[tool_call.index].function.arguments += tool_call.function.arguments
        self.assertEqual(list(final_tool_calls), [0])
        self.check(final_tool_calls[0].function.name, final_tool_calls[0].function.arguments)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
