# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/rerank: a tiny checkpoint in the form of Qwen3-Reranker, and the scores that Hugging Face
transformers computes with it as its model card says, in float32.

Needs torch, transformers and safetensors; run from the repository root:
    python3 tools/goldens/rerank_goldens.py
It reads tests/golden/tokenizer/qwen2. Everything is made from seeds, so a second run writes the same files.
"""

import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

OUT = pathlib.Path("tests/golden/rerank")
TOKENIZER = pathlib.Path("tests/golden/tokenizer/qwen2/tokenizer.json")
PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
# The template of the checkpoints that Sentence Transformers loads as a CrossEncoder: messages of the roles query and
# document, and perhaps one of the role system, which is the instruction.
TEMPLATE = (
    "{%- set instruction = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | first"
    f" | default('{INSTRUCTION}') -%}}\n"
    "{%- set query = messages | selectattr('role', 'equalto', 'query') | map(attribute='content') | first -%}\n"
    "{%- set document = messages | selectattr('role', 'equalto', 'document') | map(attribute='content') | first -%}\n"
    f"{PREFIX}<Instruct>: {{{{ instruction }}}}\n<Query>: {{{{ query }}}}\n<Document>: {{{{ document }}}}{SUFFIX}"
)
CASES = (
    {
        "query": "What is the capital of China?",
        "documents": [
            "The capital of China is Beijing.",
            "Gravity is a force that attracts two bodies towards each other.",
            "x",
            "日本の首都は東京です。\n\n  <b>Tokyo</b>",
            "Beijing " * 60,
        ],
    },
    {
        "query": "Explain gravity",
        "instruction": "Find a text about physics",
        "documents": ["The capital of China is Beijing.", "Gravity is a force that attracts two bodies."],
    },
)
SPREAD = 0.05  # The scores of a case differ by at least this much, so that a constant fits none.


def tokenizer():
    """Returns the tokenizer of tests/golden/tokenizer/qwen2 with "yes", "no" and the tags of thoughts as tokens."""
    made = json.loads(TOKENIZER.read_text())
    vocabulary, merges = made["model"]["vocab"], made["model"]["merges"]
    for left, right in (("y", "e"), ("ye", "s"), ("n", "o")):
        merges.append([left, right])
        vocabulary[left + right] = len(vocabulary)
    special = made["added_tokens"]
    special += [{**special[-1], "content": content} for content in ("<think>", "</think>")]
    for i, token in enumerate(special):
        token["id"] = len(vocabulary) + i
    return made


@torch.no_grad()
def score(model, tokenizer, case, document):
    """Returns the tokens and the score of a pair, as the model card computes it."""
    instruction = case.get("instruction", INSTRUCTION)
    pair = f"<Instruct>: {instruction}\n<Query>: {case['query']}\n<Document>: {document}"
    parts = [tokenizer.encode(text, add_special_tokens=False) for text in (PREFIX, pair, SUFFIX)]
    ids = sum(parts, [])
    messages = [{"role": "system", "content": instruction}, {"role": "query", "content": case["query"]}]
    messages.append({"role": "document", "content": document})
    assert tokenizer.apply_chat_template(messages, return_dict=False) == ids
    logits = model(torch.tensor([ids])).logits[0, -1]
    words = [tokenizer.convert_tokens_to_ids(word) for word in ("no", "yes")]
    return len(ids), torch.nn.functional.log_softmax(logits[words], dim=0).exp()[1].item()


def main():
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False) + "\n")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    (OUT / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    # Jinja drops the last line break of a template.
    (OUT / "chat_template.jinja").write_text(TEMPLATE + "\n")
    config = transformers.Qwen3Config(
        vocab_size=1024,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=1024,
        rope_theta=1000000.0,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1005,
    )
    model = transformers.Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn_like(weight) * (0.1 if "norm" in name else 0.35) + ("norm" in name))
    config.architectures = ["Qwen3ForCausalLM"]
    config.dtype = "float32"
    fields = {key: value for key, value in config.to_diff_dict().items() if key != "transformers_version"}
    (OUT / "config.json").write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(tensors, OUT / "model.safetensors", metadata={"format": "pt"})
    loaded = transformers.AutoTokenizer.from_pretrained(OUT)
    cases = []
    for case in CASES:
        scored = [score(model, loaded, case, document) for document in case["documents"]]
        scores = [value for _, value in scored]
        assert max(scores) - min(scores) > SPREAD, scores
        cases.append({**case, "tokens": [count for count, _ in scored], "scores": [float(f"{s:.8g}") for s in scores]})
    (OUT / "golden.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
