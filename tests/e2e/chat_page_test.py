# SPDX-License-Identifier: Apache-2.0
"""Opens the chat page of quire-openai in a headless Chromium and chats. The argument is the folder of our programs.
Ends with 77 when there is no Chromium."""

import json
import pathlib
import sys
import unittest

from openai_programs import ROOT, started

sys.path.insert(0, str(ROOT / "tools/screenshots"))
import chromium  # pylint: disable=wrong-import-position

# A message that would run a script if the page treated it as markup.
MESSAGE = "Once upon a time <img src=x onerror=window.owned=1>"


class ChatPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.quire = started(cls, BIN)

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
        self.assertEqual(self.page.evaluate("document.querySelectorAll('.message').length"), 0)
        self.assertFalse(self.page.evaluate("document.getElementById('start').hidden"))

    def room_below_the_last_line(self):
        """Returns the pixels between the last line of the last answer and the form."""
        return self.page.evaluate(
            """(() => {
            const range = document.createRange();
            range.selectNodeContents([...document.querySelectorAll('.assistant .text')].pop());
            const line = [...range.getClientRects()].pop();
            return document.getElementById('form').getBoundingClientRect().top - line.bottom;
        })()"""
        )

    def test_the_last_line_stays_above_the_form_at_every_size_and_in_both_schemes(self):
        self.set("temperature", "0")
        self.set("max-tokens", "400")
        sizes = (360, 640, "dark"), (390, 844, "light"), (1200, 900, "dark"), (1920, 500, "light")
        for width, height, scheme in sizes:
            with self.subTest(width=width, height=height, scheme=scheme):
                self.page.resize(width, height)
                self.page.prefer(scheme)
                self.page.evaluate("document.getElementById('clear').click()")
                while self.page.evaluate("$('messages').scrollHeight <= $('messages').clientHeight + 100"):
                    self.send("One day")
                    self.page.wait_for("running === null")
                    self.assertGreaterEqual(self.room_below_the_last_line(), 0)
                form = "document.getElementById('form').getBoundingClientRect()"
                self.assertGreaterEqual(self.page.evaluate(f"innerHeight - {form}.bottom"), 0)
                self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth - innerWidth"), 0)

    def test_who_reads_upwards_is_not_pulled_down(self):
        self.page.resize(390, 500)
        self.set("max-tokens", "100")
        for _ in range(3):
            self.send("One day")
            self.page.wait_for("running === null")
        self.set("max-tokens", "200")
        self.send("One day")
        self.page.wait_for("[...document.querySelectorAll('.assistant .text')].pop().textContent")
        # A token that comes between the reader's move and its event pulls nobody down.
        self.page.evaluate("document.getElementById('messages').scrollTop = 20; follow()")
        self.page.wait_for("!following && !running")
        self.assertLess(self.page.evaluate("document.getElementById('messages').scrollTop"), 100)
        self.send("And then")
        self.page.wait_for("following && !running && conversation.length === 10")
        self.assertGreaterEqual(self.room_below_the_last_line(), 0)

    def test_an_example_is_sent_and_its_answer_can_be_had_again(self):
        self.set("temperature", "0")
        self.set("max-tokens", "5")
        self.page.evaluate("document.querySelector('#start button').click()")
        self.page.wait_for("conversation.length === 2 && !running")
        self.assertTrue(self.page.evaluate("document.getElementById('start').hidden"))
        first = self.page.evaluate("JSON.stringify(conversation)")
        self.page.evaluate("document.querySelector('.again').click()")
        self.page.wait_for("document.querySelectorAll('.again').length === 1 && !running")
        self.assertEqual(self.page.evaluate("JSON.stringify(conversation)"), first)
        self.assertEqual(self.page.evaluate("document.querySelectorAll('.message').length"), 2)

    def show_markdown(self, text):
        """Shows a text as the page does, and returns the element's HTML without the buttons."""
        if not self.page.evaluate("typeof marked === 'object'"):
            self.skipTest("the page was built without libjs-marked")
        return self.page.evaluate(
            f"""(() => {{
            window.shown ??= document.createElement("div");
            showMarkdown(shown, {json.dumps(text)});
            const copy = shown.cloneNode(true);
            copy.querySelectorAll("button").forEach(button => button.remove());
            return copy.innerHTML;
        }})()"""
        )

    def test_markdown_becomes_elements(self):
        for text, html in [
            ("One *two* **three** ~~four~~\nfive",
             "<p>One <em>two</em> <strong>three</strong> <del>four</del><br>five</p>"),
            ("## A `b`", "<h2>A <code>b</code></h2>"),
            ("- a\n  - b\n- [x] c", "<ul><li><span>a</span><ul><li><span>b</span></li></ul></li>"
             "<li>\u2611 <span>c</span></li></ul>"),
            ("3. a\n4. b", '<ol start="3"><li><span>a</span></li><li><span>b</span></li></ol>'),
            ("```python\nif a < b:\n    pass\n```", "<pre><code>if a &lt; b:\n    pass</code></pre>"),
            ("| a | b |\n|---|---|\n| 1 | `2` |", "<table><tr><th>a</th><th>b</th></tr>"
             "<tr><td>1</td><td><code>2</code></td></tr></table>"),
            ("> a\n\n---", "<blockquote><p>a</p></blockquote><hr>"),
            ("[a](https://example.org/b)",
             '<p><a href="https://example.org/b" target="_blank" rel="noopener noreferrer">a</a></p>'),
            ("a &lt; b &amp; \\*c* `&lt;`", "<p>a &lt; b &amp; *c* <code>&amp;lt;</code></p>"),
        ]:
            with self.subTest(text=text):
                self.assertEqual(self.show_markdown(text), html)

    def test_a_text_of_the_model_is_never_markup(self):
        for text in [
            "<img src=x onerror=window.owned=1>",
            "a <b onclick=window.owned=1>b</b> <script>window.owned=1</script>",
            "<div><img src=x onerror=window.owned=1></div>\n\n<svg onload=window.owned=1>",
            "[a](javascript:window.owned=1) [b](data:text/html,x) ![c](https://example.org/c.png)",
            "<javascript:window.owned=1> &lt;img src=x&gt; `<img src=x>`",
            "|<img src=x>|b|\n|---|---|\n|<svg onload=window.owned=1>|2|",
            "<pre>a <img src=x onerror=window.owned=1></pre>",
        ]:
            with self.subTest(text=text):
                self.show_markdown(text)
                names = self.page.evaluate("[...shown.querySelectorAll('*')].map(element => element.localName)")
                self.assertLessEqual(set(names), {"p", "pre", "code", "button", "table", "tr", "th", "td", "span"})
        self.assertIsNone(self.page.evaluate("window.owned ?? null"))

    def test_blocks_that_stay_keep_their_elements_while_an_answer_grows(self):
        self.show_markdown("one\n\ntwo")
        self.page.evaluate("window.first = shown.firstChild")
        for text in "one\n\ntwo *th", "one\n\ntwo *three*\n\n```\nfour":
            self.show_markdown(text)
            self.assertTrue(self.page.evaluate("first === shown.firstChild"))
        self.assertEqual(self.show_markdown("two"), "<p>two</p>")
        deep = ">" * 20000
        self.show_markdown(deep)
        self.assertEqual(self.page.evaluate("shown.textContent.length > 0"), True)

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
