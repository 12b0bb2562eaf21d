# SPDX-License-Identifier: Apache-2.0
"""Starts a manager and a worker, and compares what `quirectl generate` prints through a proxy that cuts the connection
repeatedly with what it prints without the proxy. The argument is the folder of our programs."""

import contextlib
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from cutting_proxy import CuttingProxy  # noqa: E402
from programs import start  # noqa: E402

TIMEOUT_S = 120
PROMPT = "Once upon a time"


class ResumeTest(unittest.TestCase):
    def test_a_stream_through_a_connection_that_breaks_is_the_same(self):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            start(
                stack,
                [BIN / "quire-worker", f"--model={ROOT / 'models/tales'}", f"--listen=unix:{folder}/worker"]
                + ["--metrics-listen=", "--kv-bytes=64MiB"],
                "(listening)",
            )
            manager = start(
                stack,
                [BIN / "quire-manager", f"--workers=unix:{folder}/worker", "--listen=127.0.0.1:0", "--metrics-listen="],
                r"listening on (\S+)",
            )
            host, port = manager.rsplit(":", 1)
            proxy = CuttingProxy((host, int(port)), num_bytes=1200)
            stack.callback(proxy.listener.close)
            for options in (
                ["-t", "0", "-n", "150"],
                ["-t", "0.8", "--seed", "7", "-n", "150"],
                ["-t", "0.8", "--seed", "7", "-n", "80", "--samples", "4"],
            ):
                with self.subTest(options=options):
                    whole = self.generate(manager, options)
                    self.assertEqual(self.generate(proxy.endpoint, options), whole)
            # On a busy machine a response has many tokens, so some of the streams may be too short for a cut.
            self.assertGreater(proxy.num_cuts, 1, "the connections were not cut")

    def generate(self, endpoint, options):
        for _ in range(TIMEOUT_S):
            health = [BIN / "quirectl", "--endpoint", endpoint, "health", "readiness"]
            if subprocess.run(health, capture_output=True, check=False).returncode == 0:
                break
        done = subprocess.run(
            [BIN / "quirectl", "--endpoint", endpoint, "generate", PROMPT, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
