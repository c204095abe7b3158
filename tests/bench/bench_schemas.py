#!/usr/bin/env python3
"""Times inferd's grammars beside llguidance's in one run: same schemas, same vocabulary.

    make build/grammar_driver
    pip install --no-deps --target PUBLISHED check-jsonschema cfn-lint ...   (packages with schemas)
    python tests/bench/bench_schemas.py --build build --published PUBLISHED

The Python that runs the script needs llguidance, numpy and jsonschema. Two sets of schemas: those
of the folder PUBLISHED (packages, or a collection as coverage_schemas.py reads it; at most --most
of one folder below it, drawn with the seed), and those that parity_schemas.py draws from --seed.
The vocabulary is made here: 128,000 tokens of words.

For each schema that inferd accepts it generates one text; the text in longest tokens is the path
of ids that both programs follow. Each program compiles the schema twice, of which the second time
counts, and makes the mask of every place on the path, on one thread. Times are processor time in
microseconds, so that other programs disturb little. llguidance's hold the call from Python and, of
compiling, the parsing of the schema's JSON; inferd's do not. "anew" masks are made without those
that inferd's engine keeps from equal places. Times are of the schemas that both accept. Ends with
the first reasons of inferd's refusals.
"""

import argparse
import collections
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import llguidance
import llguidance.numpy
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
from coverage_schemas import collection  # noqa: E402
from parity_schemas import Maker  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 128000
BYTES_MAX = 30
MARKS = ['"', '":', '": "', '", "', '"},', '{"', "}}", "],", "\\n", '\\"', "\n  ", "\n    ", ", ",
         "[[", "::", "//", " {", "();\n", "...", "\t\t", " =", "->", '":{"', '":["', '"}', "}"]


def make_vocabulary(words, seed):
    """Bytes, names from the schemas as a trained vocabulary has, then made words."""
    r = random.Random(seed)
    letters = "eeeeeeeeettttttttaaaaaaaooooooiiiiiinnnnnnsssssshhhhhhrrrrrrddddlllluuuccmmff"
    tokens = [bytes([i]) for i in range(256)]
    seen = set(tokens)

    def add(text):
        token = text.encode()[:BYTES_MAX]
        if token and token not in seen:
            seen.add(token)
            tokens.append(token)
    for text in [*MARKS, *words]:
        add(text)
    while len(tokens) < TOKENS - 1:
        kind = r.random()
        if kind < 0.02:
            add(r.choice(MARKS) + "".join(r.choices(letters, k=r.randint(0, 2))))
        elif kind < 0.04:
            add("".join(r.choices("0123456789", k=r.randint(1, 3))))
        elif kind < 0.09:
            add("".join(chr(r.randint(0x3040, 0x9FFF)) for _ in range(r.randint(1, 3))))
        else:
            word = "".join(r.choices(letters + "ywgpbvkxjqz", k=r.randint(2, 10)))
            add((" " if r.random() < 0.55 else "") + (word.title() if r.random() < 0.2 else word))
    return tokens


class Vocabulary:
    """What llguidance wraps; the last id is the end of the text."""

    def __init__(self, tokens):
        self.tokens = [*tokens, b"<end>"]
        self.eos_token_id, self.bos_token_id = len(tokens), None
        self.special_token_ids = [len(tokens)]
        self.ids = {token: i for i, token in enumerate(tokens)}

    def __call__(self, text):
        text = text if isinstance(text, bytes) else text.encode()
        out, at = [], 0
        while at < len(text):
            length = next(n for n in range(min(BYTES_MAX, len(text) - at), 0, -1)
                          if text[at:at + n] in self.ids)
            out.append(self.ids[text[at:at + length]])
            at += length
        return out


def published(folder, most, seed):
    found = collections.defaultdict(list)
    for name, schema, _ in collection(Path(folder)):
        found[Path(name).parts[0]].append(schema)
    r = random.Random(seed)
    for package, schemas in sorted(found.items()):
        chosen = schemas if len(schemas) <= most else r.sample(schemas, most)
        print(f"{package}: {len(chosen)} of {len(schemas)} schemas")
        yield from chosen


class Inferd:
    def __init__(self, build, tokens):
        self.file = tempfile.NamedTemporaryFile()
        self.file.write(b"".join(bytes([len(t)]) + t for t in tokens))
        self.file.flush()
        self.driver = subprocess.Popen([str(Path(build) / "grammar_driver"), "--tokens",
                                        self.file.name], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, cwd=ROOT)

    def ask(self, schema, **more):
        question = {"kind": "schema", "value": schema, "texts": [], **more}
        self.driver.stdin.write(json.dumps(question).encode() + b"\n")
        self.driver.stdin.flush()
        return json.loads(self.driver.stdout.readline())


class Peer:
    def __init__(self, vocabulary):
        self.tokenizer = LLTokenizer(TokenizerWrapper(vocabulary))
        self.row = llguidance.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema):
        """Returns the matcher, or None for a schema that llguidance refuses, and microseconds."""
        text = json.dumps(schema)
        start = time.thread_time_ns()
        grammar = LLMatcher.grammar_from_json_schema(text)
        matcher = LLMatcher(self.tokenizer, grammar, log_level=0)
        spent = (time.thread_time_ns() - start) / 1e3
        return (None if matcher.is_error() else matcher), spent

    def masks(self, matcher, path):
        times = []
        for token in path:
            if matcher.is_stopped():
                break
            start = time.thread_time_ns()
            llguidance.numpy.fill_next_token_bitmask(matcher, self.row)
            spent = (time.thread_time_ns() - start) / 1e3
            if matcher.is_error():
                break
            times.append(spent)
            if not matcher.consume_token(token):
                break
        return times


def place(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def reason(message):
    message = re.sub(r" at '[^']*'| at /\S*|\(at [^)]*\)", "", message)
    return re.sub(r"\d+", "N", message)[:140]


def measure(name, schemas, inferd, peer, vocabulary, options):
    counts, reasons = collections.Counter(), collections.Counter()
    times = collections.defaultdict(list)
    slow = []
    began = time.monotonic()
    for number, schema in enumerate(schemas):
        if time.monotonic() - began > options.seconds:
            break
        counts["schemas"] += 1
        made = inferd.ask(schema, generate=1, seed=number, max_tokens=options.max_tokens)
        matcher, peer_us = peer.compile(schema)
        counts["llguidance"] += matcher is not None
        if "error" in made:
            reasons[reason(made["error"])] += 1
            counts["llguidance alone"] += matcher is not None
            continue
        counts["inferd"] += 1
        if matcher is None:
            continue
        text = made["generated"][0]["text"].encode("utf-8", "surrogatepass")
        path = vocabulary(text)
        timed = inferd.ask(schema, path=path)
        matcher, peer_us = peer.compile(schema)
        times["compile", "inferd"].append(timed["compile_us"])
        times["compile", "llguidance"].append(peer_us)
        slow.append((timed["compile_us"], peer_us, json.dumps(schema)))
        times["mask", "inferd"] += timed["masks_us"]
        times["mask", "inferd, anew"] += timed["anew_us"]
        theirs = peer.masks(matcher, path)
        counts["shorter in llguidance"] += len(theirs) < len(timed["masks_us"])
        times["mask", "llguidance"] += theirs
    total = counts["schemas"]
    print(f"\n{name}: {total} schemas; accepted by inferd {counts['inferd'] / total:.1%}, by "
          f"llguidance {counts['llguidance'] / total:.1%}, by it alone "
          f"{counts['llguidance alone']}; texts that llguidance leaves earlier "
          f"{counts['shorter in llguidance']}")
    for (what, who), values in times.items():
        shares = (0.5, 0.9, 0.99) if what == "compile" else (0.5, 0.99, 0.999)
        row = "  ".join(f"p{100 * s:g} {place(values, s):9.1f}" for s in shares)
        print(f"{what:8} {who:14} {len(values):6}  {row}  max {max(values, default=0):9.1f} us")
    for message, count in reasons.most_common(options.reasons):
        print(f"{count:6}  {message}")
    for ours, theirs, text in sorted(slow, reverse=True)[:options.slowest]:
        print(f"slow: {ours:9.0f} us, llguidance {theirs:9.0f}: {len(text)} bytes {text[:300]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--published", help="folder of packages that hold schemas")
    parser.add_argument("--most", type=int, default=150, help="schemas of one package")
    parser.add_argument("--drawn", type=int, default=500, help="schemas drawn by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=60, help="at most, for each set")
    parser.add_argument("--reasons", type=int, default=30)
    parser.add_argument("--slowest", type=int, default=0, help="schemas to name by compile time")
    options = parser.parse_args()
    sets = {"drawn": [Maker(options.seed * 100000 + i, 0.1).document()
                      for i in range(options.drawn)]}
    if options.published:
        sets["published"] = list(published(options.published, options.most, options.seed))
        random.Random(options.seed).shuffle(sets["published"])
    names = collections.Counter(re.findall(r'"(\w{2,29})":', json.dumps(list(sets.values()))))
    vocabulary = Vocabulary(make_vocabulary([n for n, _ in names.most_common(4000)], options.seed))
    tokens = vocabulary.tokens[:-1]
    inferd, peer = Inferd(options.build, tokens), Peer(vocabulary)
    print(f"llguidance {llguidance.__version__}, {len(tokens)} tokens")
    for name, schemas in sets.items():
        measure(name, schemas, inferd, peer, vocabulary, options)


if __name__ == "__main__":
    main()
