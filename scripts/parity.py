#!/usr/bin/env python3
"""Compares inferd's models with transformers: the committed vectors anew, then fresh random models.

    make parity            or    scripts/parity.py --build build [--seed N] [--count 24]

1. Regenerates tests/vectors/models with the installed transformers and compares: same prompts, same
   logits to 1e-4, same tokens wherever the two best logits are not that close.
2. Makes `count` random models (family, sizes, rope, window, biases, type, key style: all drawn from
   --seed, which is new each time and printed), saves them with transformers, and runs them through
   build/model_driver on every back end given: the prompt as one prefill, the rest token by token.
   Logits must be within 1e-4 of transformers' fp32 run (`naive`, and float32 models), or within
   twice transformers' own 16-bit error; tokens must be equal wherever the gap exceeds that error.

Ends with `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts/vectors"))
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402

import model_cases  # noqa: E402
import models  # noqa: E402
from model_files import save  # noqa: E402
from model_weights import fill  # noqa: E402

TOLERANCE = 1e-4
PROMPT, STEPS = 33, 24


class Score:
    def __init__(self):
        self.passed, self.failed = 0, 0

    def add(self, good, line):
        self.passed += good
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {line}", flush=True)


def compare_vectors(score, only):
    """Step 1: what transformers says today against what is committed."""
    with tempfile.TemporaryDirectory() as out:
        cases = {**{n: (None, c) for n, c in model_cases.CASES.items()}, **model_cases.FILE_CASES}
        for i, (name, (how, config)) in enumerate(cases.items()):
            if only and only not in name:
                continue
            path = ROOT / "tests/vectors/models" / name / "expected.json"
            committed = json.loads(path.read_text())
            fresh = models.write_case(Path(out), name, config, committed["seed"], how)
            worst = float(np.abs(np.array(fresh["logits"]) - np.array(committed["logits"])).max())
            first = next((k for k, g in enumerate(committed["gap"]) if g < 1e-3), 64)
            same = fresh["prompt"] == committed["prompt"] and \
                fresh["greedy"][:first] == committed["greedy"][:first]
            score.add(same and worst < TOLERANCE, f"vectors {name}: logits within {worst:.1e}")


def random_rope(rng):
    kind = rng.choice(["default", "default", "linear", "llama3", "yarn"])
    scaling = {"rope_type": kind, "factor": rng.choice([1.5, 2.0, 8.0])}
    if kind == "llama3":
        scaling |= {"low_freq_factor": 1.0, "high_freq_factor": rng.choice([2.0, 4.0])}
    if kind in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = rng.choice([16, 32, 64])
    if kind == "yarn":  # the context is their product, and the run needs some
        scaling |= {"factor": rng.choice([4.0, 8.0])}
    if kind == "yarn" and rng.random() < 0.5:
        scaling |= {"beta_fast": 8.0, "beta_slow": 0.5, "truncate": rng.random() < 0.5}
    return None if kind == "default" else scaling


def random_decoder(rng, kind, dtype):
    """A config of one of the rotary families."""
    head_dim, kv_heads = rng.choice([16, 32, 64, 80, 96, 128]), rng.choice([1, 2])
    heads = kv_heads * rng.choice([1, 2, 3, 4, 7, 8])
    hidden = heads * 2 * rng.randint(4, max(4, 192 // heads))
    config = getattr(model_cases, kind)(hidden, heads, kv_heads, 8 * rng.randint(4, 40), dtype,
                                        head_dim=head_dim, rope_theta=rng.choice([1e4, 5e5, 1e6]))
    config |= {"num_hidden_layers": rng.randint(1, 4), "tie_word_embeddings": rng.random() < 0.4,
               "rms_norm_eps": rng.choice([1e-5, 1e-6])}
    scaling = random_rope(rng)
    if kind == "llama":
        config |= {"attention_bias": rng.random() < 0.3, "mlp_bias": rng.random() < 0.3}
    if kind == "mistral":
        config["sliding_window"] = rng.choice([None, 5, 16, 30])
    if kind in ("qwen2", "qwen3") and rng.random() < 0.5:
        config |= {"use_sliding_window": True, "sliding_window": rng.choice([6, 20]),
                   "max_window_layers": rng.randint(0, config["num_hidden_layers"])}
    if rng.random() < 0.5:
        return model_cases.v5(config, **(scaling or {}))
    return config | ({"rope_scaling": scaling} if scaling else {})


def random_config(rng, kind):
    dtype = rng.choice(["float32", "bfloat16", "float16"])
    if kind == "opt":
        heads = rng.choice([1, 2, 3])
        hidden = heads * rng.choice([32, 64, 80])
        return model_cases.opt(
            hidden, heads, 8 * rng.randint(4, 40), dtype, num_hidden_layers=rng.randint(1, 4),
            word_embed_proj_dim=rng.choice([hidden, 48, 96]),
            do_layer_norm_before=rng.random() < 0.6, enable_bias=rng.random() < 0.8,
            layer_norm_elementwise_affine=rng.random() < 0.8,
            _remove_final_layer_norm=rng.random() < 0.2,
            activation_function=rng.choice(["relu", "gelu", "gelu_new"]))
    if kind == "gpt2":
        heads = rng.choice([1, 2, 3])
        return model_cases.gpt2(heads * rng.choice([32, 64, 80]), heads, dtype,
                                n_layer=rng.randint(1, 4), n_inner=rng.choice([None, 136]),
                                activation_function=rng.choice(["gelu_new", "gelu", "relu"]))
    return random_decoder(rng, kind, dtype)


def drive(driver, backend, directory, dtype, ids):
    name, isa = (backend.split(":") + ["auto"])[:2]
    made = subprocess.run([driver, directory, name, isa, dtype, "-", "0", str(PROMPT)],
                          input=" ".join(map(str, ids)).encode(), capture_output=True)
    if made.returncode != 0:
        return None, made.stderr.decode().strip()
    return np.frombuffer(made.stdout, dtype=np.float32).reshape(len(ids), -1), ""


def judge(logits, exact, error, ids):
    """What is wrong with these logits, or an empty text, and the largest difference."""
    worst = float(np.abs(logits - exact).max()) if np.isfinite(logits).all() else float("inf")
    _, gap = models.margins(exact)
    wrong = [p for p in range(len(ids))
             if gap[p] > error and logits[p].argmax() != exact[p].argmax()]
    if worst > error:
        return f"logits differ by {worst:.2e}, allowed {error:.2e}", worst
    return (f"tokens differ at {wrong[:5]}" if wrong else ""), worst


def compare_random(score, options, seed, index, kind):
    rng = random.Random(f"{seed}-{index}")
    config = random_config(rng, kind)
    dtype = models.case_dtype(config)
    directory = options.keep / f"{index:03d}-{kind}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    model = models.build(directory, config)
    fill(model, rng.getrandbits(62), models.TYPES[dtype])
    prompt = [rng.randrange(3, config["vocab_size"]) for _ in range(PROMPT)]
    ids = prompt + models.continue_greedily(model, prompt, STEPS)
    exact = models.run(model, ids)
    half = torch.bfloat16 if dtype == "float32" else models.TYPES[dtype]
    own = float(np.abs(models.run(copy.deepcopy(model).to(half), ids) - exact).max())
    save(model, config, directory, rng.choice(["plain", "sharded"]), models.TYPES[dtype])
    if rng.random() < 0.5:  # our spelling of the keys instead of transformers' own
        (directory / "config.json").write_text(json.dumps(config, indent=1))
    for backend in options.backend.split(","):
        logits, why = drive(options.build / "model_driver", backend, directory, dtype, ids)
        tight = backend == "naive" or dtype == "float32"
        worst = float("inf")
        if logits is not None:
            why, worst = judge(logits, exact, TOLERANCE if tight else 2 * own, ids)
        score.add(not why, f"random {directory.name} {dtype} {backend}: {why or f'{worst:.1e}'} "
                           f"(16-bit error of transformers {own:.1e})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--backend", default="naive,cpu", help="naive, cpu, cpu:ISA; with commas")
    parser.add_argument("--only", help="step 1: cases whose name holds this; `none` skips the step")
    parser.add_argument("--keep", type=Path, help="directory for the random models")
    options = parser.parse_args()
    torch.set_num_threads(1)  # tiny models: threads would only wait for each other
    score = Score()
    print(f"seed {options.seed}", flush=True)
    if options.only != "none":
        compare_vectors(score, options.only)
    kinds = ["llama", "mistral", "qwen2", "qwen3", "opt", "gpt2"]
    with tempfile.TemporaryDirectory() as temporary:
        options.keep = options.keep or Path(temporary)
        for index in range(options.count):
            compare_random(score, options, options.seed, index, kinds[index % len(kinds)])
    print(f"{score.passed} passed, {score.failed} failed")
    sys.exit(1 if score.failed else 0)


if __name__ == "__main__":
    main()
