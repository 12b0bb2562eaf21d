# SPDX-License-Identifier: Apache-2.0
"""Runs requests in a closed loop on an engine in this process that computes step by step."""

import dataclasses
import time

from work import served_figures

MAX_EMPTY_STEPS = 10_000  # In a row. Steps that compute a part of a prompt bring no token.

@dataclasses.dataclass
class Step:
    seconds: float
    tokens: int
    is_full_decode: bool  # The batch was full: all its requests have got a token, and none of them its first one.


@dataclasses.dataclass
class _Request:
    wanted: int
    sent_s: float
    times: list[float] = dataclasses.field(default_factory=list)  # When each token came.


class ClosedLoop:
    """The engine has `add(id, prompt, output)`, which starts a request, and `step()`, which computes and returns the
    number of new tokens of each request: {id: count}."""

    def __init__(self, engine, prompts, outputs, clients, clock=time.perf_counter):
        self.engine, self.prompts, self.outputs, self.clock = engine, prompts, outputs, clock
        self.clients = min(clients, len(prompts))
        self.running, self.ended, self.steps = {}, [], []

    def run(self):
        """Returns the figures of `quirectl bench` and the rates of prefill and decode. The rates mean something only
        when all requests start together."""
        start = self.clock()
        waiting, empty = list(range(len(self.prompts))), 0
        while waiting or self.running:
            while waiting and len(self.running) < self.clients:
                index = waiting.pop(0)
                self.running[index] = _Request(self.outputs[index], self.clock())
                self.engine.add(index, self.prompts[index], self.outputs[index])
            self.steps.append(self._step())
            empty = 0 if self.steps[-1].tokens else empty + 1
            if empty > MAX_EMPTY_STEPS:
                raise RuntimeError(f"the engine has stopped with {len(self.running)} requests unfinished")
        return self._figures(self.clock() - start)

    def _step(self):
        begin = self.clock()
        decoding = {index for index, request in self.running.items() if request.times}
        new = {index: count for index, count in self.engine.step().items() if count > 0}
        now = self.clock()
        for index, count in new.items():
            request = self.running[index]
            request.times += [now] * count
            if len(request.times) >= request.wanted:
                self.ended.append(self.running.pop(index))
        return Step(now - begin, sum(new.values()), len(new) == self.clients and set(new) <= decoding)

    def _figures(self, seconds):
        num_inputs = sum(map(len, self.prompts))
        figures = served_figures(
            num_inputs, sum(len(request.times) for request in self.ended), seconds,
            [request.times[0] - request.sent_s for request in self.ended],
            [later - earlier for request in self.ended for earlier, later in zip(request.times, request.times[1:])],
            sum(len(request.times) != request.wanted for request in self.ended))
        full = [step for step in self.steps if step.is_full_decode]
        if full:
            prefill = self.steps[:self.steps.index(full[0])]
            figures["prefill_tokens_per_s"] = num_inputs / sum(step.seconds for step in prefill)
            figures["decode_tokens_per_s"] = sum(step.tokens for step in full) / sum(step.seconds for step in full)
        return figures
