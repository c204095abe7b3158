#!/usr/bin/env python3
"""Writes tests/vectors/adapters: adapters as PEFT saves them and the log probabilities it computes.

    pip install torch transformers peft     (CPU builds will do)
    scripts/vectors/adapters.py [--out DIR] [--seed N]

config.json is the base, whose weights are the dummy weights of the seed; a directory each has an
adapter. expected.json: the seed, the largest logit, and a row a case with its adapter, prompt and
the log probability of each token of the prompt but the first; the adapter "base" is none.

What public reports met: adapters that are active from their invocation tokens on (peft#2609), and
ranks and scales of their own for some modules (axolotl#3673), each with relatives.
"""

import argparse
import json
import random
import shutil
from pathlib import Path

import torch
from peft import PeftModel

import models
from model_cases import llama
from model_weights import fill

BASE = llama(64, 4, 2, 96, head_dim=16, vocab_size=3200, max_position_embeddings=128)
START = [5, 99, 1000, 77]
CALL = [3000, 42]
NAMES = ["q_proj", "v_proj", "down_proj"]


def invoked(*tokens, **more):
    return {"r": 4, "lora_alpha": 8, "target_modules": NAMES,
            "alora_invocation_tokens": list(tokens), **more}


def patterns(ranks=None, alphas=None, **more):
    return {"r": 4, "lora_alpha": 6, "target_modules": NAMES, "rank_pattern": ranks or {},
            "alpha_pattern": alphas or {}, **more}


# name: (what is given to LoraConfig, prompts in front of what is drawn behind them)
CASES = {
    "invoked": (invoked(*CALL), [START + CALL, CALL, START + CALL + START + CALL, START,
                                 CALL[:1] + START + CALL[1:], START + CALL[:1] + CALL]),
    "invoked-one": (invoked(42), [START + CALL, [42], [42, 42] + START, START]),
    "invoked-same": (invoked(7, 7), [START + [7, 7, 7], [7, 7], [7] + START + [7]]),
    "invoked-long": (invoked(*START, *CALL), [START + START + CALL, START + CALL, START]),
    "invoked-patterns": (invoked(*CALL, rank_pattern={"q_proj": 8}, alpha_pattern={"v_proj": 32},
                                 use_rslora=True), [START + CALL, CALL]),
    "invoked-bias": (invoked(*CALL, lora_bias=True), [START + CALL, CALL]),
    "patterns": (patterns({"q_proj": 8}, {"q_proj": 32}), [START]),
    "patterns-rank": (patterns({"v_proj": 1}), [START]),
    "patterns-scale": (patterns(None, {"down_proj": 1, "q_proj": 0.5}), [START]),
    "patterns-layer": (patterns({"layers.1.self_attn.q_proj": 2}, {"0.mlp.down_proj": 20}),
                       [START]),
    "patterns-regex": (patterns({r"layers\.[0-9]+\.mlp\..*": 7}, {"(q|v)_proj": 17}), [START]),
    "patterns-first": (patterns({".*_proj": 3, "q_proj": 9}, {"q_proj": 9, ".*": 2}), [START]),
    "patterns-part": (patterns({"roj": 9, "^q_proj": 9}, {"_proj": 90}), [START]),
    "patterns-stable": (patterns({"q_proj": 8}, {"q_proj": 32}, use_rslora=True), [START]),
}


def fresh(out, seed):
    model = models.build(out, BASE)
    fill(model, seed, torch.float32)
    return model.eval()


def scores(model, ids):
    """The log probability of each token but the first; the largest logit."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0].float()
    rows = torch.log_softmax(logits, dim=-1)
    return [float(rows[i, t]) for i, t in enumerate(ids[1:])], float(logits.abs().max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=root / "tests/vectors/adapters")
    parser.add_argument("--seed", type=int, default=20262)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    (options.out / "config.json").write_text(json.dumps(BASE, indent=1) + "\n")
    rng, rows, largest = random.Random(options.seed), [], 1.0
    for name, (given, begins) in CASES.items():
        models.adapt(fresh(options.out, options.seed), given, options.out / name, options.seed)
        # As it is read again: the file has the patterns in another order.
        model = PeftModel.from_pretrained(fresh(options.out, options.seed), options.out / name)
        for begin in begins:
            # No drawn token is one of the invocation.
            prompt = begin + [rng.randrange(100, 999) for _ in range(10)]
            for adapter, of in ((name, model.eval()), ("base", fresh(options.out, options.seed))):
                found, top = scores(of, prompt)
                rows.append({"adapter": adapter, "prompt": prompt, "scores": found})
                largest = max(largest, top)
    facts = {"seed": options.seed, "largest": largest, "rows": rows}
    (options.out / "expected.json").write_text(json.dumps(facts) + "\n")
    print(f"{len(CASES)} adapters, {len(rows)} rows, largest logit {largest:.1f}")


if __name__ == "__main__":
    main()
