"""One dialect: pointers are compared with NULL, and sections begin with one kind of ruler."""

import re

from tidy_rules.names import HEAD, PRODUCT, blank_comments

RULER = re.compile(r"/\* ---- \S(?:.*\S)? ---- \*/$")
# `type *name` behind what can begin a declaration, up to the next declarator.
POINTER = re.compile(r"(?:^|[(,;{])\s*(?:static |const |struct |volatile )*[A-Za-z_]\w*\s+"
                     r"(?:const\s+)?\*+\s*(?:const\s+|restrict\s+)*([A-Za-z_]\w*)\s*(?=[,;=)])",
                     re.MULTILINE)
AS_BOOL = (r"!{0}\b(?!\s*(?:->|[\[(.]))|\b(?:if|while) \({0}(?=\)| &&| \|\|)|"
           r"(?:&&|\|\|) {0}(?=\)| &&| \|\||;)|(?<![=<>+-] )(?<![\w*.>)]){0} \? ")


def check_rulers(tree):
    """A comment that begins with dashes is `/* ---- name ---- */` on a line of its own."""
    for f in tree:
        if not f.is_c or f.is_generated:
            continue
        for number, line in enumerate(f.lines, 1):
            begin = re.search(r"/\*\s*--+(?:\s|$)", line)
            if begin and not RULER.match(line.strip()):
                yield f"{f.name}:{number}: a ruler is `/* ---- name ---- */`"


def bodies(text):
    """(offset, text) of every function: its parameters and its body."""
    for head in HEAD.finditer(text):
        if not head[0].endswith("{"):
            continue
        end = text.find("\n}", head.end())
        yield head.start(), text[head.start():end if end >= 0 else len(text)]


def check_null(tree):
    """`p == NULL`, not `!p`: seen for the pointers that a function declares itself."""
    for f in tree:
        if not f.name.startswith(PRODUCT) or not f.name.endswith((".c", ".h", ".inc")):
            continue
        for begin, body in bodies(blank_comments(f.text)):
            for name in sorted(set(POINTER.findall(body))):
                for use in re.finditer(AS_BOOL.format(re.escape(name)), body):
                    line = f.text.count("\n", 0, begin + use.start()) + 1
                    yield f"{f.name}:{line}: `{name}` is a pointer: compare it with NULL"
