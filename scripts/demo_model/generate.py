"""Writes the training text: one JSON string a line, every line a document, from one seed.

    python generate.py --out DIR [--megabytes 120] [--seed 1]

The same seed and size give the same bytes. Documents are separated by the line, and the trainer
puts <|endoftext|> after each.
"""

import argparse
import json
import pathlib
import random

import chat
import facts
import prose
import records
import stories


def anthology(rng):
    """A long document: many stories, or a long dialogue, for the far positions."""
    if rng.random() < 0.5:
        told = [stories.story(rng) for _ in range(rng.randrange(6, 20))]
        return "\n\n".join(f"# {one.title}\n\n{one.text}" for one in told)
    return chat.dialogue(rng, turns=rng.randrange(20, 60))


MIX = [
    (16, stories.story_document),
    (45, chat.dialogue),
    (60, facts.sum_document),
    (12, facts.fact_document),
    (12, records.record_document),
    (5, prose.prose_document),
    (1, stories.poem),
    (0.15, anthology),
]


def documents(seed, size):
    """Yields documents until their text has reached size characters."""
    rng = random.Random(seed)
    weights = [weight for weight, _ in MIX]
    makers = [maker for _, maker in MIX]
    written = 0
    while written < size:
        document = rng.choices(makers, weights)[0](rng)
        written += len(document)
        yield document


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--megabytes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    count = 0
    with open(args.out / "text.jsonl", "w", encoding="utf-8") as file:
        for document in documents(args.seed, int(args.megabytes * 1e6)):
            file.write(json.dumps(document) + "\n")
            count += 1
    print(f"{count} documents in {args.out / 'text.jsonl'}")


if __name__ == "__main__":
    main()
