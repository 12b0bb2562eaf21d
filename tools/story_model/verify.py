#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads a model directory with transformers in bfloat16, prints greedy and sampled stories, and checks that they end.

Exits with status 1 if the tokenizer changes a text, or if fewer than nine of ten stories end with the end token.
"""

import argparse
import pathlib
import sys

import torch
import transformers

PROMPTS = ["Once upon a time", "There was a little", "One day", "Tom and Lily", "Deep in the forest"]
ROUND_TRIP_TEXTS = ["Once upon a time, there was a fox.", "  two  spaces\n\n\tand a tab", "it's 12345 we'll", "",
                    "naïve café 日本語 🙂 \u0000\u007f"]


def write_story(model, tokenizer, prompt: str, max_new_tokens: int, **sampling) -> tuple[str, bool]:
    """The prompt with its continuation, and whether the model ended the story itself."""
    inputs = tokenizer(prompt, return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=max_new_tokens, pad_token_id=model.config.eos_token_id, **sampling)
    ids = output[0].tolist()
    return tokenizer.decode(ids, skip_special_tokens=True), ids[-1] == model.config.eos_token_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="model directory")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-new-tokens", type=int, default=400)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=torch.bfloat16).eval()
    print(f"{type(model).__name__}, {model.dtype}, {model.num_parameters()} parameters, vocabulary {len(tokenizer)}")

    broken = [text for text in ROUND_TRIP_TEXTS
              if tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) != text]
    endings = []
    for prompt in PROMPTS:
        story, ended = write_story(model, tokenizer, prompt, arguments.max_new_tokens, do_sample=False)
        endings.append(ended)
        print(f"\n--- greedy: {prompt!r}, {'ended' if ended else 'cut'}\n{story}")
    for index in range(arguments.samples):
        torch.manual_seed(arguments.seed + index)
        story, ended = write_story(model, tokenizer, PROMPTS[index % len(PROMPTS)], arguments.max_new_tokens,
                                   do_sample=True, temperature=arguments.temperature, top_k=0)
        endings.append(ended)
        print(f"\n--- sampled, seed {arguments.seed + index}, {'ended' if ended else 'cut'}\n{story}")

    print(f"\n{sum(endings)} of {len(endings)} stories ended; texts changed by the tokenizer: {broken}")
    sys.exit(1 if broken or sum(endings) < 0.9 * len(endings) else 0)


if __name__ == "__main__":
    main()
