#!/usr/bin/env python3
"""Compares models of an encoder and a decoder with transformers on fresh random models.

    make parity     or    tests/parity/parity_crossed.py --build build [--seed N] [--count N]

Makes `count` random models, the families in turns (sizes, layers of each stack, activation, scale
of the embeddings, head: all drawn from --seed, which is new each time and printed), and serves each
in float32 with random bounds of a step. Of some sources: the greedy tokens where the lead of the
reference is not rounding, and their log-probabilities within 1e-4; the tokens of beam searches, in
order. All sources in one request have the same bits as one alone.

Ends with a table by architecture and `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import json
import random
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import crossed  # noqa: E402
from parity_embeddings import serve  # noqa: E402

TOLERANCE, LEAD = 1e-4, 2e-3


def draw_case(rng, kind):
    """A case of scripts/vectors/crossed.py with other sizes."""
    name, keys = crossed.CASES[kind]
    keys = dict(keys)
    heads = rng.choice([1, 2, 4])
    if "d_kv" in keys:
        keys.update(d_model=rng.choice([24, 32, 48]), d_kv=rng.choice([8, 16, 20]), num_heads=heads,
                    num_layers=rng.randint(2, 3), num_decoder_layers=rng.choice([None, 1, 2]),
                    d_ff=rng.choice([40, 64]),
                    feed_forward_proj=rng.choice(["relu", "gated-gelu", "gated-silu"]))
    else:
        keys.update(d_model=16 * heads, encoder_attention_heads=heads,
                    decoder_attention_heads=rng.choice([1, heads]),
                    encoder_layers=rng.randint(2, 3), decoder_layers=rng.randint(1, 2),
                    encoder_ffn_dim=rng.choice([40, 64]), decoder_ffn_dim=rng.choice([40, 64]),
                    activation_function=rng.choice(["relu", "gelu", "silu"]),
                    scale_embedding=rng.random() < 0.5)
    return name, keys


def complete(port, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["choices"]


def ask(port, expected):
    """Answers to the sources together, to the first alone, and to the beam searches."""
    body = dict(max_tokens=crossed.NEW_TOKENS, temperature=0, logprobs=0, return_token_ids=True)
    sources = expected["sources"]
    together = complete(port, {**body, "prompt": sources})
    alone = complete(port, {**body, "prompt": sources[0]})
    beams = [complete(port, {
        "prompt": sources[0], "max_tokens": crossed.NEW_TOKENS, "use_beam_search": True,
        "n": search["settings"]["num_beams"], "return_token_ids": True,
        "length_penalty": search["settings"]["length_penalty"],
        "early_stopping": search["settings"]["early_stopping"]})
        for search in expected["beams"]]
    return together, alone[0], beams


def judge(expected, answers):
    """The largest distance of a log-probability, and what is wrong."""
    together, alone, beams = answers
    worst, wrong = 0.0, []
    for made, right in zip(together, expected["greedy"], strict=True):
        unsure = [i for i, gap in enumerate(right["gaps"]) if gap < LEAD]
        sure = unsure[0] if unsure else len(right["ids"])
        if made["token_ids"][:sure] != right["ids"][:sure]:
            wrong.append("greedy tokens")
        else:
            pairs = zip(made["logprobs"]["token_logprobs"][:sure], right["logprobs"][:sure])
            worst = max([worst, *(abs(a - b) for a, b in pairs)])
    if any(alone[key] != together[0][key] for key in ("token_ids", "logprobs")):
        wrong.append("bits of a source alone")
    first = len(expected["start"])
    for made, search in zip(beams, expected["beams"], strict=True):
        right = [found["ids"][first:] for found in search["found"]]
        if [choice["token_ids"] for choice in made] != right:
            wrong.append(f"beams {search['settings']}")
    if worst > TOLERANCE:
        wrong.append(f"a log-probability by {worst:.2g}")
    return worst, wrong


def compare(build, name, case, seed, rng, rows):
    with tempfile.TemporaryDirectory() as out:
        crossed.write(Path(out), name, case, seed)
        expected = json.loads((Path(out) / name / "expected.json").read_text())
        config = json.loads((Path(out) / name / "config.json").read_text())
        flags = ["--max-num-seqs", rng.choice([4, 8]), "--block-size", rng.choice([4, 16]),
                 "--max-num-batched-tokens", rng.choice([16, 64])]
        worst, wrong = judge(expected, serve(build, Path(out) / name, flags, ask, expected))
    print(f"{'FAILED' if wrong else 'ok'} {name} seed {seed}: {worst:.1e} {', '.join(wrong)}",
          flush=True)
    rows.setdefault(config["architectures"][0], []).append((worst, not wrong))
    return not wrong


def table(rows):
    yield "| architecture | runs | float32: largest distance of a log-probability | failed |"
    yield "| --- | --- | --- | --- |"
    for name, runs in sorted(rows.items()):
        yield (f"| `{name}` | {len(runs)} | {max(worst for worst, _ in runs):.1e} | "
               f"{sum(not good for _, good in runs)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int, default=2 * len(crossed.CASES))
    parser.add_argument("--kind", default=",".join(crossed.CASES))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    results, rows, kinds = [], {}, options.kind.split(",")
    for i in range(options.count):
        rng = random.Random(f"{options.seed}-{i}")
        kind = kinds[i % len(kinds)]
        case = draw_case(rng, kind)
        results.append(compare(options.build, f"{kind}-{i}", case, options.seed + i, rng, rows))
    print("\n".join(table(rows)))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return not all(results)


if __name__ == "__main__":
    sys.exit(main())
