"""Checks which arguments client/python/generate.py refuses. It needs no gRPC."""

import contextlib
import importlib.util
import io
import os
import pathlib
import sys
import unittest
from unittest import mock

sys.modules["grpc"] = None  # An import of gRPC would fail.
PATH = pathlib.Path(__file__).resolve().parents[3] / "client/python/generate.py"
spec = importlib.util.spec_from_file_location("generate", PATH)
generate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generate)


def error_of(*arguments, token=""):
    """Returns the error of the program for these arguments and $QUIRE_TOKEN, or None."""
    output = io.StringIO()
    with (mock.patch.object(sys, "argv", ["generate.py", *arguments]),
          mock.patch.dict(os.environ, {"QUIRE_TOKEN": token}), contextlib.redirect_stderr(output)):
        try:
            generate.read_arguments()
        except SystemExit as end:
            assert end.code == 2
            return output.getvalue().strip().split("generate.py: error: ")[-1]
    return None


class GenerateTest(unittest.TestCase):
    def test_the_other_tls_options_need_the_authority(self):
        error = "--tls-ca is missing: --tls-cert, --tls-key and --tls-name mean nothing without it"
        for flags in (["--tls-cert=c", "--tls-key=k"], ["--tls-name=quire-manager"]):
            self.assertEqual(error_of(*flags), error)
        self.assertIsNone(error_of("--tls-ca=ca", "--tls-cert=c", "--tls-key=k", "--tls-name=n"))

    def test_a_certificate_and_its_key_belong_together(self):
        for flag in ("--tls-cert=c", "--tls-key=k"):
            self.assertEqual(error_of("--tls-ca=ca", flag),
                             "--tls-cert and --tls-key belong together: one of them is missing")

    def test_a_token_leaves_this_machine_only_with_tls(self):
        for endpoint in ("node1:50051", "10.0.0.1:50051", "dns:///node1:50051", "ipv4:127.0.0.1:1,10.0.0.1:1",
                         "[2001:db8::1]:50051"):
            error = f"--tls-ca is missing: a token is not sent to {endpoint} in plain text"
            self.assertEqual(error_of("Once", endpoint, "--token=secret"), error)
            self.assertEqual(error_of("Once", endpoint, token="secret"), error)
            self.assertIsNone(error_of("Once", endpoint))
        self.assertIsNone(error_of("Once", "node1:50051", "--token=secret", "--tls-ca=ca"))
        for endpoint in ("127.0.0.1:50051", "localhost:50051", "dns:///localhost:50051", "[::1]:50051",
                         "unix:/run/quire.sock"):
            self.assertIsNone(error_of("Once", endpoint, "--token=secret"))


if __name__ == "__main__":
    unittest.main()
