# SPDX-License-Identifier: Apache-2.0
"""What the output of a request must be (docs/guided.md): client.generate(prompt, guide=guides.regex("yes|no"))."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from quire import v1
from quire._checks import kind_of, list_of, text_of


def json_schema(schema: Mapping[str, Any] | bool | str | type) -> v1.Guide:
    """The output is a value of a JSON schema: an object, its text, or a class of pydantic."""
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    if not isinstance(schema, (str, bool, Mapping)):
        raise TypeError(f"schema is {kind_of(schema)}, it must be a map, text, a bool or a class of pydantic")
    return v1.Guide(json_schema=schema if isinstance(schema, str) else json.dumps(schema))


def json_object() -> v1.Guide:
    """The output is a JSON object."""
    return v1.Guide(json_object=True)


def regex(pattern: str) -> v1.Guide:
    """The whole output matches a regular expression in the syntax of ECMAScript."""
    return v1.Guide(regex=text_of("pattern", pattern))


def choice(texts: Iterable[str]) -> v1.Guide:
    """The output is one of the texts."""
    if isinstance(texts, str):
        raise TypeError("choice takes several texts, not one string")
    several = list_of("texts", texts, "a list of texts")
    return v1.Guide(choice=v1.Choices(texts=[text_of(f"texts[{i}]", text) for i, text in enumerate(several)]))


def grammar(text: str) -> v1.Guide:
    """The output is a text of a grammar in the notation of GBNF or Lark."""
    return v1.Guide(grammar=text_of("text", text))
