# SPDX-License-Identifier: Apache-2.0
"""Tests where the Python client connects, and what it says about servers that are no managers. It runs where the
package is installed."""

import asyncio
import contextlib
import socket
import socketserver
import tempfile
import threading
import unittest
from concurrent import futures

import grpc
import quire
from client_test import FakeError
from several_managers_test import FakeManager

CODES = grpc.StatusCode


class EventLoopTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.manager = FakeManager("a", f"unix:{folder.name}/a")
        self.addCleanup(self.manager.stop)

    def test_an_asynchronous_client_may_be_made_before_its_loop_runs(self):
        client = quire.AsyncClient(self.manager.address)

        async def use():
            async with client:
                texts = [r.text_delta async for r in client.generate("Hi")]
                return texts, (await client.complete("Hi"))[0].text, (await client.model()).name

        self.assertEqual(asyncio.run(use()), (["a"], "a", "a"))

    def test_a_client_of_another_loop_is_refused(self):
        client = quire.AsyncClient(self.manager.address)
        asyncio.run(client.model())
        for call in (client.model, lambda: client.complete("Hi")):
            with self.assertRaisesRegex(RuntimeError, "has connected in another event loop; make one client for each"):
                asyncio.run(call())

    def test_a_client_that_was_not_used_can_be_closed(self):
        asyncio.run(quire.AsyncClient(self.manager.address).close())


class HttpHandler(socketserver.BaseRequestHandler):
    """Answers everything that comes as an HTTP server does that does not know HTTP/2."""

    def handle(self):
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.request.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            while self.request.recv(4096):
                pass


class WrongServerTest(unittest.TestCase):
    def errors_of(self, endpoint):
        """The errors of a stream and of a call of both clients."""
        async def use(call):
            async with quire.AsyncClient(endpoint, timeout=60.0) as client:
                await call(client)

        with quire.Client(endpoint, timeout=60.0) as client:
            for call in (lambda: client.complete("Hi"), client.model, lambda: client.call("GetStatus",
                                                                                          quire.v1.GetStatusRequest())):
                with self.assertRaises(quire.Error) as caught:
                    call()
                yield caught.exception
        for call in (lambda c: c.complete("Hi"), lambda c: c.model()):
            with self.assertRaises(quire.Error) as caught:
                asyncio.run(use(call))
            yield caught.exception

    def test_an_http_server_is_named(self):
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), HttpHandler)
        server.daemon_threads = True
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever).start()
        self.addCleanup(server.shutdown)
        endpoint = f"127.0.0.1:{server.server_address[1]}"
        for error in self.errors_of(endpoint):
            self.assertIs(error.code, CODES.UNAVAILABLE)
            self.assertTrue(error.is_unreached())
            self.assertTrue(error.message.startswith(
                f"an HTTP server answers at {endpoint}, such as quire-openai or a metrics port; the manager's "
                "port is 50051 by default: failed to connect"), error.message)

    def test_a_server_without_the_service_is_named(self):
        def refuse(request, context):
            context.abort(CODES.UNIMPLEMENTED, "")  # As a server in C++ does, such as the worker.

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                return grpc.unary_unary_rpc_method_handler(refuse)

        server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
        server.add_generic_rpc_handlers([Handler()])
        endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        for error in self.errors_of(endpoint):
            self.assertIs(error.code, CODES.UNIMPLEMENTED)
            self.assertEqual(error.message, f"what answers at {endpoint} does not have this method; is it a worker, "
                                            "and not a manager?")

    def test_a_host_without_an_address_is_not_tried_again(self):
        # The texts of gRPC 1.51 and of gRPC 1.85.
        for text in ("DNS resolution failed for nohost.invalid:1: C-ares status is not ARES_SUCCESS qtype=AAAA "
                     "name=nohost.invalid is_balancer=0: Domain name not found",
                     "errors resolving nohost.invalid:1: [field:hostname lookup error:address lookup failed for "
                     "nohost.invalid:1: Domain name not found]"):
            self.assertTrue(quire.Error(FakeError(CODES.UNAVAILABLE, text)).is_unreached())


if __name__ == "__main__":
    unittest.main()
