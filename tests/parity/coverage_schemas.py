#!/usr/bin/env python3
"""Says how many schemas of a collection inferd accepts, why it refuses the others, and whether it
judges the collection's instances as Python's jsonschema does.

    make build/grammar_driver
    build/venv-parity/bin/python tests/parity/coverage_schemas.py FOLDER

Every *.json below FOLDER counts that holds one of
  * {"schema": ..., "tests": [{"data": ..., "valid": ...}]}, as JSONSchemaBench writes them, or a
    list of these, as the JSON Schema Test Suite does;
  * a schema. Its instances are test/NAME/*.json and negative_test/NAME/*.json below FOLDER, as
    SchemaStore keeps them.

jsonschema says which instances are valid, with its formats, and those that it cannot judge (a
reference to another document, a pattern that Python does not know) are counted apart. Their own
marks count in one case: what the Test Suite marks as valid is no false accept. Python's libraries
are narrower than the standards in some places (blanks of ECMA-262, hosts of IRIs, prefixes of URI
templates); these are counted apart, too. An instance is fed in the order of its keys. Compile times
are processor time.
Prints the accepted share, the first reasons of refusal, compile times, and false accepts and
rejects; exits 1 when an invalid instance was accepted. --examples names a schema for each reason.
"""

import argparse
import collections
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
from jsonschema import validators

from parity_schemas import FORMATS, ascii_pattern

ROOT = Path(__file__).resolve().parents[2]
OWN = {"$schema", "type", "properties", "$defs", "definitions", "anyOf", "oneOf", "allOf", "$ref",
       "items", "enum"}


def load(path):
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError, RecursionError):
        return None


def collection(folder):
    """Yields (name, schema, instances, the Test Suite's marks of them or None)."""
    for path in sorted(folder.rglob("*.json")):
        name = str(path.relative_to(folder))
        if re.search(r"(^|/)(negative_)?test/", name):
            continue
        document = load(path)
        groups = document if isinstance(document, list) else [document]
        for group in groups:
            if isinstance(group, dict) and "schema" in group and "tests" in group:
                marks = [test.get("valid") for test in group["tests"]]
                yield (name, group["schema"], [test["data"] for test in group["tests"]],
                       marks if isinstance(document, list) else None)
            elif isinstance(group, dict) and OWN & set(group) and group is document:
                beside = [load(file) for kind in ("test", "negative_test") for file in
                          sorted(folder.glob(f"**/{kind}/{path.stem}/*.json"))]
                yield name, group, [value for value in beside if value is not None], None


def oracle_of(schema):
    """Returns a function that says whether a value is valid; None = cannot say."""
    kind = validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    oracle = validators.extend(kind, {"pattern": ascii_pattern})(schema, format_checker=FORMATS)

    def judge(value):
        try:
            return oracle.is_valid(value)
        except Exception:  # pylint: disable=broad-except
            return None  # another document, a pattern of another dialect, a schema that is none
    return judge


def place(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def reason(message):
    message = re.sub(r" at '[^']*'| at /\S*|\(at [^)]*\)", "", message)
    return re.sub(r"'[^']*'", "'_'", re.sub(r"\d+", "N", message))[:150]


class Coverage:
    def __init__(self, options):
        self.options = options
        self.counts = collections.Counter()
        self.reasons, self.examples = collections.Counter(), {}
        self.times = []
        self.start()

    def start(self):
        self.driver = subprocess.Popen(
            [str(Path(self.options.build) / "grammar_driver"), *self.options.vocabulary.split()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)

    def ask(self, question):
        self.driver.stdin.write(json.dumps(question).encode() + b"\n")
        self.driver.stdin.flush()
        line = self.driver.stdout.readline()
        if line:
            return json.loads(line)
        self.driver.wait()
        self.start()
        return {"error": "THE DRIVER DIED"}

    def complain(self, what, name, text, reached):
        self.counts[what] += 1
        if self.counts[what] <= self.options.complaints:
            text = text.encode()
            near, rest = (part.decode(errors="replace") for part in
                          (text[max(0, reached - 100):reached], text[reached:reached + 60]))
            print(f"{what}: {name}: {near} >>> {rest}")

    def one(self, name, schema, instances, marks):
        texts = [json.dumps(value, ensure_ascii=False) for value in instances]
        answer = self.ask({"kind": "schema", "value": schema, "texts": texts, "path": []})
        self.counts["schemas"] += 1
        if "error" in answer:
            why = reason(answer["error"])
            self.reasons[why] += 1
            self.examples.setdefault(why, []).append((name, answer["error"]))
            return
        self.counts["accepted"] += 1
        self.times.append((answer["compile_us"], name))
        judge = oracle_of(schema)
        for value, text, accepted, reached, mark in zip(
                instances, texts, answer["accepted"], answer["reached"],
                marks or [None] * len(instances)):
            valid = judge(value)
            if valid is False and accepted and mark:
                self.counts["valid by the suite"] += 1
                continue
            if valid is None:
                self.counts["not judged"] += 1
                continue
            self.counts["valid" if valid else "invalid"] += 1
            if valid != accepted:
                self.complain("false reject" if valid else "false accept", name, text, reached)

    def report(self):
        counts = self.counts
        for why, count in self.reasons.most_common(self.options.reasons):
            print(f"{count:6} {count / counts['schemas']:6.2%}  {why}")
            for name, error in self.examples[why][:self.options.examples]:
                print(f"{'':16}{name}: {error}")
        for spent, name in sorted(self.times, reverse=True)[:self.options.slowest]:
            print(f"slow {spent:9.0f} us  {name}")
        times = [spent for spent, _ in self.times]
        print(f"{counts['accepted']} of {counts['schemas']} schemas accepted: "
              f"{counts['accepted'] / max(1, counts['schemas']):.2%}")
        print("compile " + "  ".join(f"p{100 * share:g} {place(times, share):.0f}"
                                     for share in (0.5, 0.9, 0.99)) +
              f"  max {max(times, default=0):.0f} us")
        print(f"{counts['false accept']} of {counts['invalid']} invalid instances accepted, "
              f"{counts['false reject']} of {counts['valid']} valid ones refused "
              f"({counts['false reject'] / max(1, counts['valid']):.2%}), "
              f"{counts['not judged']} not judged, {counts['valid by the suite']} that the Test "
              "Suite alone calls valid")
        return counts["false accept"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", default="build")
    parser.add_argument("--every", type=int, default=1, help="take every n-th schema")
    parser.add_argument("--reasons", type=int, default=40)
    parser.add_argument("--examples", type=int, default=0, help="schemas to name for a reason")
    parser.add_argument("--complaints", type=int, default=20)
    parser.add_argument("--slowest", type=int, default=0, help="schemas to name by compile time")
    parser.add_argument("--vocabulary", default="models/demo",
                        help='model directory, or "--synthetic TOKENS"')
    options = parser.parse_args()
    run = Coverage(options)
    for number, row in enumerate(collection(options.folder)):
        if number % options.every == 0:
            run.one(*row)
    return 1 if run.report() else 0


if __name__ == "__main__":
    sys.exit(main())
