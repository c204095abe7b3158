"""Tiny random models of Gemma 4, as seeing.py makes others: with embeddings of layers and bounds of
matrices, as the small ones, which see a picture as text; or `large`, whose layers with a window see
a picture whole."""

import json
from pathlib import Path

import seeing

MARKS = ("<|image>", "<image|>", "<|image|>")  # in the places of Qwen's
PLACES = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
TOKENS = 70  # of a picture at most
TEXT, SIGHT, HEAD, LAYER = 64, 48, 16, 8  # widths: of both, of a head, of embeddings of a layer
KINDS = ["sliding_attention", "sliding_attention", "full_attention"]


def config_of(large):
    rope = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                               "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    text = {"model_type": "gemma4_text", "vocab_size": seeing.VOCABULARY, "hidden_size": TEXT,
            "vocab_size_per_layer_input": seeing.VOCABULARY, "intermediate_size": 48,
            "num_hidden_layers": len(KINDS), "layer_types": KINDS, "sliding_window": 40,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": HEAD,
            "global_head_dim": 2 * HEAD, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
            "hidden_activation": "gelu_pytorch_tanh", "rope_parameters": rope,
            "num_kv_shared_layers": 0, "attention_k_eq_v": False, "bos_token_id": 256,
            "eos_token_id": 258, "pad_token_id": 0, "final_logit_softcapping": 30.0,
            "tie_word_embeddings": True, "hidden_size_per_layer_input": 0 if large else LAYER,
            "use_bidirectional_attention": "vision" if large else None}
    sight = {"model_type": "gemma4_vision", "hidden_size": SIGHT, "intermediate_size": 40,
             "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 3,
             "head_dim": HEAD, "patch_size": 4, "pooling_kernel_size": 3,
             "position_embedding_size": 3 * TOKENS, "use_clipped_linears": not large,
             "standardize": large, "rms_norm_eps": 1e-6}
    return {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4",
            "dtype": "float32", "tie_word_embeddings": True, "image_token_id": seeing.PAD,
            "boi_token_id": seeing.PAD - 2, "eoi_token_id": seeing.PAD - 1, "text_config": text,
            "vision_config": sight}


def layer(at, width, heads, kv, head, inner, wrap=""):
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        yield f"{at}.{name}_layernorm.weight", (width,)
    shapes = {"q": (heads * head, width), "k": (kv * head, width), "v": (kv * head, width),
              "o": (width, heads * head)}
    yield from ((f"{at}.self_attn.{name}_proj{wrap}.weight", shapes[name]) for name in shapes)
    yield f"{at}.self_attn.q_norm.weight", (head,)
    yield f"{at}.self_attn.k_norm.weight", (head,)
    shapes = {"gate": (inner, width), "up": (inner, width), "down": (width, inner)}
    yield from ((f"{at}.mlp.{name}_proj{wrap}.weight", shapes[name]) for name in shapes)


def tensors(large):
    at = "model.language_model"
    yield f"{at}.embed_tokens.weight", (seeing.VOCABULARY, TEXT)
    yield f"{at}.norm.weight", (TEXT,)
    if not large:
        width = len(KINDS) * LAYER
        yield f"{at}.embed_tokens_per_layer.weight", (seeing.VOCABULARY, width)
        yield f"{at}.per_layer_model_projection.weight", (width, TEXT)
        yield f"{at}.per_layer_projection_norm.weight", (LAYER,)
    for i, kind in enumerate(KINDS):
        own = f"{at}.layers.{i}"
        yield from layer(own, TEXT, 4, 2, HEAD * (2 if kind == KINDS[-1] else 1), 48)
        yield f"{own}.layer_scalar", (1,)
        if not large:
            yield f"{own}.per_layer_input_gate.weight", (LAYER, TEXT)
            yield f"{own}.per_layer_projection.weight", (TEXT, LAYER)
            yield f"{own}.post_per_layer_input_norm.weight", (TEXT,)
    at = "model.vision_tower"
    yield f"{at}.patch_embedder.input_proj.weight", (SIGHT, 48)
    yield f"{at}.patch_embedder.position_embedding_table", (2, 3 * TOKENS, SIGHT)
    for i in range(2):
        for name, shape in layer(f"{at}.encoder.layers.{i}", SIGHT, 3, 3, HEAD, 40, ".linear"):
            yield name, shape
            if ".linear" in name and not large:
                for bound in ("input_min", "input_max", "output_min", "output_max"):
                    yield name.replace("linear.weight", bound), ()
    if large:
        yield f"{at}.std_bias", (SIGHT,)
        yield f"{at}.std_scale", (SIGHT,)
    yield "model.embed_vision.embedding_projection.weight", (TEXT, SIGHT)


def make(directory, large=False, seed=1):
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config_of(large), indent=1))
    (directory / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "Gemma4ImageProcessor", "patch_size": 4, "pooling_kernel_size": 3,
        "max_soft_tokens": TOKENS}))
    seeing.write_tokenizer(directory)
    for path in directory.glob("*"):
        made = path.read_text().replace("".join((PLACES[0], PLACES[2], PLACES[1])), PLACES[2])
        for old, new in zip(PLACES, MARKS):
            made = made.replace(old, new)
        path.write_text(made)
    seeing.write_weights(directory / "model.safetensors", tensors(large), seed)
    return directory
