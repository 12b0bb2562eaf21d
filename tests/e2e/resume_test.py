# SPDX-License-Identifier: Apache-2.0
"""Starts a manager and a worker, and compares what `quirectl generate` prints through a proxy that cuts the connection
repeatedly with what it prints without the proxy. The argument is the folder of our programs."""

import contextlib
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from programs import start  # noqa: E402

TIMEOUT_S = 120
PROMPT = "Once upon a time"


class CuttingProxy:
    """Forwards connections, and cuts each one when it has carried enough bytes from the server: `num_bytes` the first
    time, and a tenth more after each cut. A client that resumes may get all tokens that it has not seen in one
    response, so without the increase a fast server would never get a whole response through."""

    def __init__(self, server, num_bytes):
        self.server, self.num_bytes, self.num_cuts = server, num_bytes, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.server)
                threading.Thread(target=self.forward, args=(client, server, None), daemon=True).start()
                limit = self.num_bytes * (1 + self.num_cuts / 10)
                threading.Thread(target=self.forward, args=(server, client, limit), daemon=True).start()

    def forward(self, source, target, limit):
        num_bytes = 0
        with contextlib.suppress(OSError):
            while data := source.recv(300):
                target.sendall(data)
                num_bytes += len(data)
                if limit is not None and num_bytes > limit:
                    self.num_cuts += 1
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        target.close()


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
