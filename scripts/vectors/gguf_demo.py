#!/usr/bin/env python3
"""Writes models/demo, or another small Llama with a byte-level tokenizer, as a GGUF file.

    scripts/vectors/gguf_demo.py OUT [--type BF16|Q8_0|Q4_K_M] [--split N] [DIR]

With llama.cpp's package `gguf` and numpy, as its converter does: rows of q and k zipped, norms in
float32. BF16 has the numbers of the checkpoint, so both files give the same bits.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFWriter
from gguf.quants import quantize

import packing

NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
         "model.norm.weight": "output_norm.weight"}


def tensors(path):
    """Name and float32 values of every tensor of a safetensors file in bfloat16."""
    data = np.memmap(path, np.uint8, "r")
    length = int(data[:8].view("<u8")[0])
    for name, entry in json.loads(bytes(data[8:8 + length])).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16", name
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        halves = data[begin:end].view("<u2").astype(np.uint32)
        yield name, (halves << 16).view(np.float32).reshape(entry["shape"])


def zipped(rows, heads):
    return rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(
        rows.shape)


def add_tokenizer(writer, directory, rows):
    tokenizer = json.loads((directory / "tokenizer.json").read_text("utf-8"))
    config = json.loads((directory / "tokenizer_config.json").read_text("utf-8"))
    texts, types = [f"[PAD{i}]" for i in range(rows)], [5] * rows
    for text, i in tokenizer["model"]["vocab"].items():
        texts[i], types[i] = text, 1
    for token in tokenizer["added_tokens"]:
        texts[token["id"]], types[token["id"]] = token["content"], 3 if token["special"] else 4
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("dbrx")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_add_bos_token(False)
    if config.get("eos_token"):
        writer.add_eos_token_id(texts.index(config["eos_token"]))
    if config.get("pad_token"):
        writer.add_pad_token_id(texts.index(config["pad_token"]))
    if (directory / "chat_template.jinja").is_file():
        config["chat_template"] = (directory / "chat_template.jinja").read_text("utf-8")
    if config.get("chat_template"):
        writer.add_chat_template(config["chat_template"])


def blocks(values, name, form):
    """(type, rows of blocks): one type for all, or for Q4_K_M what llama.cpp's mixture does."""
    if form != "Q4_K_M":
        kind = Type[form] if isinstance(form, str) else form
    elif values.shape[1] % 256 != 0:
        kind = Type.Q5_0 if "ffn_down" not in name else Type.Q8_0
    else:
        kind = Type.Q6_K if "token_embd" in name or "attn_v" in name else Type.Q4_K
    own = {Type.Q4_K: packing.q4_k, Type.Q6_K: packing.q6_k}
    values = np.ascontiguousarray(values)
    return kind, own[kind](values) if kind in own else quantize(values, kind)


def write(directory, out, form=Type.BF16, split=0):
    c = json.loads((directory / "config.json").read_text("utf-8"))
    writer = GGUFWriter(out, "llama", split_max_tensors=split)
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_key_length(c["head_dim"])
    writer.add_value_length(c["head_dim"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_freq_base(c["rope_theta"])
    add_tokenizer(writer, directory, c["vocab_size"])
    for name, values in tensors(directory / "model.safetensors"):
        parts = name.split(".")
        if name in OUTER:
            new = OUTER[name]
        else:
            new = f"blk.{parts[2]}.{NAMES['.'.join(parts[3:-1])]}.{parts[-1]}"
        if ".attn_q." in new:
            values = zipped(values, c["num_attention_heads"])
        if ".attn_k." in new:
            values = zipped(values, c["num_key_value_heads"])
        if values.ndim == 1:
            writer.add_tensor(new, values)
        else:
            kind, packed = blocks(values, new, form)
            writer.add_tensor(new, packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("directory", type=Path, nargs="?", default=root / "models/demo")
    parser.add_argument("--type", default="BF16")
    parser.add_argument("--split", type=int, default=0, help="tensors of a file; 0 = one file")
    options = parser.parse_args()
    write(options.directory, options.out, options.type, options.split)


if __name__ == "__main__":
    main()
