#!/usr/bin/env python3
"""Writes tests/vectors/models/packed-*: tiny checkpoints with quantised weights, and their logits.

    pip install torch transformers compressed-tensors gptqmodel numpy safetensors
    scripts/vectors/packed.py [--out DIR] [--seed N] [--only NAME]

The packages that define a format pack the random weights and unpack them again: gptqmodel for GPTQ
and AWQ, compressed-tensors for its own formats, transformers for fp8 in blocks. The reference is
transformers in fp32 with the unpacked weights, so inferd must agree to rounding. ModelOpt stores
what compressed-tensors stores, under other names and with the reciprocal of a factor.
expected.json is that of models.py.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from model_cases import TINY, deepseek_v3, llama, qwen2, qwen3_moe
from model_weights import fill
from models import build, expected

GROUP = 32
SIZES = dict(TINY, num_hidden_layers=1)


# ---- GPTQ and AWQ ----

def qparams(weight, bits, group, sym):
    """Scales and zero points [rows, groups] that cover each group."""
    parts = weight.reshape(weight.shape[0], -1, group)
    low, high = parts.amin(2).clamp(max=0), parts.amax(2).clamp(min=0)
    if sym:
        high = torch.maximum(high, -low)
        low = -high
    scale = ((high - low) / (2**bits - 1)).half().float()
    zero = torch.full_like(scale, 2.0 ** (bits - 1)) if sym else torch.round(-low / scale)
    return scale, zero.clamp(0, 2**bits - 1)


def gptq(bits, desc_act, sym, version):
    def pack(linear, rng):
        from gptqmodel.nn_modules.qlinear.torch import TorchLinear
        rows, cols = linear.weight.shape
        group_of = torch.arange(cols, dtype=torch.int32) // GROUP
        weight = linear.weight.data.clone()
        if desc_act:
            group_of = group_of[torch.from_numpy(rng.permutation(cols))]
        order = torch.argsort(group_of.long(), stable=True)
        scale, zero = qparams(weight[:, order], bits, GROUP, sym)
        module = TorchLinear(bits=bits, group_size=GROUP, sym=sym, desc_act=desc_act,
                             in_features=cols, out_features=rows, bias=False,
                             pack_dtype=torch.int32)
        module.pack_original(linear, scale, zero, group_of)
        module.post_init()
        module.scales = module.scales.float()  # or the package rounds the products to f16
        codes = module.dequantize_weight().T.contiguous()
        words = module.qzeros.clone()
        if version == "gptq":  # the package packs v2; v1 files hold every zero point minus one
            shifts = torch.arange(0, 32, bits)
            fields = (words.long()[:, :, None] >> shifts) & (2**bits - 1)
            packed = (((fields - 1) & (2**bits - 1)) << shifts).sum(2)
            words = packed.to(torch.int64).bitwise_and(0xFFFFFFFF).numpy().astype(np.uint32)
            words = torch.from_numpy(words.view(np.int32).copy())
        return codes, {"qweight": module.qweight, "qzeros": words, "g_idx": group_of,
                       "scales": module.scales.half()}
    config = {"quant_method": "gptq", "bits": bits, "group_size": GROUP, "desc_act": desc_act,
              "sym": sym, "checkpoint_format": version}
    return pack, config


def awq():
    def pack(linear, rng):
        from gptqmodel.nn_modules.qlinear.torch_awq import AwqTorchLinear, dequantize_gemm
        rows, cols = linear.weight.shape
        scale, zero = qparams(linear.weight.data, 4, GROUP, False)
        module = AwqTorchLinear(bits=4, group_size=GROUP, sym=False, desc_act=False,
                                in_features=cols, out_features=rows, bias=False)
        wide = [x.repeat_interleave(GROUP, 1) for x in (scale, zero)]
        codes = (torch.round(linear.weight.data / wide[0]) + wide[1]).clamp(0, 15)
        linear.weight.data = (codes - wide[1]) * wide[0]  # packing does not clamp
        module.pack(linear, scale, zero)
        weight = dequantize_gemm(qweight=module.qweight, qzeros=module.qzeros,
                                 scales=module.scales.float(), bits=4, group_size=GROUP)
        return weight.T.contiguous(), {"qweight": module.qweight, "qzeros": module.qzeros,
                                       "scales": module.scales}
    return pack, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True,
                  "version": "gemm"}


# ---- compressed-tensors, and ModelOpt by its names ----

def compressed(kind, modelopt=False, actorder=False, **weights):
    def pack(linear, rng):
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
        weight = linear.weight.data.clone()
        args = QuantizationArgs(**weights)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        parts = {"group": lambda w: w.reshape(w.shape[0], -1, args.group_size),
                 "tensor_group": lambda w: w.reshape(w.shape[0], -1, args.group_size),
                 "channel": lambda w: w.reshape(w.shape[0], 1, -1),
                 "tensor": lambda w: w.reshape(1, 1, -1)}[str(args.strategy)]
        state = {"weight": weight}
        group_of = torch.arange(weight.shape[1], dtype=torch.int32) // GROUP
        ordered = weight
        if actorder:
            group_of = group_of[torch.from_numpy(rng.permutation(weight.shape[1]))]
            ordered = weight[:, torch.argsort(group_of.long(), stable=True)]
        low, high = parts(ordered).amin(2), parts(ordered).amax(2)
        more = {}
        if args.strategy == "tensor_group":
            factor = generate_gparam(weight.min(), weight.max()).reshape(1)
            state["weight_global_scale"] = more["global_scale"] = factor
        scale, zero = calculate_qparams(low, high, args, **more)
        state["weight_scale"] = scale.reshape(1) if args.strategy == "tensor" else scale
        if not args.symmetric:
            state["weight_zero_point"] = zero
        if actorder:  # the package no longer reads the order that it once wrote: by definition
            from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
            wide = scale[:, group_of.long()]
            codes = torch.round(weight / wide).clamp(-8, 7).to(torch.int8)
            return codes * wide, {"weight_packed": pack_to_int32(codes, 4), "weight_scale": scale,
                                  "weight_shape": torch.tensor(weight.shape),
                                  "weight_g_idx": group_of}
        worker = BaseCompressor.get_value_from_registry(kind)
        packed = worker.compress(state, scheme)
        unpacked = worker.decompress(packed, scheme)["weight"].float()
        if args.strategy == "tensor_group":  # decompress rounds NVFP4 to bf16: its parts, in fp32
            from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
            from compressed_tensors.quantization.lifecycle.forward import dequantize
            numbers = unpack_fp4_from_uint8(packed["weight_packed"], *weight.shape, torch.float32)
            unpacked = dequantize(numbers, packed["weight_scale"].float(), args=args,
                                  global_scale=factor, dtype=torch.float32)
        if modelopt and "weight_packed" in packed:
            packed = {"weight": packed["weight_packed"], "weight_scale": packed["weight_scale"],
                      "weight_scale_2": (1 / packed["weight_global_scale"]).reshape(())}
        elif modelopt:
            packed = {"weight": packed["weight"], "input_scale": torch.tensor(0.01),
                      "weight_scale": packed["weight_scale"].reshape(())}
        return unpacked, packed
    config = {"quant_method": "compressed-tensors", "format": kind, "ignore": ["lm_head"],
              "quantization_status": "compressed",
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    if modelopt:
        config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    return pack, config


# ---- fp8 in blocks ----

def fp8_blocks():
    def pack(linear, rng):
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize
        weight = linear.weight.data
        rows, cols = weight.shape
        scales = torch.zeros(-(-rows // 128), -(-cols // 128))
        codes = torch.zeros(rows, cols, dtype=torch.float8_e4m3fn)
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                block = weight[128 * i:128 * i + 128, 128 * j:128 * j + 128]
                scales[i, j] = block.abs().max() / 448
                codes[128 * i:128 * i + 128, 128 * j:128 * j + 128] = block / scales[i, j]
        whole = torch.zeros(128 * scales.shape[0], 128 * scales.shape[1])
        whole[:rows, :cols] = codes.float()  # transformers wants whole blocks
        unpacked = Fp8Dequantize(None)._dequantize_one(whole.to(torch.float8_e4m3fn), scales,
                                                       torch.float32)[:rows, :cols]
        return unpacked.contiguous(), {"weight": codes, "weight_scale_inv": scales}
    return pack, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                  "weight_block_size": [128, 128]}


INT4 = dict(num_bits=4, type="int", strategy="group", group_size=GROUP)
CASES = {
    "gptq-v1": (llama(64, 4, 2, 160, **SIZES), gptq(4, False, False, "gptq")),
    "gptq-v1-sym": (llama(64, 4, 2, 160, **SIZES), gptq(4, False, True, "gptq")),
    "gptq-v2-desc-act": (qwen2(64, 4, 2, 160, **SIZES), gptq(4, True, False, "gptq_v2")),
    "gptq-8-bits": (llama(64, 4, 2, 160, **SIZES), gptq(8, False, True, "gptq_v2")),
    "gptq-2-bits": (llama(64, 4, 2, 160, **SIZES), gptq(2, False, False, "gptq_v2")),
    "awq": (qwen2(64, 4, 2, 160, **SIZES), awq()),
    "awq-moe": (qwen3_moe(64, 2, 1, 64, head_dim=32, num_experts=4,
                          moe_intermediate_size=64, **SIZES), awq()),
    "fp8-blocks": (llama(64, 4, 2, 160, **SIZES), fp8_blocks()),
    "fp8-channel": (llama(64, 4, 2, 160, **SIZES),
                    compressed("float-quantized", num_bits=8, type="float", strategy="channel")),
    "fp8-tensor": (llama(64, 4, 2, 160, **SIZES),
                   compressed("float-quantized", num_bits=8, type="float", strategy="tensor")),
    "fp8-modelopt": (llama(64, 4, 2, 160, **SIZES),
                     compressed("float-quantized", modelopt=True, num_bits=8, type="float",
                                strategy="tensor")),
    "w8a8": (llama(64, 4, 2, 160, **SIZES),
             compressed("int-quantized", num_bits=8, type="int", strategy="channel")),
    "w8a16": (llama(64, 4, 2, 160, **SIZES),
              compressed("pack-quantized", num_bits=8, type="int", strategy="channel")),
    "w4a16": (llama(64, 4, 2, 160, **SIZES), compressed("pack-quantized", **INT4)),
    "w4a16-asym": (llama(64, 4, 2, 160, **SIZES),
                   compressed("pack-quantized", symmetric=False, **INT4)),
    "w4a16-actorder": (llama(64, 4, 2, 160, **SIZES),
                       compressed("pack-quantized", actorder=True, **INT4)),
    "nvfp4": (llama(64, 4, 2, 160, **SIZES),
              compressed("nvfp4-pack-quantized", num_bits=4, type="float",
                         strategy="tensor_group", group_size=16)),
    "nvfp4-modelopt": (llama(64, 4, 2, 160, **SIZES),
                       compressed("nvfp4-pack-quantized", modelopt=True, num_bits=4, type="float",
                                  strategy="tensor_group", group_size=16)),
    "mxfp4": (llama(64, 4, 2, 160, **SIZES),
              compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group",
                         group_size=32, scale_dtype=torch.uint8)),
    "nvfp4-moe": (qwen3_moe(64, 2, 1, 64, head_dim=32, num_experts=4, moe_intermediate_size=64,
                            **SIZES),
                  compressed("nvfp4-pack-quantized", num_bits=4, type="float",
                             strategy="tensor_group", group_size=16)),
    "mxfp4-moe": (qwen3_moe(64, 2, 1, 64, head_dim=32, num_experts=4, moe_intermediate_size=64,
                            **SIZES),
                  compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group",
                             group_size=32, scale_dtype=torch.uint8)),
    # As DeepSeek publishes: blocks that end within the latent row, and within heads
    "fp8-deepseek-v3": (deepseek_v3(160, 6, 144, kv_lora_rank=140, q_lora_rank=136, n_group=2,
                                    topk_group=2, first_k_dense_replace=0, n_routed_experts=4,
                                    num_experts_per_tok=4, **SIZES), fp8_blocks()),
}


def write_case(directory, config, how, seed):
    pack, quantization = how
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config))
    model = build(directory, config)
    fill(model, seed, torch.float32)
    rng = np.random.default_rng(seed)
    tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}

    def replace(name, matrix):
        """Packs one matrix, in place of NAME.weight; `matrix` becomes what it unpacks to."""
        linear = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
        linear.weight = torch.nn.Parameter(matrix.clone())
        weight, packed = pack(linear, rng)
        assert weight.shape == matrix.shape
        assert (weight - matrix).abs().max() < matrix.abs().max() * 0.7, name
        matrix.copy_(weight.detach())
        tensors.pop(name + ".weight", None)
        tensors.update({f"{name}.{part}": tensor for part, tensor in packed.items()})

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            replace(name, module.weight.data)
        elif name.endswith(".experts"):  # files have a layer for each expert
            up, down = tensors.pop(name + ".gate_up_proj"), tensors.pop(name + ".down_proj")
            for i in range(up.shape[0]):
                gate_rows = up.shape[1] // 2
                replace(f"{name}.{i}.gate_proj", up[i, :gate_rows])
                replace(f"{name}.{i}.up_proj", up[i, gate_rows:])
                replace(f"{name}.{i}.down_proj", down[i])
    facts = expected(config, model, rng, seed) | {"weights": True}
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()},
              directory / "model.safetensors", metadata={"format": "pt"})
    config = config | {"quantization_config": json.loads(json.dumps(quantization, default=str))}
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (directory / "expected.json").write_text(json.dumps(facts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=root / "tests/vectors/models")
    parser.add_argument("--seed", type=int, default=71000)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for i, (name, (config, how)) in enumerate(CASES.items()):
        if options.only in name:
            write_case(options.out / f"packed-{name}", config, how, options.seed + i)
            print(f"packed-{name}", flush=True)


if __name__ == "__main__":
    main()
