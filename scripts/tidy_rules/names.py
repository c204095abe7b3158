"""One type name has one meaning, and parameters have names that say something."""

import re

PRODUCT = ("server/", "engine/", "cuda/", "config/")
TIERS = "engine/cpu/isa/"
PARAMETERS_MAX = 8
SHORT_NAMES = set("inqkv")  # an index, a count; query, key, value
# A definition or prototype of a formatted file: it begins in the first column.
HEAD = re.compile(r"^(?!typedef|return|else)[A-Za-z_][\w *&<>:,]*\b(\w+)"
                  r"\(((?:[^;{}()]|\([^()]*\))*)\)\s*(?:const\s*)?(?:\{|;|__attribute__)",
                  re.MULTILINE)


def blank_comments(text):
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])  # noqa: E731
    return re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.DOTALL)


def typedefs(text):
    """(name, offset) of every typedef at the first column."""
    for match in re.finditer(r"^typedef\b[^;{]*?(?:\(\s*\*\s*(\w+)\s*\)[^;{]*|\b(\w+)"
                             r"(?:\[[^]]*\])?);|^(?:typedef\b[^;\n]*)?\}\s*(\w+);", text,
                             re.MULTILINE):
        yield match[1] or match[2] or match[3], match.start()


def check_types(tree):
    """A type's name is declared in one file of the product. The tiers of CPU kernels, of which each
    has its own vectors behind the same names, count as one file."""
    where = {}
    for f in tree:
        if f.is_c and f.name.startswith(PRODUCT):
            text = blank_comments(f.text)
            for name, at in typedefs(text):
                line = f"{f.name}:{text.count(chr(10), 0, at) + 1}"
                place = TIERS if f.name.startswith(TIERS) else f.name
                where.setdefault(name, {}).setdefault(place, line)
    for name, files in sorted(where.items()):
        first, *others = sorted(files)
        for other in others:
            yield f"{files[other]}: {first} has a type {name} too"


def split_arguments(text):
    """Splits at the commas that no parenthesis holds."""
    parts, depth = [""], 0
    for char in text:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def parameter_name(parameter):
    parameter = parameter.split("=")[0].rstrip()  # C++ has values by default
    pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", parameter)
    if pointer:
        return pointer[1]
    plain = re.search(r"[\s*&](\w+)(?:\s*\[[^\]]*\])*$", parameter)
    return plain[1] if plain else ""


def product_heads(f):
    """(line, function, parameters, head) of the functions of a hand-written product file."""
    if not f.is_c or f.is_generated or not f.name.startswith(PRODUCT):
        return
    text = blank_comments(f.text)
    for head in HEAD.finditer(text):
        yield text.count("\n", 0, head.start()) + 1, head[1], split_arguments(head[2]), head[0]


def check_parameter_counts(tree):
    """At most PARAMETERS_MAX; INLINE parts of a CPU kernel, which have no call, may have more."""
    for f in tree:
        for line, function, parameters, text in product_heads(f):
            if len(parameters) > PARAMETERS_MAX and not text.startswith("INLINE "):
                yield (f"{f.name}:{line}: {function} has {len(parameters)} parameters, at most "
                       f"{PARAMETERS_MAX}: use a struct")


def short_parameters(f):
    """(line, function, parameter) of one-letter parameters that say nothing."""
    for line, function, parameters, _ in product_heads(f):
        for parameter in parameters:
            name = parameter_name(parameter)
            if len(name) == 1 and name not in SHORT_NAMES:
                yield line, function, name


def check_parameters(tree):
    """No one-letter parameter but i, n, q, k, v."""
    for f in tree:
        for line, function, name in short_parameters(f):
            yield f"{f.name}:{line}: {function} calls a parameter `{name}`"
