"""SentencePiece character maps: building small ones, and taking the real one out of a model.

The layout is that of `precompiled_charsmap`: the bytes of a double-array trie (darts-clone) as a
little-endian number, its units, then the replacements, each with a NUL behind it.
"""

import os
import random
import struct
import tempfile
from functools import lru_cache

# A map small enough to commit.
RULES = {
    **{c: " " for c in "\t\n\r\x0b\x0c\u00a0\u3000\u2003"},
    **{c: "" for c in "\x01\x02\u00ad\u200b\u200d\ufeff"},
    **{chr(0xFEE0 + c): chr(c) for c in range(0x21, 0x7F)},
    "\r\n": " ",
    "\ufb01": "fi",
    "\u00bd": "1\u20442",
    "\u2460": "1",
    "\u2026": "...",
    "\u212b": "\u00c5",
    "e\u0301": "\u00e9",
    "n\u0303": "\u00f1",
    "\u304b\u3099": "\u304c",
    "\u0915": "ka",
    "\u00a9": "(c)",
    "\u1161": "A",
    "\u11a8": "K",
    "\u2764": "<3",
}

CLUSTERS = [
    *"ae\r\n k9",
    *"\u0301\u0303\u0327\u0300\u05b0\u0903\u093e\u094d\u09cd\u200c\u200d\ufe0f\u3099",
    *"\u0915\u0924\u0995\u0d15\u0600\u0604\u06dd\U000110bd\u0d4e",
    *"\u1100\u1161\u11a8\uac00\uac01\u115f\ua960\ud7b0\ud7cb\U00016d63",
    *"\u00a9\u00ae\u2764\u2728\U0001f600\U0001f468\U0001f1e9\U0001f3fd",
    *"\u0001\u00ad\u200b\u2028\ufeff\U000e0001\U000e0100\ufb01\uff21\u00bd\u304b\u00f1",
]


def build(rules):
    """rules: {text: replacement}. One unit a byte of the keys, placed first-fit."""
    replacements, places = b"", {}
    for replacement in dict.fromkeys(rules.values()):
        places[replacement] = len(replacements)
        replacements += replacement.encode() + b"\0"
    root = {}
    for key, replacement in rules.items():
        node = root
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = places[replacement]
    units, bases, waiting = {0: 0}, set(), [(0, root)]
    while waiting:
        at, node = waiting.pop()
        base = at ^ 1
        while base in bases or any(base ^ label in units for label in node):
            base += 1
        bases.add(base)
        units[at] |= (at ^ base) << 10 | (0 in node) << 8
        assert (at ^ base) < 1 << 21
        for label, child in node.items():
            units[base ^ label] = label if label else 1 << 31 | child
            if label:
                waiting.append((base ^ label, child))
    size = (max(units) | 255) + 1
    trie = struct.pack(f"<{size}I", *(units.get(i, 0) for i in range(size)))
    return struct.pack("<I", len(trie)) + trie + replacements


def _fields(message):
    """(field number, bytes) of the length-delimited fields of a protobuf message."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        if tag & 7 == 2:
            length = number()
            yield tag >> 3, message[at : at + length]
            at += length
        elif tag & 7 == 0:
            number()
        else:
            at += 4 if tag & 7 == 5 else 8


def of_sentencepiece(texts, rule="nmt_nfkc", rules=None):
    """The map inside a model that the sentencepiece package trains on `texts`. `rules`: its own
    normalization, {text: replacement}, instead of `rule`."""
    import sentencepiece

    with tempfile.TemporaryDirectory() as scratch:
        text, prefix = os.path.join(scratch, "text"), os.path.join(scratch, "model")
        with open(text, "w", encoding="utf-8") as file:
            file.write("\n".join(texts))
        options = {"normalization_rule_name": rule}
        if rules is not None:
            options = {"normalization_rule_tsv": os.path.join(scratch, "rules")}
            with open(options["normalization_rule_tsv"], "w", encoding="utf-8") as file:
                for key, replacement in rules.items():
                    codes = [" ".join(f"{ord(c):X}" for c in t) for t in (key, replacement)]
                    file.write("\t".join(codes) + "\n")
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=prefix, vocab_size=40, hard_vocab_limit=False,
            minloglevel=2, **options,
        )
        with open(prefix + ".model", "rb") as file:
            spec = next(value for field, value in _fields(file.read()) if field == 3)
    return next(value for field, value in _fields(spec) if field == 2)


@lru_cache
def real(rule):
    """A map of SentencePiece by its name, such as nmt_nfkc."""
    return of_sentencepiece(["hello world", "wide words", "low wheels"], rule)


def cluster_strings(count, seed, longest=12):
    """Characters that join to grapheme clusters, or do not, in any order."""
    rng = random.Random(seed)
    return ["".join(rng.choices(CLUSTERS, k=rng.randint(1, longest))) for _ in range(count)]
