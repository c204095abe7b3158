#!/usr/bin/env python3
"""Compares inferd with transformers on checkpoints as people have them on disk.

    make parity     or     tests/parity/parity_checkpoints.py --build build [--count 200] [--seed N]

Draws random models as parity.py does, and then changes their files the way real ones differ: keys
that are absent, null, spelled as in older or newer releases, without effect, or contradicting each
other; weights in shards, with other prefixes, extra buffers, mixed types, with or without a head.
transformers loads the files itself and is the truth. inferd must give its logits, or refuse the
files by the name of a key or tensor; what transformers cannot load must be refused.

Ends with counts of each; exit 1 when logits differ, or when nothing was said.
"""

import argparse
import collections
import json
import os
import random
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import parity
from parity import decoder_cases, model_cases, models, np, torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

KINDS = ("llama", "mistral", "qwen2", "qwen3", "opt", "gpt2", "gemma2", "gemma3", "phi3", "olmo2",
         "olmo3", "granite", "smollm3", "starcoder2", "seed_oss", "mixtral", "qwen2_moe",
         "qwen3_moe", "olmoe", "gpt_oss", *parity.SCORED,
         *(kind for kind in decoder_cases.DRAWS if kind not in decoder_cases.TWINS))
DROPPED = ("rms_norm_eps", "hidden_act", "hidden_activation", "activation_function", "rope_theta",
           "tie_word_embeddings", "num_key_value_heads", "head_dim", "attention_bias", "mlp_bias",
           "max_position_embeddings", "bos_token_id", "eos_token_id", "pad_token_id", "torch_dtype",
           "dtype", "sliding_window", "max_window_layers", "use_sliding_window", "layer_types",
           "architectures", "norm_topk_prob", "num_experts_per_tok", "query_pre_attn_scalar",
           "attn_logit_softcapping", "final_logit_softcapping", "n_inner", "n_ctx", "rope_scaling",
           "do_layer_norm_before", "word_embed_proj_dim", "embedding_multiplier",
           "residual_multiplier", "attention_multiplier", "logits_scaling", "no_rope_layers",
           "sliding_window_pattern", "original_max_position_embeddings", "mlp_only_layers",
           "decoder_sparse_step", "shared_expert_intermediate_size", "norm_epsilon", "use_bias",
           "n_group", "topk_group", "first_k_dense_replace", "routed_scaling_factor", "rotary_dim",
           "moe_layer_end_index", "use_qk_norm", "q_lora_rank", "rope_interleave", "topk_method",
           "n_shared_experts",
           "enable_bias", "layer_norm_elementwise_affine", "partial_rotary_factor", "rotary_pct",
           "rotary_emb_base", "layer_norm_eps", "use_parallel_residual", "num_kv_heads",
           "multi_query", "parallel_attn", "new_decoder_architecture", "num_ln_in_parallel_attn")
NULLED = ("num_key_value_heads", "head_dim", "sliding_window", "rope_scaling", "rope_parameters",
          "layer_types", "eos_token_id", "bos_token_id", "n_inner", "pad_token_id", "torch_dtype",
          "attn_logit_softcapping", "final_logit_softcapping", "no_rope_layers", "mlp_only_layers",
          "max_window_layers", "rope_theta")
EXTRA = {"use_cache": [True, False], "initializer_range": [0.02], "attention_dropout": [0.0, 0.1],
         "pretraining_tp": [1, 2], "transformers_version": ["4.31.0", "5.0.0"],
         "_name_or_path": ["/x/y"], "rope_scaling": [None], "rope_parameters": [None],
         "sliding_window": [None, 0, 6, 32768], "use_sliding_window": [False, True],
         "max_window_layers": [0, 1, 21], "head_dim": [None, 16, 32], "hidden_dropout_prob": [0.0],
         "layer_types": ["full", "mixed"], "attention_bias": [False, True],
         "mlp_bias": [False, True],
         "tie_word_embeddings": [False, True], "partial_rotary_factor": [1.0, 0.5],
         "rope_theta": [1e4, 5e5], "eos_token_id": [[2, 5], 2], "auto_map": [{"AutoConfig": "a.B"}],
         "num_key_value_heads": [None], "quantization_config": [None, {"quant_method": "hqq"}],
         "rms_norm_eps": [1e-3], "norm_topk_prob": [True, False], "vision_config": [None, {"a": 1}],
         "text_config": [None, {"hidden_size": 8}], "rope_interleaved": [False, True],
         "logit_scale": [None, 1.0, 0.5], "cross_attention_hidden_size": [None],
         "is_decoder": [True], "is_encoder_decoder": [False], "use_qk_norm": [False, True],
         "qk_norm": [False, True], "qkv_bias": [True, False], "no_rope_layer_interval": [2, 4],
         "output_attentions": [False], "mlp_only_layers": [[], [0]], "head_type": ["x"],
         "output_router_logits": [True], "router_aux_loss_coef": [0.01], "scale_embedding": [False],
         "scale_attn_by_inverse_layer_idx": [False, True], "reorder_and_upcast_attn": [False, True],
         "attn_pdrop": [0.1], "tie_encoder_decoder": [False], "ffn_bias": [True],
         "hidden_activation": [None], "rope_local_base_freq": [1e4], "num_experts": [0],
         "first_k_dense_replace": [1], "attention_out_bias": [False, True], "clip_qkv": [None, 4.0]}


def respell_rope(rng, config):
    """Old and new names, one beside the other, a theta in both places."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, dict) or "full_attention" in scaling:
        return
    kind = scaling.get("rope_type", scaling.get("type"))
    change = rng.choice(["type", "both", "theta inside", "twice", "as default", "original outside",
                         "null value", "extra"])
    if change == "type" and kind:
        scaling.pop("rope_type", None)
        scaling["type"] = kind
    elif change == "both" and kind:
        scaling |= {"type": kind, "rope_type": kind}
    elif change == "theta inside":
        scaling["rope_theta"] = rng.choice([1e3, 1e6])
    elif change == "twice":
        config["rope_scaling"] = config["rope_parameters"] = dict(scaling)
    elif change == "as default":
        config["rope_scaling"] = {rng.choice(["type", "rope_type"]): "default"}
    elif change == "original outside" and "original_max_position_embeddings" in scaling:
        config["original_max_position_embeddings"] = \
            scaling.pop("original_max_position_embeddings")
    elif change == "null value":
        scaling[rng.choice(["attention_factor", "beta_fast", "factor", "mscale"])] = None
    elif change == "extra":
        scaling |= rng.choice([{"mscale": 1.0, "mscale_all_dim": 1.0}, {"finetuned": True},
                               {"mrope_section": [4, 4]}, {"attention_factor": 1.3}])


def respell(rng, config):
    """A config as another release, tool or hand would have written it."""
    layers = config.get("num_hidden_layers", config.get("n_layer", 1))
    for _ in range(rng.choice([0, 1, 1, 2, 4])):
        present = sorted(set(DROPPED) & set(config))
        config.pop(rng.choice(present), None)
    for _ in range(rng.choice([0, 0, 1])):
        config[rng.choice([k for k in NULLED if k in config] or ["rope_scaling"])] = None
    for _ in range(rng.choice([0, 1, 2, 4])):
        key = rng.choice(sorted(EXTRA))
        value = rng.choice(EXTRA[key])
        if key == "layer_types":
            value = [rng.choice(["full_attention", "sliding_attention"]) if value == "mixed" else
                     "full_attention" for _ in range(layers)]
        config[key] = value
    if rng.random() < 0.4:
        respell_rope(rng, config)
    if rng.random() < 0.2 and "torch_dtype" in config:
        config["dtype"] = config.pop("torch_dtype")
    if config.get("model_type") == "olmo3":
        config["rope_theta"] = 5e5  # transformers 5 takes another theta for its full layers only
    return config


def relay(rng, directory, config):
    """Changes the weights on disk; says what makes them unusable, if anything does."""
    path, how = directory / "model.safetensors", rng.random()
    if not path.exists() or how < 0.5:
        return ""
    tensors = load_file(path)
    names = sorted(tensors)
    if how < 0.6 and "lm_head.weight" in tensors:
        del tensors["lm_head.weight"]
    elif how < 0.65:
        embed = next(n for n in names if n.endswith(("embed_tokens.weight", "wte.weight")))
        tensors.setdefault("lm_head.weight", tensors[embed].clone())
    elif how < 0.75:
        tensors |= {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(4)
                    for i in range(2)}
    elif how < 0.8:
        tensors["model.layers.0.self_attn.rotary_emb.cos_cached"] = torch.ones(4)
    elif how < 0.9:
        tensors = {n: t.float() if "norm" in n or "ln_" in n else t for n, t in tensors.items()}
    elif how < 0.95:
        prefix = {"gpt2": "transformer.", "opt": "model."}.get(config.get("model_type"), "none")
        tensors = {n.removeprefix(prefix): t for n, t in tensors.items()}
    else:
        gone = rng.choice(names)
        del tensors[gone]
    save_file(tensors, path, metadata={"format": "pt"})


def load_truth(directory):
    """The model as transformers reads it."""
    config = models.AutoConfig.from_pretrained(directory, trust_remote_code=False)
    config._experts_implementation = "eager"
    model, info = AutoModelForCausalLM.from_pretrained(
        directory, config=config, dtype=torch.float32, attn_implementation="eager",
        output_loading_info=True, trust_remote_code=False)
    if info["missing_keys"] or info["mismatched_keys"]:
        raise ValueError(f"missing {list(info['missing_keys'])[:3]}")
    return model.eval()


def run_truth(model, prompt, dtype):
    """Ids, their logits and the largest difference that is allowed."""
    scale = getattr(model.get_input_embeddings(), "embed_scale", None)
    if scale is not None:
        scale.copy_(scale.to(dtype).float())
    ids = prompt + models.continue_greedily(model, prompt, parity.STEPS)
    exact = models.run(model, ids)
    error = parity.TOLERANCE * max(1.0, float(np.abs(exact).max()) / 5)
    if dtype != torch.float32:
        error = 2 * float(np.abs(models.run(model.to(dtype), ids) - exact).max())
    return ids, exact, error


def write_checkpoint(rng, directory, kind):
    config = parity.random_config(rng, kind, "float32" if rng.random() < 0.8 else "bfloat16")
    dtype = models.TYPES[models.case_dtype(config)]
    config = respell(rng, config)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    made = models.AutoConfig.from_pretrained(directory, trust_remote_code=False)
    made._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(made, dtype=torch.float32,
                                             attn_implementation="eager").eval()
    models.fill(model, rng.getrandbits(62), dtype)
    parity.save(model, config, directory, rng.choice(["plain", "plain", "sharded"]), dtype)
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    relay(rng, directory, config)
    return config, dtype


def compare(rng, directory, kind, options):
    """(verdict, line): same, refused, skipped or FAIL."""
    try:
        config, dtype = write_checkpoint(rng, directory, kind)
    except Exception as error:
        return "skipped", f"transformers makes no such model: {str(error)[:90]!r}"
    prompt = [rng.randrange(3, 199) for _ in range(parity.PROMPT)]
    name = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}[dtype]
    try:
        model = load_truth(directory)
    except Exception as why:  # whatever a broken file makes it raise
        logits, said = parity.drive(options.build / "model_driver", "cpu", directory, name, prompt)
        return ("FAIL", f"loads what transformers does not: {str(why)[:200]}") \
            if logits is not None else ("refused", said)
    try:
        ids, exact, error = run_truth(model, prompt, dtype)
    except Exception as why:  # a file that it loads may still break it
        return "skipped", f"transformers fails: {str(why)[:90]!r}"
    logits, said = parity.drive(options.build / "model_driver", "cpu", directory, name, ids)
    if logits is None:
        return "refused", said
    wrong, worst = parity.judge(logits, exact, error, ids)
    return ("FAIL", wrong) if wrong else ("same", f"{worst:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=parity.ROOT / "build")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="index of the first checkpoint")
    parser.add_argument("--only", help="one family")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts, reasons = collections.Counter(), collections.Counter()
    for index in range(options.first, options.first + options.count):
        rng = random.Random(f"{options.seed}-{index}")
        kind = options.only or rng.choice(KINDS)
        with tempfile.TemporaryDirectory() as scratch:
            verdict, line = compare(rng, Path(scratch), kind, options)
            path = Path(scratch) / "config.json"
            config = json.dumps(json.loads(path.read_text())) if path.exists() else ""
        counts[verdict] += 1
        if verdict == "refused":
            reasons[line.split(": ", 1)[-1][:110]] += 1
        if verdict == "FAIL" or options.verbose:
            print(f"{verdict} {index} {kind}: {line}\n  {config}", flush=True)
    for reason, times in reasons.most_common():
        print(f"refused {times} times: {reason}")
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    sys.exit(1 if counts["FAIL"] else 0)


if __name__ == "__main__":
    main()
