"""An fp8 KV cache on the emulated GPU: its size, its answers, and the scales of a checkpoint.

Run by serve.py.
"""

import json
import random
import re
import shutil
import struct
import tempfile
from pathlib import Path

from serving import FEW, LONG, TINY, Server, prompts


def test_an_fp8_cache(program):
    """Twice the tokens in the same bytes, other logprobs but close, one answer in any company."""
    drawn = prompts(9, 80) if LONG else prompts(6, 50)
    bodies = [{"prompt": p, "max_tokens": 6, "logprobs": 1} for p in drawn]
    size = ["--kv-cache-bytes", 8 << 20, "--max-num-batched-tokens", 64, *FEW]
    plain = Server(program, "cuda", *size)
    small = Server(program, "cuda", *size, "--kv-cache-dtype", "fp8")
    try:
        expected, got = plain.all(bodies), small.all(bodies)
        alone = [small.all([body])[0] for body in bodies]
        assert [c["token_ids"] for c in got] == [c["token_ids"] for c in alone]
        assert [c["logprobs"] for c in got] == [c["logprobs"] for c in alone]
        firsts = [(a["logprobs"]["token_logprobs"][0], b["logprobs"]["token_logprobs"][0])
                  for a, b in zip(expected, got) if a["token_ids"][0] == b["token_ids"][0]]
        assert len(firsts) >= 3, (expected, got)  # of 192 first tokens 176 were the same
        assert all(abs(a - b) < 0.5 for a, b in firsts), firsts
        assert any(a != b for a, b in firsts), "nothing was stored as e4m3"
        blocks = [int(re.search(r'num_gpu_blocks="(\d+)"', s.metrics())[1]) for s in (plain, small)]
        assert 1.8 * blocks[0] < blocks[1] < 2.2 * blocks[0], blocks
        assert 'cache_dtype="fp8"' in small.metrics()
    finally:
        assert plain.stop() == 0, plain.text()
        assert small.stop() == 0, small.text()
    refused = Server(program, "cpu", "--kv-cache-dtype", "fp8")
    assert refused.stop() == 78 and "kv_cache_dtype is fp8" in refused.text(), refused.text()


def bf16(number):
    return struct.pack("<f", number)[2:]


def tensors():
    """Random weights of the tiny model: {name: (shape, numbers)}."""
    made = {}

    def add(name, *shape):
        numbers = [1.0] * shape[0] if len(shape) == 1 else [
            random.gauss(0, shape[1] ** -0.5) for _ in range(shape[0] * shape[1])]
        made[f"model.{name}.weight"] = (shape, numbers)

    add("embed_tokens", 384, 64)
    add("norm", 64)
    for layer in range(2):
        for name, *shape in (("input_layernorm", 64), ("post_attention_layernorm", 64),
                             ("self_attn.q_proj", 64, 64), ("self_attn.k_proj", 32, 64),
                             ("self_attn.v_proj", 32, 64), ("self_attn.o_proj", 64, 64),
                             ("mlp.gate_proj", 128, 64), ("mlp.up_proj", 128, 64),
                             ("mlp.down_proj", 64, 128)):
            add(f"layers.{layer}.{name}", *shape)
    return made


def write_checkpoint(folder, weights, scales):
    """The tiny model with these weights, in bf16, and scales {name: number} as fp32 scalars."""
    header, data = {}, b""
    for name, (shape, numbers) in weights.items():
        header[name] = {"dtype": "BF16", "shape": shape,
                        "data_offsets": [len(data), len(data) + 2 * len(numbers)]}
        data += b"".join(map(bf16, numbers))
    for name, number in scales.items():
        header[name] = {"dtype": "F32", "shape": [], "data_offsets": [len(data), len(data) + 4]}
        data += struct.pack("<f", number)
    shutil.copytree(TINY, folder)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


def rescaled(weights):
    """The same function with other keys and values, and the scales that make up for it.

    Keys and values of a layer grow or shrink by powers of two, queries and the output projection
    the other way: exact in bf16 and fp32. They leave what e4m3 holds, 2^-9 to 448, unless they are
    divided by the scales.
    """
    changed, scales = dict(weights), {}
    for layer in range(2):
        module = f"model.layers.{layer}.self_attn."
        for stored, other, scale in (("k_proj", "q_proj", "k_scale"),
                                     ("v_proj", "o_proj", "v_scale")):
            factor = 2.0 ** (random.choice((-1, 1)) * random.randrange(10, 14))
            for name, by in ((stored, factor), (other, 1 / factor)):
                shape, numbers = weights[f"{module}{name}.weight"]
                changed[f"{module}{name}.weight"] = (shape, [by * x for x in numbers])
            scales[module + scale] = factor
    return changed, scales


def test_the_scales_of_a_checkpoint(program):
    """A model whose keys and values e4m3 cannot hold answers as the one whose it can."""
    bodies = [{"prompt": p, "max_tokens": 6, "logprobs": 1} for p in prompts(5, 60)]
    # Of few rows, or the start tries the library for thousands.
    by_library = ["--no-batch-invariant", "--max-num-batched-tokens", 64]
    weights = tensors()
    changed, scales = rescaled(weights)
    with tempfile.TemporaryDirectory() as name:
        plain = write_checkpoint(Path(name) / "plain", weights, {})
        grown = write_checkpoint(Path(name) / "grown", changed, scales)
        bare = write_checkpoint(Path(name) / "bare", changed, {})
        bad = write_checkpoint(Path(name) / "bad", changed,
                               {**scales, "model.layers.1.self_attn.v_scale": 0.0})
        answers, texts = {}, {}
        for model, cache, *flags in ((plain, "fp8"), (grown, "fp8"), (plain, "auto"),
                                     (grown, "auto"), (bare, "fp8", *by_library)):
            server = Server(program, "cuda", "--kv-cache-dtype", cache, *FEW, *flags, model=model)
            choices = server.all(bodies) if server.process.poll() is None else []
            assert server.stop() == 0, server.text()
            answers[model.name, cache] = [(c["token_ids"], c["logprobs"]) for c in choices]
            texts[model.name, cache] = server.text()
        assert answers["grown", "fp8"] == answers["plain", "fp8"]
        assert answers["grown", "auto"] == answers["plain", "auto"]
        assert answers["bare", "fp8"] != answers["plain", "fp8"], "scales change nothing"
        assert answers["plain", "auto"] != answers["plain", "fp8"], "nothing was stored as e4m3"
        low, high = min(scales.values()), max(scales.values())
        assert f"e4m3 by the checkpoint's scales, {low:g} to {high:g}" in texts["grown", "fp8"]
        assert "e4m3 by scale 1" in texts["bare", "fp8"] and "e4m3" not in texts["grown", "auto"]
        assert "prefill by mma.sync: the cache is e4m3" in texts["bare", "fp8"]
        refused = Server(program, "cuda", model=bad)
        assert refused.stop() != 0
        assert "model.layers.1.self_attn.v_scale: is 0; the scale" in refused.text()
