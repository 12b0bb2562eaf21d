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
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import select
import socket
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

    def processor_seconds(self):
        # Behind the name, which is in parentheses, come the state and, as the 14th and 15th field, the times.
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self, field):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{field}:\s+(\d+)", status)[1]) / 1024


class HttpCall:
    """One request of HTTP, and what its caller has seen so far."""

    def __init__(self, message, port, now):
        self.begin = self.last = now
        self.message = message
        self.is_answered = False
        self.ttft, self.gaps = None, []
        self.is_whole, self.failure = False, None
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", port))

    def send(self):
        """Returns whether the whole request was sent."""
        self.message = self.message[self.socket.send(self.message):]
        return not self.message

    def read(self):
        """Reads what has come, and returns whether more may come."""
        data = self.socket.recv(65536)
        now = time.monotonic()
        if not self.is_answered and not data.startswith(b"HTTP/1.1 200"):
            self.failure = data[9:12].decode() or "closed"
            return False
        self.is_answered = True
        if b"data: " in data:
            if self.ttft is None:
                self.ttft = now - self.begin
            else:
                self.gaps.append(now - self.last)
            self.last = now
        if b"data: [DONE]" in data:
            self.is_whole = True
        elif b'data: {"error"' in data:
            self.failure = "error event"
        elif data:
            return True
        else:
            self.failure = "cut"
        return False

    def is_good(self):
        return self.is_whole and self.ttft <= MAX_TTFT and max(self.gaps, default=0) <= MAX_GAP


class HttpCallers:
    """Callers of quire-openai that come at random times, and leave after a while.

    One loop around epoll serves all of them, because what it takes of the processors is missing to the servers.
    """

    def __init__(self, port, options, num_requests, seed):
        self.port, self.options, self.random = port, options, random.Random(seed)
        self.messages = collections.deque(self.message() for _ in range(num_requests))
        self.calls = []
        self.poll = select.epoll()
        self.open = {}  # By descriptor.
        self.leaving = collections.deque()  # The calls in the order in which their callers leave.

    def message(self):
        """Returns a request of HTTP."""
        prompt = [self.random.randrange(5, VOCABULARY) for _ in range(int(self.options.input_tokens))]
        body = json.dumps({"prompt": prompt, "max_tokens": int(self.options.output_tokens), "ignore_eos": True,
                           "stream": True, "return_token_ids": True}).encode()
        deadline = "" if self.options.silent else f"X-Request-Timeout: {self.options.timeout}\r\n"
        return (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{deadline}"
                f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body

    def begin(self, message):
        call = HttpCall(message, self.port, time.monotonic())
        self.calls.append(call)
        self.leaving.append(call)
        self.open[call.socket.fileno()] = call
        self.poll.register(call.socket, select.EPOLLOUT)

    def end(self, call):
        del self.open[call.socket.fileno()]
        call.socket.close()  # This also ends its registration.

    def serve(self, call, events):
        try:
            if events & select.EPOLLOUT:
                if call.send():
                    self.poll.modify(call.socket, select.EPOLLIN)
            elif not call.read():
                self.end(call)
        except BlockingIOError:
            pass
        except OSError as error:
            call.failure = type(error).__name__
            self.end(call)

    def send_away(self):
        """The callers leave whose time is up. Returns when the next one leaves, or nothing."""
        while self.leaving:
            call = self.leaving[0]
            is_open = call.socket.fileno() >= 0
            if is_open and call.begin + self.options.timeout > time.monotonic():
                return call.begin + self.options.timeout
            self.leaving.popleft()
            if is_open:
                call.failure = "left"
                self.end(call)
        return None

    def come(self, rate):
        next_arrival = time.monotonic()
        while self.messages or self.open:
            while self.messages and next_arrival <= time.monotonic():
                self.begin(self.messages.popleft())
                next_arrival += self.random.expovariate(rate)
            ends = [time_up for time_up in (self.send_away(), next_arrival if self.messages else None) if time_up]
            timeout = max(min(ends, default=time.monotonic()) - time.monotonic(), 0)
            for descriptor, events in self.poll.poll(timeout):
                self.serve(self.open[descriptor], events)

    def report(self):
        num_good = sum(call.is_good() for call in self.calls)
        ttfts = [call.ttft for call in self.calls if call.ttft is not None]
        gaps = [gap for call in self.calls for gap in call.gaps]
        failures = collections.Counter(call.failure for call in self.calls if call.failure not in (None, "429"))
        return {"num_good": num_good, "good_request_share": num_good / len(self.calls),
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

    @contextlib.contextmanager
    def measure_processors(self):
        """Fills a dictionary with the processors that each program has used on average."""
        def seconds():
            own = os.times()
            used = {server.log.stem: server.processor_seconds() for server in self.servers}
            return used | {"script": own.user + own.system + own.children_user + own.children_system}
        processors = {}
        begin, before = time.monotonic(), seconds()
        yield processors
        duration = time.monotonic() - begin
        processors.update({name: (used - before[name]) / duration for name, used in seconds().items()})

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
        callers = HttpCallers(self.port, options, num_requests, seed)  # To make the requests takes time, too.
        with self.measure_processors() as processors:
            callers.come(rate)
        return callers.report() | {"processors": processors}

    def run_grpc(self, options, rate, num_requests, seed):
        command = [self.quirectl, "-o", "json", "-e", self.endpoint, "bench", f"--rate={rate:.2f}",
                   f"--requests={num_requests}", f"--input-tokens={options.input_tokens}",
                   f"--output-tokens={options.output_tokens}", f"--timeout={options.timeout}",
                   f"--slo={SERVICE_LEVEL}", "--no-prefix-cache", "--max-in-flight=16384", f"--seed={seed}"]
        with self.measure_processors() as processors:
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        try:
            report = json.loads(done.stdout)
        except json.JSONDecodeError as error:
            raise RuntimeError(done.stderr) from error
        report["num_good"] = report["request_goodput"] * report["duration"]
        report["processors"] = processors
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
    processors = ", ".join(f"{name} {used:.2f}" for name, used in report["processors"].items())
    return (f"| {name} | {report['rate']:.0f} | {report['goodput']:.1f} | {100 * report['goodput'] / peak:.0f} % "
            f"| {refused} | {other} | {milliseconds(report['p99_ttft_ms'])} | {milliseconds(report['p99_itl_ms'])} "
            f"| {report['memory_mib']:.0f} | {processors} |")


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
            rows.append(row(f"{factor:g} x peak", deployment.run(options, factor * peak, 100 + int(factor)), peak))
            print(rows[-1], flush=True)
            time.sleep(options.timeout)
        print("\n| load | offered (req/s) | goodput (req/s) | of the peak | refused | failed otherwise "
              "| p99 TTFT of the admitted (ms) | p99 ITL (ms) | memory of the manager (MiB) | processors |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
        print("\n".join(rows))


if __name__ == "__main__":
    main()
