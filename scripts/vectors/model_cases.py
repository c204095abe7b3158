"""The models that the reference vectors and `make parity` cover: one tiny config.json each.

Keys are spelled in the styles that published checkpoints use (v4: rope_theta and rope_scaling,
torch_dtype; v5: rope_parameters, dtype). The set covers, per family: group sizes 1, 3, 7, 8, head
sizes 64, 80, 96, 128, tied and untied heads, all three types, and what the family has of its own.
"""

SMALL = {"vocab_size": 199, "num_hidden_layers": 2, "max_position_embeddings": 256}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}


def llama_like(architecture, kind, hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return {"architectures": [architecture], "model_type": kind, "hidden_size": hidden,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads,
            "intermediate_size": mlp, "hidden_act": "silu", "torch_dtype": dtype,
            "bos_token_id": 1, "eos_token_id": 2, **SMALL, **more}


def llama(*args, **more):
    return llama_like("LlamaForCausalLM", "llama", *args, **{"rope_theta": 10000.0, **more})


def mistral(*args, **more):
    return llama_like("MistralForCausalLM", "mistral", *args, **{"rope_theta": 1e6, **more})


def qwen2(*args, **more):
    return llama_like("Qwen2ForCausalLM", "qwen2", *args, **{"rope_theta": 1e6, **more})


def qwen3(*args, **more):
    return llama_like("Qwen3ForCausalLM", "qwen3", *args, **{"rope_theta": 1e6, **more})


def opt(hidden, heads, mlp, dtype="float32", **more):
    return {"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": hidden,
            "num_attention_heads": heads, "ffn_dim": mlp, "activation_function": "relu",
            "word_embed_proj_dim": hidden, "do_layer_norm_before": True, "torch_dtype": dtype,
            "bos_token_id": 2, "eos_token_id": 2, "pad_token_id": 1, **SMALL, **more}


def gpt2(hidden, heads, dtype="float32", **more):
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": hidden,
            "n_head": heads, "n_layer": 2, "n_positions": 256, "n_ctx": 256, "vocab_size": 199,
            "activation_function": "gelu_new", "torch_dtype": dtype, "bos_token_id": 2,
            "eos_token_id": 2, **more}


def v5(config, **rope):
    """The same model as transformers 5 spells it."""
    out = without(config, "rope_theta", "rope_scaling", "torch_dtype")
    out["dtype"] = config["torch_dtype"]
    out["rope_parameters"] = {"rope_type": "default", "rope_theta": config["rope_theta"], **rope}
    return out


def without(config, *keys):
    return {k: v for k, v in config.items() if k not in keys}


CASES = {
    # Llama: groups and head sizes, in the three types
    "llama-g1-d64": llama(128, 2, 2, 176),
    "llama-g3-d80": llama(192, 6, 2, 256, head_dim=80),
    "llama-g7-d128": llama(140, 7, 1, 256, head_dim=128, rms_norm_eps=1e-5),
    "llama-g8-d96": llama(160, 8, 1, 224, head_dim=96),
    "llama-g2-d16": llama(64, 4, 2, 96, rms_norm_eps=1e-5),
    "llama-bf16": llama(192, 6, 2, 256, "bfloat16", head_dim=64, rms_norm_eps=1e-5),
    "llama-bf16-g7-d128": llama(140, 7, 1, 256, "bfloat16", head_dim=128, rms_norm_eps=1e-5),
    "llama-bf16-g8-d96": llama(160, 8, 1, 224, "bfloat16", head_dim=96),
    "llama-bf16-g3-d80": llama(192, 6, 2, 256, "bfloat16", head_dim=80),
    "llama-f16": llama(128, 2, 1, 176, "float16"),
    "llama-tied": llama(128, 2, 1, 176, tie_word_embeddings=True),
    "llama-tied-bf16": llama(128, 2, 1, 176, "bfloat16", tie_word_embeddings=True),
    "llama-biases": llama(128, 4, 2, 176, attention_bias=True, mlp_bias=True),
    # rope scaling in its spellings
    "llama-rope-llama3": llama(128, 2, 1, 176, rope_theta=500000.0,
                               rope_scaling={"rope_type": "llama3", **LLAMA3}),
    "llama-rope-llama3-v5": v5(llama(128, 2, 1, 176, rope_theta=500000.0), rope_type="llama3",
                               **LLAMA3),
    "llama-rope-linear": llama(128, 2, 1, 176, rope_scaling={"type": "linear", "factor": 4.0}),
    "llama-rope-linear-v5": v5(llama(128, 2, 1, 176, "bfloat16"), rope_type="linear",
                               factor=2.5),
    "llama-rope-dynamic": llama(128, 2, 1, 176, max_position_embeddings=32,
                                rope_scaling={"type": "dynamic", "factor": 4.0}),
    "llama-rope-yarn": llama(128, 2, 1, 176, rope_scaling={
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32}),
    "llama-rope-yarn-v5": v5(llama(128, 2, 1, 176), rope_type="yarn", factor=4.0, beta_fast=16.0,
                             beta_slow=2.0, truncate=False, attention_factor=1.25,
                             original_max_position_embeddings=64),
    "llama-v5": v5(llama(128, 2, 1, 176, "bfloat16")),
    # Mistral: window shorter than the prompt, none, absent key (4096)
    "mistral-window": mistral(128, 4, 2, 192, sliding_window=16, head_dim=32),
    "mistral-window-bf16": mistral(256, 4, 1, 256, "bfloat16", sliding_window=23),
    "mistral-full": mistral(128, 2, 2, 192, sliding_window=None, rms_norm_eps=1e-5),
    "mistral-absent": mistral(128, 2, 1, 192, head_dim=128),
    "mistral-v5": v5(mistral(128, 2, 1, 192, sliding_window=7)),
    # Qwen 2: biases; window in the upper layers
    "qwen2": qwen2(128, 2, 1, 176),
    "qwen2-tied-bf16": qwen2(224, 7, 1, 256, "bfloat16", head_dim=64, tie_word_embeddings=True),
    "qwen2-window": qwen2(128, 2, 1, 176, num_hidden_layers=4, use_sliding_window=True,
                          sliding_window=12, max_window_layers=2),
    "qwen2-v5-layer-types": v5(qwen2(
        128, 2, 1, 176, num_hidden_layers=4, use_sliding_window=True, sliding_window=12,
        layer_types=["sliding_attention", "full_attention", "full_attention",
                     "sliding_attention"])),
    "qwen2-yarn-bf16": qwen2(128, 2, 2, 176, "bfloat16", rope_scaling={
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
    # Qwen 3: norms of q and k; explicit head_dim
    "qwen3": qwen3(128, 2, 1, 176, head_dim=128),
    "qwen3-g8-bf16": qwen3(96, 8, 1, 176, "bfloat16", head_dim=64, tie_word_embeddings=True),
    "qwen3-bias-f16": qwen3(128, 3, 1, 176, "float16", head_dim=80, attention_bias=True),
    "qwen3-v5": v5(qwen3(128, 4, 2, 176, head_dim=64)),
    # OPT: both norm orders and everything optional
    "opt": opt(128, 2, 256),
    "opt-bf16": opt(160, 2, 256, "bfloat16"),
    "opt-350m-shape": opt(128, 2, 256, do_layer_norm_before=False, word_embed_proj_dim=64),
    "opt-350m-shape-f16": opt(128, 2, 256, "float16", do_layer_norm_before=False,
                              word_embed_proj_dim=64),
    "opt-projected-pre": opt(128, 2, 256, word_embed_proj_dim=96),
    "opt-no-final-norm": opt(128, 2, 256, _remove_final_layer_norm=True),
    "opt-bare": opt(128, 2, 256, enable_bias=False, layer_norm_elementwise_affine=False,
                    activation_function="gelu"),
    "opt-untied": opt(192, 2, 256, tie_word_embeddings=False, activation_function="gelu_new"),
    # GPT-2: transposed fused projections
    "gpt2": gpt2(128, 2),
    "gpt2-bf16-d80": gpt2(160, 2, "bfloat16"),
    "gpt2-inner": without(gpt2(96, 1, n_inner=200, layer_norm_epsilon=1e-3,
                               activation_function="gelu"), "n_ctx"),
    "gpt2-untied-f16": gpt2(128, 1, "float16", tie_word_embeddings=False),
}


# Saved as files. `save`: how (models.py), the rest as above.
TINY = {"vocab_size": 67, "max_position_embeddings": 128}
FILE_CASES = {
    "files-llama-sharded": ("sharded", llama(48, 3, 1, 64, head_dim=32, **TINY)),
    "files-llama-odd-header": ("odd-header", llama(48, 2, 2, 64, "float16", **TINY)),
    "files-qwen2-bf16": ("plain", v5(qwen2(48, 2, 1, 64, "bfloat16", tie_word_embeddings=True,
                                           **TINY))),
    "files-qwen3-mixed-types": ("mixed", qwen3(48, 2, 1, 64, "bfloat16", head_dim=32, **TINY)),
    "files-opt-decoder-prefix": ("opt-decoder", opt(48, 2, 64, "float16", word_embed_proj_dim=32,
                                                    do_layer_norm_before=False, **TINY)),
    "files-gpt2": ("plain", {**gpt2(48, 2), "vocab_size": 67, "n_positions": 128, "n_ctx": 128}),
    "files-gpt2-bare-names": ("gpt2-bare", {**gpt2(48, 2, "bfloat16"), "vocab_size": 67,
                                            "n_positions": 128, "n_ctx": 128}),
}
