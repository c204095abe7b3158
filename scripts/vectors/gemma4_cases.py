"""The models of Gemma 4, as model_cases.py has the others: how each is saved, or None for dummy
weights, and its config.json. Published files spell their sizes as `gemma4` does; transformers 5.23
writes per_layer_config instead, which the cases with weights have where it saves them."""

from model_cases import llama_like, with_tower, without

KINDS = ["sliding_attention", "full_attention"]
TOWER = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8,
         "intermediate_size": 16, "num_hidden_layers": 1, "patch_size": 2,
         "position_embedding_size": 16}
TINY = {"vocab_size": 67, "vocab_size_per_layer_input": 67, "max_position_embeddings": 128}


def gemma4(*args, **more):
    """No embeddings of layers, as in the models of 26B and 31B."""
    rope = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                               "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    made = llama_like("Gemma4ForCausalLM", "gemma4_text", *args, **{
        "hidden_activation": "gelu_pytorch_tanh", "head_dim": 16, "global_head_dim": 32,
        "num_hidden_layers": 4, "layer_types": KINDS * 2, "sliding_window": 11,
        "rope_parameters": rope, "rms_norm_eps": 1e-6, "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 199, "num_kv_shared_layers": 0, "attention_k_eq_v": False,
        "enable_moe_block": False, "use_double_wide_mlp": False, "tie_word_embeddings": True,
        "use_bidirectional_attention": None, "num_experts": None, "top_k_experts": None,
        "moe_intermediate_size": None, "final_logit_softcapping": 30.0, **more})
    return without(made, "hidden_act")


def small(*args, **more):
    """Embeddings of layers and shared K and V, as in E2B and E4B."""
    return gemma4(*args, **{"hidden_size_per_layer_input": 24, "num_kv_shared_layers": 3,
                            "num_hidden_layers": 6, "layer_types": KINDS * 3,
                            "use_double_wide_mlp": True, **more})


def large(*args, **more):
    """V is K in full layers, which have other heads, as in 31B."""
    return gemma4(*args, **{"attention_k_eq_v": True, "num_global_key_value_heads": 1,
                            "use_bidirectional_attention": "vision", **more})


def experts(*args, **more):
    """The same with experts beside the MLP, as in 26B-A4B."""
    return large(*args, **{"enable_moe_block": True, "num_experts": 7, "top_k_experts": 3,
                           "moe_intermediate_size": 40, **more})


UNKNOWN = ("hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block",
           "num_experts", "top_k_experts", "moe_intermediate_size")  # to the model of 12B


def unified_text(text):
    return {**without(text, *UNKNOWN), "architectures": ["Gemma4UnifiedForCausalLM"],
            "model_type": "gemma4_unified_text"}


def unified(text, dtype="float32"):
    """The model of 12B, whose images pass a projection instead of a tower."""
    text = unified_text(text)
    made = with_tower("Gemma4UnifiedForConditionalGeneration", "gemma4_unified", text, dtype,
                      model_type="gemma4_unified_vision", patch_size=2, pooling_kernel_size=1,
                      mm_embed_dim=16, mm_posemb_size=4, output_proj_dims=text["hidden_size"])
    return {**made, "tie_word_embeddings": True}


def draw_gemma4(rng, dtype, make):
    kv_heads, full_heads = rng.choice([1, 2, 3]), rng.choice([1, 2])
    heads = kv_heads * full_heads * rng.choice([1, 2, 3])
    layers = rng.randint(2, 7)
    types = [rng.choice(KINDS) for _ in range(layers)]
    types[-1] = "full_attention"
    more = {"num_hidden_layers": layers, "head_dim": 2 * rng.randint(4, 40),
            "global_head_dim": 2 * rng.choice([8, 13, 32, 64, 128, 256]),
            "sliding_window": rng.choice([1, 5, 16, 17, 40, 300]), "layer_types": types,
            "final_logit_softcapping": rng.choice([None, 2.0, 30.0]),
            "attention_bias": rng.random() < 0.2, "rms_norm_eps": rng.choice([1e-5, 1e-6]),
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
                                   "partial_rotary_factor": rng.choice([0.25, 0.5, 0.3, 1.0])},
                "sliding_attention": {"rope_type": "default",
                                      "rope_theta": rng.choice([1e3, 1e4])}}}
    if make is small:
        shared = max([s for s in range(layers) if set(types[:layers - s]) == set(types)])
        more |= {"hidden_size_per_layer_input": rng.choice([7, 16, 30]),
                 "num_kv_shared_layers": rng.randint(0, shared),
                 "use_double_wide_mlp": rng.random() < 0.5}
    else:
        more |= {"attention_k_eq_v": rng.random() < 0.8, "num_global_key_value_heads": full_heads}
    if make is experts:  # in a run of 16 bits all experts are taken, as in parity.py
        count = rng.randint(2, 8)
        more |= {"num_experts": count, "moe_intermediate_size": 8 * rng.randint(2, 12),
                 "top_k_experts": rng.randint(1, count) if dtype == "float32" else count}
    more["vocab_size_per_layer_input"] = 199
    return make(8 * rng.randint(2, 20), heads, kv_heads, 8 * rng.randint(3, 24), dtype, **more)


def with_images(text, dtype="float32"):
    return {**with_tower("Gemma4ForConditionalGeneration", "gemma4", text, dtype, **TOWER),
            "tie_word_embeddings": True}


DRAWS = {"gemma4_images": lambda rng, dtype: with_images(draw_gemma4(rng, dtype, small), dtype),
         "gemma4_unified": lambda rng, dtype: unified(draw_gemma4(rng, dtype, large), dtype),
         "gemma4_unified_text": lambda rng, dtype: unified_text(draw_gemma4(rng, dtype, large)),
         "gemma4_small": lambda rng, dtype: draw_gemma4(rng, dtype, small),
         "gemma4_large": lambda rng, dtype: draw_gemma4(rng, dtype, large),
         "gemma4_experts": lambda rng, dtype: draw_gemma4(rng, dtype, experts)}

CASES = {
    "gemma4-e": (None, small(88, 6, 2, 104)),
    "gemma4-e-bf16": (None, small(72, 4, 1, 96, "bfloat16", use_double_wide_mlp=False,
                                  num_hidden_layers=4, layer_types=KINDS * 2, head_dim=8,
                                  num_kv_shared_layers=2, global_head_dim=16)),
    "gemma4-31b": (None, large(96, 6, 3, 120, head_dim=32, global_head_dim=512,
                               final_logit_softcapping=None)),
    "gemma4-26b": (None, experts(96, 6, 2, 80)),
    "gemma4-files-e": ("plain", small(40, 2, 1, 48, **TINY)),
    "gemma4-files-26b": ("plain", experts(40, 4, 2, 48, "bfloat16", top_k_experts=7,
                                          num_hidden_layers=2, layer_types=KINDS, head_dim=8,
                                          global_head_dim=16, **TINY)),
    "gemma4-files-images": ("plain", with_images(small(40, 2, 1, 48, **TINY))),
    "gemma4-files-12b": ("plain", unified(large(48, 4, 2, 56, num_hidden_layers=2,
                                                layer_types=KINDS, **TINY), "bfloat16")),
}
