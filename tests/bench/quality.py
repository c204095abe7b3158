#!/usr/bin/env python3
"""Prints what quantised weights cost in quality: perplexity and KL divergence for each format.

    make build/model_driver && tests/bench/quality.py [--tokens 1000] [--keep DIR]

Needs pip install gguf tokenizers torch numpy. Tables: models/demo over fresh text of the
generator that made its training text (another seed), as GGUF files of the types that llama.cpp's
package can write; a Llama with random weights over random ids, the same types; both with a KV
cache of 8 bits; the reference models of tests/vectors/models over random ids, whose files the
formats' own tools wrote.

"served" is the CPU back end with bfloat16 and quantised panels; "values" is the same file in
float32, that is the very values of its blocks; "original" is the checkpoint in float32. KL is that
of the distribution of the next token, mean over all positions, in units of 1e-6 nats.
"""

import argparse
import json
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "scripts/demo_model")]
TYPES = ["BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"]
RANDOM = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 2048,
          "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
          "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
          "max_position_embeddings": 4096, "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
          "tie_word_embeddings": True, "torch_dtype": "bfloat16", "eos_token_id": 1}


def log_probs(driver, path, ids, vocab, dtype, length):
    """[positions, vocab] of windows of `length` ids, each one prefill."""
    rows = []
    for first in range(0, len(ids), length):
        window = ids[first:first + length]
        made = subprocess.run([driver, str(path), "cpu", "auto", dtype, "-", str(length),
                               str(len(window))], input=" ".join(map(str, window)).encode(),
                              stdout=subprocess.PIPE, check=True).stdout
        logits = np.frombuffer(made, np.float32).reshape(len(window), vocab).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        rows.append(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    return rows


def divergence(left, right):
    """Mean of KL(left || right) over all positions, in 1e-6 nats."""
    found = [(np.exp(a) * (a - b)).sum(axis=1) for a, b in zip(left, right)]
    return float(np.concatenate(found).mean() * 1e6)


def perplexity(rows, ids, length):
    found = []
    for i, row in enumerate(rows):
        window = ids[i * length:(i + 1) * length]
        found += [-row[k, window[k + 1]] for k in range(len(window) - 1)]
    return float(np.exp(np.mean(found)))


def demo_ids(count):
    import generate
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(ROOT / "models/demo/tokenizer.json"))
    ids = []
    for document in generate.documents(20261122, 200_000):
        text = document if isinstance(document, str) else document.decode()
        ids += tokenizer.encode(text, add_special_tokens=False).ids + [0]
        if len(ids) >= count:
            return ids[:count]
    raise SystemExit("the generator's text is too short")


def random_model(directory):
    """A checkpoint in bfloat16 whose logits have a deviation of about 2."""
    c, rng = RANDOM, np.random.default_rng(5)
    h, mlp, layers = c["hidden_size"], c["intermediate_size"], c["num_hidden_layers"]
    kv = c["num_key_value_heads"] * c["head_dim"]
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    for i in range(layers):
        names = {"self_attn.q_proj": (h, h), "self_attn.k_proj": (kv, h),
                 "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, h),
                 "mlp.gate_proj": (mlp, h), "mlp.up_proj": (mlp, h), "mlp.down_proj": (h, mlp),
                 "input_layernorm": (h,), "post_attention_layernorm": (h,)}
        shapes |= {f"model.layers.{i}.{n}.weight": shape for n, shape in names.items()}
    header, blob = {}, b""
    for name, shape in shapes.items():
        values = rng.standard_normal(shape, dtype=np.float32)
        scale = 2 / np.sqrt(h) if "embed" in name else 1 / np.sqrt(shape[-1])
        values = 1 + 0.1 * values if len(shape) == 1 else scale * values
        data = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(shape),
                        "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header).encode()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + blob)
    (directory / "config.json").write_text(json.dumps(c))
    vocab = {chr(0x4E00 + i): i for i in range(c["vocab_size"])}
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
        "post_processor": None, "decoder": None,
        "model": {"type": "BPE", "vocab": vocab, "merges": []}}))
    (directory / "tokenizer_config.json").write_text("{}")


def table_of_types(options, title, directory, scratch, ids):
    import gguf_demo
    from gguf import GGMLQuantizationType as Type
    vocab = json.loads((directory / "config.json").read_text())["vocab_size"]
    run = [options.driver, ids, vocab, options.length]
    original = log_probs(run[0], directory, ids, vocab, "float32", options.length)
    print(f"\n{title}: {len(ids)} tokens in windows of {options.length}; the checkpoint in float32 "
          f"has a perplexity of {perplexity(original, ids, options.length):.4f}\n")
    print("| format | perplexity of the values | served | KL of the values to the original "
          "| served to the values | served to the original |\n"
          "| --- | --- | --- | --- | --- | --- |")
    for name in TYPES:
        path = scratch / f"{directory.name}-{name}.gguf"
        gguf_demo.write(directory, path, Type[name])
        values = log_probs(run[0], path, ids, vocab, "float32", options.length)
        served = log_probs(run[0], path, ids, vocab, "bfloat16", options.length)
        print(f"| {name} | {perplexity(values, ids, options.length):.4f} "
              f"| {perplexity(served, ids, options.length):.4f} "
              f"| {divergence(original, values):.1f} | {divergence(values, served):.1f} "
              f"| {divergence(original, served):.1f} |", flush=True)


def table_of_caches(options, models):
    print("\n| model, KV cache | perplexity | KL to the original | to the cache of bfloat16 |\n"
          "| --- | --- | --- | --- |")
    for title, directory, ids in models:
        vocab = json.loads((directory / "config.json").read_text())["vocab_size"]
        run = [options.driver, directory, ids, vocab]
        original = log_probs(*run, "float32", options.length)
        first = log_probs(*run, "bfloat16", options.length)
        for name in ("bfloat16", "bfloat16+int8"):
            made = log_probs(*run, name, options.length)
            print(f"| {title}, {name.split('+')[-1]} | {perplexity(made, ids, options.length):.4f} "
                  f"| {divergence(original, made):.1f} | {divergence(first, made):.1f} |",
                  flush=True)


def table_of_references(options):
    print("\n| reference model | served to the values |\n| --- | --- |")
    rng = random.Random(3)
    for directory in sorted((ROOT / "tests/vectors/models").iterdir()):
        if not directory.name.startswith(("packed-", "gguf-llama-k", "gguf-llama-iq",
                                          "gguf-qwen3-moe-k", "gguf-gpt-oss")):
            continue
        ids = [rng.randrange(67) for _ in range(1024)]
        made = [log_probs(options.driver, directory, ids, 67, dtype, 64)
                for dtype in ("float32", "bfloat16")]
        print(f"| {directory.name} | {divergence(*made):.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver", default=str(ROOT / "build/model_driver"))
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--length", type=int, default=500, help="tokens of a window")
    parser.add_argument("--tables", default="types,caches,references")
    parser.add_argument("--keep", type=Path, help="directory for the files that are made")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        scratch = options.keep or Path(made)
        scratch.mkdir(parents=True, exist_ok=True)
        random_model(scratch / "random")
        rng = random.Random(2)
        models = [("models/demo", ROOT / "models/demo", demo_ids(options.tokens)),
                  ("random weights", scratch / "random",
                   [rng.randrange(2048) for _ in range(options.tokens)])]
        for title, directory, ids in models if "types" in options.tables else []:
            table_of_types(options, title, directory, scratch, ids)
        if "caches" in options.tables:
            table_of_caches(options, models)
        if "references" in options.tables:
            table_of_references(options)


if __name__ == "__main__":
    main()
