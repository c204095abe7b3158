#!/usr/bin/env python3
"""Checks constrained generation against Python's jsonschema.

    make BUILD=build build/grammar_driver
    build/venv-parity/bin/python tests/parity/parity_schemas.py --build build --schemas 2000 \
        --each 5

Draws random schemas from the keywords that inferd enforces. For each one it
  * generates texts by drawing uniformly among the allowed tokens (a model with random weights is
    the hardest case) and demands that every text that ended with "stop" parses and validates;
  * makes instances that jsonschema finds valid, their keys in any order (behind the required ones
    come those that are not listed), and demands that the grammar accepts their text; and breaks
    instances, and demands that what jsonschema finds invalid is not accepted.
With --tags the schemas are those of functions, and the texts are the parameters of calls in tags,
<parameter=NAME> VALUE </parameter>, as Qwen3-Coder writes them: what is generated is read back by
inferd's parser of tool calls, and the arguments have to validate.
--recursive draws types that hold each other. --logic draws keywords that combine others, with
instances that must be accepted exactly if they are valid (parity_logic.py), --arrays the same for
items that are unique or counted (parity_arrays.py). --regex and --grammar
draw regular expressions, judged by Python's re, and ambiguous user grammars, judged by a recogniser
that tries everything (parity_texts.py).
Ends with one line of counts; exits 1 when one output was invalid, one valid instance was refused or
one invalid instance was accepted. The seed makes a run repeatable.
"""

import argparse
import collections
import json
import random
import re
import string
import subprocess
import sys
from pathlib import Path

import jsonschema
from jsonschema import validators

from parity_arrays import ArrayMaker
from parity_logic import LogicMaker
from parity_texts import RandomGrammar, RandomRegex

ROOT = Path(__file__).resolve().parents[2]


def ascii_pattern(validator, pattern, instance, schema):
    """The dialect is ECMA-262: \\d and \\w are ASCII, and a dot takes no end of a line."""
    ends = re.sub(r"\$$", r"\\Z", pattern)  # Python's $ also matches before a line feed at the end
    ends = re.sub(r"(\\.|\[(?:\\.|[^\]])*\])|\.", lambda m: m[1] or "[^\n\r\u2028\u2029]", ends)
    if validator.is_type(instance, "string") and not re.search(ends, instance, re.ASCII):
        yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")


Oracle = validators.extend(jsonschema.Draft202012Validator, {"pattern": ascii_pattern})
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
WORDS = ["a", "b", "id", "name", "value", "kind", "x-y", "é", "q\"t", "tab\t", "back\\slash", "n1",
         "sub", "list", "data", "日本", "opt", "z"]

# Patterns with a maker of texts that match them.
PATTERNS = [
    ("^[a-z]{2,5}$", lambda r: "".join(r.choices(string.ascii_lowercase, k=r.randint(2, 5)))),
    ("^\\d{3}-\\d{4}$", lambda r: f"{r.randint(0, 999):03}-{r.randint(0, 9999):04}"),
    ("ab+c", lambda r: r.choice(["", "x", "é\n"]) + "a" + "b" * r.randint(1, 3) + "c!"),
    ("^(foo|bar)_\\w*$", lambda r: r.choice(["foo_", "bar_9Z", "foo_a_b"])),
    ("^[^aeiou]+$", lambda r: "".join(r.choices("xyz\"\\ é\n日", k=r.randint(1, 4)))),
    ("^.{1,3}$", lambda r: "".join(r.choices("ab é日\"😀", k=r.randint(1, 3)))),
    ("[A-F0-9]{4}", lambda r: r.choice(["", "zz"]) + "".join(r.choices("ABCDEF0123456789", k=4))),
    ("^(?:a|ab)(c|bcd)(d*)$", lambda r: r.choice(["ac", "abc", "abcd", "abbcd", "acdd"])),
    ("^\\u00e9?x{0,2}$", lambda r: r.choice(["", "éx", "xx", "éxx"])),
]
FORMAT_VALUES = {
    "date": ["2024-02-29", "1999-12-31", "2001-04-30"],
    "date-time": ["2024-02-29T23:59:59Z", "1985-04-12T23:20:50.52+01:00"],
    "time": ["00:00:00Z", "23:59:59.123-23:59"],
    "duration": ["P3Y6M4DT12H30M5S", "PT36H", "P2W", "P1D"],
    "email": ["joe.bloggs@example.com", "a+b@x-y.org"],
    "hostname": ["example.com", "a-b.c1.org"],
    "ipv4": ["127.0.0.1", "255.0.10.99"],
    "ipv6": ["::1", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "::"],
    "uri": ["https://example.com/a/b?c=d#e", "ftp://h:21", "http://x.org/%20(z)"],
    "uuid": ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"],
}


class Maker:
    """Random schemas, and instances for them."""

    def __init__(self, seed, recursion=0.0):
        self.r = random.Random(seed)
        self.recursion = recursion

    # -- schemas --------------------------------------------------------------------------------

    def schema(self, depth):
        r = self.r
        kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "format",
                 "pattern"]
        if depth > 0:
            kinds += ["object"] * 7 + ["array"] * 4 + ["anyOf"] * 2
            kinds += ["allOf", "oneOf", "tuple", "patterned", "types", "true", "set", "counted"]
        s = getattr(self, "make_" + r.choice(kinds))(depth)
        if isinstance(s, dict) and r.random() < 0.1:
            s["description"] = "said \"so\""
        return s

    def bounds(self, s, low, high, scale=1.0):
        r = self.r
        a, b = sorted((r.randint(low, high), r.randint(low, high)))
        as_is = (lambda x: x) if scale == 1.0 else (lambda x: round(x * scale, 3))
        if r.random() < 0.5:
            s[r.choice(["minimum", "exclusiveMinimum"])] = as_is(a)
        if r.random() < 0.5:
            s[r.choice(["maximum", "exclusiveMaximum"])] = as_is(b + 3)
        return s

    def make_string(self, _):
        s = {"type": "string"}
        low = self.r.choice([0, 0, 1, 2, 5])
        if low:
            s["minLength"] = low
        if self.r.random() < 0.5:
            s["maxLength"] = low + self.r.choice([0, 1, 3, 20, 40, 300])
        return s

    def make_integer(self, _):
        s = {"type": "integer"}
        if self.r.random() < 0.6:
            self.bounds(s, -200, 1200)
        if self.r.random() < 0.3:
            s["multipleOf"] = self.r.choice([1, 2, 3, 7, 10])
            if "maximum" in s or "exclusiveMaximum" in s:
                s.pop("maximum", None), s.pop("exclusiveMaximum", None)
        return s

    def make_number(self, _):
        s = {"type": "number"}
        if self.r.random() < 0.6:
            self.bounds(s, -3000, 3000, self.r.choice([1.0, 0.1, 0.01, 0.001]))
        elif self.r.random() < 0.3:
            s["multipleOf"] = self.r.choice([0.5, 0.25, 2])
        return s

    def make_boolean(self, _):
        return {"type": "boolean"}

    def make_null(self, _):
        return {"type": "null"}

    def make_true(self, _):
        return self.r.choice([True, {}])

    def value(self):
        r = self.r
        return r.choice([None, True, False, 0, 1, -7, 2.5, "a", "é\"\\\n", "long text", [],
                         [1, "x"], {"k": [None]}, "", 12345678901234567890])

    def make_enum(self, _):
        return {"enum": [self.value() for _ in range(self.r.randint(1, 5))]}

    def make_const(self, _):
        return {"const": self.value()}

    def make_format(self, _):
        return {"type": "string", "format": self.r.choice(list(FORMAT_VALUES))}

    def make_pattern(self, _):
        s = {"type": "string", "pattern": self.r.choice(PATTERNS)[0]}
        if self.r.random() < 0.3:
            s["maxLength"] = self.r.randint(5, 30)
        if self.r.random() < 0.2:
            s["minLength"] = self.r.randint(1, 2)
        return s

    def make_types(self, _):
        return {"type": self.r.sample(["string", "integer", "null", "boolean", "array", "object",
                                       "number"], self.r.randint(1, 3))}

    def make_object(self, depth):
        r = self.r
        names = r.sample(WORDS, r.randint(0, 5))
        s = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names}}
        if r.random() < 0.05:  # so many that the matcher keeps their set aside
            names += [f"k{i}" for i in range(r.randint(30, 90))]
            s["properties"] |= {n: self.schema(0) for n in names if n not in s["properties"]}
        required = [n for n in names if r.random() < min(0.5, 4 / max(1, len(names)))]
        if r.random() < 0.1:
            required.append("must")
        if required:
            s["required"] = required
        choice = r.random()
        if choice < 0.5 and "must" not in required:
            s["additionalProperties"] = False
        elif choice < 0.7:
            s["additionalProperties"] = self.schema(0)
        if r.random() < 0.1:
            s["maxProperties"] = len(required) + r.randint(0, 3)
        if r.random() < 0.1:
            s["minProperties"] = r.randint(0, min(max(len(names), 1), 6))
        return s

    def make_patterned(self, depth):
        s = self.make_object(depth)
        s["patternProperties"] = {p: self.schema(0) for p in
                                  self.r.sample(["^x", "a$", "^n[0-9]+$", "[é日]"],
                                                self.r.randint(1, 2))}
        return s

    def make_array(self, depth):
        s = {"type": "array", "items": self.schema(depth - 1)}
        low = self.r.choice([0, 0, 1, 2])
        if low:
            s["minItems"] = low
        if self.r.random() < 0.5:
            s["maxItems"] = low + self.r.randint(0, 4)
        return s

    def make_set(self, _):
        s = {"type": "array", "items": self.r.choice([self.make_enum, self.make_boolean])(0),
             "uniqueItems": True}
        if self.r.random() < 0.3:
            s["minItems"] = self.r.randint(0, 2)
        return s

    def make_counted(self, depth):
        s = self.make_array(depth)
        s["contains"] = self.r.choice([self.make_const, self.make_integer, self.make_object])(0)
        if self.r.random() < 0.3:
            s["minContains"] = self.r.randint(0, 2)
        return s

    def make_tuple(self, depth):
        s = {"type": "array",
             "prefixItems": [self.schema(depth - 1) for _ in range(self.r.randint(1, 3))]}
        if self.r.random() < 0.6:
            s["items"] = self.r.choice([False, self.schema(0)])
        if self.r.random() < 0.4:
            s["minItems"] = self.r.randint(0, len(s["prefixItems"]))
        return s

    def make_anyOf(self, depth):
        s = {"anyOf": [self.schema(depth - 1) for _ in range(self.r.randint(1, 3))]}
        if self.r.random() < 0.2:
            s["type"] = self.r.sample(["string", "object", "array", "integer"], 2)
        return s

    def make_oneOf(self, depth):
        kinds = self.r.sample(["cat", "dog", "cow"], self.r.randint(1, 3))
        return {"oneOf": [{"type": "object", "required": ["kind"], "properties": {
            "kind": {"const": k}, "v": self.schema(depth - 1)}} for k in kinds]}

    def make_allOf(self, depth):
        r = self.r
        if r.random() < 0.5:
            return {"allOf": [self.bounds({"type": "integer"}, -50, 50),
                              self.bounds({"type": "number"}, -60, 60)]}
        return {"allOf": [self.make_object(depth - 1) | {"additionalProperties": True},
                          {"properties": {"a": {"type": ["string", "integer"]}}}]}

    def parameters(self):
        """Of a function: an object, now and then with references."""
        s = self.make_object(3)
        if self.r.random() < 0.2:
            s["properties"]["ref"] = {"$ref": "#/$defs/leaf~1~0x"}
            s["$defs"] = {"leaf/~x": self.schema(1)}
        return s

    def recursive(self):
        """Types that may hold each other: a text leaves open for long which one it is of."""
        r, count = self.r, self.r.randint(1, 8)
        types = [f"T{i}" for i in range(count)]

        def any_of():
            refs = [{"$ref": f"#/$defs/{t}"} for t in r.sample(types, r.randint(1, count))]
            return {"anyOf": refs + [r.choice([{"type": "null"}, self.make_enum(0)])]}
        made = {}
        for t in types:
            own = {n: self.schema(0) for n in r.sample(WORDS, r.randint(0, 2))}
            held = {n: r.choice([any_of, lambda: {"type": "array", "items": any_of()}])()
                    for n in r.sample(["next", "left", "right"], r.randint(1, 2))}
            names = r.sample([*held, *own], len(held) + len(own))
            made[t] = {"type": "object", "properties": {n: (held | own)[n] for n in names},
                       "required": [n for n in names if r.random() < 0.5],
                       "additionalProperties": False}
        return {"$defs": made, **any_of()}

    def document(self):
        if self.r.random() < self.recursion:
            return self.recursive()
        s = self.schema(3)
        if isinstance(s, dict) and self.r.random() < 0.15:
            node = {"type": "object", "properties": {"v": self.schema(1), "next": {
                "anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                "required": ["v", "next"], "additionalProperties": False}
            s = {"$defs": {"node": node, "leaf/~x": s},
                 "type": "object", "properties": {"list": {"$ref": "#/$defs/node"},
                                                  "leaf": {"$ref": "#/$defs/leaf~1~0x"}}}
        return s

    # -- instances --------------------------------------------------------------------------------

    def instance(self, s, root, depth=6):
        r = self.r
        if s is True or s == {}:
            return self.value()
        if s is False or depth < 0:
            raise LookupError
        if "$ref" in s:
            at = root
            for part in s["$ref"].split("/")[1:]:
                at = at[part.replace("~1", "/").replace("~0", "~")]
            return self.instance(at, root, depth - 1)
        for word in ("anyOf", "oneOf"):
            if word in s:
                branch = r.choice(s[word])
                value = self.instance(branch, root, depth - 1)
                # Valid under another branch only, its keys may stand in the wrong order.
                alone = {"$defs": root.get("$defs", {}) if root is not True else {},
                         "allOf": [branch]}
                if not Oracle(alone, format_checker=FORMATS).is_valid(value):
                    raise LookupError
                return value
        if "allOf" in s:
            joined = {}
            for part in s["allOf"]:
                for k, v in part.items():
                    joined[k] = joined.get(k, {}) | v if k == "properties" else v
            return self.instance(joined, root, depth - 1)
        if "enum" in s:
            return r.choice(s["enum"])
        if "const" in s:
            return s["const"]
        kind = s.get("type")
        kind = r.choice(kind) if isinstance(kind, list) else kind
        return getattr(self, "instance_" + str(kind))(s, root, depth)

    def instance_string(self, s, _root, _depth):
        r = self.r
        if "format" in s:
            return r.choice(FORMAT_VALUES[s["format"]])
        if "pattern" in s:
            return next(make for p, make in PATTERNS if p == s["pattern"])(r)
        low = s.get("minLength", 0)
        length = r.randint(low, min(s.get("maxLength", low + 8), low + 40))
        return "".join(r.choices("abc XYZ\"\\/\n\té日😀\x01\x7f", k=length))

    def instance_integer(self, s, _root, _depth):
        low = max(s.get("minimum", -10**6), s.get("exclusiveMinimum", -10**6))
        high = min(s.get("maximum", 10**6), s.get("exclusiveMaximum", 10**6))
        low, high = int(low), int(high)
        if low > high:
            raise LookupError
        x = self.r.choice([low, high, low + 1, high - 1, self.r.randint(low, high)])
        m = s.get("multipleOf", 1)
        return x - x % m if isinstance(m, int) else x

    def instance_number(self, s, root, depth):
        x = self.instance_integer(s, root, depth)
        if "multipleOf" in s:
            return x * s["multipleOf"]
        return x if self.r.random() < 0.3 else round(x + self.r.random(), self.r.randint(1, 4))

    def instance_boolean(self, *_):
        return self.r.random() < 0.5

    def instance_null(self, *_):
        return None

    def instance_array(self, s, root, depth):
        prefix, low = s.get("prefixItems", []), s.get("minItems", 0)
        count = self.r.randint(low, min(s.get("maxItems", low + 3), low + 4))
        items = s.get("items", True)
        if items is False:
            count = min(count, len(prefix))
        return [self.instance(prefix[i] if i < len(prefix) else items, root, depth - 1)
                for i in range(count)]

    def instance_object(self, s, root, depth):
        r, out = self.r, {}
        required = s.get("required", [])
        for name, sub in s.get("properties", {}).items():
            if name in required or r.random() < min(0.6, 9 / len(s["properties"])):
                out[name] = self.instance(sub, root, depth - 1)
        for name in required:
            if name not in out:
                out[name] = self.instance(s.get("additionalProperties", True), root, depth - 1)
        out = dict(r.sample(list(out.items()), len(out)))  # listed names come in any order
        for pattern, sub in s.get("patternProperties", {}).items():
            name = {"^x": "x9", "a$": "extra", "^n[0-9]+$": "n77", "[é日]": "oé"}[pattern]
            if name not in out and r.random() < 0.5:
                out[name] = self.instance(sub, root, depth - 1)
        if s.get("additionalProperties", True) is not False and r.random() < 0.4:
            out["free"] = self.instance(s.get("additionalProperties", True), root, depth - 1)
        listed = {*required, *s.get("properties", {})}
        if len(out) >= s.get("minProperties", 0) > len(listed & out.keys()) + 1:
            raise LookupError  # extra keys may be equal: only one of them is sure to count
        for name in [n for n in out if n in listed and n not in required]:
            if r.random() < 0.2:
                out[name] = out.pop(name)  # optional ones also behind the extra ones
        return out

    def instance_None(self, s, root, depth):
        return self.value()

    def broken(self, value):
        """The instance with one thing changed."""
        r = self.r
        if isinstance(value, dict) and value and r.random() < 0.8:
            key = r.choice(list(value))
            if r.random() < 0.3:
                return {k: v for k, v in value.items() if k != key}
            return {k: self.broken(v) if k == key else v for k, v in value.items()}
        if isinstance(value, list) and value and r.random() < 0.8:
            at = r.randrange(len(value))
            return value[:at] + [self.broken(value[at])] + value[at + 1:]
        if isinstance(value, bool) or value is None:
            return self.value()
        if isinstance(value, (int, float)):
            return value + r.choice([1, -1, 0.5, 1000, -1000])
        if isinstance(value, str):
            return r.choice([value[:-1], value + "x", value * 2, value.upper(), 5])
        return r.choice([[value], {"free": value}, self.value()])


def dump(value, r):
    separators = r.choice([(",", ":"), (", ", ": ")])
    return json.dumps(value, ensure_ascii=False, separators=separators)


def tags(value, r):
    """The parameters of a call; None for text that a reader could take for another type or tag."""
    out = ""
    for name, item in value.items():
        text = item if isinstance(item, str) else dump(item, r)
        other = re.fullmatch(r"\s*([\[{].*|null|none|true|false|[-0-9].*)\s*", text, re.S | re.I)
        if isinstance(item, str) and (other or "<" in text):
            return None
        out += f"<parameter={name}>\n{text}\n</parameter>\n"
    return out + "</function>"


def plain_numbers(value):
    """Numbers in our form: no exponent, at most 15 digits, integers without a point."""
    if isinstance(value, float):
        digits = repr(value).strip("-").replace(".", "")
        return not value.is_integer() and digits.isdigit() and len(digits) <= 15
    if isinstance(value, dict):
        return all(map(plain_numbers, value.values()))
    return all(map(plain_numbers, value)) if isinstance(value, list) else True


class Run:
    def __init__(self, options):
        self.options = options
        self.counts = collections.Counter()
        self.reasons = collections.Counter()
        self.driver = subprocess.Popen(
            [str(Path(options.build) / "grammar_driver"), *options.vocabulary.split()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)

    def ask(self, question):
        self.driver.stdin.write(json.dumps(question).encode() + b"\n")
        self.driver.stdin.flush()
        return json.loads(self.driver.stdout.readline())

    def complain(self, what, schema, text):
        self.counts[what] += 1
        if self.counts[what] <= 10:
            print(f"{what}: {text!r}\n   schema: {json.dumps(schema, ensure_ascii=False)}")

    def check_generated(self, schema, oracle, results, read=json.loads):
        for g in results:
            self.counts["generated"] += 1
            self.counts["ended with " + g["finish"]] += 1
            if g["finish"] == "error":
                self.complain("failed generation", schema, g["text"])
            if g["finish"] != "stop":
                continue
            try:
                ok = oracle.is_valid(read(g["text"]))
            except ValueError:
                ok = False
            if not ok:
                self.complain("invalid output", schema, g["text"])

    def one_text(self, seed):
        """A regular expression or a user grammar: what is generated must be of its language."""
        r = random.Random(seed)
        made = RandomRegex(r) if self.options.regex else RandomGrammar(r)
        texts = [dump(t, r) if made.kind == "schema" else t for t in made.texts]
        answer = self.ask({"kind": made.kind, "value": made.value, "seed": seed, "texts": texts,
                           "generate": self.options.each, "max_tokens": self.options.max_tokens})
        self.counts["schemas"] += 1
        if "error" in answer:
            self.counts["refused schemas"] += 1
            self.reasons[re.sub(r"'[^']*'|\d+", "_", answer["error"])] += 1
            if "No text" in answer["error"] and True in map(made.is_valid_whole, made.texts):
                self.complain("valid instance refused", made.text, answer["error"])
            return
        self.check_generated(made.text, made, answer["generated"], lambda text: text)
        valid = [made.is_valid_whole(text) for text in made.texts]
        self.check_instances(made.text, texts, valid, answer["accepted"])

    def one_logic(self, seed):
        maker = ArrayMaker(seed) if self.options.arrays else LogicMaker(seed)
        schema = maker.document()
        oracle = Oracle(schema)
        values = [maker.instance(schema) for _ in range(self.options.instances)]
        texts = [dump(value, maker.r) for value in values]
        answer = self.ask({"kind": "schema", "value": schema, "texts": texts, "seed": seed,
                           "generate": self.options.each, "max_tokens": self.options.max_tokens})
        valid = [oracle.is_valid(value) for value in values]
        self.counts["schemas"] += 1
        if "error" in answer:
            self.counts["refused schemas"] += 1
            self.reasons[re.sub(r"'[^']*'|\d+", "_", answer["error"])] += 1
            if "No text satisfies" in answer["error"] and True in valid:
                self.complain("valid instance refused", schema, texts[valid.index(True)])
            return
        self.check_generated(schema, oracle, answer["generated"])
        self.check_instances(schema, texts, valid, answer["accepted"])

    def check_instances(self, schema, texts, valid, answers):
        """valid: None = not judged."""
        for text, is_valid, accepted in zip(texts, valid, answers):
            if is_valid is None:
                continue
            self.counts["valid instances" if is_valid else "invalid instances"] += 1
            if accepted != is_valid:
                self.complain("valid instance refused" if is_valid else
                              "invalid instance accepted", schema, text)

    def one(self, seed):
        if self.options.regex or self.options.grammar:
            self.one_text(seed)
            return
        if self.options.logic or self.options.arrays:
            self.one_logic(seed)
            return
        maker = Maker(seed, 1.0 if self.options.recursive else 0.0)
        in_tags = self.options.tags
        schema = maker.parameters() if in_tags else maker.document()
        oracle = Oracle(schema, format_checker=FORMATS)
        texts, valid = [], []
        for i in range(self.options.instances):
            try:
                value = maker.instance(schema, schema)
            except (LookupError, OverflowError):
                continue
            if i % 3 == 2:
                value = maker.broken(value)
            if not plain_numbers(value):
                continue
            if in_tags and not oracle.is_valid(value):
                continue  # in tags its text may be that of a valid one
            text = tags(value, maker.r) if in_tags else dump(value, maker.r)
            if text is None:
                continue
            texts.append(text)
            valid.append(i % 3 != 2 and oracle.is_valid(value) or
                         (None if oracle.is_valid(value) else False))
        kind = {"kind": "parameters", "functions": [{"function": {"name": "f",
                                                                  "parameters": schema}}]}
        answer = self.ask({**(kind if in_tags else {"kind": "schema"}), "value": schema,
                           "texts": texts, "seed": seed, "generate": self.options.each,
                           "max_tokens": self.options.max_tokens})
        self.counts["schemas"] += 1
        if "error" in answer:
            self.counts["refused schemas"] += 1
            self.reasons[re.sub(r"'[^']*'|\d+", "_", answer["error"])] += 1
            if "No text satisfies" in answer["error"] and True in valid:
                self.complain("valid instance refused", schema, texts[valid.index(True)])
            return
        self.check_generated(schema, oracle, answer["generated"])
        self.check_instances(schema, texts, valid, answer["accepted"])

    def report(self):
        for reason, count in self.reasons.most_common(12):
            print(f"refused {count:6}  {reason}")
        print(", ".join(f"{name} {count}" for name, count in sorted(self.counts.items())))
        bad = ["invalid output", "failed generation", "valid instance refused",
               "invalid instance accepted"]
        return sum(self.counts[name] for name in bad)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--each", type=int, default=5, help="generations for each schema")
    parser.add_argument("--instances", type=int, default=6, help="instances for each schema")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tags", action="store_true", help="parameters of calls in tags")
    parser.add_argument("--recursive", action="store_true", help="types that hold each other")
    parser.add_argument("--logic", action="store_true", help="keywords that combine others")
    parser.add_argument("--arrays", action="store_true", help="items that are unique or counted")
    parser.add_argument("--regex", action="store_true", help="regular expressions, no schemas")
    parser.add_argument("--grammar", action="store_true", help="user grammars, no schemas")
    parser.add_argument("--vocabulary", default="models/demo",
                        help='model directory, or "--synthetic TOKENS"')
    options = parser.parse_args()
    run = Run(options)
    for i in range(options.schemas):
        run.one(options.seed * 1_000_000 + i)
    return 1 if run.report() else 0


if __name__ == "__main__":
    sys.exit(main())
