# SPDX-License-Identifier: Apache-2.0
"""Runs documented examples of the Responses interface with OpenAI's Python client against quire-openai, and an agent of
openai-agents where that package is installed. The argument is the folder of our programs. Ends with 77 when the package
openai is not installed."""

import asyncio
import json
import pathlib
import sys
import unittest
from typing import Literal

try:
    import openai
    import pydantic
except ImportError:
    sys.exit(77)
try:
    import agents
except ImportError:
    agents = None

from openai_programs import WEATHER, started

STORY = "Once upon a time"
GREEDY = {"model": "tales", "input": STORY, "instructions": "You tell stories.", "temperature": 0}
TEMPLATE = "{% for m in messages %}{{ m.reasoning_content }}{{ '' + m.content }}{% endfor %}"
TEMPLATE += "{% if enable_thinking %}<think>\n{% endif %}{# </think> <tool_call> 'tool' 'tool_calls' #}"


class Cat(pydantic.BaseModel):
    name: Literal["Tom", "Kit"]
    age: int = pydantic.Field(ge=0, le=99)


def validate(answer):
    """Checks all members, which the client does not do."""
    type(answer).model_validate(answer.to_dict())


def start(test, **options):
    """Returns the client of a new installation, and its model."""
    quire = started(test, BIN, **options)
    test.url = f"http://127.0.0.1:{quire.port}/v1"
    client = openai.OpenAI(base_url=test.url, api_key="unused", max_retries=0)
    test.addClassCleanup(client.close)
    return client, next(iter(client.models.list())).id


class ResponsesClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client, _ = start(cls)

    def test_a_response(self):
        response = self.client.responses.create(**GREEDY, max_output_tokens=20, metadata={"a": "b"}, user="u")
        self.assertEqual((response.object, response.status, response.model), ("response", "incomplete", "tales"))
        self.assertEqual(response.incomplete_details.reason, "max_output_tokens")
        self.assertEqual([item.type for item in response.output], ["message"])
        self.assertEqual(response.usage.output_tokens, 20)
        self.assertEqual(response.metadata, {"a": "b"})
        validate(response)

    def test_a_stream(self):
        whole = self.client.responses.create(**GREEDY, max_output_tokens=20)
        stream = self.client.responses.create(**GREEDY, max_output_tokens=20, stream=True)
        text = ""
        for event in stream:
            validate(event)
            text += event.delta if event.type == "response.output_text.delta" else ""
        self.assertEqual(text, whole.output_text)
        self.assertEqual((event.type, event.response.output_text), ("response.incomplete", text))

    def test_the_helper_for_streams(self):
        schema = {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 9}
        form = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
        with self.client.responses.stream(**GREEDY, text=form) as stream:
            text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
        self.assertEqual((final.status, final.output_text), ("completed", text))

    def test_the_asynchronous_client(self):
        async def run():
            async with openai.AsyncOpenAI(base_url=self.url, api_key="unused") as client:
                stream = await client.responses.create(**GREEDY, max_output_tokens=5, stream=True)
                return [event async for event in stream]

        events = asyncio.run(run())
        self.assertEqual((events[0].type, events[-1].type), ("response.created", "response.incomplete"))

    def test_an_answer_that_is_parsed(self):
        response = self.client.responses.parse(**GREEDY, text_format=Cat)
        self.assertIsInstance(response.output_parsed, Cat)
        with self.client.responses.stream(**GREEDY, text_format=Cat) as stream:
            self.assertEqual(stream.get_final_response().output_parsed, response.output_parsed)

    def test_logprobs(self):
        response = self.client.responses.create(
            **GREEDY, max_output_tokens=5, include=["message.output_text.logprobs"], top_logprobs=2
        )
        logprobs = response.output[0].content[0].logprobs
        self.assertEqual((len(logprobs), len(logprobs[0].top_logprobs)), (5, 2))
        validate(response)

    def test_the_conversation_continues(self):
        first = self.client.responses.create(**GREEDY, max_output_tokens=20)
        items = [{"role": "user", "content": STORY}, *first.output, {"role": "user", "content": "And then?"}]
        second = self.client.responses.create(**{**GREEDY, "input": items}, max_output_tokens=5)
        self.assertGreater(second.usage.input_tokens, first.usage.input_tokens + 20)

    def test_errors_are_exceptions(self):
        with self.assertRaises(openai.BadRequestError) as bad:
            self.client.responses.create(**{**GREEDY, "temperature": -1})
        self.assertEqual(bad.exception.param, "temperature")
        with self.assertRaisesRegex(openai.BadRequestError, "this server stores no responses"):
            self.client.responses.create(**GREEDY, previous_response_id="resp_1")
        with self.assertRaisesRegex(openai.BadRequestError, "run on OpenAI's servers"):
            self.client.responses.create(**GREEDY, tools=[{"type": "web_search"}])
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.create(**{**GREEDY, "model": "other"})
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve("resp_1")


class ToolsTest(unittest.TestCase):
    """The documented examples of tools, with a model that only tells stories."""

    @classmethod
    def setUpClass(cls):
        flags = ["--tool-call-format=hermes", "--reasoning-format=none"]
        cls.client, cls.model = start(cls, chat_template=TEMPLATE, gateway_flags=flags)

    def create(self, **fields):
        # The client has no argument for the seed.
        return self.client.responses.create(
            model=self.model,
            tools=[{"type": "function", **WEATHER}],
            max_output_tokens=300,
            extra_body={"seed": 5},
            **fields,
        )

    def check(self, call):
        self.assertEqual((call.type, call.name, call.status), ("function_call", "get_weather", "completed"))
        read = json.loads(call.arguments)
        self.assertEqual(list(read), ["location", "units"])
        self.assertIn(read["units"], ["celsius", "fahrenheit"])

    def test_a_call_and_its_result(self):
        items = [{"role": "user", "content": STORY}]
        first = self.create(input=items, tool_choice={"type": "function", "name": "get_weather"})
        self.assertEqual((first.status, len(first.output)), ("completed", 1))
        self.check(first.output[0])
        items += first.output
        items.append({"type": "function_call_output", "call_id": first.output[0].call_id, "output": "15 degrees"})
        second = self.create(input=items, tool_choice="none")
        self.assertEqual([item.type for item in second.output], ["message"])

    def test_a_stream_of_a_call(self):
        final_tool_calls = {}
        for event in self.create(input=STORY, tool_choice="required", parallel_tool_calls=False, stream=True):
            validate(event)
            if event.type == "response.output_item.added":
                final_tool_calls[event.output_index] = event.item
            elif event.type == "response.function_call_arguments.delta":
                final_tool_calls[event.output_index].arguments += event.delta
        self.assertEqual(list(final_tool_calls), [0])
        self.check(event.response.output[0])
        self.assertEqual(final_tool_calls[0].arguments, event.response.output[0].arguments)


class ThoughtsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        flags = ["--tool-call-format=none", "--reasoning-format=think"]
        cls.client, cls.model = start(cls, chat_template=TEMPLATE, gateway_flags=flags)

    def test_thoughts_are_items(self):
        options = {"model": self.model, "input": STORY, "temperature": 0, "max_output_tokens": 20}
        options |= {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}
        options["extra_body"] = {"chat_template_kwargs": {"enable_thinking": True}}
        whole = self.client.responses.create(**options)
        self.assertEqual([item.type for item in whole.output], ["reasoning"])
        thoughts = ""
        for event in self.client.responses.create(**options, stream=True):
            validate(event)
            thoughts += event.delta if event.type == "response.reasoning_text.delta" else ""
        self.assertEqual(thoughts, whole.output[0].content[0].text)
        self.assertEqual(event.response.output[0].encrypted_content, whole.output[0].encrypted_content)
        self.assertEqual(event.response.usage.output_tokens_details.reasoning_tokens, 20)
        items = [{"role": "user", "content": STORY}, *whole.output, {"role": "user", "content": "And then?"}]
        self.assertEqual(self.client.responses.create(**{**options, "input": items}).status, "incomplete")


@unittest.skipIf(agents is None, "openai-agents is not installed")
class AgentsTest(unittest.TestCase):
    """Agents whose model only tells stories, so one must be told to use its tool, which it then does once."""

    @classmethod
    def setUpClass(cls):
        agents.set_tracing_disabled(True)
        flags = ["--tool-call-format=hermes", "--reasoning-format=none"]
        cls.sync_client, cls.model = start(cls, chat_template=TEMPLATE, gateway_flags=flags)

    def run_agent(self, run, **options):
        """Returns the result of `run` for an agent."""

        async def start():
            async with openai.AsyncOpenAI(base_url=self.url, api_key="unused", max_retries=0) as client:
                model = agents.OpenAIResponsesModel(model=self.model, openai_client=client)
                return await run(agents.Agent(name="Teller", instructions="Tell.", model=model, **options))

        # With other settings, a story may be longer than the context.
        options = {"model_settings": agents.ModelSettings(temperature=0), **options}
        return asyncio.run(start())

    def test_an_agent_answers(self):
        result = self.run_agent(lambda agent: agents.Runner.run(agent, STORY))
        self.assertTrue(result.final_output)

    def test_an_agent_uses_its_tool(self):
        cities = []

        @agents.function_tool
        def get_weather(city: Literal["Rome", "Oslo"]) -> str:
            """Get the weather."""
            cities.append(city)
            return "warm"

        settings = agents.ModelSettings(tool_choice="required", parallel_tool_calls=False, temperature=0)
        result = self.run_agent(
            lambda agent: agents.Runner.run(agent, STORY), tools=[get_weather], model_settings=settings
        )
        self.assertEqual(len(cities), 1)
        self.assertEqual([type(item).__name__ for item in result.new_items][:2], ["ToolCallItem", "ToolCallOutputItem"])

    def test_a_stream_of_an_agent(self):
        async def run(agent):
            result = agents.Runner.run_streamed(agent, STORY)
            text = ""
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    text += event.data.delta
            return text, result.final_output

        text, final_output = self.run_agent(run)
        self.assertEqual(text, final_output)

    def test_an_agent_with_a_form_of_its_output(self):
        result = self.run_agent(lambda agent: agents.Runner.run(agent, STORY), output_type=Cat)
        self.assertIsInstance(result.final_output, Cat)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
