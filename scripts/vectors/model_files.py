"""Ways in which published checkpoints are laid out on disk, for models.py."""

import json
import struct

import torch
from safetensors.torch import load_file, save_file

from model_weights import blocks, short_name
from twin_files import AROUND, TWINS, save_twin


def rename(tensors, prefix, to):
    return {to + n[len(prefix):] if n.startswith(prefix) else n: t for n, t in tensors.items()}


def as_mxfp4(tensors, seed):
    """The experts of gpt-oss as the blocks that `fill` made them from."""
    for name in [n for n in tensors if n.endswith((".experts.gate_up_proj", ".experts.down_proj"))]:
        experts, cols, rows = tensors.pop(name).shape
        nibbles, exponents = blocks(short_name(name), experts, rows, cols, seed)
        tensors[name + "_blocks"] = torch.from_numpy(nibbles.copy())
        tensors[name + "_scales"] = torch.from_numpy(exponents)
    return tensors


def with_images(tensors, config, directory, how):
    """A text model as the part of one that sees images: names, and the keys in text_config."""
    prefix = "model.language_model." if how == "images" else "language_model.model."
    tensors = rename(tensors, "model.", prefix)
    tower = "model.vision_tower.x.weight" if how == "images" else "vision_tower.x.weight"
    tensors[tower] = torch.ones(3, 3)
    tensors[tower.replace("vision_tower.x", "multi_modal_projector.y")] = torch.ones(2)
    inner = {k: v for k, v in config.items() if k not in OUTSIDE}
    outer = {k: v for k, v in config.items() if k in OUTSIDE}
    outer |= {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
              "text_config": inner, "vision_config": {"hidden_size": 8}}
    (directory / "config.json").write_text(json.dumps(outer, indent=1) + "\n")
    return tensors


def flat_images(tensors, config, directory):
    """The first Qwen2.5-VL files: the text model's keys outside, and no `language_model`."""
    flat = {**config, **config["text_config"], "model_type": config["model_type"]}
    del flat["text_config"]
    (directory / "config.json").write_text(json.dumps(flat, indent=1) + "\n")
    tensors = rename(tensors, "model.visual.", "visual.")
    return rename(tensors, "model.language_model.", "model.")


def name_layers(directory, saved):
    """transformers 5.23 saves layers of some texts as those of towers; published files have layers.
    """
    old, new = f"language_model.model.{saved}.", "language_model.model.layers."
    for path in directory.glob("*.safetensors"):
        save_file(rename(load_file(path), old, new), path, metadata={"format": "pt"})
    for path in directory.glob("*.index.json"):
        path.write_text(path.read_text().replace(old, new))


def as_saved(model, directory):
    """The tensors as transformers writes them, with experts one by one."""
    model.save_pretrained(directory)
    return load_file(directory / "model.safetensors")


LAYERS_SAVED = {"kimi_k25": "blocks", "qianfan_ocr": "encoder.layers"}


def part_taps(tensors, config):
    """transformers 5.23 saves those of OLMo hybrid in thirds, whatever q, k and v have."""
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    made = dict(tensors)
    for name in tensors:
        if not name.endswith(".q_conv1d.weight"):
            continue
        names = [name.replace("q_conv1d", f"{part}_conv1d") for part in "qkv"]
        rows = torch.cat([tensors[part] for part in names])
        parts = rows.split([keys, keys, len(rows) - 2 * keys])
        made |= {n: part.contiguous() for n, part in zip(names, parts, strict=True)}
    return made


def name_norms(tensors):
    """transformers 5.23 saves the norms behind attention of OLMo hybrid as those before MLPs."""
    def named(name):
        layer = name.split(".feedforward_layer_norm.")[0]
        if f"{layer}.self_attn.o_proj.weight" not in tensors:
            return name
        return name.replace("feedforward_layer_norm", "post_attention_layernorm")
    return {named(name): tensor for name, tensor in tensors.items()}


def turn_experts(directory):
    """Published files of Qwen3-VL have [experts, in, out], those of transformers [.., out, in]."""
    for path in directory.glob("*.safetensors"):
        tensors = {n: t.transpose(1, 2).contiguous() if ".mlp.experts." in n else t
                   for n, t in load_file(path).items()}
        save_file(tensors, path, metadata={"format": "pt"})


OUTSIDE = ("architectures", "torch_dtype", "eos_token_id", "bos_token_id")


def save(model, config, directory, how, dtype, seed=0):
    """Writes the weights of a filled fp32 model into `directory` as `dtype`."""
    model.to(dtype)
    if how in ("plain", "sharded", "published"):
        # transformers itself, with its own config.json and generation_config.json
        model.generation_config.pad_token_id = None
        model.save_pretrained(directory, max_shard_size="60KB" if how == "sharded" else "1GB")
        if config["model_type"] in LAYERS_SAVED and how == "plain":
            name_layers(directory, LAYERS_SAVED[config["model_type"]])
        if config["model_type"] == "qwen3_vl_moe" and how == "plain":
            turn_experts(directory)
        for path in directory.glob("*.safetensors"):
            if how == "published":
                tensors = part_taps(name_norms(load_file(path)), config)
                save_file(tensors, path, metadata={"format": "pt"})
            path.chmod(0o644)
        return
    tensors = {n: t.contiguous().clone() for n, t in model.state_dict().items()}
    if config.get("tie_word_embeddings", config["model_type"] in ("opt", "gpt2", "gemma3_text")):
        tensors.pop("lm_head.weight", None)
    if how == "mixed":
        # some tools leave norms in fp32
        tensors = {n: t.float() if "norm" in n else t for n, t in tensors.items()}
    elif how == "mxfp4":
        tensors = as_mxfp4(tensors, seed)
    elif how in ("images", "images-old"):
        tensors = with_images(tensors, config, directory, how)
    elif how == "gpt2-bare":
        # the first GPT-2 files: no prefix, and the causal masks saved as buffers
        tensors = rename(tensors, "transformer.", "")
        for layer in range(config["n_layer"]):
            mask = torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16)
            tensors[f"h.{layer}.attn.bias"] = mask.to(torch.uint8)
            tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    elif how == "opt-decoder":
        # some OPT files: prefix `decoder.`, and the tied head stored all the same
        tensors = rename(tensors, "model.decoder.", "decoder.")
        tensors["lm_head.weight"] = tensors["decoder.embed_tokens.weight"].clone()
    elif how == "bare":
        # as saved without a head, for embeddings; with parts that text needs not
        tensors = rename(tensors, "model.", "")
        tensors["layers.2.mlp.up_proj.weight"] = torch.ones(2, 2)
        tensors |= {n + ".weight": torch.ones(3) for n in ("mtp.norm", "visual.blocks.0.norm1")}
    elif how == "own-head":
        # transformers keeps a stored head that differs, whatever the key says
        text = json.dumps({**config, "tie_word_embeddings": True}, indent=1)
        (directory / "config.json").write_text(text + "\n")
    elif how == "equal-head":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    elif how == "flat-images":
        tensors = flat_images(tensors, config, directory)
    elif how in TWINS:
        if how in AROUND:
            tensors = as_saved(model, directory)
        tensors = save_twin(tensors, config, directory, how)
    elif how == "odd-header":
        # old Llama files carry rotary buffers; a header of odd length misaligns all data
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(16)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)
    if how == "odd-header":
        pad_header(directory / "model.safetensors")


def pad_header(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.dumps(json.loads(data[8:8 + length])).encode()
    header += b" " * (1 - len(header) % 2)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length:])
