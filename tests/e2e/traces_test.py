# SPDX-License-Identifier: Apache-2.0
"""Collects the spans of quire-openai and quire-manager with a small collector, and checks how they are joined. The
argument is the folder of our programs."""

import contextlib
import http.client
import http.server
import json
import pathlib
import sys
import threading
import unittest

from openai_programs import started, wait_for

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"
SERVER, CLIENT = 2, 3


class Collector:
    """Takes OTLP over HTTP, unless it is told to refuse it."""

    def __init__(self):
        self.spans = []
        self.paths = set()
        self.code = 200
        self.num_calls = 0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/json"
                collector.take(self.path, json.loads(body))
                self.send_response(collector.code)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path, request):
        self.num_calls += 1
        if self.code != 200:
            return
        self.paths.add(path)
        for resource in request["resourceSpans"]:
            service = attributes(resource["resource"])["service.name"]
            for scope in resource["scopeSpans"]:
                self.spans += [{**span, "service": service} for span in scope["spans"]]

    def find(self, service, name, trace=None):
        """Returns the spans with this beginning of their name."""
        return [
            span
            for span in list(self.spans)
            if span["service"] == service and span["name"].startswith(name) and trace in (None, span["traceId"])
        ]

    def the(self, service, name, trace=None):
        """Waits for the one span with this beginning of its name."""
        wait_for(lambda: self.find(service, name, trace))
        (span,) = self.find(service, name, trace)
        return span

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def attributes(of):
    """The attributes as Python values."""
    values = {}
    for attribute in of["attributes"]:
        ((kind, value),) = attribute["value"].items()
        if kind == "intValue":
            value = int(value)
        if kind == "arrayValue":
            value = [next(iter(item.values())) for item in value["values"]]
        values[attribute["key"]] = value
    return values


class TracesTest(unittest.TestCase):
    def setUp(self):
        self.collector = self.enterContext(contextlib.closing(Collector()))

    def start(self, manager_flags=(), gateway_flags=(), traces=True):
        flags = [f"--otlp-endpoint={self.collector.endpoint}"] if traces else []
        return started(self, BIN, manager_flags=[*flags, *manager_flags], gateway_flags=[*flags, *gateway_flags])

    def post(self, quire, path, body, traceparent=PARENT):
        connection = quire.connect()
        try:
            headers = {"Content-Type": "application/json"}
            if traceparent is not None:
                headers["traceparent"] = traceparent
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def check_below(self, span, parent):
        self.assertEqual(span["traceId"], parent["traceId"])
        self.assertEqual(span["parentSpanId"], parent["spanId"])
        self.assertNotEqual(span["spanId"], parent["spanId"])
        self.assertLessEqual(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
        # The clocks of the processes are the same one, but each span reads it at its own time.
        self.assertGreaterEqual(int(span["startTimeUnixNano"]), int(parent["startTimeUnixNano"]) - 1_000_000_000)

    def test_spans_of_a_request_are_joined_from_the_caller_to_the_worker(self):
        quire = self.start()
        code, body = self.post(
            quire,
            "/v1/completions",
            {"model": "tales", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0.5, "seed": 3},
        )
        self.assertEqual(code, 200)
        answer = json.loads(body)
        gateway = self.collector.the("quire-openai", "POST /v1/completions")
        self.assertEqual((gateway["traceId"], gateway["parentSpanId"]), (TRACE, CALLER))
        self.assertEqual(gateway["kind"], SERVER)
        self.assertNotIn("status", gateway)
        told = attributes(gateway)
        self.assertEqual(told["http.route"], "/v1/completions")
        self.assertEqual(told["http.response.status_code"], 200)
        self.assertEqual(told["gen_ai.operation.name"], "text_completion")
        self.assertEqual(told["gen_ai.request.model"], "tales")
        self.assertEqual(told["gen_ai.response.id"], answer["id"])

        manager = self.collector.the("quire-manager", "text_completion tales")
        self.check_below(manager, gateway)
        self.assertEqual(manager["kind"], SERVER)
        told = attributes(manager)
        usage = answer["usage"]
        self.assertEqual(told["gen_ai.operation.name"], "text_completion")
        self.assertEqual(told["gen_ai.provider.name"], "quire")
        self.assertEqual(told["gen_ai.response.model"], "tales")
        self.assertEqual(told["gen_ai.response.id"], answer["id"])
        self.assertEqual(told["gen_ai.request.max_tokens"], 8)
        self.assertEqual(told["gen_ai.request.seed"], 3)
        self.assertEqual(told["gen_ai.request.temperature"], 0.5)
        self.assertEqual(told["gen_ai.usage.input_tokens"], usage["prompt_tokens"])
        self.assertEqual(told["gen_ai.usage.output_tokens"], usage["completion_tokens"])
        self.assertEqual(told["gen_ai.usage.cache_read.input_tokens"], 0)
        self.assertEqual(told["gen_ai.response.finish_reasons"], [answer["choices"][0]["finish_reason"]])
        self.assertGreater(told["gen_ai.response.time_to_first_chunk"], 0)

        self.check_below(self.collector.the("quire-manager", "queue"), manager)
        worker = self.collector.the("quire-manager", "worker")
        self.check_below(worker, manager)
        self.assertEqual(worker["kind"], CLIENT)
        self.assertEqual(attributes(worker)["quire.worker"], f"unix:{quire.folder}/worker")
        self.assertEqual(self.collector.paths, {"/v1/traces"})
        self.assertNotIn("Once upon", json.dumps(self.collector.spans), "a prompt is in no span")

    def test_streams_embeddings_and_refusals_have_spans(self):
        quire = self.start()
        prompt = {"prompt": "Once", "max_tokens": 4}
        trace = "1" * 32
        code, _ = self.post(quire, "/v1/completions", {**prompt, "stream": True}, f"00-{trace}-{CALLER}-01")
        self.assertEqual(code, 200)
        stream = self.collector.the("quire-openai", "POST", trace)
        self.assertGreater(attributes(stream)["gen_ai.response.time_to_first_chunk"], 0)
        self.check_below(self.collector.the("quire-manager", "text_completion", trace), stream)

        trace = "2" * 32
        code, _ = self.post(quire, "/v1/embeddings", {"input": ["Once", "twice"]}, f"00-{trace}-{CALLER}-01")
        self.assertEqual(code, 200)
        gateway = self.collector.the("quire-openai", "POST /v1/embeddings", trace)
        embed = self.collector.the("quire-manager", "embeddings tales", trace)
        self.check_below(embed, gateway)
        self.assertEqual(attributes(embed)["quire.embeddings.inputs"], 2)

        trace = "3" * 32
        code, _ = self.post(quire, "/v1/completions", {**prompt, "top_p": 7}, f"00-{trace}-{CALLER}-01")
        self.assertEqual(code, 400)
        told = attributes(self.collector.the("quire-openai", "POST", trace))
        self.assertEqual(told["http.response.status_code"], 400)
        refused = self.collector.the("quire-manager", "text_completion", trace)
        self.assertEqual(attributes(refused)["error.type"], "INVALID_ARGUMENT")
        self.assertEqual(refused["status"], {"code": 2, "message": "INVALID_ARGUMENT"})

    def test_the_caller_decides_about_its_trace_and_the_ratio_about_others(self):
        quire = self.start(gateway_flags=["--otlp-sampling-ratio=0"], manager_flags=["--otlp-service-name=mine"])
        body = {"prompt": "Once", "max_tokens": 2}
        not_sampled = f"00-{'5' * 32}-{CALLER}-00"
        for traceparent in (None, "malformed", not_sampled):
            self.assertEqual(self.post(quire, "/v1/completions", body, traceparent)[0], 200)
        self.assertEqual(self.post(quire, "/v1/completions", body)[0], 200)
        self.collector.the("quire-openai", "POST", TRACE)
        self.collector.the("mine", "text_completion", TRACE)
        self.assertEqual({span["traceId"] for span in self.collector.spans}, {TRACE})

    def test_without_an_endpoint_nothing_is_sent_and_the_manager_gets_the_callers_trace(self):
        quire = self.start(traces=False, manager_flags=["--log-requests", "--log-format=json"])
        self.assertEqual(self.post(quire, "/v1/completions", {"prompt": "Once", "max_tokens": 2})[0], 200)
        wait_for(lambda: f'"trace_id":"{TRACE}"' in "".join(quire.manager.printed))
        self.assertIn(f'"parent_span_id":"{CALLER}"', "".join(quire.manager.printed))
        self.assertEqual(self.collector.num_calls, 0)
        self.assertNotIn("quire_spans", quire.metrics())

    def test_a_collector_that_refuses_or_is_gone_delays_nobody(self):
        quire = self.start()
        self.collector.code = 400
        for _ in range(3):
            self.assertEqual(self.post(quire, "/v1/completions", {"prompt": "Once", "max_tokens": 2})[0], 200)
        wait_for(lambda: "quire_spans_dropped_total 3" in quire.metrics())
        self.collector.code = 200
        self.assertEqual(self.post(quire, "/v1/completions", {"prompt": "Once", "max_tokens": 2})[0], 200)
        self.collector.the("quire-openai", "POST")
        wait_for(lambda: "quire_spans_exported_total 1" in quire.metrics())
        self.collector.close()
        self.assertEqual(self.post(quire, "/v1/completions", {"prompt": "Once", "max_tokens": 2})[0], 200)


if __name__ == "__main__":
    BIN = pathlib.Path(sys.argv.pop(1))
    unittest.main()
