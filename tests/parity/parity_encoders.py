#!/usr/bin/env python3
"""Compares encoders and classifiers with sentence-transformers on fresh random models.

    make parity     or    tests/parity/parity_encoders.py --build build [--seed N] [--count N]

Makes `count` random encoders, the families in turns (sizes, window, biases, type, pooling, Dense
modules: all drawn from --seed, which is new each time and printed), as sentence-transformers saves
them, and serves each: random texts of up to about 190 tokens, all in one request, with random
bounds of a step. The cosine must be at least 0.99999 in float32, and in bfloat16 1 - cosine at most
twice that of sentence-transformers' own bfloat16 run; a text alone must have the same bits.
Cross-encoders, classifiers (of decoders, too) and Qwen3-Rerankers answer /score and /classify:
within 1e-5, or twice the distance of the reference's own bfloat16 run.

Ends with a table by architecture and `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import encoders  # noqa: E402
from embeddings import cosines  # noqa: E402
from parity_embeddings import WORDS, embed, judged, post, serve  # noqa: E402

POOLINGS = ["mean", "cls", "max", "weightedmean", "mean_sqrt_len_tokens", "lasttoken"]


def draw_case(rng, kind):
    labels = rng.choice([0, 0, 1, 1, 3])
    if kind in encoders.DECODERS:
        labels = labels or rng.choice([1, 3])
    labels = 0 if kind == "gemma" else labels
    judges = kind == "qwen3" and rng.random() < 0.5
    heads = rng.choice([1, 2, 3, 5])
    width, more = heads * rng.choice([16, 20, 32]), {}
    if kind == "eurobert":
        more = {"attention_bias": rng.random() < 0.5,
                "classifier_pooling": rng.choice(["bos", "mean"])}
    if kind in ("t5", "mt5"):
        labels = 0
        more = {"d_kv": rng.choice([16, 20, 32]),
                "feed_forward_proj": rng.choice(["relu", "gated-gelu", "gated-silu"])}
    if kind in ("albert", "electra", "roformer"):
        more = {"embedding_size": rng.choice([16, 24, width])}
    if kind == "rembert":
        more = {"input_embedding_size": rng.choice([16, 24, width])}
    if kind == "ernie":
        more = {"use_task_id": rng.random() < 0.5}
    if kind == "deberta":
        more = {"relative_attention": rng.random() < 0.9, "share_att_key": True,
                "pos_att_type": rng.choice([["p2c", "c2p"], ["c2p"], ["p2c"]]),
                "position_buckets": rng.choice([-1, 6, 24, 64]),
                "max_relative_positions": rng.choice([-1, 70]),
                "norm_rel_ebd": rng.choice(["none", "layer_norm"]),
                "position_biased_input": rng.random() < 0.5,
                "type_vocab_size": rng.choice([0, 2])}
    if kind == "modernbert":
        more = {"local_attention": rng.choice([2, 9, 16, 64])}
        biases = ("norm_bias", "attention_bias", "mlp_bias")
        more.update({key: rng.random() < 0.5 for key in biases})
    if kind == "gemma":
        more = {"num_key_value_heads": 1, "head_dim": rng.choice([16, 32]),
                "sliding_window": rng.choice([3, 14, 64]), "sliding_window_pattern": 2,
                "use_bidirectional_attention": True}
    if kind in ("bert", "nomic") and not labels and rng.random() < 0.3:
        more["type_vocab_size"] = 1
    dense = [(rng.choice([24, 80, 96]), rng.choice(["Identity", "Tanh", "GELU"]))
             for _ in range(0 if labels else rng.choice([0, 0, 0, 1, 2]))]
    if kind in ("qwen3", "llama", "mistral", "gemma2"):
        more = {"num_key_value_heads": 1, "head_dim": rng.choice([16, 32])}
    if kind == "qwen2":
        more = {"num_key_value_heads": 1}
    dtype = "float32" if kind in ("gemma", "gemma2") else rng.choice(["float32", "bfloat16"])
    return encoders.spec(kind, width, heads, rng.choice([48, 72, 96]), rng.randint(1, 5), dtype,
                         rng.choice(POOLINGS), rng.random() < 0.7,
                         dense if dtype == "float32" else (), 0 if judges else labels, judges,
                         **more)


def score(port, pairs):
    """The scores of all pairs in one request, and of the last pair alone."""
    first, second = zip(*pairs, strict=True)
    got = post(port, "/score", {"queries": first, "documents": second})
    alone = post(port, "/score", {"queries": first[-1], "documents": second[-1]})
    return [[d["score"]] for d in got], [alone[0]["score"]]


def classify(port, texts):
    """The probabilities of all texts in one request, and of the last text alone."""
    got = [d["probs"] for d in post(port, "/classify", {"input": texts})]
    return got, post(port, "/classify", {"input": texts[-1]})[0]["probs"]


def as_published(rng, directory):
    """The architecture; half of GTE's files have the names of its first ones, of remote code."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    name = config["architectures"][0]
    if name.startswith("Gte") and rng.random() < 0.5:
        name = name.replace("Gte", "New")
        path.write_text(json.dumps({**config, "architectures": [name], "model_type": "new"}))
    return name


def compare(build, name, case, seed, rng, rows):
    """One line about a case, and one of `rows`; whether it holds."""
    texts = [" ".join(rng.choices(WORDS, k=rng.choice([1, 3, 20, 40]))) or "x" for _ in range(9)]
    short = [" ".join(rng.choices(WORDS, k=rng.choice([1, 3, 15]))) or "x" for _ in texts]
    pairs = list(zip(short, short[::-1], strict=True))
    with tempfile.TemporaryDirectory() as out:
        facts = encoders.write_case(out, name, case, seed, texts, pairs)
        flags = ["--max-num-seqs", rng.choice([1, 3, 8]),
                 "--max-num-batched-tokens", rng.choice([200, 256, 512, 1024])]
        ask = embed if "vectors" in facts else score if "pairs" in facts else classify
        flags += ["--task", "rerank"] * case["judges"]
        architecture = as_published(rng, Path(out) / name)
        got, alone = serve(build, Path(out) / name, flags, ask, facts.get("pairs", texts))
    what = "1 - cosine" if "vectors" in facts else "a score differs by"
    if "vectors" in facts:
        worst = float(1 - cosines(facts["vectors"], got).min())
    else:
        right = [[s] for s in facts["scores"]] if "pairs" in facts else facts["probs"]
        worst = max(abs(a - b) for x, y in zip(got, right, strict=True) for a, b in zip(x, y))
    good = judged(name, facts, worst, alone == got[-1], what)
    rows.setdefault((architecture, what), []).append((facts["dtype"], worst, facts["error"], good))
    return good


def table(rows):
    yield "| architecture | what | runs | float32: largest | bfloat16: of its own error | failed |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for (name, what), runs in sorted(rows.items()):
        full = [worst for dtype, worst, _, _ in runs if dtype == "float32"]
        half = [worst / error for dtype, worst, error, _ in runs if dtype != "float32"]
        yield (f"| `{name}` | {what} | {len(runs)} | {f'{max(full):.1e}' if full else ''} | "
               f"{f'{max(half):.2f}' if half else ''} | {sum(not run[-1] for run in runs)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int, default=3 * len(encoders.KINDS))
    parser.add_argument("--kind", default=",".join(encoders.KINDS))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    results, rows, kinds = [], {}, options.kind.split(",")
    for i in range(options.count):
        rng = random.Random(f"{options.seed}-{i}")
        case = draw_case(rng, kinds[i % len(kinds)])
        name = f"{case['kind']}-{case['pooling']}-{i}"
        results.append(compare(options.build, name, case, options.seed + i, rng, rows))
    print("\n".join(table(rows)))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main())
