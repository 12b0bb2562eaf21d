# SPDX-License-Identifier: Apache-2.0
"""Opens the chat page of quire-openai in a headless Chromium and chats. The argument is the folder of our programs.
Ends with 77 when there is no Chromium."""

import json
import pathlib
import sys
import unittest

from openai_programs import ROOT, Installation

sys.path.insert(0, str(ROOT / "tools/screenshots"))
import chromium  # pylint: disable=wrong-import-position

# A message that would run a script if the page treated it as markup.
MESSAGE = "Once upon a time <img src=x onerror=window.owned=1>"


class ChatPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.quire = Installation(BIN)
        cls.addClassCleanup(cls.quire.close)
        cls.quire.wait_until_ready()

    def setUp(self):
        self.page = chromium.Page()
        self.addCleanup(self.page.close)
        self.page.open(f"http://127.0.0.1:{self.quire.port}/")
        self.page.wait_for("document.getElementById('model').textContent === 'tales'")

    def set(self, element, value):
        self.page.evaluate(f"document.getElementById('{element}').value = {json.dumps(value)}")

    def send(self, text):
        self.set("text", text)
        self.page.evaluate("document.getElementById('send').click()")

    def test_an_answer_is_that_of_the_interface_and_texts_are_no_markup(self):
        self.set("temperature", "0")
        self.set("max-tokens", "12")
        self.send(MESSAGE)
        self.page.wait_for("document.querySelector('.assistant .text')?.textContent && !running")
        body = {"messages": [{"role": "user", "content": MESSAGE}], "temperature": 0, "max_tokens": 12}
        answer = self.quire.call("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
        self.assertEqual(self.page.evaluate("document.querySelector('.assistant .text').textContent"), answer)
        self.assertEqual(self.page.evaluate("document.querySelector('.user .text').textContent"), MESSAGE)
        self.assertIsNone(self.page.evaluate("window.owned ?? null"))
        self.assertEqual(self.page.complaints, [])
        # The next message goes with the whole conversation.
        self.send("And then")
        self.page.wait_for("document.querySelectorAll('.assistant').length === 2 && !running")
        self.assertEqual(
            self.page.evaluate("conversation.map(message => message.role)"), ["user", "assistant"] * 2
        )

    def test_a_refused_message_goes_back_and_leaves_the_conversation(self):
        self.set("temperature", "-1")
        self.send("Hello")
        text = self.page.wait_for("document.getElementById('trouble').textContent")
        self.assertIn("temperature", text)
        self.page.wait_for("document.getElementById('text').value === 'Hello'")
        self.assertEqual(self.page.evaluate("conversation.length"), 0)
        self.assertEqual(self.page.evaluate("document.querySelectorAll('.message').length"), 0)
        self.set("temperature", "0")
        self.set("max-tokens", "5")
        self.send("Once")
        self.page.wait_for("conversation.length === 2")
        self.assertEqual(self.page.evaluate("conversation[0].content"), "Once")
        self.assertIn("cut", self.page.evaluate("document.querySelector('.assistant .note').textContent"))

    def test_a_message_that_is_too_long_says_how_to_begin_again(self):
        self.send("Once upon a time. " * 1000)
        text = self.page.wait_for("document.getElementById('trouble').textContent")
        self.assertIn("Press New chat to begin again.", text)

    def test_a_new_chat_gets_nothing_of_the_old_answer(self):
        self.set("max-tokens", "900")
        self.send("One day")
        self.page.wait_for("document.querySelector('.assistant .text')?.textContent")
        self.page.evaluate("document.getElementById('clear').click()")
        self.page.wait_for("!running")
        self.assertEqual(self.page.evaluate("conversation.length"), 0)
        self.assertEqual(self.page.evaluate("document.getElementById('messages').childElementCount"), 0)

    def test_an_answer_can_be_stopped(self):
        self.set("max-tokens", "900")
        self.send("One day")
        self.page.wait_for("document.querySelector('.assistant .text')?.textContent")
        self.page.evaluate("document.getElementById('stop').click()")
        self.page.wait_for("!running")
        self.assertTrue(self.page.evaluate("document.getElementById('trouble').hidden"))


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if chromium.find() is None:
        sys.exit(77)
    unittest.main()
