#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the story model on the CPU and writes its weights; a stopped run continues from its last checkpoint.

A row is one story, or sometimes three stories in sequence. So the model also sees long contexts, and learns that a
begin token starts a new story. A batch has stories of about the same length; it depends only on the seed and the step.
"""

import argparse
import copy
import pathlib
import time

import numpy
import tokenizers
import torch

import words
from checkpoint import CONFIG, new_model, write_model
from copying import start_as_copying
from stories import RECORD_SEPARATOR

STORIES_PER_STEP = 9
JOINED_STORIES = 3
JOINED_SHARE = 0.1
# Copying the right name is what a small model learns last, so name tokens count more in the loss.
NAME_WEIGHT = 3.0
MATRIX_LEARNING_RATE = 0.015
EMBEDDING_LEARNING_RATE = 0.002
WARMUP_STEPS = 40
DECAY_SHARE = 0.6
AVERAGE_DECAY = 0.99
CHECKPOINT_STEPS = 100
NO_TARGET = -100


class Corpus:
    """Stories as tokens (begin, story, end), sorted by length."""

    def __init__(self, text_path: pathlib.Path, tokenizer: tokenizers.Tokenizer):
        stories = text_path.read_text(encoding="utf-8").split(RECORD_SEPARATOR)[:-1]
        rows = [encoding.ids + [CONFIG["eos_token_id"]] for encoding in tokenizer.encode_batch(stories)]
        self._stories = [torch.tensor(row) for row in sorted(rows, key=len)]

    def batch(self, rng: numpy.random.Generator, stories_per_row: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets, each [STORIES_PER_STEP / stories_per_row, length of the longest row - 1]."""
        first = rng.integers(len(self._stories) - STORIES_PER_STEP)
        stories = self._stories[first:first + STORIES_PER_STEP]
        rows = [torch.cat(stories[i:i + stories_per_row]) for i in range(0, STORIES_PER_STEP, stories_per_row)]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=NO_TARGET)
        return padded[:, :-1].clamp(min=0), padded[:, 1:]


def learning_rate_factor(step: int, num_steps: int) -> float:
    """Linear warm-up, a plateau, and a linear descent over the last DECAY_SHARE of the run."""
    return min(1.0, (step + 1) / WARMUP_STEPS, (num_steps - step) / (DECAY_SHARE * num_steps))


def make_optimizers(model: torch.nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the embedding and the norms."""
    is_inner_matrix = {name: weight.ndim == 2 and "embed" not in name for name, weight in model.named_parameters()}
    matrices = [weight for name, weight in model.named_parameters() if is_inner_matrix[name]]
    others = [weight for name, weight in model.named_parameters() if not is_inner_matrix[name]]
    return [torch.optim.Muon(matrices, lr=MATRIX_LEARNING_RATE, momentum=0.95, weight_decay=0.01),
            torch.optim.AdamW(others, lr=EMBEDDING_LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)]


def first_tokens(tokenizer: tokenizers.Tokenizer, kept_words: list[str]) -> list[int]:
    return sorted({tokenizer.encode(" " + word, add_special_tokens=False).ids[0] for word in kept_words})


def loss_of(model: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor,
            weights: torch.Tensor | None = None) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=inputs, use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), weights,
                                             ignore_index=NO_TARGET)


@torch.no_grad()
def update_average(average: torch.nn.Module, model: torch.nn.Module, step: int) -> None:
    """An exponential moving average of the weights, with a shorter memory in the first steps."""
    decay = min(AVERAGE_DECAY, (1 + step) / (10 + step))
    for averaged, weight in zip(average.parameters(), model.parameters()):
        averaged.lerp_(weight, 1 - decay)


@torch.no_grad()
def held_out_losses(model: torch.nn.Module, corpus: Corpus, names: list[int]) -> tuple[float, float]:
    """The mean loss of all tokens and of the names alone."""
    rng = numpy.random.default_rng(0)
    batches = [corpus.batch(rng, 1) for _ in range(8)]
    name_batches = [(inputs, targets.where(torch.isin(targets, torch.tensor(names)), NO_TARGET))
                    for inputs, targets in batches]
    return tuple(sum(loss_of(model, *batch).item() for batch in some) / len(some) for some in (batches, name_batches))


def train(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    tokenizer = tokenizers.Tokenizer.from_file(str(arguments.folder / "tokenizer.json"))
    corpus = Corpus(arguments.text, tokenizer)
    held_out = Corpus(arguments.held_out, tokenizer)
    names = first_tokens(tokenizer, words.NAMES)
    weights = torch.ones(CONFIG["vocab_size"])
    weights[names] = NAME_WEIGHT
    model = new_model()
    start_as_copying(model, [names, sorted(set(first_tokens(tokenizer, words.KEPT_WORDS)) - set(names))])
    average = copy.deepcopy(model)
    optimizers = make_optimizers(model)
    peak_rates = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    first_step = 0
    if arguments.checkpoint.exists():
        state = torch.load(arguments.checkpoint)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        for optimizer, optimizer_state in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(optimizer_state)
        first_step = state["step"]
    print(f"{sum(weight.numel() for weight in model.parameters())} parameters, from step {first_step}", flush=True)

    start = time.monotonic()
    for step in range(first_step, arguments.steps):
        rng = numpy.random.default_rng([arguments.seed, step])
        stories_per_row = JOINED_STORIES if rng.random() < JOINED_SHARE else 1
        loss = loss_of(model, *corpus.batch(rng, stories_per_row), weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, peak_rate in zip(optimizers, peak_rates):
            optimizer.param_groups[0]["lr"] = peak_rate * learning_rate_factor(step, arguments.steps)
            optimizer.step()
            optimizer.zero_grad()
        update_average(average, model, step)
        if (step + 1) % 50 == 0:
            print(f"step {step + 1} loss {loss.item():.3f} seconds {time.monotonic() - start:.0f}", flush=True)
        if (step + 1) % CHECKPOINT_STEPS == 0 or step + 1 == arguments.steps:
            loss_of_all, loss_of_names = held_out_losses(average, held_out, names)
            print(f"step {step + 1} held-out loss {loss_of_all:.4f}, of names {loss_of_names:.4f}", flush=True)
            torch.save({"model": model.state_dict(), "average": average.state_dict(),
                        "optimizers": [optimizer.state_dict() for optimizer in optimizers], "step": step + 1},
                       arguments.checkpoint)
            write_model(average.state_dict(), arguments.folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=pathlib.Path, help="stories to learn, as written by stories.py --out")
    parser.add_argument("held_out", type=pathlib.Path, help="stories of another seed, to measure the loss")
    parser.add_argument("folder", type=pathlib.Path, help="model directory; tokenizer.json is already there")
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True, help="training state, to continue from")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
