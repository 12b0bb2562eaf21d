# SPDX-License-Identifier: Apache-2.0
"""A small story grammar. It turns templates with choices, macros and slots into English sentences.

  [a|b|c]    one of the alternatives, chosen with the story's random generator; choices may be nested; [|x] is optional
  <macro>    the template of that name in MACROS
  {h}        the text of slot h;  {h.his} a property of it;  {h.His} the same with a capital letter

The first letter of a sentence is capitalised and "a" becomes "an" afterwards, so that templates can be written in
lower case. After a quotation that ends in ! or ? the template's own case is kept, because the sentence may continue:
"Look!" she said.
"""

import random
import re

_INNERMOST_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_MACRO = re.compile(r"<(\w+)>")
_SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])(?!uni|use|one\b|once\b)")
_SENTENCE_START = re.compile(r"(^|[.!?] |\.\" |\n|^\"|[.!?] \"|\.\" \")([a-z])")


class Actor:
    """A character: a name, a kind ("fox", "girl"), an adjective, and the pronouns that agree with them."""

    def __init__(self, name: str, kind: str, adjective: str, is_female: bool, hand: str):
        self.name = name
        self.kind = kind
        self.adjective = adjective
        self.he, self.him, self.his, self.himself = (
            ("she", "her", "her", "herself") if is_female else ("he", "him", "his", "himself"))
        self.hand = hand
        self.is_introduced = False
        self.introduction = f"{self.a} named {name}"

    @property
    def a(self) -> str:
        return f"a {self.adjective} {self.kind}"

    @property
    def intro(self) -> str:
        """The full introduction the first time, and only the name afterwards."""
        if self.is_introduced:
            return self.name
        self.is_introduced = True
        return self.introduction

    @property
    def known(self) -> str:
        """The name without the adjective and the kind, as an introduction."""
        self.is_introduced = True
        return self.name

    def __str__(self) -> str:
        if not self.is_introduced:
            raise ValueError(f"the plot mentions {self.introduction} without an introduction")
        return self.name


class Thing:
    """A singular thing: "a red kite" (a), "the kite" (the), "kite" (its text), "red kite" (full)."""

    def __init__(self, noun: str, adjective: str):
        self.noun = noun
        self.full = f"{adjective} {noun}"
        self.a = f"a {self.full}"
        self.the = f"the {noun}"

    def __str__(self) -> str:
        return self.noun


class Place:
    """A place: "the pond" (its text) and "by the pond" (at)."""

    def __init__(self, preposition: str, noun: str):
        self.noun = f"the {noun}"
        self.at = f"{preposition} the {noun}"

    def __str__(self) -> str:
        return self.noun


def choose(template: str, rng: random.Random, macros: dict[str, str]) -> str:
    """Resolves every macro and every choice; leaves the slots."""
    while _MACRO.search(template):
        template = _MACRO.sub(lambda match: "[" + macros[match.group(1)] + "]", template)
    while match := _INNERMOST_CHOICE.search(template):
        picked = rng.choice(match.group(1).split("|"))
        template = template[:match.start()] + picked + template[match.end():]
    return template


def fill(template: str, slots: dict[str, object]) -> str:
    """Replaces the slots from left to right, so that an introduction happens at the first mention."""

    def value(match: re.Match) -> str:
        name, attribute = match.groups()
        slot = slots[name]
        if attribute is None:
            return str(slot)
        if attribute[0].isupper():
            text = getattr(slot, attribute[0].lower() + attribute[1:])
            return text[0].upper() + text[1:]
        return getattr(slot, attribute)

    return _SLOT.sub(value, template)


def polish(text: str) -> str:
    """Capital letters at the start of sentences, "an" before vowels, single spaces."""
    text = re.sub(r" +", " ", text).strip()
    text = _ARTICLE.sub(r"\1n ", text)
    return _SENTENCE_START.sub(lambda match: match.group(1) + match.group(2).upper(), text)
