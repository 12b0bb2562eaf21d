# SPDX-License-Identifier: Apache-2.0
"""A hub on this machine: lists of files, small files, and large files behind a redirect to a second server."""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "owner/name"


def git_digest(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def digest(data, is_large):
    return hashlib.sha256(data).hexdigest() if is_large else git_digest(data)


class Server(http.server.ThreadingHTTPServer):
    """`name` is "hub" or "store". `seen` has (server, path, headers) of each request of both."""

    daemon_threads = True

    def __init__(self, hub, name):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub, self.name = hub, name
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that goes away is no error here."""


class LocalHub:
    """Serves `files`, a dictionary from paths to bytes. The files of `large` are in the second server, with a sha256.
    `faults` has, by the name of a file or "list", what the next requests for it meet: each is a function that gets the
    handler, and returns True when it has answered."""

    def __init__(self, files, large=()):
        self.files, self.large = files, set(large)
        self.faults, self.seen = {}, []
        self.listed = {}  # What the list says about a file, if that is not the truth.
        self.has_ranges = True
        self.commit = COMMIT
        self.hang = threading.Event()
        self.hub, self.store = Server(self, "hub"), Server(self, "store")

    def close(self):
        self.hang.set()
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()

    def list(self):
        siblings = []
        for path, data in self.files.items():
            sibling = {"rfilename": path, "size": len(data), "blobId": git_digest(data)}
            if path in self.large:
                sibling["lfs"] = {"sha256": digest(data, True), "size": len(data), "pointerSize": 134}
            siblings.append(sibling | self.listed.get(path, {}))
        return json.dumps({"id": REPOSITORY, "sha": self.commit, "siblings": siblings}).encode()

    def requests(self, name, server=None):
        """Returns the headers of the requests for a file."""
        return [headers for where, path, headers in self.seen
                if path.endswith(f"/{name}") and server in (None, where)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments):  # pylint: disable=signature-differs
        pass

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return True

    def raw(self, data):
        self.wfile.write(data)
        self.close_connection = True  # pylint: disable=attribute-defined-outside-init
        return True

    def hang(self):
        self.server.hub.hang.wait(60)
        self.close_connection = True  # pylint: disable=attribute-defined-outside-init
        return True

    def trickle(self, begin):
        """Sends the beginning of an answer, and then one byte after the other without an end."""
        self.wfile.write(begin)
        for _ in range(2000):
            self.wfile.write(b"0")
            if self.server.hub.hang.wait(0.02):
                break
        self.close_connection = True  # pylint: disable=attribute-defined-outside-init
        return True

    def cut(self, data, num_bytes, start=0):
        """Sends the head of a whole answer, and only a part of its bytes."""
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        self.wfile.write(data[start:start + num_bytes])
        self.close_connection = True  # pylint: disable=attribute-defined-outside-init
        return True

    def do_GET(self):  # pylint: disable=invalid-name
        hub, path = self.server.hub, urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        hub.seen.append((self.server.name, path, dict(self.headers)))
        name = "list" if path.startswith("/api/") else re.sub("^.*/resolve/[^/]+/", "", path)
        is_behind = name in hub.large and self.server.name == "hub"
        faults = hub.faults.get(name, [])
        if faults and not is_behind and faults.pop(0)(self):
            return
        if name == "list":
            self.answer(200, hub.list())
        elif name not in hub.files:
            self.answer(404, X_Error_Code="EntryNotFound")
        elif is_behind:
            self.answer(302, Location=f"{hub.store.url}{self.path}")
        else:
            self.send_file(hub.files[name])

    def send_file(self, data):
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not asked or not self.server.hub.has_ranges:
            self.answer(200, data)
        elif int(asked[1]) >= len(data):
            self.answer(416)
        else:
            start = int(asked[1])
            self.answer(206, data[start:], Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")
