# SPDX-License-Identifier: Apache-2.0
"""The names of models, and the folder of the cache, as quire-worker has them (worker/model/hub_cache.h)."""

import collections
import os
import pathlib
import re

PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}"  # Of a path. It cannot lead out of a folder.
GGUF_FORM = "hf:owner/name/FILE.gguf"


class Model(collections.namedtuple("Model", "repository file revision")):
    """A name in its parts. `file` is None for a whole checkpoint."""

    def __str__(self):
        file = f"/{self.file}" if self.file else ""
        return f"hf:{self.repository}{file}" + (f"@{self.revision}" if self.revision != "main" else "")


def parse_name(text):
    """Reads hf:owner/name[/FILE.gguf][@revision]; hf: may be missing."""
    name, at, revision = text.removeprefix("hf:").partition("@")
    if at and not re.fullmatch(rf"{PART}(/{PART})*", revision):
        raise ValueError(f'{text}, its revision "{revision}" must be a branch, a tag or a commit')
    if ":" in name:
        raise ValueError(f'{text}, but a tag such as ":{name.partition(":")[2]}" names no file; write the file of the '
                         f"repository: {GGUF_FORM} (without a file, the GGUF files are listed)")
    found = re.fullmatch(rf"({PART}/{PART})(?:/({PART}(?:/{PART})*))?", name)
    if not found or "--" in found[1]:
        raise ValueError(f"{text}, a name of a model must be hf:owner/name or {GGUF_FORM}, with or without @revision")
    if found[2] and not found[2].lower().endswith(".gguf"):
        raise ValueError(f'{text}, its file "{found[2]}" must be a GGUF file; other checkpoints are downloaded whole, '
                         f"by hf:{found[1]}")
    return Model(found[1], found[2], revision or "main")


def cache_folder():
    """Returns the same folder as the hub's own programs and quire-worker."""
    variables = {name: os.path.expanduser(os.environ.get(name, "")) for name in
                 ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")}
    home = variables["HF_HOME"] or f"{variables['XDG_CACHE_HOME'] or os.path.expanduser('~/.cache')}/huggingface"
    return pathlib.Path(variables["HF_HUB_CACHE"] or variables["HUGGINGFACE_HUB_CACHE"] or f"{home}/hub")
