"""Tiny random models that see, made without torch: a directory as transformers saves it.

The weights are drawn from a seed, of the size that training leaves, so that every part counts. The
tokenizer has a token for each byte, and the special ones of Qwen. Pictures are drawn, too."""

import array
import base64
import json
import random
import struct
import zlib
from pathlib import Path

KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
OLD = KINDS[:2]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
           "<|image_pad|>", "<|video_pad|>"]
PAD = 256 + SPECIAL.index("<|image_pad|>")
VOCABULARY = 272
TEMPLATE = """{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else -%}
{%- for part in message.content or [] -%}
{%- if part.type == "image" %}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == "text" %}{{ part.text }}{% endif -%}
{%- endfor -%}
{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""


def byte_letters():
    """The letter of each byte in a vocabulary of bytes, as GPT-2 has them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain},
            **{byte: chr(256 + i) for i, byte in enumerate(others)}}


def write_tokenizer(directory):
    letters = byte_letters()
    vocabulary = {letters[byte]: byte for byte in range(256)}
    added = [{"id": 256 + i, "content": name, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for i, name in enumerate(SPECIAL)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": False}
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []}}))
    (directory / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>", "chat_template": TEMPLATE}))
    (directory / "chat_template.jinja").write_text(TEMPLATE)


def config_of(kind, text=(), sight=()):
    """config.json with a text model of 64 columns; a tower whose merger is wider than that."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    name = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL",
            "qwen3_vl_moe": "Qwen3VLMoe", "qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe"}[kind]
    made = {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 48,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 16, "max_position_embeddings": 2048, "tie_word_embeddings": False,
            "rms_norm_eps": 1e-6, "hidden_act": "silu", "bos_token_id": 256, "eos_token_id": 258,
            "model_type": f"{kind}_text", "rope_parameters": rope}
    tower = {"depth": 3, "hidden_size": 48, "intermediate_size": 40, "num_heads": 3,
             "patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2,
             "out_hidden_size": 64, "num_position_embeddings": 25, "in_channels": 3,
             "model_type": kind}
    if kind.startswith("qwen3"):
        rope["mrope_interleaved"] = True
    if kind.startswith("qwen3_vl"):
        tower["deepstack_visual_indexes"] = [0, 2]
    if kind.startswith("qwen3_5"):
        rope.update(partial_rotary_factor=0.5, mrope_section=[2, 1, 1])
        made.update(linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=32,
                    linear_value_head_dim=32, linear_conv_kernel_dim=4,
                    layer_types=["linear_attention", "linear_attention", "full_attention"])
    if kind.endswith("moe"):
        made.update(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
                    shared_expert_intermediate_size=16, decoder_sparse_step=1,
                    norm_topk_prob=True)
    if kind in OLD:
        del tower["num_position_embeddings"], made["head_dim"]
    if kind == "qwen2_5_vl":
        tower.update(window_size=16, fullatt_block_indexes=[1])
    if kind == "qwen2_vl":
        tower.update(embed_dim=tower["hidden_size"], hidden_size=tower.pop("out_hidden_size"),
                     mlp_ratio=1)
        del tower["intermediate_size"]
    made.update(text)
    tower.update(sight)
    return {"architectures": [f"{name}ForConditionalGeneration"], "model_type": kind,
            "image_token_id": PAD, "video_token_id": PAD + 1, "vision_start_token_id": PAD - 2,
            "vision_end_token_id": PAD - 1, "dtype": "float32",
            "tie_word_embeddings": made["tie_word_embeddings"], "text_config": made,
            "vision_config": tower}


# ---- tensors: pairs of a name and a shape ----

def mlp(at, hidden, inner):
    for name in ("gate_proj", "up_proj"):
        yield f"{at}.{name}.weight", (inner, hidden)
    yield f"{at}.down_proj.weight", (hidden, inner)


def experts(at, text, together):
    hidden, inner, count = (text["hidden_size"], text["moe_intermediate_size"],
                            text["num_experts"])
    yield f"{at}.gate.weight", (count, hidden)
    if together:
        yield f"{at}.experts.gate_up_proj", (count, 2 * inner, hidden)
        yield f"{at}.experts.down_proj", (count, hidden, inner)
        return
    for i in range(count):
        yield from mlp(f"{at}.experts.{i}", hidden, inner)
    yield from mlp(f"{at}.shared_expert", hidden, text["shared_expert_intermediate_size"])
    yield f"{at}.shared_expert_gate.weight", (1, hidden)


def attention(at, kind, text):
    hidden, heads, kv = (text["hidden_size"], text["num_attention_heads"],
                         text["num_key_value_heads"])
    head = text.get("head_dim", hidden // heads)
    gated = 2 if kind.startswith("qwen3_5") else 1
    for name, rows in (("q_proj", gated * heads * head), ("k_proj", kv * head),
                       ("v_proj", kv * head)):
        yield f"{at}.{name}.weight", (rows, hidden)
        if kind in OLD:
            yield f"{at}.{name}.bias", (rows,)
    yield f"{at}.o_proj.weight", (hidden, heads * head)
    if kind not in OLD:
        yield f"{at}.q_norm.weight", (head,)
        yield f"{at}.k_norm.weight", (head,)


def delta(at, text):
    hidden, heads = text["hidden_size"], text["linear_num_value_heads"]
    values = heads * text["linear_value_head_dim"]
    mixed = 2 * text["linear_num_key_heads"] * text["linear_key_head_dim"] + values
    yield f"{at}.A_log", (heads,)
    yield f"{at}.dt_bias", (heads,)
    yield f"{at}.conv1d.weight", (mixed, 1, text["linear_conv_kernel_dim"])
    for name, rows in (("a", heads), ("b", heads), ("qkv", mixed), ("z", values)):
        yield f"{at}.in_proj_{name}.weight", (rows, hidden)
    yield f"{at}.norm.weight", (text["linear_value_head_dim"],)
    yield f"{at}.out_proj.weight", (hidden, values)


def text_tensors(kind, text):
    prefix = "model" if kind in OLD else "model.language_model"
    hidden = text["hidden_size"]
    yield "lm_head.weight", (text["vocab_size"], hidden)
    yield f"{prefix}.embed_tokens.weight", (text["vocab_size"], hidden)
    yield f"{prefix}.norm.weight", (hidden,)
    for i in range(text["num_hidden_layers"]):
        at = f"{prefix}.layers.{i}"
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
        if text.get("layer_types", ["full_attention"] * (i + 1))[i] == "linear_attention":
            yield from delta(f"{at}.linear_attn", text)
        else:
            yield from attention(f"{at}.self_attn", kind, text)
        if "num_experts" in text:
            yield from experts(f"{at}.mlp", text, kind == "qwen3_vl_moe")
        else:
            yield from mlp(f"{at}.mlp", hidden, text["intermediate_size"])


def with_bias(tensors):
    for name, shape in tensors:
        yield name, shape
        yield name.replace(".weight", ".bias"), shape[:1]


def merger(at, names, wide, norm, out, biased=True):
    yield from with_bias([(f"{at}.{names[1]}.weight", (wide, wide)),
                          (f"{at}.{names[2]}.weight", (out, wide))])
    shapes = [(f"{at}.{names[0]}.weight", (norm,))]
    yield from with_bias(shapes) if biased else shapes


def tower_tensors(kind, sight):
    old, plain = kind in OLD, kind == "qwen2_5_vl"
    at = "visual" if old else "model.visual"
    width = sight.get("embed_dim", sight["hidden_size"])
    inner = sight.get("intermediate_size", width * sight.get("mlp_ratio", 1))
    out = sight.get("out_hidden_size", sight["hidden_size"])
    wide = width * sight["spatial_merge_size"] ** 2
    patch = (width, 3, sight["temporal_patch_size"], *[sight["patch_size"]] * 2)
    patches = [(f"{at}.patch_embed.proj.weight", patch)]
    yield from patches if old else with_bias(patches)
    if not old:
        yield f"{at}.pos_embed.weight", (sight["num_position_embeddings"], width)
    for i in range(sight["depth"]):
        block = f"{at}.blocks.{i}"
        norms = [(f"{block}.norm{j}.weight", (width,)) for j in (1, 2)]
        yield from norms if plain else with_bias(norms)
        yield from with_bias([(f"{block}.attn.qkv.weight", (3 * width, width)),
                              (f"{block}.attn.proj.weight", (width, width))])
        first = f"{block}.mlp.{'' if old else 'linear_'}fc"
        yield from with_bias(mlp(f"{block}.mlp", width, inner) if plain else
                             [(f"{first}1.weight", (inner, width)),
                              (f"{first}2.weight", (width, inner))])
    names = ("ln_q", "mlp.0", "mlp.2") if old else ("norm", "linear_fc1", "linear_fc2")
    yield from merger(f"{at}.merger", names, wide, width, out, not plain)
    for i in range(len(sight.get("deepstack_visual_indexes", []))):
        yield from merger(f"{at}.deepstack_merger_list.{i}", names, wide, wide, out)


def draw(rng, name, shape):
    count = 1
    for size in shape:
        count *= size
    if not shape:  # bounds of Gemma 4
        return array.array("f", [rng.uniform(0.7, 1.7) * (1 if name.endswith("max") else -1)])
    if "pos_embed" in name:
        scale, middle = 0.5, 0
    elif len(shape) == 1:
        scale, middle = 0.1, 1 if "norm" in name or name.endswith("ln_q.weight") else 0
        middle = 0 if name.endswith("bias") else middle
        middle = 1 if name.endswith("scalar") else middle
        if name.endswith("k_norm.weight") and "vision_tower" in name:
            middle = 0.25
    else:
        scale, middle = (count / shape[0]) ** -0.5, 0
        if "experts." in name and len(shape) == 3:
            scale = shape[2] ** -0.5
    return array.array("f", (rng.gauss(middle, scale) for _ in range(count)))


def write_weights(path, tensors, seed):
    rng, header, parts, at = random.Random(seed), {}, [], 0
    for name, shape in tensors:
        data = draw(rng, name, shape).tobytes()
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    head = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(parts))


def make(directory, kind="qwen3_vl", seed=1, text=(), sight=(), pixels=(64, 40000)):
    """A model of a kind. `pixels`: of the least and the largest picture."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    config = config_of(kind, text, sight)
    tower = config["vision_config"]
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    (directory / "preprocessor_config.json").write_text(json.dumps({
        "image_processor_type": "Qwen2VLImageProcessor", "patch_size": tower["patch_size"],
        "temporal_patch_size": 2, "merge_size": tower["spatial_merge_size"],
        "size": {"shortest_edge": pixels[0], "longest_edge": pixels[1]}}))
    write_tokenizer(directory)
    write_weights(directory / "model.safetensors", [
        *text_tensors(kind, config["text_config"]), *tower_tensors(kind, tower)], seed)
    return directory


# ---- pictures ----

def png(width, height, seed=0):
    """Noise over a slope, as a file."""
    rng = random.Random(f"{width} {height} {seed}")
    rows = b"".join(b"\0" + bytes(min(255, x * 155 // width + rng.randrange(100))
                                  for x in range(width) for _ in range(3))
                    for _ in range(height))

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0,
                                                              0, 0))
            + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def url(file, kind="png"):
    return f"data:image/{kind};base64,{base64.b64encode(file).decode()}"
