"""More models for the reference vectors and `make parity`: decoders whose parts stand otherwise.

As model_cases.py. `DRAWS` has a function per family that draws a random config.json; `CASES` are
the committed ones, which a number of their own keeps apart from those of model_cases.py.
"""

from model_cases import GGUF_TINY, TINY, llama_like, v5, without

LAYERS = {"vocab_size": 199, "num_hidden_layers": 2, "max_position_embeddings": 256}


def gpt_neox(hidden, heads, mlp, dtype="float32", **more):
    """Pythia as published: rotary_pct and rotary_emb_base."""
    return {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox",
            "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": mlp,
            "hidden_act": "gelu", "rotary_pct": 0.25, "rotary_emb_base": 10000,
            "layer_norm_eps": 1e-5, "torch_dtype": dtype, "bos_token_id": 1, "eos_token_id": 2,
            **LAYERS, **more}


def falcon(hidden, heads, dtype="float32", **more):
    return {"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": hidden,
            "num_attention_heads": heads, "alibi": False, "bias": False, "multi_query": True,
            "new_decoder_architecture": False, "parallel_attn": True, "torch_dtype": dtype,
            "bos_token_id": 1, "eos_token_id": 2, **LAYERS, **more}


def stablelm(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    made = llama_like("StableLmForCausalLM", "stablelm", hidden, heads, kv_heads, mlp, dtype,
                      **{"rope_theta": 10000.0, "layer_norm_eps": 1e-5,
                         "partial_rotary_factor": 0.25, **more})
    return made


def sizes(rng, head_dims=(16, 32, 48, 64, 80)):
    """hidden, heads, kv_heads, mlp, head_dim."""
    kv_heads, head_dim = rng.choice([1, 2, 3]), rng.choice(head_dims)
    heads = kv_heads * rng.choice([1, 2, 3, 4])
    return heads * head_dim, heads, kv_heads, 8 * rng.randint(4, 40), head_dim


def common(rng):
    return {"num_hidden_layers": rng.randint(1, 4)}


def draw_gpt_neox(rng, dtype):
    hidden, heads, _, mlp, _ = sizes(rng)
    return gpt_neox(hidden, heads, mlp, dtype, **common(rng),
                    rotary_pct=rng.choice([0.25, 0.5, 1.0]),
                    rotary_emb_base=rng.choice([10000, 500000]),
                    use_parallel_residual=rng.random() < 0.7, attention_bias=rng.random() < 0.8,
                    hidden_act=rng.choice(["gelu", "gelu_new", "relu"]),
                    layer_norm_eps=rng.choice([1e-5, 1e-3]),
                    tie_word_embeddings=rng.random() < 0.3)


def draw_falcon(rng, dtype):
    hidden, heads, kv_heads, mlp, _ = sizes(rng)
    new = rng.random() < 0.5
    config = falcon(hidden, heads, dtype, **common(rng), new_decoder_architecture=new,
                    num_kv_heads=kv_heads if new else heads, multi_query=rng.random() < 0.6,
                    parallel_attn=new or rng.random() < 0.6, bias=rng.random() < 0.4,
                    tie_word_embeddings=rng.random() < 0.7)
    if rng.random() < 0.5:
        config["ffn_hidden_size"] = mlp
    if rng.random() < 0.6 and new:
        config["num_ln_in_parallel_attn"] = rng.choice([1, 2])
    return config


def draw_stablelm(rng, dtype):
    hidden, heads, kv_heads, mlp, _ = sizes(rng)
    return stablelm(hidden, heads, kv_heads, mlp, dtype, **common(rng),
                    use_qkv_bias=rng.random() < 0.5, use_parallel_residual=rng.random() < 0.5,
                    partial_rotary_factor=rng.choice([0.25, 0.5, 1.0]),
                    tie_word_embeddings=rng.random() < 0.3)


DRAWS = {"gpt_neox": draw_gpt_neox, "falcon": draw_falcon, "stablelm": draw_stablelm}

WIDE = {"vocab_size": 67, "max_position_embeddings": 128, "torch_dtype": "float32"}
CASES = {
    # GPT-NeoX: parallel blocks of two norms, q, k and v in groups, a quarter rotated
    "decoder-gpt-neox": (None, gpt_neox(96, 3, 136)),
    "decoder-gpt-neox-serial-bf16": (None, gpt_neox(128, 2, 176, "bfloat16", rotary_pct=1.0,
                                                    use_parallel_residual=False)),
    "decoder-gpt-neox-files": ("plain", gpt_neox(64, 2, 72, rotary_pct=0.5, **TINY)),
    "gguf-gpt-neox": ({"": "Q8_0"}, gpt_neox(64, 2, 96, **WIDE)),
    # Falcon: one head of K and V; groups, with two norms and with one; a head of its own
    "decoder-falcon": (None, falcon(96, 3)),
    "decoder-falcon-serial": (None, falcon(96, 2, multi_query=False, parallel_attn=False,
                                           bias=True, ffn_hidden_size=120)),
    "decoder-falcon-two-norms-bf16": (None, falcon(
        128, 8, "bfloat16", new_decoder_architecture=True, num_kv_heads=2)),
    "decoder-falcon-files": ("sharded", falcon(
        96, 6, new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1,
        tie_word_embeddings=False, **TINY)),
    "gguf-falcon": ({"": "Q8_0"}, falcon(64, 4, **WIDE)),
    "gguf-falcon-two-norms": ({"": "Q5_0"}, falcon(64, 4, new_decoder_architecture=True,
                                                   num_kv_heads=2, **WIDE)),
    # StableLM: LayerNorms around a gated MLP
    "decoder-stablelm": (None, stablelm(96, 4, 2, 136, head_dim=24, use_qkv_bias=True)),
    "decoder-stablelm-parallel-bf16": (None, stablelm(128, 2, 2, 136, "bfloat16",
                                                      use_parallel_residual=True)),
    "gguf-stablelm": ({"": "Q8_0"}, stablelm(64, 4, 2, 96, use_qkv_bias=True, **WIDE)),
    "gguf-stablelm-parallel": ({}, stablelm(32, 2, 2, 48, use_parallel_residual=True, **WIDE)),
}
