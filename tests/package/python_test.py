# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of client/python, installs it in a fresh environment, and lets programs that know only the package use
it. The argument is the build folder. It needs no package index: gRPC and protobuf come from the machine. Where they
are missing it is skipped (exit code 77)."""

import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import installed_tree
from installed_tree import PROMPT, ROOT, run

sys.path.insert(0, str(ROOT / "tests/e2e"))
from cutting_proxy import CuttingProxy  # noqa: E402

SKIPPED = 77
NEEDED = ("grpc", "google.protobuf", "setuptools", "wheel", "venv", "ensurepip")
PACKAGES = "python3-grpcio python3-protobuf python3-setuptools python3-wheel python3-venv"
RESUME = """
import sys, quire
for endpoint in sys.argv[1:]:
    with quire.Client(endpoint) as client:
        options = dict(temperature=0.8, seed=7, max_tokens=150)
        print([s.text for s in client.complete("Once upon a time", **options)])
        print([s.text for s in client.complete("Once upon a time", n=4, **options | {"max_tokens": 60})])
"""

EMBED = """
import asyncio, json, sys, quire
async def embed(text):
    async with quire.AsyncClient(sys.argv[1]) as client:
        return await client.embed([text])
with quire.Client(sys.argv[1]) as client:
    ids = list(client.tokenize("Once upon a time").token_ids)
    first, short = client.embed([ids]), client.embed("Once upon a time", dimensions=8)
    try:
        client.embed(["x", [999999]])
    except quire.Error as error:
        assert list(error.fields) == ["inputs[1].token_ids.ids[0]"], error.fields
second = asyncio.run(embed("Once upon a time"))
print(json.dumps([list(e.values) for e in [*first, *second, *short]]))
"""


def find_interpreter():
    """Returns a Python that has what is needed, and what the others lack."""
    lacks = ""
    for python in (sys.executable, "/usr/bin/python3"):
        imports = f"import {', '.join(NEEDED)}"
        done = subprocess.run([python, "-c", imports], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return python, ""
        lacks += f"{python}: {done.stderr.strip().splitlines()[-1]}; "
    return None, lacks


class PythonPackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.folder = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        # The build of a wheel writes into the folder of the sources, so it gets a copy.
        source = cls.folder / "client/python"
        shutil.copytree(ROOT / "client/python", source, ignore=shutil.ignore_patterns("build", "*.egg-info"))
        shutil.copytree(ROOT / "proto", cls.folder / "proto")
        environment = cls.folder / "environment"
        run(PYTHON, "-m", "venv", "--system-site-packages", environment)
        cls.python = environment / "bin/python"
        cls.program = environment / "bin/quire-generate"
        pip = [cls.python, "-m", "pip", "--no-cache-dir", "--disable-pip-version-check"]
        run(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", source, "-w", cls.folder)
        (cls.wheel,) = cls.folder.glob("*.whl")
        run(*pip, "install", "--no-deps", "--no-index", cls.wheel)
        # From here on the sources are gone.
        shutil.rmtree(cls.folder / "client")
        shutil.rmtree(cls.folder / "proto")
        installed_tree.install(BUILD, cls.folder / "quire", "runtime")
        cls.endpoint, cls.story = installed_tree.serve(cls.stack, cls.folder / "quire", cls.folder)

    def run_python(self, *arguments):
        return run(self.python, "-B", *arguments, cwd=self.folder)

    def test_a_program_uses_the_package(self):
        story = pathlib.Path(__file__).resolve().parent / "stranger/story.py"
        found = json.loads(self.run_python(story, self.endpoint, PROMPT))
        sync, asynchronous = found["sync"], found["async"]
        self.assertTrue(sync["is_ready"] and asynchronous["is_ready"])
        self.assertFalse(sync["is_ready_elsewhere"])
        self.assertEqual({sync["greedy"], *asynchronous["greedy"]}, {self.story})
        self.assertEqual({sync["model"], asynchronous["model"]}, {"tales"})
        self.assertEqual(len(set(sync["samples"])), 2)
        self.assertEqual(sync["finish"], 2 * ["FINISH_REASON_LENGTH"])
        self.assertIn(PROMPT, sync["chat"])
        self.assertEqual(sync["text"].strip(), PROMPT)
        self.assertIn(json.loads(sync["json"])["name"], ("Tom", "Lily"))
        self.assertRegex(sync["regex"], r"\A[0-9]{3}\Z")
        self.assertRegex(sync["grammar"], r"\Aa[bc]+d?\Z")
        self.assertTrue({sync["choice"], asynchronous["choice"]} <= {"red", "blue"})
        self.assertEqual(sync["error"], ["INVALID_ARGUMENT", "sampling.top_p"])
        self.assertEqual(sync["workers"], 1)

    def test_a_stream_through_a_connection_that_breaks_is_the_same(self):
        host, port = self.endpoint.rsplit(":", 1)
        proxy = CuttingProxy((host, int(port)), num_bytes=1200)
        self.addCleanup(proxy.listener.close)
        self.assertEqual(self.run_python("-c", RESUME, proxy.endpoint), self.run_python("-c", RESUME, self.endpoint))
        self.assertGreater(proxy.num_cuts, 0, "the connections were not cut")

    def test_the_program_of_the_package_prints_a_text(self):
        arguments = [self.endpoint, "-t", "0", "-n", "40"]
        self.assertEqual(run(self.program, PROMPT, *arguments), self.story + "\n")
        chosen = run(self.program, PROMPT, *arguments, "--choice", "red", "--choice", "blue")
        self.assertIn(chosen, ("red\n", "blue\n"))
        self.assertTrue(run(self.program, PROMPT, *arguments, "--chat").strip())
        nobody = subprocess.run([self.program, PROMPT, "127.0.0.1:1"], capture_output=True, text=True, check=False)
        self.assertEqual(nobody.returncode, 1)
        self.assertRegex(nobody.stderr, "^UNAVAILABLE: failed to connect")

    def test_both_clients_embed_texts(self):
        """The model gives its normalized last states."""
        vectors = json.loads(self.run_python("-c", EMBED, self.endpoint))
        self.assertEqual([len(vector) for vector in vectors], [128, 128, 8])
        self.assertEqual(vectors[0], vectors[1])
        for vector in vectors:
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=5)

    def test_the_unit_tests_pass_with_the_package(self):
        tests = sorted((ROOT / "tests/client/python").glob("*_test.py"))
        self.assertTrue(tests)
        for test in tests:
            self.run_python(test)

    def test_the_wheel_has_the_package_and_nothing_else(self):
        names = {name for name in run(self.python, "-m", "zipfile", "-l", self.wheel).split() if "/" in name}
        folders = {re.sub(r"-[0-9]+\.[0-9]+\.[0-9]+", "-N", name.split("/")[0]) for name in names}
        self.assertEqual(folders, {"quire", "quire_client-N.dist-info"})
        self.assertLessEqual({"quire/py.typed", "quire/v1.pyi", "quire/wire.desc", "quire/guides.py"}, names)
        wanted = {f"quire/{path.name}" for path in (ROOT / "client/python/quire").glob("*.py")}
        self.assertLessEqual(wanted, names)


if __name__ == "__main__":
    PYTHON, lacking = find_interpreter()
    if PYTHON is None:
        print(f"skipped: no Python has {', '.join(NEEDED)} ({lacking}Debian: {PACKAGES})")
        sys.exit(SKIPPED)
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
