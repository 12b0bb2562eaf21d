# SPDX-License-Identifier: Apache-2.0
"""Tests which endpoints the Python client refuses. It runs where the package is installed."""

import unittest

import quire


class EndpointTest(unittest.TestCase):
    def test_addresses_of_grpc_are_taken(self):
        for endpoint in ("127.0.0.1:50051", "localhost:1", "manager.example:65535", "[::1]:50051",
                         "unix:/run/quire.sock", "unix:relative.sock", "unix:///run/quire.sock", "unix-abstract:quire",
                         "dns:///manager.example:50051", "dns:manager.example:50051", "ipv4:127.0.0.1:50051",
                         "ipv6:[::1]:50051,[::2]:50051", "127.0.0.1:1,unix:/b"):
            quire.Client(endpoint).close()
            quire.AsyncClient(endpoint)

    def test_other_addresses_are_refused_at_once_with_what_is_wrong(self):
        for endpoint, why in (
            ("", "is empty"),
            ("http://127.0.0.1:50051", "begins with http://"),
            ("https://127.0.0.1:50051", "begins with https://"),
            ("127.0.0.1", "has no port"),
            ("[::1]", "has no port"),
            (":50051", "has no host"),
            ("::1:50051", "put an IPv6 address in brackets"),
            ("localhost:", "has the port '', which is not a number in [1, 65535]"),
            ("localhost:0", "has the port '0'"),
            ("localhost:65536", "has the port '65536'"),
            ("localhost:http", "has the port 'http'"),
            ("localhost:50051/v1", "has a slash"),
            ("local host:50051", "has a space"),
            ("unix:", "has no path"),
            ("unix:" + 108 * "x", "has a path of 108 bytes, at most 107 are allowed"),
            ("dns:///localhost", "has no port"),
            ("127.0.0.1:1,node1", "'node1' has no port"),
        ):
            for kind in (quire.Client, quire.AsyncClient):
                with self.subTest(endpoint=endpoint, kind=kind), self.assertRaises(ValueError) as caught:
                    kind(endpoint)
                self.assertIn(why, str(caught.exception))
                self.assertIn("; expected host:port or unix:path", str(caught.exception))
        with self.assertRaisesRegex(TypeError, "^endpoint is None, it must be text$"):
            quire.Client(None)


if __name__ == "__main__":
    unittest.main()
