# SPDX-License-Identifier: Apache-2.0
"""Starts a worker, a manager and quire-openai for the tests of the gateway."""

import contextlib
import http.client
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from programs import Program  # noqa: E402

TIMEOUT_S = 120
# The function of a documented example, with a short location so that an answer is short.
WEATHER = {
    "name": "get_weather",
    "description": "Get current temperature for a given location.",
    "parameters": {
        "type": "object",
        "properties": {
            "location": {"type": "string", "maxLength": 12, "description": "City and country"},
            "units": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["location", "units"],
        "additionalProperties": False,
    },
    "strict": True,
}


class Installation:
    """The programs on unix sockets in a folder of their own; the gateway listens on a free port. There is a manager for
    each of the names. With a chat template, the model is a copy of the bundled one that has it, named "caller".
    `edit_model` changes the files in the folder of such a copy. `pool` is the flag of the worker for its size."""

    def __init__(
        self,
        folder_of_programs,
        manager_flags=(),
        gateway_flags=(),
        worker_flags=(),
        managers=("manager",),
        chat_template=None,
        edit_model=None,
        pool="--kv-bytes=64MiB",
    ):
        self.bin = folder_of_programs
        self.manager_flags = manager_flags
        self.stack = contextlib.ExitStack()
        with contextlib.ExitStack() as on_error:
            on_error.callback(self.stack.close)
            self.folder = self.stack.enter_context(tempfile.TemporaryDirectory())
            model = ROOT / "models/tales"
            if chat_template is not None or edit_model is not None:
                model = pathlib.Path(shutil.copytree(model, f"{self.folder}/caller"))
            if chat_template is not None:
                (model / "chat_template.jinja").write_text(chat_template)
                shutil.rmtree(model / "additional_chat_templates")  # One of them would be for requests with tools.
            if edit_model is not None:
                edit_model(model)
            self.worker_command = [self.bin / "quire-worker", f"--model={model}", f"--listen=unix:{self.folder}/worker"]
            self.worker_command += ["--metrics-listen=", pool, *worker_flags]
            self.start_worker()
            self.managers = [self.start_manager(name) for name in managers]
            self.endpoint = ",".join(f"unix:{self.folder}/{name}" for name in managers)
            self.gateway = Program(
                self.stack,
                [self.bin / "quire-openai", f"--manager={self.endpoint}", "--listen=127.0.0.1:0"]
                + [*gateway_flags],
                r"listening on 127\.0\.0\.1:(\d+)",
            )
            self.port = int(self.gateway.found)
            on_error.pop_all()

    def start_worker(self):
        self.worker = Program(self.stack, self.worker_command, "(listening)")

    def start_manager(self, name="manager"):
        self.manager = Program(
            self.stack,
            [self.bin / "quire-manager", f"--workers=unix:{self.folder}/worker", f"--listen=unix:{self.folder}/{name}"]
            + ["--metrics-listen=", *self.manager_flags],
            "(listening)",
        )
        return self.manager

    def close(self):
        self.stack.close()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)

    def call(self, path, body=None, token=None):
        """Returns the code, the parsed body and the headers of an answer."""
        connection = self.connect()
        try:
            headers = {"Content-Type": "application/json"}
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            data = json.dumps(body).encode() if isinstance(body, dict) else body
            connection.request("GET" if body is None else "POST", path, data, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read()), response.headers
        finally:
            connection.close()

    def stream(self, path, body, headers=None):
        """Returns the data of all events. The last one is "[DONE]"."""
        return list(self.stream_events(path, body, headers))

    def stream_events(self, path, body, headers=None):
        """Yields the data of the events as they come."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}).encode(), headers or {})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield from events_of(response)
        finally:
            connection.close()

    def metrics(self):
        connection = self.connect()
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def wait_until_ready(self):
        wait_for(lambda: self.call("/health")[0] == 200)

    def num_begun(self):
        """Returns the number of running requests with more than 50 tokens."""
        requests = json.loads(self.quirectl("requests", "-o", "json"))["requests"]
        return sum(int(request["generated_tokens"]) > 50 for request in requests)

    def quirectl(self, *arguments):
        done = subprocess.run(
            [self.bin / "quirectl", "--endpoint", self.endpoint, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def started(test, *arguments, **options):
    """Returns an Installation that is ready. It runs until the end of the test, or of all tests of a class."""
    installation = Installation(*arguments, **options)
    (test.addClassCleanup if isinstance(test, type) else test.addCleanup)(installation.close)
    installation.wait_until_ready()
    return installation


def simulated_worker(test, step):
    """Returns the flags of a worker whose steps take this time, such as "5ms", until the end of the test."""
    times = pathlib.Path(test.enterContext(tempfile.TemporaryDirectory())) / "times.yaml"
    times.write_text(f"step: {step}\n")
    return ["--device=simulated", f"--simulated-step-times={times}"]


def resume_key(test):
    """Returns the flags of a manager whose streams the next manager continues, until the end of the test."""
    key = pathlib.Path(test.enterContext(tempfile.TemporaryDirectory())) / "key"
    key.write_text("k" * 40)
    return [f"--resume-key-file={key}"]


def resumable_installation(test, folder_of_programs, gateway_flags=()):
    """Starts an installation until the end of the test. Its streams outlive the manager, and a step takes 5 ms."""
    return started(test, folder_of_programs, resume_key(test), gateway_flags, simulated_worker(test, "5ms"))


def answers_across_restart(installation, *calls):
    """Runs the calls, of one request each, at the same time. The manager is restarted when all have begun."""
    answers = [None] * len(calls)

    def run(i):
        answers[i] = calls[i]()

    threads = [threading.Thread(target=run, args=[i]) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    wait_for(lambda: installation.num_begun() == len(calls))
    installation.manager.end()
    installation.start_manager()
    for thread in threads:
        thread.join()
    return answers


def events_of(response):
    """Yields the data of server-sent events as JSON; "[DONE]" as text."""
    for line in response:
        line = line.decode().rstrip("\n")
        if line.startswith("data: "):
            data = line[len("data: ") :]
            yield data if data == "[DONE]" else json.loads(data)


def wait_for(condition):
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("the time is up")
        time.sleep(0.05)
