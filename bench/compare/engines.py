# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of Quire and of llama.cpp; each function returns what one run measured."""

import contextlib
import json
import pathlib
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from http_load import Load

START_SECONDS = 120
RUN_SECONDS = 900


def output_of(command, accept_failure=False):
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS)
    if done.returncode != 0 and not accept_failure:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return done.stdout


@contextlib.contextmanager
def processes(*commands):
    """Runs the programs until the block ends, and then ends them all."""
    with tempfile.TemporaryFile() as log:
        running = [subprocess.Popen([str(part) for part in command], stdout=log, stderr=log) for command in commands]
        try:
            yield running
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait()


def wait_until(is_ready):
    end = time.monotonic() + START_SECONDS
    while not is_ready():
        if time.monotonic() > end:
            raise TimeoutError("a server is not ready")
        time.sleep(0.1)


def peak_bytes(process):
    """Returns the peak resident memory of the process."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


class Quire:
    def __init__(self, binaries, models, threads):
        self.binaries, self.models, self.threads = binaries, models, threads

    def bandwidth(self):
        """Returns the memory bandwidth in GB/s."""
        return float(output_of([self.binaries / "bandwidth", f"--threads={self.threads}"]))

    def worker(self, model, **flags):
        return json.loads(output_of(
            [self.binaries / "worker_speed", f"--model={self.models / model}", f"--threads={self.threads}", "--json"] +
            [f"--{name}={value}" for name, value in flags.items()]))

    def serve(self, model, requests, clients, num_blocks, shared_tokens=0, multiplex=False):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "requests.csv")
            trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
                f"2024-01-01 00:00:00.0000000,{prompt - shared_tokens},{output}\n" for prompt, output in requests))
            endpoint, worker = f"unix:{folder}/manager", f"unix:{folder}/worker"
            load = [self.binaries / "quirectl", f"--endpoint={endpoint}", "--output=json", "bench"]

            def is_ready():  # The first request is also the warm-up.
                return '"completed":1,' in output_of(load + ["--requests=1", "--input-tokens=64", "--output-tokens=4"],
                                                     accept_failure=True)

            with processes(
                    [self.binaries / "quire-worker", f"--model={self.models / model}", f"--listen={worker}",
                     "--metrics-listen=", f"--threads={self.threads}", f"--num-blocks={num_blocks}",
                     "--kv-type=bfloat16", "--prefault"],
                    [self.binaries / "quire-manager", f"--workers={worker}", f"--listen={endpoint}",
                     "--metrics-listen="]) as (worker_process, _):
                wait_until(is_ready)
                report = json.loads(output_of(
                    load + [f"--trace={trace}", f"--concurrency={clients}", f"--shared-prefix-tokens={shared_tokens}",
                            f"--multiplex={str(multiplex).lower()}", "--seed=2"],
                    accept_failure=True))
                report["peak_bytes"] = peak_bytes(worker_process)
        return report


class Llama:
    def __init__(self, binaries, models, threads, port):
        self.binaries, self.models, self.threads, self.port = binaries, models, threads, port

    def _common(self, model):
        return ["-m", self.models / f"{model}.gguf", "-t", self.threads, "-fa", "on", "-ctk", "bf16", "-ctv", "bf16"]

    def batched(self, model, mode, prompt, output, sequences, shared=False):
        """Runs llama-batched-bench. Its tokens are random, and it samples nothing."""
        per_sequence = -(-(prompt + output) // 256) * 256
        line = output_of([self.binaries / "llama-batched-bench", *self._common(model), mode, "-c",
                          sequences * per_sequence, "-npp", prompt, "-ntg", output, "-npl", sequences,
                          "--output-format", "jsonl"] + (["-pps"] if shared else []))
        report = json.loads(next(line for line in line.splitlines() if line.startswith('{"n_kv_max"')))
        return {"decode_tokens_per_s": report["speed_tg"], "prefill_tokens_per_s": report["speed_pp"],
                "kv_tokens": report["n_kv"]}

    def prefill(self, model, prompt):
        report = json.loads(output_of([self.binaries / "llama-bench", "-m", self.models / f"{model}.gguf", "-t",
                                       self.threads, "-fa", "1", "-ctk", "bf16", "-ctv", "bf16", "-p", prompt, "-n", 0,
                                       "-r", 3, "-o", "json"]))
        return {"prefill_tokens_per_s": report[0]["avg_ts"]}

    def serve(self, model, mode, requests, clients, num_tokens, vocab_size, shared_tokens=0):
        def is_ready():
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").status == 200
            except (urllib.error.URLError, ConnectionError):
                return False

        with processes([self.binaries / "llama-server", *self._common(model), mode, "-c", num_tokens, "-np", clients,
                        "--host", "127.0.0.1", "--port", self.port, "--no-webui"]) as (server,):
            wait_until(is_ready)
            Load(self.port, [(64, 4)], 1, vocab_size, seed=1).run()
            report = Load(self.port, requests, clients, vocab_size, shared_tokens, cache_prompt=shared_tokens > 0,
                          seed=2).run()
            report["peak_bytes"] = peak_bytes(server)
        return report
