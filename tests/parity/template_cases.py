"""Random Jinja snippets and contexts for tests/parity/parity_templates.py.

Grammar-based: expressions over a context of every JSON type, filters with plausible and implausible
arguments, statements that nest, whitespace control everywhere. Deterministic for a given seed.
"""

CONTEXT = {
    "s": "Hello, World",
    "empty": "",
    "uni": "Grüße ß 中文 😀 İ ΑΣ",
    "ws": "  a b\tc \n d  ",
    "html": "<a href='x'>&\"</a>",
    "lines": "one\n\n  two\r\nthree\n",
    "digits": "42",
    "fl": "3.9e1",
    "i": 7,
    "neg": -3,
    "zero": 0,
    "f": 2.5,
    "big": 1e16,
    "small": 0.00001,
    "whole": 3.0,
    "t": True,
    "fa": False,
    "n": None,
    "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"],
    "le": [],
    "mixed": [1, "a", None, 2.5, True],
    "nested": [[1, 2], [3, [4, 5]]],
    "d": {"b": 1, "a": "x", "items": 3, "Z": None},
    "de": {},
    "deep": {"a": {"b": {"c": [10, 20, {"k": "v"}]}}},
    "msgs": [
        {"role": "system", "content": "You are\n helpful."},
        {"role": "user", "content": "Hi <b>", "n": 1},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.0, "é": "ü"}}}],
        },
        {"role": "user", "content": [{"type": "text", "text": "part"}, {"type": "image"}]},
    ],
    "pairs": [["k1", 1], ["k2", 2]],
    "quotes": 'it\'s "q" \\ \x7f\u200b\n',
    "title": "they're bill's-friends (from UK)",
}
NAMES = list(CONTEXT) + ["missing", "x", "y"]
STRINGS = [
    "''",
    "'a'",
    '"b\'c"',
    "', '",
    "'\\n'",
    "' '",
    "'é'",
    "'a\\tb'",
    "'%s'",
    "'l'",
    "'x' 'y'",
    "'\\u4e2d'",
    "'items'",
    "'role'",
    "'content'",
    "'a.b'",
    "'{}'",
    "'Hello'",
    "'%5.1f|%d'",
    "'o'",
]
NUMBERS = ["0", "1", "2", "-1", "3", "10", "1.5", "-2.5", "1e3", "0x10", "1_000", "100"]
TESTS = [
    "defined",
    "undefined",
    "none",
    "string",
    "number",
    "integer",
    "float",
    "mapping",
    "sequence",
    "iterable",
    "boolean",
    "true",
    "false",
    "odd",
    "even",
    "divisibleby 2",
    "divisibleby(3)",
    "eq 1",
    "equalto 'a'",
    "ne 2",
    "lt 3",
    "gt(1)",
    "ge 2",
    "le 2",
    "in [1, 'a']",
    "lower",
    "upper",
    "callable",
    "sameas none",
    "escaped",
]
FILTERS = [
    "upper",
    "lower",
    "title",
    "capitalize",
    "trim",
    "length",
    "list",
    "first",
    "last",
    "join",
    "join(', ')",
    "join('-', attribute='role')",
    "tojson",
    "tojson(indent=2)",
    "tojson(indent=0)",
    "tojson(ensure_ascii=true)",
    "tojson(separators=(',', ':'))",
    "tojson(sort_keys=true)",
    "string",
    "int",
    "int(5)",
    "int(base=16)",
    "float",
    "float(1.5)",
    "abs",
    "round",
    "round(1)",
    "round(2, 'floor')",
    "round(method='ceil')",
    "default('D')",
    "default('D', true)",
    "d",
    "reverse",
    "sort",
    "sort(reverse=true)",
    "sort(attribute='role')",
    "sort(case_sensitive=true)",
    "unique",
    "dictsort",
    "dictsort(by='value')",
    "dictsort(reverse=true)",
    "items",
    "map('upper')",
    "map(attribute='role')",
    "map(attribute='n', default=0)",
    "select",
    "select('string')",
    "reject('none')",
    "selectattr('role', 'equalto', 'user')",
    "selectattr('content')",
    "rejectattr('n')",
    "replace('a', 'Z')",
    "replace('', '-')",
    "replace('l', '', 1)",
    "safe",
    "e",
    "escape",
    "indent",
    "indent(2, true)",
    "indent(1, blank=true)",
    "indent('> ')",
    "wordcount",
    "min",
    "max",
    "sum",
    "sum(start=1)",
    "batch(2)",
    "batch(2, 'x')",
    "slice(2)",
    "center(9)",
    "format(1)",
    "format('a', 2)",
    "truncate(5)",
    "truncate(7, true)",
    "groupby('role')",
    "count",
    "forceescape",
    "map('length')",
    "sum(attribute='n')",
    "min(attribute='role')",
]
METHODS = [
    "split()",
    "split(',')",
    "split(' ', 1)",
    "split('l')",
    "rsplit(' ', 1)",
    "strip()",
    "strip('Hd')",
    "lstrip()",
    "rstrip()",
    "upper()",
    "lower()",
    "title()",
    "capitalize()",
    "startswith('H')",
    "endswith('d')",
    "startswith(('a', 'H'))",
    "replace('l', 'L')",
    "replace('l', 'L', 1)",
    "find('o')",
    "rfind('o')",
    "index('o')",
    "count('l')",
    "count('')",
    "join(['a', 'b'])",
    "splitlines()",
    "splitlines(true)",
    "partition(',')",
    "rpartition(' ')",
    "isdigit()",
    "isalpha()",
    "isalnum()",
    "isspace()",
    "islower()",
    "isupper()",
    "zfill(8)",
    "ljust(15, '.')",
    "rjust(15)",
    "center(16, '*')",
    "removeprefix('He')",
    "removesuffix('ld')",
    "format(1, x=2)",
    "get('a')",
    "get('q', 9)",
    "items()",
    "keys()",
    "values()",
    "copy()",
    "isnumeric()",
    "isdecimal()",
    "isascii()",
    "find('l', 3)",
    "find('l', -4, -1)",
    "startswith('l', 2)",
    "rsplit()",
    "split(none, 1)",
    "strip(none)",
]
BINARY = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "~",
    "and",
    "or",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not in",
]
TEXTS = ["text", "\n", "  ", " \n  ", "a\n\nb", "<x>", "\t", "line\n", "é", "\r\n", "{ }", "%}"]


class Maker:
    def __init__(self, rng):
        self.rng = rng
        self.loops = 0

    def pick(self, items):
        return self.rng.choice(items)

    def atom(self):
        r = self.rng.random()
        if r < 0.55:
            return self.pick(NAMES)
        if r < 0.75:
            return self.pick(STRINGS)
        if r < 0.9:
            return self.pick(NUMBERS)
        return self.pick(["true", "false", "none", "[]", "{}", "()", "True", "None"])

    def expression(self, depth):
        if depth <= 0:
            return self.atom()
        kind = self.rng.randrange(16)
        sub = lambda: self.expression(depth - 1)  # noqa: E731
        if kind <= 3:
            return f"{self.wrapped(depth)}|{self.pick(FILTERS)}"
        if kind <= 5:
            return f"{sub()} {self.pick(BINARY)} {sub()}"
        if kind == 6:
            return f"{self.wrapped(depth)}.{self.pick(METHODS)}"
        if kind == 7:
            return f"{sub()} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind == 8:
            return f"({sub()} if {sub()} else {sub()})"
        if kind == 9:
            parts = [
                self.pick(["", "1", "-1", "2", "-2", "0", "9"])
                for _ in range(self.rng.choice([2, 2, 3]))
            ]
            return f"{self.wrapped(depth)}[{':'.join(parts)}]"
        if kind == 10:
            key = self.pick(["0", "-1", "1", "'a'", "'role'", "9", "i"])
            return f"{self.wrapped(depth)}[{key}]"
        if kind == 11:
            return (
                f"{self.wrapped(depth)}.{self.pick(['a', 'role', 'content', 'items', 'b', 'zzz'])}"
            )
        if kind == 12:
            return "[" + ", ".join(sub() for _ in range(self.rng.randrange(4))) + "]"
        if kind == 13:
            return (
                "{"
                + ", ".join(
                    f"{self.pick(STRINGS + NUMBERS)}: {sub()}" for _ in range(self.rng.randrange(3))
                )
                + "}"
            )
        if kind == 14:
            return f"{self.pick(['not ', '-', '+'])}{sub()}"
        return (
            f"({sub()}, {sub()})"
            if self.rng.random() < 0.5
            else f"range({self.pick(['3', 'i', '1, 4', '5, 0, -2'])})"
        )

    def wrapped(self, depth):
        e = self.expression(depth - 1)
        return f"({e})" if self.rng.random() < 0.6 else e

    def mark(self):
        return self.pick(["", "", "", "-", "+"]), self.pick(["", "", "", "-"])

    def tag(self, body):
        a, b = self.mark()
        if self.rng.random() < 0.05:
            b = "+"
        return "{%" + a + " " + body + " " + b + "%}"

    def output(self, depth):
        a, b = self.mark()
        a = "-" if a == "-" else ""
        return "{{" + a + " " + self.expression(depth) + " " + b + "}}"

    def body(self, depth, count=None):
        return "".join(self.statement(depth - 1) for _ in range(count or self.rng.randrange(1, 4)))

    def statement(self, depth):
        r = self.rng.random()
        if r < 0.3 or depth <= 0:
            return self.pick(TEXTS) if self.rng.random() < 0.5 else self.output(2)
        if r < 0.45:
            return (
                self.tag(f"if {self.expression(2)}")
                + self.body(depth)
                + (
                    self.tag(f"elif {self.expression(1)}") + self.body(depth)
                    if self.rng.random() < 0.3
                    else ""
                )
                + (self.tag("else") + self.body(depth) if self.rng.random() < 0.5 else "")
                + self.tag("endif")
            )
        if r < 0.65:
            return self.loop(depth)
        if r < 0.75:
            return self.tag(f"set {self.pick(['x', 'y'])} = {self.expression(2)}")
        if r < 0.79:
            return (
                self.tag(f"set {self.pick(['x', 'x|upper', 'y|trim|length'])}")
                + self.body(depth)
                + self.tag("endset")
            )
        if r < 0.83:
            return (
                self.tag("set ns = namespace(v=0, s='')")
                + self.tag("for q in l")
                + self.tag("set ns.v = ns.v + q")
                + self.tag("set ns.s = ns.s ~ q")
                + self.tag("endfor")
                + "{{ ns.v }}{{ ns.s }}"
            )
        if r < 0.87:
            return (
                self.tag("macro m(a, b='dflt', c=none)")
                + self.body(depth)
                + "{{ a }}{{ b }}"
                + self.tag("endmacro")
                + self.pick(
                    [
                        "{{ m(1) }}",
                        "{{ m('z', c=2) }}",
                        "{{ m(b=i) }}",
                        "{{ m(1, 2, 3) }}",
                        "{{ m(x)|upper }}",
                    ]
                )
            )
        if r < 0.9:
            return (
                self.tag("filter " + self.pick(["upper", "trim", "replace('e', 'E')|indent(3)"]))
                + self.body(depth)
                + self.tag("endfilter")
            )
        if r < 0.92:
            return (
                self.tag("with x = " + self.expression(1) + ", y = x")
                + self.body(depth)
                + self.tag("endwith")
            )
        if r < 0.94:
            return (
                self.tag("macro w(a)")
                + "[{{ caller(a) }}]"
                + self.tag("endmacro")
                + self.tag("call(z) w(i)")
                + self.body(depth)
                + "{{ z }}"
                + self.tag("endcall")
            )
        if r < 0.96:
            return "{#" + self.pick(["", "-"]) + " c }} %} " + self.pick(["", "-"]) + "#}"
        if r < 0.98:
            return self.tag("raw") + "{{ x }} {% if %}\n" + self.tag("endraw")
        return self.tag("generation") + self.body(depth) + self.tag("endgeneration")

    def loop(self, depth):
        target, source = self.pick(
            [
                ("x", None),
                ("x", "msgs"),
                ("x", "l"),
                ("x", "s"),
                ("x, y", "d.items()"),
                ("x, y", "pairs"),
                ("x", "range(3)"),
                ("x, y", "d|dictsort"),
                ("x", "msgs[::-1]"),
            ]
        )
        source = source or self.expression(2)
        condition = f" if {self.expression(1)}" if self.rng.random() < 0.2 else ""
        self.loops += 1
        inside = "".join(
            self.pick(
                [
                    "{{ loop.index }}",
                    "{{ loop.last }}",
                    "{{ loop.first }}{{ loop.length }}",
                    "{{ loop.previtem }}",
                    "{{ loop.nextitem }}",
                    "{{ loop.revindex0 }}",
                    "{{ loop.cycle('a', 'b') }}",
                    "",
                    "",
                    "",
                    "{{ loop.changed(x) }}",
                    self.tag("if loop.index > 1")
                    + self.tag(self.pick(["break", "continue"]))
                    + self.tag("endif"),
                ]
            )
            for _ in range(2)
        )
        body = self.body(depth)
        self.loops -= 1
        other = self.tag("else") + "none" if self.rng.random() < 0.2 else ""
        return (
            self.tag(f"for {target} in {source}{condition}")
            + inside
            + body
            + other
            + self.tag("endfor")
        )

    def template(self):
        r = self.rng.random()
        if r < 0.5:
            return self.output(self.rng.choice([1, 2, 2, 3]))
        return self.body(3, self.rng.randrange(1, 5))
