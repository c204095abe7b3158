"""The dummy weights of engine/model/dummy.h in numpy, bit for bit, and their way into transformers.

A model of transformers filled by `fill` has the same numbers as `--load-format dummy` with the same
seed, so that a test needs no weight files.
"""

import math

import numpy as np
import torch

MASK = (1 << 64) - 1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
PREFIXES = ("model.decoder.", "transformer.", "model.")
NORMS = ("norm.weight", "layernorm.weight", "layer_norm.weight", "ln_1.weight", "ln_2.weight",
         "ln_f.weight")


def mix(z):
    """Finaliser of splitmix64 on an array of uint64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fnv1a(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return np.array([h], dtype=np.uint64)


def values(name, shape, columns, seed):
    """Elements in stored order. `columns`: input width of a matrix, 0 for a vector."""
    with np.errstate(over="ignore"):
        key = mix(fnv1a(name) ^ mix(np.array([seed], dtype=np.uint64)))
        count = int(np.prod(shape))
        words = mix(key + np.arange((count + 1) // 2, dtype=np.uint64) * GOLDEN)
    sums = words.view(np.uint8).reshape(-1, 4).astype(np.int32).sum(axis=1)[:count]
    deviation = 0.1 if columns == 0 else 1.0 / math.sqrt(columns)
    scale = np.float32(deviation / math.sqrt(21845.0))
    out = (sums - 510).astype(np.float32) * scale
    if columns == 0 and name.endswith(NORMS):
        out = out + np.float32(1.0)
    return out.reshape(shape)


def short_name(name):
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix):]
    return name


def is_conv1d(name):
    return name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))


def fill(model, seed, dtype):
    """Sets every parameter of a transformers model (fp32 holders) to the values of `dtype`."""
    with torch.no_grad():
        for full, parameter in model.named_parameters():
            name, shape = short_name(full), tuple(parameter.shape)
            columns = 0 if len(shape) == 1 else shape[0] if is_conv1d(name) else shape[1]
            made = torch.from_numpy(values(name, shape, columns, seed))
            parameter.copy_(made.to(dtype).to(torch.float32))
