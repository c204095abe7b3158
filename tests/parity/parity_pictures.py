#!/usr/bin/env python3
"""Compares what pictures become with transformers: fresh sizes and noise, every processor.

    tests/parity/parity_pictures.py --build build [--random 200] [--seed N]

The cases are those of scripts/vectors/pictures.py, and random ones of the same processors. Views,
tokens, text and the bits of all rows must be equal. Ends with `N of N pictures are equal`.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/vectors"))
import pictures  # noqa: E402


def random_case(draw):
    longest = draw.choice([20, 200, 1000, 2500])
    width, height = (max(1, int(longest * draw.random() ** 2)) for _ in range(2))
    name = draw.choice(list(pictures.KINDS))
    alone = not name.startswith("llava") or draw.random() < 0.8
    return pictures.case(name, width, height, alone, draw.randrange(1 << 32))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    draw = random.Random(options.seed)
    rows = [*pictures.cases(), *(random_case(draw) for _ in range(options.random))]
    driver = subprocess.Popen([f"{options.build}/picture_driver"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    equal = 0
    for row in rows:
        driver.stdin.write(json.dumps(row) + "\n")
        driver.stdin.flush()
        ours, theirs = json.loads(driver.stdout.readline()), pictures.truth(row)
        equal += ours == theirs
        if ours != theirs:
            print(f"{row['name']} {row['width']} x {row['height']} alone={row['alone']} "
                  f"seed={row['seed']}:\n  {ours}\n  {theirs}")
    print(f"{equal} of {len(rows)} pictures are equal")
    sys.exit(equal != len(rows))


if __name__ == "__main__":
    main()
