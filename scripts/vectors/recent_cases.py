"""Decoders of 2025 and 2026 for the reference vectors and `make parity`.

As decoder_cases.py: `DRAWS` draws a random config.json of a family, `CASES` are the committed ones.
"""

from decoder_cases import codegen, common, olmo, sizes
from model_cases import (LLAMA3, TINY, gemma2, granite, latent, llama_like, ministral3, v5,
                         without)

WINDOWS = ("full_attention", "sliding_attention")


def jais2(*args, **more):
    return {**llama_like("Jais2ForCausalLM", "jais2", *args, **{
        "rope_theta": 1e4, "layer_norm_eps": 1e-5, **more}), "hidden_act": "relu2"}


def ministral(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("MinistralForCausalLM", "ministral", hidden, heads, kv_heads, mlp, dtype, **{
        "rope_theta": 1e6, "head_dim": hidden // heads, "sliding_window": 16, **more})


def cwm(*args, **more):
    made = llama_like("CwmForCausalLM", "cwm", *args, **{
        "rope_theta": 1e6, "head_dim": 32, "sliding_window": 16, "num_hidden_layers": 5, **more})
    return v5(made, rope_type="llama3", **LLAMA3)


def youtu(hidden, heads, mlp, dtype="float32", **more):
    return llama_like("YoutuForCausalLM", "youtu", hidden, heads, heads, mlp, dtype, **{
        "rope_theta": 1e6, "kv_lora_rank": 40, "q_lora_rank": 48, "qk_nope_head_dim": 24,
        "qk_rope_head_dim": 16, "v_head_dim": 20, "tie_word_embeddings": True, **more})


def scored(architecture, kind, *args, **more):
    """Experts whose router scores, behind one dense layer."""
    return llama_like(architecture, kind, *args, **{
        "rope_theta": 1e6, "num_experts": 8, "num_experts_per_tok": 3, "num_shared_experts": 1,
        "moe_intermediate_size": 48, "head_dim": 32, "num_hidden_layers": 3, **more})


def exaone_moe(*args, **more):
    return scored("ExaoneMoeForCausalLM", "exaone_moe", *args, **{
        "sliding_window": 16, "sliding_window_pattern": 3, "routed_scaling_factor": 2.5, **more})


def hy_v3(*args, **more):
    return scored("HYV3ForCausalLM", "hy_v3", *args, **{"router_scaling_factor": 2.5, **more})


def afmoe(*args, **more):
    return scored("AfmoeForCausalLM", "afmoe", *args, **{
        "sliding_window": 16, "global_attn_every_n_layers": 3, "num_dense_layers": 1,
        "route_scale": 1.5, "mup_enabled": True, **more})


def vaultgemma(*args, **more):
    return {**gemma2(*args, **more), "architectures": ["VaultGemmaForCausalLM"],
            "model_type": "vaultgemma"}


def hyperclovax(*args, **more):
    return {**granite(*args, **{"logits_scaling": 0.125, **more}),
            "architectures": ["HyperCLOVAXForCausalLM"], "model_type": "hyperclovax"}


def gemma3n(*args, **more):
    """The last two layers read the K and V of those before; the first two keep the largest values
    of their gates. The last ids have no embeddings for layers."""
    rope = {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    made = llama_like("Gemma3nForCausalLM", "gemma3n_text", *args, **{
        "hidden_activation": "gelu_pytorch_tanh", "head_dim": 16, "num_hidden_layers": 6,
        "layer_types": [WINDOWS[1], WINDOWS[1], WINDOWS[0]] * 2, "sliding_window": 11,
        "rope_parameters": rope, "rms_norm_eps": 1e-6, "hidden_size_per_layer_input": 24,
        "vocab_size_per_layer_input": 190, "num_kv_shared_layers": 2, "altup_num_inputs": 4,
        "laurel_rank": 12, "activation_sparsity_pattern": [0.8, 0.8, 0.0, 0.0, 0.0, 0.0],
        "tie_word_embeddings": True, "final_logit_softcapping": 30.0, **more})
    return without(made, "hidden_act")


def phimoe(*args, **more):
    return llama_like("PhimoeForCausalLM", "phimoe", *args, **{
        "rope_theta": 1e4, "num_local_experts": 6, "num_experts_per_tok": 2,
        "attention_bias": True, "lm_head_bias": True, "router_jitter_noise": 0.01, **more})


def granite_swa(*args, **more):
    return {**granite(*args, **{"sliding_window": 16, "num_hidden_layers": 5, **more}),
            "architectures": ["GraniteSWAForCausalLM"], "model_type": "granite_swa"}


def granitemoe_swa(*args, **more):
    return {**granite_swa(*args, **{"num_local_experts": 5, "num_experts_per_tok": 2, **more}),
            "architectures": ["GraniteMoeSWAForCausalLM"], "model_type": "granitemoe_swa"}


def nanochat(*args, **more):
    made = llama_like("NanoChatForCausalLM", "nanochat", *args, **{
        "rope_theta": 1e4, "final_logit_softcapping": 15.0, **more})
    return {**made, "hidden_act": "relu2"}


def cohere2_moe(*args, **more):
    """Two dense layers in front, which turn though they see everything."""
    return without(llama_like("Cohere2MoeForCausalLM", "cohere2_moe", *args, **{
        "rope_theta": 1e4, "layer_norm_eps": 1e-5, "logit_scale": 0.25, "head_dim": 32,
        "sliding_window": 16, "num_hidden_layers": 5, "tie_word_embeddings": True,
        "num_experts": 6, "num_experts_per_tok": 3, "num_shared_experts": 2,
        "prefix_dense_intermediate_size": 88,
        "mlp_layer_types": ["dense", "sparse", "sparse", "dense", "sparse"],
        "layer_types": [WINDOWS[0], WINDOWS[1], WINDOWS[0], WINDOWS[1], WINDOWS[1]], **more}),
        "rms_norm_eps")


def apertus(*args, **more):
    made = llama_like("ApertusForCausalLM", "apertus", *args, **{
        "rope_theta": 12e6, "rope_scaling": {"rope_type": "llama3", **LLAMA3}, **more})
    return {**made, "hidden_act": "xielu"}


def xglm(hidden, heads, mlp, dtype="float32", **more):
    return {"architectures": ["XGLMForCausalLM"], "model_type": "xglm", "d_model": hidden,
            "attention_heads": heads, "ffn_dim": mlp, "num_layers": 3, "torch_dtype": dtype,
            "activation_function": "gelu", "vocab_size": 199, "max_position_embeddings": 256,
            "scale_embedding": True, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1,
            "tie_word_embeddings": True, **more}


def biogpt(hidden, heads, mlp, dtype="float32", **more):
    return {"architectures": ["BioGptForCausalLM"], "model_type": "biogpt", "hidden_size": hidden,
            "num_attention_heads": heads, "intermediate_size": mlp, "num_hidden_layers": 3,
            "torch_dtype": dtype, "hidden_act": "gelu", "vocab_size": 199,
            "max_position_embeddings": 256, "scale_embedding": True, "layer_norm_eps": 1e-12,
            "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1, "tie_word_embeddings": True,
            **more}


def indexed(architecture, kind, *args, **more):
    """Latent attention to the tokens that an indexer chooses, which has so many heads that hardly
    two scores are equal."""
    return latent(architecture, kind, *args, **{
        "n_group": 4, "topk_group": 2, "index_n_heads": 16, "index_head_dim": 24, "index_topk": 16,
        **more})


def deepseek_v32(*args, **more):
    return indexed("DeepseekV32ForCausalLM", "deepseek_v32", *args, **more)


def glm_moe_dsa(*args, **more):
    return indexed("GlmMoeDsaForCausalLM", "glm_moe_dsa", *args, **more)


def gpt_neo(hidden, heads, types, dtype="float32", **more):
    """Of 2021, and no decoder of decoder_cases.py: their numbers make their seeds."""
    return {"architectures": ["GPTNeoForCausalLM"], "model_type": "gpt_neo", "hidden_size": hidden,
            "num_heads": heads, "num_layers": sum(len(names) * n for names, n in types),
            "attention_types": types, "window_size": 16, "activation_function": "gelu_new",
            "intermediate_size": None, "max_position_embeddings": 256, "vocab_size": 199,
            "torch_dtype": dtype, "bos_token_id": 2, "eos_token_id": 2, **more}


def bloom(hidden, heads, dtype="float32", **more):
    """Of 2022, as MPT of 2023: scores that fall with the distance."""
    return {"architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": hidden,
            "n_head": heads, "n_layer": 3, "seq_length": 256, "vocab_size": 199,
            "torch_dtype": dtype, "bos_token_id": 1, "eos_token_id": 2, **more}


def mpt(hidden, heads, dtype="float32", attn=None, **more):
    return {"architectures": ["MptForCausalLM"], "model_type": "mpt", "d_model": hidden,
            "n_heads": heads, "n_layers": 3, "max_seq_len": 256, "vocab_size": 199,
            "attn_config": {"alibi": True, **(attn or {})}, "torch_dtype": dtype,
            "bos_token_id": 1, "eos_token_id": 2, **more}


def mellum(*args, **more):
    made = scored("MellumForCausalLM", "mellum", *args, **{
        "sliding_window": 16, "norm_topk_prob": True, "layer_types": [
            WINDOWS[1], WINDOWS[1], WINDOWS[0]], **more})
    full = {"rope_type": "yarn", "rope_theta": 5e5, "factor": 4.0,
            "original_max_position_embeddings": 32}
    made = without(made, "rope_theta", "num_shared_experts")
    return {**made, "rope_parameters": {
        "full_attention": full,
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}


def mistral4(hidden, heads, mlp, dtype="float32", **more):
    """Queries grow from the original length on."""
    made = latent("Mistral4ForCausalLM", "mistral4", hidden, heads, mlp, dtype, **{
        "n_group": 4, "topk_group": 2, "n_shared_experts": 1, **more})
    whole = made["qk_nope_head_dim"] + made["qk_rope_head_dim"]
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "beta_fast": 32.0,
            "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
            "original_max_position_embeddings": 32,
            "partial_rotary_factor": made["qk_rope_head_dim"] / whole}
    return {**without(made, "rope_theta", "scoring_func", "topk_method"), "rope_parameters": rope,
            "max_position_embeddings": 256}


def draw_mistral4(rng, dtype):
    heads, groups = rng.choice([1, 2, 3, 8]), rng.choice([1, 2, 3])
    count = groups * rng.randint(2, 5)
    taken = rng.randint(1, groups) if dtype == "float32" else groups
    top = rng.randint(1, count // groups * taken) if dtype == "float32" else count
    layers = rng.randint(1, 4)
    made = mistral4(
        8 * heads * rng.randint(2, 9), heads, 8 * rng.randint(4, 40), dtype,
        num_hidden_layers=layers, n_group=groups, topk_group=taken, n_routed_experts=count,
        num_experts_per_tok=top, moe_intermediate_size=8 * rng.randint(2, 20),
        n_shared_experts=rng.randint(1, 3), norm_topk_prob=rng.random() < 0.7,
        routed_scaling_factor=rng.choice([1.0, 2.5]), first_k_dense_replace=rng.randint(0, layers),
        kv_lora_rank=2 * rng.randint(4, 70), qk_rope_head_dim=4 * rng.randint(1, 16),
        q_lora_rank=rng.choice([None, 8 * rng.randint(2, 20)]),
        qk_nope_head_dim=4 * rng.randint(1, 35), v_head_dim=rng.randint(4, 140),
        attention_bias=rng.random() < 0.4, rope_interleave=rng.random() < 0.7,
        rms_norm_eps=rng.choice([1e-5, 1e-6]), tie_word_embeddings=rng.random() < 0.3)
    made["rope_parameters"] |= {"mscale_all_dim": rng.choice([0.7, 1.0]),
                                "llama_4_scaling_beta": rng.choice([0.1, 0.5]),
                                "original_max_position_embeddings": rng.choice([16, 32, 128])}
    return made


def draw_scored(make):
    """A run of 16 bits takes all experts, as in parity.py."""
    def drawn(rng, dtype):
        hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
        count, layers = rng.randint(2, 7), rng.randint(1, 5)
        more = {"num_hidden_layers": layers, "head_dim": head_dim + 2 * rng.randint(0, 4),
                "num_experts": count, "moe_intermediate_size": 8 * rng.randint(2, 20),
                "num_experts_per_tok": rng.randint(1, count) if dtype == "float32" else count,
                "tie_word_embeddings": rng.random() < 0.3}
        if make is not hy_v3:
            more |= {"sliding_window": rng.choice([5, 16, 30]),
                     "layer_types": [rng.choice(WINDOWS) for _ in range(layers)]}
        if make is not mellum:
            more["num_shared_experts"] = rng.randint(1, 3)
        if make is afmoe:
            more |= {"num_dense_layers": rng.randint(0, layers), "mup_enabled": rng.random() < 0.5}
        elif rng.random() < 0.6:
            more["mlp_layer_types"] = [rng.choice(["dense", "sparse"]) for _ in range(layers)]
        elif make is exaone_moe:
            more["first_k_dense_replace"] = rng.randint(0, layers)
        if make is exaone_moe and count % 2 == 0 and count > 3:
            more |= {"n_group": 2, "topk_group": 2}
        return make(hidden, heads, kv_heads, mlp, dtype, **more)
    return drawn


def draw_jais2(rng, dtype):
    hidden, heads, kv_heads, mlp, _ = sizes(rng)
    return jais2(hidden, heads, kv_heads, mlp, dtype, **common(rng),
                 attention_bias=rng.random() < 0.7, mlp_bias=rng.random() < 0.7)


def draw_ministral(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    config = ministral(hidden, heads, kv_heads, mlp, dtype, **common(rng), head_dim=head_dim,
                       sliding_window=rng.choice([5, 16, 30]))
    if rng.random() < 0.6:
        config["layer_types"] = [rng.choice(WINDOWS) for _ in range(config["num_hidden_layers"])]
    return config


def draw_ministral3(rng, dtype):
    """Queries grow from the original length on."""
    hidden, heads, kv_heads, mlp, _ = sizes(rng)
    rope = {"rope_type": "yarn", "rope_theta": rng.choice([1e4, 1e6]), "factor": 16.0,
            "beta_fast": rng.choice([8.0, 32.0]), "beta_slow": 1.0, "mscale": 1.0,
            "mscale_all_dim": rng.choice([0.5, 1.0]),
            "llama_4_scaling_beta": rng.choice([0.1, 0.5]),
            "original_max_position_embeddings": rng.choice([8, 16, 128])}
    return ministral3(hidden, heads, kv_heads, mlp, dtype, **common(rng), rope_parameters=rope,
                      tie_word_embeddings=rng.random() < 0.4, vocab_size=199)


def draw_cwm(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    return cwm(hidden, heads, kv_heads, mlp, dtype, num_hidden_layers=rng.randint(1, 6),
               head_dim=head_dim, sliding_window=rng.choice([5, 16, 30]))


def draw_youtu(rng, dtype):
    heads = rng.choice([1, 3, 8])
    return youtu(8 * rng.randint(2, 20), heads, 8 * rng.randint(4, 40), dtype, **common(rng),
                 kv_lora_rank=2 * rng.randint(4, 40), qk_rope_head_dim=2 * rng.randint(1, 32),
                 q_lora_rank=rng.choice([None, 8 * rng.randint(2, 20)]),
                 qk_nope_head_dim=2 * rng.randint(2, 40), v_head_dim=rng.randint(4, 80),
                 attention_bias=rng.random() < 0.4, rope_interleave=rng.random() < 0.7,
                 tie_word_embeddings=rng.random() < 0.6)


def draw_vaultgemma(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    return vaultgemma(hidden, heads, kv_heads, mlp, dtype, **common(rng), head_dim=head_dim,
                      query_pre_attn_scalar=rng.randint(8, 300),
                      sliding_window=rng.choice([5, 16, 30]))


def draw_gpt_neo(rng, dtype):
    heads = rng.choice([1, 2, 4, 6])
    kinds = ["global", "local"]
    types = [[rng.choices(kinds, k=rng.randint(1, 3)), rng.randint(1, 2)]
             for _ in range(rng.randint(1, 2))]
    return gpt_neo(heads * 8 * rng.randint(1, 8), heads, types, dtype,
                   window_size=rng.choice([1, 5, 16, 300]),
                   intermediate_size=rng.choice([None, 8 * rng.randint(2, 30)]),
                   tie_word_embeddings=rng.random() < 0.7)


def draw_by_distance(make):
    def drawn(rng, dtype):
        heads = rng.choice([1, 2, 3, 4, 6, 12])
        own = {"n_layer" if make is bloom else "n_layers": rng.randint(1, 4),
               "layer_norm_epsilon": rng.choice([1e-5, 1e-4]),
               "tie_word_embeddings": rng.random() < 0.6}
        if make is mpt:
            own["attn"] = {"clip_qkv": rng.choice([None, 0.5]),
                           "softmax_scale": rng.choice([None, 0.2])}
        return make(heads * 8 * rng.randint(1, 6), heads, dtype, **own)
    return drawn


def draw_hyperclovax(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    return hyperclovax(hidden, heads, kv_heads, mlp, dtype, **common(rng), head_dim=head_dim,
                       embedding_multiplier=rng.choice([1.0, 10.0]),
                       residual_multiplier=rng.choice([1.0, 0.22, 1.4]),
                       attention_multiplier=rng.choice([None, 0.0625, 0.2]),
                       logits_scaling=rng.choice([1.0, 0.125, 3.0]),
                       use_post_norm=rng.random() < 0.6)


def draw_granite_swa(make):
    """A base for each kind of layer, or some layers that do not rotate."""
    def drawn(rng, dtype):
        hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
        layers = rng.randint(1, 6)
        types = [rng.choice(WINDOWS) for _ in range(layers)]
        bases = dict(zip(WINDOWS, (rng.choice([0, 1e6]), rng.choice([1e4, 1e6]))))
        more = {"num_hidden_layers": layers, "head_dim": head_dim,
                "sliding_window": rng.choice([5, 16, 30]), "layer_types": types,
                "layer_rope_theta": rng.choice([None, [bases[kind] for kind in types]]),
                "attention_multiplier": rng.choice([0.0625, 0.2]),
                "logits_scaling": rng.choice([1.0, 8.0]),
                "attention_bias": rng.random() < 0.4}
        if make is granitemoe_swa:
            count = rng.randint(2, 7)
            more |= {"num_local_experts": count, "shared_intermediate_size": rng.choice([0, 40]),
                     "num_experts_per_tok": rng.randint(1, count) if dtype == "float32" else count}
        return make(hidden, heads, kv_heads, mlp, dtype, **more)
    return drawn


def draw_nanochat(rng, dtype):
    hidden, heads, kv_heads, mlp, _ = sizes(rng)
    return nanochat(hidden, heads, kv_heads, mlp, dtype, **common(rng),
                    attention_bias=rng.random() < 0.3, tie_word_embeddings=rng.random() < 0.3,
                    final_logit_softcapping=rng.choice([None, 15.0, 2.0]))


def draw_gemma3n(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    layers, sparsity = rng.randint(3, 7), rng.choice([0.5, 0.8, 0.95])
    types = [rng.choice(WINDOWS) for _ in range(layers)]
    shared = [s for s in range(layers) if set(types[:layers - s]) == set(types)]
    more = {"num_hidden_layers": layers, "layer_types": types, "head_dim": head_dim,
            "sliding_window": rng.choice([1, 5, 16, 30]), "laurel_rank": rng.choice([1, 8, 20]),
            "num_kv_shared_layers": rng.choice(shared), "altup_num_inputs": rng.choice([2, 3, 4]),
            "altup_correct_scale": rng.random() < 0.7,
            "hidden_size_per_layer_input": rng.choice([7, 16, 30]),
            "vocab_size_per_layer_input": rng.choice([150, 199]),
            "attention_bias": rng.random() < 0.2, "intermediate_size": [mlp] * layers,
            "activation_sparsity_pattern": [rng.choice([0.0, sparsity]) for _ in range(layers)],
            "final_logit_softcapping": rng.choice([2.0, 30.0])}
    return gemma3n(hidden, heads, kv_heads, mlp, dtype, **more)


def draw_phimoe(rng, dtype):
    """A run of fewer bits has one expert behind each choice, as in parity.py."""
    hidden, heads, kv_heads, mlp, _ = sizes(rng)
    return phimoe(hidden, heads, kv_heads, mlp, dtype, **common(rng),
                  num_local_experts=rng.randint(2, 7) if dtype == "float32" else 2,
                  router_jitter_noise=rng.choice([0.0, 0.01, 0.3, 0.8]),
                  sliding_window=rng.choice([None, 16]), attention_bias=rng.random() < 0.6,
                  lm_head_bias=rng.random() < 0.6, tie_word_embeddings=False)


def draw_cohere2_moe(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    count, layers = rng.randint(2, 7), rng.randint(1, 5)
    made = cohere2_moe(
        hidden, heads, kv_heads, mlp, dtype, num_hidden_layers=layers, head_dim=head_dim,
        num_experts=count, sliding_window=rng.choice([5, 16, 30]),
        num_experts_per_tok=rng.randint(1, count) if dtype == "float32" else count,
        num_shared_experts=rng.randint(0, 2), attention_bias=rng.random() < 0.3,
        shared_expert_combination_strategy=rng.choice(["average", "sum"]),
        expert_selection_fn=rng.choice(["softmax", "sigmoid"]), norm_topk_prob=rng.random() < 0.6,
        prefix_dense_intermediate_size=rng.choice([None, 88]),
        prefix_dense_sliding_window_pattern=rng.choice([1, 2]),
        rms_norm_eps=rng.choice([None, 1e-5]), tie_word_embeddings=rng.random() < 0.6,
        mlp_layer_types=[rng.choice(["dense", "sparse"]) for _ in range(layers)],
        layer_types=[rng.choice(WINDOWS) for _ in range(layers)])
    if rng.random() < 0.4:  # the lists follow from numbers
        made = without(made, "mlp_layer_types", "layer_types")
        made |= {"first_k_dense_replace": rng.randint(0, layers), "sliding_window_pattern": 3}
    return made


def draw_apertus(rng, dtype):
    hidden, heads, kv_heads, mlp, _ = sizes(rng)
    return apertus(hidden, heads, kv_heads, mlp, dtype, **common(rng),
                   attention_bias=rng.random() < 0.3, tie_word_embeddings=rng.random() < 0.3)


def draw_fairseq(make):
    def drawn(rng, dtype):
        heads = rng.choice([1, 2, 3, 5])
        layers = "num_layers" if make is xglm else "num_hidden_layers"
        act = "activation_function" if make is xglm else "hidden_act"
        return make(heads * 8 * rng.randint(1, 8), heads, 8 * rng.randint(4, 30), dtype, **{
            layers: rng.randint(1, 4), act: rng.choice(["gelu", "gelu_new", "relu"]),
            "scale_embedding": rng.random() < 0.7, "tie_word_embeddings": rng.random() < 0.6})
    return drawn


def draw_codegen(rng, dtype):
    heads, size = 4 * rng.choice([1, 2]), 8 * rng.randint(1, 6)
    return codegen(heads * size, heads, dtype, n_layer=rng.randint(1, 4),
                   n_inner=rng.choice([None, 136]), rotary_dim=rng.choice([2, 4, 8]),
                   tie_word_embeddings=False)


def draw_indexed(make):
    """In 16 bits all tokens are chosen: a score that is rounded otherwise changes the choice."""
    def drawn(rng, dtype):
        heads, groups = rng.choice([1, 2, 3, 8, 17]), rng.choice([1, 2, 3])
        layers = rng.randint(1, 4)
        count = groups * rng.randint(2, 5)
        full = dtype == "float32"
        taken = rng.randint(1, groups) if full else groups
        rope = 2 * rng.randint(1, 16)
        made = make(
            8 * heads * rng.randint(1, 5), heads, 8 * rng.randint(4, 40), dtype,
            num_hidden_layers=layers, n_group=groups, topk_group=taken, n_routed_experts=count,
            num_experts_per_tok=rng.randint(1, count // groups * taken) if full else count,
            moe_intermediate_size=8 * rng.randint(2, 20), n_shared_experts=rng.randint(1, 3),
            norm_topk_prob=rng.random() < 0.7, routed_scaling_factor=rng.choice([1.0, 2.5]),
            first_k_dense_replace=rng.randint(0, layers), kv_lora_rank=2 * rng.randint(4, 70),
            qk_rope_head_dim=rope, q_lora_rank=8 * rng.randint(2, 20),
            qk_nope_head_dim=2 * rng.randint(2, 70), v_head_dim=rng.randint(4, 140),
            attention_bias=rng.random() < 0.4, rope_theta=rng.choice([1e4, 1e6]),
            index_n_heads=rng.choice([16, 20, 32]), index_head_dim=rope + 2 * rng.randint(0, 20),
            index_topk=rng.choice([1, 5, 16, 40]) if full else 2048)
        if rng.random() < 0.4:
            made["mlp_layer_types"] = [rng.choice(["dense", "sparse"]) for _ in range(layers)]
        if make is glm_moe_dsa and rng.random() < 0.5:
            made["indexer_types"] = ["full"] + [rng.choice(["full", "shared"])
                                                for _ in range(layers - 1)]
        elif make is glm_moe_dsa and rng.random() < 0.5:
            made |= {"index_topk_freq": rng.randint(1, 3), "index_skip_topk_offset":
                     rng.randint(1, 2)}
        return made
    return drawn


DRAWS = {"deepseek_v32": draw_indexed(deepseek_v32), "glm_moe_dsa": draw_indexed(glm_moe_dsa),
         "apertus": draw_apertus, "codegen": draw_codegen,
         "xglm": draw_fairseq(xglm), "biogpt": draw_fairseq(biogpt),
         "gemma3n": draw_gemma3n, "phimoe": draw_phimoe,
         "cohere2_moe": draw_cohere2_moe, "nanochat": draw_nanochat,
         "jais2": draw_jais2, "vaultgemma": draw_vaultgemma, "gpt_neo": draw_gpt_neo,
         "hyperclovax": draw_hyperclovax, "ministral": draw_ministral,
         "ministral3": draw_ministral3, "cwm": draw_cwm, "youtu": draw_youtu,
         "mistral4": draw_mistral4, "bloom": draw_by_distance(bloom), "mpt": draw_by_distance(mpt),
         **{make.__name__: draw_granite_swa(make) for make in (granite_swa, granitemoe_swa)},
         **{make.__name__: draw_scored(make) for make in (exaone_moe, hy_v3, afmoe, mellum)}}

CASES = {
    "recent-jais2": (None, jais2(96, 4, 2, 136)),
    "recent-ministral": (None, ministral(96, 4, 2, 136, num_hidden_layers=3, layer_types=[
        WINDOWS[0], WINDOWS[1], WINDOWS[1]])),
    "recent-files-ministral": ("plain", ministral(48, 3, 1, 64, "bfloat16", **TINY)),
    "recent-cwm": (None, cwm(96, 4, 2, 136)),
    "recent-youtu": (None, youtu(64, 4, 96)),
    "recent-files-youtu": ("plain", youtu(48, 2, 64, q_lora_rank=None, attention_bias=True,
                                          **TINY)),
    "recent-exaone-moe": (None, exaone_moe(96, 4, 2, 136)),
    "recent-files-exaone-moe": ("plain", exaone_moe(48, 2, 1, 40, n_group=2, topk_group=1,
                                                    **TINY)),
    "recent-hy3": (None, hy_v3(96, 4, 2, 136)),
    "recent-files-hy3": ("plain", hy_v3(48, 2, 1, 40, **TINY)),
    "recent-afmoe": (None, afmoe(96, 4, 2, 136)),
    "recent-files-afmoe": ("plain", afmoe(48, 2, 1, 40, **TINY)),
    "recent-mellum": (None, mellum(96, 4, 2, 136)),
    "recent-files-mellum": ("plain", mellum(48, 2, 1, 40, **{**TINY, "num_hidden_layers": 3})),
    "recent-vaultgemma": (None, vaultgemma(96, 4, 2, 136, head_dim=32, sliding_window=16)),
    "recent-files-vaultgemma": ("plain", vaultgemma(48, 2, 1, 64, "bfloat16", head_dim=32,
                                                    **TINY)),
    "recent-hyperclovax": (None, hyperclovax(96, 4, 2, 136)),
    "recent-files-hyperclovax": ("plain", hyperclovax(48, 2, 1, 64, "bfloat16", **TINY,
                                                      attention_multiplier=None,
                                                      residual_multiplier=1.0)),
    "recent-hyperclovax-pre": (None, hyperclovax(96, 4, 2, 136, use_post_norm=False)),
    "recent-gpt-neo": (None, gpt_neo(96, 4, [[["global", "local"], 2]])),
    "recent-files-gpt-neo": ("plain", gpt_neo(48, 2, [[["local"], 1], [["global"], 1]], "bfloat16",
                                              intermediate_size=64, **TINY)),
    "recent-mistral4": (None, mistral4(64, 4, 96)),
    "recent-files-mistral4": ("plain", mistral4(48, 2, 64, "bfloat16", q_lora_rank=None, n_group=1,
                                                topk_group=1, n_routed_experts=4,
                                                num_experts_per_tok=4, vocab_size=67)),
    "recent-ministral3-long": (None, ministral3(96, 4, 2, 136, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "original_max_position_embeddings": 16, "mscale": 1.0,
        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})),
    "recent-olmo-clipped": (None, olmo(96, 4, 2, 136, clip_qkv=0.5)),
    "recent-bloom": (None, bloom(96, 6)),
    "recent-files-bloom": ("plain", bloom(48, 3, "bfloat16", n_layer=2, vocab_size=67)),
    "recent-mpt": (None, mpt(96, 6, attn={"clip_qkv": 0.5})),
    "recent-files-mpt": ("plain", mpt(48, 3, "bfloat16", n_layers=2, vocab_size=67)),
}

# Of 2026, later: their numbers make their seeds.
SECOND_CASES = {
    "recent-granite-swa": (None, granite_swa(96, 4, 2, 136, layer_rope_theta=[
        0, 1e4, 1e4, 1e4, 0])),
    "recent-granite-moe-swa": (None, granitemoe_swa(96, 4, 2, 56, shared_intermediate_size=40,
                                                    layer_rope_theta=[1e6] + [1e4] * 3 + [1e6])),
    "recent-nanochat": (None, nanochat(96, 4, 2, 136)),
    "recent-files-nanochat": ("plain", nanochat(48, 3, 1, 64, "bfloat16", **TINY)),
    "recent-cohere2-moe": (None, cohere2_moe(96, 4, 2, 56)),
    "recent-files-cohere2-moe": ("plain", cohere2_moe(
        48, 2, 1, 40, expert_selection_fn="sigmoid", num_experts_per_tok=6, rms_norm_eps=1e-5,
        shared_expert_combination_strategy="sum",
        **{**TINY, "num_hidden_layers": 2, "mlp_layer_types": ["dense", "sparse"],
           "layer_types": [WINDOWS[1], WINDOWS[0]]})),
    "recent-apertus": (None, apertus(96, 4, 2, 136)),
    "recent-files-apertus": ("plain", apertus(48, 3, 1, 64, "bfloat16", **TINY)),
    "gguf-gemma3n": ({"": "Q8_0"}, gemma3n(
        64, 4, 2, 96, vocab_size=67, vocab_size_per_layer_input=67, max_position_embeddings=128,
        torch_dtype="float32", hidden_size_per_layer_input=32, laurel_rank=32)),
    "recent-gemma3n": (None, gemma3n(96, 6, 2, 136)),
    "recent-files-gemma3n": ("plain", gemma3n(
        48, 3, 1, 64, "bfloat16", **{**TINY, "num_hidden_layers": 3, "num_kv_shared_layers": 1,
                                     "layer_types": [WINDOWS[1], WINDOWS[0], WINDOWS[1]],
                                     "activation_sparsity_pattern": [0.95, 0.0, 0.0],
                                     "vocab_size_per_layer_input": 60})),
    "recent-phimoe": (None, phimoe(96, 4, 2, 56)),
    "recent-files-phimoe": ("plain", phimoe(48, 3, 1, 40, "bfloat16", num_local_experts=2, **TINY)),
    "recent-deepseek-v32": (None, deepseek_v32(96, 4, 136)),
    "recent-files-deepseek-v32": ("plain", deepseek_v32(
        48, 3, 64, n_group=1, topk_group=1, n_routed_experts=3, moe_intermediate_size=24,
        num_hidden_layers=2, vocab_size=67, index_topk=5, attention_bias=True)),
    "recent-glm-moe-dsa": (None, glm_moe_dsa(96, 4, 136, num_hidden_layers=4, indexer_types=[
        "full", "shared", "full", "shared"])),
    "recent-files-glm-moe-dsa": ("plain", glm_moe_dsa(
        48, 3, 64, "bfloat16", n_group=1, topk_group=1, n_routed_experts=3, num_experts_per_tok=3,
        moe_intermediate_size=24, num_hidden_layers=2, vocab_size=67, index_topk=2048)),
    "recent-codegen": (None, codegen(96, 4, rotary_dim=16)),
    "recent-files-codegen": ("plain", codegen(64, 4, "bfloat16", rotary_dim=8, n_layer=2,
                                              vocab_size=67)),
    "recent-xglm": (None, xglm(96, 6, 136)),
    "recent-files-xglm": ("plain", xglm(48, 3, 64, "bfloat16", num_layers=2, vocab_size=67)),
    "recent-files-biogpt": ("plain", biogpt(48, 3, 64, "bfloat16", num_hidden_layers=2,
                                            vocab_size=67)),
}
