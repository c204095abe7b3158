"""More models for the reference vectors and `make parity`: decoders whose parts stand otherwise.

As model_cases.py. `DRAWS` has a function per family that draws a random config.json; `CASES` are
the committed ones, which a number of their own keeps apart from those of model_cases.py.
"""

from model_cases import (ATTENTION, GGUF_GPT2, LLAMA3, MLP, TINY, gemma, gemma2, gpt2, llama,
                         llama_like, qwen2, qwen3, qwen3_moe, v5)

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


def cohere(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("CohereForCausalLM", "cohere", hidden, heads, kv_heads, mlp, dtype,
                      **{"rope_theta": 8e6, "logit_scale": 0.5, "layer_norm_eps": 1e-5, **more})


def cohere2(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("Cohere2ForCausalLM", "cohere2", hidden, heads, kv_heads, mlp, dtype, **{
        "rope_theta": 50000.0, "logit_scale": 0.5, "layer_norm_eps": 1e-5, "sliding_window": 16,
        **more})


def glm(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("GlmForCausalLM", "glm", hidden, heads, kv_heads, mlp, dtype, **{
        "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "head_dim": 32, "pad_token_id": 0,
        "attention_bias": True, **more})


def glm4(*args, **more):
    return {**glm(*args, **more), "architectures": ["Glm4ForCausalLM"], "model_type": "glm4"}


def exaone4(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("Exaone4ForCausalLM", "exaone4", hidden, heads, kv_heads, mlp, dtype, **{
        "rope_theta": 1e6, "sliding_window": 16, **more})


def ernie4_5(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("Ernie4_5ForCausalLM", "ernie4_5", hidden, heads, kv_heads, mlp, dtype, **{
        "rope_theta": 500000.0, "head_dim": 32, "pad_token_id": 0, **more})


def internlm3(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("InternLM3ForCausalLM", "internlm3", hidden, heads, kv_heads, mlp, dtype, **{
        "rope_theta": 5e7, "head_dim": 32, "qkv_bias": False, "bias": False, **more})


def helium(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("HeliumForCausalLM", "helium", hidden, heads, kv_heads, mlp, dtype, **{
        "rope_theta": 1e5, "head_dim": hidden // heads, "pad_token_id": 0, **more})


def phi(hidden, heads, mlp, dtype="float32", **more):
    return {**llama_like("PhiForCausalLM", "phi", hidden, heads, heads, mlp, dtype, **{
        "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5, **more}),
        "hidden_act": "gelu_new"}


def codegen(hidden, heads, dtype="float32", **more):
    """GPT-J, but for the order of q, k and v, of four groups of heads."""
    return {**gptj(hidden, heads, dtype, **more), "architectures": ["CodeGenForCausalLM"],
            "model_type": "codegen"}


def gptj(hidden, heads, dtype="float32", **more):
    return {"architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_embd": hidden,
            "n_head": heads, "n_layer": 2, "n_positions": 256, "vocab_size": 199,
            "rotary_dim": 16, "activation_function": "gelu_new", "torch_dtype": dtype,
            "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, **more}


def gpt_bigcode(hidden, heads, dtype="float32", **more):
    return {**gpt2(hidden, heads, dtype, **{"activation_function": "gelu_pytorch_tanh", **more}),
            "architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode"}


def nemotron(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return {**llama_like("NemotronForCausalLM", "nemotron", hidden, heads, kv_heads, mlp, dtype, **{
        "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "norm_eps": 1e-5, **more}),
        "hidden_act": "relu2"}


def arcee(*args, **more):
    return {**llama_like("ArceeForCausalLM", "arcee", *args, **{"rope_theta": 10000.0, **more}),
            "hidden_act": "relu2"}


def hunyuan(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", hidden, heads, kv_heads, mlp,
                      dtype, **{"rope_theta": 10000.0, "head_dim": 32, "pad_token_id": 0,
                                "use_qk_norm": True, **more})


ALPHA = {"type": "dynamic", "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0,
         "mscale": 1.0, "mscale_all_dim": 0.0}  # as published


def olmo(hidden, heads, kv_heads, mlp, dtype="float32", **more):
    return llama_like("OlmoForCausalLM", "olmo", hidden, heads, kv_heads, mlp, dtype, **{
        "rope_theta": 10000.0, "clip_qkv": None, **more})


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
                    qk_layernorm=rng.random() < 0.5,
                    partial_rotary_factor=rng.choice([0.25, 0.5, 1.0]),
                    tie_word_embeddings=rng.random() < 0.3)


def draw_cohere(rng, dtype):
    return cohere(*sizes(rng)[:4], dtype, **common(rng), logit_scale=rng.choice([0.0625, 0.8]),
                  use_qk_norm=rng.random() < 0.5,
                  attention_bias=rng.random() < 0.3, tie_word_embeddings=rng.random() < 0.7)


def draw_cohere2(rng, dtype):
    config = cohere2(*sizes(rng)[:4], dtype, num_hidden_layers=rng.randint(1, 5),
                     sliding_window=rng.choice([5, 16, 30]))
    if rng.random() < 0.5:
        config["sliding_window_pattern"] = rng.choice([2, 3, 4])
    return config


def draw_glm(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    kind = rng.choice([glm, glm4])
    return kind(hidden, heads, kv_heads, mlp, dtype, **common(rng), head_dim=head_dim,
                attention_bias=rng.random() < 0.7, tie_word_embeddings=rng.random() < 0.3,
                partial_rotary_factor=rng.choice([0.5, 0.5, 1.0]))


def draw_exaone4(rng, dtype):
    layers = rng.randint(1, 5)
    config = exaone4(*sizes(rng)[:4], dtype, num_hidden_layers=layers,
                     tie_word_embeddings=rng.random() < 0.5,
                     sliding_window=rng.choice([None, 5, 16, 30]))
    kinds = ["full_attention", "sliding_attention"] if config["sliding_window"] else \
        ["full_attention"]
    config["layer_types"] = [rng.choice(kinds) for _ in range(layers)]
    return config


def draw_ernie4_5(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    return ernie4_5(hidden, heads, kv_heads, mlp, dtype, **common(rng), head_dim=head_dim,
                    use_bias=rng.random() < 0.4, tie_word_embeddings=rng.random() < 0.6)


def draw_internlm3(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    bias = rng.random() < 0.4
    return internlm3(hidden, heads, kv_heads, mlp, dtype, **common(rng), head_dim=head_dim,
                     qkv_bias=bias, bias=bias, tie_word_embeddings=rng.random() < 0.3)


def draw_helium(rng, dtype):
    return helium(*sizes(rng)[:4], dtype, **common(rng), attention_bias=rng.random() < 0.4,
                  mlp_bias=rng.random() < 0.4)


def draw_phi(rng, dtype):
    hidden, heads, kv_heads, mlp, _ = sizes(rng)
    return {**phi(hidden, heads, mlp, dtype, **common(rng),
                  partial_rotary_factor=rng.choice([0.5, 0.25, 1.0])),
            "num_key_value_heads": rng.choice([heads, kv_heads])}


def draw_gptj(rng, dtype):
    hidden, heads, _, mlp, head_dim = sizes(rng)
    return gptj(hidden, heads, dtype, n_layer=rng.randint(1, 4), n_inner=rng.choice([None, mlp]),
                rotary_dim=rng.choice([8, 16, head_dim]))


def draw_gpt_bigcode(rng, dtype):
    hidden, heads, _, mlp, _ = sizes(rng)
    return gpt_bigcode(hidden, heads, dtype, n_layer=rng.randint(1, 4),
                       n_inner=rng.choice([None, mlp]), multi_query=rng.random() < 0.6)


def draw_nemotron(rng, dtype):
    return nemotron(*sizes(rng)[:4], dtype, **common(rng), attention_bias=rng.random() < 0.3,
                    mlp_bias=rng.random() < 0.3, partial_rotary_factor=rng.choice([0.5, 1.0]),
                    tie_word_embeddings=rng.random() < 0.3)


def draw_arcee(rng, dtype):
    hidden, heads, kv_heads, mlp, _ = sizes(rng)
    return arcee(hidden, heads, kv_heads, mlp, dtype, **common(rng), head_dim=rng.choice([16, 32]),
                 attention_bias=rng.random() < 0.3, mlp_bias=rng.random() < 0.3)


def draw_hunyuan(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    more = {"rope_scaling": {**ALPHA, "alpha": rng.choice([50.0, 1000.0])}} \
        if rng.random() < 0.6 else {}
    return hunyuan(hidden, heads, kv_heads, mlp, dtype, **common(rng), head_dim=head_dim,
                   attention_bias=rng.random() < 0.4, tie_word_embeddings=rng.random() < 0.5,
                   **more)


def draw_olmo(rng, dtype):
    return olmo(*sizes(rng)[:4], dtype, **common(rng), attention_bias=rng.random() < 0.3,
                tie_word_embeddings=rng.random() < 0.3, clip_qkv=rng.choice([None, 0.3, 1.0]))


def draw_gemma(rng, dtype):
    hidden, heads, kv_heads, mlp, head_dim = sizes(rng)
    return gemma(hidden + 8 * rng.randint(0, 3), heads, kv_heads, mlp, dtype, **common(rng),
                 head_dim=head_dim, attention_bias=rng.random() < 0.3, tie_word_embeddings=True)


def draw_twin(rng, dtype):
    return llama(*sizes(rng)[:4], dtype, **common(rng), rms_norm_eps=rng.choice([1e-6, 1e-4]),
                 tie_word_embeddings=rng.random() < 0.3)


TWINS = {"internlm2": "internlm2", "exaone": "exaone"}  # saved so, computed as Llama
DRAWS = {**{kind: draw_twin for kind in TWINS}, "cohere": draw_cohere, "cohere2": draw_cohere2,
         "glm": draw_glm, "exaone4": draw_exaone4, "ernie4_5": draw_ernie4_5,
         "internlm3": draw_internlm3, "helium": draw_helium, "gpt_neox": draw_gpt_neox,
         "falcon": draw_falcon, "stablelm": draw_stablelm, "phi": draw_phi, "gptj": draw_gptj,
         "gpt_bigcode": draw_gpt_bigcode,
         "hunyuan": draw_hunyuan, "olmo": draw_olmo, "nemotron": draw_nemotron,
         "arcee": draw_arcee, "gemma": draw_gemma}

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
    # Cohere: one norm without biases, pairs side by side; full layers without rotation
    "decoder-cohere": (None, cohere(96, 4, 2, 136)),
    "decoder-cohere-bf16": (None, cohere(128, 2, 2, 136, "bfloat16", logit_scale=0.0625,
                                         tie_word_embeddings=False, attention_bias=True)),
    "decoder-cohere2": (None, cohere2(96, 4, 2, 136, num_hidden_layers=4)),
    "gguf-cohere": ({"": "Q8_0"}, cohere(64, 4, 2, 96, tie_word_embeddings=True, **WIDE)),
    "gguf-cohere2": ({"": "Q8_0"}, cohere2(64, 4, 2, 96, num_hidden_layers=4,
                                           tie_word_embeddings=True, **WIDE)),
    # GLM and GLM-4: half of a head rotated, in pairs; biases of q, k and v
    "decoder-glm": (None, glm(96, 4, 2, 136)),
    "decoder-glm4": (None, glm4(96, 4, 2, 136)),
    "decoder-glm4-bf16": (None, v5(glm4(128, 4, 1, 136, "bfloat16", attention_bias=False),
                                   partial_rotary_factor=0.5)),
    "gguf-glm": ({"": "Q8_0"}, glm(64, 4, 2, 96, **WIDE)),
    "gguf-glm4": ({"": "Q8_0"}, glm4(64, 4, 2, 96, **WIDE)),
    # EXAONE 4: windows in three of four layers, no rotation in the fourth; or neither
    "decoder-exaone4": (None, exaone4(96, 4, 2, 136, num_hidden_layers=4)),
    "decoder-exaone4-full": (None, exaone4(
        96, 4, 4, 136, "bfloat16", sliding_window=None, sliding_window_pattern=None,
        layer_types=["full_attention"] * 2, rope_scaling={"rope_type": "llama3", **LLAMA3})),
    "gguf-exaone4": ({"": "Q8_0"}, exaone4(64, 4, 2, 96, num_hidden_layers=4, **WIDE)),
    "gguf-exaone4-full": ({"": "Q8_0"}, exaone4(64, 4, 2, 96, sliding_window=None,
                                                layer_types=["full_attention"] * 2, **WIDE)),
    # ERNIE 4.5, InternLM 2 and 3, EXAONE 3, Helium
    "decoder-ernie4-5": (None, ernie4_5(96, 4, 2, 136, use_bias=True)),
    "gguf-ernie4-5": ({"": "Q8_0"}, ernie4_5(64, 4, 2, 96, tie_word_embeddings=True, **WIDE)),
    "decoder-internlm2": ("internlm2", llama(48, 6, 2, 64, attention_bias=True, **TINY)),
    "gguf-internlm2": ({"architecture": "internlm2", "": "Q8_0"}, llama(64, 4, 2, 96, **WIDE)),
    "decoder-internlm3": (None, internlm3(96, 4, 2, 136, qkv_bias=True, bias=True)),
    "decoder-exaone": ("exaone", llama(48, 6, 2, 64, "bfloat16", rms_norm_eps=1e-5, rope_scaling={
        "rope_type": "llama3", **LLAMA3}, **TINY)),
    "gguf-exaone": ({"architecture": "exaone", "": "Q8_0"}, llama(64, 4, 2, 96, **WIDE)),
    "decoder-helium": (None, helium(96, 4, 2, 136)),
    # Phi 1 to 2 and GPT-J: one norm a layer, a head with biases
    "decoder-phi": (None, phi(96, 3, 136)),
    "decoder-phi-bf16": (None, phi(128, 2, 136, "bfloat16", partial_rotary_factor=0.25)),
    "gguf-phi2": ({"": "Q8_0"}, phi(64, 2, 96, **WIDE)),
    "gguf-phi2-fused": ({"fused": "", "": "Q8_0"}, phi(64, 2, 96, **WIDE)),
    "gguf-glm-fused": ({"fused": "", "": "Q8_0"}, glm(64, 4, 2, 96, **WIDE)),
    "decoder-gptj": (None, gptj(96, 3)),
    # GPT-BigCode: GPT-2 with one head of K and V, or with groups
    "decoder-gpt-bigcode": (None, gpt_bigcode(96, 3)),
    "decoder-gpt-bigcode-heads": (None, gpt_bigcode(96, 3, "bfloat16", multi_query=False)),
    "gguf-gpt-bigcode": ({"": "Q8_0"}, gpt_bigcode(64, 2, **GGUF_GPT2)),
    # Squared ReLU: Nemotron, with norms of 1 + w, and Arcee
    "decoder-nemotron": (None, nemotron(96, 4, 2, 136)),
    "decoder-nemotron-bf16": (None, nemotron(128, 2, 1, 136, "bfloat16", attention_bias=True,
                                             mlp_bias=True)),
    "gguf-nemotron": ({"": "Q8_0"}, nemotron(64, 4, 2, 96, **WIDE)),
    "decoder-arcee": (None, arcee(96, 4, 2, 136, head_dim=32)),
    "gguf-arcee": ({"": "Q8_0"}, arcee(64, 4, 2, 96, **WIDE)),
    # Norms of q and k: LayerNorms of each head (Command-R+), behind the rotation (Hunyuan)
    "decoder-cohere-norms": (None, cohere(96, 4, 2, 136, use_qk_norm=True)),
    "gguf-cohere-norms": ({"": "Q8_0"}, cohere(64, 4, 2, 96, use_qk_norm=True,
                                               tie_word_embeddings=True, **WIDE)),
    "decoder-hunyuan": (None, hunyuan(96, 4, 2, 136, rope_scaling=ALPHA, attention_bias=True)),
    "decoder-hunyuan-bf16": (None, hunyuan(96, 4, 1, 136, "bfloat16")),
    "gguf-hunyuan": ({"": "Q8_0"}, hunyuan(64, 4, 2, 96, **WIDE)),
    # Adapters of layers whose rows stand otherwise
    "lora-glm": (None, glm(64, 4, 2, 96, **TINY)),
    "lora-gpt-neox": (None, gpt_neox(64, 2, 96, rotary_pct=0.5, **TINY)),
    # OLMo 1: LayerNorms without weights
    "decoder-olmo": (None, olmo(96, 4, 2, 136)),
    # StableLM 2 12B: a norm of every head
    "decoder-stablelm-heads": (None, stablelm(96, 4, 2, 136, head_dim=24, qk_layernorm=True,
                                              use_parallel_residual=True)),
    "decoder-stablelm-heads-files": ("plain", stablelm(48, 3, 1, 64, qk_layernorm=True, **TINY)),
    # The text parts of models that see images
    "gguf-qwen2vl": ({"architecture": "qwen2vl", "": "Q8_0"}, qwen2(64, 4, 2, 96, **WIDE)),
    "gguf-qwen3vl": ({"architecture": "qwen3vl", "": "Q8_0"}, qwen3(64, 4, 2, 96, head_dim=32,
                                                                    **WIDE)),
    "gguf-qwen3vl-moe": ({"architecture": "qwen3vlmoe"}, qwen3_moe(
        64, 2, 1, 64, head_dim=32, num_experts=4, moe_intermediate_size=32, **WIDE)),
    # Ranks and scales by patterns, of modules that an expression names
    "lora-patterns": (None, qwen2(64, 4, 2, 96, **TINY)),
    # Lengths of rows (DoRA): of plain layers, of rows that stand otherwise, of stored columns
    "lora-dora": (None, llama(64, 4, 2, 96, **TINY)),
    "lora-dora-glm": (None, glm(64, 4, 2, 96, **TINY)),
    "lora-dora-gpt2": (None, {**gpt2(64, 2), "vocab_size": 67, "n_positions": 128, "n_ctx": 128}),
    # The embedding and the head, which is the embedding; scaled, and with a softcap
    "lora-tables": (None, gemma2(64, 4, 2, 96, head_dim=16, **TINY)),
    "lora-dora-tables": (None, llama(64, 4, 2, 96, tie_word_embeddings=True, **TINY)),
    # Biases of the model that were trained, and those of B
    "lora-biases": (None, qwen2(64, 4, 2, 96, **TINY)),
    # The embedding and the head as a whole
    "lora-saved": (None, llama(64, 4, 2, 96, **TINY)),
    "lora-saved-gemma2": (None, gemma2(64, 4, 2, 96, head_dim=16, **TINY)),
}
ADAPTERS = {
    "lora-glm": {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "k_proj", "v_proj"]},
    "lora-gpt-neox": {"r": 4, "lora_alpha": 12, "target_modules": ["query_key_value", "dense"]},
    "lora-patterns": {
        "r": 5, "lora_alpha": 7, "use_rslora": True,
        "target_modules": r".*\.(?:[qkv]_proj|mlp\.(up|down)_proj)",
        "exclude_modules": r".*layers\.0\..*v_proj",
        "rank_pattern": {r"layers\.1\..*_proj": 2, "q_proj": 9, "0.mlp.up_proj": 3, "own_proj": 1},
        "alpha_pattern": {"(k|up)_proj": 3, r".*\.1\.mlp.*": 11, "proj": 100}},
    "lora-dora": {"r": 4, "lora_alpha": 9, "target_modules": ATTENTION + MLP, "use_dora": True},
    "lora-dora-glm": {"r": 3, "lora_alpha": 4, "target_modules": ["q_proj", "k_proj", "v_proj"],
                      "use_dora": True, "use_rslora": True},
    "lora-dora-gpt2": {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj"],
                       "use_dora": True, "bias": "lora_only", "fan_in_fan_out": True},
    "lora-tables": {"r": 5, "lora_alpha": 7,
                    "target_modules": ["embed_tokens", "lm_head", "up_proj"]},
    "lora-dora-tables": {"r": 4, "lora_alpha": 6, "use_dora": True,
                         "target_modules": ["embed_tokens", "lm_head", "o_proj"]},
    "lora-biases": {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj", "o_proj", "lm_head"],
                    "bias": "all", "lora_bias": True},
    "lora-saved": {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj"],
                   "modules_to_save": ["embed_tokens", "lm_head"]},
    "lora-saved-gemma2": {"r": 4, "lora_alpha": 6, "target_modules": ["q_proj"],
                          "modules_to_save": ["embed_tokens"]},
}
