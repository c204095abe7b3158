"""Random schemas of keywords that combine others, for parity_schemas.py.

Every instance is drawn from DOMAIN and NAMES, so that conditions hold often, with its keys in an
order that the grammar writes: it must be accepted exactly if it is valid.
"""

import random
import re

DOMAIN = [None, True, False, 0, 1, 2, 3, 4.5, "", "a", "b", "ab"]
NAMES = ["a", "b", "c", "d", "e"]


class LogicMaker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def leaf(self, depth=1, refer=True):
        """A schema of values of DOMAIN."""
        r = self.r
        kinds = [lambda: {"const": r.choice(DOMAIN)},
                 lambda: {"enum": r.sample(DOMAIN, r.randint(1, 4))},
                 lambda: {"type": r.choice(["null", "boolean", "integer", "number", "string"])},
                 lambda: {"type": r.sample(["null", "integer", "string"], 2)},
                 lambda: {r.choice(["minimum", "maximum", "exclusiveMinimum",
                                    "exclusiveMaximum"]): r.choice([0, 1, 2, 1.5])},
                 lambda: {"type": "integer", "multipleOf": r.choice([2, 3])},
                 lambda: {r.choice(["minLength", "maxLength"]): r.randint(0, 2)},
                 lambda: {"pattern": r.choice(["^a", "b$", "^a?b?$"])},
                 lambda: self.reference() if refer else {"type": "string"}]
        if depth > 0:
            kinds += [lambda: {"not": self.leaf(depth - 1, refer)},
                      lambda: {r.choice(["anyOf", "oneOf", "allOf"]):
                               [self.leaf(depth - 1, refer) for _ in range(r.randint(1, 3))]},
                      lambda: {w: self.leaf(depth - 1, refer) for w in ("if", "then", "else")}]
        return r.choice(kinds)()

    def reference(self):
        """What stands beside it holds too; as draft 7 (parity_classes.py) reads it, it does not."""
        beside = self.leaf(0, False) if self.r.random() < 0.3 else {}
        return beside | {"$ref": "#/$defs/leaf"}

    def names(self, low, high):
        return self.r.sample(NAMES, self.r.randint(low, high))

    def condition(self, depth):
        """A schema of objects with the names of NAMES."""
        r = self.r

        def members():
            return {n: r.choice([self.leaf, self.leaf, lambda: r.choice([True, False])])()
                    for n in self.names(1, 2)}
        kinds = [lambda: {"required": self.names(1, 2)},
                 lambda: {"properties": members()},
                 lambda: {"properties": members(), "required": self.names(1, 2)},
                 lambda: {"dependentRequired": {n: self.names(0, 2) for n in self.names(1, 3)}},
                 lambda: {r.choice(["minProperties", "maxProperties"]): r.randint(1, 4)},
                 lambda: {"properties": {n: True for n in self.names(1, 4)},
                          "additionalProperties": False},
                 lambda: {"properties": {n: True for n in self.names(0, 4)},
                          "additionalProperties": self.leaf(0)},
                 lambda: {"patternProperties": {r.choice(["^[ax]", "b$", "^[a-c]", "^"]):
                                                r.choice([self.leaf(0), False])}},
                 lambda: {"propertyNames": self.name_rule(1)},
                 lambda: {"enum": [{n: r.choice(DOMAIN) for n in self.names(0, 2)}
                                   for _ in range(r.randint(1, 3))]},
                 lambda: r.choice([True, False, {"type": "object"}])]
        if depth > 0:
            kinds += 2 * [lambda: {"not": self.condition(depth - 1)},
                          lambda: {r.choice(["anyOf", "oneOf", "allOf", "oneOf"]):
                                   [self.condition(depth - 1) for _ in range(r.randint(1, 3))]},
                          lambda: {w: self.condition(depth - 1)
                                   for w in r.choice([("if", "then"), ("if", "then", "else"),
                                                      ("if", "else")])},
                          lambda: {"dependentSchemas": {n: self.condition(depth - 1)
                                                        for n in self.names(1, 2)}}]
        return r.choice(kinds)()

    def name_rule(self, depth=2):
        """A schema of the names of members."""
        r = self.r
        kinds = [lambda: {"enum": r.sample([*NAMES, "x", "ab", 1], r.randint(1, 5))},
                 lambda: {"const": r.choice([*NAMES, "x"])},
                 lambda: {"pattern": r.choice(["^[a-c]", "[^ab]$", "^.$", "b", "x|e"])},
                 lambda: {r.choice(["minLength", "maxLength"]): r.choice([1, 1, 2])},
                 lambda: {"minLength": 1, "maxLength": r.randint(1, 2)},
                 lambda: r.choice([True, False, {}, {"type": "string"}, {"type": "integer"}]),
                 lambda: {"$ref": "#/$defs/leaf"}]
        if depth > 0:
            kinds += 2 * [lambda: {"not": self.name_rule(depth - 1)},
                          lambda: {r.choice(["anyOf", "allOf", "oneOf"]):
                                   [self.name_rule(depth - 1) for _ in range(r.randint(1, 3))]}]
        return r.choice(kinds)()

    def unevaluated(self):
        """What no part of the schema looks at is refused, or has a schema of its own."""
        r = self.r
        word = r.choice(["anyOf", "anyOf", "oneOf", "allOf"])
        s = {word: [self.condition(r.randint(0, 1)) for _ in range(r.randint(1, 3))],
             "unevaluatedProperties": r.choice([False, False, self.leaf(0)])}
        s |= r.choice([{}, {"$ref": "#/$defs/part"}, {"allOf": [self.condition(1)]},
                       {"if": self.condition(0)}])
        s |= r.choice([{}, {"properties": {n: True for n in self.names(1, 2)}},
                       {"patternProperties": {"^[ab]": True}}])
        return r.choice([s, s, {"allOf": [s]}, {"anyOf": [s, self.condition(0)]}])

    def items(self):
        """A schema of arrays whose parts look at some of the items."""
        r = self.r

        def part(depth):
            kinds = [lambda: {"prefixItems": [self.leaf(0) for _ in range(r.randint(1, 2))]},
                     lambda: {"items": self.leaf(0)}, lambda: {"minItems": r.randint(0, 3)},
                     lambda: {"maxItems": r.randint(0, 3)}, lambda: {}]
            if depth > 0:
                kinds += [lambda: {r.choice(["allOf", "anyOf", "oneOf"]):
                                   [part(depth - 1) for _ in range(r.randint(1, 2))]},
                          lambda: {"if": {"minItems": r.randint(0, 3)}, "then": part(0),
                                   "else": part(0)}]
            return r.choice(kinds)()
        return {"type": "array", "allOf": [part(2) for _ in range(r.randint(1, 2))],
                "unevaluatedItems": r.choice([False, False, self.leaf(0)])}

    def document(self):
        r = self.r
        kind = r.random()
        if kind < 0.2:
            s = self.leaf(2)
        elif kind < 0.3:
            s = self.items()
        else:
            s = {"type": "object",
                 "properties": {n: {"enum": r.sample(DOMAIN, r.randint(2, 5))} for n in NAMES},
                 "additionalProperties": r.choice([False, {"type": "null"}]),
                 "allOf": [self.condition(2) for _ in range(r.randint(1, 3))]}
            if r.random() < 0.3:
                s["propertyNames"] = self.name_rule()
            if r.random() < 0.1:
                s["allOf"].append({"propertyNames": self.name_rule()})
            if r.random() < 0.3:
                s["allOf"].append(self.unevaluated())
        definitions = {"$defs": {"leaf": self.leaf(1, False), "part": self.condition(0)}}
        if ("properties" in s and r.random() < 0.3 and
                not re.search("Properties|propertyNames", str([s["allOf"], definitions]))):
            more = {f"n{i}": {"enum": [None]} for i in range(r.choice([40, 90]))}
            listed = s["properties"] | more
            s["properties"] = dict(r.sample(list(listed.items()), len(listed)))
        return s | definitions if "properties" in s else {"allOf": [s]} | definitions

    def instance(self, s):
        r = self.r
        if "unevaluatedItems" in str(s["allOf"][0]):
            return [r.choice(DOMAIN) for _ in range(r.randint(0, 4))]
        if "properties" not in s:
            return r.choice(DOMAIN)
        listed = s["properties"]
        out = {n: r.choice(listed[n]["enum"] if r.random() < 0.9 else DOMAIN)
               for n in r.sample(list(listed), len(listed))
               if r.random() < (0.5 if n in NAMES else 0.04)}
        return out | ({r.choice(["x", "ab"]): None} if r.random() < 0.3 else {})
