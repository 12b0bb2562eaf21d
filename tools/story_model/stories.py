#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes short stories. Paragraphs are separated by an empty line, and stories by a form feed.

Every story is a function of (seed, index): the same arguments give the same text on every machine.
"""

import argparse
import dataclasses
import pathlib
import random
import re

import grammar
import words

PLOT_FOLDER = pathlib.Path(__file__).resolve().parent / "plots"
RECORD_SEPARATOR = "\f"


@dataclasses.dataclass
class Plot:
    """A plot, read from plots/*.txt; README.md describes the format."""

    name: str
    flags: set[str]
    rows: list[dict[str, str]] = dataclasses.field(default_factory=list)
    # paragraphs[i][j] is a beat: the alternatives for one step of the story.
    paragraphs: list[list[list[str]]] = dataclasses.field(default_factory=list)


def read_plots(path: pathlib.Path) -> list[Plot]:
    plots: list[Plot] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if header := re.fullmatch(r"plot (\w+)(?:: (.*))?", line):
            plots.append(Plot(header.group(1), set((header.group(2) or "").split())))
        elif line == "row":
            plots[-1].rows.append({})
        elif line == "paragraph":
            plots[-1].paragraphs.append([[]])
        elif row_entry := re.fullmatch(r"  (\w+): (.*)", line):
            plots[-1].rows[-1][row_entry.group(1)] = row_entry.group(2)
        elif line and plots[-1].paragraphs:
            plots[-1].paragraphs[-1][-1].append(line)
        elif plots and plots[-1].paragraphs and plots[-1].paragraphs[-1][-1]:
            plots[-1].paragraphs[-1].append([])
    for plot in plots:
        plot.paragraphs = [[beat for beat in beats if beat] for beats in plot.paragraphs]
    return plots


class Casting:
    """Chooses who and what appears in one story; no name and no kind appears twice."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self._used: set[str] = set()

    def slots(self) -> dict[str, object]:
        rng = self._rng
        world = rng.choices(["children", "animals", "mixed", "fantasy"], weights=[40, 40, 12, 8])[0]
        hero = self._actor({"mixed": "children"}.get(world, world))
        friend = self._actor("children" if world == "children" else "animals")
        stranger = self._actor("children" if world == "children" else "animals")
        introductions = [f"{hero.his} friend {friend.name}", f"{hero.his} [best|good] friend {friend.name}"]
        if world != "children":
            introductions = [f"{hero.his} friend {friend.name} the {friend.kind}", f"{friend.name} the {friend.kind}"]
        friend.introduction = grammar.choose(rng.choice(introductions), rng, {})
        homes, places = words.SETTINGS[rng.choice(list(words.SETTINGS))]
        a, b, c = (grammar.Place(*place.split(" the ")) for place in rng.sample(places, 3))
        return {"h": hero, "f": friend, "g": stranger, "w": self._elder(world), "p": self._parent(hero),
                "o": self._thing(), "a": a, "b": b, "c": c, "home": rng.choice(homes),
                "treat": rng.choice(words.TREATS), "hobby": rng.choice(words.HOBBIES)}

    def _unused(self, candidates: list) -> object:
        while True:
            candidate = self._rng.choice(candidates)
            key = candidate if isinstance(candidate, str) else candidate[0]
            if key not in self._used:
                self._used.add(key)
                return candidate

    def _actor(self, world: str) -> grammar.Actor:
        rng = self._rng
        is_female = rng.random() < 0.5
        if world == "children":
            kind, hand = "girl" if is_female else "boy", "hand"
        else:
            kind, hand = self._unused(words.FANTASY if world == "fantasy" else words.ANIMALS)
        if kind in ("wizard", "pirate"):
            is_female = False
        human_names = words.GIRL_NAMES if is_female else words.BOY_NAMES
        name = self._unused(human_names if world == "children" or rng.random() < 0.35 else words.PET_NAMES)
        return grammar.Actor(name, kind, rng.choice(words.ADJECTIVES), is_female, hand)

    def _elder(self, world: str) -> grammar.Actor:
        kind = self._rng.choice(words.HUMAN_ELDERS if world == "children" else words.ELDERS)
        elder = grammar.Actor(f"the {kind}", kind, "", kind in words.FEMALE_ELDERS, "hand")
        elder.introduction = f"an {kind}"
        return elder

    def _parent(self, hero: grammar.Actor) -> grammar.Actor:
        call, kind, is_female = self._rng.choice(words.PARENTS)
        parent = grammar.Actor(f"{hero.his} {kind}", kind, "", is_female, "hand")
        parent.call = call
        parent.is_introduced = True
        return parent

    def _thing(self) -> grammar.Thing:
        adjective = self._rng.choice(words.COLOURS + ["little", "old", "new", "shiny", "wonderful"])
        return grammar.Thing(self._rng.choice(words.TOYS), adjective)


def write_story(plots: list[Plot], rng: random.Random) -> str:
    """One story: an opening, the plot's paragraphs, and sometimes a closing sentence."""
    plot = rng.choice(plots)
    slots = Casting(rng).slots()
    row = {key: grammar.choose(text, rng, words.MACROS) for key, text in rng.choice(plot.rows or [{}]).items()}

    def sentence(alternatives: list[str]) -> str:
        template = rng.choice(alternatives)
        for key, text in row.items():
            template = template.replace("{" + key + "}", text)
        return grammar.fill(grammar.choose(template, rng, words.MACROS), slots)

    paragraphs = []
    for beats in plot.paragraphs:
        sentences = []
        if not paragraphs:
            sentences.append(_opening(plot, rng, sentence))
        sentences.extend(sentence(beat) for beat in beats)
        paragraphs.append(sentences)
    if "own_ending" not in plot.flags and rng.random() < 0.5:
        paragraphs[-1].append(sentence(["<ending>"]))
    return "\n\n".join(" ".join(map(grammar.polish, filter(None, sentences))) for sentences in paragraphs)


def _opening(plot: Plot, rng: random.Random, sentence) -> str:
    kind = rng.random()
    if "two_friends" in plot.flags and kind < 0.4:
        return sentence(words.OPENINGS_OF_TWO)
    if kind < 0.75:
        return sentence(words.OPENINGS)
    return ""


def from_the_middle(story: str, rng: random.Random) -> str:
    """Returns the story from a random sentence on, so that the model also learns texts that begin in the middle."""
    starts = [match.end() for match in re.finditer(r"[.!?]\"?\s+(?=[A-Z\"])", story[:len(story) * 2 // 3])]
    return story[rng.choice(starts):] if starts else story


def write_stories(seed: int, count: int, middle_share: float):
    plots = [plot for path in sorted(PLOT_FOLDER.glob("*.txt")) for plot in read_plots(path)]
    for index in range(count):
        rng = random.Random(f"{seed}/{index}")
        story = write_story(plots, rng)
        yield from_the_middle(story, rng) if rng.random() < middle_share else story


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--middle-share", type=float, default=0.08, help="share of records that start mid-story")
    parser.add_argument("--out", type=pathlib.Path, help="file to write; standard output by default")
    arguments = parser.parse_args()
    stories = write_stories(arguments.seed, arguments.count, arguments.middle_share)
    if arguments.out is None:
        print("\n\n---\n\n".join(stories))
        return
    with arguments.out.open("w", encoding="utf-8") as out:
        for story in stories:
            out.write(story + RECORD_SEPARATOR)


if __name__ == "__main__":
    main()
