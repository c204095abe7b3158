#!/usr/bin/env python3
"""Writes tests/vectors/models: tiny random models of every family as transformers runs them.

    pip install torch transformers peft numpy safetensors gguf     (CPU builds will do)
    scripts/vectors/models.py [--out DIR] [--seed N] [--only PREFIX]

One directory a case: config.json, and expected.json with

  seed, dtype        the dummy weights (engine/model/weights/dummy.h) and the run type
  max_model_len      0 = the model's own
  prompt, greedy     token ids; `greedy` continues the prompt by the largest logit
  positions, logits  rows of the fp32 logits at some positions of prompt + greedy
  best, gap          per greedy step: largest logit, distance to the second
  error              largest |bf16 run - fp32 run| (fp16 for fp16 models) of transformers itself

The fp32 reference runs on weights rounded to the model's type. A few cases are also saved as files
(`weights: true`), by transformers itself, so that loading is proven on what others wrote; the gguf-
cases are model.gguf without a config.json, and the reference has the values of its blocks.
"""

import argparse
import copy
import json
import os
import shutil
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from decoder_cases import ADAPTERS, CASES as DECODER_CASES
from gemma4_cases import CASES as GEMMA4_CASES
from gguf_file import write as write_gguf
from model_cases import ADAPTER_CASES, CASES, FILE_CASES, GGUF_CASES, LATER_CASES, WRAPPED_CASES
from recent_cases import CASES as RECENT_CASES, SECOND_CASES
from state_cases import STATE_CASES
from mixture_cases import CASES as MIXTURE_CASES
from wrapped_cases import CASES as WRAPPER_CASES
from model_weights import fill
from model_files import save

PROMPT, GREEDY = 41, 64
ROUTING_GAP_MIN = 0.1  # router scores are about 1, and 8 bits move them by less than 0.05
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def case_dtype(config):
    return config.get("torch_dtype") or config.get("dtype")


UNMAPPED = ("mistral4",)  # no AutoModelForCausalLM


def build(config_dir, config):
    """A transformers model in fp32 from a written config.json, with eager attention."""
    made = AutoConfig.from_pretrained(config_dir)
    made._experts_implementation = "eager"  # the grouped products want aligned sizes
    if "text_config" in config or config["model_type"] in UNMAPPED:
        kind = getattr(transformers, config["architectures"][0])
        model = kind._from_config(made, dtype=torch.float32, attn_implementation="eager").eval()
    else:
        model = AutoModelForCausalLM.from_config(made, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    for module in model.modules():
        if type(module).__name__ == "NemotronHMamba2Mixer":  # as NVIDIA's own code: PARITY.md
            module.time_step_limit = tuple(made.time_step_limit)
    for module in model.modules():  # Gemma rounds it to the type that the model runs in
        scale = getattr(module, "embed_scale", None)
        if torch.is_tensor(scale):
            scale.copy_(scale.to(TYPES[case_dtype(config)]).float())
    return model


def run(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().numpy()


def is_cacheless(model):
    """transformers 5.23: runs with and without a cache differ. Those of Nemotron-H and Mamba-2
    bound the steps of the state in their chunked form alone."""
    config = model.config
    bounds = None
    if config.model_type in ("nemotron_h", "mamba2"):
        bounds = getattr(config, "time_step_limit", None)
    return config.model_type == "bamba" or (bounds is not None and bounds[1] < 1e6)


def step(model, ids, cache):
    """The logits behind some ids that follow the cache, and the cache behind them."""
    name = "past_key_values"
    if model.config.model_type in ("mamba", "falcon_mamba", "mamba2"):
        name = "cache_params"
    with torch.no_grad():
        made = model(input_ids=torch.tensor([ids]), use_cache=True, **{name: cache})
    return made.logits[0, -1].float(), getattr(made, name)


def continue_greedily(model, prompt, count):
    """`count` ids by the largest logit, with the cache of transformers where that is right."""
    ids, cache, new = [], None, prompt
    if is_cacheless(model):
        for _ in range(count):
            ids.append(int(run(model, prompt + ids)[-1].argmax()))
        return ids
    for _ in range(count):
        logits, cache = step(model, new, cache)
        ids.append(int(logits.argmax()))
        new = [ids[-1]]
    return ids


def margins(rows):
    """Largest logit of every row and its distance to the second."""
    two = np.sort(rows, axis=1)[:, -2:]
    return two[:, 1], two[:, 1] - two[:, 0]


def rounded(array):
    return [float(f"{x:.7g}") for x in array]


def expected(config, model, rng, seed):
    dtype = case_dtype(config)
    dynamic = "dynamic" in json.dumps(config) and "alpha" not in json.dumps(config)
    vocabulary = config.get("text_config", config)["vocab_size"]
    prompt = [int(x) for x in rng.integers(3, vocabulary, PROMPT)]
    # transformers follows a growing sequence with new frequencies; here they are fixed at load, so
    # the dynamic case is one sequence of exactly the length that the model is loaded for.
    greedy = [] if dynamic else continue_greedily(model, prompt, GREEDY)
    ids = prompt + greedy
    exact = run(model, ids)  # without a cache: the two ways must agree
    best, gap = margins(exact[PROMPT - 1:len(ids) - 1])
    assert all(exact[PROMPT - 1 + i].argmax() == g or gap[i] < 1e-3 for i, g in enumerate(greedy))
    own = TYPES[dtype] if dtype != "float32" else torch.bfloat16
    error = float(np.abs(run(copy.deepcopy(model).to(own), ids) - exact).max())
    positions = sorted({0, 1, PROMPT // 2, PROMPT - 1, len(ids) - 1})
    longest = PROMPT if dynamic else 0
    if "short_factor" in json.dumps(config) and config["original_max_position_embeddings"] > 100:
        longest = config["original_max_position_embeddings"]  # else the long factors would apply
    return {"seed": seed, "dtype": dtype, "max_model_len": longest,
            "error": float(f"{error:.4g}"), "prompt": prompt, "greedy": greedy,
            "best": rounded(best), "gap": rounded(gap), "positions": positions,
            "logits": [rounded(exact[p]) for p in positions]}


def routing_gap(model, config, ids, positions):
    """Smallest distance, at those positions, of the last expert taken to the first one not taken;
    infinite for a model without experts. CPU runs round activations to 8 bits, so a token that
    stands between two experts may go either way."""
    taken, gaps, hooks = config.get("num_experts_per_tok", 2), [float("inf")], []

    def look(module, inputs, _):
        states = inputs[0].reshape(-1, inputs[0].shape[-1])
        scores = torch.nn.functional.linear(states, module.weight).sort(-1, descending=True).values
        if scores.shape[1] > taken:
            gaps.extend((scores[positions, taken - 1] - scores[positions, taken]).tolist())

    for name, module in model.named_modules():
        if name.endswith((".gate", ".router")) and hasattr(module, "weight"):
            hooks.append(module.register_forward_hook(look))
    run(model, ids)
    for hook in hooks:
        hook.remove()
    return min(gaps)


def adapt(model, adapter, directory, seed):
    """Gives `model` a random adapter, saves it with PEFT, and returns the merged model, or one with
    its adapter where a merge would change a head that is the embedding, or is none of PEFT's."""
    from peft import LoraConfig, get_peft_model
    torch.manual_seed(seed)
    wrapped = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **adapter))
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_magnitude" in name:
                parameter.mul_(1 + 0.3 * torch.rand_like(parameter))
            elif "lora_" in name:  # B is zero at first, and would say nothing
                parameter.copy_(torch.randn_like(parameter) * 0.2)
            elif parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    wrapped.peft_config["default"].base_model_name_or_path = "base"  # not a path of this machine
    wrapped.save_pretrained(directory)
    for path in directory.iterdir():
        if path.suffix not in (".json", ".safetensors"):
            path.unlink()
        else:
            path.chmod(0o644)
    merges = not {"use_dora", "bias", "modules_to_save", "alora_invocation_tokens"} & set(adapter)
    merges = merges and "lm_head" not in adapter["target_modules"]
    return wrapped.merge_and_unload().eval() if merges else wrapped.eval()


def write_case(out, name, config, seed, how=None, adapter=None):
    directory = out / name
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    model = build(directory, config)
    fill(model, seed, TYPES[case_dtype(config)])
    if adapter is not None:
        model = adapt(model, adapter, directory / "adapter", seed)
    rng = np.random.default_rng([seed, len(name), *name.encode()])
    facts = expected(config, model, rng, seed)
    if how is not None:
        save(model, config, directory, how, TYPES[case_dtype(config)], seed)
        facts["weights"] = True
    (directory / "expected.json").write_text(json.dumps(facts) + "\n")
    return facts


def write_gguf_case(out, name, types, config, seed):
    """A case that is one model.gguf; run in the type that the file's weights ask for."""
    directory = out / name
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config) + "\n")
    model = build(directory, config)
    fill(model, seed, torch.float32)
    write_gguf(model, directory / "model.gguf", types, seed)
    (directory / "config.json").unlink()
    rng = np.random.default_rng([seed, len(name), *name.encode()])
    dtype = {"": "float32", "F16": "float16"}.get(types.get("", ""), "bfloat16")
    facts = {**expected({**config, "torch_dtype": dtype}, model, rng, seed), "weights": True}
    (directory / "expected.json").write_text(json.dumps(facts) + "\n")
    ids = facts["prompt"] + facts["greedy"]
    return {**facts, "routing_gap": routing_gap(model, config, ids, facts["positions"])}


def all_cases():
    """(number, name, how, config); the number makes the seed."""
    cases = {**{name: (None, config) for name, config in CASES.items()}, **FILE_CASES,
             **{name: (None, config) for name, (_, config) in ADAPTER_CASES.items()},
             **WRAPPED_CASES, **GGUF_CASES, **LATER_CASES}
    rows = [(i, name, *case) for i, (name, case) in enumerate(cases.items())]
    rows += [(500 + i, name, *case) for i, (name, case) in enumerate(DECODER_CASES.items())]
    rows += [(700 + i, name, *case) for i, (name, case) in enumerate(STATE_CASES.items())]
    rows += [(800 + i, name, *case) for i, (name, case) in enumerate(GEMMA4_CASES.items())]
    rows += [(900 + i, name, *case) for i, (name, case) in enumerate(MIXTURE_CASES.items())]
    rows += [(950 + i, name, *case) for i, (name, case) in enumerate(RECENT_CASES.items())]
    rows += [(1050 + i, name, *case) for i, (name, case) in enumerate(SECOND_CASES.items())]
    return rows + [(980 + i, name, *case) for i, (name, case) in enumerate(WRAPPER_CASES.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=root / "tests/vectors/models")
    parser.add_argument("--seed", type=int, default=20260)
    parser.add_argument("--only")
    options = parser.parse_args()
    torch.set_num_threads(1)  # tiny models: threads would only wait for each other
    cases = all_cases()
    for i, name, how, config in cases:
        if options.only is not None and not name.startswith(options.only):
            continue
        # A run of fewer bits that sends a token to another expert says nothing about rounding:
        # another seed is taken, so that the tolerance is one.
        for attempt in range(200):
            seed = options.seed + i + 1000 * attempt
            shutil.rmtree(options.out / name, ignore_errors=True)
            adapter = ADAPTER_CASES.get(name, [ADAPTERS.get(name)])[0]
            if name.startswith("gguf-"):
                facts = write_gguf_case(options.out, name, how, config, seed)
            else:
                facts = write_case(options.out, name, config, seed, how, adapter)
            clear = facts.get("routing_gap", 1) >= ROUTING_GAP_MIN
            if clear and (facts["error"] < 0.25 or facts["dtype"] == "float32"):
                break
        sure = sum(g > facts["error"] for g in facts["gap"])
        print(f"[{i + 1}/{len(cases)}] {name}: error {facts['error']:.4g}, "
              f"{sure} of {len(facts['gap'])} steps certain", flush=True)


if __name__ == "__main__":
    main()
