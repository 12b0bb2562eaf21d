#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/status_page.png and docs/quirectl_top.png. Starts a manager and two workers with the bundled model, sends
load, and takes pictures of a headless Chromium and of a terminal. The argument is the folder of our programs (by
default build/release/bin)."""

import contextlib
import fcntl
import html
import os
import pathlib
import pty
import random
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

import chromium

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from programs import start  # noqa: E402

MAX_BYTES = 150_000
NUM_CLIENTS = 14
LOAD_SECONDS = 12  # Seconds of load before the pictures are taken, so that the rates are stable.
COLUMNS, ROWS = 110, 18
STORIES = [f"{beginning} who lived near the river and liked to sing. " * 3 for beginning in
           ["Once upon a time there was a little fox", "Lily had a small brown dog", "Far away there was an old bear",
            "One day Tom met a bird"]]
SGR_COLORS = {"31": "#d9534f", "32": "#4fbf67", "33": "#e0a93b", "34": "#5b9bd5", "35": "#c678c4", "36": "#4db6c4",
              "2": "#7d8590"}


def client(number, quirectl, folder, done):
    """Sends requests of three tenants, one after the other: long and short ones, some with samples."""
    chance = random.Random(number)
    count = 0
    while not done.is_set():
        count += 1
        kind = ["--samples", "3", "-t", "0.9"] if number % 3 == 0 else ["-t", "0.8"]
        prompt = f"{STORIES[number % len(STORIES)]}On day {chance.randrange(9)}"
        subprocess.run([*quirectl, "generate", prompt, *kind, "--ignore-eos", "-n", str(chance.randrange(150, 400)),
                        "--tenant", ["blue", "green", "red"][number % 3], "--request-id", f"story-{number}-{count}"],
                       cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def last_frame(command, folder):
    """Returns what a terminal of COLUMNS x ROWS shows at the end of the program, with colour sequences."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command, cwd=folder, stdin=inside, stdout=inside, stderr=inside, env=environment)
    os.close(inside)
    data = b""
    with contextlib.suppress(OSError):  # The program has closed the terminal.
        while part := os.read(terminal, 1 << 16):
            data += part
    process.wait()
    os.close(terminal)
    frames = re.split(r"\x1b\[(?:\d*;?\d*H|2J)", data.decode().replace("\r", ""))
    return re.sub(r"\x1b\[[0-9;?]*[A-Zhl]", "", next(frame for frame in reversed(frames) if frame.count("\n") > 3))


def as_html(text):
    """Returns an HTML page that shows text with colour sequences as a terminal would."""
    spans = ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", text.rstrip()):
        if part.startswith("\x1b["):
            color = SGR_COLORS.get(part[2:-1])
            spans += f'</span><span style="color:{color or "inherit"}">'
        else:
            spans += html.escape(part)
    return (f'<body style="margin:0;background:#14181f;color:#d7dce3"><pre style="margin:0;padding:12px;'
            f'font:14px/1.35 \'DejaVu Sans Mono\',monospace"><span>{spans}</span></pre></body>')


def keep(name, png):
    packed = chromium.Picture(png).packed()
    assert len(packed) <= MAX_BYTES, f"{name} has {len(packed)} bytes, the limit is {MAX_BYTES}"
    (ROOT / "docs" / name).write_bytes(packed)
    print(f"docs/{name}: {len(packed)} bytes")


def main():
    programs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin").resolve()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for i in (1, 2):
            start(stack, [programs / "quire-worker", f"--model={ROOT}/models/tales", f"--listen=unix:worker{i}",
                          "--metrics-listen=127.0.0.1:0", "--threads=1", f"--num-blocks={360 * i}"],
                  r"metrics on (port)", cwd=folder)
        port = start(stack, [programs / "quire-manager", "--workers=unix:worker1,unix:worker2",
                             "--listen=unix:manager", "--metrics-listen=127.0.0.1:0", "--status-page=names"],
                     r"metrics on port (\d+)", cwd=folder)
        quirectl = [programs / "quirectl", "--endpoint", "unix:manager"]
        page = stack.enter_context(chromium.Page(1100, 700))
        page.prefer("light")
        page.open(f"http://127.0.0.1:{port}/")
        page.wait_for("document.querySelectorAll('.worker .good').length === 2")
        done = threading.Event()
        clients = [threading.Thread(target=client, args=(i, quirectl, folder, done)) for i in range(NUM_CLIENTS)]
        for thread in clients:
            thread.start()
        time.sleep(LOAD_SECONDS / 2)
        subprocess.run([*quirectl, "pin", STORIES[0]], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        time.sleep(LOAD_SECONDS / 2)
        top = last_frame([*quirectl, "top", "-n", "4"], folder)
        shot = page.screenshot()
        done.set()
        for thread in clients:
            thread.join()
        keep("status_page.png", shot)
        page.resize(COLUMNS * 9, 10)
        page.open("about:blank")  # A blank page, because the status page's policy allows no styles except its own.
        page.call("Page.setDocumentContent", frameId=page.call("Page.getFrameTree")["frameTree"]["frame"]["id"],
                  html=as_html(top))
        keep("quirectl_top.png", page.screenshot())


if __name__ == "__main__":
    main()
