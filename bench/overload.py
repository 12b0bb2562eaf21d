#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much goodput is left when more requests come than a deployment can serve?

Starts a manager with its default flags and a worker with one thread. First the rate is raised until the goodput falls;
the highest goodput is the peak. Then requests come at multiples of the peak. The arrivals are a Poisson process that
does not wait for answers, and a caller gives up after --timeout. A request is good if its first token comes within 1 s
and no gap between two tokens is longer than 200 ms.

    bench/overload.py                          # about four minutes
    bench/overload.py --peak 40 --factors 2    # at a known peak, in requests per second
    bench/overload.py --manager-flag=--max-waiting-requests=100
"""

import argparse
import contextlib
import json
import pathlib
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


class Deployment:
    def __init__(self, binaries, folder, manager_flags):
        worker = folder / "worker.sock"
        self.quirectl = binaries / "quirectl"
        self.worker = Server(folder, "worker", [binaries / "quire-worker", f"--model={ROOT / 'models/tales'}",
                                                f"--listen=unix:{worker}", "--metrics-listen=", "--threads=1"])
        self.manager = Server(folder, "manager", [binaries / "quire-manager", f"--workers=unix:{worker}",
                                                  "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
                                                  *manager_flags])

    def wait_until_ready(self):
        self.endpoint = self.manager.wait_for(r"listening on (\S+)")
        self.metrics = self.manager.wait_for(r"metrics on port (\d+)")
        self.manager.wait_for(r"worker (\S+) joined")

    def end(self):
        self.manager.end()
        self.worker.end()

    def refusals(self):
        """Returns the number of refused requests so far, by reason."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as page:
            text = page.read().decode()
        found = re.findall(r'quire_request_rejections_total{reason="(\w+)"} (\d+)', text)
        return {reason: int(count) for reason, count in found}

    def run(self, options, rate, seed):
        """Sends requests at this rate and returns what their callers saw."""
        before = self.refusals()
        command = [self.quirectl, "-o", "json", "-e", self.endpoint, "bench", f"--rate={rate:.2f}",
                   f"--requests={max(int(rate * options.seconds), 1)}", f"--input-tokens={options.input_tokens}",
                   f"--output-tokens={options.output_tokens}", f"--timeout={options.timeout}",
                   f"--slo={SERVICE_LEVEL}", "--no-prefix-cache", "--max-in-flight=16384", f"--seed={seed}"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        try:
            report = json.loads(done.stdout)
        except json.JSONDecodeError as error:
            raise RuntimeError(done.stderr) from error
        report["rate"] = rate
        report["goodput"] = report["request_goodput"] * report["duration"] / options.seconds
        report["refused"] = {reason: count - before.get(reason, 0) for reason, count in self.refusals().items()
                             if count > before.get(reason, 0)}
        report["memory_mib"] = self.manager.memory_mib("VmRSS")
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
    parser.add_argument("--input-tokens", default="512")
    parser.add_argument("--output-tokens", default="256")
    parser.add_argument("--timeout", type=float, default=5, help="after this many seconds a caller gives up")
    parser.add_argument("--manager-flag", action="append", default=[], help="a flag for the manager; may be repeated")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        deployment = Deployment(options.binaries, pathlib.Path(folder), options.manager_flag)
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
