# SPDX-License-Identifier: Apache-2.0
"""Chooses the files that quire-worker reads, and puts them into the cache of the hub."""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import sys
import urllib.parse

from hub_server import MAX_JSON_BYTES, Failure, Trouble, Unreachable, json_of
from model_name import PART, cache_folder
from partial_file import Partial, Progress, shown

# What quire-worker reads of a checkpoint beside its weights.
SMALL_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
               "chat_template.jinja", "chat_template.json", "special_tokens_map.json", "added_tokens.json")
NAMED_TEMPLATES = rf"additional_chat_templates/{PART}\.jinja"
WEIGHTS = "model.safetensors"
MAX_PARTS = 4096  # As in quire-worker.
INDEX = "model.safetensors.index.json"
LOCK_PAUSE_S = 0.2
MAX_FILE_BYTES = 1 << 62


def is_size(size):
    return isinstance(size, int) and 0 <= size <= MAX_FILE_BYTES


def gguf_part_names(name):
    """Returns the names of all parts of a model, or the name of a file that is whole."""
    part = re.search(r"-(\d{5})-of-(\d{5})\.gguf$", name, re.IGNORECASE)
    if not part or not 1 <= int(part[2]) <= MAX_PARTS:
        return [name]
    return [f"{name[:part.start()]}-{number:05}-of-{part[2]}{name[-len('.gguf'):]}"
            for number in range(1, int(part[2]) + 1)]


def shards_in(index):
    """Returns the names of the files that an index names."""
    try:
        shards = sorted(set(json_of(index.read_bytes())["weight_map"].values()))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Failure(f"{INDEX} has no weight_map ({error!r:.80})") from None
    for shard in shards:
        if not re.fullmatch(rf"{PART}\.safetensors", str(shard)):
            raise Failure(f"{INDEX} names the file {shard!r:.80}, which is no name of a safetensors file")
    return shards


class Download:
    """One model on its way into the cache: blobs by checksum, a snapshot with links to them, and a reference."""

    def __init__(self, hub, model, is_quiet):
        self.hub, self.model, self.is_quiet = hub, model, is_quiet
        self.cache = cache_folder()
        name = "models--" + model.repository.replace("/", "--")
        self.folder, self.locks = self.cache / name, self.cache / ".locks" / name
        self.progress = None

    def run(self):
        """Returns the path for quire-worker."""
        try:
            return self.download()
        except Unreachable as unreachable:
            path = self.cached()
            if path is None:
                raise
            print(f"{unreachable}; the cache has the model as the hub had it before", file=sys.stderr)
            return path

    def download(self):
        self.commit, files = self.hub.list_files(self.model)
        # Other names could steer a terminal, or lead out of the cache. quire-worker reads none of them.
        self.files = {path: file for path, file in files.items() if re.fullmatch(rf"{PART}(/{PART})*", path)}
        self.snapshot = self.folder / "snapshots" / self.commit
        if self.model.file:
            self.fetch(self.gguf_parts())
        else:
            small = self.small_files()
            self.fetch(small)
            self.fetch(small + self.weights())
        # The reference comes last, so that it never names a snapshot that lacks files.
        if self.model.revision != self.commit:
            self.link_others()
            self.write(self.folder / "refs" / self.model.revision, self.commit)
        return self.snapshot / (self.model.file or "")

    def link_others(self):
        """Lets the snapshot have the other models of the cache, too, as far as they have not changed."""
        for path in self.files:
            if path.lower().endswith(".gguf"):
                self.link_if_there(lambda path=path: [self.file(path)])
        self.link_if_there(lambda: self.small_files() + self.weights())

    def link_if_there(self, files):
        """Links the files of one model, all or none of them: `files` returns them."""
        with contextlib.suppress(OSError, Failure):
            files = files()
            if all((self.folder / "blobs" / file.digest).exists() for file in files):
                for file in files:
                    self.link(file)

    def cached(self):
        """Returns the path of the model if it is in the cache already."""
        commit = self.model.revision
        with contextlib.suppress(OSError, ValueError, Failure):
            if not re.fullmatch(r"[0-9a-f]{40}", commit):
                commit = (self.folder / "refs" / commit).read_text(encoding="utf-8").strip()
            snapshot = self.folder / "snapshots" / commit
            needed = gguf_part_names(self.model.file) if self.model.file else ["config.json"]
            if not self.model.file:
                needed += [WEIGHTS] if (snapshot / WEIGHTS).exists() else shards_in(snapshot / INDEX)
            if all((snapshot / name).exists() for name in needed):
                return snapshot / (self.model.file or "")
        return None

    def file(self, path):
        """Returns a file that the hub lists. What the hub says about it is checked, because it becomes a path."""
        file = self.files[path]
        length = {"sha256": 64, "sha1": 40}[file.kind]
        has_digest = isinstance(file.digest, str) and re.fullmatch(f"[0-9a-f]{{{length}}}", file.digest)
        if not is_size(file.size) or not has_digest:
            raise Failure(f"{path}: the hub lists no size and checksum of it")
        if path == INDEX and file.size > MAX_JSON_BYTES:
            raise Failure(f"{path} has {file.size} bytes, at most {MAX_JSON_BYTES} are read")
        return file

    def small_files(self):
        if "config.json" not in self.files:
            raise Failure(f"{self.model} has no config.json; {self.gguf_list()}")
        names = [name for name in SMALL_FILES if name in self.files]
        names += sorted(path for path in self.files if re.fullmatch(NAMED_TEMPLATES, path))
        if WEIGHTS not in self.files and INDEX not in self.files:
            pickles = [path for path in self.files if path.endswith((".bin", ".pt", ".pth"))]
            raise Failure(f"{self.model} has neither {WEIGHTS} nor {INDEX}" + (
                f"; {pickles[0]} is a pickle, which Quire does not read" if pickles else f"; {self.gguf_list()}"))
        return [self.file(name) for name in names + [INDEX] * (WEIGHTS not in self.files)]

    def weights(self):
        if WEIGHTS in self.files:
            return [self.file(WEIGHTS)]
        shards = shards_in(self.folder / "blobs" / self.file(INDEX).digest)
        for shard in shards:
            if shard not in self.files:
                raise Failure(f"{INDEX} names the file '{shard}', which the repository does not have")
        return [self.file(shard) for shard in shards]

    def gguf_parts(self):
        """Returns the files of a GGUF model: one, or all of its parts."""
        names = gguf_part_names(self.model.file)
        if self.model.file != names[0]:
            raise Failure(f"{self.model.file} is not the first part of its model, which is "
                          f"{self.model._replace(file=names[0])}")
        for name in names:
            if name not in self.files:
                raise Failure(f"there is no {self.model._replace(file=name)}; {self.gguf_list()}")
        return [self.file(name) for name in names]

    def gguf_list(self):
        found = sorted(path for path in self.files if path.lower().endswith(".gguf"))
        if not found:
            return "it has no GGUF file either"
        sizes = [self.files[path].size for path in found[:40]]
        names = [f"\n  {self.model._replace(file=path)}" + (f" ({shown(size)})" if is_size(size) else "")
                 for path, size in zip(found, sizes)]
        return "its GGUF files are:" + "".join(names) + ("\n  ..." if len(found) > 40 else "")

    def fetch(self, files):
        """Downloads what is not there."""
        blobs = self.folder / "blobs"
        for folder in (blobs, self.locks, self.snapshot):
            folder.mkdir(parents=True, exist_ok=True)
        missing = sum(file.size for file in files if not (blobs / file.digest).exists())
        partial = sum(path.stat().st_size for file in files if (path := blobs / f"{file.digest}.incomplete").exists())
        free = shutil.disk_usage(self.cache).free
        if missing - partial > free:
            raise Failure(f"{shown(missing - partial)} are missing, and {self.cache} has {shown(free)} free")
        self.progress = Progress(missing, self.is_quiet)
        for file in files:
            with self.lock(file):
                if not (blobs / file.digest).exists():
                    self.fetch_blob(file, blobs / file.digest)
            self.link(file)
        if self.progress.received:
            self.progress.finish()

    @contextlib.contextmanager
    def lock(self, file):
        """Holds the lock that the hub's own programs hold while they download this file."""
        with open(self.locks / f"{file.digest}.lock", "a", encoding="utf-8") as handle:
            is_said = False
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not is_said:
                        print(f"another process downloads {file.path}; waiting for it", file=sys.stderr)
                    is_said = True
                    self.hub.clock.sleep(LOCK_PAUSE_S)
            yield

    def fetch_blob(self, file, blob):
        path = blob.with_name(f"{blob.name}.incomplete")
        partial = Partial(path, file)
        self.progress.add(file.path, partial.size, is_received=False)
        with partial.out:
            self.hub.retry(lambda: self.receive(partial), lambda: partial.size)
            if partial.digest.hexdigest() != file.digest and partial.is_from_before:
                print(f"{file.path}: what an earlier download has left is wrong; beginning again", file=sys.stderr)
                self.restart(partial)
                self.hub.retry(lambda: self.receive(partial), lambda: partial.size)
            if partial.digest.hexdigest() != file.digest:
                path.unlink()
                raise Failure(f"{file.path}: the {file.kind} of what the server has sent is "
                              f"{partial.digest.hexdigest()}, the hub lists {file.digest}; the file has been removed")
            partial.out.flush()
            os.fsync(partial.out.fileno())
        path.replace(blob)

    def restart(self, partial):
        self.progress.add(partial.file.path, -partial.size, is_received=False)
        partial.restart()

    def receive(self, partial):
        """Receives the rest of a file."""
        file, start = partial.file, partial.size
        if start == file.size:
            return
        url = f"{self.hub.endpoint}/{self.model.repository}/resolve/{self.commit}/{urllib.parse.quote(file.path)}"
        with self.hub.open(url, file.path, start) as response:
            part = re.fullmatch(r"bytes (\d{1,19})-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            if start and (response.status != 206 or not part or int(part[1]) != start):
                self.restart(partial)  # The server sends the whole file, or another part than was asked for.
                if response.status == 206:
                    raise Trouble(f"{file.path}: the server sends another part than bytes {start} and on")
            for chunk in self.hub.chunks(response):
                partial.append(chunk)
                self.progress.add(file.path, len(chunk))
        if partial.size < file.size:
            raise Trouble(f"{file.path}: the connection was cut after {partial.size} of {file.size} bytes")

    def link(self, file):
        """Gives a blob its name in the snapshot."""
        place = self.snapshot / file.path
        target = os.path.relpath(self.folder / "blobs" / file.digest, place.parent)
        if place.is_symlink() and os.readlink(place) == target:
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
        temporary.symlink_to(target)
        temporary.replace(place)

    @staticmethod
    def write(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
