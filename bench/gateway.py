#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What does quire-openai cost between a client and the manager?

Starts a simulated worker, a manager and a gateway, and measures two things: the CPU time of the gateway for each
token of --streams chats at once, and how much later than over gRPC a first token comes, at rest and beside these
streams. With --idle it measures instead what idle streams cost the gateway while they wait for a token.

    bench/gateway.py                           # about two minutes
    bench/gateway.py --streams 64
    bench/gateway.py --idle 2000               # about one and a half minutes
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from programs import Program  # noqa: E402

BIN = ROOT / "build/release/bin"
STEP_TIMES = "step: {step_ms}ms\n"
IDLE_TOKENS = 4  # Of each stream that is measured with --idle.


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


async def stream(port, max_tokens, num_tokens, begun=None):
    """Reads a stream of a chat, and counts its events with text in num_tokens[0]. Returns the seconds until the first
    one. `begun` is a semaphore that is released at the first event."""
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "Once upon a time"}],
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    begin = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\nContent-Length: "
        + str(len(body)).encode()
        + b"\r\n\r\n"
        + body
    )
    data = b""
    while b"\r\n\r\n" not in data:
        more = await reader.read(65536)
        assert more, "the gateway has closed a connection"
        data += more
    assert data.startswith(b"HTTP/1.1 200"), data[:400]
    while b'"content"' not in data:
        data += await reader.read(65536)
    seconds = time.monotonic() - begin
    if begun is not None:
        begun.release()
    num_tokens[0] += data.count(b'"content":"')
    while data := await reader.read(65536):
        num_tokens[0] += data.count(b'"content":"')
    writer.close()
    return seconds


def measure_delay(options, manager, port):
    """How much later than over gRPC a first token comes through the gateway: at rest, and beside --streams."""
    for streams in (0, options.streams):
        command = [BIN / "gateway_delay", f"--manager={manager}", f"--gateway_port={port}", f"--streams={streams}"]
        subprocess.run([*command, f"--requests={options.firsts}", f"--rounds={options.rounds}"], check=True)


async def measure(options, port, gateway):
    count = [0]
    await stream(port, 2, count)  # Opens the connection to the manager.

    count[0] = 0
    before_cpu, begin = cpu_seconds(gateway), time.monotonic()
    await asyncio.gather(*(stream(port, options.tokens, count) for _ in range(options.streams)))
    cpu, wall = cpu_seconds(gateway) - before_cpu, time.monotonic() - begin
    print(f"{options.streams} streams of {options.tokens} tokens: {count[0]} events in {wall:.1f} s, "
          f"{1e6 * cpu / (options.streams * options.tokens):.1f} us of CPU per token, {resident_mib(gateway):.0f} MiB")


def open_files(process):
    return len(list(pathlib.Path(f"/proc/{process.pid}/fd").iterdir()))


async def measure_idle(options, port, gateway):
    """Opens --idle streams, and looks at the gateway between two steps, when no stream gets anything."""
    count, begun = [0], asyncio.Semaphore(0)
    before_mib, before_files = resident_mib(gateway), open_files(gateway)
    begin = time.monotonic()
    streams = [asyncio.ensure_future(stream(port, IDLE_TOKENS, count, begun)) for _ in range(options.idle)]
    all_begun = asyncio.gather(*(begun.acquire() for _ in streams))
    await asyncio.wait([all_begun, *streams], return_when=asyncio.FIRST_COMPLETED)
    for task in streams:
        assert not task.done(), task.exception() or "a stream has ended before all have begun"
    print(f"{options.idle} streams have their first token after {time.monotonic() - begin:.1f} s")
    await asyncio.sleep(1)
    before_cpu, seconds = cpu_seconds(gateway), options.idle_step_s / 2
    await asyncio.sleep(seconds)
    cpu = cpu_seconds(gateway) - before_cpu
    print(f"while they wait: {100 * cpu / seconds:.1f} % of a core, "
          f"{1024 * (resident_mib(gateway) - before_mib) / options.idle:.1f} KiB of memory for each stream, "
          f"{open_files(gateway) - before_files} open files more than before")
    await asyncio.gather(*streams)
    print(f"all have ended after {time.monotonic() - begin:.1f} s with {count[0]} events")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=256, help="streams at once (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=200, help="tokens of each stream (default: %(default)s)")
    parser.add_argument("--firsts", type=int, default=50, help="first tokens of a round (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of first tokens (default: %(default)s)")
    parser.add_argument("--idle", type=int, default=0, help="number of idle streams to measure instead")
    parser.add_argument("--idle-step-s", type=int, default=10, help="a step with --idle (default: %(default)s)")
    parser.add_argument("--step-ms", type=int, default=30, help="duration of a step (default: %(default)s)")
    options = parser.parse_args()
    if options.idle > 0:
        options.streams, options.step_ms = options.idle, 1000 * options.idle_step_s
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        pathlib.Path(folder, "steps").write_text(STEP_TIMES.format(step_ms=options.step_ms))
        worker = f"unix:{folder}/worker"
        manager = f"unix:{folder}/manager"
        Program(
            stack,
            [BIN / "quire-worker", "--device=simulated", f"--model={ROOT / 'models/tales'}", f"--listen={worker}"]
            + ["--metrics-listen=", f"--simulated-step-times={folder}/steps", "--num-blocks=200000"]
            + [f"--max-sequences={options.streams + 1}", "--max-tokens-per-step=65536"],
            "(listening)",
        )
        Program(
            stack,
            [BIN / "quire-manager", f"--workers={worker}", f"--listen={manager}", "--metrics-listen="]
            # All streams must fit. Where steps are slower than --max-step-ms, a step takes the prompts of few requests.
            + [f"--max-waiting-requests={options.streams}", "--max-queue-wait=24h", "--max-step-ms=0",
               "--max-tokens-per-step=65536"],
            "(listening)",
        )
        gateway = Program(
            stack,
            [BIN / "quire-openai", f"--manager={manager}", "--listen=127.0.0.1:0", "--max-connections=4096"],
            r"listening on 127\.0\.0\.1:(\d+)",
        )
        for _ in range(600):
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(f"http://127.0.0.1:{gateway.found}/health").status == 200:
                    break
            time.sleep(0.1)
        if options.idle > 0:
            asyncio.run(measure_idle(options, int(gateway.found), gateway.process))
        else:
            asyncio.run(measure(options, int(gateway.found), gateway.process))
            measure_delay(options, manager, int(gateway.found))


if __name__ == "__main__":
    main()
