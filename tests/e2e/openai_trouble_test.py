"""Shows what clients of quire-openai hear when its manager is not there. The argument is the folder of our programs."""

import json
import pathlib
import socket
import sys
import time
import unittest

from openai_programs import Installation, Program, events_of, wait_for

LONG = {"prompt": "Once upon a time", "max_tokens": 1000, "ignore_eos": True}


class OpenAiTroubleTest(unittest.TestCase):
    def setUp(self):
        self.quire = Installation(BIN)
        self.addCleanup(self.quire.close)
        self.quire.wait_until_ready()

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


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
