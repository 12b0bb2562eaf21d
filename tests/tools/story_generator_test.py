#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the story generator of tools/story_model; needs only Python."""

import random
import re
import unittest

import grammar
import stories

PLOTS = [plot for path in sorted(stories.PLOT_FOLDER.glob("*.txt")) for plot in stories.read_plots(path)]


class StoriesTest(unittest.TestCase):

    def test_every_plot_writes_finished_english(self):
        # str() of an actor raises before the introduction, so this also checks that every plot introduces its
        # characters.
        faults = {
            "template mark": r"[{}\[\]|<>]",
            "repeated word": r"\b(\w+) \1\b",
            "repeated punctuation": r"[.,!?][.,!?]| [.,!?]",
            "small letter at the start of a sentence": r"(?:^|\n|[.!?] |\.\" )\"?[a-z]",
            "wrong article": r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]",
        }
        for plot in PLOTS:
            for seed in range(100):
                story = stories.write_story([plot], random.Random(seed))
                for fault, pattern in faults.items():
                    self.assertIsNone(re.search(pattern, story), f"{fault} in {plot.name}, seed {seed}: {story}")
                for paragraph in story.split("\n\n"):
                    self.assertEqual(paragraph.count('"') % 2, 0, f"open quotation in {plot.name}, seed {seed}")

    def test_same_seed_writes_same_stories(self):
        self.assertEqual(list(stories.write_stories(7, 20, 0.5)), list(stories.write_stories(7, 20, 0.5)))

    def test_nobody_in_a_cast_shares_a_name_or_a_kind_of_animal(self):
        for seed in range(200):
            slots = stories.Casting(random.Random(seed)).slots()
            actors = [slots["h"], slots["f"], slots["g"]]
            self.assertEqual(len({actor.name for actor in actors}), 3, f"seed {seed}")
            kinds = [actor.kind for actor in actors if actor.kind not in ("girl", "boy")]
            self.assertEqual(len(kinds), len(set(kinds)), f"seed {seed}")

    def test_mentioning_someone_before_the_introduction_is_an_error(self):
        fox = grammar.Actor("Pip", "fox", "shy", False, "paw")
        with self.assertRaises(ValueError):
            grammar.fill("{h} ran.", {"h": fox})
        self.assertEqual(grammar.fill("{h.intro} ran. {h} saw {h.his} {h.hand}.", {"h": fox}),
                         "a shy fox named Pip ran. Pip saw his paw.")

    def test_choices_nest_and_macros_expand(self):
        self.assertEqual(grammar.choose("<day> [x[|]|x]", random.Random(1), {"day": "noon|noon"}), "noon x")

    def test_polish_sets_articles_and_capitals(self):
        self.assertEqual(grammar.polish("a owl saw a apple. it  ran. \"look!\" he said."),
                         "An owl saw an apple. It ran. \"Look!\" he said.")


if __name__ == "__main__":
    unittest.main()
