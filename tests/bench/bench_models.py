#!/usr/bin/env python3
"""Writes the model of tests/bench/bench_cpu --parts goals in every form that its engines read.

    tests/bench/bench_models.py DIR [--quantize LLAMA_QUANTIZE] [--optimum OPTIMUM_CLI] [--tiny]
                                    [--small] [--large GIB]

A Qwen2 of 494M parameters with random weights in bfloat16: DIR/hf with safetensors, DIR/bf16.gguf,
and by llama.cpp's llama-quantize DIR/q8_0.gguf, q4_0.gguf, q4_k_m.gguf; by optimum-intel
DIR/ov-fp16, ov-int8, ov-int4. --large adds DIR/large.gguf, a Llama in Q4_K of so many GiB, whose
blocks are random, to time loading. What is there already is kept. Needs numpy and gguf.
"""

import argparse
import json
import struct
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFWriter

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench")]
TYPES = ["Q8_0", "Q4_0", "Q4_K_M"]
BLOCK_BYTES = 144  # of 256 weights in Q4_K


def bench_cpu():
    """The script that owns the shape and its tokenizer."""
    loader = SourceFileLoader("bench_cpu", str(ROOT / "tests/bench/bench_cpu"))
    module = module_from_spec(spec_from_loader("bench_cpu", loader))
    loader.exec_module(module)
    return module


def shapes(c):
    h, mlp = c["hidden_size"], c["intermediate_size"]
    kv = h // c["num_attention_heads"] * c["num_key_value_heads"]
    layer = {"self_attn.q_proj.weight": (h, h), "self_attn.k_proj.weight": (kv, h),
             "self_attn.v_proj.weight": (kv, h), "self_attn.o_proj.weight": (h, h),
             "self_attn.q_proj.bias": (h,), "self_attn.k_proj.bias": (kv,),
             "self_attn.v_proj.bias": (kv,), "mlp.gate_proj.weight": (mlp, h),
             "mlp.up_proj.weight": (mlp, h), "mlp.down_proj.weight": (h, mlp),
             "input_layernorm.weight": (h,), "post_attention_layernorm.weight": (h,)}
    found = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    for i in range(c["num_hidden_layers"]):
        found |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    return found


def bfloat16(rng, name, shape):
    """Random halves; norms near 1, the rest so that no layer grows its input."""
    values = rng.standard_normal(shape, dtype=np.float32)
    values = 1 + values * 0.02 if "norm" in name else values * 0.02
    return (values.astype(np.float32).view(np.uint32) >> 16).astype("<u2")


def write_checkpoint(directory, config, tokenizer):
    rng, header, at = np.random.default_rng(7), {}, 0
    directory.mkdir(parents=True, exist_ok=True)
    for name, shape in shapes(config).items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(directory / "model.part", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes(config).items():
            out.write(bfloat16(rng, name, shape).tobytes())
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>",
         "model_max_length": config["max_position_embeddings"]}))
    (directory / "config.json").write_text(json.dumps(config, indent=1))
    (directory / "model.part").rename(directory / "model.safetensors")


NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "token_embd",
         "model.norm": "output_norm"}


def gguf_name(name):
    stem, part = name.rsplit(".", 1)
    if stem.startswith("model.layers."):
        _, _, layer, module = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[module]}.{part}"
    return f"{NAMES[stem]}.{part}"


def add_tokens(writer, tokenizer, rows):
    texts, types = [f"[PAD{i}]" for i in range(rows)], [5] * rows
    for text, i in tokenizer["model"]["vocab"].items():
        texts[i], types[i] = text, 1
    for token in tokenizer["added_tokens"]:
        texts[token["id"]], types[token["id"]] = token["content"], 3
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    vocabulary = tokenizer["model"]["vocab"]
    pairs = [word for word in vocabulary if len(word) == 2 and all(c in vocabulary for c in word)]
    writer.add_token_merges([" ".join(word) for word in pairs])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


def add_shape(writer, c):
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_freq_base(c["rope_theta"])


def finish(writer, path):
    writer.write_header_to_file(path.with_suffix(".part"))
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".part").rename(path)


def write_gguf(path, source, config, tokenizer):
    data = np.memmap(source / "model.safetensors", np.uint8, "r")
    length = int(data[:8].view("<u8")[0])
    header = json.loads(bytes(data[8:8 + length]))
    writer = GGUFWriter(None, "qwen2")
    add_shape(writer, config)
    add_tokens(writer, tokenizer, config["vocab_size"])
    for name, entry in header.items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        halves = np.frombuffer(data[begin:end].tobytes(), "<u2")
        if len(entry["shape"]) == 1:  # float32 in such files
            values = (halves.astype(np.uint32) << 16).view(np.float32)
            writer.add_tensor(gguf_name(name), values)
        else:
            writer.add_tensor(gguf_name(name), halves.view(np.uint8).reshape(entry["shape"][0], -1),
                              raw_dtype=Type.BF16)
    finish(writer, path)


def random_blocks(rng, rows, cols):
    """[rows, bytes] of Q4_K with scales of a usual size."""
    made = rng.integers(0, 256, (rows, cols // 256, BLOCK_BYTES), np.uint8)
    made[:, :, 0:4] = np.array([2e-4, 2e-4], "<f2").view(np.uint8)
    return made.reshape(rows, -1)


def write_large(path, gib, tokenizer=None):
    """A Llama of 4096 x 14336, as many layers as fill the size; layers repeat the same blocks.
    Without a tokenizer it can be loaded, and not served."""
    c = {"max_position_embeddings": 8192, "hidden_size": 4096, "intermediate_size": 14336,
         "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-5,
         "rope_theta": 5e5, "vocab_size": 32000 if tokenizer is None else 152064}
    h, mlp, rng = c["hidden_size"], c["intermediate_size"], np.random.default_rng(8)
    rows = {"attn_q": (h, h), "attn_k": (1024, h), "attn_v": (1024, h), "attn_output": (h, h),
            "ffn_gate": (mlp, h), "ffn_up": (mlp, h), "ffn_down": (h, mlp)}
    layer = {name: random_blocks(rng, *shape) for name, shape in rows.items()}
    outer = {name: random_blocks(rng, c["vocab_size"], h) for name in ("token_embd", "output")}
    left = gib * 2**30 - sum(blocks.nbytes for blocks in outer.values())
    c["num_hidden_layers"] = max(1, round(left / sum(blocks.nbytes for blocks in layer.values())))
    writer = GGUFWriter(None, "llama")
    add_shape(writer, c)
    writer.add_vocab_size(c["vocab_size"])
    if tokenizer is None:
        writer.add_tokenizer_model("none")
    else:
        add_tokens(writer, tokenizer, c["vocab_size"])
    for name, blocks in outer.items():
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=Type.Q4_K)
    writer.add_tensor("output_norm.weight", np.ones(h, np.float32))
    for i in range(c["num_hidden_layers"]):
        for name, blocks in layer.items():
            writer.add_tensor(f"blk.{i}.{name}.weight", blocks, raw_dtype=Type.Q4_K)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(h, np.float32))
    finish(writer, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--quantize", type=Path, help="llama-quantize of llama.cpp")
    parser.add_argument("--optimum", type=Path, help="optimum-cli with optimum-intel")
    parser.add_argument("--large", type=float, default=0)
    parser.add_argument("--small", action="store_true",
                        help="8 layers of 512, for tests/bench/bench_load --parts peers")
    parser.add_argument("--tiny", action="store_true", help="a small shape, to try the scripts")
    args = parser.parse_args()
    bench, folder = bench_cpu(), args.directory
    config = dict(bench.SHAPE)
    if args.tiny:
        config |= {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
                   "num_attention_heads": 4}
    if args.small:
        config |= {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8,
                   "num_attention_heads": 8}
    tokenizer = bench.words_tokenizer()
    if not (folder / "hf/model.safetensors").exists():
        write_checkpoint(folder / "hf", config, tokenizer)
    if not (folder / "bf16.gguf").exists():
        write_gguf(folder / "bf16.gguf", folder / "hf", config, tokenizer)
    for name in TYPES if args.quantize else []:
        if not (folder / f"{name.lower()}.gguf").exists():
            subprocess.run([args.quantize, folder / "bf16.gguf", folder / f"{name.lower()}.gguf",
                            name], check=True)
    for name in ("fp16", "int8", "int4") if args.optimum else ():
        if not (folder / f"ov-{name}").exists():
            subprocess.run([args.optimum, "export", "openvino", "--model", folder / "hf", "--task",
                            "text-generation-with-past", "--weight-format", name,
                            folder / f"ov-{name}"], check=True)
    if args.large > 0 and not (folder / "large.gguf").exists():
        write_large(folder / "large.gguf", args.large)
    print("\n".join(f"{path} {sum(f.stat().st_size for f in [path, *path.glob('*')]) / 1e6:.0f} MB"
                    for path in sorted(folder.iterdir())))


if __name__ == "__main__":
    main()
