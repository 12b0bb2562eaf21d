# SPDX-License-Identifier: Apache-2.0
"""A proxy that cuts connections, for the tests of streams that resume."""

import contextlib
import socket
import threading


class CuttingProxy:
    """Forwards connections, and cuts each one when it has carried enough bytes from the server: `num_bytes` the first
    time, and a tenth more after each cut. A client that resumes may get all tokens that it has not seen in one
    response, so without the increase a fast server would never get a whole response through. The server is an address
    of TCP, or the path of a unix socket."""

    def __init__(self, server, num_bytes):
        self.server, self.num_bytes, self.num_cuts = server, num_bytes, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = self.connect()
                threading.Thread(target=self.forward, args=(client, server, None), daemon=True).start()
                limit = self.num_bytes * (1 + self.num_cuts / 10)
                threading.Thread(target=self.forward, args=(server, client, limit), daemon=True).start()

    def connect(self):
        if not isinstance(self.server, str):
            return socket.create_connection(self.server)
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.server)
        return server

    def forward(self, source, target, limit):
        num_bytes = 0
        with contextlib.suppress(OSError):
            while data := source.recv(300):
                target.sendall(data)
                num_bytes += len(data)
                if limit is not None and num_bytes > limit:
                    self.num_cuts += 1
                    break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        target.close()
