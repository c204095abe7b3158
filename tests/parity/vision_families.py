"""Models that see whose pictures are cut into views or have lines in the prompt, for
parity_vision.py: random configs, and what transformers makes of pictures and writes in their place;
for parity_seen.py: directories of such models, and their processors.
"""

import json
import random
import re
from types import SimpleNamespace

import pictures as vectors
import seeing
import torch
import towers
import transformers
from safetensors.torch import load_file, save_file

BEGIN, END, PAD, BREAK, WHOLE = 60, 61, 62, 59, 58  # ids
PATCH, SIDE = 2, 12  # pixels of a patch; of a view where all are squares
NAMES = {"mistral3": "Mistral3", "llava": "Llava", "smolvlm": "SmolVLM", "idefics3": "Idefics3",
         "internvl": "InternVL", "gemma3": "Gemma3", "gemma4": "Gemma4", "llava_clip": "Llava",
         "llava_next": "LlavaNext", "llava_onevision": "LlavaOnevision"}
PACKED = ("llava_next", "llava_onevision")  # tiles are joined to one grid


def sight_of(kind, rng, times):
    side, patch = SIDE * times, PATCH * times
    heads = rng.choice([1, 2, 3])
    sight = {"hidden_size": 16 * heads, "num_attention_heads": heads, "patch_size": patch,
             "num_hidden_layers": rng.randint(1, 4), "intermediate_size": 8 * rng.randint(2, 6)}
    if kind in ("mistral3", "llava"):
        return {**sight, "model_type": "pixtral", "hidden_act": rng.choice(["gelu", "silu"]),
                "rope_parameters": {"rope_type": "axial", "rope_theta": rng.choice([1e2, 1e4])}}
    if kind == "internvl":
        return {**sight, "model_type": "internvl_vision", "image_size": [side, side],
                "patch_size": [patch, patch], "attention_bias": rng.random() < 0.5}
    if kind == "gemma3":
        return {**sight, "model_type": "siglip_vision_model", "image_size": side,
                "vision_use_head": False, "layer_norm_eps": rng.choice([1e-6, 1e-5])}
    if kind == "gemma4":
        return {**sight, "model_type": "gemma4_vision", "head_dim": 16, "pooling_kernel_size": 3,
                "num_key_value_heads": heads, "position_embedding_size": 256,
                "use_clipped_linears": rng.random() < 0.5, "standardize": rng.random() < 0.5}
    if kind == "llava_onevision":
        return {**sight, "model_type": "siglip_vision_model", "image_size": side,
                "vision_use_head": False}
    if kind in ("llava_clip", "llava_next"):
        return {**sight, "model_type": "clip_vision_model", "image_size": side,
                "projection_dim": 8}
    return {**sight, "model_type": f"{kind}_vision",
            "image_size": times * rng.choice([SIDE, 16, 54])}


def gemma4_text(rng, text):
    """Of a small model, whose layers have embeddings, or of a large one, which sees pictures whole
    in the layers with a window."""
    kinds = ["sliding_attention", "full_attention"]
    count = text["num_hidden_layers"]
    large = rng.random() < 0.5
    return {"model_type": "gemma4_text", "sliding_window": rng.choice([4, 16, 100]),
            "hidden_activation": "gelu_pytorch_tanh", "global_head_dim": 2 * text["head_dim"],
            "layer_types": [rng.choice(kinds) for _ in range(count - 1)] + kinds[1:],
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                   "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}},
            "vocab_size_per_layer_input": text["vocab_size"], "num_kv_shared_layers": 0,
            "pad_token_id": rng.randrange(50), "final_logit_softcapping": 30.0,
            "hidden_size_per_layer_input": 0 if large else 8,
            "attention_k_eq_v": large, "num_global_key_value_heads": 1 if large else None,
            "use_bidirectional_attention": "vision" if large else None}


def llava_keys(kind, rng, sight, times):
    side = SIDE * times
    one = kind == "llava_onevision"
    keys = {"model_type": kind.removesuffix("_clip"), "image_token_index": PAD,
            "multimodal_projector_bias": rng.random() < 0.5,
            "vision_feature_layer": -rng.randint(1, sight["num_hidden_layers"]),
            "vision_feature_select_strategy": "full" if one else "default"}
    if kind in PACKED:
        keys["image_grid_pinpoints"] = [[side * rows, side * columns] for rows, columns in (
            (1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1))]
    if one:
        keys |= {"vision_aspect_ratio": rng.choice(["anyres_max_1", "anyres_max_2",
                                                    "anyres_max_9"])}
    return keys


def model_of(kind, rng, text, times=1):
    """A config around a text model with these numbers; pictures are as many times larger."""
    merge = rng.choice([1, 2, 3] if kind == "mistral3" else [2, 3])
    text = {**text, "pad_token_id": 0, "model_type": "qwen3" if kind == "internvl" else "llama"}
    config = {"architectures": [f"{NAMES[kind]}ForConditionalGeneration"], "model_type": kind,
              "dtype": "float32", "tie_word_embeddings": text["tie_word_embeddings"],
              "text_config": text, "vision_config": sight_of(kind, rng, times)}
    if kind.startswith("llava_"):
        text["model_type"] = "qwen2" if kind == "llava_onevision" else "llama"
        return config | llava_keys(kind, rng, config["vision_config"], times)
    if kind in ("mistral3", "llava"):
        text |= {"model_type": "mistral", "sliding_window": None, "rms_norm_eps": 1e-5}
        config |= {"image_token_index": PAD, "vision_feature_layer": -1,
                   "vision_feature_select_strategy": "full",
                   "multimodal_projector_bias": rng.random() < 0.5}
        return config | ({"spatial_merge_size": merge} if kind == "mistral3" else {})
    if kind == "gemma3":
        text.pop("hidden_act", None)
        text |= {"model_type": "gemma3_text", "sliding_window": rng.choice([4, 16, 100]),
                 "query_pre_attn_scalar": text["head_dim"],
                 "layer_types": [rng.choice(["sliding_attention", "full_attention"])
                                 for _ in range(text["num_hidden_layers"])]}
        return config | {"image_token_index": PAD, "boi_token_index": BEGIN, "eoi_token_index": END,
                         "mm_tokens_per_image": (SIDE // PATCH // merge) ** 2}
    if kind == "gemma4":
        text.pop("hidden_act", None)
        text |= gemma4_text(rng, text)
        return config | {"image_token_id": PAD, "boi_token_id": BEGIN, "eoi_token_id": END,
                         "audio_config": None}
    if kind == "internvl":
        return config | {"image_token_id": PAD, "downsample_ratio": 0.5}
    return config | {"image_token_id": PAD, "scale_factor": merge}


def processor_of(config, times=1):
    """The class of an image processor, its arguments, and those of a call."""
    kind, side, patch = config["model_type"], SIDE * times, PATCH * times
    square = {"height": side, "width": side}
    edge = {"size": {"shortest_edge": side}, "crop_size": square}
    if config["vision_config"]["model_type"] == "clip_vision_model" and kind == "llava":
        return "CLIP", edge, {}
    if kind in PACKED:
        return NAMES[kind], {**({"size": square} if kind == "llava_onevision" else edge),
                             "image_grid_pinpoints": config["image_grid_pinpoints"]}, {}
    if kind in ("mistral3", "llava"):
        merge = config.get("spatial_merge_size", 1)
        return "Pixtral", {"size": {"longest_edge": 40 * times}, "patch_size": {
            "height": patch, "width": patch}}, {"patch_size": patch * merge}
    if kind == "internvl":
        return "GotOcr2", {"size": square, "crop_to_patches": True, "max_patches": 4}, {}
    if kind == "gemma3":
        return "Gemma3", {"size": square, "do_pan_and_scan": True, "pan_and_scan_max_num_crops": 3,
                          "pan_and_scan_min_crop_size": 6 if times == 1 else 64,
                          "pan_and_scan_min_ratio_to_activate": 1.5}, {}
    if kind == "gemma4":
        return "Gemma4", {"patch_size": patch, "max_soft_tokens": 70}, {}
    return NAMES[kind], {"size": {"longest_edge": 2 * side}, "max_image_size": {
        "longest_edge": side}}, {"return_row_col_info": True}


def ids_of(text):
    """Of a text in the place of a picture: marks are ids of their own, letters some ids."""
    ids = []
    for mark in re.findall(r"<image\*\d+>|<row_\d+_col_\d+>|<[a-z]+>|.", text, re.DOTALL):
        number = re.fullmatch(r"<image\*(\d+)>", mark)
        known = {"<begin>": BEGIN, "<end>": END, "<break>": BREAK, "<whole>": WHOLE}
        ids += [PAD] * int(number[1]) if number else [known.get(mark, sum(mark.encode()) % 50)]
    return ids


def tokens_of(config):
    """Of a view."""
    if config["model_type"] == "gemma3":
        return config["mm_tokens_per_image"]
    side = SIDE // PATCH
    if config["model_type"] == "internvl":
        return int(side * config["downsample_ratio"]) ** 2
    return (side // config.get("scale_factor", 1)) ** 2


def views_of(config, made):
    """The views of each picture, without those that fill a batch."""
    split = transformers.models.llava_next.modeling_llava_next.image_size_to_num_patches
    counts = [split(size, config["image_grid_pinpoints"], config["vision_config"]["image_size"])
              for size in made["image_sizes"]]
    if made.get("batch_num_images", [1])[0] != 1:
        counts = [1] * len(counts)
    return [views[:count] for views, count in zip(made["pixel_values"].float(), counts)]


def show_gemma4(made):
    inputs = {"pixel_values": made["pixel_values"].float(),
              "image_position_ids": made["image_position_ids"]}
    grids = [[int(places[:, axis].max()) + 1 for axis in (1, 0)]
             for places in made["image_position_ids"]]
    rows = torch.cat([values[:h * w] for values, (h, w) in zip(inputs["pixel_values"], grids)])
    return inputs, rows, grids, [[BEGIN, *[PAD] * (h * w // 9), END] for h, w in grids]


def show(config, shown):
    """Inputs of the model, rows of patches, the grid of each view, and of each picture the ids in
    its place."""
    times = 1 + (config["model_type"] in PACKED)
    name, arguments, more = processor_of(config, times)
    cls = getattr(transformers, f"{name}ImageProcessor")
    processor = cls(**arguments)
    nested = "return_row_col_info" in more or name == "LlavaOnevision"
    made = processor([shown] if nested else shown, return_tensors="pt", **more)
    values = made["pixel_values"].float()
    if config["model_type"] == "gemma4":
        return show_gemma4(made)
    sizes = made.get("image_sizes")
    views = values[0] if values.dim() == 5 else values
    if config["model_type"] in PACKED:
        views = torch.cat(views_of(config, made))
    elif sizes is not None:
        views = [view[:, :h, :w] for view, (h, w) in zip(views, sizes.tolist())]
    said = {"patch_size": PATCH * times, "spatial_merge_size": config.get("spatial_merge_size", 1),
            "image_seq_length": tokens_of(config), "num_image_tokens": tokens_of(config),
            "vision_aspect_ratio": config.get("vision_aspect_ratio")}
    row = {"preprocessor": {"image_processor_type": f"{name}ImageProcessor"}, "processor": said}
    texts = [vectors.text_of(row, SimpleNamespace(inputs=made, processor=processor), i)
             for i in range(len(shown))]
    inputs = {"pixel_values": values}
    if sizes is not None:
        inputs["image_sizes"] = torch.as_tensor(sizes)
    if "batch_num_images" in made:
        inputs["batch_num_images"] = torch.as_tensor(made["batch_num_images"])
    patch = PATCH * times
    rows = torch.cat([vectors.by_rows(view, patch) for view in views])
    return inputs, rows, [[view.shape[1] // patch, view.shape[2] // patch] for view in views], [
        ids_of(text) for text in texts]


def write_processor(directory, config, times=1):
    """preprocessor_config.json, as transformers writes it; the processor."""
    name, arguments, _ = processor_of(config, times)
    pictures = getattr(transformers, f"{name}ImageProcessor")(**arguments)
    pictures.save_pretrained(directory)
    return pictures


# ---- directories ----

TIMES = 2
# Tokens in the places that seeing.py has for those around a picture, and for its own.
MARKS = {"mistral3": ("[IMG_BREAK]", "[IMG_END]", "[IMG]"),
         "llava": ("[IMG_BREAK]", "[IMG_END]", "[IMG]"),
         **dict.fromkeys(("internvl", "internvl_chat"), ("<img>", "</img>", "<IMG_CONTEXT>")),
         "smolvlm": ("<fake_token_around_image>", "<global-img>", "<image>"),
         "idefics3": ("<fake_token_around_image>", "<global-img>", "<image>"),
         "gemma3": ("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
         "gemma4": ("<|image>", "<image|>", "<|image|>"),
         **dict.fromkeys(("llava_clip", "llava_next", "llava_onevision"),
                         ("<image_begin>", "<image_end>", "<image>"))}
PLACES = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>")


def write_tokenizer(directory, kind):
    seeing.write_tokenizer(directory)
    template = (directory / "chat_template.jinja").read_text().replace("".join(
        (PLACES[0], PLACES[2], PLACES[1])), MARKS[kind][0 if kind == "gemma3" else 2])
    (directory / "chat_template.jinja").write_text(template)
    said = json.loads((directory / "tokenizer_config.json").read_text())
    said["chat_template"] = template
    if kind == "internvl":
        said["extra_special_tokens"] = dict(zip(
            ("start_image_token", "end_image_token", "context_image_token"), MARKS[kind]))
        said["extra_special_tokens"]["video_token"] = "<|video_pad|>"
    if kind in ("gemma3", "gemma4"):
        said["extra_special_tokens"] = dict(zip(("boi_token", "eoi_token", "image_token"),
                                                MARKS[kind]))
    if kind == "gemma4":
        said["extra_special_tokens"] |= {"audio_token": "<|endoftext|>", "boa_token": "<|im_end|>",
                                         "eoa_token": "<|im_start|>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(said))
    made = json.loads((directory / "tokenizer.json").read_text())
    for token in made["added_tokens"]:
        if token["content"] in PLACES:
            token["content"] = MARKS[kind][PLACES.index(token["content"])]
    if kind in ("smolvlm", "idefics3"):
        first = len(made["added_tokens"]) + 256
        made["added_tokens"] += [
            {**made["added_tokens"][0], "id": first + i,
             "content": f"<row_{i // 3 + 1}_col_{i % 3 + 1}>"} for i in range(9)]
    (directory / "tokenizer.json").write_text(json.dumps(made))


HUB = [(r"^(?:model\.)?vision_tower\.embeddings\.cls_token$",
        "vision_model.embeddings.class_embedding"),
       (r"^(?:model\.)?vision_tower\.embeddings\.position_embeddings$",
        "vision_model.embeddings.position_embedding"),
       (r"^(?:model\.)?vision_tower\.embeddings\.patch_embeddings\.projection",
        "vision_model.embeddings.patch_embedding"),
       (r"^(?:model\.)?vision_tower\.encoder\.layer\.", "vision_model.encoder.layers."),
       (r"layernorm_before", "norm1"), (r"layernorm_after", "norm2"), (r"lambda_", "ls"),
       (r"attention\.projection_layer", "attn.proj"),
       (r"^(?:model\.)?multi_modal_projector\.layer_norm", "mlp1.0"),
       (r"^(?:model\.)?multi_modal_projector\.linear_1", "mlp1.1"),
       (r"^(?:model\.)?multi_modal_projector\.linear_2", "mlp1.3"),
       (r"^model\.language_model\.", "language_model.model."),
       (r"^lm_head", "language_model.lm_head")]
# Texts of a content are joined by newlines, and a picture is one of them.
TEXTS = ("{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
         "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
PARTS = TEXTS.replace("{{ message.content }}", "".join((
    "{% if message.content is string %}{{ message.content }}{% else %}",
    "{% for part in message.content %}{% if not loop.first %}{{ '\\n' }}{% endif %}",
    "{% if part.type == 'image' %}<IMG_CONTEXT>{% else %}{{ part.text }}{% endif %}{% endfor %}",
    "{% endif %}")))


def hub_name(name):
    for pattern, to in HUB:
        name = re.sub(pattern, to, name)
    return name


def write_hub(directory, hub):
    """A model of InternVL as OpenGVLab has it: other names, q, k and v in one, no processor, and a
    template of texts."""
    hub.mkdir()
    config = json.loads((directory / "config.json").read_text())
    sight, tensors = config["vision_config"], load_file(directory / "model.safetensors")
    made = {}
    for name, values in tensors.items():
        parts = [name.replace("q_proj", f"{letter}_proj") for letter in "qkv"]
        if "vision_tower" in name and ".attention.q_proj" in name:
            values = torch.cat([tensors[part] for part in parts])
            made[re.sub(r"attention\.q_proj", "attn.qkv", hub_name(name))] = values
        elif "vision_tower" not in name or ".attention." not in name or "projection" in name:
            made[hub_name(name)] = values
    save_file(made, hub / "model.safetensors", {"format": "pt"})
    keys = ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size",
            "layer_norm_eps", "hidden_act")
    text = config["text_config"]
    text["tie_word_embeddings"] = "language_model.lm_head.weight" not in made
    (hub / "config.json").write_text(json.dumps({
        "architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
        "llm_config": {**text, "architectures": ["Qwen3ForCausalLM"]},
        "vision_config": {**{key: sight[key] for key in keys}, "model_type": "intern_vit_6b",
                          "image_size": sight["image_size"][0], "norm_type": "layer_norm",
                          "patch_size": sight["patch_size"][0], "qk_normalization": False,
                          "qkv_bias": sight["attention_bias"],
                          "architectures": ["InternVisionModel"]},
        "downsample_ratio": 0.5, "dynamic_image_size": True, "use_thumbnail": True,
        "force_image_size": sight["image_size"][0], "min_dynamic_patch": 1,
        "max_dynamic_patch": 4, "ps_version": "v2", "select_layer": -1, "dtype": "float32"}))
    (hub / "tokenizer.json").write_text((directory / "tokenizer.json").read_text())
    said = json.loads((directory / "tokenizer_config.json").read_text())
    (hub / "tokenizer_config.json").write_text(json.dumps({**said, "chat_template": TEXTS}))


def make(directory, kind, seed):
    """Writes a random model of a kind; transformers' processor of it, and the directory to serve.
    """
    if kind != "internvl_chat":
        return make_own(directory, kind, seed), directory
    processor = make_own(directory, "internvl", seed)
    processor.chat_template = PARTS
    processor.image_processor.image_mean = [0.485, 0.456, 0.406]
    processor.image_processor.image_std = [0.229, 0.224, 0.225]
    write_hub(directory, directory.parent / "hub")
    return processor, directory.parent / "hub"


def make_own(directory, kind, seed):
    rng = random.Random(f"{kind} {seed}")
    directory.mkdir(parents=True)
    text = {key: value for key, value in seeing.config_of("qwen3_vl")["text_config"].items()
            if key not in ("rope_parameters", "model_type")}
    config = model_of(kind, rng, text, TIMES)
    for key, id in (("image_token_id", seeing.PAD), ("image_token_index", seeing.PAD),
                    ("boi_token_index", seeing.PAD - 2), ("eoi_token_index", seeing.PAD - 1),
                    ("boi_token_id", seeing.PAD - 2), ("eoi_token_id", seeing.PAD - 1)):
        if key in config:
            config[key] = id
    (directory / "config.json").write_text(json.dumps(config))
    torch.manual_seed(seed)
    cls = getattr(transformers, config["architectures"][0])
    model = cls._from_config(transformers.AutoConfig.from_pretrained(directory),
                             dtype=torch.float32).eval()
    towers.draw(model, torch.float32)
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    write_tokenizer(directory, kind)
    pictures = write_processor(directory, config, TIMES)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    template = (directory / "chat_template.jinja").read_text()
    said = {"mistral3": {"patch_size": PATCH * TIMES,
                         "spatial_merge_size": config.get("spatial_merge_size", 1)},
            "internvl": {"image_seq_length": tokens_of(config)},
            "gemma3": {"image_seq_length": config.get("mm_tokens_per_image")},
            "gemma4": {},
            "llava_onevision": {"num_image_tokens": tokens_of(config),
                                "vision_feature_select_strategy": "full",
                                "vision_aspect_ratio": config.get("vision_aspect_ratio")},
            **dict.fromkeys(("llava_clip", "llava_next"), {
                "patch_size": PATCH * TIMES, "num_additional_image_tokens": 1,
                "vision_feature_select_strategy": "default"}),
            "idefics3": {"image_seq_len": tokens_of(config)}}
    what = {"llava": "mistral3", "smolvlm": "idefics3"}.get(kind, kind)
    names = {"mistral3": "PixtralProcessor", "internvl": "InternVLProcessor",
             "idefics3": "Idefics3Processor", "gemma3": "Gemma3Processor",
             "gemma4": "Gemma4Processor", "llava_clip": "LlavaProcessor",
             "llava_next": "LlavaNextProcessor", "llava_onevision": "LlavaOnevisionProcessor"}
    (directory / "processor_config.json").write_text(json.dumps(
        {"processor_class": names[what], **said[what]}))
    more = {"video_processor": transformers.InternVLVideoProcessor()} if kind == "internvl" else {}
    if kind == "llava_onevision":
        more = {"video_processor": transformers.LlavaOnevisionVideoProcessor()}
    if kind == "gemma4":
        more = {"video_processor": transformers.Gemma4VideoProcessor(),
                "feature_extractor": transformers.Gemma4AudioFeatureExtractor()}
    return getattr(transformers, names[what])(image_processor=pictures, tokenizer=tokenizer,
                                              chat_template=template, **said[what], **more)
