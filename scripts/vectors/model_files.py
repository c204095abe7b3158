"""Ways in which published checkpoints are laid out on disk, for models.py."""

import json
import struct

import torch
from safetensors.torch import save_file


def rename(tensors, prefix, to):
    return {to + n[len(prefix):] if n.startswith(prefix) else n: t for n, t in tensors.items()}


def save(model, config, directory, how, dtype):
    """Writes the weights of a filled fp32 model into `directory` as `dtype`."""
    model.to(dtype)
    if how in ("plain", "sharded"):
        # transformers itself, with its own config.json and generation_config.json
        model.generation_config.pad_token_id = None
        model.save_pretrained(directory, max_shard_size="60KB" if how == "sharded" else "1GB")
        for path in directory.glob("*.safetensors"):
            path.chmod(0o644)
        return
    tensors = {n: t.contiguous().clone() for n, t in model.state_dict().items()}
    if config.get("tie_word_embeddings", config["model_type"] in ("opt", "gpt2")):
        tensors.pop("lm_head.weight", None)
    if how == "mixed":
        # some tools leave norms in fp32
        tensors = {n: t.float() if "norm" in n else t for n, t in tensors.items()}
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
        tensors["lm_head.weight"] = torch.full_like(tensors["decoder.embed_tokens.weight"], 7.0)
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
