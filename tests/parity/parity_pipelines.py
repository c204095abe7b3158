#!/usr/bin/env python3
"""Compares inferd with `tokenizers` on tokenizer.json files put together at random.

    make && tests/parity/parity_pipelines.py --build build [--count 200] [--megabytes 1] [--seed N]

Three trained models (byte-level BPE, BPE of characters, Unigram) meet normalizers, pre-tokenizers,
added tokens, templates and decoders drawn from all that the format knows. A file must be refused
by the name of a component, or give the ids and the text of the reference on mixed text, on strings
of the added tokens with what may stand around them, and on random ids. Exits 1 otherwise.

Some have a tokenizer_config.json beside them, with special tokens, flags and tokens of its own:
there AutoTokenizer of transformers is the reference. Needs it, and what parity_tokenizer.py needs.
"""

import argparse
import collections
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import parity_tokenizer as pt  # noqa: E402
from parity_tokenizer import tp  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

MARK = tp.SPACE_MARK
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
REGEXES = [tp.R1, tp.R1_ALIAS, tp.R2, tp.R3, tp.R3_ALIAS, tp.CL100K, tp.R4, tp.R5, tp.R6, tp.R7,
           tp.CJK, r"\p{N}{1,3}", r"\p{N}", r"[\r\n]", r"\s?\p{L}+", r"\s+$", r"[0-9][0-9][0-9]",
           r"(?:\r?\n)+", r"[^\s,.!?]+", r" ?[^\s]+"]
CONTENTS = ["<a>", "<ab>", "<a><b>", "ab", "b", " b", "the", "é", "\u00e9t", "e\u0301", "  ",
            "    ", "\n", "\n\n", "1", "12", MARK, MARK + "x", "<|x|>", "A", "Ab", "\u212b",
            "\ufb01", ".", "\t", "中", "x ", "\u0120", "<0x41>", "foo bar"]


def flip(rng, p=0.5):
    return rng.random() < p


def normalizer(rng):
    return rng.choices([
        {"type": "NFC"},
        {"type": "Prepend", "prepend": rng.choice([MARK, "x", " ", "é "])},
        {"type": "Replace", "pattern": {"String": rng.choice([" ", "  ", "e", "\n", "é", "``"])},
         "content": rng.choice([MARK, "", "e", "\u0301", "xx"])},
        {"type": "Replace", "pattern": {"Regex": rng.choice([" {2,}", r"\s+", "``|''"])},
         "content": rng.choice([MARK, " ", ""])},
        {"type": "Strip", "strip_left": flip(rng), "strip_right": flip(rng)},
        {"type": rng.choice(["NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt",
                             "ByteLevel"])},
        {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
         "strip_accents": None, "lowercase": True},
    ], [4, 4, 5, 2, 4, 0.6, 0.1])[0]


def metaspace(rng):
    return {"type": "Metaspace", "replacement": rng.choice([MARK, MARK, "_", "é"]),
            "prepend_scheme": rng.choice(["first", "always", "never"]), "split": flip(rng)}


def byte_level(rng):
    return {"type": "ByteLevel", "add_prefix_space": flip(rng), "trim_offsets": flip(rng),
            "use_regex": flip(rng)}


def splitter(rng):
    pattern = {"Regex": rng.choice(REGEXES)} if flip(rng, 0.7) else \
        {"String": rng.choice([" ", MARK, "\n", "e", "th", "."])}
    return rng.choices([
        {"type": "Split", "pattern": pattern, "behavior": rng.choice(BEHAVIORS),
         "invert": flip(rng, 0.3)},
        {"type": "Digits", "individual_digits": flip(rng)},
        {"type": "Punctuation", "behavior": rng.choice(BEHAVIORS)},
        {"type": "WhitespaceSplit"},
        metaspace(rng),
        {"type": rng.choice(["Whitespace", "BertPreTokenizer", "UnicodeScripts"])},
        {"type": "CharDelimiterSplit", "delimiter": "-"},
        {"type": "FixedLength", "length": 5},
    ], [6, 2, 2, 1, 1, 0.15, 0.1, 0.05])[0]


def sequence(items, name, key, rng):
    if not items:
        return rng.choice([None, {"type": "Sequence", key: []}])
    if len(items) == 1 and flip(rng):
        return items[0]
    if len(items) > 2 and flip(rng, 0.2):
        items = [items[0], {"type": name, key: items[1:]}]
    return {"type": name, key: items}


def pre_tokenizers(rng, kind):
    steps = [splitter(rng) for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
    if flip(rng, 0.9 if kind == "bytes" else 0.05):
        steps.append(byte_level(rng))
        if flip(rng, 0.15):
            steps.append(splitter(rng))
    elif flip(rng, 0.4):
        steps.append(metaspace(rng))
    return steps


def added_tokens(rng, vocab):
    names = rng.sample(CONTENTS, rng.randint(0, 8)) + rng.sample(sorted(vocab), rng.randint(0, 2))
    after = max(vocab.values()) + 1
    found = []
    for name in dict.fromkeys(names):
        ident = vocab.get(name, after)
        after += name not in vocab
        found.append({"id": ident, "content": name} | flags(rng))
    return sorted(found, key=lambda token: token["id"])


def flags(rng):
    return {"single_word": flip(rng, 0.3), "lstrip": flip(rng, 0.3), "rstrip": flip(rng, 0.3),
            "normalized": flip(rng), "special": flip(rng, 0.4)}


def configuration(rng, added, vocab):
    """tokenizer_config.json: tokens that are called special, other flags, a token more."""
    made = {"tokenizer_class": "PreTrainedTokenizerFast"}
    names = sorted(vocab)
    for key in rng.sample(["bos_token", "eos_token", "unk_token", "pad_token"], rng.randint(0, 3)):
        made[key] = rng.choice(names)
    if flip(rng, 0.3):
        made["additional_special_tokens"] = rng.sample(names, 2)
    listed = {str(t["id"]): {"content": t["content"]} | flags(rng)
              for t in added if flip(rng, 0.5)}
    if flip(rng, 0.3):
        listed[str(max([len(vocab) - 1] + [t["id"] for t in added]) + 1)] = \
            {"content": "<more>"} | flags(rng)
    return made | ({"added_tokens_decoder": listed} if listed else {})


def template(rng, added, vocab):
    ids = {t["content"]: t["id"] for t in added} or dict(rng.sample(sorted(vocab.items()), 2))
    names = rng.choices(sorted(ids), k=rng.randint(0, 4))
    single = [{"SpecialToken": {"id": n, "type_id": rng.randint(0, 1)}} for n in names]
    single.insert(rng.randint(0, len(single)), {"Sequence": {"id": "A", "type_id": 0}})
    both = single + [{"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": both, "special_tokens": {
        n: {"id": n, "ids": [ids[n]] * rng.choice([1, 1, 2]), "tokens": [n] * 2} for n in names}}


def processor(rng, added, vocab):
    made = []
    for _ in range(rng.choice([0, 1, 1, 2])):
        name, ident = rng.choice(sorted(vocab.items()))
        made.append(rng.choices([
            template(rng, added, vocab),
            byte_level(rng),
            {"type": "RobertaProcessing", "cls": [name, ident], "sep": [name, ident],
             "trim_offsets": flip(rng), "add_prefix_space": flip(rng)},
            {"type": "BertProcessing", "cls": [name, ident], "sep": [name, ident]},
        ], [3, 3, 0.4, 0.4])[0])
    for made_one in made:
        for token in made_one.get("special_tokens", {}).values():
            token["tokens"] = token["tokens"][:1] * len(token["ids"])
    return sequence(made, "Sequence", "processors", rng)


def decoder(rng, kind):
    common = byte_level(rng) if kind == "bytes" else metaspace(rng)
    if flip(rng, 0.5):
        return common
    steps = [rng.choices([
        common,
        {"type": "Replace", "pattern": {"String": rng.choice([MARK, "e", " ", "th"])},
         "content": rng.choice([" ", "", "E"])},
        {"type": "ByteFallback"},
        {"type": "Strip", "content": rng.choice([" ", "e", MARK]), "start": rng.randint(0, 2),
         "stop": rng.randint(0, 2)},
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
        {"type": "WordPiece", "prefix": "##", "cleanup": flip(rng)},
        {"type": "BPEDecoder", "suffix": "</w>"},
        {"type": "CTC", "pad_token": "<a>", "word_delimiter_token": "|", "cleanup": flip(rng)},
    ], [2, 4, 2, 2, 0.1, 0.1, 0.1, 0.1])[0] for _ in range(rng.randint(0, 4))]
    if flip(rng, 0.4):
        steps += [{"type": "Fuse"}]
        if flip(rng, 0.7):
            steps += [{"type": "Strip", "content": " ", "start": rng.randint(0, 2), "stop": 0}]
    return sequence(steps, "Sequence", "decoders", rng)


def model_of(rng, base):
    model = dict(base)
    if model["type"] == "Unigram":
        model["byte_fallback"] = flip(rng)
        return model
    model |= {"ignore_merges": flip(rng, 0.3), "byte_fallback": flip(rng), "fuse_unk": flip(rng),
              "unk_token": rng.choice([None, "<unk>"]) if "<unk>" in model["vocab"] else None}
    if flip(rng):  # the older form of merges
        pairs = [m for m in model["merges"] if " " not in m[0] + m[1]]
        model["merges"] = [" ".join(m) for m in pairs]
    return model


def draw(rng, bases):
    kind = rng.choice(sorted(bases))
    model = model_of(rng, bases[kind])
    vocab = model["vocab"]
    if isinstance(vocab, list):
        vocab = {piece[0]: i for i, piece in enumerate(vocab)}
    added = added_tokens(rng, vocab)
    norms = [normalizer(rng) for _ in range(rng.choice([0, 0, 1, 2, 3]))]
    config = configuration(rng, added, vocab) if flip(rng, 0.3) else None
    return config, {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": sequence(norms, "Sequence", "normalizers", rng),
            "pre_tokenizer": sequence(pre_tokenizers(rng, kind), "Sequence", "pretokenizers", rng),
            "post_processor": processor(rng, added, vocab), "decoder": decoder(rng, kind),
            "model": model}


def train(keep):
    """The vocabularies and merges that all files share."""
    if keep and os.path.exists(keep):
        with open(keep, encoding="utf-8") as file:
            return json.load(file)
    texts = [tp.prose(1e6), tp.code(5e5), tp.translations(1e6), tp.scripts_text(20000, 5)]
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    made = {"bytes": "gpt2", "chars": "llama2", "unigram": "unigram_bytes"}
    bases = {kind: json.loads(tp.build(name, lines, 3000).to_str())["model"]
             for kind, name in made.items()}
    if keep:
        with open(keep, "w", encoding="utf-8") as file:
            json.dump(bases, file)
    return bases


def strings_of(rng, added, count):
    parts = added * 4 + CONTENTS + tp.EDGE
    return ["".join(rng.choices(parts, k=rng.randint(0, 24))) for _ in range(count)]


def describe(file):
    return {k: v for k, v in file.items() if k not in ("model", "version", "truncation", "padding")
            } | {"model": {k: v for k, v in file["model"].items() if k not in ("vocab", "merges")}}


def write(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as out:
        json.dump(value, out)


def compare(driver, directory, rng, mixed, config, file):
    """How many texts, strings and lists of ids differ, or the reason of a refusal."""
    loaded = subprocess.run([driver, "load", directory], capture_output=True, text=True)
    if loaded.returncode != 0:
        return loaded.stderr.strip()
    if config is None:
        reference = tp.Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    else:
        reference = AutoTokenizer.from_pretrained(directory).backend_tokenizer
    added = reference.get_added_tokens_decoder()
    found = [t.content for t in added.values() if t.normalized]
    if reference.normalizer is not None:
        found = [reference.normalizer.normalize_str(content) for content in found]
    found += [t.content for t in added.values() if not t.normalized and t.special]
    if len(set(found)) < len(found):  # it follows the order of a hash table
        return "the reference chooses between equal tokens anew each time"
    for token in file["added_tokens"]:  # it keeps the spelling that the file's flag has made
        content, own = token["content"], added[token["id"]].normalized
        if reference.normalizer is not None and own != token["normalized"] and \
                reference.normalizer.normalize_str(content) != content:
            return "the configuration and the file give a token two spellings"
    strings = strings_of(rng, [t.content for t in added.values()], 3000)
    wrong, ids = pt.compare(driver, directory, reference, "text", mixed, False)
    wrong_strings, more = pt.compare(driver, directory, reference, "string", strings, True)
    size = reference.get_vocab_size()
    drawn = [[rng.randrange(size) for _ in range(rng.randint(0, 30))] for _ in range(1000)]
    # The reference shows a special token whose normalised spelling is another one; we skip it.
    special = {t["id"] for t in file["added_tokens"] if t["special"]}
    shown = {i for i, t in added.items() if t.normalized and (t.special or i in special)}
    kept = [[i for i in one if i not in shown] for one in ids + more + drawn]
    wrong_ids = pt.compare_decode(driver, directory, reference, "ids", kept)
    return wrong, wrong_strings, wrong_ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--megabytes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--keep", help="file to keep the trained models in")
    parser.add_argument("--first", type=int, default=0, help="index of the first file")
    args = parser.parse_args()
    print(f"seed {args.seed}")
    driver, bases = pt.build_driver(args.build), train(args.keep)
    mixed = pt.chunks(tp.mixed(args.megabytes, args.seed), random.Random(args.seed))
    refused, same, failed = collections.Counter(), 0, 0
    for index in range(args.first, args.first + args.count):
        rng = random.Random(f"{args.seed}-{index}")
        config, file = draw(rng, bases)
        with tempfile.TemporaryDirectory() as directory:
            write(directory, "tokenizer.json", file)
            if config is not None:
                write(directory, "tokenizer_config.json", config)
                write(directory, "config.json", {"model_type": "mistral"})
            try:
                result = compare(driver, directory, rng, mixed, config, file)
            except BaseException as error:  # what the reference throws when it panics
                if type(error).__name__ not in ("PanicException", "Exception"):
                    raise
                result = f"the reference fails: {str(error)[:60]}"
        if isinstance(result, str):
            refused[result] += 1
        elif any(result):
            failed += 1
            print(f"FAIL {index}: {result[0]} texts, {result[1]} strings, {result[2]} decoded "
                  f"differ: {json.dumps([config, describe(file)], ensure_ascii=False)}",
                  flush=True)
        else:
            same += 1
    for reason, times in refused.most_common():
        print(f"refused {times} times: {reason}")
    print(f"{same} the same, {sum(refused.values())} refused by name, {failed} differ")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
