#!/usr/bin/env python3
"""Compares inferd on GGUF files of llama.cpp's converter with transformers on the originals.

    tests/parity/parity_gguf.py --converter LLAMA_CPP [--build build]
                                [--seed N] [--count N] [--kind K,K]
    tests/parity/parity_gguf.py --converter LLAMA_CPP --vectors tests/vectors/models

LLAMA_CPP is a checkout of llama.cpp, of which convert_hf_to_gguf.py and its folders are used. Each
random model of parity.py is saved by transformers in float32, converted as it is published,
and run through build/model_driver: the prompt as one prefill, the rest token by token, on both back
ends. The vocabulary alone is left out: these models have none. Logits must be within 1e-4 of
transformers' fp32 run, tokens equal wherever the gap exceeds that; models that amplify rounding get
four times the distance of transformers' own two forms. Bamba must be refused; any other refusal
counts as failed.
--vectors writes the committed files of the converter, gguf-converted-*, for tests of every build.

Ends with a table by architecture of the files and `N passed, N failed`; exit 1 when one failed.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors")]
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

PROMPT, STEPS = 33, 24
# Families whose class of the converter writes the divisors of Llama 3's angles.
LLAMA3 = ("llama", "mixtral", "smollm3", "internlm2", "arcee", "exaone", "exaone4",
          "internlm3", "olmo")
NOT_WINDOWED = ("qwen2", "qwen3", "mixtral", "starcoder2", "dots1")


def one_mscale(config):
    """mscale as mscale_all_dim: the file has one of them."""
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if "mscale" not in rope:
        return {}
    name = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    return {name: rope | {"mscale": rope["mscale_all_dim"]}}


# What a file cannot say, as published models have it: by kind, keys or a function of the config.
PUBLISHED = {
    "gpt2": {"n_inner": None, "activation_function": "gelu_new"},
    "gpt_bigcode": {"n_inner": None, "multi_query": True},
    "gemma2": lambda c: {"query_pre_attn_scalar": c["head_dim"], "attn_logit_softcapping": 50.0,
                         "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
                         "rope_theta": 1e4, "rope_scaling": None, "rope_parameters": None},
    "gemma3": lambda c: {"query_pre_attn_scalar": c["head_dim"], "tie_word_embeddings": True,
                         "num_hidden_layers": 7, "final_logit_softcapping": None,
                         "layer_types": ["sliding_attention"] * 5 + ["full_attention",
                                                                     "sliding_attention"]},
    "qwen2_moe": {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": False},
    "qwen3_moe": {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True},
    "olmoe": {"rms_norm_eps": 1e-5, "norm_topk_prob": False},
    "cohere2": {"rotary_pct": 1.0, "sliding_window_pattern": 4},
    "glm": lambda c: {"partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
                      "hidden_size": 4 * c["hidden_size"],  # which the file has as its context
                      "head_dim": 4 * c["hidden_size"] // c["num_attention_heads"]},
    "falcon": lambda c: {"ffn_hidden_size": 4 * c["hidden_size"], "parallel_attn": True,
                         "bias": False},
    "cohere": {"tie_word_embeddings": True},
    "gpt_neox": {"tie_word_embeddings": False, "hidden_act": "gelu", "rotary_emb_base": 10000},
    "phi": lambda c: {"num_key_value_heads": c["num_attention_heads"],
                      "intermediate_size": 4 * c["hidden_size"]},
    "deepseek_v2": lambda c: one_mscale(c), "solar_open": {"partial_rotary_factor": 1.0},
    "deepseek_v3": lambda c: one_mscale(c) | {"rope_interleave": True},
    "glm4_moe_lite": lambda c: one_mscale(c) | {
        "rope_interleave": True, "mlp_layer_types": ["dense"] + ["sparse"] * c["num_hidden_layers"],
        "num_hidden_layers": c["num_hidden_layers"] + 1},
    "olmo": {"attention_bias": False}, "lfm2": {"conv_bias": False},
    "lfm2_moe": {"conv_bias": False, "tie_word_embeddings": True, "norm_topk_prob": True,
                 "routed_scaling_factor": 1.0},
    "hunyuan": {"rope_scaling": None},
    "nemotron_h": lambda c: {"n_group": 1, "topk_group": 1, "mamba_d_head": c["mamba_head_dim"]},
    "falcon_h1": {"tie_word_embeddings": False, "mamba_norm_before_gate": False},
    "granite_hybrid": {"position_embedding_type": "nope"},
}
REFUSED = ("bamba",)  # by the key that makes it another model than Granite 4
NOT_CONVERTED = ("helium", "gptj")
# Saved with the keys of published files, not transformers' own:
OWN_KEYS = ("gpt_neox", "cohere2", "granite_hybrid")


def converter(place):
    """Returns a function that writes the GGUF file of a directory as convert_hf_to_gguf.py does."""
    sys.path[:0] = [str(place), str(place / "gguf-py")]
    import conversion
    import gguf
    import torch
    conversion.logger.disabled = True

    def convert(directory, out, kind="ALL_F32"):
        with torch.inference_mode():
            written = json.loads((directory / "config.json").read_text())
            hparams = written | conversion.ModelBase.load_hparams(directory, False)
            if "layer_types" in written:  # transformers renames them
                hparams["layer_types"] = written["layer_types"]
            name = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
            made = conversion.get_model_class(name)
            bare = type(made.__name__, (made,), {"model_arch": made.model_arch,
                                                 "set_vocab": made._set_vocab_none, "no_mtp": True})
            bare(directory, gguf.LlamaFileType[kind], out, hparams=hparams).write()
    return convert


def draw(parity, rng, kind):
    config = parity.random_config(rng, kind, "float32")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if kind != "gpt_oss":
        rope.pop("truncate", None)
    if rope.get("rope_type") == "llama3" and kind not in LLAMA3:
        theta = {k: rope[k] for k in ("rope_theta", "partial_rotary_factor") if k in rope}
        config |= {"rope_scaling": None, "rope_parameters": None, **theta}
    if kind in NOT_WINDOWED:
        config |= {"use_sliding_window": False, "sliding_window": None}
    more = PUBLISHED.get(kind, {})
    return config | (more(config) if callable(more) else more)


def write_words(directory, config):
    """A tokenizer.json, because the converter's class of Gemma counts its words."""
    words = {f"w{i}": i for i in range(config["vocab_size"])}
    (directory / "tokenizer.json").write_text(json.dumps(
        {"model": {"vocab": words}, "added_tokens": []}))


def compare(parity, convert, score, options, index, kind):
    rng = random.Random(f"{options.seed}-{index}")
    config = draw(parity, rng, kind)
    directory = options.keep / f"{index:03d}-{kind}"
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "hf").mkdir(parents=True)
    (directory / "hf/config.json").write_text(json.dumps(config, indent=1))
    model = parity.models.build(directory / "hf", config)
    parity.fill(model, rng.getrandbits(62), parity.torch.float32)
    long = kind in parity.state_cases.STATE_DRAWS or kind in parity.gemma4_cases.DRAWS
    length = parity.LONG_PROMPT if long else PROMPT
    prompt = [rng.randrange(3, config["vocab_size"]) for _ in range(length)]
    ids = prompt + parity.models.continue_greedily(model, prompt, STEPS)
    exact, bound = parity.models.run(model, ids), parity.TOLERANCE
    if long and not parity.models.is_cacheless(model):
        bound = max(bound, 4 * parity.forms_apart(model, ids, exact))
    parity.save(model, config, directory / "hf", parity.decoder_cases.TWINS.get(kind, "plain"),
                parity.torch.float32)
    if kind in OWN_KEYS:
        (directory / "hf/config.json").write_text(json.dumps(config, indent=1))
    write_words(directory / "hf", config)
    try:
        convert(directory / "hf", directory / "model.gguf")
    except Exception as fault:  # pylint: disable=broad-except
        if options.verbose:
            traceback.print_exc()
        score.add(False, f"{directory.name}: the converter ends with {fault!r}")
        return
    for backend in options.backend.split(","):
        logits, why = parity.drive(options.build / "model_driver", backend,
                                   directory / "model.gguf", "float32", ids, prompt=length)
        worst = float("inf")
        if kind in REFUSED:
            score.add("rope.scaling.finetuned" in why, f"{directory.name} {backend}: {why[:120]}")
            continue
        if logits is None:
            why = why or "the driver died"
        else:
            why, worst = parity.judge(logits, exact, bound, ids)
        score.rows.setdefault(config["architectures"][0], []).append(
            ("float32", worst, bound, not why))
        score.add(not why, f"{directory.name} {backend}: {why or f'{worst:.1e}'}")


def round_to_blocks(torch, model):
    """Gives matrices the values of Q8_0 blocks: a converter that is asked for Q8_0 makes the same
    blocks of them again. Files have K of latent attention with the latent row as its rows."""
    from gguf import GGMLQuantizationType as Type
    from gguf.quants import dequantize, quantize

    def rounded(values):
        blocks = quantize(values.contiguous().numpy(), Type.Q8_0)
        return torch.from_numpy(dequantize(blocks, Type.Q8_0).reshape(values.shape))

    with torch.no_grad():
        for name, matrix in model.named_parameters():
            if matrix.dim() < 2 or name.endswith("mlp.gate.weight"):
                continue
            if "kv_b_proj" in name:
                nope = model.config.qk_nope_head_dim
                heads = matrix.view(model.config.num_attention_heads, -1, matrix.shape[1])
                heads[:, :nope] = rounded(heads[:, :nope].mT).mT
                heads[:, nope:] = rounded(heads[:, nope:])
            else:
                matrix.copy_(rounded(matrix))


def same_values(path, exact):
    """Fails unless a file of blocks has the values of a file in float32."""
    import gguf
    from gguf.quants import dequantize
    for a, b in zip(gguf.GGUFReader(path).tensors, gguf.GGUFReader(exact).tensors):
        assert a.name == b.name
        assert (dequantize(a.data, a.tensor_type).reshape(-1) == b.data.reshape(-1)).all(), a.name


def write_vectors(parity, convert, out, only):
    """A small file of the converter for each architecture whose rows or experts stand otherwise,
    two whose matrices it made Q8_0 blocks of, and one of NVFP4 blocks with their factors."""
    cases, wide, states = parity.model_cases, parity.decoder_cases.WIDE, parity.state_cases
    tiny = states.STATE_TINY
    brief = tiny | {"num_hidden_layers": 2, "full_attention_interval": 2}
    small = wide | {"num_hidden_layers": 2, "first_k_dense_replace": 1}
    # Every expert is taken: rounded activations cannot send a token to another one
    blocks = small | {"n_group": 1, "topk_group": 1, "n_routed_experts": 4,
                      "num_experts_per_tok": 4, "moe_intermediate_size": 32}
    rope = {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                                "original_max_position_embeddings": 32, "mscale": 0.7,
                                "mscale_all_dim": 0.7}}
    heads = {"kv_lora_rank": 16, "q_lora_rank": 12, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12,
             "v_head_dim": 10}
    configs = {
        "olmo": parity.decoder_cases.olmo(32, 4, 2, 48, **wide),
        "glm4-moe": cases.glm4_moe(32, 4, 2, 48, n_group=2, topk_group=1, use_qk_norm=True,
                                   head_dim=8, **small),
        "dots1": cases.dots1(32, 4, 2, 48, head_dim=8, **small),
        "ernie4-5-moe": cases.ernie4_5_moe(32, 4, 2, 48, head_dim=8, **wide | {
            "moe_layer_interval": 1, "num_hidden_layers": 2}),
        "minimax-m2": cases.minimax_m2(32, 4, 2, 24, **wide | {"head_dim": 8, "rotary_dim": 4}),
        "deepseek-v2": cases.deepseek_v2(32, 2, 48, **small | heads | {"q_lora_rank": None}),
        "deepseek-v3": cases.deepseek_v3(32, 2, 48, **small | heads | rope),
        "deepseek-v3-q8": cases.deepseek_v3(64, 2, 64, **blocks, kv_lora_rank=32, q_lora_rank=32,
                                            qk_nope_head_dim=32, v_head_dim=32),
        "glm4-moe-q8": cases.glm4_moe(64, 4, 2, 64, use_qk_norm=True, head_dim=16, **blocks),
        "lfm2-moe": states.lfm2_moe(32, 4, 2, 48, **tiny),
        "gemma4-small": parity.gemma4_cases.small(32, 4, 2, 48, **parity.gemma4_cases.TINY),
        "gemma4-experts": parity.gemma4_cases.experts(32, 4, 2, 48, **parity.gemma4_cases.TINY),
        "qwen3-next": states.qwen3_next(32, 2, 1, 48, **brief | {"head_dim": 16}),
        "qwen3-5-moe": states.qwen3_5_moe(32, 2, 1, 48, **brief | {"head_dim": 16}),
        "granite-hybrid": states.granite_hybrid(32, 2, 1, 48, **tiny, num_hidden_layers=2,
                                                layer_types=["mamba", "attention"]),
        "falcon-h1": states.falcon_h1(32, 2, 1, 48, **tiny, num_hidden_layers=2,
                                      tie_word_embeddings=False),
        "nemotron-h": states.nemotron_h(32, 2, 1, 48, **tiny, mamba_head_dim=16, n_groups=2)}
    if "nvfp4-moe".startswith(only):  # of a checkpoint of packed.py, with its logits
        directory, source = out / "gguf-converted-nvfp4-moe", out / "packed-nvfp4-moe"
        directory.mkdir(exist_ok=True)
        convert(source, directory / "model.gguf")
        shutil.copy(source / "expected.json", directory)
    for i, (name, config) in enumerate(configs.items()):
        if not name.startswith(only):
            continue
        directory, seed = out / f"gguf-converted-{name}", 9000 + i
        shutil.rmtree(directory, ignore_errors=True)
        with tempfile.TemporaryDirectory() as temporary:
            source = Path(temporary) / "model"
            source.mkdir()
            (source / "config.json").write_text(json.dumps(config))
            model = parity.models.build(source, config)
            parity.fill(model, seed, parity.torch.float32)
            packed = name.endswith("-q8")
            if packed:
                round_to_blocks(parity.torch, model)
                config = {**config, "torch_dtype": "bfloat16"}
            facts = parity.models.expected(config, model, parity.np.random.default_rng(seed), seed)
            parity.save(model, config, source, "plain", parity.torch.float32)
            if name.replace("-", "_") in OWN_KEYS:
                (source / "config.json").write_text(json.dumps(config))
            write_words(source, config)
            directory.mkdir()
            convert(source, directory / "model.gguf", "MOSTLY_Q8_0" if packed else "ALL_F32")
            if packed:
                convert(source, source / "exact.gguf")
                same_values(directory / "model.gguf", source / "exact.gguf")
        (directory / "expected.json").write_text(json.dumps({**facts, "weights": True}) + "\n")
        print(f"{directory}: error {facts['error']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--converter", type=Path, required=True, help="a checkout of llama.cpp")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--count", type=int, help="models; two of each kind unless told")
    parser.add_argument("--backend", default="naive,cpu")
    parser.add_argument("--kind", help="families to draw from, with commas")
    parser.add_argument("--keep", type=Path, help="directory for the models")
    parser.add_argument("--only", default="", help="of these, those whose names begin so")
    parser.add_argument("--vectors", type=Path, help="write the committed files here")
    parser.add_argument("--verbose", action="store_true", help="where the converter ends")
    options = parser.parse_args()
    convert = converter(options.converter)
    import parity
    parity.torch.set_num_threads(1)
    if options.vectors:
        write_vectors(parity, convert, options.vectors, options.only)
        return
    score = parity.Score()
    print(f"seed {options.seed}", flush=True)
    kinds = ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2",
             "mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "olmo2", "olmo3", "olmoe", "granite",
             "smollm3", "seed_oss", "starcoder2", *parity.decoder_cases.DRAWS, *parity.SCORED,
             *parity.state_cases.STATE_DRAWS, *parity.gemma4_cases.DRAWS]
    kinds = [k for k in kinds if k not in NOT_CONVERTED]
    kinds = [k for k in kinds if options.kind is None or k in options.kind.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        options.keep = options.keep or Path(temporary)
        for index in range(2 * len(kinds) if options.count is None else options.count):
            compare(parity, convert, score, options, index, kinds[index % len(kinds)])
    print("\n".join(score.table()))
    print(f"{score.passed} passed, {score.failed} failed")
    sys.exit(1 if score.failed else 0)


if __name__ == "__main__":
    main()
