# SPDX-License-Identifier: Apache-2.0
"""Uses the installed Python package as an application would. Prints one JSON object with what it has received.

  story.py ENDPOINT PROMPT
"""

import asyncio
import contextlib
import json
import sys

import quire

SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Tom", "Lily"]}}, "required": ["name"],
          "additionalProperties": False}


def without_event_loop(endpoint, prompt):
    found = {}
    with quire.Client(endpoint) as client:
        found["is_ready"] = client.is_ready()
        found["model"] = client.model().name
        found["greedy"] = "".join(r.text_delta for r in client.generate(prompt, temperature=0, max_tokens=40))
        samples = client.complete(prompt, n=2, seed=7, temperature=0.8, max_tokens=10)
        found["samples"] = [sample.text for sample in samples]
        found["finish"] = [quire.v1.FinishReason.Name(sample.finish_reason) for sample in samples]
        found["chat"] = client.render_chat([{"role": "user", "content": prompt}]).text
        tokens = client.tokenize(prompt, add_special_tokens=False).token_ids
        found["text"] = client.detokenize(tokens)
        for name, guide in (("json", quire.guides.json_schema(SCHEMA)), ("regex", quire.guides.regex("[0-9]{3}")),
                            ("choice", quire.guides.choice(["red", "blue"])),
                            ("grammar", quire.guides.grammar('root ::= "a" [bc]+ "d"'))):
            found[name] = client.complete(prompt, guide=guide, temperature=1, seed=1, max_tokens=60)[0].text
        try:
            client.complete(prompt, top_p=2)
        except quire.Error as error:
            found["error"] = [error.code.name, *error.fields]
        found["workers"] = len(client.call("GetStatus", quire.v1.GetStatusRequest()).workers)
    with quire.Client("127.0.0.1:1") as client:
        found["is_ready_elsewhere"] = client.is_ready()
    return found


async def with_event_loop(endpoint, prompt):
    async with quire.AsyncClient(endpoint) as client:
        async def greedy():
            async with contextlib.aclosing(client.generate(prompt, temperature=0, max_tokens=40)) as responses:
                return "".join([r.text_delta async for r in responses])

        several = await asyncio.gather(greedy(), greedy(), greedy())
        (sample,) = await client.complete(prompt, guide=quire.guides.choice(["red", "blue"]))
        return {"is_ready": await client.is_ready(), "greedy": several, "choice": sample.text,
                "model": (await client.model()).name}


if __name__ == "__main__":
    print(json.dumps({"sync": without_event_loop(*sys.argv[1:]), "async": asyncio.run(with_event_loop(*sys.argv[1:]))}))
