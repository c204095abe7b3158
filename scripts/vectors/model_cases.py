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


def gemma(*args, **more):
    return {**llama_like("GemmaForCausalLM", "gemma", *args, **{
        "rope_theta": 10000.0, **more}), "hidden_act": "gelu_pytorch_tanh"}


def gemma2(*args, **more):
    made = llama_like("Gemma2ForCausalLM", "gemma2", *args, **{
        "rope_theta": 10000.0, "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": 48, "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0, **more})
    return {**made, "hidden_act": "gelu_pytorch_tanh"}  # published files carry both keys


def gemma3(*args, **more):
    made = llama_like("Gemma3ForCausalLM", "gemma3_text", *args, **{
        "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 24, **more})
    return without(made, "hidden_act")


def phi3(*args, **more):
    return llama_like("Phi3ForCausalLM", "phi3", *args,
                      **{"rope_theta": 10000.0, "pad_token_id": 0, **more})


def longrope(dims, **more):
    half = dims // 2
    return {"short_factor": [round(1.0 + 0.01 * i, 4) for i in range(half)],
            "long_factor": [round(1.0 + 0.37 * i, 4) for i in range(half)], **more}


def mixtral(*args, **more):
    return llama_like("MixtralForCausalLM", "mixtral", *args, **{
        "rope_theta": 1e6, "num_local_experts": 4, "num_experts_per_tok": 2, **more})


def qwen2_moe(*args, **more):
    return llama_like("Qwen2MoeForCausalLM", "qwen2_moe", *args, **{
        "rope_theta": 1e6, "num_experts": 6, "num_experts_per_tok": 3,
        "moe_intermediate_size": 48, "shared_expert_intermediate_size": 80, **more})


def qwen3_moe(*args, **more):
    return llama_like("Qwen3MoeForCausalLM", "qwen3_moe", *args, **{
        "rope_theta": 1e6, "num_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 48, "norm_topk_prob": True, **more})


def olmoe(*args, **more):
    return llama_like("OlmoeForCausalLM", "olmoe", *args, **{
        "rope_theta": 1e4, "num_experts": 7, "num_experts_per_tok": 3, **more})


def gpt_oss(*args, **more):
    return llama_like("GptOssForCausalLM", "gpt_oss", *args, **{
        "rope_theta": 150000.0, "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
            "truncate": False, "original_max_position_embeddings": 32},
        "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 16, "head_dim": 32,
        "attention_bias": True, **more})


def routed(architecture, kind, *args, **more):
    """Experts whose router scores, behind one dense layer."""
    return llama_like(architecture, kind, *args, **{
        "rope_theta": 1e6, "n_routed_experts": 8, "num_experts_per_tok": 3,
        "moe_intermediate_size": 48, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
        "num_hidden_layers": 3, **more})


def glm4_moe(*args, **more):
    return routed("Glm4MoeForCausalLM", "glm4_moe", *args, **{
        "partial_rotary_factor": 0.5, "use_qk_norm": False, **more})


def solar_open(*args, **more):
    return without(routed("SolarOpenForCausalLM", "solar_open", *args, **{
        "num_hidden_layers": 2, **more}), "first_k_dense_replace")


def dots1(*args, **more):
    return routed("Dots1ForCausalLM", "dots1", *args, **{"sliding_window": None, **more})


def latent(architecture, kind, hidden, heads, mlp, dtype="float32", **more):
    """Latent attention; no heads of K and V, and head_dim is of no account."""
    return routed(architecture, kind, hidden, heads, heads, mlp, dtype, **{
        "kv_lora_rank": 32, "q_lora_rank": 40, "qk_rope_head_dim": 16, "qk_nope_head_dim": 24,
        "v_head_dim": 20, **more})


def deepseek_v2(*args, **more):
    return latent("DeepseekV2ForCausalLM", "deepseek_v2", *args, **{
        "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": False, **more})


def deepseek_v3(*args, **more):
    return latent("DeepseekV3ForCausalLM", "deepseek_v3", *args, **{
        "topk_method": "noaux_tc", "scoring_func": "sigmoid", "n_group": 4, "topk_group": 2,
        **more})


def glm4_moe_lite(*args, **more):
    made = latent("Glm4MoeLiteForCausalLM", "glm4_moe_lite", *args, **more)
    return without(made, "first_k_dense_replace")


DEEPSEEK_YARN = {"type": "yarn", "factor": 8.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                 "mscale_all_dim": 0.7, "original_max_position_embeddings": 32}


def ernie4_5_moe(*args, **more):
    return llama_like("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", *args, **{
        "rope_theta": 5e5, "moe_num_experts": 8, "moe_k": 3, "moe_intermediate_size": 48,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "num_hidden_layers": 3,
        "use_bias": False, "moe_use_aux_free": True, **more})


def minimax_m2(*args, **more):
    return llama_like("MiniMaxM2ForCausalLM", "minimax_m2", *args, **{
        "rope_theta": 5e6, "num_local_experts": 8, "num_experts_per_tok": 3, "rotary_dim": 16,
        "scoring_func": "sigmoid", "use_qk_norm": True, "head_dim": 32, **more})


def olmo2(*args, **more):
    return llama_like("Olmo2ForCausalLM", "olmo2", *args, **{"rope_theta": 5e5, **more})


def olmo3(*args, **more):
    return llama_like("Olmo3ForCausalLM", "olmo3", *args, **{"rope_theta": 5e5, **more})


def granite(*args, **more):
    return llama_like("GraniteForCausalLM", "granite", *args, **{
        "rope_theta": 10000.0, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.0625, "logits_scaling": 8.0, **more})


def smollm3(*args, **more):
    return llama_like("SmolLM3ForCausalLM", "smollm3", *args,
                      **{"rope_theta": 2e6, "pad_token_id": 0, **more})


def seed_oss(*args, **more):
    return llama_like("SeedOssForCausalLM", "seed_oss", *args, **{
        "rope_theta": 1e7, "attention_bias": True, "attention_out_bias": False, **more})


def starcoder2(*args, **more):
    made = llama_like("Starcoder2ForCausalLM", "starcoder2", *args, **{
        "rope_theta": 1e5, "norm_epsilon": 1e-5, "use_bias": True, **more})
    return {**made, "hidden_act": "gelu_pytorch_tanh"}


MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}


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
    # Gemma 2: four (1 + w) norms, both softcaps, alternating windows shorter than the prompt
    "gemma2": gemma2(96, 4, 2, 160, num_hidden_layers=3, head_dim=32, sliding_window=16),
    "gemma2-bf16": gemma2(160, 2, 1, 160, "bfloat16", head_dim=64, sliding_window=23),
    "gemma2-v5": v5(gemma2(128, 2, 2, 160, head_dim=128, query_pre_attn_scalar=144,
                           sliding_window=9, attn_logit_softcapping=None,
                           layer_types=["full_attention", "sliding_attention"])),
    # Gemma 3: 5:1, two thetas, norms of q and k; flat and nested rope, and text_config
    "gemma3": gemma3(96, 4, 2, 128, num_hidden_layers=7, head_dim=32, sliding_window=12,
                     rope_theta=1e6, rope_local_base_freq=1e4, sliding_window_pattern=6,
                     rope_scaling={"rope_type": "linear", "factor": 8.0}),
    "gemma3-bf16": gemma3(168, 4, 1, 128, "bfloat16", head_dim=64, sliding_window=12,
                          num_hidden_layers=3, sliding_window_pattern=3),
    "gemma3-v5": {**without(gemma3(96, 4, 2, 128, head_dim=32, sliding_window=12,
                                   num_hidden_layers=3), "torch_dtype"),
                  "dtype": "float32", "final_logit_softcapping": 2.5,
                  "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                  "rope_parameters": {
                      "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0},
                      "sliding_attention": {"rope_type": "default", "rope_theta": 5e3}}},
    # Phi-3: fused projections, partial rotation, longrope below and above the trained length
    "phi3": phi3(128, 4, 4, 160, sliding_window=16),
    "phi3-gqa-bf16": phi3(128, 4, 2, 160, "bfloat16", sliding_window=None,
                          tie_word_embeddings=True),
    "phi3-longrope-short": phi3(128, 2, 1, 160, partial_rotary_factor=0.75,
                                original_max_position_embeddings=128,
                                rope_scaling=longrope(48, rope_type="longrope",
                                                      original_max_position_embeddings=128)),
    "phi3-longrope-long": phi3(128, 4, 2, 160, original_max_position_embeddings=32,
                               rope_scaling=longrope(32, type="su",
                                                     original_max_position_embeddings=32)),
    # Mixtral and the other mixtures of experts
    "moe-mixtral": mixtral(96, 4, 2, 112),
    "moe-mixtral-window": mixtral(96, 4, 4, 64, sliding_window=16, num_local_experts=3),
    "moe-mixtral-bf16": mixtral(128, 2, 1, 96, "bfloat16"),
    "moe-qwen2-moe": qwen2_moe(96, 4, 2, 112, num_hidden_layers=3, mlp_only_layers=[1]),
    "moe-qwen2-moe-normed-bf16": qwen2_moe(96, 3, 1, 112, "bfloat16", norm_topk_prob=True),
    "moe-qwen3-moe": qwen3_moe(96, 4, 2, 112, num_hidden_layers=4, head_dim=32,
                           decoder_sparse_step=2),
    "moe-qwen3-moe-unnormed-bf16": qwen3_moe(96, 4, 1, 112, "bfloat16", head_dim=64,
                                         norm_topk_prob=False, tie_word_embeddings=True),
    "moe-qwen3-moe-f16": qwen3_moe(96, 4, 4, 112, "float16", head_dim=16, num_experts=16,
                               num_experts_per_tok=8),
    "moe-olmoe": olmoe(96, 4, 2, 48),
    "moe-olmoe-normed-bf16": olmoe(96, 4, 4, 48, "bfloat16", norm_topk_prob=True),
    # gpt-oss: sinks, biases, interleaved experts, plain and in MXFP4 blocks
    "gpt-oss": gpt_oss(96, 4, 2, 64, num_hidden_layers=3),
    "gpt-oss-mxfp4": gpt_oss(96, 4, 1, 64, quantization_config=MXFP4),
    "gpt-oss-mxfp4-bf16": gpt_oss(64, 8, 2, 96, "bfloat16", quantization_config=MXFP4),
    "gpt-oss-bf16": gpt_oss(64, 4, 4, 96, "bfloat16", num_experts_per_tok=4),
    # Families that are data on top of what exists
    "olmo2": olmo2(96, 4, 2, 160),
    "olmo2-bf16": olmo2(128, 2, 2, 160, "bfloat16"),
    "olmo3": v5(without(olmo3(96, 4, 2, 160, num_hidden_layers=4, sliding_window=16),
                        "rope_scaling")),
    "granite": granite(96, 4, 2, 160),
    "granite-bf16": granite(128, 2, 1, 160, "bfloat16", tie_word_embeddings=True),
    "smollm3": smollm3(96, 4, 2, 160, num_hidden_layers=4, no_rope_layers=[1, 0, 1, 0]),
    "smollm3-bf16": smollm3(96, 4, 1, 160, "bfloat16", num_hidden_layers=4,
                            tie_word_embeddings=False),
    "seed-oss": seed_oss(96, 4, 2, 160, head_dim=32),
    "starcoder2": starcoder2(96, 4, 2, 160, sliding_window=16),
    "starcoder2-bf16": starcoder2(128, 4, 1, 160, "bfloat16", use_bias=False),
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
    "files-mixtral": ("plain", mixtral(48, 2, 1, 64, "bfloat16", **TINY)),
    "files-qwen2-moe": ("sharded", qwen2_moe(48, 2, 1, 64, num_experts=4, mlp_only_layers=[1],
                                             **TINY)),
    "files-qwen3-moe": ("plain", qwen3_moe(48, 2, 1, 64, "bfloat16", head_dim=32, num_experts=4,
                                           **TINY)),
    "files-gpt-oss": ("plain", gpt_oss(64, 2, 1, 64, "bfloat16", num_local_experts=4, **TINY)),
    "files-gpt-oss-mxfp4": ("mxfp4", gpt_oss(64, 2, 1, 64, "bfloat16", num_local_experts=4,
                                             quantization_config=MXFP4, **TINY)),
    "files-phi3": ("plain", phi3(48, 3, 1, 64, "bfloat16", **TINY)),
    "files-gemma3-text": ("plain", gemma3(48, 2, 1, 64, "bfloat16", head_dim=32,
                                          sliding_window=12, **TINY)),
    "files-gemma3-images": ("images", gemma3(48, 2, 1, 64, "bfloat16", head_dim=32,
                                             sliding_window=12, **TINY)),
    "files-gemma3-images-old": ("images-old", gemma3(48, 2, 1, 64, head_dim=32,
                                                     sliding_window=12, **TINY)),
    "files-gpt2": ("plain", {**gpt2(48, 2), "vocab_size": 67, "n_positions": 128, "n_ctx": 128}),
    "files-gpt2-bare-names": ("gpt2-bare", {**gpt2(48, 2, "bfloat16"), "vocab_size": 67,
                                            "n_positions": 128, "n_ctx": 128}),
}


# With a low-rank adapter as PEFT saves it; the reference is PEFT's merged model.
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]
ADAPTER_CASES = {
    "lora-llama": ({"r": 8, "lora_alpha": 24, "target_modules": ATTENTION + MLP},
                   llama(64, 4, 2, 96, **TINY)),
    "lora-qwen2-some": ({"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "down_proj"],
                         "use_rslora": True, "layers_to_transform": [1]},
                        qwen2(64, 4, 2, 96, **TINY)),
    "lora-bf16": ({"r": 16, "lora_alpha": 16, "target_modules": ["v_proj", "up_proj"]},
                  llama(64, 4, 2, 96, "bfloat16", **TINY)),
    "lora-phi3": ({"r": 4, "lora_alpha": 8, "target_modules": ["qkv_proj", "gate_up_proj"]},
                  phi3(64, 4, 2, 96, **TINY)),
    "lora-gpt2": ({"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj", "c_fc"],
                   "fan_in_fan_out": True},
                  {**gpt2(64, 2), "vocab_size": 67, "n_positions": 128, "n_ctx": 128}),
    "lora-mixtral": ({"r": 4, "lora_alpha": 8, "target_modules": ATTENTION},
                     mixtral(64, 4, 2, 64, **TINY)),
}


# Text parts of models that see images, as transformers saves the whole; and files that are laid out
# otherwise. They stand behind the others, because a seed is the number of its case.
TOWER = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "patch_size": 2}


def with_tower(architecture, kind, text, dtype="float32", **tower):
    text = {k: v for k, v in text.items() if k not in ("architectures", "torch_dtype")}
    return {"architectures": [architecture], "model_type": kind, "dtype": dtype,
            "tie_word_embeddings": False, "text_config": text, "vision_config": tower}


def qwen3_vl(text, **more):
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [6, 5, 5],
            "mrope_interleaved": True}
    text = {**without(text, "rope_theta"), "model_type": "qwen3_vl_text", "rope_parameters": rope}
    return with_tower("Qwen3VLForConditionalGeneration", "qwen3_vl", text,
                      **{**TOWER, "out_hidden_size": text["hidden_size"],
                         "num_position_embeddings": 16, "deepstack_visual_indexes": [0], **more})


def qwen2_5_vl(text, dtype="float32"):
    rope = {"type": "mrope", "mrope_section": [4, 4, 4]}
    text = {**text, "model_type": "qwen2_5_vl_text", "rope_scaling": rope}
    return with_tower("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", text, dtype,
                      **{**TOWER, "out_hidden_size": text["hidden_size"], "window_size": 8,
                         "fullatt_block_indexes": [0]})


def mistral3(text, kind="mistral", dtype="float32"):
    tower = {"model_type": "pixtral", "hidden_size": 16, "num_attention_heads": 2, "head_dim": 8,
             "num_hidden_layers": 1, "intermediate_size": 16, "patch_size": 2, "image_size": 8}
    return with_tower("Mistral3ForConditionalGeneration", "mistral3",
                      {**text, "model_type": kind}, dtype, **tower)


def ministral3(*args, **more):
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "original_max_position_embeddings": 128, "mscale": 1.0,
            "mscale_all_dim": 0.5, "llama_4_scaling_beta": 0.1, "truncate": True}
    return llama_like("Ministral3ForCausalLM", "ministral3", *args, head_dim=32,
                      **{**TINY, "max_position_embeddings": 2048, "rope_parameters": rope, **more})


WRAPPED_CASES = {
    "files-qwen3-vl": ("plain", qwen3_vl(qwen3(48, 2, 1, 64, head_dim=32, **TINY))),
    "files-qwen2-5-vl": ("plain", qwen2_5_vl(qwen2(48, 2, 1, 64, **TINY), "bfloat16")),
    "files-qwen2-5-vl-old": ("flat-images", qwen2_5_vl(qwen2(48, 2, 2, 64, **TINY))),
    "files-mistral3": ("plain", mistral3(mistral(48, 3, 1, 64, head_dim=16, sliding_window=None,
                                                 **TINY))),
    "files-mistral3-ministral": ("plain", mistral3(ministral3(48, 2, 1, 64), "ministral3",
                                                   "bfloat16")),
    "files-ministral3": ("plain", ministral3(48, 2, 2, 64)),
    "files-qwen3-bare-names": ("bare", qwen3(48, 2, 1, 64, "bfloat16", head_dim=32,
                                             tie_word_embeddings=True, **TINY)),
    "files-llama-own-head": ("own-head", llama(48, 2, 1, 64, "bfloat16", **TINY,
                                               tie_word_embeddings=False)),
    "files-llama-equal-head": ("equal-head", llama(48, 2, 1, 64, "bfloat16", **TINY,
                                                   tie_word_embeddings=True)),
}


# As GGUF files, which gguf_file.py writes: the types of tensors by a part of their names ("" = of
# all matrices), the rest as above. K types need rows of 256, so they stand in wide, flat models.
GGUF_TINY = {"vocab_size": 67, "max_position_embeddings": 128, "torch_dtype": "float32"}
GGUF_GPT2 = {"vocab_size": 67, "n_positions": 128, "n_ctx": 128, "torch_dtype": "float32"}
FLAT = {**GGUF_TINY, "num_hidden_layers": 1, "head_dim": 16}
GGUF_CASES = {
    "gguf-llama": ({}, llama(32, 4, 2, 48, rope_theta=500000.0, rope_scaling={
        "rope_type": "llama3", **LLAMA3}, **GGUF_TINY)),
    "gguf-llama-biases-f16": ({"": "F16"}, llama(32, 4, 2, 48, attention_bias=True, mlp_bias=True,
                                                 **GGUF_TINY)),
    "gguf-llama-k": ({"attn_v": "Q6_K", "token_embd": "Q6_K", "output.": "Q6_K", "attn_q": "Q4_K",
                      "attn_k": "Q5_K", "ffn_gate": "Q3_K", "ffn_up": "Q2_K", "": "Q5_0"},
                     llama(256, 4, 2, 64, **FLAT)),
    "gguf-llama-iq": ({"attn_q": "IQ4_XS", "ffn_up": "IQ4_XS", "": "IQ4_NL"},
                      llama(256, 4, 2, 64, tie_word_embeddings=True, **FLAT)),
    "gguf-qwen2-bf16": ({"": "BF16"}, qwen2(32, 2, 1, 48, tie_word_embeddings=True, **GGUF_TINY)),
    "gguf-qwen2-yarn": ({"": "Q8_0"}, qwen2(64, 4, 2, 96, rope_scaling={
        "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, **GGUF_TINY)),
    "gguf-qwen2-moe": ({"exps": "Q4_1", "": "Q8_0"}, qwen2_moe(
        64, 2, 1, 32, num_experts=4, num_hidden_layers=1, moe_intermediate_size=32,
        shared_expert_intermediate_size=64, norm_topk_prob=False, **GGUF_TINY)),
    "gguf-qwen3": ({"": "Q4_0"}, qwen3(64, 4, 2, 96, head_dim=32, **GGUF_TINY)),
    "gguf-qwen3-moe": ({"": "Q5_0"}, qwen3_moe(64, 2, 1, 64, head_dim=32, num_experts=4,
                                               moe_intermediate_size=32, **GGUF_TINY)),
    "gguf-mixtral": ({"": "Q5_1"}, mixtral(64, 4, 2, 64, num_local_experts=3, **GGUF_TINY)),
    "gguf-gemma2": ({"": "Q8_0"}, gemma2(64, 4, 2, 96, num_hidden_layers=3, head_dim=16,
                                         sliding_window=16, **GGUF_TINY)),
    "gguf-gemma3": ({"": "Q8_0"}, gemma3(32, 4, 2, 64, num_hidden_layers=4, head_dim=16,
                                         sliding_window=12, sliding_window_pattern=3,
                                         **GGUF_TINY)),
    "gguf-phi3": ({"": "Q8_0"}, phi3(64, 4, 2, 96, sliding_window=16, **GGUF_TINY)),
    "gguf-phi3-longrope": ({"": "Q8_0"}, phi3(
        64, 4, 2, 96, original_max_position_embeddings=32, rope_scaling={
            "type": "longrope", "short_factor": [1.0 + 0.25 * i for i in range(8)],
            "long_factor": [1.5 + 0.5 * i for i in range(8)]}, **GGUF_TINY)),
    "gguf-gpt-oss": ({"exps": "MXFP4", "": "Q8_0"}, gpt_oss(64, 2, 1, 64, num_local_experts=4,
                                                            **GGUF_TINY)),
    "gguf-olmo2": ({"": "Q8_0"}, olmo2(64, 4, 2, 96, **GGUF_TINY)),
    "gguf-olmo3": ({"": "Q8_0"}, olmo3(64, 4, 2, 96, num_hidden_layers=4, sliding_window=16,
                                       **GGUF_TINY)),
    "gguf-olmoe": ({"": "Q8_0"}, olmoe(64, 4, 2, 32, num_hidden_layers=1, num_experts=4,
                                         num_experts_per_tok=2, **GGUF_TINY)),
    "gguf-granite": ({"": "Q8_0"}, granite(64, 4, 2, 96, **GGUF_TINY)),
    "gguf-seed-oss": ({"": "Q8_0"}, seed_oss(64, 4, 2, 96, head_dim=32, **GGUF_TINY)),
    "gguf-smollm3": ({"": "Q8_0"}, smollm3(32, 4, 2, 64, num_hidden_layers=4,
                                           no_rope_layers=[1, 1, 1, 0], **GGUF_TINY)),
    "gguf-starcoder2": ({"": "Q8_0"}, starcoder2(64, 4, 2, 96, sliding_window=16, **GGUF_TINY)),
    "gguf-gpt2": ({"": "Q8_0"}, {**gpt2(64, 2), **GGUF_GPT2, "n_layer": 1}),
    "gguf-qwen3-moe-k": ({"gate_exps": "Q4_K", "up_exps": "Q4_K", "attn_q": "Q4_K",
                          "attn_v": "Q6_K", "": "Q5_0"}, qwen3_moe(
        256, 2, 1, 64, head_dim=32, num_experts=4, num_hidden_layers=1, moe_intermediate_size=32,
        **GGUF_TINY)),
    "gguf-gemma": ({"": "Q8_0"}, gemma(64, 4, 2, 96, head_dim=16, tie_word_embeddings=True,
                                       **GGUF_TINY)),
    "gguf-mistral3": ({"": "Q4_0"}, ministral3(64, 2, 1, 64, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "original_max_position_embeddings": 128, "mscale": 1.0,
        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}, vocab_size=67,
        torch_dtype="float32")),
}

# Cases that came later stand here: a seed follows from the place in the list.
LATER_CASES = {
    "routed-glm4-moe": (None, glm4_moe(96, 4, 2, 112, n_group=4, topk_group=2)),
    "routed-glm4-moe-normed-bf16": (None, glm4_moe(96, 3, 1, 112, "bfloat16", use_qk_norm=True,
                                                   head_dim=32, attention_bias=True,
                                                   n_routed_experts=4, num_experts_per_tok=4)),
    "routed-solar-open": (None, v5(solar_open(96, 4, 2, 112, n_shared_experts=2))),
    "routed-dots1": (None, dots1(96, 4, 4, 112, sliding_window=16, max_window_layers=1)),
    "routed-ernie": (None, ernie4_5_moe(96, 4, 2, 112, moe_layer_end_index=1)),
    "routed-minimax-m2": (None, minimax_m2(96, 4, 2, 48)),
    "latent-deepseek-v2": (None, deepseek_v2(96, 3, 112, topk_method="group_limited_greedy",
                                             n_group=4, topk_group=2, rope_scaling=DEEPSEEK_YARN)),
    "latent-deepseek-v2-lite-bf16": (None, deepseek_v2(
        96, 4, 112, "bfloat16", q_lora_rank=None, kv_lora_rank=50, attention_bias=True,
        n_routed_experts=4, num_experts_per_tok=4)),
    "latent-deepseek-v3": (None, deepseek_v3(96, 5, 112, rope_scaling=DEEPSEEK_YARN,
                                             attention_bias=True)),
    "latent-deepseek-v3-halves": (None, v5(deepseek_v3(96, 2, 112, rope_interleave=False,
                                                       q_lora_rank=None))),
    "latent-glm4-moe-lite": (None, glm4_moe_lite(96, 20, 112, v_head_dim=32, kv_lora_rank=64,
                                                 mlp_layer_types=["dense", "sparse", "dense"])),
    "latent-kimi-k2-bf16": (None, deepseek_v3(
        128, 8, 112, "bfloat16", kv_lora_rank=128, qk_nope_head_dim=32, v_head_dim=32,
        n_group=1, topk_group=1, n_routed_experts=4, num_experts_per_tok=4,
        rope_scaling={**DEEPSEEK_YARN, "beta_fast": 1.0, "mscale_all_dim": 1.0})),
    "files-deepseek-v2": ("plain", deepseek_v2(48, 2, 64, n_routed_experts=4, **TINY)),
    "files-deepseek-v3": ("sharded", deepseek_v3(48, 2, 64, "bfloat16", n_group=1, topk_group=1,
                                                 n_routed_experts=4, num_experts_per_tok=4,
                                                 **TINY)),
    "files-glm4-moe-lite": ("plain", glm4_moe_lite(48, 2, 64, n_routed_experts=4, **TINY)),
    "files-glm4-moe": ("sharded", glm4_moe(48, 2, 1, 64, "bfloat16", n_routed_experts=4,
                                           num_experts_per_tok=4, **TINY)),
    "files-ernie-moe": ("plain", ernie4_5_moe(48, 2, 1, 64, moe_num_experts=4, **TINY)),
    "files-minimax-m2": ("plain", minimax_m2(48, 2, 1, 64, num_local_experts=4, **TINY)),
    "files-gemma": ("plain", gemma(64, 4, 2, 96, head_dim=16, tie_word_embeddings=True,
                                   **GGUF_TINY)),
    "gguf-llama-mins": ({"attn": "Q4_1", "": "Q5_1"}, llama(64, 4, 2, 96, **GGUF_TINY)),
}
