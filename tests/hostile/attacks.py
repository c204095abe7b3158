"""Requests that try to hurt others: what each costs, and what must be seen of it.

Each attack is a class of one method: `bodies(i)` yields (path, body) of round i. Rounds differ in a
letter or a number, so that no cache of an earlier round helps, unless the attack is one about
caches. `connections` is how many clients send it at once. `allowed` are the statuses that an
attacker may get: 200 and a refusal with a reason, never a 500. A test sends at least `rounds`
rounds, as long as honest requests go on, from `clients` connections at most: an attack whose
request takes seconds of work needs few."""

import itertools
import string

REFUSED = {400, 413, 429, 503}


def chain(rules, letter):
    """A grammar of `rules` rules that each say nothing but the next one."""
    some = "[a-zA-Z0-9 .,'()-]"
    return ("root ::= a0\n" + "".join(f"a{i} ::= a{i + 1} | b\n" for i in range(rules))
            + f'a{rules} ::= b\nb ::= {some} a0 "{letter}" | {some}\n')


def side_by_side(rules, letter):
    """Recursive rules that all begin alike: only their ends tell them apart."""
    some = "[a-zA-Z0-9 ]"
    names = " | ".join(f"r{i}" for i in range(rules))
    return f"root ::= {names}\n" + "".join(
        f'r{i} ::= {some} r{i} "{letter}{i}" | {some} "w{i}"\n' for i in range(rules))


def union(types, name="u"):
    """`types` object types, each of which may hold any other."""
    refs = [{"$ref": f"#/$defs/T{j}"} for j in range(types)]
    kinds = {f"T{i}": {"type": "object", "additionalProperties": False, "required": ["next"],
                       "properties": {"next": {"anyOf": [*refs, {"type": "null"}]},
                                      f"v{i}": {"enum": ["a", "b"]}}} for i in range(types)}
    schema = {"$defs": kinds, "type": "object", "properties": {name: {"anyOf": refs}},
              "required": [name], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": "u", "schema": schema}}


def expression(i):
    """A regular expression whose automaton is larger than any may be."""
    return f"([a-zà-ÿ]{{0,30}}[b-y]{{0,30}}){{0,30}}[{string.ascii_lowercase[i % 26]}]{{{i % 97}}}"


def tool(i, pattern):
    return {"type": "function", "function": {
        "name": f"f{i}", "parameters": {
            "type": "object", "required": ["a"], "additionalProperties": False,
            "properties": {"a": {"type": "string", "pattern": f"^{pattern}$"}}}}}


class Attack:
    name, connections, allowed = "", 1, {200, *REFUSED}
    rounds, clients = 2, 8

    def bodies(self, i):
        """(path, body) of each request of round i."""
        raise NotImplementedError


class Chain(Attack):
    name, connections = "grammar: a chain of 120 rules, n 16", 2
    rounds = 1

    def bodies(self, i):
        yield "/v1/completions", {"prompt": "a b", "max_tokens": 4, "temperature": 1.9, "n": 16,
                                  "grammar": chain(120, string.ascii_letters[i % 52])}


class SideBySide(Attack):
    name, connections = "grammar: 12 recursive rules side by side", 2
    rounds, clients = 1, 1

    def bodies(self, i):
        yield "/v1/completions", {"prompt": "a b", "max_tokens": 4, "temperature": 1.9, "n": 4,
                                  "grammar": side_by_side(12, string.ascii_letters[i % 52])}


class Union(Attack):
    name, connections = "schema: recursive unions of 2 to 8 types", 2

    def bodies(self, i):
        yield "/v1/completions", {"prompt": "{", "max_tokens": 60, "temperature": 1.5, "seed": i,
                                  "n": 4, "response_format": union(2 + i % 7, f"u{i}")}


class Regex(Attack):
    name, connections = "regex: automata beyond every bound", 32
    rounds = 1

    def bodies(self, i):
        yield "/v1/completions", {"prompt": "a", "max_tokens": 1, "regex": expression(i)}


class Tools(Attack):
    name, connections = "tools: 12 functions with patterns beyond every bound", 4
    rounds = 1

    def bodies(self, i):
        yield "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "x"}], "max_tokens": 1,
            "tool_choice": "required", "tools": [tool(k, expression(i)) for k in range(12)]}


class LongText(Attack):
    name, connections = "text: 8 MiB of letters, 5 tokens kept", 4

    def bodies(self, i):
        letter = string.ascii_lowercase[i % 26]
        yield "/v1/completions", {"prompt": (letter + "q") * (4 << 20), "max_tokens": 1,
                                  "truncate_prompt_tokens": 5}


class Tokenize(Attack):
    name, connections = "tokenize: 8 MiB with the text of every token", 4

    def bodies(self, i):
        word = string.ascii_lowercase[i % 26] + "z "
        yield "/tokenize", {"prompt": word * ((8 << 20) // 3), "return_token_strs": True}


class Echo(Attack):
    name, connections = "reply: 20,000 prompt ids for each of 16 choices", 2

    def bodies(self, i):
        yield "/v1/completions", {"prompt": [300 + i % 100, *range(1000, 20999)], "n": 16,
                                  "max_tokens": 1, "echo": True, "return_token_ids": True}


class Scores(Attack):
    name, connections = "reply: log probabilities of the whole vocabulary", 2
    rounds, clients = 1, 2

    def bodies(self, i):
        yield "/v1/completions", {"prompt": [300 + i % 100, 5, 6, 7, 8], "max_tokens": 2,
                                  "prompt_logprobs": -1, "logprobs": -1, "echo": True}


class Flood(Attack):
    name, connections = "queue: lists of 128 prompts", 12
    rounds = 1

    def bodies(self, i):
        yield "/v1/completions", {"prompt": [f"{i} {k}" for k in range(128)], "max_tokens": 16,
                                  "ignore_eos": True}


class LongPrompts(Attack):
    name, connections = "prefill: 30,000 tokens, never the same", 2

    def bodies(self, i):
        start = 300 + i * 131 % 20000
        yield "/v1/completions", {"prompt": list(itertools.islice(
            itertools.cycle(range(start, start + 9973)), 30000)), "max_tokens": 1}


class ScoredPrompts(Attack):
    name, connections = "prefill: 6,000 tokens with scores of each, never the same", 2
    rounds, clients = 1, 2

    def bodies(self, i):
        start = 300 + i * 137 % 20000
        yield "/v1/completions", {"prompt": [start + k % 9973 for k in range(6000)],
                                  "max_tokens": 1, "prompt_logprobs": 3}


ATTACKS = [kind() for kind in (Chain, SideBySide, Union, Regex, Tools, LongText, Tokenize, Echo,
                               Scores, Flood, LongPrompts, ScoredPrompts)]
