# SPDX-License-Identifier: Apache-2.0
"""Runs public clients and agents, each as its users start it, against the real programs: whole answers, streams, and
tools where the client has them. The argument is the folder of our programs. A client that is not installed is skipped;
tests/clients/run installs all of them, and docs/openai.md says which versions were run.

The model only tells stories and calls a tool only when it is forced to, so a client is told to force it where its own
settings do not."""

import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from typing import Literal

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from openai_programs import TIMEOUT_S, Installation  # noqa: E402

STORY = "Once upon a time"
MODEL = "caller"  # The name that Installation gives the model.
# It shows the model all that a template can show, so that a client's prompts have their usual length.
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% for call in m.tool_calls or [] %}"
    "<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}\n{% endfor %}"
    "{# 'tool' <tool_call> #}"
)
FLAGS = ["--tool-call-format=hermes", "--reasoning-format=none"]
CITIES = ("Rome", "Oslo")
City = Literal["Rome", "Oslo"]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": list(CITIES)}},
    "required": ["city"],
    "additionalProperties": False,
}


# The modules of the packages.
CLIENTS = {"openai": "openai", "anthropic": "anthropic", "openai-agents": "agents", "litellm": "litellm",
           "langchain-openai": "langchain_openai", "pydantic-ai-slim": "pydantic_ai", "smolagents": "smolagents",
           "instructor": "instructor", "lm-eval": "lm_eval", "claude-agent-sdk": "claude_agent_sdk",
           "aider-chat": "aider"}


def has(*modules):
    return all(importlib.util.find_spec(module) for module in modules)


def needs(*modules):
    """Skips a test class unless these modules are installed."""
    missing = [module for module in modules if not has(module)]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def make_roomy(model):
    """Gives the model a context for the prompts of agents, beyond which it makes less sense than a story, and short
    answers unless the client asks for more."""
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 131072}))
    defaults = json.loads((model / "generation_config.json").read_text())
    (model / "generation_config.json").write_text(json.dumps(defaults | {"max_new_tokens": 200}))


def make_environment():
    """Where clients look for their server; they keep all other defaults, and their own files in a new home."""
    url = f"http://127.0.0.1:{QUIRE.port}"
    home = STACK.enter_context(tempfile.TemporaryDirectory())
    os.environ |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1", "OPENAI_API_KEY": "any",
                   "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any", "HOME": home, "NO_PROXY": "*"}


class ClientTest(unittest.TestCase):
    """A test in which the gateway refuses nothing, whatever the client makes of an error."""

    def setUp(self):
        self.refused_before = self.refused()

    def tearDown(self):
        self.assertEqual(self.refused(), self.refused_before)

    def refused(self):
        """Returns the answers with an error by path and code, except answers for unknown paths."""
        return re.findall(r'^quire_openai_answers_total\{path="(/[^"]*)",code="([45]..)"\} (\d+)', QUIRE.metrics(),
                          re.MULTILINE)


def weather_of(calls):
    """Returns a tool as a function, which appends its arguments to `calls`."""

    def get_weather(city: City) -> str:
        """Get the weather of a city.

        Args:
            city: The city.
        """
        calls.append(city)
        return "warm"

    return get_weather


def run_program(*arguments, **options):
    """Runs a program to its end, and returns what it has printed."""
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, timeout=TIMEOUT_S, **options)
    if done.returncode != 0:
        raise AssertionError(f"{arguments[0]} has exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


if has("pydantic"):
    import pydantic

    class Cat(pydantic.BaseModel):
        """A cat."""

        name: Literal["Tom", "Kit"]
        age: int = pydantic.Field(ge=0, le=99)


class VersionsTest(unittest.TestCase):
    def test_the_documents_have_the_versions_that_are_installed(self):
        text = (ROOT / "docs/openai.md").read_text()
        told = dict(re.findall(r"^\| `([a-z-]+)` \| ([0-9.]+) \|", text, re.MULTILINE))
        pinned = {}
        for path in (ROOT / "tests/clients/requirements").glob("*.txt"):
            # Where a client needs another version of a package, this version is not one that is told.
            found = re.findall(r"^([a-z-]+)(?:\[[a-z,]+\])?==(\S+)$", path.read_text(), re.MULTILINE)
            pinned |= {name: version for name, version in found if path.stem == "clients" or name.startswith(path.stem)}
        self.assertEqual(told, {name: pinned[name] for name in CLIENTS})


@needs("openai", "pydantic")
class OpenAiTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        import openai

        cls.client = openai.OpenAI()
        cls.addClassCleanup(cls.client.close)
        cls.messages = [{"role": "user", "content": STORY}]
        cls.tool = {"name": "get_weather", "parameters": WEATHER, "strict": True}

    def test_chats(self):
        options = {"model": MODEL, "messages": self.messages, "seed": 1}
        whole = self.client.chat.completions.create(**options).choices[0].message.content
        stream = self.client.chat.completions.create(**options, stream=True)
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in stream), whole)
        options |= {"tools": [{"type": "function", "function": self.tool}], "tool_choice": "required"}
        with self.client.chat.completions.stream(**options) as stream:
            (call, *_) = stream.get_final_completion().choices[0].message.tool_calls
        self.assertIn(json.loads(call.function.arguments)["city"], CITIES)
        parsed = self.client.chat.completions.parse(model=MODEL, messages=self.messages, response_format=Cat)
        self.assertIsInstance(parsed.choices[0].message.parsed, Cat)

    def test_responses(self):
        options = {"model": MODEL, "input": STORY, "extra_body": {"seed": 1}}
        whole = self.client.responses.create(**options).output_text
        *_, last = self.client.responses.create(**options, stream=True)
        self.assertEqual(last.response.output_text, whole)
        tools = [{"type": "function", **self.tool}]
        called = self.client.responses.create(**options, tools=tools, tool_choice="required")
        self.assertIn(json.loads(called.output[0].arguments)["city"], CITIES)
        self.assertIsInstance(self.client.responses.parse(**options, text_format=Cat).output_parsed, Cat)

    def test_embeddings(self):
        found = self.client.embeddings.create(model=MODEL, input=["A fox.", "A dog."]).data
        self.assertEqual([len(embedding.embedding) > 10 for embedding in found], [True, True])


@needs("anthropic")
class AnthropicTest(ClientTest):
    def test_messages(self):
        import anthropic

        with anthropic.Anthropic() as client:
            options = {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": STORY}]}
            self.assertEqual(client.messages.create(**options).content[0].type, "text")
            with client.messages.stream(**options) as stream:
                self.assertEqual("".join(stream.text_stream), stream.get_final_message().content[0].text)
            options |= {"tools": [{"name": "get_weather", "input_schema": WEATHER}], "tool_choice": {"type": "any"}}
            with client.messages.stream(**options) as stream:
                self.assertIn(stream.get_final_message().content[0].input["city"], CITIES)


@needs("agents")
class AgentsTest(ClientTest):
    def test_agents(self):
        import agents

        agents.set_tracing_disabled(True)
        cities = []
        agent = agents.Agent(name="Teller", instructions="Tell.", model=MODEL,
                             tools=[agents.function_tool(weather_of(cities))],
                             model_settings=agents.ModelSettings(tool_choice="required"))

        async def run():  # All agents have one client, which stays in its event loop.
            for interface in ("responses", "chat_completions"):
                agents.set_default_openai_api(interface)
                cities.clear()
                whole = await agents.Runner.run(agent, STORY)
                streamed = agents.Runner.run_streamed(agent, STORY)
                events = [event async for event in streamed.stream_events()]
                self.assertTrue(whole.final_output and streamed.final_output and events, interface)
                self.assertGreaterEqual(len(cities), 2, interface)

        asyncio.run(run())


@needs("litellm")
class LiteLlmTest(ClientTest):
    def check(self, model):
        import litellm

        options = {"model": model, "messages": [{"role": "user", "content": STORY}]}
        self.assertTrue(litellm.completion(**options).choices[0].message.content)
        chunks = list(litellm.completion(**options, stream=True))
        self.assertTrue("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
        options["tools"] = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
        for stream in (False, True):
            answer = litellm.completion(**options, tool_choice="required", stream=stream)
            answer = litellm.stream_chunk_builder(list(answer)) if stream else answer
            (call, *_) = answer.choices[0].message.tool_calls
            self.assertIn(json.loads(call.function.arguments)["city"], CITIES)

    def test_chats(self):
        self.check(f"openai/{MODEL}")

    def test_messages_of_anthropic(self):
        self.check(f"anthropic/{MODEL}")

    def test_responses(self):
        import litellm

        self.assertTrue(litellm.responses(model=f"openai/{MODEL}", input=STORY).output)
        *_, last = litellm.responses(model=f"openai/{MODEL}", input=STORY, stream=True)
        self.assertTrue(last.response.output)

    def test_embeddings(self):
        import litellm

        found = litellm.embedding(model=f"openai/{MODEL}", input=["A fox.", "A dog."]).data
        self.assertEqual(len(found), 2)


@needs("langchain_openai", "pydantic")
class LangChainTest(ClientTest):
    def check(self, **options):
        import langchain_openai

        model = langchain_openai.ChatOpenAI(model=MODEL, **options)
        self.assertTrue(model.invoke(STORY).text)
        self.assertTrue("".join(chunk.text for chunk in model.stream(STORY)))
        caller = model.bind_tools([weather_of([])], tool_choice="required")
        self.assertIn(caller.invoke(STORY).tool_calls[0]["args"]["city"], CITIES)
        whole = None
        for chunk in caller.stream(STORY):
            whole = chunk if whole is None else whole + chunk
        self.assertIn(whole.tool_calls[0]["args"]["city"], CITIES)
        self.assertIsInstance(model.with_structured_output(Cat).invoke(STORY), Cat)

    def test_chats(self):
        self.check()

    def test_responses(self):
        self.check(use_responses_api=True)

    def test_embeddings(self):
        import langchain_openai

        # By default it sends the token ids of OpenAI's tokenizer, which are other texts for any other model.
        embeddings = langchain_openai.OpenAIEmbeddings(model=MODEL, check_embedding_ctx_length=False)
        self.assertEqual(len(embeddings.embed_documents(["A fox.", "A dog."])), 2)


@needs("instructor")
class InstructorTest(ClientTest):
    def test_models_of_pydantic(self):
        import instructor

        # With Mode.JSON, nothing but the prompt tells the model what is wanted.
        for mode in (None, instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS_STRICT):
            with self.subTest(mode):
                client = instructor.from_provider(f"openai/{MODEL}", **({} if mode is None else {"mode": mode}))
                options = {"messages": [{"role": "user", "content": STORY}], "response_model": Cat}
                self.assertIsInstance(client.create(**options), Cat)
                *_, last = client.create_partial(**options)
                self.assertIn(last.name, ("Tom", "Kit"))


@needs("pydantic_ai", "pydantic")
class PydanticAiTest(ClientTest):
    def check(self, model):
        import pydantic_ai

        cities = []
        # It forces the model to call a tool if its output is one.
        agent = pydantic_ai.Agent(model, output_type=Cat, tools=[weather_of(cities)], instructions="Tell.")
        self.assertIsInstance(agent.run_sync(STORY).output, Cat)

        async def stream():
            async with agent.run_stream(STORY) as result:
                return await result.get_output()

        self.assertIsInstance(asyncio.run(stream()), Cat)
        self.assertTrue(pydantic_ai.Agent(model).run_sync(STORY).output)

    def test_chats(self):
        self.check(f"openai-chat:{MODEL}")

    def test_responses(self):
        self.check(f"openai-responses:{MODEL}")

    def test_messages_of_anthropic(self):
        self.check(f"anthropic:{MODEL}")


@needs("smolagents")
class SmolagentsTest(ClientTest):
    def test_agents(self):
        import smolagents

        tool = smolagents.tool(weather_of([]))
        model = smolagents.OpenAIModel(model_id=MODEL)
        for kind in (smolagents.ToolCallingAgent, smolagents.CodeAgent):
            for streams in (False, True):
                with self.subTest(kind=kind.__name__, streams=streams):
                    agent = kind(tools=[tool], model=model, max_steps=2, stream_outputs=streams, verbosity_level=0)
                    self.assertIsNotNone(agent.run(STORY))
                    if kind is smolagents.ToolCallingAgent:  # It forces a call in each step.
                        calls = [step for step in agent.memory.steps if getattr(step, "tool_calls", None)]
                        self.assertTrue(calls, agent.memory.steps)


@needs("lm_eval")
class LmEvalTest(ClientTest):
    TASKS = {
        "choose": {"output_type": "multiple_choice", "doc_to_choice": ["girl", "stone"], "doc_to_target": "{{answer}}",
                   "metric_list": [{"metric": "acc"}]},
        "write": {"output_type": "generate_until", "doc_to_target": "{{words}}",
                  "generation_kwargs": {"until": ["."], "max_gen_toks": 20},
                  "metric_list": [{"metric": "exact_match"}]},
    }

    def test_local_completions(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            rows = [{"text": "Once upon a time there was a little", "answer": 0, "words": "girl"}] * 3
            (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            for name, task in self.TASKS.items():
                task = {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": f"{folder}/rows.jsonl"},
                        "test_split": "train", "doc_to_text": "{{text}}", **task}
                (folder / f"{name}.yaml").write_text(json.dumps(task))  # JSON is YAML.
            options = f"model={MODEL},base_url={os.environ['OPENAI_BASE_URL']}/completions,"
            options += f"tokenizer={ROOT}/models/tales"
            run_program(sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", options,
                        "--include_path", folder, "--tasks", "choose,write", "--output_path", folder / "results",
                        env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": f"{folder}/cache"})
            (found,) = (folder / "results").rglob("results*.json")
            results = json.loads(found.read_text())["results"]
            self.assertEqual(results["choose"]["acc,none"], 1)
            self.assertIn("exact_match,none", results["write"])


@needs("claude_agent_sdk")
class ClaudeAgentTest(ClientTest):
    """The command line of Claude Code, which the package brings with it, and its long prompts."""

    def test_a_question(self):
        import claude_agent_sdk

        async def ask(**options):
            options = claude_agent_sdk.ClaudeAgentOptions(model=MODEL, max_turns=1, **options)
            return [message async for message in claude_agent_sdk.query(prompt=STORY, options=options)]

        for partial in (False, True):
            with self.subTest(include_partial_messages=partial):
                *_, last = asyncio.run(ask(include_partial_messages=partial))
                self.assertEqual((type(last).__name__, last.is_error), ("ResultMessage", False), last)
                self.assertTrue(last.result)


@needs("aider")
class AiderTest(ClientTest):
    def test_a_message(self):
        for stream in ("--stream", "--no-stream"):
            with self.subTest(stream), tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "story.txt").write_text("Once upon a time.\n")
                printed = run_program(sys.executable, "-m", "aider", "--model", f"openai/{MODEL}", "--yes-always",
                                      "--no-check-update", stream, "--message", STORY, "story.txt", cwd=folder)
                self.assertIn("Tokens: ", printed)
                self.assertNotIn("litellm.", printed)  # Its exceptions.


def main():
    global QUIRE, STACK
    folder = pathlib.Path(sys.argv.pop(1)).resolve()
    with contextlib.ExitStack() as STACK:
        installed = [package for package, module in CLIENTS.items() if has(module)]
        if installed:
            QUIRE = Installation(folder, chat_template=TEMPLATE, gateway_flags=FLAGS, edit_model=make_roomy)
            STACK.callback(QUIRE.close)
            QUIRE.wait_until_ready()
            make_environment()
        print("installed:", *[f"{name} {importlib.metadata.version(name)}" for name in installed], flush=True)
        unittest.main()


if __name__ == "__main__":
    main()
