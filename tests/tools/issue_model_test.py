# SPDX-License-Identifier: Apache-2.0
"""Runs tools/issue_model on the machine code of the kernels: issue_model_test.py LIBRARY."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = sys.argv.pop()


def run(*arguments):
    return subprocess.run([sys.executable, "-B", SOURCE / "tools/issue_model", *arguments], capture_output=True,
                          text=True, timeout=300)


class IssueModelTest(unittest.TestCase):
    def test_the_kernels_reach_their_targets(self):
        done = run("--check", LIBRARY)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(re.findall(r"^Attention.* instructions per (?:unit|tile)", done.stdout, re.M)), 6)
        self.assertEqual(len(re.findall(r"target .* reached", done.stdout)), 2)

    def test_instructions_beyond_the_bound_are_reported(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "tools").mkdir()
            (root / "tests/kernels/cuda").mkdir(parents=True)
            table = "tests/kernels/cuda/compiled_kernels.txt"
            shutil.copy(SOURCE / table, root / table)
            program = (SOURCE / "tools/issue_model").read_text()
            changed = re.sub(r"(DECODE = Model.*?\{64: \d+, 128: )\d+", r"\g<1>99", program)
            self.assertNotEqual(changed, program)
            (root / "tools/issue_model").write_text(changed)
            done = subprocess.run([sys.executable, "-B", root / "tools/issue_model", "--check", LIBRARY],
                                  capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"AttentionDecode, heads of 128: \d+ instructions, at most 99 are allowed")

    def test_a_file_without_kernels_is_refused(self):
        done = run(__file__)
        self.assertEqual(done.returncode, 1)
        self.assertIn("has 0 kernels AttentionDecode for heads of 64", done.stderr)

    @unittest.skipUnless(shutil.which("cuobjdump"), "there is no cuobjdump")
    def test_the_names_of_instructions_are_those_of_the_disassembler(self):
        listing = subprocess.run(["cuobjdump", "-sass", "-arch", "sm_90", LIBRARY], capture_output=True, text=True,
                                 timeout=300, check=True).stdout
        names = dict(re.findall(r'(0x[0-9a-f]+): "([A-Z0-9]+)', (SOURCE / "tools/issue_model").read_text()))
        found = {}
        line = r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9]+).*/\* 0x(\w{16}) \*/$"
        for name, code in re.findall(line, listing, re.M):
            found.setdefault(int(code, 16) & 0x1ff, set()).add(name)
        for code, name in names.items():
            for actual in found.get(int(code, 16), {name}):
                self.assertEqual(actual, name, code)
        self.assertGreater(len(found), 40)


if __name__ == "__main__":
    unittest.main(verbosity=2)
