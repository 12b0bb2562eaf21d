# SPDX-License-Identifier: Apache-2.0
"""Holds the session of an agent through quire-openai: 30 turns with 20 tools, in each of which a tool is called and its
result goes back. The argument is the folder of our programs."""

import itertools
import json
import pathlib
import sys
import threading
import unittest

from openai_programs import resume_key, simulated_worker, started, wait_for

NUM_TURNS = 30
NUM_TOOLS = 20
BLOCK_SIZE = 16
TEMPLATE = (
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content or '' }}{% for call in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}\n{% endfor %}assistant: {# 'tool' #}"
)
# A list of steps, which makes a call long enough to be interrupted.
PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 12},
        "steps": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 60, "maxItems": 60},
    },
    "required": ["path", "steps"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": f"tool_{i}", "description": f"Does the work of number {i}.",
                                      "parameters": PARAMETERS}}
    for i in range(NUM_TOOLS)
]


def make_roomy(model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 32768}))


def num_shared(first, second):
    """Returns the length of the common prefix of two lists."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, second)))


class Turn:
    """The answer to a request for a call of a tool, from its events."""

    def __init__(self):
        self.prompt_ids, self.ids, self.usage = [], [], None
        self.call_id, self.name, self.arguments, self.finish_reason = None, None, "", None

    def take(self, event):
        self.usage = event.get("usage") or self.usage
        self.prompt_ids = event.get("prompt_token_ids") or self.prompt_ids
        for choice in event["choices"]:
            self.ids += choice.get("token_ids") or []
            self.finish_reason = choice["finish_reason"] or self.finish_reason
            for call in choice["delta"].get("tool_calls") or []:
                self.call_id = call.get("id") or self.call_id
                self.name = call["function"].get("name") or self.name
                self.arguments += call["function"].get("arguments") or ""

    def num_cached(self):
        return self.usage["prompt_tokens_details"]["cached_tokens"]

    def messages(self, number):
        """What the next request has of this turn."""
        function = {"name": self.name, "arguments": self.arguments}
        return [
            {"role": "assistant", "content": None,
             "tool_calls": [{"id": self.call_id, "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": self.call_id, "content": f"The result of turn {number}."},
            {"role": "user", "content": f"Then do what comes after {number}."},
        ]


class AgentSessionTest(unittest.TestCase):
    def setUp(self):
        self.quire = started(
            self,
            BIN,
            resume_key(self),
            ["--tool-call-format=hermes", "--reasoning-format=none"],
            [*simulated_worker(self, "2ms"), f"--block-size={BLOCK_SIZE}"],
            chat_template=TEMPLATE,
            edit_model=make_roomy,
        )
        self.conversation = [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": "Begin."}]

    def ask(self, number, turn):
        """Sends the conversation, and gives the events of the answer to `turn` as they come."""
        body = {
            "messages": self.conversation,
            "tools": TOOLS,
            "tool_choice": {"type": "function", "function": {"name": f"tool_{number % NUM_TOOLS}"}},
            "seed": number,
            "max_tokens": 600,
            "return_token_ids": True,
            "stream_options": {"include_usage": True},
        }
        for event in self.quire.stream_events("/v1/chat/completions", body):
            if event != "[DONE]":
                turn.take(event)
        return turn

    def ask_while(self, number, interrupt):
        """The same, and calls `interrupt` in the middle of the call."""
        turn = Turn()
        thread = threading.Thread(target=self.ask, args=(number, turn))
        thread.start()
        wait_for(lambda: len(turn.arguments) > 40)
        self.assertIsNone(turn.finish_reason)
        interrupt()
        thread.join()
        return turn

    def lose_worker(self):
        self.quire.worker.end()
        self.quire.start_worker()

    def lose_manager(self):
        self.quire.manager.end()
        self.quire.start_manager()

    def check_call(self, number, turn):
        self.assertEqual((turn.name, turn.finish_reason), (f"tool_{number % NUM_TOOLS}", "stop"))
        self.assertEqual(len(json.loads(turn.arguments)["steps"]), 60)
        self.assertEqual(turn.usage["completion_tokens"], len(turn.ids))
        self.assertEqual(turn.usage["prompt_tokens"], len(turn.prompt_ids))

    def test_a_turn_computes_only_what_is_new(self):
        last = None
        for number in range(NUM_TURNS):
            turn = self.ask(number, Turn())
            self.check_call(number, turn)
            if last is not None:
                shared = num_shared(last.prompt_ids + last.ids, turn.prompt_ids)
                self.assertGreaterEqual(shared, len(last.prompt_ids))
                self.assertIn(shared - turn.num_cached(), range(BLOCK_SIZE), f"turn {number}")
            last = turn
            self.conversation += turn.messages(number)
        self.assertGreater(len(last.prompt_ids), 5000)

    def test_a_call_survives_the_loss_of_its_worker_and_of_its_manager(self):
        interruptions = {3: self.lose_worker, 5: self.lose_manager, 7: self.lose_worker}
        for number in range(10):
            if number not in interruptions:
                turn = self.ask(number, Turn())
            else:
                turn = self.ask_while(number, interruptions[number])
                again = self.ask(number, Turn())
                self.assertEqual((turn.ids, turn.arguments), (again.ids, again.arguments))
                # The next manager knows what the workers have cached, and the next worker what it has computed.
                self.assertIn(len(turn.prompt_ids) - again.num_cached(), range(BLOCK_SIZE))
            self.check_call(number, turn)
            self.conversation += turn.messages(number)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
