# SPDX-License-Identifier: Apache-2.0
"""Runs `quire serve` as a person does: pastes the line that it prints, presses Ctrl-C, and gives it what cannot work.
The argument is the folder of our programs."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/download")]
from local_hub import LocalHub  # noqa: E402
from programs import Program  # noqa: E402

TIMEOUT_S = 120
TALES = ROOT / "models/tales"
READY = r"(Ctrl-C stops it\.)"
SMALL = "--worker.kv-bytes=64MiB"


def wait_for(condition):
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("the time is up")
        time.sleep(0.02)


def files_of(folder):
    """Returns {path in the folder: content} of all files of a model."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        return response.read().decode()


class ServeTest(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.bin = BIN
        self.environment = os.environ | {"TMPDIR": str(self.folder)}

    def serve(self, *arguments):
        """Starts it in a session of its own, as in a terminal of its own, and waits until the model has answered."""
        self.program = Program(self.stack, [self.bin / "quire", "serve", *map(str, arguments)], READY,
                               env=self.environment, start_new_session=True)
        self.process = self.program.process

    def run_to_end(self, *arguments):
        """Runs it to its end. Returns the exit code and all lines."""
        done = subprocess.run([self.bin / "quire", "serve", *map(str, arguments)], env=self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, timeout=TIMEOUT_S)
        self.assertEqual(self.children(), {})
        return done.returncode, done.stdout.splitlines()

    def said(self, pattern):
        match = re.search(pattern, "".join(self.program.printed), re.MULTILINE)
        self.assertIsNotNone(match, self.program.printed)
        return match[1]

    def url(self):
        return self.said(r"^  chat page +(http://127\.0\.0\.1:\d+)/$")

    def children(self):
        """Returns the ids of the programs that know the folder of this test, by their names."""
        found = {}
        for command in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = command.read_bytes().decode(errors="replace").split("\0")
                if any(str(self.folder) in word for word in words[1:]):
                    found[pathlib.Path(words[0]).name] = int(command.parent.name)
        return found

    def complete(self, **fields):
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 5, **fields}).encode()
        request = urllib.request.Request(self.url() + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return json.loads(response.read())

    def paste(self, line):
        done = subprocess.run(["bash", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              timeout=TIMEOUT_S, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def stop(self, number=signal.SIGINT):
        """Ends it as a terminal does, which sends the signal to the whole group. Returns the exit code."""
        os.killpg(self.process.pid, number)
        code = self.process.wait(TIMEOUT_S)
        self.program.reader.join()
        self.assertEqual(self.children(), {})
        return code

    def test_what_it_prints_can_be_used(self):
        self.serve(TALES, "--port=0", SMALL)
        self.assertEqual(sorted(self.children()), ["quire-manager", "quire-openai", "quire-worker"])
        if shutil.which("curl"):
            answer = json.loads(self.paste(self.said("^(curl .*)$")))
            self.assertEqual(answer["object"], "chat.completion")
            self.assertGreater(len(answer["choices"][0]["message"]["content"]), 10)
        self.assertIn("<html", read(self.url() + "/"))
        # What the clients of OpenAI and Anthropic read.
        bases = self.paste(self.said("^  clients +(.*)$") + "; echo $OPENAI_BASE_URL $ANTHROPIC_BASE_URL").split()
        self.assertEqual(bases, [self.url() + "/v1", self.url()])
        self.assertIn("<html", read(self.said("^  status page +(.*)$")))
        # The rest of the shell's commands find the manager, too.
        self.assertIn("tales", self.paste(self.said("^  quirectl +(.*)$") + f" >/dev/null; {BIN}/quirectl model"))
        logs = pathlib.Path(self.said("^  logs +(.*)$"))
        self.assertIn("listening on", (logs / "gateway.log").read_text())
        self.said("^(worker: loaded .*/models/tales: read .*)$")
        self.assertEqual(self.stop(), 0)
        self.assertEqual(list(self.folder.iterdir()), [])

    def answer_of_the_printed_line(self, model):
        """Serves a model, and returns the path of the line that it prints, and the answer to it."""
        self.serve(model, "--port=0", SMALL)
        path = self.said(r"^curl -s http://127\.0\.0\.1:\d+(\S*) ")
        self.assertNotIn("chat page", "".join(self.program.printed))
        answer = json.loads(self.paste(self.said("^(curl .*)$"))) if shutil.which("curl") else None
        self.stop()
        return path, answer

    def test_the_printed_line_suits_a_reranker(self):
        path, answer = self.answer_of_the_printed_line(ROOT / "tests/golden/rerank")
        self.assertEqual(path, "/v1/rerank")
        if answer is not None:
            self.assertEqual(len(answer["results"]), 2)

    def test_the_printed_line_suits_a_model_without_an_output_matrix(self):
        # Such checkpoints name their tensors without "model.".
        folder = self.folder / "embedder"
        shutil.copytree(TALES, folder)
        weights = folder / "model.safetensors"
        data = weights.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = data[8 : 8 + size].replace(b'"model.', b'"')
        weights.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(
            json.dumps(config | {"architectures": ["LlamaModel"], "tie_word_embeddings": False}))
        path, answer = self.answer_of_the_printed_line(folder)
        self.assertEqual(path, "/v1/embeddings")
        if answer is not None:
            self.assertEqual(len(answer["data"]), 2)

    def test_names_and_flags_reach_the_programs(self):
        self.serve(TALES, "--port=0", "--served-model-name=one", "--served-model-name", "two", "--quantize=int8",
                   "--kv-type=int8", "--worker.num-blocks=500", "--manager.listen", "127.0.0.1:0")
        self.assertEqual([self.complete(model=name)["model"] for name in ("one", "two")], ["one", "two"])
        self.said("^(one answers after .*)$")
        self.said("^(worker: weights .* int8.*)$")
        self.said("^(worker: pool    500 blocks .* int8)$")
        self.said(r"^  quirectl +export QUIRE_ENDPOINT=127\.0\.0\.1:(\d+); .*/quirectl status$")

    def test_a_file_has_the_flags_of_all_programs(self):
        config = self.folder / "quire.yaml"
        config.write_text("worker:\n  num-blocks: 300\n  threads: 1\nmanager:\n  status_page: 'off'\n"
                          "gateway:\n  listen: 127.0.0.1:0\n  served_model_name: [mine, other]\n")
        self.serve(TALES, f"--config={config}", "--worker.num-blocks=400")
        self.assertEqual(self.complete(model="other")["model"], "other")
        self.said("^(worker: pool    400 blocks .*)$")
        self.assertNotIn("status page", "".join(self.program.printed))
        self.stop()
        config.write_text("worker:\n  threads: many\n")
        code, lines = self.run_to_end(TALES, f"--config={config}")
        self.assertEqual(code, 2)
        self.assertEqual(lines[-1], "quire-worker: --worker.threads is 'many', it must be a whole number "
                                    f"(--worker.threads is from {config}:2)")

    def test_a_stream_ends_before_its_programs_do(self):
        self.serve(TALES, "--port=0", SMALL)
        body = json.dumps({"prompt": "Once", "max_tokens": 900, "ignore_eos": True, "stream": True}).encode()
        request = urllib.request.Request(self.url() + "/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            response.readline()
            os.killpg(self.process.pid, signal.SIGTERM)
            events = response.read().decode().split("\n\n")
        self.assertEqual(events[-2], "data: [DONE]")
        self.assertEqual(self.process.wait(TIMEOUT_S), 0)
        self.program.reader.join()
        self.said("^(stopping; running requests have 30s to finish, .*)$")

    def test_a_second_signal_ends_what_still_runs(self):
        self.serve(TALES, "--port=0", SMALL)
        os.kill(self.children()["quire-openai"], signal.SIGSTOP)
        os.killpg(self.process.pid, signal.SIGINT)
        wait_for(lambda: any("stopping;" in line for line in self.program.printed))
        self.assertIsNone(self.process.poll())
        self.assertEqual(self.stop(), 0)

    def with_wrapped_programs(self):
        """Makes a folder of programs that write their names to a file when they have ended."""
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        shutil.copy(BIN / "quire", self.bin)
        for name in ("quire-worker", "quire-manager", "quire-openai"):
            real = BIN / name
            (self.bin / name).write_text(
                f"#!/bin/sh\ncase \"$*\" in *--print-effective-config) exec {real} \"$@\";; esac\n"
                f"{real} \"$@\" & pid=$!\ntrap 'kill -TERM $pid' TERM\n"
                f"wait $pid; wait $pid\necho {name} >>{self.folder}/ended\n")
            (self.bin / name).chmod(0o755)

    def test_the_gateway_ends_first_and_the_worker_last(self):
        self.with_wrapped_programs()
        self.serve(TALES, "--port=0", SMALL)
        os.killpg(self.process.pid, signal.SIGINT)
        self.assertEqual(self.process.wait(TIMEOUT_S), 0)
        self.assertEqual((self.folder / "ended").read_text().split(),
                         ["quire-openai", "quire-manager", "quire-worker"])

    def test_a_killed_conductor_leaves_nothing_running(self):
        self.serve(TALES, "--port=0", SMALL)
        self.process.kill()
        self.process.wait()
        wait_for(lambda: self.children() == {})
        (left,) = self.folder.iterdir()
        self.serve(TALES, "--port=0", SMALL)
        self.assertFalse(left.exists())
        self.stop()
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_end_of_a_part_ends_all(self):
        for name in ("quire-worker", "quire-manager", "quire-openai"):
            with self.subTest(name):
                self.serve(TALES, "--port=0", SMALL)
                os.kill(self.children()[name], signal.SIGKILL)
                self.assertEqual(self.process.wait(TIMEOUT_S), 1)
                self.program.reader.join()
                self.assertEqual(self.children(), {})
                self.assertRegex(self.program.printed[-1], rf"^{name}: ended with signal 9 \(Killed\); its last line: ")
                logs = pathlib.Path(self.said("^the logs are in (.*)$"))
                self.assertGreater((logs / "worker.log").stat().st_size, 0)

    def test_the_error_of_a_bad_model_is_the_last_line(self):
        model = pathlib.Path(shutil.copytree(TALES, self.folder / "bad"))
        (model / "config.json").write_text('{"architectures": ["NoSuchModel"]}')
        code, lines = self.run_to_end(model, "--port=0")
        self.assertEqual(code, 1)
        self.assertRegex(lines[-1], "^quire-worker: .*NoSuchModel")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["bad"])

    def test_what_the_manager_refuses_ends_the_wait(self):
        model = pathlib.Path(shutil.copytree(TALES, self.folder / "bad"))
        (model / "tokenizer.json").write_text('{"model": {"type": "NoSuchType"}}')
        code, lines = self.run_to_end(model, "--port=0", SMALL)
        self.assertEqual(code, 1)
        self.assertRegex(lines[-1], '^quire-manager: worker .* cannot be used: .*"NoSuchType"')
        self.assertEqual([path.name for path in self.folder.iterdir()], ["bad"])

    def test_token_ids_are_asked_for_without_a_tokenizer(self):
        self.serve(ROOT / "tests/golden/models/llama2", "--port=0", SMALL)
        self.said(r'^(curl .*/v1/completions .*"prompt": \[0\].*)$')

    def test_a_port_in_use_is_told_before_the_model_is_loaded(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, lines = self.run_to_end(TALES, "--port", port)
        self.assertEqual((code, lines),
                         (1, [f"quire-openai: --port: cannot listen on 127.0.0.1:{port}: it is in use"]))

    def test_wrong_command_lines_start_nothing(self):
        for arguments, error in (
            ([TALES, "--kv-bytes=1GiB"], "quire: there is no flag --kv-bytes; did you mean --worker.kv-bytes?"),
            ([TALES, "--worker.thread=1"],
             "quire-worker: there is no flag --worker.thread; did you mean --worker.threads?"),
            ([TALES, "--worker.threads", "-1"], "quire-worker: --worker.threads is -1, it must be 0 .. 1024"),
            ([TALES, "--quantize=int5"], "quire-worker: --quantize is 'int5', it must be one of none, int8, int4"),
            ([self.folder / "none"], f"quire: MODEL is '{self.folder}/none', and there is no such folder or file"),
        ):
            self.assertEqual(self.run_to_end(*arguments), (2, [error]))
        code, lines = self.run_to_end()
        self.assertEqual((code, lines[1].split("[")[0]), (2, "Usage: quire serve MODEL "))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_tokens_are_asked_for_in_the_printed_line(self):
        self.serve(TALES, "--port=0", SMALL, "--gateway.require-tokens")
        self.said(r'^(curl -s -H "Authorization: Bearer \$TOKEN" .*)$')
        self.said("^(.*/tales is loaded after .*)$")

    def test_a_gateway_with_tls_is_asked_too(self):
        if shutil.which("openssl") is None or shutil.which("curl") is None:
            self.skipTest("no openssl or no curl here")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-subj", "/CN=elsewhere", "-keyout", self.folder / "key", "-out",
                        self.folder / "cert"], check=True, capture_output=True, timeout=TIMEOUT_S)
        self.serve(TALES, "--port=0", SMALL, f"--gateway.tls-cert={self.folder}/cert",
                   f"--gateway.tls-key={self.folder}/key")
        self.assertIn("chat.completion", self.paste(self.said("^(curl -s -k https://.*)$")))

    def test_a_model_of_the_hub_is_downloaded_once(self):
        hub = LocalHub(files_of(TALES), large=["model.safetensors"])
        self.addCleanup(hub.close)
        self.environment |= {"HF_ENDPOINT": hub.hub.url, "HF_HUB_CACHE": str(self.folder / "hub")}
        # After 10 s, the manager warns that the worker is not there.
        hub.faults["model.safetensors"] = [lambda handler: time.sleep(11)]
        self.serve("owner/name", "--port=0", SMALL)
        self.said("^(received 2.4 MB in .* s)$")
        self.assertEqual(self.complete()["model"], "owner/name")
        self.stop()
        seen = len(hub.seen)
        self.serve("hf:owner/name", "--port=0", SMALL)
        self.assertEqual(len(hub.seen), seen)
        self.stop()
        code, lines = self.run_to_end("owner/name/none.gguf", "--port=0")
        self.assertEqual((code, lines[-1]), (
            1, "quire-download: there is no hf:owner/name/none.gguf; it has no GGUF file either"))

    def test_a_signal_during_a_download_keeps_what_has_arrived(self):
        hub = LocalHub(files_of(TALES), large=["model.safetensors"])
        self.addCleanup(hub.close)
        hub.faults["model.safetensors"] = [lambda handler: handler.server.hub.hang.wait(TIMEOUT_S)]
        self.environment |= {"HF_ENDPOINT": hub.hub.url, "HF_HUB_CACHE": str(self.folder / "hub")}
        process = subprocess.Popen([BIN / "quire", "serve", "owner/name", "--port=0"], env=self.environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        wait_for(lambda: hub.requests("model.safetensors"))
        process.terminate()
        self.assertEqual(process.wait(TIMEOUT_S), 1)
        lines = process.stdout.read().splitlines()
        self.assertEqual(lines[-2:], ["quire-download: stopped; the next run continues from here",
                                      "quire: stopped by a signal before the model answered"])


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
