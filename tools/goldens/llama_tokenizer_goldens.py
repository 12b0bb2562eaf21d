# SPDX-License-Identifier: Apache-2.0
"""Rewrites tests/golden/tokenizer/llama_class.json: what Transformers' AutoTokenizer gives for files of
tests/golden/tokenizer together with fields of tokenizer_config.json, for models of the type llama and mistral.

Needs the Python packages transformers, sentencepiece and protobuf.
"""

import json
import pathlib
import shutil
import tempfile

from transformers import AutoTokenizer

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer"
FOLDERS = ("sp_bpe", "sp_bpe_prepend", "sp_bpe_metaspace")
LLAMA = {"tokenizer_class": "LlamaTokenizer"}
CONFIGS = ({}, {"legacy": False}, {"legacy": True}, LLAMA, LLAMA | {"legacy": False}, LLAMA | {"legacy": True},
           LLAMA | {"legacy": True, "add_prefix_space": False}, {"tokenizer_class": "PreTrainedTokenizerFast"})
TEXTS = ("hello", " hello", "  hello", "<s>hello</s>world", "<s> hello </s> world", "a<s>b", "</s></s>", "", "\u2581a")


def tokens(folder, config, model_type):
    with tempfile.TemporaryDirectory() as directory:
        for path in (GOLDEN / folder).glob("tokenizer.*"):
            shutil.copy(path, directory)
        pathlib.Path(directory, "tokenizer_config.json").write_text(json.dumps(config))
        pathlib.Path(directory, "config.json").write_text(json.dumps({"model_type": model_type}))
        tokenizer = AutoTokenizer.from_pretrained(directory)
        encoded = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
        return [[ids, tokenizer.decode(ids, skip_special_tokens=True)] for ids in encoded]


def main():
    cases = [{"folder": folder, "config": config, "model_type": model_type,
              "tokens": tokens(folder, config, model_type)}
             for folder in FOLDERS for config in CONFIGS for model_type in ("llama", "mistral")]
    golden = {"texts": TEXTS, "cases": cases}
    (GOLDEN / "llama_class.json").write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
