"""The tables of the tokenizer: categories, normalisation, the classes of pre-tokenizers.

The reference tokenizer library carries several Unicode versions at once, so each table has a pin of
its own (engine/text/unicode/unicode.h names them):

  general categories   Unicode 16.0, the Unicode Character Database inside the package unicodedata2;
                       swept against the library's regex classes over every code point
  NFC                  the data of 16.0, kept only where the library's NFC knows it (it is pinned to
                       Unicode 9.0): each combining class, decomposition and composition is probed
  Digits, Punctuation  measured: the library's pre-tokenizers over every code point
  word characters      measured: single_word added tokens beside every code point

The measured sets do not depend on the version of Python. The script stops when a count differs
from the pinned one, so a new library version is noticed instead of silently followed.
"""

import sys

import unicodedata2 as ucd
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from unicode_data.emit import CODE_POINTS, print_two_stage

L, N, SPACE, UPPER, LOWER, M, P, S = (1 << i for i in range(8))
DIGIT, PUNCT, WORD, NFC_CHECK = (1 << i for i in range(4))
PINNED = {
    "L": 141028,
    "N": 1911,
    "M": 2501,
    "P": 855,
    "S": 8514,
    "Lu": 1858,
    "Ll": 2258,
    "space": 25,
    "digit": 1924,
    "punct": 726,
}


def expect(what, got):
    if PINNED[what] != got:
        sys.exit(f"{what}: {got} code points, pinned {PINNED[what]}")


def isolated(pre_tokenizer):
    """Code points that a pre-tokenizer isolates, by one call over all of them."""
    text = "".join("a" + chr(c) for c in CODE_POINTS)
    return {ord(p) for p, _ in pre_tokenizer.pre_tokenize_str(text) if len(p) == 1 and p != "a"}


def matched(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(p) for p, _ in split.pre_tokenize_str("".join(map(chr, CODE_POINTS)))}


def categories():
    table = bytearray(0x110000)
    by_category = {}
    for c in range(0x110000):
        by_category.setdefault(ucd.category(chr(c)), set()).add(c)

    def union(*names):
        return set().union(*(by_category[n] for n in names))

    space = matched(r"\s")
    marks = union("Mn", "Mc", "Me")
    sets = {
        L: union("Lu", "Ll", "Lt", "Lm", "Lo"),
        N: union("Nd", "Nl", "No"),
        SPACE: space,
        UPPER: union("Lu", "Lt", "Lm", "Lo") | marks,
        LOWER: union("Ll", "Lm", "Lo") | marks,
        M: marks,
        P: union("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"),
        S: union("Sm", "Sc", "Sk", "So"),
    }
    for bit, members in sets.items():
        for c in members:
            table[c] |= bit
    for name, bit in (("L", L), ("N", N), ("M", M), ("P", P), ("S", S)):
        expect(name, len(sets[bit]))
        if matched(rf"\p{{{name}}}") != sets[bit]:
            sys.exit(f"the library's \\p{{{name}}} differs from Unicode {ucd.unidata_version}")
    expect("Lu", len(by_category["Lu"]))
    expect("Ll", len(by_category["Ll"]))
    expect("space", len(space))
    return table


def word_characters():
    tokenizer = Tokenizer(models.BPE({}, []))  # only the added token gives an id
    tokenizer.add_tokens([AddedToken("[w]", single_word=True)])
    return {c for c in CODE_POINTS if not tokenizer.encode(chr(c) + "[w]").ids}


def nfc_tables():
    nfc = normalizers.NFC().normalize_str
    ccc = bytearray(0x110000)
    for c in CODE_POINTS:
        k = ucd.combining(chr(c))
        # A snowman composes with nothing. U+0345 has the highest class, U+0334 the lowest.
        if k and (
            nfc("\u2603\u0345" + chr(c)) != "\u2603\u0345" + chr(c)
            if k < 240
            else nfc("\u2603" + chr(c) + "\u0334") != "\u2603" + chr(c) + "\u0334"
        ):
            ccc[c] = k
    decompositions, compositions = {}, {}
    for c in CODE_POINTS:
        d = ucd.decomposition(chr(c))
        if not d or d.startswith("<") or 0xAC00 <= c < 0xD7A4:
            continue
        parts = tuple(int(x, 16) for x in d.split())
        text = "".join(map(chr, parts))
        decomposes, composes = nfc(chr(c)) != chr(c), nfc(text) == chr(c)
        if composes and len(parts) == 2:
            compositions[parts] = c
        if composes or decomposes:
            decompositions[c] = parts + (0,) * (2 - len(parts))
    return ccc, decompositions, compositions


def main():
    classes = categories()
    digits, puncts = isolated(pre_tokenizers.Digits(True)), isolated(
        pre_tokenizers.Punctuation("isolated")
    )
    expect("digit", len(digits))
    expect("punct", len(puncts))
    ccc, decompositions, compositions = nfc_tables()
    extra = bytearray(0x110000)
    composed_second = {b for _, b in compositions}
    for c in CODE_POINTS:
        check = ccc[c] or c in composed_second or 0x1161 <= c <= 0x1175 or 0x11A8 <= c <= 0x11C2
        check = check or (c in decompositions and compositions.get(decompositions[c]) != c)
        extra[c] = (c in digits) * DIGIT | (c in puncts) * PUNCT | bool(check) * NFC_CHECK
    for c in word_characters():
        extra[c] |= WORD
    print("""/* unicode_tables.c: generated by scripts/unicode_tables.py, do not edit.
 *
 * Owns the Unicode data of the tokenizer; unicode.h says what each table means and which version
 * of Unicode it follows. Constant data only.
 */
/* clang-format off */
#include "engine/text/unicode/unicode.h"
""", end="")
    for name, table in (("class", classes), ("extra", extra), ("ccc", ccc)):
        print_two_stage(f"unicode_{name}_", table, before="\n")
    print(f"\nconst uint32_t unicode_num_decompositions = {len(decompositions)};")
    print(f"const unicode_triple_t unicode_decompositions[{len(decompositions)}] = {{")
    rows = [f"{{0x{c:X},0x{a:X},0x{b:X}}}" for c, (a, b) in sorted(decompositions.items())]
    for i in range(0, len(rows), 3):
        print("  " + ",".join(rows[i : i + 3]) + ",")
    print(f"}};\n\nconst uint32_t unicode_num_compositions = {len(compositions)};")
    print(f"const unicode_triple_t unicode_compositions[{len(compositions)}] = {{")
    rows = [f"{{0x{c:X},0x{a:X},0x{b:X}}}" for (a, b), c in sorted(compositions.items())]
    for i in range(0, len(rows), 3):
        print("  " + ",".join(rows[i : i + 3]) + ",")
    print("};")
