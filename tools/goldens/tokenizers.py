"""Small vocabularies for the tokenizer tests, what the reference libraries make of them, and a differential run.

    tokenizers.py goldens                     rewrites tests/golden/tokenizer
    tokenizers.py fuzz --binary B [--count N] compares B (tokenize_file) with the reference libraries on N strings
    tokenizers.py unicode --binary B          compares every code point in a few surroundings

Needs the Python packages tokenizers and sentencepiece.
"""

import sys

sys.path.pop(0)  # this file has the name of the package

import argparse
import base64
import itertools
import json
import os
import pathlib
import random
import struct
import subprocess
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "tokenizer"

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# ---- The corpus: words that the script makes up, so that nothing is downloaded.

ALPHABETS = {
    "latin": ("bcdfghklmnprstvw", "aeiou"),
    "accents": ("bçdfğhłmñprśtvž", "áéîõüæ"),
    "greek": ("βγδζθκλμνξπρστφχ", "αεηιουω"),
    "cyrillic": ("бвгджзклмнпрстфхчш", "аеиоуыя"),
    "hebrew": ("בגדהוזחטילמנסעפצקרשת", "אוי"),
    "arabic": ("بتثجحخدذرزسشصضطظعغفقكلمنه", "اوي"),
    "devanagari": ("कखगघचजटडतदनपबमयरलवसह", "ािीुूेो"),
    "thai": ("กขคงจชดตทนบปพมยรลวสห", "ะาิีุู"),
    "hangul": ("가나다라마바사아자차카타파하", "각난달람밥삿앙"),
    "kana": ("かきくけさしすせたちつてなにのはひふ", "アイウエオン"),
    "han": ("天地人山水火木金土日月年中国学生大小", "上下左右東西南北"),
}
SENTENCES = [
    "The manager decides, the worker does.",
    "A block with more than one owner is never written!",
    "It's 12:45 and they're paying $1,234.56 for 7 books; we'll see what she'd say.",
    "def main(argc, argv):\n    return [x * 2 for x in range(100)]\n",
    "Größe, façade, naïve, résumé, œuvre, Łódź.",
    '{"name": "quire", "pages": [1, 2, 3], "open": true}\r\n',
    "Emoji: 😀 👩‍👩‍👧 🏳️‍🌈 ☕️ and the end.",
]


def make_corpus(rng):
    words = []
    for consonants, vowels in ALPHABETS.values():
        syllables = [c + v for c in consonants for v in vowels]
        words.append(["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(60)])
    lines = list(SENTENCES) * 4
    for _ in range(1500):
        language = rng.choice(words)
        line = rng.choices(language, k=rng.randint(3, 9))
        if rng.random() < 0.3:
            line.insert(rng.randint(0, len(line)), str(rng.randint(0, 10 ** rng.randint(1, 6))))
        lines.append(rng.choice([" ", " ", ", "]).join(line) + rng.choice([".", "!", "?", "", "\n"]))
    return lines


# ---- The vocabularies.


def special(content, **flags):
    return AddedToken(content, special=True, normalized=False, **flags)


def train_byte_level(corpus, pattern, normalizer, specials, extra, bos, ignore_merges, size):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens([special(s) for s in specials])
    tokenizer.add_tokens(extra)
    steps = [processors.ByteLevel(trim_offsets=False)]
    if bos:
        ids = [(bos, tokenizer.token_to_id(bos))]
        steps.append(processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=ids))
    tokenizer.post_processor = processors.Sequence(steps)
    return json.loads(tokenizer.to_str())


def train_mixed(corpus):
    """Everything that the usual models do not use."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Strip(),
            normalizers.NFKD(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\p{M}+"), ""),
            normalizers.Replace("--", "—"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Split("an", "merged_with_previous"),
            pre_tokenizers.Split(Regex("[aeiou]{2,}"), "merged_with_next"),
            pre_tokenizers.Split(Regex(r"\w+"), "removed", invert=True),
            pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
        ]
    )
    corpus = [line for line in corpus if all(ord(c) < 0x500 for c in line)]
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=400, special_tokens=["[UNK]"], show_progress=False)
    )
    tokenizer.add_special_tokens(
        [special("[CLS]"), special("[SEP]", lstrip=True), special("[MASK]", lstrip=True, rstrip=True)]
    )
    tokenizer.add_tokens(
        [
            AddedToken("[word]", single_word=True, normalized=False),
            AddedToken("Straße", single_word=True, normalized=True),
            AddedToken("[MA", normalized=False, rstrip=True),
            AddedToken("LOUD", normalized=True),
            AddedToken("a b", normalized=True, lstrip=True),
        ]
    )
    tokenizer.post_processor = processors.RobertaProcessing(
        ("[SEP]", tokenizer.token_to_id("[SEP]")), ("[CLS]", tokenizer.token_to_id("[CLS]"))
    )
    return json.loads(tokenizer.to_str())


def nmt_nfkc_subset(path):
    """A normalisation table with the kinds of rules of nmt_nfkc, but a tenth of its size."""
    rules = {0x2581: [0x20], 0xFEFF: [0x20], 0xFFFD: [0x20], 0x200D: [], 0x7F: []}
    rules.update({c: [] for c in [*range(1, 9), 0xB, *range(0xE, 0x20)]})
    rules.update({c: [0x20] for c in [9, 10, 12, 13, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029]})
    ranges = [(0xA0, 0x250), (0x1E00, 0x1E20), (0x2000, 0x2060), (0x2150, 0x2190), (0x3000, 0x3100), (0xFB00, 0xFB10)]
    ranges += [(0xFF00, 0xFFF0), (0xFDF0, 0xFDFD), (0x2460, 0x2480), (0x0958, 0x0960), (0x1D400, 0x1D420)]
    lines = []
    for c in itertools.chain.from_iterable(range(*r) for r in ranges):
        form = [ord(x) for x in unicodedata.normalize("NFKC", chr(c))]
        if form != [c] and c not in rules:
            rules[c] = form
    for c, form in rules.items():
        lines.append(f"{c:04X}\t{' '.join(f'{x:04X}' for x in form)}")
    for base, mark in itertools.product("aeioun", "\u0300\u0301\u0302\u0303\u0308"):
        form = unicodedata.normalize("NFC", base + mark)
        if len(form) == 1:
            lines.append(f"{ord(base):04X} {ord(mark):04X}\t{ord(form):04X}")
    path.write_text("\n".join(lines) + "\n")


def train_sentencepiece(corpus, directory, **options):
    (directory / "corpus.txt").write_text("\n".join(line.replace("\n", " ") for line in corpus))
    sentencepiece.SentencePieceTrainer.train(
        input=str(directory / "corpus.txt"),
        model_prefix=str(directory / "model"),
        character_coverage=0.995,
        num_threads=1,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString((directory / "model.model").read_bytes())
    model.trainer_spec.input[:] = []
    model.trainer_spec.model_prefix = ""
    model.normalizer_spec.normalization_rule_tsv = ""
    return model


def added(id, content):
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return dict(id=id, content=content, **flags)


def convert_bpe(model, style):
    """What a SentencePiece BPE model becomes as a tokenizer.json, in the older ("prepend") or newer style."""
    scores = {p.piece: p.score for p in model.pieces}
    ids = {p.piece: i for i, p in enumerate(model.pieces)}
    merges = []
    for piece, score in scores.items():
        if model.pieces[ids[piece]].type != 1:
            continue
        splits = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        splits = [s for s in splits if s[0] in ids and s[1] in ids]
        merges += [(score, s) for s in sorted(splits, key=lambda s: (ids[s[0]], ids[s[1]]))]
    merges.sort(key=lambda m: (m[0], len(m[1][0]), len(m[1][1])), reverse=True)
    space = "▁"
    strip = dict(type="Strip", content=" ", start=1, stop=0)
    replace = dict(type="Replace", pattern=dict(String=space), content=" ")
    sequence = [replace, dict(type="ByteFallback"), dict(type="Fuse"), strip]
    prepend = [dict(type="Prepend", prepend=space), dict(type="Replace", pattern=dict(String=" "), content=space)]
    bos = [dict(SpecialToken=dict(id="<s>", type_id=0)), dict(Sequence=dict(id="A", type_id=0))]
    return dict(
        version="1.0",
        truncation=None,
        padding=None,
        added_tokens=[added(i, model.pieces[i].piece) for i in range(3)],
        normalizer=dict(type="Sequence", normalizers=prepend) if style == "prepend" else None,
        pre_tokenizer=None
        if style == "prepend"
        else dict(type="Metaspace", replacement=space, prepend_scheme="first", split=False),
        post_processor=dict(
            type="TemplateProcessing",
            single=bos,
            pair=bos + [dict(Sequence=dict(id="B", type_id=1))],
            special_tokens={"<s>": dict(id="<s>", ids=[1], tokens=["<s>"])},
        ),
        decoder=dict(type="Sequence", decoders=sequence),
        model=dict(
            type="BPE",
            dropout=None,
            unk_token="<unk>",
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=True,
            byte_fallback=True,
            ignore_merges=False,
            vocab=ids,
            merges=[" ".join(m[1]) if style == "prepend" else list(m[1]) for m in merges],
        ),
    )


def convert_unigram(model):
    """What a SentencePiece unigram model becomes as a tokenizer.json (T5, XLM-R)."""
    charsmap = base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()
    eos = [dict(Sequence=dict(id="A", type_id=0)), dict(SpecialToken=dict(id="</s>", type_id=0))]
    metaspace = dict(type="Metaspace", replacement="▁", prepend_scheme="always", split=True)
    return dict(
        version="1.0",
        truncation=None,
        padding=None,
        added_tokens=[added(i, model.pieces[i].piece) for i in range(3)],
        normalizer=dict(
            type="Sequence",
            normalizers=[
                dict(type="Precompiled", precompiled_charsmap=charsmap),
                dict(type="Strip", strip_left=False, strip_right=True),
                dict(type="Replace", pattern=dict(Regex=" {2,}"), content="▁"),
            ],
        ),
        pre_tokenizer=metaspace,
        post_processor=dict(
            type="TemplateProcessing",
            single=eos,
            pair=eos,
            special_tokens={"</s>": dict(id="</s>", ids=[2], tokens=["</s>"])},
        ),
        decoder=metaspace,
        model=dict(
            type="Unigram",
            unk_id=0,
            vocab=[[p.piece, p.score] for p in model.pieces],
            byte_fallback=model.trainer_spec.byte_fallback,
        ),
    )


def mark_unused(model, step):
    """Such pieces are taken apart again (BPE) or not considered (unigram)."""
    for piece in model.pieces[260 + len(model.pieces) // 5 :: step]:
        if piece.type == 1:
            piece.type = 5


def train_all(out, full_rules):
    """Writes out/<name>/tokenizer.json or tokenizer.model. `full_rules`: the real nmt_nfkc (a quarter of a megabyte)."""
    corpus = make_corpus(random.Random(1))
    llama3 = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    qwen2 = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tools = [AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)]
    vocabularies = {
        "llama3": train_byte_level(corpus, LLAMA3_PATTERN, None, llama3, [], llama3[0], True, 1200),
        "qwen2": train_byte_level(corpus, QWEN2_PATTERN, normalizers.NFC(), qwen2, tools, None, False, 1000),
        "mixed": train_mixed(corpus),
    }
    if full_rules:
        vocabularies["o200k"] = train_byte_level(corpus, O200K_PATTERN, None, qwen2, [], None, False, 1000)
    with tempfile.TemporaryDirectory() as temporary:
        directory = pathlib.Path(temporary)
        bpe = train_sentencepiece(
            corpus,
            directory,
            model_type="bpe",
            vocab_size=900,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
        )
        symbols = train_sentencepiece(
            corpus,
            directory,
            model_type="bpe",
            vocab_size=500,
            user_defined_symbols=["<user>", "</user>", "the", "<u"],
            normalization_rule_name="identity",
            treat_whitespace_as_suffix=True,
        )
        mark_unused(symbols, 3)
        rules = dict(normalization_rule_name="nmt_nfkc")
        if not full_rules:
            nmt_nfkc_subset(directory / "rules.tsv")
            rules = dict(normalization_rule_tsv=str(directory / "rules.tsv"))
        unigram = train_sentencepiece(corpus, directory, model_type="unigram", vocab_size=900, **rules)
        bytes_unigram = None
        if full_rules:
            bytes_unigram = train_sentencepiece(
                corpus,
                directory,
                model_type="unigram",
                vocab_size=900,
                byte_fallback=True,
                user_defined_symbols=["<user>", "ab"],
                **rules,
            )
    vocabularies["sp_bpe"] = bpe
    vocabularies["sp_bpe_prepend"] = convert_bpe(bpe, "prepend")
    vocabularies["sp_bpe_metaspace"] = convert_bpe(bpe, "metaspace")
    vocabularies["sp_symbols"] = symbols
    vocabularies["sp_unigram"] = unigram
    vocabularies["sp_unigram_json"] = convert_unigram(unigram)
    if bytes_unigram is not None:
        for name, model, step in (("sp_bpe_unused", bpe, 4), ("sp_unigram_unused", bytes_unigram, 5)):
            unused = sentencepiece_model_pb2.ModelProto()
            unused.CopyFrom(model)
            mark_unused(unused, step)
            vocabularies[name] = unused
        vocabularies["sp_unigram_bytes"] = bytes_unigram
        vocabularies["sp_unigram_bytes_json"] = convert_unigram(bytes_unigram)
    for name, vocabulary in vocabularies.items():
        (out / name).mkdir(parents=True, exist_ok=True)
        if isinstance(vocabulary, dict):
            text = json.dumps(vocabulary, ensure_ascii=False, separators=(",", ":")) + "\n"
            (out / name / "tokenizer.json").write_text(text)
        else:
            (out / name / "tokenizer.model").write_bytes(vocabulary.SerializeToString(deterministic=True))
    return list(vocabularies)


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
    """The library adds and parses no special tokens and always hides them; what it does not do is None."""

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


# ---- The strings.

SPACES = [chr(c) for c in [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x2010), 0x2028, 0x2029]]
SPACES += ["\u202f", "\u205f", "\u2060", "\u3000", "\ufeff", "▁", "\r\n", "\n\n", "  ", "   ", "\t\t", " \n"]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "☕️", "👍🏽", "1️⃣", "©\u200d", "❤️‍🔥", "🧑🏿‍🚀"]
MARKS = [chr(c) for c in [*range(0x300, 0x370), 0x591, 0x64B, 0x93C, 0x94D, 0xE34, 0x1AB0, 0x20DD, 0x302A, 0xFE0F, 0x1D165]]
CONTRACTIONS = ["'s", "'S", "'ll", "'LL", "'lL", "'ſ", "’s", "'re", "'VE", "'d", "'t", "'m", "'M", "it's", "K\u212a", "'"]
TOKENS = ["<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "<s>", "</s>"]
TOKENS += ["<unk>", "[CLS]", "[SEP]", " [MASK] ", "[MASK]", "[word]", "Straße", "strasse", "LOUD", "a b", "[MA", "[UNK]"]
TOKENS += ["<user>", "</user>", "<u", "<0x41>", "<0xE4>", "<|im_start", "<|", "|>", "<s", "<s><s>", "the", "<pad>"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["…", "—", "“", "”", "。", "、", "！", "¿", "--", "...", "\u0964"]
COMPAT = ["ﬁ", "ﬆ", "①", "㍿", "ﷺ", "Ａ", "１", "ｶﾞ", "ℌ", "²", "½", "Ǆ", "ß", "İ", "ς", "ﾊﾟ", "㎏", "Å", "Ω", "각", "ㄱ", "क़"]


def valid_chars(first, last):
    return [c for c in range(first, last + 1) if not 0xD800 <= c < 0xE000]


def make_string(rng, corpus, kind):
    pick = rng.choice
    if kind == 0:  # ordinary text
        line = pick(corpus)
        at = rng.randint(0, len(line))
        return line[at : at + rng.randint(1, 60)]
    if kind == 1:  # any code points
        return "".join(chr(pick([rng.randint(0, 0x7F), rng.randint(0x80, 0xD7FF), rng.randint(0xE000, 0x10FFFF)]))
                       for _ in range(rng.randint(1, 12)))
    if kind == 2:  # one block
        start = rng.choice(range(0, 0x32000, 0x80))
        block = [c for c in valid_chars(start, start + 0x7F)] or [0x41]
        return "".join(pick([chr(pick(block)), chr(pick(block)), " ", pick(MARKS)]) for _ in range(rng.randint(1, 15)))
    if kind == 3:  # whitespace
        return "".join(pick([pick(SPACES), pick(SPACES), " ", "a", "1", "."]) for _ in range(rng.randint(1, 14)))
    if kind == 4:  # control characters
        return "".join(chr(rng.randint(0, 0x9F)) for _ in range(rng.randint(1, 12)))
    if kind == 5:  # long runs
        return pick(["a", " ", "\n", "é", "字", "😀", "ab", "1", ".", "\u0301", "▁", "\t ", "' "]) * rng.randint(2, 80)
    if kind == 6:  # marks and normal forms
        form = pick(["NFC", "NFD", "NFKC", "NFKD"])
        text = "".join(pick([pick("aeiouAEnsк字"), pick(MARKS), pick(MARKS), pick(COMPAT)]) for _ in range(rng.randint(1, 12)))
        return unicodedata.normalize(form, text)
    if kind == 7:  # numbers and code
        return "".join(pick([str(rng.randint(0, 10 ** rng.randint(1, 9))), pick(PUNCTUATION), " ", "x", "\n", "٣", "Ⅷ", "²"])
                       for _ in range(rng.randint(1, 14)))
    parts = [TOKENS, SPACES, EMOJI, CONTRACTIONS, PUNCTUATION, COMPAT, MARKS, ["a", "B", " the", "é", "字", "ß"]]
    if kind == 8:  # special tokens
        parts = [TOKENS, TOKENS, SPACES, [" ", "a", "word", "B."]]
    if kind == 9:  # contractions
        parts = [CONTRACTIONS, ["a", "They", " ", "字", "1", "\n"]]
    return "".join(pick(pick(parts)) for _ in range(rng.randint(1, 10)))


NUM_KINDS = 11


def make_strings(rng, corpus, count):
    strings = ["", " ", "  ", "\n", "\0", "a\0b", "▁", "<s>", "</s>", "\U0010ffff", "\ufffd", " a", "a "]
    return (strings + [make_string(rng, corpus, i % NUM_KINDS) for i in range(count)])[:count]


def make_ids(rng, reference, encoded):
    """Token lists to decode: what was encoded, and anything."""
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
    """Text that is not UTF-8 is refused, whatever is wrong with it."""
    invalid = [b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x28\xa1", b"ok\x80", b"\xf0\x9f\x98"]
    wrong = sum(ids != [[-1]] * 3 for ids in binary_encode(binary, directory, invalid))
    print(f"{name}: {len(invalid)} invalid strings, {wrong} accepted")
    return wrong


def fuzz(arguments):
    corpus = make_corpus(random.Random(1))
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        names = train_all(root, full_rules=True)
        for name in names:
            rng = random.Random(f"{arguments.seed} {name}")
            wrong += check_invalid(arguments.binary, root / name, name)
            wrong += compare(arguments.binary, root / name, name, rng, make_strings(rng, corpus, arguments.count))
    return 1 if wrong else 0


def check_unicode(arguments):
    """Every code point between letters, after a mark, and behind a space, for the vocabularies that look at properties."""
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
            # Per string of strings.json: [all special tokens, none added, none added or parsed]; one that equals the
            # next is left out as 0, what the reference does not do is null.
            encoded=[[0 if a == b else a, 0 if b == c else b, c] for a, b, c in encoded],
            # [tokens, text without special tokens, text with them]
            decoded=[[ids, *reference.decode(ids)] for ids in id_lists]
            + [[ids[0] or ids[2], *reference.decode(ids[0] or ids[2])] for ids in encoded[:: 8]],
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
    arguments = parser.parse_args()
    return arguments.function(arguments)


if __name__ == "__main__":
    sys.exit(main())
