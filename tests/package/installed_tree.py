# SPDX-License-Identifier: Apache-2.0
"""Installs the build into a folder and starts the installed programs, for the tests of packages."""

import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from programs import start  # noqa: E402

PROMPT = "Once upon a time"
TIMEOUT_S = 600


def run(*arguments, **options):
    """Runs a program, which must succeed, and returns what it has printed."""
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False, timeout=TIMEOUT_S, **options)
    if done.returncode != 0:
        raise AssertionError(f"{arguments[0]} has exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def install(build, prefix, *components, destination=""):
    """Runs `cmake --install` for the components."""
    for component in components:
        run("cmake", "--install", build, "--component", component, "--prefix", prefix, "--strip",
            env=os.environ | {"DESTDIR": str(destination)})


def serve(stack, prefix, folder):
    """Starts the installed manager and worker with the installed model. Returns the manager's endpoint, when it is
    ready, and what a request for 40 tokens at temperature 0 gives."""
    programs = pathlib.Path(prefix) / "bin"
    start(stack, [programs / "quire-worker", f"--model={prefix}/share/quire/models/tales",
                  f"--listen=unix:{folder}/worker", "--metrics-listen=", "--kv-bytes=64MiB", "--threads=1"],
          "(listening)")
    endpoint = start(stack, [programs / "quire-manager", f"--workers=unix:{folder}/worker", "--listen=127.0.0.1:0",
                             "--metrics-listen="], r"listening on (\S+)")
    quirectl = [programs / "quirectl", "--endpoint", endpoint]
    end = time.monotonic() + TIMEOUT_S
    while subprocess.run([*quirectl, "health", "readiness"], capture_output=True, check=False).returncode != 0:
        if time.monotonic() > end:
            raise AssertionError("the manager is not ready")
        time.sleep(0.1)
    return endpoint, run(*quirectl, "generate", PROMPT, "-t", "0", "-n", "40").rstrip("\n")
