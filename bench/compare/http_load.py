# SPDX-License-Identifier: Apache-2.0
"""Sends load to llama-server as `quirectl bench` does to a manager, and makes the same report."""

import asyncio
import json
import random
import statistics
import time


def quantile(values, share):
    values = sorted(values)
    return values[max(0, min(len(values) - 1, -int(-share * len(values) // 1) - 1))] if values else 0.0


class Load:
    """Sends requests [(prompt tokens, output tokens)], at most `clients` at a time."""

    def __init__(self, port, requests, clients, vocab_size, shared_tokens=0, cache_prompt=False, seed=1):
        self.port = port
        self.requests = requests
        self.clients = clients
        self.vocab_size = vocab_size
        self.shared_tokens = shared_tokens
        self.cache_prompt = cache_prompt
        self.seed = seed
        self.ttft, self.itl, self.failed, self.output_tokens, self.input_tokens = [], [], 0, 0, 0

    def run(self):
        return asyncio.run(self._run())

    def _prompt(self, index, length):
        def tokens(seed, count):
            draw = random.Random(seed)
            return [draw.randrange(3, self.vocab_size) for _ in range(count)]

        return tokens(self.seed << 32, self.shared_tokens) + tokens(
            (self.seed << 32) + index + 1, length - self.shared_tokens)

    async def _run(self):
        places = asyncio.Semaphore(self.clients)
        prompts = [self._prompt(i, prompt) for i, (prompt, _) in enumerate(self.requests)]
        start = time.perf_counter()
        await asyncio.gather(*(self._call(places, prompt, output)
                               for prompt, (_, output) in zip(prompts, self.requests)))
        duration = time.perf_counter() - start
        return {
            "failed": self.failed, "duration": duration, "total_input_tokens": self.input_tokens,
            "total_output_tokens": self.output_tokens, "output_throughput": self.output_tokens / duration,
            "total_token_throughput": (self.input_tokens + self.output_tokens) / duration,
            "mean_itl_ms": 1e3 * statistics.fmean(self.itl or [0]),
            "median_ttft_ms": 1e3 * quantile(self.ttft, 0.5), "p99_ttft_ms": 1e3 * quantile(self.ttft, 0.99),
            "median_itl_ms": 1e3 * quantile(self.itl, 0.5), "p99_itl_ms": 1e3 * quantile(self.itl, 0.99)}

    async def _call(self, places, prompt, output):
        async with places:
            sent = time.perf_counter()
            try:
                times = await self._stream(prompt, output)
            except OSError:
                times = []
        if len(times) < output:
            self.failed += 1
            return
        self.input_tokens += len(prompt)
        self.output_tokens += len(times)
        self.ttft.append(times[0] - sent)
        self.itl += [later - earlier for earlier, later in zip(times, times[1:])]

    async def _stream(self, prompt, output):
        """Returns when each token came. Lines are searched and not parsed, so that the client needs little CPU time."""
        body = json.dumps({"prompt": prompt, "n_predict": output, "stream": True, "ignore_eos": True, "top_k": 1,
                           "samplers": ["top_k"], "cache_prompt": self.cache_prompt, "return_tokens": True}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        times = []
        async for line in reader:
            if line.startswith(b"data: ") and b'"stop":false' in line:
                times.append(time.perf_counter())
        writer.close()
        return times
