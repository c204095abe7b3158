#!/usr/bin/env python3
"""Compares /v1/embeddings with sentence-transformers on fresh random models.

    make parity     or    tests/parity/parity_embeddings.py --build build [--seed N] [--count 20]

1. Makes tests/vectors/embeddings anew with the installed sentence-transformers and compares.
2. Makes `count` random models (family, sizes, window, type, pooling, tokens that the post-processor
   adds: all drawn from --seed, which is new each time and printed), as sentence-transformers saves
   them, and serves each with the same weights: random texts of up to about 220 tokens, all in one
   request in steps of random size. The cosine must be at least 0.99999 in float32, and in bfloat16
   1 - cosine at most twice that of sentence-transformers' own bfloat16 run; a text alone must have
   the same bits.

Ends with `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import numpy as np  # noqa: E402

import embeddings  # noqa: E402
import model_cases  # noqa: E402
from ports import free_port  # noqa: E402

WORDS = ("the quick brown fox jumps over lazy dog and cat sat mat one two \u00e9t\u00e9 \u65e5 \n "
         "42 x").split(" ")


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["data"]


def embed(port, texts):
    """The vectors of all texts in one request, and of the last text alone."""
    got = [d["embedding"] for d in post(port, "/v1/embeddings", {"input": texts})]
    return got, post(port, "/v1/embeddings", {"input": texts[-1]})[0]["embedding"]


def serve(build, directory, flags, ask, texts):
    """What ask(port, texts) returns of a server."""
    port = free_port()
    command = [f"{build}/inferd", "serve", directory, "--port", port, "--log-level", "error",
               *flags]
    with subprocess.Popen(list(map(str, command))) as server:
        try:
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
                    break
                except OSError:
                    assert server.poll() is None, f"the server ended with {server.returncode}"
                    time.sleep(0.05)
            return ask(port, texts)
        finally:
            server.terminate()


def judged(name, facts, worst, same, what="1 - cosine"):
    """Prints the line of a case; whether it holds. `same`: an input alone has the same bits."""
    allowed = 1e-5 if facts["dtype"] == "float32" else 2 * facts["error"]
    good = worst <= allowed and same
    print(f"{'ok  ' if good else 'FAIL'} {name} {facts['dtype']}: up to {max(facts['sizes'])} "
          f"tokens, {what} {worst:.1e} of {allowed:.1e}", flush=True)
    return good


def draw_case(rng):
    """A random case, as embeddings.CASES has them."""
    heads, groups = rng.choice([(2, 1), (4, 2), (3, 3), (6, 2)])
    kind = rng.choice(["llama", "qwen2", "qwen3", "mistral", "gemma3", "olmo2", "granite"])
    more = {"num_hidden_layers": rng.randint(1, 4), "head_dim": rng.choice([32, 64]),
            **embeddings.OURS, "max_position_embeddings": 512}
    if kind in ("mistral", "gemma3"):
        more["sliding_window"] = rng.choice([5, 16, 64])
    if kind == "gemma3":
        more.update(sliding_window_pattern=2, rope_theta=1e5, rope_local_base_freq=1e4)
    if kind in ("qwen2", "olmo2", "granite", "llama"):
        del more["head_dim"]
    config = getattr(model_cases, kind)(heads * rng.choice([16, 32]), heads, groups,
                                        rng.choice([96, 112, 160]),
                                        rng.choice(["float32", "bfloat16"]), **more)
    config = {**config, "is_matryoshka": rng.random() < 0.5}
    tokens = [[], [embeddings.EOT], [embeddings.END]]
    return (config, rng.choice(tokens), rng.choice(tokens),
            rng.choice(["lasttoken", "mean", "cls"]), rng.random() < 0.7, False)


def compare(build, name, case, seed, rng):
    """One line about a case: whether it holds, and the worst distance."""
    texts = [" ".join(rng.choices(WORDS, k=rng.choice([1, 3, 20, 120]))) or "x" for _ in range(9)]
    with tempfile.TemporaryDirectory() as out:
        facts = embeddings.write_case(out, name, case, seed, texts)
        flags = ["--max-num-seqs", rng.choice([1, 3, 8]),
                 "--max-num-batched-tokens", rng.choice([8, 17, 64, 512]),
                 "--load-format", "dummy", "--seed", seed]
        got, alone = serve(build, Path(out) / name, flags, embed, texts)
    worst = float(1 - embeddings.cosines(facts["vectors"], got).min())
    return judged(name, facts, worst, alone == got[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    results = []
    for i, (name, case) in enumerate(embeddings.CASES.items()):
        committed = json.loads((ROOT / "tests/vectors/embeddings" / name / "expected.json")
                               .read_text())
        with tempfile.TemporaryDirectory() as out:
            fresh = embeddings.write_case(out, name, case, committed["seed"])
        worst = float(np.abs(np.array(fresh["vectors"]) - np.array(committed["vectors"])).max())
        results.append(worst < 1e-4)
        print(f"{'ok  ' if results[-1] else 'FAIL'} vectors {name}: within {worst:.1e}")
    for i in range(options.count):
        rng = random.Random(f"{options.seed}-{i}")
        case = draw_case(rng)
        name = f"{case[0]['model_type']}-{case[3]}-{i}"
        results.append(compare(options.build, name, case, options.seed + i, rng))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main())
