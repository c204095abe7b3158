"""packing: float32 matrices into the quantised forms in which models are published, with numpy.

By the published layouts and nothing else, each rounded to nearest without calibration: Q4_K and
Q6_K blocks of GGUF files, which llama.cpp's package cannot write, and the tensors of a linear layer
in fp8 by blocks, GPTQ, AWQ and compressed-tensors. Used by tests/api/test_formats.py and
gguf_demo.py; the package's own decoders check the blocks there.
"""

import numpy as np

AWQ_ORDER = np.array([0, 2, 4, 6, 1, 3, 5, 7])


def halves(values):
    return values.astype("<f2")[:, None].view(np.uint8)


def scaled(values, by):
    """Nearest integers of values / by; 0 where by is 0."""
    return np.rint(np.divide(values, by, out=np.zeros_like(values), where=by != 0))


def q4_k(values):
    """[rows, bytes]; 256 divides the columns."""
    x = values.reshape(-1, 8, 32)
    low = np.maximum(0, -x.min(2))
    size = (x.max(2) + low) / 15
    d, least = size.max(1) / 63, low.max(1) / 63
    d, least = (v.astype(np.float16).astype(np.float32) for v in (d, least))
    s, m = (scaled(a, b[:, None] + 0 * a).clip(0, 63) for a, b in ((size, d), (low, least)))
    step, shift = d[:, None] * s, least[:, None] * m
    q = scaled(x + shift[:, :, None], step[:, :, None] + 0 * x).clip(0, 15).astype(np.uint8)
    s, m = s.astype(np.uint8), m.astype(np.uint8)
    scales = np.concatenate([s[:, :4] | (s[:, 4:] >> 4) << 6, m[:, :4] | (m[:, 4:] >> 4) << 6,
                             (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4], 1)
    codes = (q[:, 0::2] | q[:, 1::2] << 4).reshape(len(x), 128)
    return np.concatenate([halves(d), halves(least), scales, codes], 1).reshape(len(values), -1)


def q6_k(values):
    """The same in Q6_K."""
    x = values.reshape(-1, 16, 16)
    size = np.abs(x).max(2) / 31
    d = (size.max(1) / 127).astype(np.float16).astype(np.float32)
    s = scaled(size, d[:, None] + 0 * size).clip(0, 127)
    q = scaled(x, (d[:, None] * s)[:, :, None] + 0 * x).clip(-32, 31).astype(np.int8) + 32
    q = q.astype(np.uint8).reshape(-1, 2, 4, 32)
    low = np.concatenate([q[:, :, 0] & 15 | (q[:, :, 2] & 15) << 4,
                          q[:, :, 1] & 15 | (q[:, :, 3] & 15) << 4], 2).reshape(-1, 128)
    high = sum((q[:, :, i] >> 4) << 2 * i for i in range(4)).astype(np.uint8).reshape(-1, 64)
    return np.concatenate([low, high, s.astype(np.int8).view(np.uint8), halves(d)], 1).reshape(
        len(values), -1)


def words(codes, bits=4):
    """Codes along the last axis into 32-bit words, the first one lowest."""
    parts = codes.reshape(*codes.shape[:-1], -1, 32 // bits).astype(np.uint64)
    return (parts << np.arange(0, 32, bits, dtype=np.uint64)).sum(-1).astype(np.uint32).view("<i4")


def groups(values, group, symmetric):
    """(codes [rows, cols], scales, zero points [rows, groups]) of 4 bits."""
    x = values.reshape(len(values), -1, group)
    high, low = np.maximum(x.max(2), 0), np.minimum(x.min(2), 0)
    if symmetric:
        scale = np.maximum(high / 7, -low / 8)
        zero = np.full_like(scale, 8)
    else:
        scale = (high - low) / 15
        zero = scaled(-low, scale).clip(0, 15)
    scale = scale.astype(np.float16)
    step = scale.astype(np.float32)[:, :, None] + 0 * x
    codes = (scaled(x, step) + zero[:, :, None]).clip(0, 15)
    return codes.reshape(values.shape).astype(np.uint8), scale, zero.astype(np.uint8)


def gptq(values, group=64):
    """v1: zero points are stored minus one."""
    codes, scale, zero = groups(values, group, False)
    zero = np.maximum(zero, 1)
    order = (np.arange(values.shape[1]) // group).astype("<i4")
    codes = (scaled(values.reshape(len(values), -1, group),
                    scale.astype(np.float32)[:, :, None] + 0 * values.reshape(
                        len(values), -1, group)) + zero[:, :, None]).clip(0, 15)
    codes = codes.reshape(values.shape).astype(np.uint8)
    return {"qweight": np.ascontiguousarray(words(codes).T), "qzeros": words((zero - 1).T),
            "scales": np.ascontiguousarray(scale.T), "g_idx": order}


def awq(values, group=64):
    codes, scale, zero = groups(values, group, False)

    def packed(matrix):
        parts = np.ascontiguousarray(matrix.T).reshape(matrix.shape[1], -1, 8)
        return words(parts[:, :, AWQ_ORDER].reshape(matrix.shape[1], -1))
    return {"qweight": packed(codes), "qzeros": packed(zero),
            "scales": np.ascontiguousarray(scale.T)}


def w4a16(values, group=64):
    codes, scale, _ = groups(values, group, True)
    return {"weight_packed": words(codes), "weight_scale": scale,
            "weight_shape": np.array(values.shape, "<i8")}


def e4m3():
    """The 127 finite numbers of fp8 that are not negative, by code."""
    exponent, mantissa = np.divmod(np.arange(127), 8)
    normal = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return np.where(exponent == 0, mantissa * 2.0 ** -9, normal)


def fp8_blocks(values, block=128):
    """(codes, multipliers of blocks of block x block)."""
    rows, cols = values.shape
    tall, wide = -(-rows // block), -(-cols // block)
    padded = np.zeros((tall * block, wide * block), np.float32)
    padded[:rows, :cols] = values
    scale = np.abs(padded.reshape(tall, block, wide, block)).max((1, 3)).astype("<f4") / 448
    x = values / np.repeat(np.repeat(scale, block, 0), block, 1)[:rows, :cols]
    table = e4m3()
    codes = np.searchsorted((table[1:] + table[:-1]) / 2, np.abs(x)).astype(np.uint8)
    return {"weight": codes | (x < 0).astype(np.uint8) << 7, "weight_scale_inv": scale}


CONFIGS = {
    "fp8": (fp8_blocks, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                         "weight_block_size": [128, 128]}),
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False,
                    "sym": False, "checkpoint_format": "gptq"}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True,
                  "version": "gemm"}),
    "w4a16": (w4a16, {"quant_method": "compressed-tensors", "format": "pack-quantized",
                      "quantization_status": "compressed", "ignore": ["lm_head"],
                      "config_groups": {"group_0": {
                          "targets": ["Linear"], "input_activations": None,
                          "output_activations": None,
                          "weights": {"num_bits": 4, "type": "int", "strategy": "group",
                                      "group_size": 64, "symmetric": True, "dynamic": False,
                                      "actorder": None}}}})}
