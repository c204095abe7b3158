"""Mixtures of experts of 2024 and 2025 for the reference vectors and `make parity`.

As decoder_cases.py: `DRAWS` draws a random config.json of a family, `CASES` are the committed ones.
"""

from decoder_cases import ALPHA, common, sizes
from model_cases import TINY, llama_like


def granitemoe(*args, **more):
    return llama_like("GraniteMoeForCausalLM", "granitemoe", *args, **{
        "rope_theta": 1e4, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "attention_multiplier": 0.0625, "logits_scaling": 6.0, "num_local_experts": 6,
        "num_experts_per_tok": 3, **more})


def granitemoeshared(*args, **more):
    return {**granitemoe(*args, **{"shared_intermediate_size": 56, **more}),
            "architectures": ["GraniteMoeSharedForCausalLM"], "model_type": "granitemoeshared"}


def flex_olmo(*args, **more):
    return llama_like("FlexOlmoForCausalLM", "flex_olmo", *args, **{
        "rope_theta": 5e5, "pad_token_id": 0, "num_experts": 6, "num_experts_per_tok": 3, **more})


def hunyuan_moe(*args, **more):
    return llama_like("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", *args, **{
        "rope_theta": 1e4, "head_dim": 32, "pad_token_id": 0, "use_qk_norm": True,
        "num_experts": 6, "moe_topk": 3, **more})


def draw(make):
    """A run of 16 bits takes all experts, as in parity.py."""
    def drawn(rng, dtype):
        hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
        count = rng.randint(2, 7)
        top = rng.randint(1, count) if dtype == "float32" else count
        more = {**common(rng), "attention_bias": rng.random() < 0.3, "num_experts_per_tok": top,
                "tie_word_embeddings": rng.random() < 0.3, "rms_norm_eps": rng.choice([1e-5, 1e-6])}
        if make in (granitemoe, granitemoeshared):
            more |= {"num_local_experts": count, "residual_multiplier": rng.choice([0.22, 0.5]),
                     "logits_scaling": rng.choice([0.5, 3.0])}
        if make is granitemoeshared:
            more["shared_intermediate_size"] = 8 * rng.randint(2, 20)
        if make is flex_olmo:
            more |= {"num_experts": count, "norm_topk_prob": rng.random() < 0.5}
        if make is hunyuan_moe:
            layers = more["num_hidden_layers"]
            del more["num_experts_per_tok"]
            more |= {"num_experts": count, "head_dim": head_dim + 2 * rng.randint(0, 4),
                     "moe_topk": rng.choice([top, [top] * layers])}
            if rng.random() < 0.5:
                more["rope_scaling"] = {**ALPHA, "alpha": rng.choice([50.0, 1000.0])}
        return make(hidden, heads, kv_heads, mlp, dtype, **more)
    return drawn


DRAWS = {make.__name__: draw(make)
         for make in (granitemoe, granitemoeshared, flex_olmo, hunyuan_moe)}

CASES = {
    "mixture-granitemoe": (None, granitemoe(96, 4, 2, 56)),
    "mixture-granitemoeshared-bf16": (None, granitemoeshared(
        64, 4, 1, 48, "bfloat16", num_local_experts=4, num_experts_per_tok=4)),
    "mixture-files-granitemoeshared": ("plain", granitemoeshared(48, 2, 1, 40, **TINY)),
    "mixture-flex-olmo": (None, flex_olmo(96, 4, 2, 56, norm_topk_prob=True)),
    "mixture-files-flex-olmo": ("plain", flex_olmo(48, 2, 1, 40, **TINY)),
    "mixture-hunyuan": (None, hunyuan_moe(96, 4, 2, 56, moe_topk=[3, 3], num_hidden_layers=2,
                                          rope_scaling={**ALPHA, "alpha": 50.0})),
    "mixture-files-hunyuan": ("plain", hunyuan_moe(48, 2, 1, 40, **TINY)),
}
