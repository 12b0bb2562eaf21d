# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/embeddings: embeddings of Hugging Face transformers and of Sentence Transformers, in float32.

Needs torch, transformers, sentence-transformers and numpy; run from the repository root:
    python3 tools/goldens/embedding_goldens.py
It reads the checkpoints of tests/golden/models, which tools/goldens/models.py makes, and models/tales.
"""

import json
import pathlib
import shutil
import tempfile

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules

ROOT = pathlib.Path("tests/golden")
OUT = ROOT / "embeddings"
TALES = pathlib.Path("models/tales")
# Norms before and after blocks, scaled residuals, biases, windows, tied embeddings, and weights of 16 bits.
FAMILIES = ("llama3", "qwen2", "qwen3", "olmo2", "granite", "gemma3", "phi3", "bfloat16")
TEXTS = (
    "Once upon a time, there was a little fox.",
    "The fox lived in a forest and liked to run.",
    "It rained all day, and the boy stayed at home.",
    "x",
)


def rounded(vector):
    return [float(f"{value:.8g}") for value in vector.tolist()]


@torch.no_grad()
def hidden_states():
    """Returns {model: [{pooling: vector} for each prompt of its golden.json]}."""
    result = {}
    for name in FAMILIES:
        path = ROOT / "models" / name
        prompts = json.loads((path / "golden.json").read_text())["prompts"]
        model = transformers.AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        states = [model(torch.tensor([prompt]), use_cache=False).last_hidden_state[0] for prompt in prompts]
        result[name] = [
            {"last": rounded(rows[-1]), "mean": rounded(rows.mean(dim=0)), "first": rounded(rows[0])} for rows in states
        ]
    return result


def end_appended(tokenizer):
    """Returns the post-processor of Qwen3-Embedding: a template that appends the end token and adds no other one."""
    token = next(token for token in tokenizer["added_tokens"] if token["content"] == "<|end_of_text|>")
    name, number = token["content"], token["id"]
    single = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": name, "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single + [{"Sequence": {"id": "B", "type_id": 0}}, {"SpecialToken": {"id": name, "type_id": 0}}],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}},
    }


def tales_checkpoint(folder, post_processor):
    """Copies models/tales without its chat template, which Sentence Transformers would apply to texts."""
    for name in ("config.json", "model.safetensors", "tokenizer_config.json"):
        shutil.copy(TALES / name, folder / name)
    tokenizer = json.loads((TALES / "tokenizer.json").read_text())
    if post_processor is not None:
        tokenizer["post_processor"] = post_processor
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def sentence_transformer(mode, normalizes, post_processor):
    """Returns what Sentence Transformers computes, and the files that say how."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tales_checkpoint(folder, post_processor)
        transformer = modules.Transformer(str(folder), model_kwargs={"dtype": torch.float32})
        transformer.tokenizer.pad_token = transformer.tokenizer.eos_token
        parts = [transformer, modules.Pooling(128, pooling_mode=mode)] + ([modules.Normalize()] if normalizes else [])
        model = SentenceTransformer(modules=parts, device="cpu")
        vectors = [model.encode([text], convert_to_tensor=True)[0] for text in TEXTS]
        tokens = [model.tokenizer(text)["input_ids"] for text in TEXTS]
        model.save(str(folder / "saved"))
        paths = ("modules.json", "1_Pooling/config.json")
        files = {path: json.loads((folder / "saved" / path).read_text()) for path in paths}
    result = {"files": files, "tokens": tokens, "vectors": [rounded(vector) for vector in vectors]}
    return result if post_processor is None else {**result, "post_processor": post_processor}


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "hidden_states.json").write_text(json.dumps(hidden_states()) + "\n")
    tokenizer = json.loads((TALES / "tokenizer.json").read_text())
    tales = {
        "texts": TEXTS,
        "lasttoken": sentence_transformer("lasttoken", True, end_appended(tokenizer)),
        "mean": sentence_transformer("mean", True, None),
        "cls": sentence_transformer("cls", False, end_appended(tokenizer)),
    }
    (OUT / "tales.json").write_text(json.dumps(tales) + "\n")


if __name__ == "__main__":
    main()
