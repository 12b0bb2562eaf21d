# SPDX-License-Identifier: Apache-2.0
"""Controls a headless Chromium through its DevTools protocol over a pipe, and reads and writes PNG files. Needs only
Python's standard library.

The messages are JSON and end with a zero byte. The browser reads them from file descriptor 3 and writes them to 4.
https://chromedevtools.github.io/devtools-protocol/"""

import base64
import collections
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import zlib

PROGRAMS = ["chromium-headless-shell", "chromium"]
TIMEOUT_S = 60


def find():
    """Returns the path of the browser, or None if there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Page:
    """A page in its own browser. `complaints` has every error that the page has logged, thrown or caused."""

    def __init__(self, width=1200, height=900):
        self.profile = tempfile.TemporaryDirectory(prefix="quire-chromium.", ignore_cleanup_errors=True)
        to_browser, self.send_fd = os.pipe()
        self.receive_fd, from_browser = os.pipe()
        # The sandbox needs privileges that containers lack. It is not needed, because the page is our own.
        command = [find(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--hide-scrollbars", "--disable-background-networking", "--force-color-profile=srgb",
                   f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"]
        # Not sh: Debian's takes no file descriptors of two digits.
        line = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self.browser = subprocess.Popen(["bash", "-c", line, "bash", *command], pass_fds=[to_browser, from_browser],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.last_id = 0
        self.session = None
        self.complaints = []
        self.is_loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def close(self):
        # Debian's program is a script that waits for the browser.
        os.killpg(self.browser.pid, signal.SIGKILL)
        self.browser.wait()
        os.close(self.send_fd)
        os.close(self.receive_fd)
        self.profile.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, method, **parameters):
        self.last_id += 1
        message = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.send_fd, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self.last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.receive_fd], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.receive_fd, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self.is_loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(json.dumps(parameters["entry"]))

    def open(self, url):
        self.is_loaded = False
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + TIMEOUT_S
        while not self.is_loaded:
            self.note(self.receive(deadline))

    def resize(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=False)

    def prefer(self, scheme):
        """light or dark"""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression):
        """Returns the value of a JavaScript expression. Waits if it is a promise."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"]))
        return result["result"].get("value")

    def wait_for(self, expression):
        """Polls until the expression is true, and returns it."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {expression}")
            time.sleep(0.05)

    def click(self, x, y):
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"]:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, box=None):
        """Returns the PNG of a box {x, y, width, height}, or of the whole document."""
        if box is None:
            height = self.evaluate("document.documentElement.scrollHeight")
            box = {"x": 0, "y": 0, "width": self.evaluate("document.documentElement.clientWidth"), "height": height}
        shot = self.call("Page.captureScreenshot", format="png", clip={**box, "scale": 1}, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])


class Picture:
    """Returns the pixels of a PNG in the form that Chromium writes: 8 bits of red, green, blue and perhaps alpha."""

    def __init__(self, png):
        assert png[:8] == b"\x89PNG\r\n\x1a\n"
        data, at = b"", 8
        while at < len(png):
            size, kind = struct.unpack(">I4s", png[at:at + 8])
            body = png[at + 8:at + 8 + size]
            if kind == b"IHDR":
                self.width, self.height, depth, color, _, _, interlace = struct.unpack(">IIBBBBB", body)
                assert depth == 8 and color in (2, 6) and interlace == 0
                self.channels = 3 if color == 2 else 4
            elif kind == b"IDAT":
                data += body
            at += size + 12
        self.rows = self.unfilter(zlib.decompress(data))

    def unfilter(self, data):
        """Undoes the filters (PNG, section 9), which predict a byte from its left, upper and upper left ones."""
        rows, step, stride = [], self.channels, self.width * self.channels
        above = bytearray(stride)
        for y in range(self.height):
            kind, row = data[y * (stride + 1)], bytearray(data[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
            for x in range(stride) if kind else ():
                left = row[x - step] if x >= step else 0
                corner = above[x - step] if x >= step else 0
                up = above[x]
                guess = left + up - corner
                paeth = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
                row[x] = (row[x] + (0, left, up, (left + up) // 2, paeth)[kind]) & 255
            rows.append(row)
            above = row
        return rows

    def at(self, x, y):
        """(red, green, blue)"""
        return tuple(self.rows[int(y)][int(x) * self.channels:int(x) * self.channels + 3])

    def packed(self):
        """A PNG of the same picture with a palette of at most 256 colours: the 128 most frequent and, of the others,
        the most frequent ones in coarse steps; each other colour becomes the nearest of them."""
        pixels = [bytes(row[i:i + 3]) for row in self.rows for i in range(0, len(row), self.channels)]
        frequent = collections.Counter(pixels).most_common()
        coarse = collections.Counter()
        for color, count in frequent[128:]:
            coarse[bytes(value & ~31 | 16 for value in color)] += count
        palette = list(dict.fromkeys([color for color, _ in frequent[:128] + coarse.most_common(128)]))
        index = {color: i for i, color in enumerate(palette)}
        for color in set(pixels) - index.keys():
            near = min(palette, key=lambda other: sum((a - b) ** 2 for a, b in zip(color, other)))
            index[color] = index[near]
        rows = [bytes(map(index.get, pixels[i:i + self.width])) for i in range(0, len(pixels), self.width)]
        chunks = [(b"IHDR", struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)),
                  (b"PLTE", b"".join(palette)),
                  (b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 9)), (b"IEND", b"")]
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in chunks)
