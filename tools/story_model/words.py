# SPDX-License-Identifier: Apache-2.0
"""The words of the stories: names, kinds, places, things and the macros that many sentences share."""

GIRL_NAMES = """Lily Mia Anna Zoe Sara Emma Ella Nora Ruby Lucy Molly Daisy Alice Aisha Priya Yuki Mei Amara Sofia
Luna""".split()

BOY_NAMES = """Tom Ben Leo Max Sam Tim Jack Finn Noah Hugo Oscar Felix Theo Omar Ravi Kenji Diego Kofi Ivan
Milo""".split()

PET_NAMES = """Pip Momo Bramble Clover Hazel Nutmeg Poppy Biscuit Pebble Willow Button Fern Maple Pumpkin Acorn Ziggy
Coco Rusty Sunny Patch Berry Moss Ginger Pickle""".split()

# Kind, and the limb with which it holds things.
ANIMALS = [(kind, "paw") for kind in """fox rabbit bear mouse hedgehog squirrel badger turtle cat puppy kitten otter
beaver mole seal lion monkey panda koala hamster raccoon wolf tiger frog""".split()] + \
          [(kind, "wing") for kind in "owl duck penguin robin sparrow crow goose".split()] + \
          [(kind, "hoof") for kind in "goat lamb pony deer pig donkey".split()] + \
          [("elephant", "trunk"), ("snail", "horn")]

FANTASY = [("dragon", "claw"), ("robot", "hand"), ("giant", "hand"), ("wizard", "hand"), ("fairy", "hand"),
           ("ghost", "hand"), ("gnome", "hand"), ("pirate", "hand"), ("elf", "hand")]

ADJECTIVES = ["little"] * 6 + """small young clever curious shy kind gentle cheerful quiet friendly merry
careful dreamy lively""".split()

ELDERS = ["old owl", "old turtle", "old bear", "old crow", "old goat", "old badger", "old heron", "old toad"]
HUMAN_ELDERS = ["old fisherman", "old gardener", "old shepherd", "old baker", "old sailor", "old clockmaker",
                "old librarian", "old painter"]
FEMALE_ELDERS = {"old owl", "old goat", "old heron", "old gardener", "old baker", "old librarian"}

# What the hero calls the parent, the kind of the parent, and whether the parent is female.
PARENTS = [("Mama", "mother", True)] * 3 + [("Papa", "father", False)] * 2 + [
    ("Grandma", "grandmother", True), ("Grandpa", "grandfather", False), ("Auntie", "aunt", True)]

# Settings of a story: how the home is described, and places with their prepositions.
SETTINGS = {
    "forest": (["in a cosy house under an old oak tree", "at the edge of a green forest", "deep in the forest",
                "in a small hut among the trees"],
               ["by the stream", "under the old oak", "in the meadow", "behind the berry bushes",
                "near the hollow log", "on the stone bridge", "by the pond", "near the mossy rock"]),
    "seaside": (["in a white cottage by the sea", "in a small village by the sea", "on a tiny island",
                 "near the old harbour"],
                ["on the beach", "near the lighthouse", "among the rocks", "in the harbour", "behind the dunes",
                 "under the wooden pier", "near the old boat", "in front of the cave"]),
    "village": (["in a quiet village", "in a small village between two hills", "in a little house near the river",
                 "in a village with red roofs"],
                ["in the market", "by the well", "near the bakery", "behind the mill", "in the park",
                 "on the little bridge", "in front of the school", "under the big chestnut tree"]),
    "farm": (["on a small farm", "on a farm at the end of a long road", "in a yellow farmhouse"],
             ["behind the barn", "in the orchard", "by the duck pond", "near the henhouse", "under the haystack",
              "in the wheat field", "by the wooden gate", "in the vegetable garden"]),
    "mountain": (["high up in the mountains", "in a wooden hut on a mountain", "in a valley full of flowers"],
                 ["near the waterfall", "under the pine trees", "on the steep path", "by the clear lake",
                  "behind the big rock", "in front of the cave", "in the flower field", "near the spring"]),
    "town": (["in a busy town", "in a tall house in the town", "on the top floor of an old house"],
             ["in the park", "by the fountain", "in the library", "on the playground", "near the clock tower",
              "behind the train station", "in the toy shop", "on the market square"]),
    "winter": (["in the snowy north", "in a warm house in a snowy valley", "in a land of ice and snow"],
               ["on the frozen lake", "under the snowy pine tree", "behind the white hill", "near the ice cave",
                "by the old sledge", "in the snowy garden", "on the icy path", "near the woodshed"]),
}

COLOURS = "red blue green yellow golden silver white purple orange pink".split()
TOYS = """kite ball drum whistle lantern bell hat scarf boat flute cup basket ribbon marble book coat button ring
umbrella bucket balloon wagon mirror pencil blanket spoon""".split() + ["toy train", "spinning top", "music box",
                                                                         "paper star", "wooden horse"]

TREATS = ["a honey cake", "an apple pie", "a bowl of soup", "a plate of pancakes", "a loaf of warm bread",
          "a basket of berries", "a jar of jam", "a pot of tea", "a plate of cookies", "a carrot cake"]

HOBBIES = ["climb trees", "watch the clouds", "count the stars", "collect smooth stones", "sing funny songs",
           "listen to stories", "jump in puddles", "paint pictures", "dance in the rain", "ask questions",
           "look for shells and feathers", "help others", "run in the wind", "make things out of wood",
           "pick flowers", "tell jokes", "read books under a blanket", "swim", "explore new places", "bake bread"]

MACROS = {
    "day": "one day|one day|one day|one morning|one afternoon|one [sunny|bright|warm|fine|quiet|spring|summer] "
           "[morning|afternoon|day]",
    "night": "one night|one evening|one dark night|one [quiet|clear|cold|moonlit] [night|evening]",
    "later": "[a little|a while|not long] later|later that day|after a while|some time later|soon",
    "next_day": "the next [day|morning]|early the next morning|the following day",
    "very": "very|so|very, very|really",
    "happy": "<very> happy|<very> glad|<very> pleased|full of joy",
    "sad": "<very> sad|<very> unhappy|sad and a little lonely|close to tears",
    "smiled": "smiled|laughed|grinned|beamed",
    "nodded": "nodded|smiled and nodded|nodded [slowly|happily|wisely]",
    "thought": "thought [about it|hard|for a moment|for a long time]|sat down to think|closed {h.his} eyes and thought",
    "idea": "then {h} had [an idea|a good idea|a wonderful idea]|suddenly {h} had an idea|then an idea came to {h}",
    "yes": "of course|yes, of course|with pleasure|I would love to|gladly",
    "thanks": "thank you|thank you, thank you|oh, thank you|thank you so much",
    "hurray": "hurray|hooray|we did it|what a day|how wonderful",
    "hugged": "hugged|gave a big hug to|put {h.his} arms around",
    "ending": "{h} fell asleep that night with a smile on {h.his} face.|that night, the stars seemed to shine a little "
              "brighter.|and they all lived happily ever after.|and if you listen closely, you can still hear them "
              "laughing.|it was the best day [of {h.his} life|ever].|that evening, {h} told {p} the whole story.|"
              "{h} never forgot that day.|when the moon came up, everyone was happy and tired.|the end.|and that was "
              "that.|{p} was <very> proud of {h.him}.",
    "friends_f": "from that day on, {h} and {f} were [better friends than ever|always together]|after that, {h} and "
                 "{f} [met|played together] every day",
    "friends_g": "from that day on, {h} and {g} were [best friends|the best of friends|always together]|after that, "
                 "{h} and {g} [met|played together] every day|and so {h} and {g} became friends for life",
}

OPENINGS = [
    "[once upon a time|once upon a time|once upon a time|a long time ago|long, long ago|once], there was {h.intro}. "
    "{h.He} lived {home}[| with {p}].[| {h.He} loved to {hobby}.]",
    "once upon a time, {home}, there lived {h.intro}.[| Every day, {h.he} liked to {hobby}.]",
    "once upon a time, there lived {h.intro}, who loved to {hobby}.",
    "there was once {h.intro}. {h.He} lived {home} and loved to {hobby}.",
    "there was {h.intro} who lived {home}.[| Most of all, {h.he} loved to {hobby}.]",
    "{home} lived {h.intro}.[| {h.He} loved to {hobby}.| Everyone liked {h.him}.]",
    "{home}, there was {h.intro}. {h.His} favourite thing was to {hobby}.",
    "this is the story of {h.intro}, who lived {home}.",
    "{h.known} was {h.a}. {h.He} lived {home}[| and loved to {hobby}].",
    "{h.known} was {h.a} who loved to {hobby}.",
    "\"[Wake up|Good morning], {h.known}!\" called {p} every morning, and {h}, {h.a}, [jumped out of bed|opened one "
    "eye|ran to the window].",
]

OPENINGS_OF_TWO = [
    "{h.known} and {f.known} were [best|good|the best of] friends. They lived {home} and [did everything together|"
    "played together every day|loved to {hobby}].",
    "once upon a time, there were two friends, {h.known} and {f.known}. They lived {home}.",
    "{h.known} was {h.a}, and {f.known} was {f.a}. They were best friends.",
    "{home} lived two friends, {h.known} and {f.known}. Every day, they met to {hobby}.",
    "everyone knew {h.known} and {f.known}. Where one was, the other was never far away.",
]

# Words that a story keeps from its first mention to its end.
NAMES = GIRL_NAMES + BOY_NAMES + PET_NAMES
KEPT_WORDS = TOYS + COLOURS + [kind for kind, _ in ANIMALS + FANTASY] + ["girl", "boy"] + \
             [word for parent in PARENTS for word in parent[:2]] + \
             [elder.split()[-1] for elder in ELDERS + HUMAN_ELDERS]
