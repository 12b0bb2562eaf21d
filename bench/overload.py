#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much goodput is left when more requests come than a deployment can serve?

Starts a manager with its default flags and a worker with one thread, or a simulated one. First the rate is raised until
the goodput falls; the highest goodput is the peak. Then requests come at multiples of the peak. The arrivals are a
Poisson process that does not wait for answers, and a caller gives up after --timeout. A request is good if its first
token comes within 1 s, no gap between two tokens is longer than 200 ms, and the caller gets the whole answer.

    bench/overload.py                          # by gRPC, about four minutes
    bench/overload.py --http                   # the same through quire-openai, with the header X-Request-Timeout
    bench/overload.py --http --silent          # the callers leave as well, but do not say when
    bench/overload.py --simulated              # a worker of which the processor is no limit, and short requests
    bench/overload.py --peak 40 --factors 2    # at a known peak, in requests per second
    bench/overload.py --manager-flag=--max-waiting-requests=100
"""

import argparse
import asyncio
import collections
import contextlib
import json
import pathlib
import random
import re
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
START_SECONDS = 60
SERVICE_LEVEL = "ttft:1s,itl:200ms"
# The rate is past the peak when less than this share of the requests is good.
GOOD_SHARE = 0.9
# The same service level, in seconds, for callers of HTTP.
MAX_TTFT, MAX_GAP = 1, 0.2
# The worker of --simulated runs 32 requests together, and a step takes 20 ms and a little more.
SIMULATED_STEPS = "step: 20ms\nprefill_token: 20us\ndecode_row: 100us\ncontext_token: 0us\n"
SIMULATED_ROWS = 32
VOCABULARY = 1000  # Prompts have tokens below this and above the special ones.


class Server:
    """A process whose output is read until it says where it listens."""

    def __init__(self, folder, name, command):
        self.log = folder / f"{name}.log"
        self.process = subprocess.Popen([str(part) for part in command], stdout=self.log.open("w"),
                                        stderr=subprocess.STDOUT)

    def wait_for(self, pattern):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(pattern, self.log.read_text()):
                return found[1]
            time.sleep(0.05)
        raise RuntimeError(f"no \"{pattern}\" in the log:\n{self.log.read_text()}")

    def end(self):
        self.process.terminate()
        self.process.wait()

    def memory_mib(self, field):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+)", status)[1]) / 1024


class HttpCallers:
    """Callers of quire-openai that come at random times, and leave after a while."""

    def __init__(self, port, options, seed):
        self.port, self.options, self.random = port, options, random.Random(seed)
        self.requests = []

    def message(self):
        """Returns a request of HTTP. They are made before the load, because that takes time."""
        prompt = [self.random.randrange(5, VOCABULARY) for _ in range(int(self.options.input_tokens))]
        body = json.dumps({"prompt": prompt, "max_tokens": int(self.options.output_tokens), "ignore_eos": True,
                           "stream": True, "return_token_ids": True}).encode()
        deadline = "" if self.options.silent else f"X-Request-Timeout: {self.options.timeout}\r\n"
        return (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{deadline}"
                f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body

    async def call(self, message):
        request = {"ttft": None, "gaps": [], "is_whole": False, "failure": None}
        self.requests.append(request)
        writer = None
        try:
            async with asyncio.timeout(self.options.timeout):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(message)
                await self.read(reader, request)
        except TimeoutError:
            request["failure"] = "left"
        except OSError as error:
            request["failure"] = type(error).__name__
        if writer is not None:
            writer.close()

    @staticmethod
    async def read(reader, request):
        begin = last = time.monotonic()
        data = await reader.read(65536)
        if not data.startswith(b"HTTP/1.1 200"):
            request["failure"] = data[9:12].decode() or "closed"
            return
        while data:
            if b"data: " in data:
                now = time.monotonic()
                if request["ttft"] is None:
                    request["ttft"] = now - begin
                else:
                    request["gaps"].append(now - last)
                last = now
            if b"data: [DONE]" in data:
                request["is_whole"] = True
                return
            if b'data: {"error"' in data:
                request["failure"] = "error event"
                return
            data = await reader.read(65536)
        request["failure"] = "cut"

    async def come(self, rate, num_requests):
        messages = [self.message() for _ in range(num_requests)]
        calls = []
        next_arrival = time.monotonic()
        for message in messages:
            await asyncio.sleep(max(0, next_arrival - time.monotonic()))
            calls.append(asyncio.create_task(self.call(message)))
            next_arrival += self.random.expovariate(rate)
        await asyncio.gather(*calls)

    def report(self):
        good = [r for r in self.requests
                if r["is_whole"] and r["ttft"] <= MAX_TTFT and max(r["gaps"], default=0) <= MAX_GAP]
        ttfts = [r["ttft"] for r in self.requests if r["ttft"] is not None]
        gaps = [gap for r in self.requests for gap in r["gaps"]]
        failures = collections.Counter(r["failure"] for r in self.requests if r["failure"] not in (None, "429"))
        return {"num_good": len(good), "good_request_share": len(good) / len(self.requests),
                "failed_by_code": dict(failures), "p99_ttft_ms": p99_ms(ttfts), "p99_itl_ms": p99_ms(gaps)}


def p99_ms(seconds):
    return 1000 * sorted(seconds)[int(0.99 * (len(seconds) - 1))] if seconds else None


class Deployment:
    def __init__(self, options, folder):
        binaries, worker = options.binaries, folder / "worker.sock"
        self.quirectl = binaries / "quirectl"
        device = ["--threads=1"]
        if options.simulated:
            steps = folder / "steps.yaml"
            steps.write_text(SIMULATED_STEPS)
            device = ["--device=simulated", f"--simulated-step-times={steps}", f"--max-sequences={SIMULATED_ROWS}"]
        self.worker = Server(folder, "worker", [binaries / "quire-worker", f"--model={ROOT / 'models/tales'}",
                                                f"--listen=unix:{worker}", "--metrics-listen=", *device])
        self.manager = Server(folder, "manager", [binaries / "quire-manager", f"--workers=unix:{worker}",
                                                  "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                                                  *options.manager_flag])
        self.servers = [self.manager, self.worker]
        self.port = None
        if options.http:
            manager = self.manager.wait_for(r"listening on (\S+)")
            gateway = Server(folder, "gateway", [binaries / "quire-openai", "--listen=127.0.0.1:0",
                                                 f"--manager={manager}",
                                                 "--max-connections=16384", *options.gateway_flag])
            self.servers.insert(0, gateway)
            self.port = int(gateway.wait_for(r"listening on \S+:(\d+)"))

    def wait_until_ready(self):
        self.endpoint = self.manager.wait_for(r"listening on (\S+)")
        self.metrics = self.manager.wait_for(r"metrics on port (\d+)")
        self.manager.wait_for(r"worker (\S+) joined")

    def end(self):
        for server in self.servers:
            server.end()

    def refusals(self):
        """Returns the number of refused requests so far, by reason."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as page:
            text = page.read().decode()
        found = re.findall(r'quire_request_rejections_total{reason="(\w+)"} (\d+)', text)
        return {reason: int(count) for reason, count in found}

    def run(self, options, rate, seed):
        """Sends requests at this rate and returns what their callers saw."""
        before = self.refusals()
        num_requests = max(int(rate * options.seconds), 1)
        report = self.run_http(options, rate, num_requests, seed) if options.http else \
            self.run_grpc(options, rate, num_requests, seed)
        report["rate"] = rate
        report["goodput"] = report["num_good"] / options.seconds
        report["refused"] = {reason: count - before.get(reason, 0) for reason, count in self.refusals().items()
                             if count > before.get(reason, 0)}
        report["memory_mib"] = self.manager.memory_mib("VmRSS")
        return report

    def run_http(self, options, rate, num_requests, seed):
        callers = HttpCallers(self.port, options, seed)
        asyncio.run(callers.come(rate, num_requests))
        return callers.report()

    def run_grpc(self, options, rate, num_requests, seed):
        command = [self.quirectl, "-o", "json", "-e", self.endpoint, "bench", f"--rate={rate:.2f}",
                   f"--requests={num_requests}", f"--input-tokens={options.input_tokens}",
                   f"--output-tokens={options.output_tokens}", f"--timeout={options.timeout}",
                   f"--slo={SERVICE_LEVEL}", "--no-prefix-cache", "--max-in-flight=16384", f"--seed={seed}"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        try:
            report = json.loads(done.stdout)
        except json.JSONDecodeError as error:
            raise RuntimeError(done.stderr) from error
        report["num_good"] = report["request_goodput"] * report["duration"]
        return report


def find_peak(deployment, options):
    """Returns the run with the highest goodput. The rate grows by half, and then by a tenth from the best one."""
    best, rate, seed = None, options.first_rate, 1
    for factor in (1.5, 1.1):
        while True:
            report = deployment.run(options, rate, seed)
            print(f"  {rate:7.1f}/s offered, {report['goodput']:7.1f}/s good", flush=True)
            seed += 1
            if best is None or report["goodput"] > best["goodput"]:
                best = report
            if report["good_request_share"] < GOOD_SHARE:
                break
            rate *= factor
        rate = best["rate"] * 1.1
    return best


def milliseconds(value):
    return "-" if value is None else f"{value:.0f}"


def row(name, report, peak):
    refused = ", ".join(f"{count} {reason}" for reason, count in report["refused"].items()) or "0"
    other = ", ".join(f"{count} {code}" for code, count in report["failed_by_code"].items()
                      if code != "resource_exhausted") or "0"
    return (f"| {name} | {report['rate']:.0f} | {report['goodput']:.1f} | {100 * report['goodput'] / peak:.0f} % "
            f"| {refused} | {other} | {milliseconds(report['p99_ttft_ms'])} | {milliseconds(report['p99_itl_ms'])} "
            f"| {report['memory_mib']:.0f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--seconds", type=float, default=20, help="length of one run")
    parser.add_argument("--factors", type=float, nargs="*", default=[2, 10], help="multiples of the peak")
    parser.add_argument("--peak", type=float, help="do not search the peak, which is this rate")
    parser.add_argument("--first-rate", type=float, default=10, help="where the search begins")
    parser.add_argument("--http", action="store_true", help="send the requests through quire-openai")
    parser.add_argument("--silent", action="store_true", help="with --http: callers do not say how long they wait")
    parser.add_argument("--simulated", action="store_true", help="simulate the worker's device")
    parser.add_argument("--input-tokens", help="512 by default, and 60 with --simulated")
    parser.add_argument("--output-tokens", help="256 by default, and 40 with --simulated")
    parser.add_argument("--timeout", type=float, default=5, help="after this many seconds a caller gives up")
    parser.add_argument("--manager-flag", action="append", default=[], help="a flag for the manager; may be repeated")
    parser.add_argument("--gateway-flag", action="append", default=[], help="a flag for quire-openai")
    options = parser.parse_args()
    options.input_tokens = options.input_tokens or ("60" if options.simulated else "512")
    options.output_tokens = options.output_tokens or ("40" if options.simulated else "256")

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        deployment = Deployment(options, pathlib.Path(folder))
        stack.callback(deployment.end)
        deployment.wait_until_ready()
        rows = []
        if options.peak is None:
            best = find_peak(deployment, options)
            peak = best["goodput"]
            rows.append(row("peak", best, peak))
        else:
            peak = options.peak
            deployment.run(options, peak / 2, 1)  # After this the manager knows how long requests take.
        for factor in options.factors:
            rows.append(row(f"{factor:g} x peak", deployment.run(options, factor * peak, 100 + factor), peak))
            print(rows[-1], flush=True)
            time.sleep(options.timeout)
        print("\n| load | offered (req/s) | goodput (req/s) | of the peak | refused | failed otherwise "
              "| p99 TTFT of the admitted (ms) | p99 ITL (ms) | memory of the manager (MiB) |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
        print("\n".join(rows))


if __name__ == "__main__":
    main()
