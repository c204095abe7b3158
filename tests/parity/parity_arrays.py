"""Random schemas of arrays for parity_schemas.py: items that are unique, items that are counted.

Instances are drawn from few values, so that items are often equal. The numbers have one spelling:
an instance must be accepted exactly if it is valid.
"""

from parity_logic import DOMAIN, LogicMaker

NESTED = [[], [1], ["a", 1], [None, None], {"a": 1}, {"b": None}]


class ArrayMaker(LogicMaker):
    def item(self):
        r = self.r
        return r.choice(4 * [self.leaf] + [
            lambda: {"type": "object", "required": ["a"]},
            lambda: {"type": "array", "contains": self.leaf(0)},
            lambda: {"type": ["boolean", "null"]},
            lambda: {"type": "integer", "minimum": r.choice([0, 1]), "maximum": r.choice([2, 3])},
            lambda: r.choice([True, {}])])()

    def counted(self):
        r, s = self.r, {"contains": self.item()}
        if r.random() < 0.4:
            s["minContains"] = r.randint(0, 3)
        if r.random() < 0.4:
            s["maxContains"] = r.randint(0, 3)
        return s

    def condition(self, depth):
        """A schema of arrays."""
        r = self.r
        kinds = 3 * [self.counted] + [
            lambda: {"uniqueItems": True},
            lambda: {"prefixItems": [self.item() for _ in range(r.randint(1, 3))]},
            lambda: {r.choice(["minItems", "maxItems"]): r.randint(0, 4)},
            lambda: {"items": self.item()},
            lambda: r.choice([True, {"type": "array"}])]
        if depth > 0:
            kinds += [lambda: {"not": self.condition(depth - 1)},
                      lambda: {r.choice(["anyOf", "oneOf", "allOf"]):
                               [self.condition(depth - 1) for _ in range(r.randint(1, 3))]},
                      lambda: {w: self.condition(depth - 1)
                               for w in r.choice([("if", "then"), ("if", "then", "else"),
                                                  ("if", "else")])}]
        return r.choice(kinds)()

    def document(self):
        r = self.r
        s = {"type": "array",
             "allOf": [self.condition(1) for _ in range(r.randint(1, 3))],
             "$defs": {"leaf": self.leaf(1, False)}}
        few = r.sample(DOMAIN, r.randint(1, 6)) + r.sample(NESTED, r.choice([0, 0, 0, 1, 2]))
        if r.random() < 0.7:
            s["items"] = {"enum": few}
        if r.random() < 0.3:
            s["prefixItems"] = [{"enum": r.sample(few, r.randint(1, len(few)))}
                                for _ in range(r.randint(1, 3))]
        if r.random() < 0.4:
            s["uniqueItems"] = True
        if r.random() < 0.3:
            s[r.choice(["minItems", "maxItems"])] = r.randint(1, 4)
        return s

    def instance(self, s):
        r = self.r
        values = s.get("items", {}).get("enum", DOMAIN + NESTED)
        if r.random() < 0.2:
            values = DOMAIN
        count = r.randint(0, 5)
        if r.random() < 0.5:
            return r.sample(values, min(count, len(values)))
        return r.choices(values, k=count)
