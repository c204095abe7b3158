#!/usr/bin/env python3
"""Compares inferd's models with transformers: the committed vectors anew, then fresh random models.

    make parity            or    tests/parity/parity.py --build build [--seed N] [--count N]

1. Regenerates tests/vectors/models with the installed transformers and compares: same prompts, same
   logits to 1e-4, same tokens wherever the two best logits are not that close.
2. Makes `count` random models, two of each family unless told, every second one in 16 bits (sizes,
   rope, window, biases, key style: all drawn from --seed, new each time and printed), saves them
   with transformers, and runs them through build/model_driver on every back end given: the prompt
   as one prefill, the rest token by token. Logits must be within 1e-4 of transformers' fp32 run
   (`naive`, and float32 models), or within twice transformers' own 16-bit error; tokens must be
   equal wherever the gap exceeds that error.
3. Gives random models random low-rank adapters, saved by PEFT, and compares with what PEFT merged.

Ends with a table of the random models by architecture and `N passed, N failed`; exit 1 when
something failed.
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

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/vectors"))
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np  # noqa: E402
import torch  # noqa: E402

import decoder_cases  # noqa: E402
import gemma4_cases  # noqa: E402
import state_cases  # noqa: E402
import mixture_cases  # noqa: E402
import model_cases  # noqa: E402
import models  # noqa: E402
import recent_cases  # noqa: E402
import wrapped_cases  # noqa: E402
from model_files import save  # noqa: E402
from model_weights import fill  # noqa: E402

TWINS = {**decoder_cases.TWINS, **wrapped_cases.TWINS}
TOLERANCE = 1e-4
PROMPT, STEPS = 33, 24
LONG_PROMPT = 150  # of models with a state: two borders of the chunks in which transformers works


class Score:
    def __init__(self):
        self.passed, self.failed = 0, 0
        self.rows = {}  # architecture: [(type, difference, allowed, good)] of its runs

    def add(self, good, line):
        self.passed += good
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {line}", flush=True)

    def table(self):
        """By architecture: runs, largest difference in float32, share of the 16-bit bound."""
        yield "| architecture | runs | float32: largest difference | 16 bits: of bound | failed |"
        yield "| --- | --- | --- | --- | --- |"
        for name, runs in sorted(self.rows.items()):
            full = [f"{worst:.1e}" for dtype, worst, _, _ in runs if dtype == "float32"]
            half = [f"{worst / bound:.2f}" for dtype, worst, bound, _ in runs if dtype != "float32"]
            yield (f"| `{name}` | {len(runs)} | {max(full, key=float, default='')} | "
                   f"{max(half, key=float, default='')} | {sum(not run[-1] for run in runs)} |")


def compare_vectors(score, only):
    """Step 1: what transformers says today against what is committed."""
    with tempfile.TemporaryDirectory() as out:
        adapters = model_cases.ADAPTER_CASES
        cases = {**{n: (None, c) for n, c in model_cases.CASES.items()}, **model_cases.FILE_CASES,
                 **{n: (None, c) for n, (_, c) in adapters.items()},
                 **{n: c for n, c in decoder_cases.CASES.items() if not n.startswith("gguf-")},
                 **model_cases.LATER_CASES, **state_cases.STATE_CASES,
                 **gemma4_cases.CASES, **mixture_cases.CASES, **recent_cases.CASES,
                 **{n: c for n, c in recent_cases.SECOND_CASES.items()
                    if not n.startswith("gguf-")}, **wrapped_cases.CASES}
        for i, (name, (how, config)) in enumerate(cases.items()):
            if only and only not in name:
                continue
            path = ROOT / "tests/vectors/models" / name / "expected.json"
            committed = json.loads(path.read_text())
            fresh = models.write_case(Path(out), name, config, committed["seed"], how,
                                      adapters.get(name, [decoder_cases.ADAPTERS.get(name)])[0])
            worst = float(np.abs(np.array(fresh["logits"]) - np.array(committed["logits"])).max())
            first = next((k for k, g in enumerate(committed["gap"]) if g < 1e-3), 64)
            same = fresh["prompt"] == committed["prompt"] and \
                fresh["greedy"][:first] == committed["greedy"][:first]
            score.add(same and worst < TOLERANCE, f"vectors {name}: logits within {worst:.1e}")


def compare_adapter(score, options, seed, index):
    """A random model with a random adapter, against the model that PEFT merged."""
    rng = random.Random(f"adapter-{seed}-{index}")
    kind = rng.choice(["llama", "qwen2", "qwen3", "mistral", "gemma2", "granite", "olmo2",
                       "mixtral"])
    config = random_config(rng, kind, "float32")
    directory = options.keep / f"adapter-{index:03d}-{kind}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    model = models.build(directory, config)
    fill(model, rng.getrandbits(62), torch.float32)
    save(model, config, directory, "plain", torch.float32)
    modules = model_cases.ATTENTION + ([] if kind == "mixtral" else model_cases.MLP)
    adapter = {"r": rng.randint(1, 32), "lora_alpha": rng.randint(1, 32), "use_rslora":
               rng.random() < 0.3, "target_modules": rng.sample(modules, rng.randint(1, 4))}
    merged = models.adapt(model, adapter, directory / "adapter", seed + index)
    ids = [rng.randrange(3, config["vocab_size"]) for _ in range(PROMPT)]
    ids += models.continue_greedily(merged, ids, STEPS)
    exact = models.run(merged, ids)
    error = TOLERANCE * max(1.0, float(np.abs(exact).max()) / 5)  # adapters make large logits
    for backend in options.backend.split(","):
        logits, why = drive(options.build / "model_driver", backend, directory, "float32", ids,
                            directory / "adapter")
        worst = float("inf")
        if logits is not None:
            why, worst = judge(logits, exact, error, ids)
        score.add(not why, f"{directory.name} rank {adapter['r']} {backend}: {why or worst}")


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


def random_longrope(rng, config, head_dim):
    """Phi-3: default, or longrope on the short or on the long side for the whole run."""
    partial = rng.choice([1.0, 0.5]) if head_dim % 4 == 0 else 1.0
    config |= {"partial_rotary_factor": partial, "original_max_position_embeddings": 256}
    if rng.random() < 0.6:
        original = rng.choice([16, 32])  # the prompt is longer: long factors from the first token
        config["original_max_position_embeddings"] = original
        config["rope_scaling"] = model_cases.longrope(
            int(head_dim * partial), type=rng.choice(["su", "longrope"]),
            original_max_position_embeddings=original)
    return config


def random_gemma(rng, kind, config):
    caps = [None, 2.0, 20.0]
    config |= {"query_pre_attn_scalar": rng.choice([16, 50, 144]),
               "hidden_activation": "gelu_pytorch_tanh",
               "sliding_window": rng.choice([5, 16, 100]),
               "attn_logit_softcapping": rng.choice(caps) if kind == "gemma2" else None,
               "final_logit_softcapping": rng.choice(caps)}
    if kind == "gemma3":
        full = {"rope_type": "default", "rope_theta": rng.choice([1e4, 1e6])}
        local = {"rope_type": "default", "rope_theta": rng.choice([1e3, 1e4])}
        if rng.random() < 0.5:
            full |= {"rope_type": "linear", "factor": 8.0}
        config = model_cases.without(config, "rope_theta") | {
            "layer_types": [rng.choice(["full_attention", "sliding_attention"])
                            for _ in range(config["num_hidden_layers"])],
            "rope_parameters": {"full_attention": full, "sliding_attention": local}}
    return config


def random_experts(rng, kind, config, dtype):
    """A 16-bit run may send a token to other experts than the exact one: there all are taken."""
    count = rng.randint(2, 9)
    top = rng.randint(1, count) if dtype == "float32" else count
    config |= {"num_experts_per_tok": top,
               "num_local_experts" if kind in ("mixtral", "gpt_oss") else "num_experts": count}
    if kind in ("qwen2_moe", "qwen3_moe"):
        layers = config["num_hidden_layers"]
        config |= {"moe_intermediate_size": 8 * rng.randint(2, 20),
                   "decoder_sparse_step": rng.choice([1, 1, 2]),
                   "mlp_only_layers": rng.sample(range(layers), rng.randint(0, layers - 1))}
    if kind == "qwen2_moe":
        config["shared_expert_intermediate_size"] = 8 * rng.randint(2, 20)
    if kind != "mixtral":
        config["norm_topk_prob"] = rng.random() < 0.5
    return config


def random_router(rng, kind, config, dtype):
    """Routers that score, with groups of experts; in 16 bits all experts are taken."""
    groups = rng.choice([1, 1, 2, 3]) if kind in ROUTED else 1
    count = groups * rng.randint(2, 5)
    taken_groups = rng.randint(1, groups) if dtype == "float32" else groups
    top = rng.randint(1, count // groups * taken_groups) if dtype == "float32" else count
    width, layers = 8 * rng.randint(2, 20), config["num_hidden_layers"]
    if kind == "ernie4_5_moe":
        return config | {"moe_num_experts": count, "moe_k": top, "moe_intermediate_size": width,
                         "moe_num_shared_experts": rng.randint(0, 3),
                         "moe_layer_start_index": rng.randint(0, 2),
                         "moe_layer_end_index": rng.choice([-1, layers - 1]),
                         "moe_layer_interval": rng.choice([1, 1, 2])}
    if kind == "minimax_m2":
        return config | {"num_local_experts": count, "num_experts_per_tok": top,
                         "rotary_dim": config["head_dim"] // rng.choice([1, 2])}
    config |= {"n_routed_experts": count, "num_experts_per_tok": top, "n_group": groups,
               "topk_group": taken_groups, "moe_intermediate_size": width,
               "n_shared_experts": rng.randint(1, 3), "norm_topk_prob": rng.random() < 0.7,
               "routed_scaling_factor": rng.choice([1.0, 2.5])}
    if kind != "solar_open":
        config["first_k_dense_replace"] = rng.randint(0, layers)
    if kind == "glm4_moe":
        config |= {"use_qk_norm": rng.random() < 0.5, "attention_bias": rng.random() < 0.5}
    if kind == "dots1" and rng.random() < 0.5:
        config |= {"sliding_window": 6, "max_window_layers": rng.randint(0, layers)}
    return config


def random_latent(rng, kind, dtype):
    """Latent attention, with and without a rank of the queries."""
    heads, layers = rng.choice([1, 2, 3, 8, 17]), rng.randint(1, 4)
    hidden = 8 * heads if kind == "deepseek_v2" else 8  # transformers wants a multiple
    config = getattr(model_cases, kind)(hidden * rng.randint(2, 9), heads, 8 * rng.randint(4, 40),
                                        dtype, num_hidden_layers=layers)
    config |= {"kv_lora_rank": 2 * rng.randint(4, 70), "qk_rope_head_dim": 2 * rng.randint(1, 32),
               "q_lora_rank": rng.choice([None, 8 * rng.randint(2, 20)]),
               "qk_nope_head_dim": 2 * rng.randint(2, 70), "v_head_dim": rng.randint(4, 140),
               "attention_bias": rng.random() < 0.4, "rope_theta": rng.choice([1e4, 1e6]),
               "rms_norm_eps": rng.choice([1e-5, 1e-6])}
    config = random_router(rng, kind, config, dtype)
    if kind == "deepseek_v2":
        grouped = config["topk_group"] < config["n_group"] or rng.random() < 0.3
        config |= {"norm_topk_prob": False,
                   "topk_method": "group_limited_greedy" if grouped else "greedy"}
    elif rng.random() < 0.3:
        config["rope_interleave"] = False
    if kind == "glm4_moe_lite":
        del config["first_k_dense_replace"]
        config["mlp_layer_types"] = [rng.choice(["dense", "sparse"]) for _ in range(layers)]
    scaling = random_rope(rng)
    if scaling is not None and scaling["rope_type"] == "yarn":
        config["max_position_embeddings"] = int(
            scaling["factor"] * scaling["original_max_position_embeddings"])
        if rng.random() < 0.7:
            scaling |= {"mscale": rng.choice([0.7, 1.0]), "mscale_all_dim": rng.choice([0.7, 1.0])}
    if rng.random() < 0.5:
        return model_cases.v5(config, **(scaling or {}))
    return config | ({"rope_scaling": scaling} if scaling else {})


LATENT = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
ROUTED = ("glm4_moe", "solar_open", "dots1", *LATENT)
SCORED = ROUTED + ("ernie4_5_moe", "minimax_m2")
EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss")
WHOLE = ("phi3", "qwen2_moe", "olmo2", "olmo3", "olmoe", "granite", "smollm3", "starcoder2")


def random_decoder(rng, kind, dtype):
    """A config of one of the rotary families."""
    if kind in LATENT:
        return random_latent(rng, kind, dtype)
    head_dim, kv_heads = rng.choice([16, 32, 64, 80, 96, 128]), rng.choice([1, 2])
    if kind in WHOLE:  # head_dim is hidden_size / heads there
        head_dim = rng.choice([16, 32, 48])
    heads = kv_heads * rng.choice([1, 2, 3, 4, 7, 8])
    hidden = heads * 2 * rng.randint(4, max(4, 192 // heads))
    own = {} if kind in WHOLE else {"head_dim": head_dim}
    config = getattr(model_cases, kind)(hidden if own else heads * head_dim, heads, kv_heads,
                                        8 * rng.randint(4, 40), dtype, **own,
                                        rope_theta=rng.choice([1e4, 5e5, 1e6]))
    config |= {"num_hidden_layers": rng.randint(1, 4), "tie_word_embeddings": rng.random() < 0.4,
               "rms_norm_eps": rng.choice([1e-5, 1e-6])}
    scaling = random_rope(rng)
    if kind in ("llama", "granite", "smollm3"):
        config |= {"attention_bias": rng.random() < 0.3, "mlp_bias": rng.random() < 0.3}
    if kind in ("mistral", "mixtral", "phi3", "starcoder2"):
        config["sliding_window"] = rng.choice([None, 5, 16, 30])
    if kind in ("qwen2", "qwen3") and rng.random() < 0.5:
        config |= {"use_sliding_window": True, "sliding_window": rng.choice([6, 20]),
                   "max_window_layers": rng.randint(0, config["num_hidden_layers"])}
    if kind in SCORED:
        config = random_router(rng, kind, config, dtype)
    if kind in EXPERTS:
        config = random_experts(rng, kind, config, dtype)
    if kind == "starcoder2":
        config = model_cases.without(config, "rms_norm_eps") | {"norm_epsilon": 1e-4}
    if kind == "granite":
        config |= {"embedding_multiplier": rng.choice([1.0, 6.0]), "residual_multiplier":
                   rng.choice([0.22, 0.5]), "logits_scaling": rng.choice([0.5, 3.0])}
    if kind == "olmo3":
        config["rope_theta"] = 5e5  # transformers 5 takes another theta for its full layers only
    if kind.startswith("gemma"):
        config = random_gemma(rng, kind, config)
    if kind == "phi3":
        return random_longrope(rng, config, head_dim)
    if kind in ("gemma3", "gpt_oss", "olmo3"):
        return config
    if rng.random() < 0.5:
        return model_cases.v5(config, **(scaling or {}))
    return config | ({"rope_scaling": scaling} if scaling else {})


def random_config(rng, kind, dtype):
    kind = wrapped_cases.INSIDE.get(kind, kind)
    if "gemma" in kind and dtype == "float16":
        dtype = "bfloat16"  # Gemma overflows in float16 and is refused
    if kind in state_cases.STATE_DRAWS:
        return state_cases.STATE_DRAWS[kind](rng, dtype)
    if kind in gemma4_cases.DRAWS:
        return gemma4_cases.DRAWS[kind](rng, dtype)
    if kind in mixture_cases.DRAWS:
        return mixture_cases.DRAWS[kind](rng, dtype)
    if kind in wrapped_cases.DRAWS:
        return wrapped_cases.DRAWS[kind](rng, dtype)
    if kind in recent_cases.DRAWS:
        return recent_cases.DRAWS[kind](rng, dtype)
    if kind in decoder_cases.DRAWS:
        return decoder_cases.DRAWS[kind](rng, dtype)
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


def drive(driver, backend, directory, dtype, ids, *adapter, prompt=PROMPT):
    name, isa = (backend.split(":") + ["auto"])[:2]
    made = subprocess.run([driver, directory, name, isa, dtype, "-", "0", str(prompt),
                           *map(str, adapter)],
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


def forms_apart(model, ids, exact):
    """Largest difference between the two fp32 runs of transformers: by chunks, token by token."""
    cache, worst = None, 0.0
    for position, token in enumerate(ids):
        row, cache = models.step(model, [token], cache)
        worst = max(worst, float(np.abs(row.numpy() - exact[position]).max()))
    return worst


def double_apart(model, ids, exact):
    """Largest difference of the fp32 run of transformers to the same in double precision."""
    return float(np.abs(models.run(copy.deepcopy(model).double(), ids) - exact).max())


def as_published(rng, path):
    """The architecture of a config.json; half of Kimi's files have another name than
    transformers."""
    config = json.loads(path.read_text())
    name = config["architectures"][0]
    if name == "Kimi_K25ForConditionalGeneration" and rng.random() < 0.5:
        name = "KimiK25ForConditionalGeneration"
        path.write_text(json.dumps({**config, "architectures": [name]}))
    return name


def compare_random(score, options, seed, index, kind, full):
    rng = random.Random(f"{seed}-{index}")
    config = random_config(rng, kind, "float32" if full else rng.choice(["bfloat16", "float16"]))
    dtype = models.case_dtype(config)
    directory = options.keep / f"{index:03d}-{kind}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    model = models.build(directory, config)
    fill(model, rng.getrandbits(62), models.TYPES[dtype])
    if kind == "nemotron_h":
        state_cases.lower_steps(model, rng, models.TYPES[dtype])
    long = kind in (*state_cases.STATE_DRAWS, *gemma4_cases.DRAWS, *wrapped_cases.WITH_STATES,
                    "gemma3n", "gemma3n_seen")
    length = LONG_PROMPT if long else PROMPT
    vocabulary = config.get("text_config", config)["vocab_size"]
    prompt = [rng.randrange(3, vocabulary) for _ in range(length)]
    ids = prompt + models.continue_greedily(model, prompt, STEPS)
    exact = models.run(model, ids)
    fine = TOLERANCE
    if long:  # some of these amplify the rounding of fp32
        apart = double_apart if models.is_cacheless(model) else forms_apart
        fine = max(fine, 4 * apart(model, ids, exact))
    half = torch.bfloat16 if dtype == "float32" else models.TYPES[dtype]
    own = float(np.abs(models.run(copy.deepcopy(model).to(half), ids) - exact).max())
    how = rng.choice(["plain", "sharded"])
    save(model, config, directory, TWINS.get(kind, how), models.TYPES[dtype])
    if rng.random() < 0.5 and kind not in TWINS:
        # our spelling of the keys instead of transformers' own
        (directory / "config.json").write_text(json.dumps(config, indent=1))
    architecture = as_published(rng, directory / "config.json")
    for backend in options.backend.split(","):
        logits, why = drive(options.build / "model_driver", backend, directory, dtype, ids,
                            prompt=length)
        bound = fine if backend == "naive" or dtype == "float32" else 2 * own
        worst = float("inf")
        if logits is not None:
            why, worst = judge(logits, exact, bound, ids)
        score.rows.setdefault(architecture, []).append((dtype, worst, bound, not why))
        score.add(not why, f"random {directory.name} {dtype} {backend}: {why or f'{worst:.1e}'} "
                           f"(16-bit error of transformers {own:.1e})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--count", type=int, help="random models; two of each kind unless told")
    parser.add_argument("--backend", default="naive,cpu", help="naive, cpu, cpu:ISA; with commas")
    parser.add_argument("--only", help="step 1: cases whose name holds this; `none` skips the step")
    parser.add_argument("--adapters", type=int, default=8, help="random adapters to compare")
    parser.add_argument("--kind", help="families to draw from, with commas")
    parser.add_argument("--keep", type=Path, help="directory for the random models")
    options = parser.parse_args()
    torch.set_num_threads(1)  # tiny models: threads would only wait for each other
    score = Score()
    print(f"seed {options.seed}", flush=True)
    if options.only != "none":
        compare_vectors(score, options.only)
    kinds = ["llama", "mistral", "qwen2", "qwen3", "opt", "gpt2", "gemma2", "gemma3", "phi3",
             "mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "olmo2", "olmo3", "olmoe", "granite",
             "smollm3", "seed_oss", "starcoder2", *decoder_cases.DRAWS, *SCORED,
             *state_cases.STATE_DRAWS, *gemma4_cases.DRAWS, *mixture_cases.DRAWS,
             *recent_cases.DRAWS, *wrapped_cases.DRAWS, *wrapped_cases.TWINS]
    kinds = [k for k in kinds if options.kind is None or k in options.kind.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        options.keep = options.keep or Path(temporary)
        for index in range(2 * len(kinds) if options.count is None else options.count):
            turn, which = divmod(index, len(kinds))
            compare_random(score, options, options.seed, index, kinds[which], turn % 2 == 0)
        for index in range(options.adapters):
            compare_adapter(score, options, options.seed, index)
    print("\n".join(score.table()))
    print(f"{score.passed} passed, {score.failed} failed")
    sys.exit(1 if score.failed else 0)


if __name__ == "__main__":
    main()
