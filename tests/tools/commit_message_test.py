# SPDX-License-Identifier: Apache-2.0
"""tools/hooks/commit-msg refuses commits with messages that break the rules, in a small repository."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUBJECT = "Name the value and the limit in errors"
BODY = "A client cannot act on an error that only says that there is one."


class CommitMessageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.repository = pathlib.Path(folder.name)
        self.git("init", "-q")
        self.git("config", "core.hooksPath", str(ROOT / "tools/hooks"))

    def git(self, *arguments, **options):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@localhost", *arguments],
                              cwd=self.repository, capture_output=True, text=True, check=False, **options)

    def commit(self, message, num_lines=1):
        """Returns why a commit that adds lines was refused, or "" if it was not."""
        with open(self.repository / "file", "a", encoding="utf-8") as file:
            file.write("line\n" * num_lines)
        self.git("add", "-A")
        run = self.git("commit", "-F", "-", "--cleanup=strip", input=message)
        return "" if run.returncode == 0 else run.stderr

    def test_a_subject_has_at_most_72_columns(self):
        self.assertEqual(self.commit("S" * 72), "")
        self.assertEqual(self.commit("ü" * 72), "")
        self.assertIn("73 columns, 72 are allowed", self.commit("S" * 73))

    def test_the_line_after_the_subject_is_blank(self):
        self.assertEqual(self.commit(f"{SUBJECT}\n\n{BODY}"), "")
        self.assertIn("must be blank", self.commit(f"{SUBJECT}\n{BODY}"))

    def test_more_than_20_lines_need_a_body(self):
        self.assertEqual(self.commit(SUBJECT, num_lines=20), "")
        self.assertIn("21 lines have changed", self.commit(SUBJECT, num_lines=21))
        self.assertIn("lines have changed", self.commit(f"{SUBJECT}\n\n# A comment is no body.\n", num_lines=21))
        self.assertEqual(self.commit(f"{SUBJECT}\n\n{BODY}\n", num_lines=21), "")

    def test_what_git_shows_below_the_message_is_no_body(self):
        scissors = "# ------------------------ >8 ------------------------"
        shown = f"{SUBJECT}\n{scissors}\n# Do not change this.\n\ndiff --git\n"
        self.assertIn("lines have changed", self.commit(shown, num_lines=21))

    def test_messages_of_git_itself_are_not_refused(self):
        self.assertEqual(self.commit("Merge branch 'work' of " + "a" * 72, num_lines=30), "")
        self.assertEqual(self.commit("fixup! " + "S" * 72, num_lines=30), "")


if __name__ == "__main__":
    unittest.main()
