"""The dummy weights of engine/model/weights/dummy.h in numpy, bit for bit, and their way into
transformers.

A model of transformers filled by `fill` has the same numbers as `--load-format dummy` with the same
seed, so that a test needs no weight files.
"""

import math

import numpy as np
import torch

MASK = (1 << 64) - 1
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
PREFIXES = ("model.decoder.", "transformer.", "gpt_neox.", "model.language_model.", "model.",
            "backbone.")
CODES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
# Families whose norms are (1 + w).
AROUND_ZERO = ("gemma", "vaultgemma", "nemotron", "qwen3_next", "qwen3_5")
PLAIN_NORMS = ("gemma3n", "gemma4", "nemotron_h")  # but not these
NORMS = ("norm_1.weight", "norm_2.weight", ".layer_scalar", ".scale", ".per_expert_scale",
         "norm.weight", "layernorm.weight", "layer_norm.weight", "ln_1.weight", "ln_2.weight",
         "ln_f.weight", "norm_f.weight", "ln_attn.weight", "ln_mlp.weight", "post_norm1.weight",
         "post_norm2.weight")
CHOICE_BIASES = ("e_score_correction_bias", ".expert_bias")
# Parts of names that transformers writes otherwise into files.
STORED = {"lfm3": {".g_proj.": ".gate_proj."},
          "phimoe": {".mlp.router.": ".mlp.gate.", ".mlp.": ".block_sparse_moe."},
          "mixtral": {".mlp.": ".block_sparse_moe."}, "gpt_neox": {"lm_head.": "embed_out."},
          "minimax_m2": {".mlp.": ".block_sparse_moe."},
          "exaone_moe": {".gate.e_score_correction_bias": ".e_score_correction_bias"},
          "hy_v3": {".mlp.gate.": ".mlp.router.gate.", ".shared_experts.": ".shared_mlp.",
                    ".mlp.e_score_correction_bias": ".mlp.expert_bias"},
          "ernie4_5_moe": {".gate.moe_statics.": ".moe_statics."}}


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


def values(name, shape, columns, seed, around_zero=False):
    """Elements in stored order. `columns`: input width of a matrix, 0 for a vector. `around_zero`:
    norm weights are w of (1 + w)."""
    with np.errstate(over="ignore"):
        key = mix(fnv1a(name) ^ mix(np.array([seed], dtype=np.uint64)))
        count = int(np.prod(shape))
        words = mix(key + np.arange((count + 1) // 2, dtype=np.uint64) * GOLDEN)
    sums = words.view(np.uint8).reshape(-1, 4).astype(np.int32).sum(axis=1)[:count]
    deviation = 0.1 if columns == 0 else 1.0 / math.sqrt(columns)
    scale = np.float32(deviation / math.sqrt(21845.0))
    out = (sums - 510).astype(np.float32) * scale
    if columns == 0 and (name.endswith(NORMS) or ".norms." in name) and not around_zero:
        out = out + np.float32(1.0)
    return out.reshape(shape)


def raw_bytes(name, count, seed):
    """The byte stream of MXFP4 tensors."""
    with np.errstate(over="ignore"):
        key = mix(fnv1a(name) ^ mix(np.array([seed], dtype=np.uint64)))
        words = mix(key + np.arange((count + 7) // 8, dtype=np.uint64) * GOLDEN)
    return words.view(np.uint8)[:count]


def blocks(name, experts, rows, cols, seed):
    """U8 [experts, rows, cols / 32, 16] of nibbles and U8 [experts, rows, cols / 32] exponents."""
    exponent, left = 125, cols
    while left >= 4:
        exponent, left = exponent - 1, left // 4
    shape = (experts, rows, cols // 32)
    count = experts * rows * cols // 32
    nibbles = raw_bytes(name + "_blocks", count * 16, seed).reshape(*shape, 16)
    low = raw_bytes(name + "_scales", count, seed) & 1
    return nibbles, (low + exponent).astype(np.uint8).reshape(shape)


def unpack(nibbles, exponents):
    """The numbers of MXFP4 blocks, fp32 [experts, rows, cols]; low nibble first."""
    codes = np.stack([nibbles & 15, nibbles >> 4], axis=-1).reshape(*nibbles.shape[:3], 32)
    numbers = np.where(codes & 8, -CODES[codes & 7], CODES[codes & 7])
    numbers = np.ldexp(numbers, exponents[..., None].astype(np.int32) - 127)
    return numbers.reshape(*nibbles.shape[:2], -1)


def experts_of(model, name, shape, seed):
    """Values of a stack of experts. transformers keeps them as one parameter; the files, and so the
    names of the dummy weights, have a tensor per expert (Mixtral, Qwen, OLMoE) or one (gpt-oss)."""
    kind = model.config.model_type
    if kind == "gpt_oss":
        if name.endswith("_bias"):
            return values(name, shape, 0, seed)
        if getattr(model.config, "quantization_config", None) is not None:
            made = unpack(*blocks(name, shape[0], shape[2], shape[1], seed))
            return made.transpose(0, 2, 1).copy()
        return values(name, shape, shape[1], seed)
    if kind.startswith("granitemoe") and kind != "granitemoe_swa":
        part = "output_linear" if name.endswith("down_proj") else "input_linear"
        return values(name.split(".experts.")[0] + f".{part}.weight", shape, shape[2], seed)
    if kind.startswith("gemma4") or kind == "granitemoe_swa":
        return values(name, shape, shape[2], seed)
    base = name.rsplit(".", 1)[0]
    parts = ["down_proj"] if name.endswith("down_proj") else ["gate_proj", "up_proj"]
    if kind == "nemotron_h":
        parts = [name.rsplit(".", 1)[1]]
    if kind in ("mixtral", "minimax_m2", "lfm2_moe", "phimoe"):
        parts = ["w2"] if name.endswith("down_proj") else ["w1", "w3"]
    rows = shape[1] // len(parts)
    return np.stack([np.concatenate([
        values(f"{base}.{e}.{part}.weight", (rows, shape[2]), shape[2], seed) for part in parts])
        for e in range(shape[0])])


def short_name(name):
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix):]
    return name


def is_conv1d(model, name):
    return model.config.model_type == "gpt2" and name.startswith("h.") and name.endswith(
        ("c_attn.weight", "c_proj.weight", "c_fc.weight"))


def stored_name(model, name):
    """The name in the files, where transformers has another one."""
    name = short_name(name)
    for part, stored in STORED.get(model.config.model_type, {}).items():
        name = name.replace(part, stored)
    return name


def fill_buffers(model, seed, dtype):
    """What routers add to their scores, which stays in fp32; the scalars of layers."""
    held = [*model.named_parameters(), *model.named_buffers()]
    with torch.no_grad():
        for full, tensor in held:
            if full.endswith(("layer_scalar", "act_fn.beta", "act_fn.eps")):
                made = torch.from_numpy(values(stored_name(model, full), (1,), 0, seed))
                tensor.copy_(made.to(dtype).float().reshape(tensor.shape))
            if full.endswith(CHOICE_BIASES):
                made = values(stored_name(model, full), tuple(tensor.shape), 0, seed)
                tensor.copy_(torch.from_numpy(made))


def fill(model, seed, dtype, rename=lambda name: name):
    """Sets every parameter of a transformers model (fp32 holders) to the values of `dtype`.
    `rename`: of a stored name, what the files have in its place."""
    fill_buffers(model, seed, dtype)
    with torch.no_grad():
        for full, parameter in model.named_parameters():
            name, shape = rename(stored_name(model, full)), tuple(parameter.shape)
            if full.endswith(CHOICE_BIASES):
                continue
            if model.config.model_type in ("granitemoe", "granitemoeshared", "granitemoehybrid"):
                name = name.replace(".router.weight", ".router.layer.weight")
            if ".experts." in name:
                made = torch.from_numpy(experts_of(model, name, shape, seed))
                parameter.copy_(made.to(dtype).to(torch.float32))
                continue
            columns = 0 if len(shape) == 1 else shape[0] if is_conv1d(model, name) else \
                shape[-1]
            if name.endswith(("q_norm.weight", "k_norm.weight", "A_log")):
                columns = 0  # those of Cohere have a row for each head, of Mamba-1 for each channel
            around_zero = model.config.model_type.startswith(AROUND_ZERO) and \
                not model.config.model_type.startswith(PLAIN_NORMS) and \
                not name.endswith("linear_attn.norm.weight")
            made = torch.from_numpy(values(name, shape, columns, seed, around_zero))
            parameter.copy_(made.to(dtype).to(torch.float32))
