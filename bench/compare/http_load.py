# SPDX-License-Identifier: Apache-2.0
"""Sends load to llama-server as `quirectl bench` does to a manager, and makes the same report."""

import asyncio
import json
import time

from work import prompts, served_figures


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

    async def _run(self):
        places = asyncio.Semaphore(self.clients)
        texts = prompts([prompt for prompt, _ in self.requests], self.shared_tokens, self.vocab_size, self.seed)
        start = time.perf_counter()
        await asyncio.gather(*(self._call(places, prompt, output)
                               for prompt, (_, output) in zip(texts, self.requests)))
        duration = time.perf_counter() - start
        return served_figures(self.input_tokens, self.output_tokens, duration, self.ttft, self.itl, self.failed)

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
