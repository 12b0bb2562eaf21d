#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much later do the tokens of neighbours come beside clients whose guides are expensive?

Starts a manager, a worker and a gateway with their default flags. Three neighbours stream plain text, and one streams a
JSON object. In turns, 16 clients send nothing, requests without guides, or requests with expensive guides. Prints the
times between two tokens of the neighbours, and until their first token. The requests without guides have the same
number of sequences as the expensive ones: 8 for "ambiguous", and one for "new".

    bench/guided_neighbours.py ambiguous    # grammars whose texts can be read in many ways, and large masks
    bench/guided_neighbours.py new          # many different guides that take long to compile, or are refused
"""

import argparse
import collections
import http.client
import json
import multiprocessing
import os
import socket
import subprocess
import tempfile
import threading
import time

MANAGER, WORKER, GATEWAY = 25100, 25110, 25120
USUAL = {"type": "object", "required": ["name", "age", "tags"],
         "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
                        "tags": {"type": "array", "items": {"type": "string"}}}}


def nested(i):
    rules = "\n".join(f"r{k} ::= r{k + 1} r{k + 1}" for k in range(16))
    return {"n": 8, "guided_grammar": f'root ::= r0 "x{i}"\n{rules}\nr16 ::= "" | "a"'}


def ambiguous(i):
    return {"n": 8, "guided_grammar": f'root ::= s "{i}"?\ns ::= t s | t\nt ::= "a" | "a" s "b" | "ab" | "b" | u\n'
                                      'u ::= "a" s | "b" s "a"'}


def cold(i):
    return {"n": 8, "guided_regex": f"([^b]|bb)*c([^b]|bb){{{5 + i % 6}}}(x{i})?"}


def long_string(i):
    return {"guided_json": {"type": "object", "required": [f"k{i}"],
                            "properties": {f"k{i}": {"type": "string", "minLength": 1, "maxLength": 5000 + i % 700}}}}


def many_states(i):
    return {"guided_regex": f"(a|b|c| |[d-z])*a([a-z ]){{{6 + i % 3}}}q{i}"}


def refused(i):
    return {"guided_regex": "(a|b)*a(a|b){20}" + "c" * (i % 50) + str(i)}


def small(i):
    return {"guided_regex": f"[a-z ,.]+{i}?"}


ATTACKS = {"ambiguous": [nested, ambiguous, cold], "new": [long_string, many_states, refused, small]}
# Requests without guides, with the same number of sequences.
PLAIN = {"ambiguous": [lambda i: {"n": 8}], "new": [lambda i: {}]}
PARTS = ("alone", "beside plain requests", "beside expensive guides")


def post(fields):
    connection = http.client.HTTPConnection("127.0.0.1", GATEWAY, timeout=60)
    body = {"prompt": "Once upon a time", "max_tokens": 200, "temperature": 1, **fields}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def attack(makers, first, stop, answers):
    numbers = iter(range(first, first + 10**9))
    counts = collections.Counter()
    lock = threading.Lock()

    def run():
        while not stop.is_set():
            with lock:
                i = next(numbers)
            response = post(makers[i % len(makers)](i))
            response.read()
            with lock:
                counts[response.status] += 1
            if response.status != 200:
                time.sleep(0.02)

    for _ in range(16):
        threading.Thread(target=run, daemon=True).start()
    stop.wait()
    with lock:
        answers.put(dict(counts))


def stream(phase, stop, fields, results):
    gaps, firsts = [], []
    while not stop.is_set():
        last, begin = None, time.monotonic()
        response = post({"stream": True, **fields})
        if response.status != 200:
            raise SystemExit(f"a neighbour was refused: {response.status}")
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            (firsts if last is None else gaps).append((phase.value, now - (last or begin)))
            last = now
    results.put((gaps, firsts))


def show(name, lists):
    for phase, condition in enumerate(PARTS):
        times = sorted(1e3 * t for entries in lists for p, t in entries if p == phase)
        if times:
            at = lambda share: times[min(int(len(times) * share), len(times) - 1)]
            print(f"{name} {condition}: {len(times)} times, p50 {at(.5):.1f}, p99 {at(.99):.1f}, "
                  f"p99.9 {at(.999):.1f}, max {times[-1]:.1f} ms", flush=True)


def wait_for(port):
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"nobody listens on port {port}")


def measure(args):
    phase, stop = multiprocessing.Value("i", -1), multiprocessing.Event()
    results, answers = multiprocessing.Queue(), multiprocessing.Queue()
    neighbours = [multiprocessing.Process(target=stream, args=(phase, stop, fields, results))
                  for fields in ({}, {}, {}, {"guided_json": USUAL})]
    for neighbour in neighbours:
        neighbour.start()
    time.sleep(3)
    counts = collections.Counter()
    for turn in range(args.rounds):
        for part, makers in enumerate(([], PLAIN[args.kind], ATTACKS[args.kind])):
            over = multiprocessing.Event()
            clients = multiprocessing.Process(target=attack, args=(makers, turn * 100000, over, answers))
            if makers:
                clients.start()
                time.sleep(1)
            phase.value = part
            time.sleep(args.seconds)
            phase.value = -1
            if not makers:
                continue
            over.set()
            counts.update({(PARTS[part], status): count for status, count in answers.get().items()})
            # It ends with its last word. Killed, it may keep the lock of the queue for ever.
            clients.join()
            time.sleep(2)
    stop.set()
    lists = [results.get() for _ in neighbours]
    show("between tokens", [gaps for gaps, _ in lists])
    show("first token", [firsts for _, firsts in lists])
    for (part, status), count in sorted(counts.items()):
        print(f"answers {part}: {count} with status {status}")
    print(f"load {os.getloadavg()[0]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=ATTACKS)
    parser.add_argument("--bin", default="build/release/bin")
    parser.add_argument("--model", default="models/tales")
    parser.add_argument("--seconds", type=float, default=30, help="of each part")
    parser.add_argument("--rounds", type=int, default=4, help="of the three parts")
    args = parser.parse_args()
    with tempfile.TemporaryFile() as log:
        processes = []
        try:
            for port, argv in (
                    (WORKER, ["quire-worker", f"--model={args.model}"]),
                    (MANAGER, ["quire-manager", f"--workers=127.0.0.1:{WORKER}"]),
                    (GATEWAY, ["quire-openai", f"--manager=127.0.0.1:{MANAGER}"])):
                argv = [f"{args.bin}/{argv[0]}", *argv[1:], f"--listen=127.0.0.1:{port}"]
                processes.append(subprocess.Popen(argv, stdout=log, stderr=log))
                wait_for(port)
            time.sleep(3)
            measure(args)
        finally:
            for process in processes:
                process.kill()


if __name__ == "__main__":
    main()
