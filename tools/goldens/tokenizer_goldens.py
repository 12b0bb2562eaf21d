# SPDX-License-Identifier: Apache-2.0
"""Writes small vocabularies for the tokenizer tests, with the results of the reference libraries. Also compares our
results with the libraries on random text.

    tokenizer_goldens.py goldens                     rewrites tests/golden/tokenizer
    tokenizer_goldens.py fuzz --binary B [--count N] compares B (tokenize_file) with the libraries on N strings
    tokenizer_goldens.py unicode --binary B          compares every code point in a few contexts

Needs the Python packages tokenizers and sentencepiece.
"""

import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece
from tokenizers import Tokenizer

from tokenizer_strings import make_strings, valid_chars
from tokenizer_vocabularies import make_corpus, train_all

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "tokenizer"

# ---- The references.


class HfReference:
    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(str(path))
        self.tokenizer.no_truncation()
        self.size = self.tokenizer.get_vocab_size()

    def encode(self, text):
        self.tokenizer.encode_special_tokens = False
        first = [self.tokenizer.encode(text, add_special_tokens=a).ids for a in (True, False)]
        self.tokenizer.encode_special_tokens = True
        plain = self.tokenizer.encode(text, add_special_tokens=False).ids
        return first + [plain]

    def decode(self, ids):
        return [self.tokenizer.decode(ids, skip_special_tokens=s) for s in (True, False)]


class SentencePieceReference:
    """The library neither adds nor parses special tokens, and always hides them. Its missing results are None."""

    def __init__(self, path):
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.size = self.processor.get_piece_size()

    def encode(self, text):
        return [None, None, self.processor.encode(text)]

    def decode(self, ids):
        return [self.processor.decode(ids), None]


def load_reference(directory):
    if (directory / "tokenizer.json").exists():
        return HfReference(directory / "tokenizer.json")
    return SentencePieceReference(directory / "tokenizer.model")


def make_ids(rng, reference, encoded):
    """Returns token lists to decode: the encoded strings, and random tokens."""
    lists = [ids[0] if ids[0] is not None else ids[2] for ids in encoded]
    for _ in range(len(encoded) // 4):
        lists.append([rng.randrange(reference.size) for _ in range(rng.randint(0, 12))])
    for _ in range(len(encoded) // 4):  # runs of low ids: special, byte and single-character tokens
        lists.append([rng.randrange(min(300, reference.size)) for _ in range(rng.randint(1, 10))])
    return lists


# ---- The binary.


def counted(items, data):
    return struct.pack("<I", items) + data


def read_counted(data, width):
    pos = 0
    while pos < len(data):
        (count,) = struct.unpack_from("<I", data, pos)
        yield data[pos + 4 : pos + 4 + count * width]
        pos += 4 + count * width


def run_binary(binary, command, directory, data):
    with tempfile.TemporaryDirectory() as temporary:
        source, target = os.path.join(temporary, "in"), os.path.join(temporary, "out")
        pathlib.Path(source).write_bytes(data)
        subprocess.run([binary, command, str(directory), source, target], check=True)
        return pathlib.Path(target).read_bytes()


def binary_encode(binary, directory, strings):
    encoded = [s if isinstance(s, bytes) else s.encode() for s in strings]
    data = run_binary(binary, "encode", directory, b"".join(counted(len(e), e) for e in encoded))
    lists = [list(struct.unpack(f"<{len(b) // 4}i", b)) for b in read_counted(data, 4)]
    return [lists[i : i + 3] for i in range(0, len(lists), 3)]


def binary_decode(binary, directory, id_lists):
    data = b"".join(counted(len(ids), struct.pack(f"<{len(ids)}i", *ids)) for ids in id_lists)
    texts = list(read_counted(run_binary(binary, "decode", directory, data), 1))
    return [texts[i : i + 2] for i in range(0, len(texts), 2)]


def report(name, what, case, expected, found, shown):
    if shown < 8:
        print(f"{name}: {what} of {case!r}\n   expected {expected}\n   found    {found}")
    return shown + 1


def compare(binary, directory, name, rng, strings):
    reference = load_reference(directory)
    expected = [reference.encode(s) for s in strings]
    found = binary_encode(binary, directory, strings)
    wrong = 0
    for text, want, have in zip(strings, expected, found):
        for which, w, h in zip(("encode", "encode without specials", "encode unparsed"), want, have):
            if w is not None and w != h:
                wrong = report(name, which, text, w, h, wrong)
    id_lists = make_ids(rng, reference, expected)
    for ids, have in zip(id_lists, binary_decode(binary, directory, id_lists)):
        for which, w, h in zip(("decode", "decode with specials"), reference.decode(ids), have):
            if w is not None and w.encode() != h:
                wrong = report(name, which, ids, w.encode(), h, wrong)
    print(f"{name}: {len(strings)} strings, {len(id_lists)} token lists, {wrong} differences", flush=True)
    return wrong


def check_invalid(binary, directory, name):
    """Checks that every kind of invalid UTF-8 is refused."""
    invalid = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x28\xa1"]
    invalid += [b"ok\x80", b"\xf0\x9f\x98"]
    wrong = sum(ids != [[-1]] * 3 for ids in binary_encode(binary, directory, invalid))
    print(f"{name}: {len(invalid)} invalid strings, {wrong} accepted")
    return wrong


def fuzz(arguments):
    corpus = make_corpus(random.Random(1))
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        names = train_all(root, full_rules=True)
        for name in arguments.only.split(",") if arguments.only else names:
            rng = random.Random(f"{arguments.seed} {name}")
            wrong += check_invalid(arguments.binary, root / name, name)
            wrong += compare(arguments.binary, root / name, name, rng, make_strings(rng, corpus, arguments.count))
    return 1 if wrong else 0


def check_unicode(arguments):
    """Every code point between letters, behind a space and before a mark, where properties matter."""
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        names = train_all(root, full_rules=True)
        for name in ("llama3", "qwen2", "o200k", "mixed", "sp_unigram_bytes_json", "sp_unigram_bytes"):
            if name not in names:
                continue
            strings = []
            for c in valid_chars(0, 0x10FFFF):
                if 0xF0000 <= c or 0xE0200 <= c < 0xE0000:
                    continue
                if 0xE000 <= c < 0xF900 or unicodedata.category(chr(c)) == "Cn" and 0x33000 <= c:
                    continue
                strings.append(f"ab{chr(c)}cd1{chr(c)} {chr(c)}\u0301.{chr(c)}")
            wrong += compare(arguments.binary, root / name, name, random.Random(0), strings)
    return 1 if wrong else 0


# ---- The goldens.


def goldens(arguments):
    corpus = make_corpus(random.Random(1))
    names = train_all(GOLDEN, full_rules=False)
    rng = random.Random(7)
    strings = [s[:24] for s in make_strings(rng, corpus, arguments.count)]
    (GOLDEN / "strings.json").write_text(json.dumps(strings, ensure_ascii=True, indent=0) + "\n")
    for name in names:
        reference = load_reference(GOLDEN / name)
        encoded = [reference.encode(s) for s in strings]
        id_lists = make_ids(rng, reference, encoded)[len(strings) :][: arguments.count // 4]
        cases = dict(
            # For each string of strings.json: [all special tokens, none added, none added or parsed]. An entry that
            # equals the next one is replaced by 0. A case that the reference does not support is null.
            encoded=[[0 if a == b else a, 0 if b == c else b, c] for a, b, c in encoded],
            # [tokens, text without special tokens, text with them]
            decoded=[[ids, *reference.decode(ids)] for ids in id_lists]
            + [[ids[0] or ids[2], *reference.decode(ids[0] or ids[2])] for ids in encoded[::8]],
        )
        lines = [f'"{key}":[\n' + ",\n".join(json.dumps(v, separators=(",", ":")) for v in values) + "\n]"
                 for key, values in cases.items()]
        (GOLDEN / name / "cases.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function, count in (("goldens", goldens, 330), ("fuzz", fuzz, 10000), ("unicode", check_unicode, 0)):
        command = commands.add_parser(name)
        command.set_defaults(function=function)
        command.add_argument("--count", type=int, default=count)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--binary")
        command.add_argument("--only", help="names of vocabularies, with commas")
    arguments = parser.parse_args()
    return arguments.function(arguments)


if __name__ == "__main__":
    sys.exit(main())
