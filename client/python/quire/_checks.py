# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments, with errors that name what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quire import _wire

_KINDS = ((str, "text"), ((bytes, bytearray, memoryview), "bytes"), (Mapping, "a map"), (list, "a list"))
_LARGEST_TOKEN_ID = 2**32 - 1


def kind_of(value: Any) -> str:
    """What a value is, as the rest of a sentence that begins with its name and "is"."""
    if value is None:
        return "None"
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return f"of the type {type(value).__name__}"


def text_of(name: str, value: Any) -> str:
    """Returns the text. Raises TypeError when it is none."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {kind_of(value)}, it must be text")
    return value


def list_of(name: str, value: Any, wanted: str = "a list") -> list[Any]:
    """Returns the elements of a list or of another iterable. The bytes of bytes, the letters of a text and the keys of
    a map are none: they raise TypeError."""
    if isinstance(value, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {kind_of(value)}, it must be {wanted}")
    return list(value)


def token_ids_of(name: str, value: Any, wanted: str = "a list of token ids") -> list[int]:
    """Returns the token ids. Raises TypeError or ValueError when one of them is none."""
    ids = list_of(name, value, wanted)
    for index, token_id in enumerate(ids):
        if not hasattr(token_id, "__index__"):
            raise TypeError(f"{name}[{index}] is {kind_of(token_id)}, it must be a token id")
        if not 0 <= token_id <= _LARGEST_TOKEN_ID:
            raise ValueError(f"{name}[{index}] is {token_id}, it must be a token id")
    return ids


def message_of(kind: Any, name: str, value: Any) -> Any:
    """Returns a message of the wire from a map of its fields, of which each is a text, or a list of texts or messages.
    A message stays as it is."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is {kind_of(value)}, it must be a map")
    known = kind.DESCRIPTOR.fields_by_name
    fields: dict[str, Any] = {}
    for key, part in value.items():
        if key not in known:
            raise TypeError(f'{name} has the field "{key}", it may have {", ".join(known)}')
        if part is None:
            continue
        path, type_of_part = f"{name}.{key}", known[key].message_type
        if type_of_part is None and known[key].default_value == []:  # A list of texts.
            fields[key] = [text_of(f"{path}[{i}]", p) for i, p in enumerate(list_of(path, part))]
        elif type_of_part is None:
            fields[key] = text_of(path, part)
        else:
            of_part = _wire.message(type_of_part.full_name)
            fields[key] = [message_of(of_part, f"{path}[{i}]", p) for i, p in enumerate(list_of(path, part))]
    return kind(**fields)
