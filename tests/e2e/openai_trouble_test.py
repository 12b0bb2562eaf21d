# SPDX-License-Identifier: Apache-2.0
"""Shows what clients of quire-openai hear when its manager is not there. The argument is the folder of our programs."""

import contextlib
import json
import pathlib
import shutil
import socket
import sys
import tempfile
import threading
import time
import unittest

from openai_programs import Program, events_of, resume_key, simulated_worker, started, wait_for

LONG = {"prompt": "Once upon a time", "max_tokens": 1000, "ignore_eos": True}


def text_of(event, index):
    """The text that the event adds to this choice."""
    return "".join(
        choice["text"] if "text" in choice else choice["delta"].get("content", "")
        for choice in event["choices"]
        if choice["index"] == index
    )


class OpenAiTroubleTest(unittest.TestCase):
    def setUp(self):
        self.quire = started(self, BIN, gateway_flags=["--resume-time=200ms", "--manager-wait=0"])

    def expect_error(self, path, body, code, text):
        status, answer, headers = self.quire.call(path, body)
        self.assertEqual((status, answer["error"]["code"], answer["error"]["message"]), (503, code, text))
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)

    def expect_warning(self, text):
        wait_for(lambda: any(line.startswith("W ") and text in line for line in self.quire.gateway.printed))

    def test_the_loss_of_the_manager_is_told_without_its_address(self):
        connection = self.quire.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps({**LONG, "stream": True}).encode())
        events = events_of(connection.getresponse())
        next(events)
        self.quire.manager.end()
        error = list(events)[-1]["error"]
        self.assertEqual(error["message"], "the manager was lost in the middle of the answer")
        self.assertEqual(error["code"], "manager_lost")
        self.expect_warning("the manager was lost in the middle of the answer: ")
        text = "the gateway cannot reach its manager; try again"
        wait_for(lambda: self.quire.call("/v1/models")[1]["error"]["message"] == text)
        self.expect_error("/v1/models", None, "no_manager", text)
        self.expect_error("/v1/completions", LONG, "no_manager", text)
        self.expect_error("/health", None, "no_manager", text)
        wait_for(lambda: self.has_warned_again(f"{self.quire.folder}/manager"))

    def has_warned_again(self, text):
        """The log has at most one line per second."""
        self.quire.call("/health")
        return any(line.startswith("W ") and text in line for line in self.quire.gateway.printed)

    def start_gateway(self, *flags):
        self.quire.gateway = Program(
            self.quire.stack,
            [BIN / "quire-openai", *flags, "--listen=127.0.0.1:0"],
            r"listening on 127\.0\.0\.1:(\d+)",
        )
        self.quire.port = int(self.quire.gateway.found)

    def test_a_manager_that_does_not_answer_costs_a_second(self):
        silent = socket.socket(socket.AF_UNIX)  # It takes connections and says nothing.
        self.addCleanup(silent.close)
        silent.bind(f"{self.quire.folder}/silent")
        silent.listen()
        self.start_gateway(
            f"--manager=unix:{self.quire.folder}/silent,unix:{self.quire.folder}/manager", "--call-timeout=60s")
        start = time.monotonic()
        status, answer, _ = self.quire.call("/v1/completions", {"prompt": "Once", "max_tokens": 2})
        self.assertEqual((status, answer["object"]), (200, "text_completion"))
        self.assertLess(time.monotonic() - start, 15, "gRPC alone waits for 20 s")

    def test_a_worker_is_not_taken_for_a_manager(self):
        self.start_gateway(f"--manager=unix:{self.quire.folder}/worker")
        text = "what answers at --manager is not a manager; is it a worker?"
        self.expect_error("/health", None, "no_manager", text)
        self.expect_error("/v1/models", None, "no_manager", text)
        self.expect_error("/v1/completions", LONG, "no_manager", text)
        self.expect_warning(text)


class SmallPoolTest(unittest.TestCase):
    def test_a_chat_without_a_limit_may_fill_the_pool(self):
        quire = started(self, BIN, worker_flags=["--kv-bytes=1MiB"])
        room = quire.call("/v1/models")[1]["data"][0]["max_model_len"]
        self.assertLess(room, 1024)
        body = {"messages": [{"role": "user", "content": "Tom"}], "ignore_eos": True}
        status, answer, _ = quire.call("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(answer["usage"]["total_tokens"], room)


class LostManagerTest(unittest.TestCase):
    def start(self, has_key=True, gateway_flags=(), manager_flags=(), managers=("manager",)):
        manager_flags = [*manager_flags, *(resume_key(self) if has_key else [])]
        return started(self, BIN, manager_flags, gateway_flags, simulated_worker(self, "5ms"), managers)

    def test_answers_continue_with_the_next_manager(self):
        quire = self.start()

        def replace_manager():
            quire.manager.end()
            quire.start_manager()

        self.expect_answers_continue(quire, replace_manager)

    def test_new_requests_wait_while_a_manager_that_was_killed_is_started_again(self):
        self.expect_no_failure(lambda manager: manager.end())

    def test_new_requests_wait_while_a_manager_that_has_stopped_is_started_again(self):
        def stop(manager):
            manager.process.terminate()
            manager.process.wait()

        self.expect_no_failure(stop)

    def expect_no_failure(self, end):
        quire = self.start()
        answers = [None] * 40
        body = {"prompt": "Once upon a time", "max_tokens": 20, "ignore_eos": True}
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 20}
        calls = [("/v1/completions", body), ("/v1/chat/completions", chat)]
        calls += [("/tokenize", {"prompt": "Once"}), ("/v1/models", None)]

        def call(i):
            time.sleep(0.05 * i)
            answers[i] = quire.call(*calls[i % 4])

        threads = self.start_threads(len(answers), call)
        time.sleep(0.2)
        end(quire.manager)
        time.sleep(1)
        quire.start_manager()
        self.join(threads)
        self.assertEqual([answer for answer in answers if answer[0] != 200], [])

    def test_answers_continue_with_the_manager_that_stood_by(self):
        if shutil.which("etcd") is None:
            self.skipTest("etcd is not installed (Debian: etcd-server)")
        stack = self.enterContext(contextlib.ExitStack())
        folder = self.enterContext(tempfile.TemporaryDirectory())
        any_port = "http://127.0.0.1:0"
        urls = ["--listen-client-urls", "--advertise-client-urls"]
        urls += ["--listen-peer-urls", "--initial-advertise-peer-urls"]
        etcd = Program(
            stack,
            ["etcd", f"--data-dir={folder}", "--unsafe-no-fsync", f"--initial-cluster=default={any_port}"]
            + [f"{url}={any_port}" for url in urls],
            r"(?=.*strongly discouraged).*?(127\.0\.0\.1:\d+)",
        )
        quire = self.start(
            managers=["first", "second"],
            manager_flags=["--standby=etcd", f"--etcd={etcd.found}", "--lease-duration=4s"],
        )

        def lose_leader():
            leaders = [m for m in quire.managers if any("leads from now on" in line for line in m.printed)]
            self.assertEqual(len(leaders), 1)
            leaders[0].end()

        self.expect_answers_continue(quire, lose_leader)

    def expect_answers_continue(self, quire, lose_manager):
        sampled = {**LONG, "temperature": 0.8, "seed": 3, "max_tokens": 900}
        chat = {"messages": [{"role": "user", "content": "Tell me a story about a fox."}]}
        chat |= {name: value for name, value in sampled.items() if name != "prompt"}
        calls = [
            ("/v1/completions", sampled),
            ("/v1/completions", {**sampled, "logprobs": 2, "n": 2}),
            ("/v1/completions", {**sampled, "prompt": ["Once upon a time", "There was a"], "seed": 4}),
            ("/v1/chat/completions", {**chat, "logprobs": True}),
        ]
        expected, whole, streamed = [None] * len(calls), [None] * len(calls), [None] * len(calls)

        def call_undisturbed(i):
            expected[i] = quire.call(*calls[i])[1]

        def call(i):
            whole[i] = quire.call(*calls[i])

        def stream(i):
            path, body = calls[i]
            streamed[i] = quire.stream(path, {**body, "stream_options": {"include_usage": True}})

        self.join(self.start_threads(len(calls), call_undisturbed))
        threads = self.start_threads(len(calls), call, stream)
        # The third call has two requests. The gateway has got the first tokens of all.
        wait_for(lambda: quire.num_begun() == 2 * (len(calls) + 1))
        lose_manager()
        self.join(threads)
        for i, answer in enumerate(expected):
            with self.subTest(call=i):
                self.assertEqual(whole[i][0], 200, whole[i][1])
                self.assertEqual(whole[i][1]["choices"], answer["choices"])
                self.assertEqual(streamed[i][-1], "[DONE]")
                self.assertEqual(streamed[i][-2]["usage"]["completion_tokens"], answer["usage"]["completion_tokens"])
                for choice in answer["choices"]:
                    text = "".join(text_of(event, choice["index"]) for event in streamed[i][:-1])
                    self.assertEqual(text, choice.get("text") or choice["message"]["content"])

    def start_threads(self, num_calls, *functions):
        threads = [threading.Thread(target=run, args=[i]) for i in range(num_calls) for run in functions]
        for thread in threads:
            thread.start()
        return threads

    def join(self, threads):
        for thread in threads:
            thread.join()

    def expect_loss(self, quire):
        connection = quire.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps({**LONG, "stream": True}).encode())
        events = events_of(connection.getresponse())
        next(events)
        quire.manager.end()
        quire.start_manager()
        self.assertEqual(list(events)[-1]["error"]["code"], "manager_lost")

    def test_an_answer_that_the_next_manager_does_not_know_ends(self):
        self.expect_loss(self.start(has_key=False, gateway_flags=["--resume-time=1h"]))

    def test_a_request_ends_with_its_manager_if_it_is_to(self):
        quire = self.start(gateway_flags=["--resume-time=0"])
        self.expect_loss(quire)
        # Otherwise the next manager would have taken it over from the worker.
        wait_for(lambda: any(" request" in line and "of another manager" in line for line in quire.manager.printed))
        self.assertTrue(any("had 0 requests of another manager" in line for line in quire.manager.printed))


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
