# SPDX-License-Identifier: Apache-2.0
"""A file that is being downloaded, and how far the download is."""

import hashlib
import sys
import time

from hub_server import CHUNK_BYTES, Failure


def shown(num_bytes):
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000 or unit == "GB":
            return f"{num_bytes:.{0 if unit == 'bytes' else 1}f} {unit}"
        num_bytes /= 1000
    return None


class Partial:
    """The bytes of a file that have arrived, in BLOB.incomplete, and their checksum."""

    def __init__(self, path, file):
        self.file = file
        self.out = open(path, "a+b")  # pylint: disable=consider-using-with
        self.size = self.out.tell()
        self.is_from_before = self.size > 0
        self.restart_digest()
        if self.size > file.size:
            self.restart()
        self.out.seek(0)
        while chunk := self.out.read(CHUNK_BYTES):
            self.digest.update(chunk)

    def restart_digest(self):
        # Git puts the size before the bytes of a blob.
        self.digest = hashlib.new(self.file.kind)
        if self.file.kind == "sha1":
            self.digest.update(b"blob %d\0" % self.file.size)

    def restart(self):
        self.out.truncate(0)
        self.size, self.is_from_before = 0, False
        self.restart_digest()

    def append(self, chunk):
        if self.size + len(chunk) > self.file.size:
            raise Failure(f"{self.file.path}: the server sends more than the {self.file.size} bytes that the hub lists")
        self.out.write(chunk)
        self.digest.update(chunk)
        self.size += len(chunk)


class Progress:
    """Shows how far the download is: on a terminal in one line, elsewhere every 10 s."""

    def __init__(self, total, is_quiet):
        self.total, self.done, self.received, self.is_quiet = total, 0, 0, is_quiet
        self.begin = self.last = time.monotonic()

    def add(self, path, num_bytes, is_received=True):
        self.done += num_bytes
        self.received += num_bytes if is_received else 0
        now = time.monotonic()
        on_terminal = sys.stderr.isatty()
        if self.is_quiet or now - self.last < (0.2 if on_terminal else 10):
            return
        self.last = now
        rate = self.received / (now - self.begin)
        line = f"{shown(self.done)} of {shown(self.total)}, {shown(rate)}/s, {path}"
        line, end = (f"\r{line[:100]:100}", "") if on_terminal else (line, "\n")
        print(line, end=end, file=sys.stderr, flush=True)

    def finish(self):
        if not self.is_quiet:
            end = "\r" + " " * 100 + "\r" if sys.stderr.isatty() else ""
            print(f"{end}received {shown(self.received)} in {time.monotonic() - self.begin:.1f} s", file=sys.stderr)
