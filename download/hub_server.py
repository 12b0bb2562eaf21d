# SPDX-License-Identifier: Apache-2.0
"""The hub as a server: lists of files and bytes of files by HTTP, with tries, redirects and a deadline."""

import collections
import contextlib
import http.client
import json
import os
import random
import re
import signal
import string
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

CHUNK_BYTES = 1 << 20
MAX_JSON_BYTES = 64 << 20
MAX_JSON_MARKS = 4_000_000  # Brackets, braces, colons and commas. A file in the list of the hub has 16.
MAX_INTEGER_DIGITS = 1000
MAX_FILES = 200_000
MAX_REDIRECTS = 5
MAX_PAUSE_S = 60
LIMIT_AGAIN_S = 1
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

File = collections.namedtuple("File", "path size kind digest")  # `kind` is sha256, or sha1 for a blob of git.


class Failure(Exception):
    """The download cannot succeed. The message is for the user."""


class Unreachable(Failure):
    """All tries have failed."""


class Trouble(Exception):
    """A try has failed, and another one may succeed after `pause_s`, if the server says that."""

    def __init__(self, message, pause_s=None):
        super().__init__(message)
        self.pause_s = pause_s


class Clock:
    """The deadline of the whole run."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def left(self):
        left = self.end - time.monotonic()
        if left <= 0:
            raise self.passed()
        return left

    def passed(self):
        return Failure(f"the deadline of {self.seconds:g} s (--deadline) has passed; the next run continues from here")

    @contextlib.contextmanager
    def limit(self):
        """Ends what runs inside at the deadline, for example a wait for an answer that comes byte by byte, which the
        timeout of a socket does not bound. For the main thread."""

        def end(*_):
            raise self.passed()

        before = signal.signal(signal.SIGALRM, end)
        try:
            # Repeatedly, because an exception in a destructor would be lost.
            signal.setitimer(signal.ITIMER_REAL, self.left(), LIMIT_AGAIN_S)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def sleep(self, seconds):
        time.sleep(min(seconds, self.left()))
        self.left()


class WithoutRedirects(urllib.request.HTTPRedirectHandler):
    """Leaves redirects to Hub.open, which knows who may get the token."""

    def http_error_302(self, *_arguments):  # pylint: disable=signature-differs
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def origin(url):
    """Returns scheme, host and port. The scheme is empty if the address is invalid."""
    try:
        parts = urllib.parse.urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "", None, None


def printable(text):
    """Returns what a server has sent without characters that could steer a terminal."""
    return "".join(character if character.isprintable() else "?" for character in str(text))


def json_of(text):
    """Returns the value of JSON that a server has sent. ValueError for anything that would be no list or index of a hub
    but would take long or break the reader: more values than a hub has files, deep nesting, long integers."""

    def integer(digits):
        if len(digits) > MAX_INTEGER_DIGITS:
            raise ValueError(f"an integer has {len(digits)} digits")
        return int(digits)

    # Each value but one follows such a mark.
    if sum(text.count(mark) for mark in (b"[", b"{", b":", b",")) > MAX_JSON_MARKS:
        raise ValueError(f"it has more than {MAX_JSON_MARKS} brackets, braces, colons and commas")
    try:
        return json.loads(text, parse_int=integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


class Hub:
    """The hub as a server: lists and files by HTTP."""

    def __init__(self, clock, timeout_s, retries, retry_wait_s):
        self.clock, self.timeout_s, self.retries, self.retry_wait_s = clock, timeout_s, retries, retry_wait_s
        self.endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self.token = os.environ.get("HF_TOKEN", "").strip()
        scheme, host, _ = origin(self.endpoint)
        if scheme not in ("http", "https") or not host or "@" in self.endpoint:
            raise Failure(f'HF_ENDPOINT is "{self.endpoint}", it must be https://HOST or http://HOST')
        if self.token and scheme == "http" and host not in THIS_MACHINE:
            raise Failure("HF_TOKEN is set, and HF_ENDPOINT has no TLS, so the token would be sent in plain text")
        if not re.fullmatch(r"[!-~]*", self.token):
            raise Failure("HF_TOKEN has characters that no token has")
        self.opener = urllib.request.build_opener(WithoutRedirects)
        self.direct_opener = urllib.request.build_opener(WithoutRedirects, urllib.request.ProxyHandler({}))

    def opener_for(self, url):
        """A proxy would read the token of a request in plain text, which is for this machine alone."""
        scheme, host, _ = origin(url)
        return self.direct_opener if scheme == "http" and host in THIS_MACHINE else self.opener

    def open(self, url, what, start=0):
        """Returns the response for a URL from byte `start` on. Only the hub gets the token, no server behind it."""
        for _ in range(MAX_REDIRECTS + 1):
            headers = {"User-Agent": "quire-download", "Accept-Encoding": "identity"}
            if start:
                headers["Range"] = f"bytes={start}-"
            if self.token and origin(url) == origin(self.endpoint):
                headers["Authorization"] = f"Bearer {self.token}"
            try:
                request = urllib.request.Request(url, headers=headers)
                with self.clock.limit():
                    return self.opener_for(url).open(request, timeout=self.timeout_s)
            except urllib.error.HTTPError as error:
                with error:
                    location = error.headers.get("Location")
                    if error.code not in (301, 302, 303, 307, 308) or not location:
                        raise self.refusal(error, url, what) from None
            except (OSError, http.client.HTTPException) as error:
                raise Trouble(self.reason(url, error)) from None
            except ValueError:
                raise Failure(f"{what}: {url[:200]!r} is no valid address") from None
            # http.client decodes headers as Latin-1. Quoted so, the bytes are again those that the server has sent.
            location = urllib.parse.quote(location, safe=string.punctuation, encoding="iso-8859-1", errors="replace")
            try:
                target = urllib.parse.urljoin(url, location)
            except ValueError:
                target = location
            if origin(target)[0] not in ("http", "https") or (origin(url)[0], origin(target)[0]) == ("https", "http"):
                raise Failure(f"{what}: {origin(url)[1]} redirects to {target[:200]!r}, which is no address with TLS")
            url = target
        raise Failure(f"{what}: more than {MAX_REDIRECTS} redirects")

    def reason(self, url, error):
        cause = getattr(error, "reason", error)
        if isinstance(cause, TimeoutError):
            return f"{origin(url)[1]} has sent nothing for {self.timeout_s:g} s (--timeout)"
        return f"{origin(url)[1]}: {printable(cause) or type(cause).__name__}"

    def refusal(self, error, url, what):
        """Returns the exception for an answer that is an error."""
        answer, kind = f"{what}: {origin(url)[1]} answers {error.code}", error.headers.get("X-Error-Code", "")
        if error.code in (408, 429) or error.code >= 500:
            after = error.headers.get("Retry-After", "")
            is_number = after.isdecimal() and len(after) <= MAX_INTEGER_DIGITS
            return Trouble(answer, min(int(after), MAX_PAUSE_S) if is_number else None)
        if error.code == 416:
            return Trouble(f"{answer}: it does not have the rest of the file")
        if origin(url) != origin(self.endpoint):
            return Trouble(answer)  # The address that the hub gives for a large file is valid for a limited time.
        if kind == "RevisionNotFound":
            return Failure(f"{answer}: there is no such revision")
        if error.code == 403 or kind == "GatedRepo":
            return Failure(f"{answer}: its terms must be accepted on the page of the model, and HF_TOKEN must be a "
                           f"token of an account that has done so ({'it is set' if self.token else 'it is not set'})")
        if error.code in (401, 404):
            return Failure(f"{answer}: there is no such model, or it is private" + (
                " and HF_TOKEN may not read it" if self.token else "; a private model needs HF_TOKEN"))
        return Failure(f"{answer} {printable(error.reason)}")

    def retry(self, attempt, progress=lambda: 0):
        """Calls `attempt` until it succeeds. Tries that make progress, as counted by `progress`, are not limited."""
        failures = 0
        while True:
            before = progress()
            try:
                return attempt()
            except Trouble as trouble:
                failures = 1 if progress() > before else failures + 1
                if failures > self.retries:
                    raise Unreachable(f"{trouble}; given up after {failures} tries without progress, the next run "
                                      "continues from here") from None
                pause_s = self.retry_wait_s * min(2 ** (failures - 1), 32) * random.uniform(0.5, 1)
                pause_s = max(min(pause_s, MAX_PAUSE_S), trouble.pause_s or 0)
                print(f"{trouble}; the next try is in {pause_s:.1f} s", file=sys.stderr)
                self.clock.sleep(pause_s)

    def list_files(self, model):
        """Returns the commit of a model's revision, and its files by path."""
        url = f"{self.endpoint}/api/models/{model.repository}/revision/{urllib.parse.quote(model.revision, safe='')}"
        what = f"hf:{model.repository}@{model.revision}"

        def read():
            text = bytearray()
            with self.open(f"{url}?blobs=true", what) as response:
                for chunk in self.chunks(response):
                    text += chunk
                    if len(text) > MAX_JSON_BYTES:
                        raise Failure(f"{what}: the list of files has more than {MAX_JSON_BYTES} bytes")
                if int(response.headers.get("Content-Length", len(text))) != len(text):
                    raise Trouble(f"{what}: the connection was cut")
            return bytes(text)

        try:
            listed = json_of(self.retry(read))
            if len(listed["siblings"]) > MAX_FILES:
                raise ValueError(f"it has {len(listed['siblings'])} files, at most {MAX_FILES} are read")
            commit, files = listed["sha"], [self.file_of(sibling) for sibling in listed["siblings"]]
            if not all(isinstance(file.path, str) for file in files):
                raise TypeError("rfilename")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Failure(f"{what}: {self.endpoint} sends no list of files as the hub does ({error!r:.80})") from None
        if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit):
            raise Failure(f"{what}: the commit is {commit!r:.80}, it must have 40 hexadecimal digits")
        return commit, {file.path: file for file in files}

    @staticmethod
    def file_of(sibling):
        lfs = sibling.get("lfs") or {}
        return File(sibling["rfilename"], lfs.get("size", sibling.get("size")), "sha256" if lfs else "sha1",
                    lfs.get("sha256") or sibling.get("blobId"))

    def chunks(self, response):
        while True:
            try:
                with self.clock.limit():
                    chunk = response.read1(CHUNK_BYTES)
            except (OSError, http.client.HTTPException) as error:
                raise Trouble(self.reason(response.url, error)) from None
            if not chunk:
                return
            yield chunk
