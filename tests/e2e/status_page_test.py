# SPDX-License-Identifier: Apache-2.0
"""Starts a manager and a worker, sends load and opens the status page in a headless Chromium. Compares the page's text,
and the map cell by cell, with quirectl and the metrics. The argument is the folder of our programs."""

import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools/screenshots")]
import chromium  # pylint: disable=wrong-import-position
from programs import Program, start  # pylint: disable=wrong-import-position

SKIPPED = 77
TIMEOUT_S = 60
NUM_BLOCKS = 200
STORY = "Once upon a time there was a little fox with a red hat. " * 3
# A name that would run a script if the page treated it as markup.
NAME = "<script>window.owned=1</script><b>bold</b>"
STATES = ["free", "cached", "used", "shared", "pinned"]


def colors(page):
    """Returns {(red, green, blue): state} from the current style sheet."""
    found = {}
    for state in STATES:
        text = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{state}').trim()")
        found[tuple(bytes.fromhex(text[1:]))] = state
    return found


def told(page):
    """Returns {state: blocks} from the legend."""
    script = ("Object.fromEntries([...document.querySelectorAll('[data-state]')]"
              ".map(b => [b.dataset.state, b.textContent]))")
    return {state: int(text.replace(",", "")) for state, text in page.evaluate(script).items()}


def drawn(page):
    """Returns {state: cells} from the map. Colours are read at the corners of cells, where no mark covers them."""
    box = page.evaluate("(() => { const c = document.querySelector('canvas[data-of=map]'); const r = "
                        "c.getBoundingClientRect(); return {x: r.left + scrollX, y: r.top + scrollY, width: r.width, "
                        "height: r.height, size: +c.dataset.size, columns: +c.dataset.columns}; })()")
    picture = chromium.Picture(page.screenshot({key: box[key] for key in ["x", "y", "width", "height"]}))
    names = colors(page)
    cells = collections.Counter()
    for i in range(NUM_BLOCKS):
        x = i % box["columns"] * box["size"] + 2
        y = i // box["columns"] * box["size"] + 2
        cells[names.get(picture.at(x, y), "none of them")] += 1
    return {state: cells[state] for state in [*STATES, *cells]}


class StatusPageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        folder = cls.stack.enter_context(tempfile.TemporaryDirectory())
        cls.worker = f"unix:{folder}/worker"
        start(cls.stack, [PROGRAMS / "quire-worker", f"--model={ROOT}/models/tales", f"--listen={cls.worker}",
                          "--metrics-listen=127.0.0.1:0", "--threads=1", f"--num-blocks={NUM_BLOCKS}"],
              r"metrics on port (\d+)")
        port = start(cls.stack, [PROGRAMS / "quire-manager", f"--workers={cls.worker}",
                                 f"--listen=unix:{folder}/manager", "--metrics-listen=127.0.0.1:0",
                                 "--status-page=names"],
                     r"metrics on port (\d+)")
        cls.url = f"http://127.0.0.1:{port}/"
        cls.quirectl = [PROGRAMS / "quirectl", "--endpoint", f"unix:{folder}/manager"]
        cls.page = cls.stack.enter_context(chromium.Page())
        cls.page.prefer("light")
        cls.page.open(cls.url)
        cls.page.wait_for("document.querySelector('.worker .badge')?.textContent === 'ready'")

    def setUp(self):
        self.addCleanup(lambda: self.assertEqual(self.page.complaints, []))

    def run_quirectl(self, *arguments):
        return subprocess.run([*self.quirectl, *arguments], check=True, capture_output=True, text=True,
                              timeout=TIMEOUT_S).stdout

    def load(self):
        """Starts load until the test ends: a request of a tenant whose name is markup, and blocks in all states."""
        self.run_quirectl("generate", STORY + "It lived", "-n", "40")
        self.run_quirectl("pin", STORY)
        done = threading.Event()

        def repeat():
            while not done.is_set():
                subprocess.run([*self.quirectl, "generate", "A boat sailed. " + STORY, "-n", "400", "--ignore-eos",
                                "--samples", "3", "-t", "0.9", "--no-prefix-cache", "--tenant", "blue", "--no-resume",
                                "--request-id", NAME], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               check=False, timeout=TIMEOUT_S)

        client = threading.Thread(target=repeat)
        client.start()
        self.addCleanup(client.join)
        self.addCleanup(done.set)

    def blocks(self):
        return json.loads(self.run_quirectl("status", "-o", "json"))["workers"][0]["blocks"]

    def hold_still(self, is_still):
        self.page.evaluate(f"document.getElementById('pause').checked === {str(is_still).lower()} || "
                           "document.getElementById('pause').click()")

    def read(self, path, **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.read().decode()

    def test_under_load_it_shows_the_request_and_draws_every_block(self):
        self.load()
        runs = ("document.querySelector('#requests tbody tr')?.cells[2].textContent === 'running' && "
                "document.querySelector('#requests tbody tr').cells[7].textContent === '3' && "
                "+document.getElementById('generated').textContent.replace(',', '') > 0 && "
                "['used', 'shared'].every(s => document.querySelector(`[data-state=${s}]`).textContent !== '0')")
        self.page.wait_for(runs)
        self.hold_still(True)
        self.addCleanup(self.hold_still, False)
        while not self.page.evaluate(runs):  # The next look came before the page held still.
            self.hold_still(False)
            self.page.wait_for(runs)
            self.hold_still(True)
        row = self.page.evaluate("[...document.querySelector('#requests tbody tr').cells].map(c => c.textContent)")
        self.assertEqual(row[:2], [NAME, "blue"])
        self.assertEqual(self.page.evaluate("document.scripts.length"), 1)
        self.assertIsNone(self.page.evaluate("document.querySelector('#requests b')"))
        self.assertEqual(self.page.evaluate("typeof window.owned"), "undefined")
        says = told(self.page)
        self.assertEqual(sum(says.values()), NUM_BLOCKS)
        self.assertGreater(min(says.values()), 0, says)
        for scheme in ["dark", "light"]:
            self.page.prefer(scheme)
            self.assertEqual(drawn(self.page), says, scheme)
        self.page.resize(360, 740, 2)
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 360)
        self.page.resize(1200, 900)

        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.read("status.json", Host="rebound.example")
        self.assertEqual(refused.exception.code, 403)
        stranger = self.read("status.json", Host="manager.internal")
        self.assertNotIn("owned", stranger)
        self.assertNotIn("blue", stranger)
        self.assertEqual(json.loads(stranger)["workers"][0]["map"]["num_blocks"], NUM_BLOCKS)

    def test_at_rest_it_says_what_quirectl_and_the_metrics_say(self):
        self.run_quirectl("generate", STORY + "She lived", "-n", "40")
        self.run_quirectl("pin", STORY)
        # The step loop answers before it publishes its counts.
        end = time.monotonic() + TIMEOUT_S
        while int((status := self.blocks()).get("pinned", 0)) == 0:
            self.assertLess(time.monotonic(), end, status)
        counts = {key: int(status.get(name, 0)) for key, name in
                  [("free", "free"), ("cached", "evictable"), ("shared", "shared"), ("pinned", "pinned")]}
        counts["used"] = int(status["used"]) - counts["shared"] - counts["pinned"]
        self.assertGreater(counts["cached"], 0)
        self.page.wait_for(f"document.querySelector('[data-state=pinned]').textContent === '{counts['pinned']}' && "
                           f"document.querySelector('[data-state=cached]').textContent === '{counts['cached']}'")
        self.assertEqual(told(self.page), counts)
        self.assertEqual(self.page.evaluate("document.getElementById('running').textContent"), "0")
        totals = json.loads(self.read("status.json"))["totals"]
        sums = re.findall(r"^quire_generated_tokens_total(?:\{.*\})? (\S+)", self.read("metrics"), re.MULTILINE)
        self.assertEqual(totals["generated_tokens"], sum(map(float, sums)))

        x, y = self.page.evaluate("(() => { const r = document.querySelector('canvas[data-of=map]')"
                                  ".getBoundingClientRect(); return [r.left + 4, r.top + 4]; })()")
        self.page.click(x, y)
        text = self.page.wait_for("document.querySelector('output').textContent")
        self.assertRegex(text, r"^Block 0: .* references; .*prefix depth 1, last used \d+ steps ago")

    def test_a_rate_that_is_not_known_yet_is_a_dash(self):
        self.page.wait_for("looks.length > 0")
        self.hold_still(True)
        self.addCleanup(self.hold_still, False)
        self.page.evaluate("drawRates(undefined, looks[looks.length - 1])")
        self.page.evaluate("drawWorkers(undefined, looks[looks.length - 1])")
        for key in ["generated", "prompt"]:
            self.assertEqual(self.page.evaluate(f"document.getElementById('{key}').textContent"), "-", key)
        self.assertIn("- steps/s", self.page.evaluate("document.querySelector('[data-of=facts]').textContent"))

    def test_nothing_can_be_changed(self):
        for method in ["POST", "PUT", "DELETE"]:
            request = urllib.request.Request(self.url + "status.json", method=method)
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=TIMEOUT_S)
            self.assertEqual(refused.exception.code, 405)


class RanksTest(unittest.TestCase):
    """A group of two simulated ranks, of which one is stopped for a while."""

    def setUp(self):
        stack = self.enterContext(contextlib.ExitStack())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        self.address = f"unix:{folder}/worker"
        self.quirectl = [PROGRAMS / "quirectl", "--endpoint", f"unix:{folder}/manager"]
        self.group = Program(stack, [PROGRAMS / "quire-worker", f"--model={ROOT}/models/tales", "--device=simulated",
                                     "--tp=2", f"--listen={self.address}", "--metrics-listen="], "(listening)")
        port = start(stack, [PROGRAMS / "quire-manager", f"--workers={self.address}", f"--listen=unix:{folder}/manager",
                             "--metrics-listen=127.0.0.1:0", "--status-page=names"], r"metrics on port (\d+)")
        self.page = stack.enter_context(chromium.Page())
        self.page.open(f"http://127.0.0.1:{port}/")

    def rank(self, number):
        """Returns the id of the process of a rank."""
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == self.group.process.pid and f"--listen={self.address}.{number}" in words:
                    return int(folder.name)
        raise AssertionError(f"there is no rank {number}")

    def wait_for_line(self, number, pattern):
        """Waits until the line of a rank has this pattern, and the list is seen. Returns it."""
        script = ("(() => { const list = document.querySelector('ul.ranks'); return list !== null && !list.hidden && "
                  f"list.children.length === 2 && /{pattern}/.test(list.children[{number}].textContent) && "
                  f"list.getBoundingClientRect().height > 0 && list.children[{number}].textContent; }})()")
        return self.page.wait_for(script)

    def test_each_rank_has_a_line_with_its_state(self):
        for number, address in enumerate([self.address, f"{self.address}.1"]):
            line = self.wait_for_line(number, "ready")
            self.assertRegex(line, rf"^rank {number} at {re.escape(address)} is ready: .*simulated")
        self.page.resize(360, 740, 2)
        self.assertLessEqual(self.page.evaluate("document.documentElement.scrollWidth"), 360)
        rank = self.rank(1)
        os.kill(rank, signal.SIGSTOP)
        # The other rank misses it in a step.
        with subprocess.Popen([*self.quirectl, "generate", "One day", "-n", "5"], stdout=subprocess.DEVNULL) as request:
            try:
                self.wait_for_line(1, "connecting")
            finally:
                os.kill(rank, signal.SIGCONT)
            self.wait_for_line(1, "ready")
            self.assertEqual(request.wait(TIMEOUT_S), 0)
        self.assertEqual(self.page.complaints, [])


if __name__ == "__main__":
    if chromium.find() is None:
        print(f"skipped: none of {', '.join(chromium.PROGRAMS)} is installed")
        sys.exit(SKIPPED)
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
