# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/beam: the results of beam search in Hugging Face transformers, in float32.

    python3 tools/goldens/beam.py recorded          writes recorded.json, or recorded_groups.json
    python3 tools/goldens/beam.py models            writes models.json, or models_groups.json
    python3 tools/goldens/beam.py families          writes families.json, with transformers 5
    python3 tools/goldens/beam.py fuzz --count 200 --seed 1 --test build/release/tests/scheduler_test
                                                    runs the C++ test on new random cases of the recorded kind

Needs torch, transformers, safetensors and numpy; run from the repository root. With transformers 5, the commands
write the first file of each pair. Version 5 has no group search any more, so the same commands write the files with
diversity groups with transformers 4.49.

Everything is made from seeds. Each search also runs with noise on the log-probabilities. If it then finds other
hypotheses, two candidates were almost equal; such a case is replaced by a new one. tests/golden/beam/README.md
describes the files.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import subprocess
import tempfile

import numpy
import torch
import transformers
from transformers import AutoModelForCausalLM, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.modeling_outputs import CausalLMOutput

ROOT = pathlib.Path("tests/golden/beam")
WITH_GROUPS = int(transformers.__version__.split(".")[0]) < 5
SUFFIX = "_groups" if WITH_GROUPS else ""

NUM_RECORDED = 400 if WITH_GROUPS else 640
NUM_NOISY_RUNS = 2
TABLE_NOISE = 2e-5  # Far above the rounding error of a sum.
MODEL_NOISE = 2e-4  # Change of a logit by kernels that add in another order.

TABLE_VOCABULARY = 64
EARLY_STOPPING = (False, True, "never")
LENGTH_PENALTIES = (-1.0, 0.0, 0.6, 1.0, 2.0)

# Transformers 4.49 computes the other families differently (sliding window of qwen2, yarn) or does not know them
# (qwen3).
FAMILIES = ("llama2", "llama3", "mistral") if WITH_GROUPS else ("llama2", "llama3", "mistral", "qwen2", "yarn", "qwen3")
MODELS = ["models/tales"] + [f"tests/golden/models/{family}" for family in FAMILIES]
NUM_PROMPTS = 20 if WITH_GROUPS else 50
NUM_MODEL_CASES = 48 if WITH_GROUPS else 128  # Minimum number.
NUM_DRAWS = 40  # Draws of a case's values. The draw with the most pairs that no case has yet is taken.
# Models for other searches than the ones in models.json.
LATER_FAMILIES = ("olmo2", "smollm3", "granite", "seed_oss", "ministral", "gemma", "gemma2", "gemma3", "phi3")
NUM_FAMILY_CASES = 3  # Of each of these models.
PLAIN_SHAPES = [(width, 1, 0.0) for width in (2, 4, 8, 16)]
GROUP_SHAPES = [(4, 2, 0.5), (4, 4, 1.0), (6, 3, 0.5), (8, 2, 2.0)]  # Width, number of groups, diversity penalty.
CHOICES = {
    "shape": GROUP_SHAPES if WITH_GROUPS else PLAIN_SHAPES,
    "length_penalty": LENGTH_PENALTIES,
    "early_stopping": EARLY_STOPPING,
    "returned": ("one", "half", "all"),
    "num_likely_stops": (0, 1) if WITH_GROUPS else (0, 1, 2),  # Generated tokens that become stop tokens.
}

TABLE_COLUMNS = [
    "seed",  # Seed of the table.
    "stop_boost",  # Added to the logits of the stop tokens, in eighths.
    "prompt",
    "width",
    "num_groups",
    "diversity_penalty",
    "length_penalty",
    "early_stopping",  # 0 heuristic, 1 when full, 2 never.
    "num_return",
    "max_tokens",
    "stop_token_ids",
    "min_tokens",
    "repetition_penalty",
    "stop_sum",  # [] or [modulus, remainder] for the sum of the last two generated tokens.
    "hypotheses",  # Best first: [score, [token, ...]].
]

MODEL_COLUMNS = [
    "model",  # Folder.
    "prompt",
    "width",
    "num_groups",
    "diversity_penalty",
    "length_penalty",
    "early_stopping",
    "num_return",
    "max_tokens",
    "stop_token_ids",
    "hypotheses",
]


class Case(dict):
    """The values of a case by column. case.seed is the same as case["seed"]."""

    __getattr__ = dict.__getitem__


def table_logits(case, before_last, last):
    """Returns the logits after each pair of tokens: [n, TABLE_VOCABULARY], exact multiples of 2^-17 in [0, 8)."""
    tokens = numpy.arange(TABLE_VOCABULARY, dtype=numpy.uint32)[None, :]
    pair = (before_last.astype(numpy.uint32) * numpy.uint32(64) + last.astype(numpy.uint32))[:, None]
    x = tokens * numpy.uint32(0x9E3779B1) + pair * numpy.uint32(0x85EBCA77) + numpy.uint32(case.seed)
    for multiplier in (0x7FEB352D, 0x846CA68B):
        x = (x ^ (x >> numpy.uint32(16))) * numpy.uint32(multiplier)
    x = x ^ (x >> numpy.uint32(15))
    logits = (x >> numpy.uint32(12)).astype(numpy.float32) / numpy.float32(2**17)
    logits[:, case.stop_token_ids] += numpy.float32(case.stop_boost / 8)
    return logits


class TableModel(PreTrainedModel, GenerationMixin):
    """A model without layers. Its logits are table_logits of the last two tokens."""

    config_class = PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, case):
        super().__init__(PretrainedConfig(vocab_size=TABLE_VOCABULARY, is_encoder_decoder=False))
        self.case = case
        self.unused = torch.nn.Parameter(torch.zeros(1))  # Gives transformers a device and a type.

    def prepare_inputs_for_generation(self, input_ids, attention_mask=None, **unused):
        return {"input_ids": input_ids}

    def forward(self, input_ids, attention_mask=None, **unused):
        ids = input_ids.numpy()
        return CausalLMOutput(logits=torch.tensor(table_logits(self.case, ids[:, -2], ids[:, -1]))[:, None, :])


class Noise(LogitsProcessor):
    def __init__(self, size, seed):
        self.size = size
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, input_ids, scores):
        return scores + (torch.rand(scores.shape, generator=self.generator) * 2 - 1) * self.size


class StopSum(StoppingCriteria):
    def __init__(self, case):
        self.case = case

    def __call__(self, input_ids, scores, **unused):
        modulus, remainder = self.case.stop_sum
        if input_ids.shape[1] - len(self.case.prompt) < 2:
            return torch.zeros(input_ids.shape[0], dtype=torch.bool)
        return (input_ids[:, -1] + input_ids[:, -2]) % modulus == remainder


def hypotheses_of(case, out):
    """[[score, tokens], ...], best first, from the result of generate."""
    generated = out.sequences[:, len(case.prompt) :].tolist()
    if case.width == 1:
        tokens = generated[0]
        logprobs = [torch.log_softmax(out.logits[i][0], dim=-1)[token].item() for i, token in enumerate(tokens)]
        return [[sum(logprobs) / len(tokens) ** case.length_penalty, tokens]]
    scores = out.sequences_scores.tolist()
    if WITH_GROUPS:
        # Rows are padded after the stop token, of which there is at most one.
        ends = [next((i + 1 for i, t in enumerate(row) if t in case.stop_token_ids), len(row)) for row in generated]
    else:
        ends = (out.beam_indices >= 0).sum(dim=1).tolist()
    return [[score, row[:end]] for score, row, end in zip(scores, generated, ends)]


def generate(model, case, noise=None, pad_token_id=0):
    options = {}
    if case.num_groups > 1:
        options.update(num_beam_groups=case.num_groups, diversity_penalty=case.diversity_penalty)
    if case.repetition_penalty != 1:
        options.update(repetition_penalty=case.repetition_penalty)
    if case.min_tokens:
        options.update(min_new_tokens=case.min_tokens)
    if case.width > 1:
        options.update(length_penalty=case.length_penalty, early_stopping=case.early_stopping)
    if case.stop_sum:
        options.update(stopping_criteria=StoppingCriteriaList([StopSum(case)]))
    prompt = torch.tensor([case.prompt])
    with torch.no_grad():
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            num_beams=case.width,
            num_return_sequences=case.num_return,
            max_new_tokens=case.max_tokens,
            eos_token_id=case.stop_token_ids or None,
            pad_token_id=pad_token_id,
            do_sample=False,
            use_cache=not isinstance(model, TableModel),
            logits_processor=LogitsProcessorList([noise] if noise else []),
            output_scores=True,
            output_logits=True,
            return_dict_in_generate=True,
            **options,
        )
    return hypotheses_of(case, out)


def stable_hypotheses(model, case, noise):
    """Returns the hypotheses that `model` finds for `case`, or None if noise changes them."""
    found = generate(model, case)
    tokens = [hypothesis[1] for hypothesis in found]
    for seed in range(NUM_NOISY_RUNS):
        # In group search, groups that are finished still penalise the padding token, although no group generated it.
        pad_token_id = seed + 1 if case.num_groups > 1 else 0
        again = generate(model, case, Noise(noise, seed), pad_token_id)
        if [hypothesis[1] for hypothesis in again] != tokens:
            return None
    return [[float(f"{score:.7g}"), tokens] for score, tokens in found]


def table_case(rng, index):
    """Returns a random case. The widths, penalties and kinds of stopping take turns."""
    width = (2, 4, 8, 16, 4, 8, 2, 1)[index % 8]
    num_groups, diversity_penalty = 1, 0.0
    if WITH_GROUPS:
        width = (2, 4, 6, 8, 16)[index % 5]
        num_groups = rng.choice([n for n in (2, 3, 4, 8, 16) if width % n == 0])
        diversity_penalty = rng.choice([0.25, 0.5, 1.0, 2.5])
    stop_token_ids = sorted(rng.sample(range(TABLE_VOCABULARY), rng.choice((0, 1) if WITH_GROUPS else (0, 1, 1, 2))))
    max_tokens = rng.randint(1, 20)
    is_plain = width == 1 or WITH_GROUPS
    return Case(
        seed=rng.getrandbits(32),
        stop_boost=rng.randint(0, 40),
        prompt=[rng.randrange(TABLE_VOCABULARY) for _ in range(rng.randint(2, 5))],
        width=width,
        num_groups=num_groups,
        diversity_penalty=diversity_penalty,
        length_penalty=LENGTH_PENALTIES[index // 8 % 5],
        early_stopping=EARLY_STOPPING[index % 3],
        num_return=rng.choice([1, 1, max(1, width // 2), min(width, 6)]),
        max_tokens=max_tokens,
        stop_token_ids=stop_token_ids,
        min_tokens=rng.randint(1, max_tokens) if stop_token_ids and rng.random() < 0.15 else 0,
        repetition_penalty=rng.choice([0.8, 1.25, 2.0]) if not is_plain and rng.random() < 0.15 else 1.0,
        stop_sum=[rng.randint(2, 12), rng.randint(0, 1)] if not is_plain and rng.random() < 0.2 else [],
    )


def table_cases(count, seed):
    rng = random.Random(seed)
    cases = []
    while len(cases) < count:
        case = table_case(rng, len(cases))
        hypotheses = stable_hypotheses(TableModel(case), case, TABLE_NOISE)
        if hypotheses is not None:
            cases.append(Case(case, hypotheses=hypotheses))
    return cases


def make_prompt(rng, model, is_story):
    """Returns random tokens. For the story model, it returns tokens that the model samples."""
    length = rng.randint(3, 40)
    vocabulary = model.config.vocab_size
    if not is_story:
        return [rng.randrange(3, vocabulary) for _ in range(length)]
    torch.manual_seed(rng.getrandbits(32))
    begin = torch.tensor([[model.config.bos_token_id]])
    out = model.generate(
        begin,
        attention_mask=torch.ones_like(begin),
        do_sample=True,
        top_k=0,
        min_new_tokens=length,
        max_new_tokens=length,
        pad_token_id=model.config.eos_token_id,
    )
    return out[0].tolist()


def pairs_of(draw):
    return set(itertools.combinations(draw.items(), 2))


def model_case(rng, model, name, prompt, draw):
    width, num_groups, diversity_penalty = draw["shape"]
    case = Case(
        model=name,
        prompt=prompt,
        width=width,
        num_groups=num_groups,
        diversity_penalty=diversity_penalty,
        length_penalty=draw["length_penalty"],
        early_stopping=draw["early_stopping"],
        num_return={"one": 1, "half": width // 2, "all": width}[draw["returned"]],
        max_tokens=rng.randint(12, 24),
        stop_token_ids=[model.config.eos_token_id],
        min_tokens=0,
        repetition_penalty=1.0,
        stop_sum=[],
    )
    # Adds a token from the middle half of a hypothesis that is found without it. Most random models never choose their
    # own end.
    likely = []
    for score, tokens in generate(model, case)[: draw["num_likely_stops"]]:
        likely.append(rng.choice(tokens[len(tokens) // 4 : -len(tokens) // 4] or tokens))
    if likely:
        # Group search supports one stop token. It cuts stop tokens off and puts them back.
        stop_token_ids = likely if WITH_GROUPS else sorted(set(likely) | set(case.stop_token_ids))
        case = Case(case, stop_token_ids=stop_token_ids)
    return case


def model_cases(seed):
    """Returns cases in which every pair of choices (including the model) occurs, over all prompts."""
    rng = random.Random(seed)
    models = {name: AutoModelForCausalLM.from_pretrained(name).float().eval() for name in MODELS}
    others = itertools.cycle(MODELS[1:])
    names = [MODELS[0] if i % 5 < 2 else next(others) for i in range(NUM_PROMPTS)]
    prompts = [(name, make_prompt(rng, models[name], name == MODELS[0])) for name in names]
    wanted = set()
    for draw in itertools.product(MODELS, *CHOICES.values()):
        wanted |= pairs_of(dict(zip(["model", *CHOICES], draw)))
    cases = []
    while len(cases) < NUM_MODEL_CASES or wanted:
        name, prompt = prompts[len(cases) % NUM_PROMPTS]
        draws = [{key: rng.choice(values) for key, values in CHOICES.items()} for _ in range(NUM_DRAWS)]
        draw = max(({"model": name, **draw} for draw in draws), key=lambda d: len(pairs_of(d) & wanted))
        case = model_case(rng, models[name], name, prompt, draw)
        hypotheses = stable_hypotheses(models[name], case, MODEL_NOISE)
        if hypotheses is None:
            prompts[len(cases) % NUM_PROMPTS] = (name, make_prompt(rng, models[name], name == MODELS[0]))
            continue
        wanted -= pairs_of(draw)
        cases.append(Case(case, hypotheses=hypotheses))
    return cases


def family_cases(seed):
    rng = random.Random(seed)
    cases = []
    for family in LATER_FAMILIES:
        name = f"tests/golden/models/{family}"
        model = AutoModelForCausalLM.from_pretrained(name).float().eval()
        found = 0
        while found < NUM_FAMILY_CASES:
            draw = {key: rng.choice(values) for key, values in CHOICES.items()}
            case = model_case(rng, model, name, make_prompt(rng, model, is_story=False), draw)
            hypotheses = stable_hypotheses(model, case, MODEL_NOISE)
            if hypotheses is not None:
                cases.append(Case(case, hypotheses=hypotheses))
                found += 1
    return cases


def write_cases(cases, columns, path):
    rows = [[EARLY_STOPPING.index(c[k]) if k == "early_stopping" else c[k] for k in columns] for c in cases]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    path.write_text('{"columns": ' + json.dumps(columns) + ',\n"cases": [\n' + lines + "\n]}\n")


def fuzz(arguments):
    cases = table_cases(arguments.count, arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "cases.json"
        write_cases(cases, TABLE_COLUMNS, path)
        filters = "--gtest_filter=BeamSearchGoldenTest.FindsWhatTransformersFinds"
        subprocess.run([arguments.test, filters], env=dict(os.environ, QUIRE_BEAM_CASES=str(path)), check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["recorded", "models", "families", "fuzz"])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test", default="build/release/tests/scheduler_test")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    ROOT.mkdir(parents=True, exist_ok=True)
    if arguments.command == "recorded":
        write_cases(table_cases(NUM_RECORDED, 2026), TABLE_COLUMNS, ROOT / f"recorded{SUFFIX}.json")
    elif arguments.command == "models":
        write_cases(model_cases(2026), MODEL_COLUMNS, ROOT / f"models{SUFFIX}.json")
    elif arguments.command == "families":
        write_cases(family_cases(2026), MODEL_COLUMNS, ROOT / "families.json")
    elif arguments.command == "fuzz":
        fuzz(arguments)


if __name__ == "__main__":
    main()
