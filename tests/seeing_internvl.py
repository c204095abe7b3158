"""A tiny random model of InternVL, as seeing.py makes others: with the names of transformers, or
the same numbers as OpenGVLab's files have them, where q, k and v are one matrix, config.json has
the numbers of the processor, and the template takes texts alone."""

import json
import struct
from pathlib import Path

import seeing

TEXT, SIGHT, INNER, LAYERS, SIDE, PATCH = 64, 48, 40, 2, 32, 4
MARKS = dict(zip(("<|vision_start|>", "<|vision_end|>", "<|image_pad|>"),
                 ("<img>", "</img>", "<IMG_CONTEXT>")))
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
BEGIN = "{% for message in messages %}<|im_start|>{{ message.role }}\n"
END = ("<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
TEXTS = f"{BEGIN}{{{{ message.content }}}}{END}"
PARTS = (BEGIN + "{% if message.content is string %}{{ message.content }}{% else %}"
         "{% for part in message.content %}{% if not loop.first %}{{ '\\n' }}{% endif %}"
         "{% if part.type == 'image' %}<IMG_CONTEXT>{% else %}{{ part.text }}{% endif %}"
         "{% endfor %}{% endif %}" + END)


def config_of(hub):
    text = {**seeing.config_of("qwen3_vl")["text_config"], "model_type": "qwen3",
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    sight = {"hidden_size": SIGHT, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
             "num_attention_heads": 3, "layer_norm_eps": 1e-6, "hidden_act": "gelu"}
    if not hub:
        return {"architectures": ["InternVLForConditionalGeneration"], "model_type": "internvl",
                "dtype": "float32", "tie_word_embeddings": False, "image_token_id": seeing.PAD,
                "downsample_ratio": 0.5, "text_config": text,
                "vision_config": {**sight, "model_type": "internvl_vision", "attention_bias": True,
                                  "image_size": [SIDE, SIDE], "patch_size": [PATCH, PATCH]}}
    return {"architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
            "dtype": "float32", "llm_config": {**text, "architectures": ["Qwen3ForCausalLM"]},
            "downsample_ratio": 0.5, "dynamic_image_size": True, "use_thumbnail": True,
            "force_image_size": SIDE, "min_dynamic_patch": 1, "max_dynamic_patch": 4,
            "ps_version": "v2", "select_layer": -1,
            "vision_config": {**sight, "model_type": "intern_vit_6b", "image_size": SIDE,
                              "patch_size": PATCH, "qkv_bias": True, "qk_normalization": False,
                              "norm_type": "layer_norm"}}


def tensors(config):
    """Of transformers; those that OpenGVLab has as one stand side by side."""
    yield from seeing.text_tensors("qwen3_vl", config["text_config"])
    at = "model.vision_tower"
    yield f"{at}.embeddings.cls_token", (1, 1, SIGHT)
    yield from seeing.with_bias([(f"{at}.embeddings.patch_embeddings.projection.weight",
                                  (SIGHT, 3, PATCH, PATCH))])
    yield f"{at}.embeddings.position_embeddings", (1, 1 + (SIDE // PATCH) ** 2, SIGHT)
    for i in range(LAYERS):
        own = f"{at}.encoder.layer.{i}"
        for part, shape in (("weight", (SIGHT, SIGHT)), ("bias", (SIGHT,))):
            yield from ((f"{own}.attention.{letter}_proj.{part}", shape) for letter in "qkv")
        yield f"{own}.lambda_1", (SIGHT,)
        yield f"{own}.lambda_2", (SIGHT,)
        yield from seeing.with_bias([(f"{own}.attention.projection_layer.weight", (SIGHT, SIGHT)),
                                     (f"{own}.layernorm_before.weight", (SIGHT,)),
                                     (f"{own}.layernorm_after.weight", (SIGHT,)),
                                     (f"{own}.mlp.fc1.weight", (INNER, SIGHT)),
                                     (f"{own}.mlp.fc2.weight", (SIGHT, INNER))])
    yield from seeing.with_bias([
        ("model.multi_modal_projector.layer_norm.weight", (4 * SIGHT,)),
        ("model.multi_modal_projector.linear_1.weight", (TEXT, 4 * SIGHT)),
        ("model.multi_modal_projector.linear_2.weight", (TEXT, TEXT))])


NAMES = [("model.language_model.", "language_model.model."),
         ("lm_head.", "language_model.lm_head."),
         ("model.vision_tower.encoder.layer.", "vision_model.encoder.layers."),
         ("model.vision_tower.", "vision_model."), ("cls_token", "class_embedding"),
         ("patch_embeddings.projection", "patch_embedding"),
         ("position_embeddings", "position_embedding"), ("attention.q_proj", "attn.qkv"),
         ("attention.projection_layer", "attn.proj"), ("layernorm_before", "norm1"),
         ("layernorm_after", "norm2"), ("lambda_", "ls"),
         ("model.multi_modal_projector.layer_norm", "mlp1.0"),
         ("model.multi_modal_projector.linear_1", "mlp1.1"),
         ("model.multi_modal_projector.linear_2", "mlp1.3")]


def rename(path):
    """The same numbers under the other names: only the header differs."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, made = json.loads(data[8:8 + length]), {}
    for name, said in header.items():
        if ".attention.k_proj" in name or ".attention.v_proj" in name:
            continue
        if ".attention.q_proj" in name:
            said["shape"][0] *= 3
            said["data_offsets"][1] = header[name.replace("q_proj", "v_proj")]["data_offsets"][1]
        for old, new in NAMES if name.startswith(("model.", "lm_head.")) else ():
            name = name.replace(old, new)
        made[name] = said
    head = json.dumps(made).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data[8 + length:])


def make(directory, hub=False, seed=1):
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    seeing.write_tokenizer(directory)
    (directory / "chat_template.jinja").write_text(TEXTS if hub else PARTS)
    tokens = (directory / "tokenizer.json").read_text()
    for old, new in MARKS.items():
        tokens = tokens.replace(old, new)
    (directory / "tokenizer.json").write_text(tokens)
    (directory / "config.json").write_text(json.dumps(config_of(hub), indent=1))
    seeing.write_weights(directory / "model.safetensors", tensors(config_of(False)), seed)
    if hub:
        rename(directory / "model.safetensors")
        return directory
    (directory / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "GotOcr2ImageProcessor", "crop_to_patches": True, "max_patches": 4,
        "size": {"height": SIDE, "width": SIDE}, "image_mean": MEAN, "image_std": DEVIATION}))
    (directory / "processor_config.json").write_text(json.dumps({
        "processor_class": "InternVLProcessor", "image_seq_length": (SIDE // PATCH // 2) ** 2}))
    return directory
