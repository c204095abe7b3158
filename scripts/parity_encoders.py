#!/usr/bin/env python3
"""Compares /v1/embeddings of encoders with sentence-transformers on fresh random models.

    make parity     or    scripts/parity_encoders.py --build build [--seed N] [--count 20]

Makes `count` random encoders (family, sizes, window, biases, type, pooling, Dense modules: all
drawn from --seed, which is new each time and printed), as sentence-transformers saves them, and
serves each: random texts of up to about 190 tokens, all in one request, with random bounds of a
step. The cosine must be at least 0.99999 in float32, and in bfloat16 1 - cosine at most twice that
of sentence-transformers' own bfloat16 run; a text alone must have the same bits.

Ends with `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import encoders  # noqa: E402
from embeddings import cosines  # noqa: E402
from parity_embeddings import WORDS, post  # noqa: E402
from ports import free_port  # noqa: E402

POOLINGS = ["mean", "cls", "max", "weightedmean", "mean_sqrt_len_tokens", "lasttoken"]


def draw_case(rng):
    kind = rng.choice([kind for kind in encoders.KINDS if kind not in encoders.DECODERS])
    heads = rng.choice([1, 2, 3, 5])
    width, more = heads * rng.choice([16, 20, 32]), {}
    if kind == "modernbert":
        more = {"local_attention": rng.choice([2, 9, 16, 64])}
        biases = ("norm_bias", "attention_bias", "mlp_bias")
        more.update({key: rng.random() < 0.5 for key in biases})
    if kind == "gemma":
        more = {"num_key_value_heads": 1, "head_dim": rng.choice([16, 32]),
                "sliding_window": rng.choice([3, 14, 64]), "sliding_window_pattern": 2,
                "use_bidirectional_attention": True}
    if kind in ("bert", "nomic") and rng.random() < 0.3:
        more["type_vocab_size"] = 1
    dense = [(rng.choice([24, 80, 96]), rng.choice(["Identity", "Tanh", "GELU"]))
             for _ in range(rng.choice([0, 0, 0, 1, 2]))]
    dtype = "float32" if kind == "gemma" else rng.choice(["float32", "bfloat16"])
    return encoders.spec(kind, width, heads, rng.choice([48, 72, 96]), rng.randint(1, 5), dtype,
                         rng.choice(POOLINGS), rng.random() < 0.7,
                         dense if dtype == "float32" else (), **more)


def serve(build, directory, flags, texts):
    """The vectors of all texts in one request, and of the last text alone."""
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
            return post(port, {"input": texts}), post(port, {"input": texts[-1]})[0]
        finally:
            server.terminate()


def compare(build, name, case, seed, rng):
    """One line about a case: whether it holds, and the worst distance."""
    texts = [" ".join(rng.choices(WORDS, k=rng.choice([1, 3, 20, 40]))) or "x" for _ in range(9)]
    with tempfile.TemporaryDirectory() as out:
        facts = encoders.write_case(out, name, case, seed, texts)
        flags = ["--max-num-seqs", rng.choice([1, 3, 8]),
                 "--max-num-batched-tokens", rng.choice([200, 256, 512, 1024])]
        got, alone = serve(build, Path(out) / name, flags, texts)
    worst = float(1 - cosines(facts["vectors"], got).min())
    allowed = 1e-5 if facts["dtype"] == "float32" else 2 * facts["error"]
    good = worst <= allowed and alone == got[-1]
    print(f"{'ok  ' if good else 'FAIL'} {name} {facts['dtype']}: up to {max(facts['sizes'])} "
          f"tokens, 1 - cosine {worst:.1e} of {allowed:.1e}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int, default=20)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    results = []
    for i in range(options.count):
        rng = random.Random(f"{options.seed}-{i}")
        case = draw_case(rng)
        name = f"{case['kind']}-{case['pooling']}-{i}"
        results.append(compare(options.build, name, case, options.seed + i, rng))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main())
