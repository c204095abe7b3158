"""Random regular expressions and user grammars, for parity_schemas.py: each says which texts are of
its language.
"""

import json
import re


def python_re(text):
    """ECMA-262's $ is the very end, and its \\B matches the empty text."""
    return re.compile(text.replace("$", r"\Z").replace(r"\B", r"(?!\b)"), re.ASCII)


class RandomRegex:
    """A regular expression of the dialect as a tree, and the places of a text where it can end.
    Python's re says which characters an atom takes and where an assertion holds; it judges whole
    expressions on short texts only, because long ones could take it forever."""

    ATOMS = ["a", "b", "c", "[a-c]", "[^a-c\\n]", "\\d", "\\w", "[x-z\\d]", "\\.", "é", "[à-ÿ]",
             " "]
    COUNTS = {"": (1, 1), "?": (0, 1), "*": (0, None), "+": (1, None), "{0,4}": (0, 4),
              "{2,}": (2, None), "{1,3}": (1, 3), "{2}": (2, 2)}

    LETTERS = "abcd xz19.é-_"

    def __init__(self, r):
        self.assertions = r.choice([0, 0.2, 0.4])
        self.drawn = set()
        self.text, self.tree = self.alternatives(r, 1)
        self.is_search = r.random() < 0.4
        self.kind = "schema" if self.is_search else "regex"
        self.value = {"type": "string", "pattern": self.text} if self.is_search else self.text
        self.whole = python_re(self.text)
        self.texts = ["".join(r.choices(self.LETTERS, k=r.randint(0, 7))) for _ in range(40)]

    def assertion(self, r, depth=1):
        """An anchor, a word boundary or a look-around, which Python's re judges at a place. Python
        wants one length in a look-behind, and no $ is taken there."""
        kind = r.choice(["^", "$", "\\b", "\\b", "\\B", "(?=", "(?!", "(?=", "(?!", "(?<=", "(?<!"])
        if kind[0] != "(":
            return kind
        counts = ["", "", "{2}"] if "<" in kind else ["", "?", "*", "+", "{0,2}", "{2}"]
        parts = []
        for _ in range(1 if "<" in kind else r.choice([1, 1, 2])):
            part = "".join(r.choice(self.ATOMS) + r.choice(counts) for _ in range(r.randint(1, 3)))
            if depth > 0 and r.random() < 0.3:
                inner = self.assertion(r, 0)
                part = r.choice([part + inner, inner + part]) if "$" not in inner else part
            parts.append(part)
        return kind + "|".join(parts) + (r.choice(["$", ""]) if "<" not in kind else "") + ")"

    def alternatives(self, r, depth):
        parts = [self.sequence(r, depth) for _ in range(r.choice([1, 1, 2, 3]))]
        return "|".join(text for text, _ in parts), [tree for _, tree in parts]

    def sequence(self, r, depth):
        text, tree = "", []
        for _ in range(r.randint(1, 3)):
            if r.random() < self.assertions:
                inner = self.assertion(r)
                if inner == "^" and "$" in self.drawn:
                    inner = "\\b"  # $^, which only the empty text matches, is refused
                self.drawn.add(inner)
                text += inner
                tree.append((Assertion(inner), 1, 1))
                continue
            count = r.choice(["", *self.COUNTS])
            if depth > 0 and r.random() < 0.4:
                inner, what = self.alternatives(r, depth - 1)
                inner = f"(?:{inner})"
            else:
                inner = r.choice(self.ATOMS)
                what = re.compile(inner, re.ASCII)
            text += inner + count
            tree.append((what, *self.COUNTS[count]))
        return text, tree

    def step(self, what, text, places):
        if isinstance(what, Assertion):
            return {p for p in places if what.holds(text, p)}
        if isinstance(what, re.Pattern):
            return {p + 1 for p in places if p < len(text) and what.match(text[p])}
        return set().union(*(self.ends(sequence, text, places) for sequence in what))

    def ends(self, sequence, text, places):
        for what, low, high in sequence:
            reached, new, times = set(places) if low == 0 else set(), places, 0
            while new and (high is None or times < high):
                new, times = self.step(what, text, new), times + 1
                if times >= low:
                    new = new - reached if high is None else new
                    reached |= new
            places = reached
        return places

    def is_valid(self, text):
        if self.is_search:
            text = json.loads(text)
            return bool(self.step(self.tree, text, set(range(len(text) + 1))))
        return len(text) in self.step(self.tree, text, {0})

    def is_valid_whole(self, text):
        """The same by Python's re alone."""
        return bool((self.whole.search if self.is_search else self.whole.fullmatch)(text))


class Assertion:
    def __init__(self, text):
        self.pattern = python_re(text)

    def holds(self, text, place):
        return bool(self.pattern.match(text, place))


class RandomGrammar:
    """Rules of branches of (letters or rule, min, max); a rule that begins a branch comes later."""

    def __init__(self, r):
        self.kind, self.rules = "grammar", []
        count = r.randint(1, 6)
        for rule in range(count):
            branches = [[(r.choice(["a", "b", "c", "ab", "é"]), 1, 1)]]
            for _ in range(r.randint(0, 3)):
                branches.append([self.item(r, rule, count, i == 0) for i in range(r.randint(0, 3))])
            self.rules.append(branches)
        lines = ["root ::= r0"]
        for rule, branches in enumerate(self.rules):
            lines.append(f"r{rule} ::= " + " | ".join(
                " ".join((f"r{what}" if isinstance(what, int) else f'"{what}"') +
                         f"{{{low},{high}}}" for what, low, high in branch) or '""'
                for branch in branches))
        self.text = self.value = "\n".join(lines)
        self.texts = []

    def item(self, r, rule, count, first):
        low, high = r.choice([(1, 1), (1, 1), (0, 1), (0, 2), (1, 3), (2, 2)])
        least = rule + 1 if first else 0
        if least < count and r.random() < 0.6:
            return r.randrange(least, count), low, high
        return r.choice(["a", "b", "c", "ab", "é"]), low, high

    def ends(self, text, rule, start, known, seen):
        """Where a text of the rule that begins at start may end. A rule may reach itself without
        a letter: `known` holds what earlier rounds found, `seen` what this one has entered."""
        if (rule, start) in seen:
            return known.get((rule, start), frozenset())
        seen.add((rule, start))
        out = set()
        for branch in self.rules[rule]:
            places = {start}
            for what, low, high in branch:
                reached = set(places) if low == 0 else set()
                for times in range(1, high + 1):
                    if isinstance(what, int):
                        places = set().union(*(self.ends(text, what, p, known, seen)
                                               for p in places))
                    else:
                        places = {p + len(what) for p in places if text.startswith(what, p)}
                    if times >= low:
                        reached |= places
                places = reached
            out |= places
        known[rule, start] = frozenset(out)
        return known[rule, start]

    def is_valid(self, text):
        known, before = {}, None
        while known != before:  # rounds only add places
            before = dict(known)
            if len(text) in self.ends(text, 0, 0, known, set()):
                return True
        return False
