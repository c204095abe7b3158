"""Decoders of 2025 and 2026 for the reference vectors and `make parity`.

As decoder_cases.py: `DRAWS` draws a random config.json of a family, `CASES` are the committed ones.
"""

from decoder_cases import common, sizes
from model_cases import LLAMA3, TINY, llama_like, v5

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


DRAWS = {"jais2": draw_jais2, "ministral": draw_ministral, "cwm": draw_cwm, "youtu": draw_youtu}

CASES = {
    "recent-jais2": (None, jais2(96, 4, 2, 136)),
    "recent-ministral": (None, ministral(96, 4, 2, 136, num_hidden_layers=3, layer_types=[
        WINDOWS[0], WINDOWS[1], WINDOWS[1]])),
    "recent-files-ministral": ("plain", ministral(48, 3, 1, 64, "bfloat16", **TINY)),
    "recent-cwm": (None, cwm(96, 4, 2, 136)),
    "recent-youtu": (None, youtu(64, 4, 96)),
    "recent-files-youtu": ("plain", youtu(48, 2, 64, q_lora_rank=None, attention_bias=True,
                                          **TINY)),
}
