"""The planted bugs of tests/mutate fit the sources."""

import json
import re

ENGINE = "tests/sim/mutants.txt"
KERNELS = ("tests/cuda/mutants.json", "tests/ptx/mutants.json")


def edits_of_engine(text):
    """(line, mutant, file, lines that go) of every edit of the list."""
    edits, mutant = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("= "):
            mutant = line[2:].split(":")[0]
        elif line.startswith("@ "):
            edits.append((number, mutant, line[2:].strip(), []))
        elif line.startswith("-") and edits:
            edits[-1][3].append(line[1:])
    return edits


def places(tree, name, pattern):
    """How often the pattern is in the file; None: no such file."""
    path = tree.root / name
    if not path.is_file():
        return None
    return len(re.findall(pattern, path.read_text("utf-8"), re.MULTILINE))


def complaint(where, mutant, name, found):
    if found is None:
        return f"{where}: {mutant}: there is no {name}"
    return f"{where}: {mutant}: found {found} times in {name}, must be once"


def check_mutants(tree):
    """What a mutant replaces is found exactly once, by the rule of the script that plants it."""
    if ENGINE in tree.names:
        for number, mutant, name, old in edits_of_engine((tree.root / ENGINE).read_text("utf-8")):
            # Whole lines but for the last, which may be the beginning of one.
            found = places(tree, name, "^" + re.escape("\n".join(old)))
            if found != 1 or not old:
                yield complaint(f"{ENGINE}:{number}", mutant, name, found)
    for kernels in (name for name in KERNELS if name in tree.names):
        for mutant in json.loads((tree.root / kernels).read_text("utf-8")):
            found = places(tree, mutant["file"], re.escape(mutant["from"]))
            if found != 1:
                yield complaint(kernels, mutant["name"], mutant["file"], found)
