# SPDX-License-Identifier: Apache-2.0
"""Tests how the Python client finds the manager that leads among several addresses. It runs where the package is
installed, with servers of this process in the place of managers."""

import asyncio
import contextlib
import tempfile
import time
import unittest
from concurrent import futures

import grpc
import quire
from client_test import details_of
from quire import _wire, v1

CODES = grpc.StatusCode


class FakeManager:
    """Refuses the calls of InferenceService while it does not lead, and counts all calls by their names."""

    def __init__(self, name, address):
        self.name, self.address, self.calls = name, address, []
        self.leads, self.is_cut, self.server = True, False, None
        self.stops = self.is_drained = False
        self.start()

    def start(self):
        self.server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        handlers = {
            "quire.v1.InferenceService": {
                "GetModel": self.handler(unary, self.get_model, v1.GetModelRequest),
                "Generate": self.handler(stream, self.generate, v1.GenerateRequest),
                "Resume": self.handler(stream, self.resume, v1.ResumeRequest),
            },
            "quire.v1.AdminService": {"GetStatus": self.handler(unary, self.get_status, v1.GetStatusRequest)},
            "grpc.health.v1.Health": {
                "Check": self.handler(unary, self.check, _wire.message("grpc.health.v1.HealthCheckRequest"))},
        }
        self.server.add_generic_rpc_handlers(tuple(
            grpc.method_handlers_generic_handler(service, methods) for service, methods in handlers.items()))
        self.server.add_insecure_port(self.address)
        self.server.start()

    def handler(self, kind, answer, request):
        return kind(answer, request_deserializer=request.FromString,
                    response_serializer=lambda response: response.SerializeToString())

    def stop(self):
        if self.server is not None:
            self.server.stop(None).wait()
            self.server = None

    def note(self, call, context):
        self.calls.append(call)
        if not self.leads:
            self.refuse(context, "NOT_LEADER", "this manager stands by")

    def refuse(self, context, reason, message):
        context.set_trailing_metadata(details_of(("ErrorInfo", {"reason": reason, "domain": "quire"})))
        context.abort(CODES.UNAVAILABLE, message)

    def get_model(self, request, context):
        self.note("GetModel", context)
        return v1.GetModelResponse(name=self.name)

    def get_status(self, request, context):
        self.calls.append("GetStatus")
        if self.is_cut:
            context.abort(CODES.UNAVAILABLE, "Socket closed")
        return v1.GetStatusResponse(version=self.name)

    def check(self, request, context):
        return _wire.message("grpc.health.v1.HealthCheckResponse")(status=1 if self.leads else 2)

    def generate(self, request, context):
        self.note("Generate", context)
        if self.stops:
            self.refuse(context, "DRAINING", "this manager stops")
        token = "token" if request.on_disconnect == v1.ON_DISCONNECT_DETACH else ""
        yield v1.GenerateResponse(token_ids=[1], text_delta=self.name, resume_token=token)
        if self.is_drained:
            self.leads = False
            self.refuse(context, "DRAINING", "this manager stops")
        if self.is_cut:
            self.leads = False
            context.abort(CODES.UNAVAILABLE, "Socket closed")

    def resume(self, request, context):
        self.note("Resume", context)
        yield v1.GenerateResponse(position=1, token_ids=[2], text_delta=self.name)


class WaitingClient:
    """An AsyncClient whose methods are called like the methods of Client, so that both run the same tests."""

    def __init__(self, endpoint, **options):
        self.loop = asyncio.new_event_loop()
        self.client = quire.AsyncClient(endpoint, **options)

    def close(self):
        self.loop.run_until_complete(self.client.close())
        self.loop.close()

    def __getattr__(self, name):
        return lambda *args, **options: self.loop.run_until_complete(getattr(self.client, name)(*args, **options))


class SeveralManagersTest(unittest.TestCase):
    kind = quire.Client

    def setUp(self):
        folder = self.enter(tempfile.TemporaryDirectory())
        self.managers = [FakeManager(name, f"unix:{folder}/{name}") for name in "ab"]
        self.endpoint = ",".join(manager.address for manager in self.managers)
        for manager in self.managers:
            self.addCleanup(manager.stop)
        self.client = self.enter(contextlib.closing(self.kind(self.endpoint)))

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def generate(self, **options):
        return "".join(sample.text for sample in self.client.complete("Hi", **options))

    def test_calls_go_past_the_one_that_stands_by_and_stay_with_the_leader(self):
        a, b = self.managers
        a.leads = False
        self.assertEqual((self.client.model().name, self.generate(), self.client.model().name), ("b", "b", "b"))
        self.assertEqual(a.calls, ["GetModel"])
        a.leads, b.leads = True, False
        self.assertEqual((self.generate(), self.client.model().name), ("a", "a"))

    def test_calls_go_past_the_one_that_is_gone(self):
        a, b = self.managers
        a.stop()
        self.assertEqual((self.generate(), self.client.model().name), ("b", "b"))
        # The client finds the one that is started again.
        a.start()
        b.leads = False
        self.assertEqual(self.client.model().name, "a")
        b.stop()
        self.assertEqual(self.generate(), "a")

    def test_calls_that_every_manager_answers_go_to_the_leader(self):
        a, b = self.managers
        a.leads = False
        self.assertEqual(self.client.call("GetStatus", v1.GetStatusRequest()).version, "b")
        self.assertNotIn("GetStatus", a.calls)
        b.leads = False
        with self.assertRaisesRegex(quire.Error, "stands by"):
            self.client.call("GetStatus", v1.GetStatusRequest(), timeout=1)

    def test_a_call_that_every_manager_answers_is_made_once(self):
        a, b = self.managers
        a.is_cut = True
        with self.assertRaisesRegex(quire.Error, "Socket closed"):
            self.client.call("GetStatus", v1.GetStatusRequest())
        self.assertEqual((a.calls, b.calls), (["GetModel", "GetStatus"], []))

    def test_a_stream_resumes_where_the_next_leader_is(self):
        a, b = self.managers
        a.is_cut = True
        self.assertEqual(self.generate(), "ab")
        self.assertEqual((a.calls, b.calls), (["Generate"], ["Resume"]))

    def test_a_request_goes_past_the_manager_that_stops(self):
        a, b = self.managers
        a.stops = True
        self.assertEqual((self.generate(), self.generate()), ("b", "b"))
        self.assertEqual(a.calls, ["Generate"])

    def test_a_request_waits_until_the_next_manager_leads_after_the_one_that_stops(self):
        a, b = self.managers
        a.stops, b.leads = True, False
        with futures.ThreadPoolExecutor() as pool:
            election = pool.submit(self.elect, b, 3)
            self.assertEqual(self.generate(), "b")
            election.result()

    def test_a_client_of_one_manager_hears_at_once_that_it_stops(self):
        a = self.managers[0]
        a.stops = True
        client = self.enter(contextlib.closing(self.kind(a.address)))
        with self.assertRaisesRegex(quire.Error, "this manager stops"):
            client.complete("Hi")
        self.assertEqual(a.calls, ["Generate"])

    def test_a_stream_that_a_stopping_manager_ends_continues_with_the_next_one(self):
        a, b = self.managers
        a.is_drained = True
        self.assertEqual(self.generate(), "ab")
        self.assertEqual((a.calls, b.calls), (["Generate"], ["Resume"]))

    def test_a_stream_that_does_not_resume_is_sent_to_the_leader(self):
        a, b = self.managers
        a.leads = False
        with contextlib.closing(quire.Client(self.endpoint)) as client:
            request = v1.GenerateRequest(text="Hi")
            self.assertEqual([r.text_delta for r in client.stream(request)], ["b"])
            b.is_cut = True
            with self.assertRaisesRegex(quire.Error, "Socket closed"):
                list(client.stream(request))

    def test_a_call_waits_for_a_leader_until_its_time_is_up(self):
        a, b = self.managers
        a.leads = b.leads = False
        for call in (lambda: self.generate(timeout=1), lambda: self.client.call("GetModel", v1.GetModelRequest(),
                                                                              timeout=1)):
            with self.assertRaisesRegex(quire.Error, "stands by"):
                call()
        num_before = len(b.calls)
        with futures.ThreadPoolExecutor() as pool:
            election = pool.submit(self.elect, b, num_before + 3)
            self.assertEqual(self.generate(), "b")
            election.result()

    def elect(self, manager, num_calls):
        while len(manager.calls) < num_calls:
            time.sleep(0.001)
        manager.leads = True

    def test_a_call_fails_at_once_when_nobody_is_there(self):
        for manager in self.managers:
            manager.stop()
        start = time.monotonic()
        for call in (self.client.model, self.generate):
            with self.assertRaisesRegex(quire.Error, "UNAVAILABLE"):
                call()
        self.assertFalse(self.client.is_ready())
        self.assertLess(time.monotonic() - start, 30, "the time of a stream is 300 s")

    def test_health_is_that_of_the_one_that_serves(self):
        self.managers[0].leads = False
        self.assertTrue(self.client.is_ready())
        self.managers[1].leads = False
        self.assertFalse(self.client.is_ready())

    def test_every_address_is_checked(self):
        with self.assertRaisesRegex(ValueError, "the endpoint is empty"):
            quire.Client("127.0.0.1:1,")
        with self.assertRaisesRegex(ValueError, "a token is not sent to node1:1 in plain text"):
            quire.Client("127.0.0.1:1,node1:1", token="secret")
        # This list is one address of gRPC.
        with contextlib.closing(quire.Client("ipv4:127.0.0.1:1,127.0.0.2:1")) as client:
            self.assertEqual(len(client._managers.all), 1)


class AsyncSeveralManagersTest(SeveralManagersTest):
    kind = WaitingClient


if __name__ == "__main__":
    unittest.main()
