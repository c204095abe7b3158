"""Reads plots.txt: the openings, likes, endings and plots of the short stories.

The file's own first paragraph says how it is written. A plot becomes a dict with "lesson" and
"about" (lists), "beats" (a list of lists) and "strangers" (whether the friend is met only in it).
"""

import pathlib


def _items(lines):
    """The `-` entries of a block of lines; a deeper line goes on with the entry before it."""
    items = []
    for line in lines:
        if line.startswith("-"):
            items.append(line[1:].strip())
        else:
            items[-1] += " " + line.strip()
    return items


def _blocks(lines):
    """Lists of entries, one for each run of lines between blank lines."""
    text = "\n".join(lines).strip("\n")
    return [_items(block.split("\n")) for block in text.split("\n\n")]


def _plot(lines):
    """One plot from its lines."""
    lesson, about, beats = (lines.index(key + ":") for key in ("lesson", "about", "beats"))
    return {
        "strangers": "strangers" in lines[:lesson],
        "lesson": _items(lines[lesson + 1 : about]),
        "about": _items(lines[about + 1 : beats]),
        "beats": _blocks(lines[beats + 1 :]),
    }


def _load(path):
    """Every section of the file by its name."""
    sections = {}
    for section in path.read_text(encoding="utf-8").split("\n== ")[1:]:
        name, *lines = section.rstrip("\n").split("\n")
        sections[name] = lines
    return sections


_SECTIONS = _load(pathlib.Path(__file__).with_name("plots.txt"))
OPENINGS, LIKES, ENDINGS = (
    _items(_SECTIONS.pop(key)) for key in ("openings", "likes", "endings")
)
PLOTS = [_plot(lines) for lines in _SECTIONS.values()]
