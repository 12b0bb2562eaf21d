# SPDX-License-Identifier: Apache-2.0
"""The engines of the comparison. Each runs the work of a row and returns what it measured.

An engine has a name and a width, which says how many bits its weights have. `can_run` tells whether it takes part in a
row. `prepare` loads what the row needs. `resume` comes right before `run` and `pause` right after it, so that no idle
engine computes beside others.
"""

import contextlib
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from http_load import Load
from quiet import group_seconds
from work import Batch, Clients, Pair, Shape

START_SECONDS = 900  # vLLM compiles a model when it loads it for the first time.
RUN_SECONDS = 900
BLOCK_TOKENS = 16
WARM_UP_TOKENS = 2048  # A row with more prompt tokens is long enough to hide what its first run prepares.


def output_of(command, accept_failure=False):
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS)
    if done.returncode != 0 and not accept_failure:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr[-2000:]}")
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


class Engine:
    """What all engines share. The name of an engine is the project and the type of its weights."""
    project, weights = "", ""
    width = "bf16"  # Or "int8" or "int4": engines of one width are compared.

    @property
    def name(self):
        return f"{self.project} {self.weights}"

    def can_run(self, work):
        raise NotImplementedError

    def run(self, work):
        """Returns {figure: value}."""
        raise NotImplementedError

    def version(self):
        raise NotImplementedError

    def prepare(self, work):
        pass

    def resume(self):
        pass

    def pause(self):
        pass

    def close(self):
        pass

    def running_seconds(self):
        """Returns the CPU time of processes that run on after the measurement."""
        return 0.0


class Quire(Engine):
    project = "Quire"

    def __init__(self, binaries, models, threads, width="bf16"):
        self.binaries, self.models, self.threads, self.width = binaries, models, threads, width
        self.weights = width

    def can_run(self, work):
        return True

    def version(self):
        return output_of([self.binaries / "quire-worker", "--version"]).splitlines()[0]

    def run(self, work):
        runs = {Batch: self._worker, Clients: self._serve, Pair: self._pair}
        return runs[type(work)](work)

    def _rounding(self, dash="_"):
        """Returns the flags of the width. The peers round the output matrix, too, so it is done here."""
        return [] if self.width == "bf16" else [f"--quantize={self.width}", f"--quantize{dash}output"]

    def _worker(self, work):
        shape = {"sequences": 1, "beams": work.sequences} if work.beams else {"sequences": work.sequences}
        flags = {"model": self.models / work.model, "threads": self.threads, "prompt": work.prompt,
                 "output": work.output, "shared": 0 if work.beams else work.shared, **shape}
        return json.loads(output_of([self.binaries / "worker_speed", "--json", *self._rounding()] +
                                    [f"--{name}={value}" for name, value in flags.items()]))

    def _serve(self, work, one_stream=False):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder, "requests.csv")
            trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
                f"2024-01-01 00:00:00.0000000,{prompt - work.shared},{output}\n" for prompt, output in work.requests))
            endpoint, worker = f"unix:{folder}/manager", f"unix:{folder}/worker"
            load = [self.binaries / "quirectl", f"--endpoint={endpoint}", "--output=json", "bench"]

            def is_ready():  # The first request is also the warm-up.
                return '"completed":1,' in output_of(load + ["--requests=1", "--input-tokens=64", "--output-tokens=4"],
                                                     accept_failure=True)

            with processes(
                    [self.binaries / "quire-worker", f"--model={self.models / work.model}", f"--listen={worker}",
                     "--metrics-listen=", f"--threads={self.threads}",
                     f"--num-blocks={work.pool_tokens // BLOCK_TOKENS}", "--kv-type=bfloat16", "--prefault",
                     *self._rounding("-")],
                    [self.binaries / "quire-manager", f"--workers={worker}", f"--listen={endpoint}",
                     "--metrics-listen=", "--max-queue-wait=24h"]) as (worker_process, _):
                wait_until(is_ready)
                # The first request brings the common prefix into the prefix cache.
                report = json.loads(output_of(
                    load + [f"--trace={trace}", f"--concurrency={work.clients}",
                            f"--shared-prefix-tokens={work.shared}", f"--warmup={1 if work.shared else 0}",
                            f"--multiplex={str(one_stream).lower()}", "--seed=2"],
                    accept_failure=True))
                report["peak_bytes"] = peak_bytes(worker_process)
        return report

    def _pair(self, work):
        alone = self._worker(Batch(work.model, work.sequences, work.prompt, work.output))
        pool_tokens = work.sequences * (work.prompt + work.output + 2 * BLOCK_TOKENS) * 2
        served = self._serve(Clients(work.model, ((work.prompt, work.output),) * work.sequences * 4, work.sequences,
                                     pool_tokens), work.one_stream)
        shape = Shape(self.models / work.model)
        return {"share": served["output_throughput"] / alone["total_tokens_per_s"],
                "overhead_us": alone["median_overhead_us"],
                "memory_ratio": served["peak_bytes"] / (shape.weight_bytes + pool_tokens * shape.token_bytes)}


class Llama(Engine):
    """llama.cpp. With several sequences, the first run of a row tries both ways to keep their K and V and reports the
    better one; further runs use it again."""
    project = "llama.cpp"
    MODES = {"-no-kvu": "a stream each", "-kvu": "one stream"}
    WIDTHS = {"bf16": "bf16", "q8_0": "int8", "q4_0": "int4"}

    def __init__(self, binaries, models, threads, port, weights="bf16"):
        self.binaries, self.models, self.threads, self.port = binaries, models, threads, port
        self.weights, self.width = weights, self.WIDTHS[weights]
        self.best_mode = {}

    def _model(self, name):
        return self.models / (f"{name}.gguf" if self.weights == "bf16" else f"{name}-{self.weights}.gguf")

    def can_run(self, work):
        return not isinstance(work, Pair) and self._model(work.model).exists()

    def version(self):
        command = [str(self.binaries / "llama-batched-bench"), "--version"]
        text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        return f"llama.cpp {text.splitlines()[0]}"

    def run(self, work):
        key = "total_token_throughput" if isinstance(work, Clients) else "decode_tokens_per_s"
        if work in self.best_mode:
            modes = [self.best_mode[work]]
        else:
            modes = list(self.MODES) if isinstance(work, Clients) or work.sequences > 1 else ["-no-kvu"]
        run = self._serve if isinstance(work, Clients) else self._batch
        reports = {mode: run(work, mode) for mode in modes}
        best = max(reports, key=lambda mode: reports[mode][key])
        self.best_mode[work] = best
        return {**reports[best], "mode": self.MODES[best]}

    def _common(self, work, mode):
        return ["-m", self._model(work.model), "-t", self.threads, "-fa", "on", "-ctk", "bf16", "-ctv", "bf16", mode]

    def _batch(self, work, mode):
        """Runs llama-batched-bench. Its tokens are random, and it samples nothing. It runs the steps of a beam search
        without the search."""
        per_sequence = -(-(work.prompt + work.output) // 256) * 256
        prompt = work.shared or work.prompt
        lines = output_of([self.binaries / "llama-batched-bench", *self._common(work, mode), "-c",
                           work.sequences * per_sequence, "-npp", prompt, "-ntg", work.output, "-npl", work.sequences,
                           "--output-format", "jsonl"] + (["-pps"] if work.shared else []))
        found = re.search(r'\{"n_kv_max".*\}', lines)
        if not found:
            raise RuntimeError(f"llama-batched-bench has no result: {lines[-500:]}")
        report = json.loads(found[0])
        return {"decode_tokens_per_s": report["speed_tg"], "prefill_tokens_per_s": report["speed_pp"],
                "kv_bytes": report["n_kv"] * Shape(self.models / work.model).token_bytes}

    def _serve(self, work, mode):
        """Runs llama-server. With one stream per sequence, each has an equal part of the pool."""
        vocab_size = Shape(self.models / work.model).vocab_size

        def is_ready():
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").status == 200
            except (urllib.error.URLError, ConnectionError):
                return False

        with processes([self.binaries / "llama-server", *self._common(work, mode), "-c", work.pool_tokens, "-np",
                        work.clients, "--host", "127.0.0.1", "--port", self.port, "--no-webui"]) as (server,):
            wait_until(is_ready)
            Load(self.port, [(64, 4)], 1, vocab_size, seed=1).run()
            if work.shared:  # Brings the common prefix into the cache of a slot.
                Load(self.port, work.requests[:1], 1, vocab_size, work.shared, cache_prompt=True, seed=2).run()
            report = Load(self.port, work.requests, work.clients, vocab_size, work.shared,
                          cache_prompt=work.shared > 0, seed=2).run()
            report["peak_bytes"] = peak_bytes(server)
        return report


class Resident(Engine):
    """An engine in a Python of its own (resident.py), which keeps its model loaded while others are measured. It is
    stopped meanwhile, because some engines poll when they are idle."""

    kind = ""  # The first argument of resident.py.

    def __init__(self, python, models, threads, log, width="bf16"):
        self.python, self.models, self.threads, self.log = python, models, threads, log
        self.width = self.weights = width
        self.process, self.model, self.told_version, self.seed, self.warm = None, None, None, 0, set()

    def environment(self):
        return {}

    def folder(self, model):
        raise NotImplementedError

    def can_run(self, work):
        if isinstance(work, Pair) or isinstance(work, Batch) and work.beams:
            return False
        if isinstance(work, Clients) and work.fills_pool:  # The memory of these engines does not depend on the row.
            return False
        return self.folder(work.model).exists()

    def version(self):
        return self.told_version

    def prepare(self, work):
        if self.model != work.model:
            self.close()
            self._start(work.model)
        if work not in self.warm and isinstance(work, Batch) and work.sequences * work.prompt <= WARM_UP_TOKENS:
            self.resume()
            load = self._load_of(work)
            self._call({**load, "lengths": [(prompt, min(output, 3)) for prompt, output in load["lengths"]]})
        self.warm.add(work)
        self.pause()

    def resume(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def pause(self):
        if self.process:
            os.killpg(self.process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def close(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            with contextlib.suppress(BrokenPipeError):  # When an order was not taken any more.
                self.process.stdin.close()
            self.process.stdout.close()
        self.process, self.model, self.warm = None, None, set()

    def running_seconds(self):
        return group_seconds(self.process.pid)

    def run(self, work):
        return self._call(self._load_of(work))

    def _load_of(self, work):
        self.seed += 1  # New prompts each time, so that the prefix cache has none of them.
        lengths = work.requests if isinstance(work, Clients) else ((work.prompt, work.output),) * work.sequences
        clients = work.clients if isinstance(work, Clients) else work.sequences
        return {"lengths": lengths, "clients": clients, "shared": work.shared, "seed": self.seed}

    def _start(self, model):
        command = [self.python, pathlib.Path(__file__).with_name("resident.py"), self.kind, self.folder(model),
                   f"--threads={self.threads}", f"--vocab={Shape(self.models / model).vocab_size}"]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **self.environment()}, start_new_session=True)
        self.model = model
        self.told_version = self._answer(START_SECONDS)["version"]

    def _call(self, load):
        with contextlib.suppress(BrokenPipeError):  # Then there is no answer.
            self.process.stdin.write(json.dumps(load) + "\n")
            self.process.stdin.flush()
        return self._answer(RUN_SECONDS)

    def _answer(self, limit_s):
        if not select.select([self.process.stdout], [], [], limit_s)[0]:  # No line is buffered.
            raise TimeoutError(f"{self.name} has not answered within {limit_s} s")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended; its log is {self.log}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.name}: {answer['error']}")
        return answer


class OpenVino(Resident):
    project, kind = "OpenVINO", "openvino"

    def folder(self, model):
        return self.models / f"{model}-openvino-{self.width}"

    def environment(self):
        return {"HF_HUB_OFFLINE": "1"}


class Vllm(Resident):
    project, kind = "vLLM", "vllm"
    TCMALLOC = pathlib.Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4")

    def folder(self, model):
        return self.models / (model if self.width == "bf16" else f"{model}-compressed-{self.width}")

    def environment(self):
        """Returns what vLLM's manual recommends for CPUs: its OpenMP and tcmalloc, and a core for each thread."""
        openmp = pathlib.Path(self.python).parent.parent / "lib/libiomp5.so"
        for library in (self.TCMALLOC, openmp):
            if not library.exists():
                raise RuntimeError(f"{library} is missing; bench/compare/README.md says how to install it")
        patterns = {f"KMP_{kind}_BARRIER_PATTERN": "dist,dist" for kind in ("FORKJOIN", "PLAIN", "REDUCTION")}
        cores = range(self.threads)
        return {"LD_PRELOAD": f"{self.TCMALLOC}:{openmp}", "OMP_NUM_THREADS": str(self.threads),
                "KMP_AFFINITY": f"granularity=fine,explicit,proclist=[{','.join(map(str, cores))}]",
                "KMP_BLOCKTIME": "1", "KMP_TPAUSE": "0", **patterns, "VLLM_TARGET_DEVICE": "cpu",
                "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": f"0-{self.threads - 1}",
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
