"""The word lists of words.txt, which the templates draw from.

WORDS maps a slot's name to its words; SYLLABLES make up names; GENDER says of a few kinds of hero
whether "she" (True) or "he" fits.
"""

import pathlib


def read_lists(path):
    """The `name: entry, entry, ...` lists of a file, an indented line going on with its list."""
    lists = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            name, line = line.split(": ", 1)
            lists[name] = ""
        lists[name] += " " + line.strip()
    return {
        name: [e.strip() for e in text.split(",") if e.strip()] for name, text in lists.items()
    }


WORDS = read_lists(pathlib.Path(__file__).with_name("words.txt"))
SYLLABLES = WORDS.pop("syllables")
GENDER = {
    **{kind: True for kind in WORDS.pop("she")},
    **{kind: False for kind in WORDS.pop("he")},
}
