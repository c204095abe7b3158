#!/usr/bin/env python3
"""Writes tests/vectors/quant.txt: random blocks of every block format with their values.

    scripts/vectors/quant.py [OUT]        needs gguf and numpy

The values are those of the package gguf (`gguf.quants.dequantize`), which belongs to llama.cpp. A
line is: format, weights, the bytes of the blocks in hex, the values as bits of float32 in hex. A
line that begins with `encode` has numbers and the Q8_0 blocks that `gguf.quants.quantize` makes of
them.
"""

import sys
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

# Bytes at which the f16 numbers of a block stand; random bits would often be NaN or infinity.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0],
          "IQ4_XS": [0], "MXFP4": [], "NVFP4": []}
SMALL_BLOCKS, LARGE_BLOCKS = 4, 2  # of 32 or 64 weights; of 256
EXPONENTS = [0, 1, 2, 127, 252]  # of MXFP4


def random_blocks(random, name, count, size):
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES[name]:
        halves = random.standard_normal(count).astype(np.float16) * np.float16(0.01)
        blocks[:, at:at + 2] = halves.view(np.uint8).reshape(count, 2)
    if name == "MXFP4":
        blocks[:, 0] = EXPONENTS[:count]
    if name == "NVFP4":
        blocks[0, :4] = [0, 1, 0x7E, 0x7F]
    return blocks


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/vectors/quant.txt")
    random = np.random.default_rng(20)
    lines = []
    for name in HALVES:
        kind = GGMLQuantizationType[name]
        weights, size = GGML_QUANT_SIZES[kind]
        count = len(EXPONENTS) if name == "MXFP4" else (
            LARGE_BLOCKS if weights == 256 else SMALL_BLOCKS)
        blocks = random_blocks(random, name, count, size)
        values = dequantize(blocks.reshape(-1), kind).astype(np.float32)
        assert np.isfinite(values).all(), name
        bits = "".join(f"{b:08x}" for b in values.view(np.uint32).reshape(-1))
        lines.append(f"{name} {weights * count} {blocks.tobytes().hex()} {bits}")
    numbers = random.standard_normal(96).astype(np.float32)
    numbers[32:64] *= np.float32(1e-3)
    numbers[64:] = 0
    bits = "".join(f"{b:08x}" for b in numbers.view(np.uint32))
    blocks = quantize(numbers, GGMLQuantizationType.Q8_0)
    lines.append(f"encode {len(numbers)} {blocks.tobytes().hex()} {bits}")
    out.write_text("\n".join(lines) + "\n", "ascii")


if __name__ == "__main__":
    main()
