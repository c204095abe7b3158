"""One dialect: pointers are compared with NULL, sections begin with one kind of ruler, tables in
comments stay tables, and who alone includes a header is who includes it."""

import re

from tidy_rules.names import HEAD, PRODUCT, blank_comments

RULER = re.compile(r"/\* ---- \S(?:.*\S)? ---- \*/$")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
# The end of a sentence or item, the key of a row, and the blanks up to its column.
POURED = re.compile(r"(?<=[.;:] )[A-Z][A-Za-z ]{0,24}\S {3,}(?=\S)")
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


def check_poured(tree):
    """A row of a table begins its line: a formatter that joins lines pours it into prose."""
    for f in tree:
        if not f.is_c or f.is_generated:
            continue
        for comment in COMMENT.finditer(f.text):
            for at in POURED.finditer(comment[0]):
                line = f.text.count("\n", 0, comment.start() + at.start()) + 1
                yield f"{f.name}:{line}: a row of a table within a line: {at[0].strip()!r}"


def check_includers(tree):
    """A head that says "No other file of the product includes it" names all files that do."""
    for f in tree:
        head = f.text.split("*/")[0]
        if not f.is_header or "No other file of the product includes it" not in " ".join(
                head.replace("\n *", " ").split()):
            continue
        line = f'#include "{f.name}"'
        for other in tree:
            name = other.name.rpartition("/")[2]
            if other.name.startswith(PRODUCT) and line in other.lines and name not in head:
                yield f"{f.name}:1: {other.name} includes it too"


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
