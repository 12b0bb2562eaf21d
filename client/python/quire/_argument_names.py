# SPDX-License-Identifier: Apache-2.0
"""Names of arguments for what the manager says about fields of requests."""

from __future__ import annotations

import re

# Text of the user in quotes, or a path such as stopping.stop[2].
_PARTS = re.compile(r'"(?:[^"\\]|\\.)*"?|[a-z_][a-z0-9_.]*[a-z0-9_]')
_NAMES = {"token_ids.ids": "prompt", "guided": "guide", "chat": "messages", "chat.template_kwargs": "template"}
# The other fields of these messages are arguments of their own.
_MESSAGES = ("sampling.", "stopping.", "chat.")
# A path that is one word is a field only where the sentence begins with it.
_SUBJECT = re.compile(r"(\w+)(?=: )")


def _name_of(path: str) -> str:
    if path in _NAMES:
        return _NAMES[path]
    if path.startswith("guided."):
        return "guide." + path.removeprefix("guided.")
    for message in _MESSAGES:
        if path.startswith(message):
            return path.removeprefix(message)
    return path


def with_argument_names(text: str, *, is_of_prompt: bool) -> str:
    """Returns the text with the names of the arguments of Client in place of the paths of fields. With `is_of_prompt`
    the field `text` is the argument `prompt`. Text in quotes stays as it is."""
    subject = _SUBJECT.match(text)
    begin = ""
    if subject:
        begin, text = subject[0], text[subject.end():]
        begin = "prompt" if is_of_prompt and begin == "text" else _NAMES.get(begin, begin)
    return begin + _PARTS.sub(lambda part: _name_of(part[0]) if "." in part[0] else part[0], text)
