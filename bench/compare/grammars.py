#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gives the guides and the texts of guide_trace to xgrammar and llguidance, and prints what all engines do with them.

    grammars.py --quire-bin=build/release/bin [--schemas=DIR/tests/draft2020-12] [--vocabulary=131072] [--texts=20]

xgrammar must be installed, with tvm-ffi, numpy and pydantic, and for the suite llguidance. PyTorch and Transformers are
not needed, because the masks are arrays of numpy and the vocabulary is drawn. All engines have the same vocabulary and
read the same texts, which guide_trace has drawn from Quire's masks. Times are CPU times of one thread; for the others
they include a call from Python, which is measured and printed for xgrammar. The time to compile is the time until the
first mask can be computed, with everything that an engine prepares. A text that one engine allows and the other does
not is counted: neither need be wrong, because all restrict JSON, for example its white space and the order of
properties. A schema is handled right if an engine compiles it and allows none of the values that the suite calls
invalid.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import time
import types

import numpy
import tvm_ffi  # noqa: F401  # It must be loaded before the stand-in for PyTorch, with which it could do nothing.

# xgrammar needs these names when it is loaded, and their values are not used here.
if importlib.util.find_spec("torch") is None:
    sys.modules["torch"] = types.SimpleNamespace(int32="int32", Tensor=object, LongTensor=object, FloatTensor=object,
                                                 tensor=lambda *_arguments, **_options: None)
if importlib.util.find_spec("transformers") is None:
    sys.modules["transformers"] = types.SimpleNamespace(PreTrainedTokenizerBase=object, PreTrainedTokenizerFast=object,
                                                        LogitsProcessor=object)
import llguidance  # noqa: E402
import llguidance.numpy  # noqa: E402
import xgrammar  # noqa: E402

CLOCK = time.thread_time


def quantile(values, share):
    return sorted(values)[int(share * (len(values) - 1))] if values else float("nan")


def timed(call):
    """Returns the result and the seconds."""
    start = CLOCK()
    result = call()
    return result, CLOCK() - start


class Other:
    """xgrammar with the vocabulary of a trace."""

    def __init__(self, trace):
        tokens = [bytes.fromhex(text) for text in trace["tokens"]]
        self.info = xgrammar.TokenizerInfo(tokens, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(tokens),
                                           stop_token_ids=trace["end_tokens"])
        self.mask = numpy.zeros((1, (len(tokens) + 31) // 32), dtype=numpy.int32)

    def compile(self, guide):
        # A compiler keeps what it has compiled, so each guide has a new one.
        compiler = xgrammar.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        kind, text = guide["kind"], guide["text"]
        if kind == "json_object":
            text = '{"type": "object"}'
        if kind in ("json_object", "json_schema"):
            # Strict means that there are no properties but those which a schema names.
            return compiler.compile_json_schema(text, strict_mode=False)
        return compiler.compile_regex(text) if kind == "regex" else compiler.compile_grammar(text)

    def masks(self, compiled, texts):
        """Returns the seconds of each mask except in the first text, and how many texts are refused."""
        seconds, refused = [], 0
        for i, text in enumerate(texts):
            matcher = xgrammar.GrammarMatcher(compiled)
            for token in text:
                _, taken = timed(lambda: matcher.fill_next_token_bitmask(self.mask))  # pylint: disable=W0640
                if i > 0:
                    seconds.append(taken)
                if not matcher.accept_token(token):
                    refused += 1
                    break
        return seconds, refused

    @staticmethod
    def accepts(compiled, text):
        matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
        return matcher.accept_string(text) and matcher.is_terminated()


class TokensOfTrace:
    """The vocabulary of a trace, as llguidance asks for it. Texts are written with tokens of one byte."""

    def __init__(self, trace):
        self.tokens = [bytes.fromhex(text) for text in trace["tokens"]]
        self.special_token_ids = trace["end_tokens"]
        self.eos_token_id = trace["end_tokens"][0]
        self.bos_token_id = None
        self.of_byte = {token[0]: i for i, token in reversed(list(enumerate(self.tokens))) if len(token) == 1}

    def __call__(self, text):
        return [self.of_byte[byte] for byte in (text if isinstance(text, bytes) else text.encode())]


class Llguidance:
    """llguidance with the vocabulary of a trace, for JSON schemas."""

    def __init__(self, trace):
        self.tokens = TokensOfTrace(trace)
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(self.tokens))
        self.mask = llguidance.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, guide):
        matcher = llguidance.LLMatcher(self.tokenizer, llguidance.LLMatcher.grammar_from_json_schema(guide["text"]))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def masks(self, compiled, texts):
        """Returns the seconds of each mask except in the first text, and how many texts are refused."""
        fill = llguidance.numpy.fill_next_token_bitmask
        seconds, refused = [], 0
        for i, text in enumerate(texts):
            matcher = compiled.deep_copy()
            for token in text:
                _, taken = timed(lambda: fill(matcher, self.mask))  # pylint: disable=W0640
                if i > 0:
                    seconds.append(taken)
                if not matcher.try_consume_tokens([token]):
                    refused += 1
                    break
        return seconds, refused

    def accepts(self, compiled, text):
        matcher = compiled.deep_copy()
        tokens = self.tokens(text)
        return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def row(name, ours, theirs):
    cells = [f"{1e3 * ours[0]:.2f}", f"{1e3 * theirs[0]:.2f}"]
    for share in (0.5, 0.99, 1):
        cells += [f"{1e6 * quantile(ours[1], share):.1f}", f"{1e6 * quantile(theirs[1], share):.1f}"]
    return f"| {name} | " + " | ".join(cells) + f" | {theirs[2]} |"


def compare_guides(trace, other):
    print("| guide | compile (ms) | xgrammar | mask, median (us) | xgrammar | p99 (us) | xgrammar | largest (us) | "
          "xgrammar | texts that xgrammar refuses |\n|---|" + "---:|" * 9)
    for guide in trace["guides"]:
        compiled, seconds = timed(lambda: other.compile(guide))  # pylint: disable=W0640
        ours = (guide["compile"] + guide["prepare"], guide["masks"])
        print(row(guide["name"], ours, (seconds, *other.masks(compiled, guide["texts"]))), flush=True)


def read_cases(folder):
    """The values of each schema of the suite, also of those that Quire refuses, by the name that guide_trace gives."""
    cases = {}
    for path in pathlib.Path(folder).glob("*.json"):
        for group in json.loads(path.read_text(encoding="utf-8")):
            cases[f"{path.stem}: {group['description']}"] = [
                {"text": json.dumps(test["data"], ensure_ascii=False, separators=(",", ":")), "valid": test["valid"]}
                for test in group["tests"]]
    return cases


def compare_suite(trace, others, folder):
    """Compiles each schema of the suite with all engines, and asks them for the values that it comes with."""
    names = ["Quire", *others]
    times, masks = {name: [] for name in names}, {name: [] for name in names}
    counts = {name: dict.fromkeys(("taken", "loose", "valid", "valid taken"), 0) for name in names}
    all_cases = read_cases(folder)
    for guide in trace["suite"]:
        taken, compiled = {}, {}
        guide.setdefault("cases", all_cases[guide["name"]])
        if "error" not in guide:
            times["Quire"].append(guide["compile"] + guide["prepare"])
            taken["Quire"] = [case["accepted"] for case in guide["cases"]]
        for name, other in others.items():
            try:
                compiled[name], seconds = timed(lambda: other.compile(guide))  # pylint: disable=W0640
            except BaseException:  # pylint: disable=broad-exception-caught  # Panics of Rust are no exceptions.
                continue
            times[name].append(seconds)
            taken[name] = [other.accepts(compiled[name], case["text"]) for case in guide["cases"]]
        if len(taken) == len(names):  # Masks of schemas that all take.
            masks["Quire"] += guide["masks"]
            for name, other in others.items():
                masks[name] += other.masks(compiled[name], guide["texts"])[0]
        for name, accepted in taken.items():
            cases = list(zip(guide["cases"], accepted))
            counts[name]["taken"] += 1
            counts[name]["loose"] += any(ok and not case["valid"] for case, ok in cases)
            counts[name]["valid"] += sum(case["valid"] for case, _ in cases)
            counts[name]["valid taken"] += sum(ok and case["valid"] for case, ok in cases)
    print(f"\n{len(trace['suite'])} schemas of the suite:\n| | " + " | ".join(names) + " |")
    print("|---|" + "---:|" * len(names))

    def line(title, value):
        print(f"| {title} | " + " | ".join(str(value(name)) for name in names) + " |")

    line("schemas that compile", lambda n: counts[n]["taken"])
    line("of them, schemas that allow a value which the suite calls invalid", lambda n: counts[n]["loose"])
    line("schemas handled right", lambda n: counts[n]["taken"] - counts[n]["loose"])
    line("valid values of the schemas that compile which are allowed, as the suite writes them",
         lambda n: f"{counts[n]['valid taken']} of {counts[n]['valid']}")
    line("compilation, median (ms)", lambda n: f"{1e3 * quantile(times[n], 0.5):.2f}")
    line("compilation, p99 (ms)", lambda n: f"{1e3 * quantile(times[n], 0.99):.2f}")
    line("compilation, largest (ms)", lambda n: f"{1e3 * quantile(times[n], 1):.2f}")
    line("mask, median (us)", lambda n: f"{1e6 * quantile(masks[n], 0.5):.1f}")
    line("mask, p99 (us)", lambda n: f"{1e6 * quantile(masks[n], 0.99):.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire-bin", default="build/release/bin")
    parser.add_argument("--schemas", default="")
    parser.add_argument("--vocabulary", default="131072")
    parser.add_argument("--texts", default="20")
    options = parser.parse_args()
    command = [f"{options.quire_bin}/guide_trace", f"--schemas={options.schemas}", f"--vocabulary={options.vocabulary}",
               f"--texts={options.texts}"]
    trace = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    other = Other(trace)
    call = statistics.median(timed(lambda: other.info.vocab_size)[1] for _ in range(1000))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("xgrammar", "llguidance"))
    print(f"{versions}, {options.vocabulary} tokens, {options.texts} texts of each guide; the clock and a call "
          f"of xgrammar from Python take {1e6 * call:.1f} us\n")
    compare_guides(trace, other)
    if trace["suite"]:
        compare_suite(trace, {"xgrammar": other, "llguidance": Llguidance(trace)}, options.schemas)


if __name__ == "__main__":
    main()
