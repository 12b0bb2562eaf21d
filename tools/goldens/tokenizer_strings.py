# SPDX-License-Identifier: Apache-2.0
"""Strings on which tokenizers disagree: every script, spaces, marks, controls, emoji, numbers, special tokens."""

import unicodedata

SPACES = [chr(c) for c in [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x2010), 0x2028, 0x2029]]
SPACES += ["\u202f", "\u205f", "\u2060", "\u3000", "\ufeff", "▁", "\r\n", "\n\n", "  ", "   ", "\t\t", " \n"]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "☕️", "👍🏽"]
EMOJI += ["1️⃣", "©\u200d", "❤️‍🔥", "🧑🏿‍🚀"]
MARKS = [chr(c) for c in [*range(0x300, 0x370), 0x591, 0x64B, 0x93C, 0x94D, 0xE34, 0x1AB0]]
MARKS += ["\u20dd", "\u302a", "\ufe0f", "\U0001d165"]
CONTRACTIONS = ["'s", "'S", "'ll", "'LL", "'lL", "'ſ", "’s", "'re", "'VE", "'d", "'t"]
CONTRACTIONS += ["'m", "'M", "it's", "K\u212a", "'"]
TOKENS = ["<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>"]
TOKENS += ["<s>", "</s>", "<unk>", "[CLS]", "[SEP]", " [MASK] ", "[MASK]", "[word]", "Straße", "strasse"]
TOKENS += ["LOUD", "a b", "[MA", "[UNK]", "<user>", "</user>", "<u", "<0x41>", "<0xE4>", "<|im_start", "<|", "|>"]
TOKENS += ["<s", "<s><s>", "the", "<pad>"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
PUNCTUATION += ["…", "—", "“", "”", "。", "、", "！", "¿", "--", "...", "\u0964"]
COMPAT = ["ﬁ", "ﬆ", "①", "㍿", "ﷺ", "Ａ", "１", "ｶﾞ", "ℌ", "²", "½"]
COMPAT += ["Ǆ", "ß", "İ", "ς", "ﾊﾟ", "㎏", "Å", "Ω", "각", "ㄱ", "क़"]


def valid_chars(first, last):
    return [c for c in range(first, last + 1) if not 0xD800 <= c < 0xE000]


def make_string(rng, corpus, kind):
    pick = rng.choice
    if kind == 0:  # ordinary text
        line = pick(corpus)
        at = rng.randint(0, len(line))
        return line[at : at + rng.randint(1, 60)]
    if kind == 1:  # any code points
        ranges = [(0, 0x7F), (0x80, 0xD7FF), (0xE000, 0x10FFFF)]
        return "".join(chr(rng.randint(*pick(ranges))) for _ in range(rng.randint(1, 12)))
    if kind == 2:  # one block
        start = rng.choice(range(0, 0x32000, 0x80))
        block = [c for c in valid_chars(start, start + 0x7F)] or [0x41]
        length = rng.randint(1, 15)
        return "".join(pick([chr(pick(block)), chr(pick(block)), " ", pick(MARKS)]) for _ in range(length))
    if kind == 3:  # whitespace
        return "".join(pick([pick(SPACES), pick(SPACES), " ", "a", "1", "."]) for _ in range(rng.randint(1, 14)))
    if kind == 4:  # control characters
        return "".join(chr(rng.randint(0, 0x9F)) for _ in range(rng.randint(1, 12)))
    if kind == 5:  # long runs
        parts = ["a", " ", "\n", "é", "字", "😀", "ab", "1", ".", "\u0301", "▁", "\t ", "' "]
        return pick(parts) * rng.randint(2, 80)
    if kind == 6:  # marks and normal forms
        form = pick(["NFC", "NFD", "NFKC", "NFKD"])
        length = rng.randint(1, 12)
        text = "".join(pick([pick("aeiouAEnsк字"), pick(MARKS), pick(MARKS), pick(COMPAT)]) for _ in range(length))
        return unicodedata.normalize(form, text)
    if kind == 7:  # numbers and code
        length = rng.randint(1, 14)
        numbers = [str(rng.randint(0, 10 ** rng.randint(1, 9))) for _ in range(length)]
        return "".join(pick([number, pick(PUNCTUATION), " ", "x", "\n", "٣", "Ⅷ", "²"]) for number in numbers)
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
