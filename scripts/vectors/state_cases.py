"""The models with layers that keep a state, as model_cases.py has the others: how each is saved, or
None for dummy weights, and its config.json. The run of 105 tokens crosses the border of a chunk of
transformers' (64), and its greedy part goes through its recurrent form."""

import torch

from model_cases import TOWER, llama_like, with_tower, without

STATE_TINY = {"vocab_size": 67, "max_position_embeddings": 128}


def lfm2(*args, **more):
    """block_ff_dim is written for an MLP of two matrices; transformers makes a third smaller."""
    made = llama_like("Lfm2ForCausalLM", "lfm2", *args, **{
        "norm_eps": 1e-5, "rope_theta": 1e6, "conv_L_cache": 3, "conv_bias": False,
        "block_multiple_of": 16, "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "conv"], **more})
    return without(made, "hidden_act")


def lfm2_moe(*args, **more):
    return without(lfm2(*args, **{
        "architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "num_dense_layers": 1,
        "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
        "norm_topk_prob": True, "use_expert_bias": True, "routed_scaling_factor": 1.0, **more}),
        "block_multiple_of")


def lfm3(*args, head_dim=16, **more):
    """Layers of three kinds: those with a window turn whole heads, the others half of each."""
    made = llama_like("Lfm3ForCausalLM", "lfm3", *args, **{
        "norm_eps": 1e-5, "conv_L_cache": 7, "conv_bias": False, "head_dim": head_dim,
        "sliding_window": 16, "num_hidden_layers": 4, "pad_token_id": 0,
        "layer_types": ["conv", "full_attention", "sliding_attention", "conv"], **more})
    turned = {"full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
                                 "partial_rotary_factor": 0.5},
              "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    return {**without(made, "hidden_act", "rope_theta", "rms_norm_eps"), "rope_parameters": turned}


LINEAR = {"linear_conv_kernel_dim": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
          "linear_key_head_dim": 16, "linear_value_head_dim": 24}
MOE = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 48,
       "shared_expert_intermediate_size": 56}


def qwen3_next(*args, **more):
    return llama_like("Qwen3NextForCausalLM", "qwen3_next", *args, **{
        "rope_theta": 1e6, "partial_rotary_factor": 0.25, "head_dim": 32, "num_hidden_layers": 4,
        "decoder_sparse_step": 1, "norm_topk_prob": True, **LINEAR, **MOE, **more})


def qwen3_5(*args, **more):
    """As published: rope_parameters with mrope keys, which change nothing for text."""
    rope = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    return llama_like("Qwen3_5ForCausalLM", "qwen3_5_text", *args, **{
        "rope_parameters": rope, "head_dim": 32, "num_hidden_layers": 4, **LINEAR, **more})


def qwen3_5_moe(*args, **more):
    return qwen3_5(*args, **{"architectures": ["Qwen3_5MoeForCausalLM"],
                             "model_type": "qwen3_5_moe_text", **MOE, **more})


def qwen3_5_images(text, dtype="float32"):
    moe = "Moe" if "num_experts" in text else ""
    made = with_tower(f"Qwen3_5{moe}ForConditionalGeneration", "qwen3_5" + ("_moe" if moe else ""),
                      text, dtype, **{**TOWER, "out_hidden_size": text["hidden_size"],
                                      "num_position_embeddings": 16})
    return {**made, "tie_word_embeddings": text.get("tie_word_embeddings", False)}


def olmo_hybrid(hidden, heads, *args, **more):
    """A gated DeltaNet with norms before its blocks, attention with norms behind them."""
    return llama_like("OlmoHybridForCausalLM", "olmo_hybrid", hidden, heads, *args, **{
        "num_hidden_layers": 4, "pad_token_id": 0, **LINEAR, "layer_types": [
            "linear_attention", "full_attention", "linear_attention", "linear_attention"], **more})


UNROTATED = {"rope_parameters": {"rope_type": "default", "rope_theta": None}}  # as published


MAMBA = {"mamba_expand": 2, "mamba_n_groups": 2, "mamba_d_state": 24, "mamba_d_conv": 4}


def granite_hybrid(hidden, heads, *args, **more):
    return llama_like("GraniteMoeHybridForCausalLM", "granitemoehybrid", hidden, heads, *args, **{
        "num_hidden_layers": 4, "mamba_n_heads": heads * 2, "mamba_d_head": hidden // heads,
        "layer_types": ["mamba", "attention", "mamba", "mamba"], "num_local_experts": 5,
        "num_experts_per_tok": 2, "shared_intermediate_size": 72, "embedding_multiplier": 3.0,
        "position_embedding_type": "nope", "residual_multiplier": 0.4,
        "attention_multiplier": 0.2, "logits_scaling": 2.0, **MAMBA, **more})


def bamba(hidden, heads, *args, **more):
    return llama_like("BambaForCausalLM", "bamba", hidden, heads, *args, **{
        "num_hidden_layers": 3, "mamba_n_heads": heads * 2, "mamba_d_head": "auto",
        "attn_layer_indices": [1], "rope_theta": 1e4, **MAMBA, **more})


def nemotron_h(hidden, heads, *args, **more):
    """A layer is one block, by its letter: Mamba-2, attention, an MLP or experts."""
    made = llama_like("NemotronHForCausalLM", "nemotron_h", hidden, heads, *args, **{
        "hybrid_override_pattern": "M*-ME", "mamba_num_heads": heads * 2, "mamba_head_dim": 12,
        "n_groups": 2, "ssm_state_size": 24, "conv_kernel": 4, "mlp_hidden_act": "relu2",
        "head_dim": 16, "n_routed_experts": 5, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "moe_intermediate_size": 40, "moe_shared_expert_intermediate_size": 56,
        "routed_scaling_factor": 2.5, "layer_norm_epsilon": 1e-5, **more})
    made["num_hidden_layers"] = len(made["hybrid_override_pattern"])
    return without(made, "hidden_act", "rope_theta", "rms_norm_eps")


MULTIPLIERS = {"embedding_multiplier": 3.0, "lm_head_multiplier": 0.5, "key_multiplier": 0.7,
               "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.6,
               "mlp_multipliers": [0.8, 1.7], "ssm_multipliers": [0.6, 1.2, 0.7, 1.4, 0.9],
               "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.35}


def falcon_h1(hidden, heads, *args, **more):
    """Attention and Mamba-2 side by side in every layer."""
    return llama_like("FalconH1ForCausalLM", "falcon_h1", hidden, heads, *args, **{
        "num_hidden_layers": 3, "mamba_n_heads": heads * 2, "mamba_d_head": 20,
        "mamba_d_ssm": heads * 40, "head_dim": 16, "rope_theta": 1e6, "mamba_n_groups": 2,
        "mamba_d_state": 24, "mamba_d_conv": 4, **MULTIPLIERS, **more})


def alone(architecture, kind, hidden, dtype="float32", **more):
    """No layer has attention."""
    made = {"architectures": [architecture], "model_type": kind, "hidden_size": hidden,
            "torch_dtype": dtype, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 199,
            "num_hidden_layers": 3, "conv_kernel": 4, "expand": 2, "use_bias": False,
            "use_conv_bias": True, "layer_norm_epsilon": 1e-5, "hidden_act": "silu"}
    return {**made, **more}


def mamba(*args, **more):
    return alone("MambaForCausalLM", "mamba", *args, **{
        "state_size": 16, "time_step_rank": "auto", "tie_word_embeddings": True, **more})


def falcon_mamba(*args, **more):
    return mamba(*args, **{"architectures": ["FalconMambaForCausalLM"],
                           "model_type": "falcon_mamba", "mixer_rms_eps": 1e-6, **more})


def mamba2(hidden, heads, *args, **more):
    return alone("Mamba2ForCausalLM", "mamba2", hidden, *args, **{
        "state_size": 24, "num_heads": heads, "head_dim": 2 * hidden // heads, "n_groups": 2,
        "tie_word_embeddings": False, **more})


def jamba(*args, **more):
    """Mamba-1, attention that nothing rotates, MLPs and experts."""
    made = llama_like("JambaForCausalLM", "jamba", *args, **{
        "num_hidden_layers": 4, "attn_layer_period": 3, "attn_layer_offset": 1,
        "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 5,
        "num_experts_per_tok": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
        "mamba_dt_rank": "auto", **more})
    return without(made, "rope_theta")


def draw_sizes(rng, head_dims):
    """hidden, heads, kv_heads, mlp, and what all have."""
    kv_heads, head_dim = rng.choice([1, 2, 3]), rng.choice(head_dims)
    heads = kv_heads * rng.choice([1, 2, 3])
    layers = rng.randint(2, 5)
    return (heads * head_dim, heads, kv_heads, 8 * rng.randint(4, 30)), head_dim, {
        "num_hidden_layers": layers, "rope_theta": rng.choice([1e4, 1e6]),
        "tie_word_embeddings": rng.random() < 0.4}


def draw_types(rng, layers, name):
    """At least one layer with attention, in any place."""
    types = [rng.choice([name, name, "full_attention"]) for _ in range(layers)]
    types[rng.randrange(layers)] = "full_attention"
    return types


def draw_lfm2(rng, dtype):
    sizes, _, more = draw_sizes(rng, [8, 16, 32, 48])
    return lfm2(*sizes, dtype, **more, conv_L_cache=rng.choice([2, 3, 4, 5]),
                conv_bias=rng.random() < 0.5, block_multiple_of=rng.choice([8, 24, 256]),
                block_ffn_dim_multiplier=rng.choice([1.0, 1.5]),
                layer_types=draw_types(rng, more["num_hidden_layers"], "conv"))


def draw_lfm3(rng, dtype):
    sizes, head_dim, more = draw_sizes(rng, [8, 16, 32, 48])
    types = draw_types(rng, more["num_hidden_layers"], "conv")
    types = [rng.choice([kind, "sliding_attention"]) for kind in types]
    if "full_attention" not in types:
        types[rng.randrange(len(types))] = "full_attention"
    return lfm3(*sizes, dtype, **more, head_dim=head_dim, conv_L_cache=rng.choice([3, 5, 7]),
                conv_bias=rng.random() < 0.5, sliding_window=rng.choice([5, 16, 30]),
                use_sandwich_norm=rng.random() < 0.7, use_attention_gate=rng.random() < 0.7,
                attention_bias=rng.random() < 0.3, layer_types=types)


def draw_lfm2_moe(rng, dtype):
    sizes, _, more = draw_sizes(rng, [8, 16, 32, 48])
    count = rng.randint(2, 6)
    return lfm2_moe(*sizes, dtype, **more, conv_L_cache=rng.choice([2, 3, 4, 5]),
                    conv_bias=rng.random() < 0.5, num_experts=count,
                    num_experts_per_tok=rng.randint(1, count) if dtype == "float32" else count,
                    num_dense_layers=rng.randint(0, 2), moe_intermediate_size=8 * rng.randint(3, 9),
                    norm_topk_prob=rng.random() < 0.7,
                    routed_scaling_factor=rng.choice([1.0, 1.8]),
                    layer_types=draw_types(rng, more["num_hidden_layers"], "conv"))


def draw_delta(rng, dtype, make):
    sizes, head_dim, more = draw_sizes(rng, [16, 32, 64])
    groups = rng.choice([1, 2, 3])
    if make is not qwen3_next:
        del more["rope_theta"]
    linear = {"linear_num_key_heads": groups, "linear_num_value_heads": groups *
              rng.choice([1, 2, 3]), "linear_key_head_dim": rng.choice([5, 16, 33, 64]),
              "linear_value_head_dim": rng.choice([7, 16, 40, 70, 128]),
              "linear_conv_kernel_dim": rng.choice([2, 3, 4, 6])}
    if make is not qwen3_5:  # in a run of 16 bits all experts are taken, as in parity.py
        count = rng.randint(2, 6)
        linear |= {"num_experts": count, "num_experts_per_tok":
                   rng.randint(1, count) if dtype == "float32" else count}
    return make(*sizes, dtype, **{**more, "head_dim": head_dim, **linear, "layer_types":
                                  draw_types(rng, more["num_hidden_layers"], "linear_attention")})


def draw_olmo_hybrid(rng, dtype):
    sizes, _, more = draw_sizes(rng, [16, 32, 48])
    groups, layers = rng.choice([1, 2, 3]), more["num_hidden_layers"]
    types = draw_types(rng, layers, "linear_attention")
    types[types.index("full_attention") - 1] = "linear_attention"
    linear = {"linear_num_key_heads": groups, "linear_num_value_heads": groups *
              rng.choice([1, 2, 3]), "linear_key_head_dim": rng.choice([5, 16, 33, 64]),
              "linear_value_head_dim": rng.choice([7, 16, 40, 70, 128]),
              "linear_conv_kernel_dim": rng.choice([2, 3, 4, 6]),
              "linear_allow_neg_eigval": rng.random() < 0.7}
    made = olmo_hybrid(*sizes, dtype, **{**more, **linear, "layer_types": types,
                                         "attention_bias": rng.random() < 0.3})
    return without(made, "rope_theta") | UNROTATED if rng.random() < 0.5 else made


def draw_mamba(rng, dtype, make):
    sizes, _, more = draw_sizes(rng, [16, 32, 48])
    layers = more["num_hidden_layers"]
    groups = rng.choice([1, 2])
    more |= {"mamba_n_groups": groups, "mamba_d_state": rng.choice([5, 16, 33, 64]),
             "mamba_d_conv": rng.choice([2, 3, 4]), "mamba_conv_bias": rng.random() < 0.7,
             "mamba_proj_bias": rng.random() < 0.3}
    types = draw_types(rng, layers, "mamba")
    if make is bamba:
        more["attn_layer_indices"] = [i for i, t in enumerate(types) if t != "mamba"]
        return make(*sizes, dtype, **more)
    count = rng.randint(0, 5)
    top = rng.randint(1, max(count, 1)) if dtype == "float32" else max(count, 1)
    return make(*sizes, dtype, **more, num_local_experts=count, num_experts_per_tok=top,
                layer_types=[t.replace("full_", "") for t in types],
                shared_intermediate_size=8 * rng.randint(3, 20),
                position_embedding_type=rng.choice(["nope", "rope"]))


def draw_nemotron_h(rng, dtype):
    sizes, head_dim, more = draw_sizes(rng, [16, 32, 48])
    pattern = [rng.choice("MM*-E") for _ in range(rng.randint(2, 6))] + ["*", rng.choice("ME-")]
    rng.shuffle(pattern)
    groups, expert_groups = rng.choice([1, 2, 3]), rng.choice([1, 1, 2])
    count = expert_groups * rng.randint(2, 4)
    taken = rng.randint(1, expert_groups) if dtype == "float32" else expert_groups
    top = rng.randint(1, count // expert_groups * taken) if dtype == "float32" else count
    return nemotron_h(*sizes, dtype, **{**more, "hybrid_override_pattern": "".join(pattern),
                      "head_dim": head_dim + 2 * rng.randint(0, 3), "n_groups": groups,
                      "mamba_num_heads": groups * rng.choice([1, 2, 5]),
                      "mamba_head_dim": rng.choice([7, 16, 40]), "conv_kernel": rng.choice([2, 4]),
                      "ssm_state_size": rng.choice([5, 16, 33]), "use_bias": rng.random() < 0.3,
                      "use_conv_bias": rng.random() < 0.7, "n_group": expert_groups,
                      "mlp_bias": "E" not in pattern and rng.random() < 0.5,
                      "topk_group": taken, "n_routed_experts": count, "num_experts_per_tok": top,
                      "norm_topk_prob": rng.random() < 0.7,
                      "moe_intermediate_size": 8 * rng.randint(2, 9),
                      "moe_shared_expert_intermediate_size": 8 * rng.randint(2, 9),
                      "moe_latent_size": rng.choice([None, 8 * rng.randint(2, 9)]),
                      "time_step_limit": rng.choice([[0.0, 1e9], [0.0, 1e9], [0.0005, 0.05]])})


def lower_steps(model, rng, dtype):
    """Steps about transformers' own time_step_min, of every second head or so."""
    for name, parameter in model.named_parameters():
        if name.endswith("dt_bias"):
            chosen = torch.tensor([rng.random() < 0.5 for _ in parameter])
            parameter.data = (parameter.data - 7.0 * chosen).to(dtype).float()


def draw_falcon_h1(rng, dtype):
    sizes, head_dim, more = draw_sizes(rng, [16, 32, 48])
    groups, dim = rng.choice([1, 2, 3]), rng.choice([7, 16, 40])
    heads = groups * rng.choice([1, 2, 5])
    drawn = {k: rng.choice([1.0, round(rng.uniform(0.2, 2), 3)]) for k, v in MULTIPLIERS.items()
             if not isinstance(v, list)}
    drawn |= {k: [round(rng.uniform(0.2, 2), 3) for _ in v] for k, v in MULTIPLIERS.items()
              if isinstance(v, list)}
    return falcon_h1(*sizes, dtype, **{**more, "head_dim": head_dim + 2 * rng.randint(0, 3),
                     "mamba_n_groups": groups, "mamba_n_heads": heads, "mamba_d_head": dim,
                     "mamba_d_ssm": heads * dim, "mamba_d_state": rng.choice([5, 16, 33]),
                     "mamba_d_conv": rng.choice([2, 3, 4]),
                     "mamba_conv_bias": rng.random() < 0.7, "mamba_rms_norm": rng.random() < 0.5,
                     "mamba_norm_before_gate": rng.random() < 0.5, **drawn})


def draw_alone(rng, dtype, make):
    more = {"num_hidden_layers": rng.randint(1, 4), "conv_kernel": rng.choice([2, 3, 4]),
            "state_size": rng.choice([5, 16, 33]), "use_bias": rng.random() < 0.3,
            "use_conv_bias": rng.random() < 0.7, "expand": rng.choice([1, 2, 3]),
            "tie_word_embeddings": rng.random() < 0.5}
    if make is mamba2:
        groups, head_dim = rng.choice([1, 2, 3]), rng.choice([6, 16, 40])
        heads = groups * rng.choice([1, 2, 5]) * more["expand"]
        return mamba2(heads * head_dim // more["expand"], heads, dtype, **{
            **more, "head_dim": head_dim, "n_groups": groups,
            "time_step_limit": rng.choice([[0.0, 6e4], [0.3, 0.8]])})
    return make(8 * rng.randint(3, 20), dtype, **{
        **more, "time_step_rank": rng.choice(["auto", 3, 10])})


def draw_jamba(rng, dtype):
    sizes, _, more = draw_sizes(rng, [16, 32, 48])
    period, sparse, count = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 5)
    top = rng.randint(1, count) if dtype == "float32" else count
    return jamba(*sizes, dtype, **{
        **more, "attn_layer_period": period, "attn_layer_offset": rng.randrange(period),
        "expert_layer_period": sparse, "expert_layer_offset": rng.randrange(sparse),
        "num_experts": count, "num_experts_per_tok": top, "mamba_d_conv": rng.choice([2, 3, 4]),
        "mamba_d_state": rng.choice([5, 16, 33]), "mamba_expand": rng.choice([1, 2, 3]),
        "mamba_dt_rank": rng.choice(["auto", 3, 10]), "mamba_conv_bias": rng.random() < 0.7,
        "mamba_proj_bias": rng.random() < 0.3})


STATE_DRAWS = {"mamba": lambda rng, dtype: draw_alone(rng, dtype, mamba),
               "falcon_mamba": lambda rng, dtype: draw_alone(rng, dtype, falcon_mamba),
               "mamba2": lambda rng, dtype: draw_alone(rng, dtype, mamba2), "jamba": draw_jamba,
               "olmo_hybrid": draw_olmo_hybrid,
               "lfm2": draw_lfm2, "lfm2_moe": draw_lfm2_moe, "lfm3": draw_lfm3,
               "granite_hybrid": lambda rng, dtype: draw_mamba(rng, dtype, granite_hybrid),
               "nemotron_h": draw_nemotron_h, "falcon_h1": draw_falcon_h1,
               "bamba": lambda rng, dtype: draw_mamba(rng, dtype, bamba),
               "qwen3_next": lambda rng, dtype: draw_delta(rng, dtype, qwen3_next),
               "qwen3_5": lambda rng, dtype: draw_delta(rng, dtype, qwen3_5),
               "qwen3_5_moe": lambda rng, dtype: draw_delta(rng, dtype, qwen3_5_moe),
               "qwen3_5_images": lambda rng, dtype: qwen3_5_images(
                   draw_delta(rng, dtype, qwen3_5), dtype),
               "qwen3_5_moe_images": lambda rng, dtype: qwen3_5_images(
                   draw_delta(rng, dtype, qwen3_5_moe), dtype)}

STATE_CASES = {
    "state-lfm2": (None, lfm2(96, 6, 2, 150)),
    "state-lfm2-old-bf16": (None, without(lfm2(
        64, 4, 1, 160, "bfloat16", full_attn_idxs=[1, 2], conv_bias=True, conv_L_cache=4,
        block_ff_dim=200, block_ffn_dim_multiplier=1.3, tie_embedding=False),
        "layer_types", "intermediate_size")),
    "state-files-lfm2": ("plain", lfm2(48, 3, 1, 96, block_auto_adjust_ff_dim=False,
                                       tie_word_embeddings=True, **STATE_TINY)),
    "state-qwen3-next": (None, qwen3_next(96, 4, 2, 112)),
    "state-qwen3-next-dense-bf16": (None, qwen3_next(
        64, 2, 1, 96, "bfloat16", num_experts=0, full_attention_interval=3,
        linear_num_key_heads=1, linear_num_value_heads=3, linear_key_head_dim=20)),
    "state-qwen3-5": (None, qwen3_5(96, 4, 2, 112, linear_conv_kernel_dim=3)),
    "state-qwen3-5-bf16": (None, qwen3_5(64, 4, 1, 96, "bfloat16", tie_word_embeddings=True,
                                         num_hidden_layers=3, layer_types=[
        "linear_attention", "full_attention", "linear_attention"])),
    "state-files-qwen3-5-moe": ("plain", qwen3_5_moe(48, 2, 1, 64, num_hidden_layers=2,
                                                     full_attention_interval=2, **STATE_TINY)),
    "state-files-qwen3-5-moe-stacked": ("stacked", qwen3_5_moe(
        48, 2, 1, 64, "bfloat16", num_hidden_layers=2, full_attention_interval=2, **STATE_TINY)),
    "state-granite-hybrid": (None, granite_hybrid(96, 4, 2, 56)),
    "state-granite-hybrid-dense": (None, granite_hybrid(
        64, 2, 1, 96, num_local_experts=0, mamba_n_groups=1, rope_theta=1e4,
        position_embedding_type="rope", mamba_proj_bias=True)),
    "state-bamba": (None, bamba(96, 6, 2, 120)),
    "state-files-granite-hybrid": ("plain", granite_hybrid(48, 2, 1, 40, num_hidden_layers=2,
                                                           layer_types=["mamba", "attention"],
                                                           **STATE_TINY)),
    "state-files-bamba": ("plain", bamba(48, 2, 1, 64, num_hidden_layers=2, **STATE_TINY)),
    "state-files-qwen3-5-images": ("plain", qwen3_5_images(qwen3_5(
        48, 2, 1, 64, num_hidden_layers=2, full_attention_interval=2, **STATE_TINY))),
    "state-lfm2-moe": (None, lfm2_moe(96, 6, 2, 150)),
    "state-files-lfm2-moe": ("plain", lfm2_moe(
        48, 3, 1, 96, "bfloat16", num_experts=4, num_experts_per_tok=4, moe_intermediate_size=40,
        num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], **STATE_TINY)),
    "state-nemotron-h": (None, nemotron_h(72, 3, 1, 100)),
    "state-nemotron-h-dense-bf16": (None, nemotron_h(
        64, 4, 2, 120, "bfloat16", hybrid_override_pattern="M-*M-", use_bias=True, mlp_bias=True,
        n_groups=1)),
    "state-files-nemotron-h": ("plain", nemotron_h(
        48, 2, 1, 64, hybrid_override_pattern="ME*", n_group=2, topk_group=1, n_routed_experts=6,
        **STATE_TINY)),
    "state-falcon-h1": (None, falcon_h1(72, 3, 1, 100)),
    "state-falcon-h1-normed-bf16": (None, falcon_h1(
        64, 4, 2, 120, "bfloat16", mamba_rms_norm=True, mamba_norm_before_gate=False,
        mamba_d_ssm=None, mamba_d_head="auto", mamba_n_groups=1)),
    "state-files-falcon-h1": ("plain", falcon_h1(48, 2, 1, 64, mamba_rms_norm=True,
                                                 num_hidden_layers=2, **STATE_TINY)),
    # Nemotron 3 Super: experts of a smaller vector; steps within bounds
    "state-files-nemotron-h-super": ("plain", nemotron_h(
        48, 2, 1, 64, hybrid_override_pattern="ME*E", moe_latent_size=24,
        time_step_limit=[0.3, 0.8], **STATE_TINY)),
    "state-lfm3": (None, lfm3(96, 6, 2, 150)),
    "state-files-lfm3": ("plain", lfm3(48, 3, 1, 96, "bfloat16", num_hidden_layers=3,
                                       layer_types=["sliding_attention", "conv",
                                                    "full_attention"],
                                       use_sandwich_norm=False, use_attention_gate=False,
                                       **STATE_TINY)),
    "state-mamba": (None, mamba(72)),
    "state-mamba-bias-bf16": (None, mamba(64, "bfloat16", use_bias=True, use_conv_bias=False,
                                          tie_word_embeddings=False, intermediate_size=112,
                                          time_step_rank=7, state_size=9, conv_kernel=3)),
    "state-files-mamba": ("plain", mamba(40, vocab_size=67, num_hidden_layers=2)),
    "state-falcon-mamba": (None, falcon_mamba(72)),
    "state-files-falcon-mamba": ("plain", falcon_mamba(40, "bfloat16", vocab_size=67,
                                                       num_hidden_layers=2)),
    "state-mamba2": (None, mamba2(72, 6)),
    "state-files-mamba2": ("plain", mamba2(40, 4, vocab_size=67, num_hidden_layers=2,
                                           time_step_limit=[0.3, 0.8])),
    "state-jamba": (None, jamba(96, 6, 2, 120)),
    "state-jamba-dense-bf16": (None, jamba(64, 4, 1, 96, "bfloat16", num_experts=1,
                                           num_experts_per_tok=1, mamba_proj_bias=True,
                                           num_hidden_layers=2, vocab_size=67)),
    "state-files-jamba": ("plain", jamba(48, 3, 1, 64, num_hidden_layers=3, attn_layer_period=2,
                                         **STATE_TINY)),
    "state-files-olmo-hybrid": ("plain", olmo_hybrid(48, 3, 1, 64, **STATE_TINY)),
    "state-files-olmo-hybrid-published": ("published", without(olmo_hybrid(
        48, 2, 2, 40, "bfloat16", num_hidden_layers=2, linear_num_key_heads=1,
        linear_num_value_heads=2, linear_key_head_dim=12, linear_allow_neg_eigval=False,
        layer_types=["linear_attention", "full_attention"], **STATE_TINY), "rope_theta")
                                          | UNROTATED),
}
