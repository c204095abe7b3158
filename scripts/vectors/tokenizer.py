#!/usr/bin/env python3
"""Writes tests/vectors/tokenizer: small tokenizers and the ids the reference library gives.

    pip install tokenizers && scripts/vectors/tokenizer.py

texts.json        strings over an edge alphabet, random byte strings, a little prose and code
<name>/tokenizer.json   a pipeline of tokenizer_pipelines.py with a vocabulary of about 600 tokens
<name>/ids.json   for each text the ids, for the first 12 also with the post-processor, and the
                  decoded text: 0 = the text itself, null = not well-formed UTF-8; of tokenizers
                  of encoders also the ids and types of neighbouring texts as pairs
legacy/           the gpt2 vocabulary as vocab.json + merges.txt with an OPT-like configuration
"""

import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tokenizer_pipelines as tp  # noqa: E402

OUT = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
    "tests",
    "vectors",
    "tokenizer",
)

SPECIAL_TEXTS = 12
PAIRS = 30  # of neighbouring texts

# Written for this purpose, so that the vectors do not depend on the machine they are made on.
SAMPLE = """The quick brown fox isn't lazy; it's jumping over 12345 dogs, and they'll run. We've
seen 2024 and 20242024 1234567 times 99999999 that I'm
  here.\tTabs\tand  double  spaces.\n\n\nNew paragraphs!!! (brackets) [lists] {braces} <tags/> &amp;
def encode(text: str, limit: int = 1024) -> list[int]:
    \"\"\"Return the ids.\"\"\"
    return [vocab[piece] for piece in split(text)][:limit]  # https://example.org/path?q=1&r=2
for (size_t i = 0; i < n; i++) { sum += a[i] * 0x1F; }\r\nint main(void) { return 0; }
El niño comió piñas; à bientôt, déjà vu, Straße, ĲSSELMEER, Ελληνικά, Привет, мир!
שלום עולם مرحبا بالعالم، नमस्ते दुनिया। สวัสดีชาวโลก 你好，世界！我们在测试分词器。
こんにちは世界。テスト 안녕하세요 세계
emoji 😀👍🏽 👨‍👩‍👧‍👦 🇩🇪 ❤️ and math ∑∫√≠ ½ ² Ⅷ ①. Iñtërnâtiônàlizætiøn café cafe\u0301 Å Å ﬁ
"""


def texts():
    rng = random.Random(5)
    out = ["", " ", "a", "\n", SAMPLE, SAMPLE[::-1]]
    out += [
        SAMPLE[i : i + n]
        for i, n in ((rng.randrange(len(SAMPLE)), rng.randrange(60)) for _ in range(40))
    ]
    out += [
        "  \n  x",
        "a\r\n\r\n b",
        "x   y",
        "   ",
        "'ſ 'S 'LL I'D we'Ve 'x",
        "中AB",
        "\u0301AB",
        "aBCdE",
        "12345 1 123456",
        "a\u200d b",
        "\u200da",
        "1a 2 \u0001b",
        "<s>hello",
        "hello<s> world</s>",
        " <s> hi",
        "x<strip>  y",
        "x  <strip>\u3000",
        "word words word.",
        "_word word",
        "\u200dword",
        "<|im_start|>user\nhi<|im_end|>\n",
        "<|im_start",
        "<r> <r>  <strip>",
        "a<r>      b",
        "\0",
        "<0x41><0x0A>",
        "\u2581a \u2581 b",
        "a" * 100,
        " " * 100,
        "\u0301" * 60 + "\u0327" * 60,
        "ab" * 70,
        "中文" * 40,
        "e\u0327\u0301\u0345",
        "\u1100\u1161\u11a8",
        "9" * 50,
        "$+<=>^~`|",
        "don't DON'T Don\u2019t",
        "a \n",
        "a\n ",
        "\n a",
        "\t\n\t",
        "1.5e-10",
        "ſ's'S",
    ]
    return out + tp.edge_strings(90, 21, 24) + tp.random_byte_strings(40, 22, 40)


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=True, separators=(",", ":"))
        file.write("\n")


def vectors(tokenizer, strings, name=""):
    plain = [tokenizer.encode(t, add_special_tokens=False).ids for t in strings]
    special = [tokenizer.encode(t, add_special_tokens=True).ids for t in strings[:SPECIAL_TEXTS]]
    decoded = [tokenizer.decode(i, skip_special_tokens=True) for i in plain]
    decoded = [None if "\ufffd" in d else 0 if d == t else d for d, t in zip(decoded, strings)]
    out = {"plain": plain, "special": special, "decoded": decoded}
    if name in tp.tokenizer_encoders.PAIRED:
        pairs = [tokenizer.encode(*strings[i : i + 2]) for i in range(PAIRS)]
        out["pairs"] = [[p.ids, p.type_ids] for p in pairs]
    return out


def legacy(strings):
    """What transformers makes of OPT's files: GPT-2 pipeline, BOS </s> from the configuration."""
    base = json.loads(open(os.path.join(OUT, "gpt2", "tokenizer.json"), encoding="utf-8").read())
    directory = os.path.join(OUT, "legacy")
    os.makedirs(directory, exist_ok=True)
    vocab = base["model"]["vocab"]
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, **{k: v + 3 for k, v in vocab.items()}}
    merges = [
        tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in base["model"]["merges"]
    ]
    write(os.path.join(directory, "vocab.json"), vocab)
    with open(os.path.join(directory, "merges.txt"), "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    token = {
        "__type": "AddedToken",
        "content": "</s>",
        "lstrip": False,
        "normalized": True,
        "rstrip": False,
        "single_word": False,
    }
    write(
        os.path.join(directory, "tokenizer_config.json"),
        {
            "add_bos_token": True,
            "bos_token": token,
            "eos_token": token,
            "unk_token": token,
            "pad_token": {**token, "content": "<pad>"},
            "model_max_length": 2048,
            "tokenizer_class": "GPT2Tokenizer",
        },
    )
    tokenizer = tp.Tokenizer(tp.models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = tp.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tp.decoders.ByteLevel()
    tokenizer.add_special_tokens(["</s>", "<pad>"])
    tokenizer.post_processor = tp.processors.TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", 2)]
    )
    write(os.path.join(directory, "ids.json"), vectors(tokenizer, strings))


def main():
    strings = texts()
    os.makedirs(OUT, exist_ok=True)
    write(os.path.join(OUT, "texts.json"), strings)
    digits = [f"{n} {n}{n}\n" for n in (12, 20, 99, 100, 2024, 1234567)]
    training = (SAMPLE.splitlines(keepends=True) + digits) * 3 + tp.scripts_text(
        3000, 6
    ).splitlines(keepends=True)
    for name in sys.argv[1:] or tp.pipelines():
        directory = os.path.join(OUT, name)
        os.makedirs(directory, exist_ok=True)
        tokenizer = tp.build(name, training, 600)
        tokenizer.save(os.path.join(directory, "tokenizer.json"), pretty=False)
        # Read back: only then the library numbers added tokens as it does for a published file.
        tokenizer = tp.Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
        write(os.path.join(directory, "ids.json"), vectors(tokenizer, strings, name))
    if not sys.argv[1:]:
        legacy(strings)


if __name__ == "__main__":
    main()
