# SPDX-License-Identifier: Apache-2.0
"""Tests that the messages of GPUs in docs/operations.md occur in the sources."""

import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("kernels/cuda", "worker", "worker/model")


def literals():
    """Returns the text of all string literals, with neighbouring ones joined."""
    found = []
    for folder in FOLDERS:
        for path in sorted((SOURCE / folder).glob("*.[ch]*")):
            text = re.sub(r'(?<!\\)"\s*\n?\s*"', "", path.read_text())
            found += re.findall(r'"((?:[^"\\\n]|\\.)*)"', text)
    return found


class GpuMessagesTest(unittest.TestCase):

    def setUp(self):
        page = (SOURCE / "docs/operations.md").read_text()
        section = page[page.index("\n## A worker on a GPU\n"):page.index("\n## When an alert fires\n")]
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")][1:]
        self.messages = [message for row in rows for message in re.findall("`([^`]*)`", row)]

    def test_every_message_is_one_of_the_sources(self):
        self.assertGreater(len(self.messages), 15)
        texts = literals()
        for message in self.messages:
            for part in message.removeprefix("GPU: ").split("..."):
                part = part.strip(" :,")
                if re.search("[a-z]{2}", part):
                    self.assertTrue(any(part in text for text in texts), f"no string has '{part}' of '{message}'")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
