# SPDX-License-Identifier: Apache-2.0
"""Small vocabularies in the styles of well-known models, trained on invented words."""

import base64
import itertools
import json
import pathlib
import random
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

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


def pattern(kind, text, behavior="Isolated", invert=False):
    return dict(type="Split", pattern={kind: text}, behavior=behavior, invert=invert)


def byte_level(use_regex):
    return dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=use_regex)


# How other models split their text (DeepSeek, Falcon, StarCoder, BLOOM, GPT-2, Tekken), and patterns that Oniguruma and
# PCRE2 interpret differently.
STYLES = {
    "deepseek": [
        pattern("Regex", r"\p{N}{1,3}"),
        pattern("Regex", "[一-龥\u3040-ゟ゠-ヿ]+"),
        pattern(
            "Regex",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        byte_level(False),
    ],
    "falcon": [
        dict(type="Punctuation", behavior="Contiguous"),
        byte_level(True),
        dict(type="Digits", individual_digits=False),
        pattern("Regex", "[0-9][0-9][0-9]"),
    ],
    "starcoder": [dict(type="Digits", individual_digits=True), byte_level(True)],
    "bloom": [pattern("Regex", r" ?[^(\s|[.,!?…。，、।۔،])]+"), byte_level(False)],
    "gpt2": [byte_level(True)],
    "tekken": [
        pattern(
            "Regex",
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
            r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ),
        byte_level(False),
    ],
    "cl100k": [
        pattern(
            "Regex",
            r"(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*"
            r"|\s*[\r\n]|\s+(?!\S)|\s+",
        ),
        byte_level(False),
    ],
    "words": [
        pattern("Regex", r"\w+|\W", "MergedWithPrevious"),
        pattern("Regex", r"\b\d{2}+|\B\h\b", "MergedWithNext"),
        pattern("String", ". ", "Contiguous"),
        byte_level(False),
    ],
    "ruby": [
        pattern("Regex", r"(?m:a.b)|^.$|a(?i)B|[[:space:][xy]]{2,}?|\R|\p{Han}{1,2}[\p{Hiragana}ー]?|[^\S\r\n]+"),
        pattern("Regex", r"(?<=[aeiou])[^\p{P}\p{Z}]{2}?|(?<!\p{Lu})\p{Ll}{3}+", invert=True),
        byte_level(False),
    ],
}


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
    """Returns tokenizers with the features that well-known models do not use."""
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
    """Converts a SentencePiece BPE model to a tokenizer.json, in the older ("prepend") or the newer style."""
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
    """Converts a SentencePiece unigram model to a tokenizer.json (T5, XLM-R)."""
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
    """Such pieces are split again (BPE) or ignored (unigram)."""
    for piece in model.pieces[260 + len(model.pieces) // 5 :: step]:
        if piece.type == 1:
            piece.type = 5


def train_all(out, full_rules):
    """Writes out/<name>/tokenizer.json or tokenizer.model. `full_rules`: with the real nmt_nfkc, which is large."""
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
        for name, steps in STYLES.items():
            vocabularies[name] = dict(vocabularies["qwen2"], normalizer=None)
            vocabularies[name]["pre_tokenizer"] = dict(type="Sequence", pretokenizers=steps)
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
