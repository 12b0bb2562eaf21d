#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level BPE tokenizer of the story model on story text and writes the tokenizer files.

Every byte is a token, so any UTF-8 text can be encoded. Pre-tokenizer, post-processor and decoder come from Llama 3.
"""

import argparse
import json
import pathlib

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from stories import RECORD_SEPARATOR

BEGIN = "<|begin_of_text|>"
END = "<|end_of_text|>"
LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def train_tokenizer(stories: list[str], vocab_size: int) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(LLAMA3_PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[BEGIN, END], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(stories, trainer)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN}:1 $B:1",
                                      special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))])])
    return tokenizer


def write_tokenizer(tokenizer: tokenizers.Tokenizer, folder: pathlib.Path, context: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END,
              "clean_up_tokenization_spaces": False, "model_input_names": ["input_ids", "attention_mask"],
              "model_max_length": context}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=pathlib.Path, help="stories, as written by stories.py --out")
    parser.add_argument("folder", type=pathlib.Path, help="model directory to write to")
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--max-stories", type=int, default=20000)
    arguments = parser.parse_args()
    stories = arguments.text.read_text(encoding="utf-8").split(RECORD_SEPARATOR)[:arguments.max_stories]
    tokenizer = train_tokenizer(stories, arguments.vocab_size)
    write_tokenizer(tokenizer, arguments.folder, arguments.context)
    tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch(stories[:1000])) / len(stories[:1000])
    print(f"vocabulary {tokenizer.get_vocab_size()}, {tokens:.0f} tokens per story")


if __name__ == "__main__":
    main()
