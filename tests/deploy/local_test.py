# SPDX-License-Identifier: Apache-2.0
"""Starts Quire on this machine, generates text, reads the metrics and stops it."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 60


def read(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def processes_with(path):
    """Returns the command lines that contain `path`."""
    found = []
    for command in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = command.read_bytes().decode(errors="replace")
        except OSError:  # The process has just ended.
            continue
        if str(path) in line:
            found.append(line)
    return found


class LocalTest(unittest.TestCase):
    def setUp(self):
        environment = os.environ | {"QUIRE_BIN": str(BINARIES), "QUIRE_ANY_PORTS": "1"}
        # The script gets its own process group, as in a terminal.
        self.up = subprocess.Popen([SOURCE / "deploy/local/up"], env=environment, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)
        self.addCleanup(self.end)
        self.output = ""
        for line in self.up.stdout:
            self.output += line
            if line.startswith("Ctrl-C"):
                break

    def end(self):
        if self.up.poll() is None:
            self.up.send_signal(signal.SIGTERM)
        self.output += self.up.stdout.read()
        self.up.stdout.close()
        self.up.wait(TIMEOUT_S)

    def said(self, title):
        match = re.search(rf"^  {title} +(.*\S) *$", self.output, re.MULTILINE)
        self.assertIsNotNone(match, self.output)
        return match[1]

    def quirectl(self, *arguments):
        command = [BINARIES / "quirectl", "--endpoint", self.said("gRPC"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout

    def targets_of_prometheus(self):
        """Returns the state of each target, once all are up. On a busy machine, the first look at one may fail."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            targets = json.loads(read(self.said("Prometheus") + "/api/v1/targets"))["data"]["activeTargets"]
            answers = [target["health"] for target in targets]
            if answers == ["up"] * 4 or time.monotonic() > deadline:
                return answers
            time.sleep(0.2)

    def counters(self):
        """Returns the token counts from `quirectl top` and from the manager's metrics."""
        top = json.loads(self.quirectl("-o", "json", "top"))
        metrics = read(self.said("metrics").split()[0])
        return [int(top["prompt_tokens"]), int(top["completion_tokens"]),
                *(int(float(re.search(rf"^{name} (.*)$", metrics, re.MULTILINE)[1]))
                  for name in ("quire_prompt_tokens_total", "quire_generated_tokens_total"))]

    def check_a_load_shows(self):
        before = self.counters()
        load = json.loads(self.quirectl("-o", "json", "bench", "--requests=10", "--rate=50", "--output-tokens=8"))
        self.assertEqual(load["completed"], 10)
        sent = [load["total_input_tokens"], load["total_output_tokens"]]
        deadline = time.monotonic() + TIMEOUT_S
        # The manager publishes the last tokens after the client has them.
        while (grown := [now - then for now, then in zip(self.counters(), before)]) != sent * 2:
            self.assertLess(time.monotonic(), deadline, f"{grown} instead of {sent * 2}")
        self.assertIn("TTFT p50 ", self.quirectl("top"))

    def test_it_comes_up_serves_and_leaves_nothing_behind(self):
        self.assertNotEqual(self.quirectl("generate", "Once upon a time", "-n", "20"), "")
        self.assertEqual(self.quirectl("status").count(" ready "), 2)
        for url in self.said("metrics").split():
            self.assertIn("quire_", read(url))
        if shutil.which("prometheus"):
            self.assertEqual(self.targets_of_prometheus(), ["up"] * 4)
        else:
            print("no prometheus here: not asked")

        self.check_a_load_shows()

        logs = pathlib.Path(self.said("logs"))
        self.assertIn("<html", read(self.said("chat page")))
        # The gateway's command line does not have the folder.
        self.assertEqual(len(processes_with(logs)), 4 if shutil.which("prometheus") else 3)
        os.killpg(self.up.pid, signal.SIGINT)
        self.assertEqual(self.up.wait(TIMEOUT_S), 0)
        self.assertFalse(logs.exists())
        self.assertEqual(processes_with(logs), [])


class FailureTest(unittest.TestCase):
    def test_the_log_of_the_one_that_has_ended_is_shown(self):
        programs = {"quire-worker": "echo metrics on port 1; echo the worker is ill; exit 1",
                    "quire-manager": "echo listening on 127.0.0.1:1; echo metrics on port 2; exec sleep 1000",
                    "quirectl": "exit 3"}
        with tempfile.TemporaryDirectory() as directory:
            for name, script in programs.items():
                path = pathlib.Path(directory, name)
                path.write_text(f"#!/bin/sh\n{script}\n")
                path.chmod(0o755)
            environment = os.environ | {"QUIRE_BIN": directory, "QUIRE_ANY_PORTS": "1"}
            up = subprocess.run([SOURCE / "deploy/local/up"], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=2 * TIMEOUT_S)
        self.assertEqual(up.returncode, 1)
        self.assertIn("the worker is ill", up.stdout)


class CommandLineTest(unittest.TestCase):
    def up(self, *arguments):
        # From its own folder, because the script changes the folder before it reads its own text.
        return subprocess.run(["./up", *arguments], cwd=SOURCE / "deploy/local", capture_output=True, text=True,
                              timeout=TIMEOUT_S)

    def test_help_goes_to_standard_output(self):
        for flag in ("--help", "-h"):
            up = self.up(flag)
            self.assertEqual((up.returncode, up.stderr), (0, ""))
            self.assertIn("deploy/local/up [MODEL]", up.stdout)

    def test_what_it_does_not_know_is_refused(self):
        for arguments, error in ((["--model"], "unknown option --model"),
                                 (["models/tales", "more"], "2 arguments, one is allowed")):
            up = self.up(*arguments)
            self.assertEqual((up.returncode, up.stdout), (2, ""))
            self.assertIn(error, up.stderr)
            self.assertIn("deploy/local/up [MODEL]", up.stderr)


class FreshCloneTest(unittest.TestCase):
    def test_the_build_is_configured_first(self):
        tools = {"dpkg-query": "echo install ok installed", "cmake": "echo cmake >>calls; mkdir -p build/release",
                 "ninja": "echo ninja >>calls; exit 1"}
        with tempfile.TemporaryDirectory() as directory:
            clone = pathlib.Path(directory)
            for name in ("deploy/local/up", "tools/build.sh"):
                (clone / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(SOURCE / name, clone / name)
            for name, script in tools.items():
                (clone / name).write_text(f"#!/bin/sh\n{script}\n")
                (clone / name).chmod(0o755)
            environment = {key: value for key, value in os.environ.items() if key != "QUIRE_BIN"}
            environment["PATH"] = f"{clone}:{environment['PATH']}"
            up = subprocess.run([clone / "deploy/local/up"], env=environment, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S)
            calls = (clone / "calls").read_text().split()
        self.assertEqual(calls, ["cmake", "ninja"], up.stdout)
        self.assertIn("The first build takes about 20 minutes on two cores", up.stdout)


if __name__ == "__main__":
    BINARIES = pathlib.Path(sys.argv.pop(1))
    unittest.main()
