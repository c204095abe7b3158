#!/usr/bin/env python3
"""Counts constrained generations for each keyword of JSON Schema until each has --target of them.

    make build/grammar_driver
    build/venv-parity/bin/python tests/parity/parity_classes.py --target 100000 --seconds 3600

A class is a keyword of the table in engine/grammar/language/keywords.h. The schemas are those that
parity_schemas.py, parity_logic.py and parity_arrays.py draw, some of them as an older dialect
writes them; the next one holds the keyword that has the fewest texts so far. A text counts for
every keyword of its schema, and only if its generation ended with "stop". Python's jsonschema
judges each text. Prints, for each keyword, schemas, texts, different texts and invalid ones; exits
1 when a text was invalid or a generation failed. --only names the keywords to count.
"""

import argparse
import collections
import json
import random
import re
import sys
import time

from jsonschema import Draft7Validator, validators

from parity_arrays import ArrayMaker
from parity_logic import LogicMaker
from parity_schemas import FORMATS, ROOT, Maker, Oracle, Run, ascii_pattern

TABLE = ROOT / "engine/grammar/language/keywords.h"
OldOracle = validators.extend(Draft7Validator, {"pattern": ascii_pattern})
TRIES = 4000  # schemas that are drawn to find one with the keyword
REFUSED = 200  # schemas in a row that inferd may refuse


def keywords():
    table = TABLE.read_text().split("#define KEYWORDS(X)")[1].split("#define")[0]
    return re.findall(r'X\(\w+, "([^"]+)"\)', table)


def held(value, names, found):
    """Adds to `found` which of the names are keys somewhere in the schema."""
    if isinstance(value, dict):
        found |= names & set(value)
        for item in value.values():
            held(item, names, found)
    elif isinstance(value, list):
        for item in value:
            held(item, names, found)
    return found


def older(value):
    """The same schema as draft 7 writes it."""
    if isinstance(value, list):
        return [older(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {}
    for name, item in value.items():
        if name in ("dependentRequired", "dependentSchemas"):
            made.setdefault("dependencies", {}).update(older(item))
        elif name == "prefixItems":
            made["items"] = older(item)
        else:
            made["additionalItems" if name == "items" and "prefixItems" in value else name] = \
                older(item)
    return made


def array_of_words(seed):
    """A schema of the keywords that say something of all items together."""
    r = random.Random(seed)
    words = r.sample(["a", "b", "c", 1, 2, None, True], r.randint(2, 5))
    schema = {"type": "array", "items": {"enum": words}, "maxItems": r.randint(1, 6)}
    if r.random() < 0.5:
        schema["uniqueItems"] = True
    else:
        low = r.randint(0, 2)
        schema |= {"contains": {"enum": r.sample(words, r.randint(1, 2))}, "minContains": low,
                   "maxContains": low + r.randint(0, 2)}
    return schema


class Classes:
    def __init__(self, options):
        self.options = options
        self.names = set(options.only or keywords())
        self.run = Run(options)
        self.schemas, self.texts, self.different, self.invalid = (
            collections.Counter(dict.fromkeys(self.names, 0)) for _ in range(4))
        self.failed, self.never, self.refused = 0, set(), collections.Counter()
        self.seed = options.seed * 1_000_000_000

    def draw(self, name):
        """Returns a schema with the keyword and what judges it; None = none was found."""
        for _ in range(TRIES):
            self.seed += 1
            maker = (Maker, LogicMaker, Maker, ArrayMaker)[self.seed % 4]
            schema, oracle = maker(self.seed).document(), Oracle
            if name in ("uniqueItems", "contains", "minContains", "maxContains"):
                schema = array_of_words(self.seed)
            elif self.seed % 8 < 2 and isinstance(schema, dict):
                schema = {"$schema": "http://json-schema.org/draft-07/schema#", **older(schema)}
                oracle = OldOracle
            if name in held(schema, self.names, set()):
                return schema, oracle(schema, format_checker=None if self.seed % 2 else FORMATS)
        return None

    def judge(self, schema, oracle, results):
        found = held(schema, self.names, set())
        texts = [g["text"] for g in results if g["finish"] == "stop"]
        verdicts = {}
        for text in set(texts):
            try:
                verdicts[text] = oracle.is_valid(json.loads(text))
            except ValueError:
                verdicts[text] = False
        bad = [text for text in texts if not verdicts[text]]
        for text in bad[:1]:
            print(f"invalid output: {text!r}\n   schema: {json.dumps(schema)}")
        for g in results:
            if g["finish"] == "error":
                self.failed += 1
                print(f"failed generation: {g['text']!r}\n   schema: {json.dumps(schema)}")
        for name in found:
            self.schemas[name] += 1
            self.texts[name] += len(texts)
            self.different[name] += len(verdicts)
            self.invalid[name] += len(bad)

    def all(self):
        began = time.monotonic()
        while time.monotonic() - began < self.options.seconds:
            name = min(self.names - self.never, key=lambda n: (self.texts[n], n), default=None)
            if name is None or self.texts[name] >= self.options.target:
                break
            drawn = self.draw(name)
            if drawn is None:
                self.never.add(name)
                continue
            schema, oracle = drawn
            answer = self.run.ask({"kind": "schema", "value": schema, "texts": [],
                                   "seed": self.seed, "generate": self.options.each,
                                   "max_tokens": self.options.max_tokens})
            self.refused[name] = self.refused[name] + 1 if "error" in answer else 0
            if self.refused[name] > REFUSED:
                self.never.add(name)
            if "error" not in answer:
                self.judge(schema, oracle, answer["generated"])

    def report(self):
        print(f"{'keyword':24} {'schemas':>8} {'texts':>9} {'different':>9} {'invalid':>8}")
        for name in sorted(self.names):
            note = "  no schema is drawn or accepted" if name in self.never else ""
            print(f"{name:24} {self.schemas[name]:8} {self.texts[name]:9} "
                  f"{self.different[name]:9} {self.invalid[name]:8}{note}")
        return sum(self.invalid.values()) + self.failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--target", type=int, default=1000, help="texts for each keyword")
    parser.add_argument("--seconds", type=float, default=600, help="at most")
    parser.add_argument("--each", type=int, default=20, help="generations for each schema")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="keywords to count")
    parser.add_argument("--vocabulary", default="models/demo",
                        help='model directory, or "--synthetic TOKENS"')
    classes = Classes(parser.parse_args())
    classes.all()
    return 1 if classes.report() else 0


if __name__ == "__main__":
    sys.exit(main())
