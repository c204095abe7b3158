"""Tiny random models of LLaVA-NeXT and LLaVA-OneVision, as seeing.py makes others, with the names
of llava-hf's files: tiles of 40 pixels, of which OneVision keeps the tokens of one."""

import json
from pathlib import Path

import seeing

KINDS = ("llava_onevision", "llava_next")
TEXT, SIGHT, INNER, LAYERS, SIDE, PATCH = 64, 48, 40, 3, 40, 8
PINPOINTS = [[SIDE, SIDE], [SIDE, 2 * SIDE], [2 * SIDE, SIDE], [2 * SIDE, 2 * SIDE]]


def config_of(kind):
    one = kind == "llava_onevision"
    text = {**seeing.config_of("qwen2_vl")["text_config"], "model_type": "qwen2"}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    sight = {"hidden_size": SIGHT, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
             "num_attention_heads": 3, "image_size": SIDE, "patch_size": PATCH,
             "model_type": "siglip_vision_model" if one else "clip_vision_model"}
    made = {"architectures": [f"Llava{'Onevision' if one else 'Next'}ForConditionalGeneration"],
            "model_type": kind, "dtype": "float32", "tie_word_embeddings": False,
            "image_token_index": seeing.PAD, "image_grid_pinpoints": PINPOINTS,
            "vision_feature_layer": -1 if one else -2,
            "vision_feature_select_strategy": "full" if one else "default",
            "text_config": text, "vision_config": sight}
    return {**made, "vision_aspect_ratio": "anyres_max_1"} if one else made


def tensors(kind, config):
    for name, shape in seeing.text_tensors("qwen2_vl", config["text_config"]):
        yield f"language_model.{name}", shape
    at, clip = "vision_tower.vision_model", kind == "llava_next"
    places = (SIDE // PATCH) ** 2 + clip
    if clip:
        yield f"{at}.embeddings.class_embedding", (SIGHT,)
        yield from seeing.with_bias([(f"{at}.pre_layrnorm.weight", (SIGHT,))])
    patch = [(f"{at}.embeddings.patch_embedding.weight", (SIGHT, 3, PATCH, PATCH))]
    yield from patch if clip else seeing.with_bias(patch)
    yield f"{at}.embeddings.position_embedding.weight", (places, SIGHT)
    for i in range(LAYERS):
        own = f"{at}.encoder.layers.{i}"
        yield from seeing.with_bias([
            *((f"{own}.layer_norm{j}.weight", (SIGHT,)) for j in (1, 2)),
            *((f"{own}.self_attn.{name}_proj.weight", (SIGHT, SIGHT))
              for name in ("q", "k", "v", "out")),
            (f"{own}.mlp.fc1.weight", (INNER, SIGHT)), (f"{own}.mlp.fc2.weight", (SIGHT, INNER))])
    yield from seeing.with_bias([(f"{at}.post_layernorm.weight", (SIGHT,)),
                                 ("multi_modal_projector.linear_1.weight", (TEXT, SIGHT)),
                                 ("multi_modal_projector.linear_2.weight", (TEXT, TEXT))])
    yield "image_newline", (TEXT,)


def make(directory, kind, seed=1):
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config, square = config_of(kind), {"height": SIDE, "width": SIDE}
    name = config["architectures"][0].removesuffix("ForConditionalGeneration")
    size = {"size": square} if kind == "llava_onevision" else {
        "size": {"shortest_edge": SIDE}, "crop_size": square, "do_center_crop": True}
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    (directory / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": f"{name}ImageProcessor", "image_grid_pinpoints": PINPOINTS,
        **size}))
    seeing.write_tokenizer(directory)
    seeing.write_weights(directory / "model.safetensors", tensors(kind, config), seed)
    return directory
