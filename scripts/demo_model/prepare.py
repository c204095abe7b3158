"""Trains the tokenizer on the generated text and writes the text as rows of token ids.

    python prepare.py --data DIR

Reads DIR/text.jsonl; writes DIR/tokenizer.json, DIR/rows_512.npy and DIR/rows_4096.npy. A row is
whole documents, each followed by <|endoftext|>, then PAD up to the row's length plus one.
"""

import argparse
import json
import pathlib
import random

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from network import SHAPE

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PAD = 65535
# The Llama 3 pre-tokenizer. For training the digits stand alone, so that no merge joins two of
# them: a number is then always its digits, which is what makes sums learnable.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _splitter(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def train_tokenizer(texts):
    """A byte-level BPE of SHAPE's vocabulary size."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _splitter(PATTERN.replace("{1,3}", ""))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=SHAPE["vocab_size"],
            special_tokens=SPECIAL,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    tokenizer.pre_tokenizer = _splitter(PATTERN)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    return tokenizer


def pack(documents, length):
    """Rows of length + 1 ids: documents are taken in order, each into the fullest open row."""
    open_rows, done = [], []
    for ids in documents:
        room = [row for row in open_rows if len(row) + len(ids) <= length + 1]
        if room:
            max(room, key=len).extend(ids)
        else:
            open_rows.append(list(ids))
        if len(open_rows) > 64:
            fullest = max(range(len(open_rows)), key=lambda i: len(open_rows[i]))
            done.append(open_rows.pop(fullest))
    done += open_rows
    rows = np.full((len(done), length + 1), PAD, dtype=np.uint16)
    for at, ids in enumerate(done):
        rows[at, : len(ids)] = ids
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer", help="use this tokenizer.json instead of training one")
    args = parser.parse_args()
    data = args.data
    with open(data / "text.jsonl", encoding="utf-8") as file:
        texts = [json.loads(line) for line in file]
    if args.tokenizer:
        tokenizer = Tokenizer.from_file(args.tokenizer)
    else:
        tokenizer = train_tokenizer(texts[:40000])
    tokenizer.save(str(data / "tokenizer.json"))
    short, long = [], []
    chooser = random.Random(0)
    for start in range(0, len(texts), 4096):
        for encoding in tokenizer.encode_batch_fast(texts[start : start + 4096]):
            ids = encoding.ids + [0]
            if len(ids) > 512:
                if len(ids) <= 4096:
                    long.append(ids)
            else:
                (long if chooser.random() < 0.02 else short).append(ids)
    chooser.shuffle(long)
    for length, documents in ((512, short), (4096, long)):
        rows = pack(documents, length)
        np.save(data / f"rows_{length}.npy", rows)
        print(
            f"{len(rows)} rows of {length}, {(rows != PAD).sum() / 1e6:.1f} M tokens, "
            f"{(rows == PAD).mean():.1%} padding"
        )


if __name__ == "__main__":
    main()
