# SPDX-License-Identifier: Apache-2.0
"""Two managers and a Lease object of Kubernetes, behind an API server of this test that speaks HTTPS."""

import http.server
import json
import pathlib
import queue
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

SKIPPED = 77
TIMEOUT_S = 60
PATH = "/apis/coordination.k8s.io/v1/namespaces/quire/leases/quire-manager"


class ApiServer(http.server.ThreadingHTTPServer):
    """Has one Lease object. A write must name the version that was read."""

    def __init__(self, certificate, key):
        super().__init__(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.lock = threading.Lock()
        self.version = 0
        self.lease = {"kind": "Lease", "metadata": {"name": "quire-manager", "resourceVersion": "0"}}

    @property
    def url(self):
        return f"https://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        """A client that does not trust the certificate ends the connection."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def is_allowed(self):
        return self.path == PATH and self.headers["Authorization"] == "Bearer the-token"

    def do_GET(self):
        with self.server.lock:
            self.answer(200 if self.is_allowed() else 403, self.server.lease)

    def do_PUT(self):
        changed = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            if not self.is_allowed():
                return self.answer(403, {"message": "forbidden"})
            if changed["metadata"]["resourceVersion"] != str(self.server.version):
                return self.answer(409, {"message": "the object has been modified"})
            self.server.version += 1
            changed["metadata"]["resourceVersion"] = str(self.server.version)
            self.server.lease = changed
            return self.answer(200, changed)

    def log_message(self, *_):
        pass


class Manager:
    """A manager without workers. Its log is read by a thread."""

    def __init__(self, folder, name, api):
        self.address = f"unix:{folder}/{name}.sock"
        self.process = subprocess.Popen(
            [BINARIES / "quire-manager", f"--listen={self.address}", f"--workers=unix:{folder}/nobody.sock",
             "--metrics-listen=", "--standby=kubernetes", "--lease-duration=8s", f"--kubernetes-api={api}",
             f"--kubernetes-account={folder}"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)

    def wait_for(self, text):
        """Returns the next line with the text."""
        while True:
            line = self.lines.get(timeout=TIMEOUT_S)
            if text in line:
                return line

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class KubernetesStandbyTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="quire-kubernetes.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.certificate("ca.crt", "ca.key")
        self.api = self.serve("ca.crt", "ca.key")
        for name, text in (("token", "the-token"), ("namespace", "quire")):
            (pathlib.Path(self.folder) / name).write_text(text)

    def certificate(self, certificate, key):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=api", "-addext",
             "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key],
            cwd=self.folder, check=True, stderr=subprocess.DEVNULL)

    def serve(self, certificate, key):
        server = ApiServer(f"{self.folder}/{certificate}", f"{self.folder}/{key}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def start(self, name, api=None):
        manager = Manager(self.folder, name, (api or self.api).url)
        self.addCleanup(manager.stop)
        return manager

    def test_the_second_manager_takes_the_lease_when_the_first_one_is_killed_and_when_it_stops(self):
        first = self.start("first")
        self.assertIn("term 2", first.wait_for("leads from now on"))
        second = self.start("second")
        second.wait_for(f"standing by: the leader is {first.address}")
        first.process.kill()
        self.assertIn("term 3", second.wait_for("leads from now on"))
        third = self.start("third")
        third.wait_for(f"standing by: the leader is {second.address}")
        second.process.terminate()
        self.assertIn("term 4", third.wait_for("leads from now on"))
        self.assertEqual(second.process.wait(TIMEOUT_S), 0)

    def test_a_server_with_the_certificate_of_another_authority_gets_no_token(self):
        self.certificate("other.crt", "other.key")
        other = self.serve("other.crt", "other.key")
        manager = self.start("careful", other)
        self.assertIn("certificate", manager.wait_for("the lease cannot be read"))
        self.assertEqual(other.version, 0)


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        print("skipped: openssl is missing")
        sys.exit(SKIPPED)
    BINARIES = pathlib.Path(sys.argv.pop(1))
    unittest.main()
