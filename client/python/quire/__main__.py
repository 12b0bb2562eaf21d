# SPDX-License-Identifier: Apache-2.0
"""Prints the text that a Quire manager generates for a prompt."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
from collections.abc import Generator

from quire import Client, Error, Options, guides, v1


def hint(name: str, parser: argparse.ArgumentParser) -> str:
    """Says what was probably meant with an option that does not exist."""
    if name in ("--endpoint", "--manager"):
        return "; the manager is the second argument, behind the prompt"
    near = difflib.get_close_matches(name, parser._option_string_actions, 1)
    return f"; did you mean {near[0]}?" if near else ""


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quire-generate", description=__doc__)
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument("endpoint", nargs="?", default="127.0.0.1:50051",
                        help="the manager (default: 127.0.0.1:50051); several are separated by commas")
    parser.add_argument("--chat", action="store_true", help="send the prompt as a message, for a model with a template")
    parser.add_argument("-n", "--max-tokens", type=int, default=200, help="most tokens of the text (default: 200)")
    parser.add_argument("-t", "--temperature", type=float, default=0.7, help="0 is greedy (default: 0.7)")
    parser.add_argument("--seed", type=int, help="the same seed gives the same text")
    guide = parser.add_mutually_exclusive_group()
    guide.add_argument("--json-schema", metavar="FILE", help="the text is a value of this JSON schema")
    guide.add_argument("--regex", help="the whole text matches this regular expression")
    guide.add_argument("--choice", action="append", help="the text is one of those that are given with this option")
    guide.add_argument("--grammar", metavar="FILE", help="the text is one of this grammar (GBNF or Lark)")
    parser.add_argument("--tls-ca", help="use TLS; PEM file of the authority that issued the manager's certificate")
    parser.add_argument("--tls-cert", help="PEM file of the client's certificate")
    parser.add_argument("--tls-key", help="PEM file of the client's private key")
    parser.add_argument("--tls-name", help="name in the manager's certificate, if it is not the endpoint's host")
    parser.add_argument("--token", default=os.environ.get("QUIRE_TOKEN"), help="bearer token; also $QUIRE_TOKEN")
    arguments, unknown = parser.parse_known_args()
    if unknown:
        parser.error(f"unexpected argument {unknown[0]}" + hint(unknown[0].partition("=")[0], parser))
    return arguments


def text_of(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def guide_of(args: argparse.Namespace) -> v1.Guide | None:
    if args.json_schema:
        return guides.json_schema(text_of(args.json_schema))
    if args.regex:
        return guides.regex(args.regex)
    if args.choice:
        return guides.choice(args.choice)
    return guides.grammar(text_of(args.grammar)) if args.grammar else None


def options_of(args: argparse.Namespace) -> Options:
    options: Options = {"max_tokens": args.max_tokens, "temperature": args.temperature}
    if args.temperature > 0:
        options["top_p"] = 0.95
    if args.seed is not None:
        options["seed"] = args.seed
    guide = guide_of(args)
    if guide is not None:
        options["guide"] = guide
    return options


def print_text(stream: Generator[v1.GenerateResponse, None, None]) -> int:
    """Returns the exit code."""
    try:
        with contextlib.closing(stream) as responses:
            for response in responses:
                print(response.text_delta, end="", flush=True)
                if response.HasField("numerics_changed_at"):
                    at = response.numerics_changed_at
                    print(f"\nFrom position {at} on, the numerics are others.", file=sys.stderr)
    except Error as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print()
    return 0


def main() -> int:
    args = read_arguments()
    try:
        with Client(args.endpoint, token=args.token, tls_ca=args.tls_ca, tls_cert=args.tls_cert, tls_key=args.tls_key,
                    tls_name=args.tls_name) as client:
            if args.chat:
                stream = client.chat([{"role": "user", "content": args.prompt}], timeout=60.0, **options_of(args))
            else:
                stream = client.generate(args.prompt, timeout=60.0, **options_of(args))
            return print_text(stream)
    except (ValueError, OSError) as error:
        print(f"quire-generate: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
