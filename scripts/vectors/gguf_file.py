"""Writes a model of transformers as a GGUF file, with llama.cpp's package `gguf`, for models.py.

The names come from the package's table, the values as its converters change them: rows of q and k
zipped for Llama's kin, 1 added to the norms of Gemma, experts stacked. A quantised tensor becomes
blocks, and the model takes the values of these blocks: the twin that the logits are compared with.
The package cannot quantise to the K and IQ types; those blocks are random.
"""

import math
import re

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type, GGUFWriter, MODEL_ARCH
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from gguf.quants import dequantize, quantize

from quant import HALVES

ARCHITECTURES = {"llama": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3",
                 "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "gemma": "gemma",
                 "gemma2": "gemma2", "ministral3": "mistral3",
                 "gemma3n_text": "gemma3n",
                 "gemma3_text": "gemma3", "phi3": "phi3", "gpt_oss": "gpt-oss", "olmo2": "olmo2",
                 "olmo3": "olmo2", "olmoe": "olmoe", "granite": "granite", "seed_oss": "seed_oss",
                 "smollm3": "smollm3", "starcoder2": "starcoder2", "gpt2": "gpt2",
                 "gpt_neox": "gptneox", "falcon": "falcon", "stablelm": "stablelm",
                 "cohere": "command-r", "cohere2": "cohere2", "glm": "chatglm", "glm4": "glm4",
                 "exaone4": "exaone4", "ernie4_5": "ernie4_5", "phi": "phi2",
                 "hunyuan_v1_dense": "hunyuan-dense",
                 "nemotron": "nemotron", "arcee": "arcee", "gpt_bigcode": "starcoder"}
ZIPPED = ("llama", "granite", "smollm3", "mistral3", "internlm2", "arcee")  # architectures
AROUND_ZERO = ("gemma", "gemma2", "gemma3_text", "nemotron")  # norms of 1 + w in such files
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def zipped(rows, heads):
    """The rows of each head as rotated neighbours: 0, D / 2, 1, D / 2 + 1 ..."""
    return rows.reshape(heads, 2, len(rows) // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(
        rows.shape)


def unzipped(rows, heads):
    return rows.reshape(heads, len(rows) // heads // 2, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(
        rows.shape)


def ungrouped(rows, heads, kv_heads):
    """Fused q, k, v of groups, as q, then k, then v."""
    group = rows.reshape(kv_heads, heads // kv_heads + 2, -1, *rows.shape[1:])
    parts = [group[:, :-2], group[:, -2:-1], group[:, -1:]]
    return np.concatenate([p.reshape(-1, *rows.shape[1:]) for p in parts])


def grouped(rows, heads, kv_heads):
    size = len(rows) // (heads + 2 * kv_heads)
    parts = np.split(rows, [heads * size, (heads + kv_heads) * size])
    parts = [p.reshape(kv_heads, -1, size, *rows.shape[1:]) for p in parts]
    return np.concatenate(parts, axis=1).reshape(rows.shape)


def random_blocks(rng, kind, shape):
    """Blocks of a K type whose values are about those of a matrix of these columns."""
    weights, size = GGML_QUANT_SIZES[kind]
    made = rng.integers(0, 256, (int(np.prod(shape)) // weights, size), dtype=np.uint8)
    for at in HALVES[kind.name]:
        halves = np.full(len(made), 1e-3, dtype=np.float16)
        made[:, at:at + 2] = halves.view(np.uint8).reshape(len(made), 2)
    values = dequantize(made.reshape(-1), kind)
    scale = 1 / math.sqrt(shape[-1]) / values.std()
    for at in HALVES[kind.name]:
        halves = np.full(len(made), 1e-3 * scale, dtype=np.float16)
        made[:, at:at + 2] = halves.view(np.uint8).reshape(len(made), 2)
    return made.reshape(*shape[:-1], shape[-1] // weights * size)


class File:
    """One file being written; `types`: parts of tensor names and their types, the first wins."""

    def __init__(self, model, path, types, seed):
        self.model, self.config, self.types = model, model.config, types
        self.kind = model.config.model_type
        name = types.get("architecture", ARCHITECTURES[self.kind])
        self.zips = name in ZIPPED
        arch = next(a for a, n in MODEL_ARCH_NAMES.items() if n == name)
        self.names = get_tensor_name_map(arch, model.config.num_hidden_layers)
        self.writer = GGUFWriter(path, name)
        self.parameters, self.split = dict(model.named_parameters()), {}
        self.rng = np.random.default_rng(seed)
        self.written = 0

    def type_of(self, name, shape):
        if len(shape) == 1 or "_inp" in name or "_norm" in name or name.endswith(".bias"):
            return Type.F32
        for part, kind in self.types.items():
            if part in ("architecture", "fused"):
                continue
            if part in name and shape[-1] % GGML_QUANT_SIZES[Type[kind]][0] == 0:
                return Type[kind]
        return Type.F32

    def store(self, name, values):
        """Writes a tensor; returns the values that its blocks have."""
        kind = self.type_of(name, values.shape)
        self.written += 1
        if kind == Type.F32:
            self.writer.add_tensor(name, values)
            return values
        if kind.name.endswith("_K") or kind.name.startswith("IQ"):
            data = random_blocks(self.rng, kind, values.shape)
        else:
            data = quantize(values, kind)
        self.writer.add_tensor(name, data, raw_dtype=kind)
        return dequantize(data, kind).reshape(values.shape).astype(np.float32)

    def name(self, name):
        suffix = ".bias" if name.endswith(".bias") else ".weight"
        found = self.names.get_name(name.removesuffix(suffix))
        assert found is not None, name
        return found + suffix

    def heads(self, name):
        if not self.zips or not name.endswith((".weight", ".bias")):
            return 0
        if ".q_proj." in name:
            return self.config.num_attention_heads
        return self.config.num_key_value_heads if ".k_proj." in name else 0

    def tensor(self, name, values):
        heads = self.heads(name)
        if ".experts." in name:
            return self.experts(name, values)
        if name.endswith("self_attn.sinks"):
            return self.store(self.name(name + ".weight"), values)
        if heads:
            return unzipped(self.store(self.name(name), np.ascontiguousarray(
                zipped(values, heads))), heads)
        if "fused" in self.types and re.search(r"[.][qkv]_proj[.]", name):
            return self.fused(name, values)
        if name.split(".")[-2] == "query_key_value":
            counts = self.config.num_attention_heads, self.kv_heads()
            made = np.ascontiguousarray(ungrouped(values, *counts))
            return grouped(self.store(self.name(name), made), *counts)
        if self.kind == "gpt2" and name.endswith(CONV1D):
            return self.store(self.name(name), np.ascontiguousarray(values.T)).T
        if ".altup" in name and "projections." in name:
            return self.streams(name)
        if name.endswith("correct_output_scale"):
            return self.store(self.name(name + ".weight"), values)
        if self.kind in AROUND_ZERO and name.endswith("norm.weight"):
            return self.store(self.name(name), values + np.float32(1)) - np.float32(1)
        return self.store(self.name(name), values)

    def fused(self, name, values):
        """q, k and v as one tensor, written with the first of them."""
        if ".q_proj." in name:
            parts = [self.parameters[name.replace("q_proj", p)].detach().numpy().astype(np.float32)
                     for p in ("q_proj", "k_proj", "v_proj")]
            ends = np.cumsum([len(p) for p in parts])[:-1]
            base, suffix = self.name(name).split(".attn_q.")
            made = self.store(f"{base}.attn_qkv.{suffix}", np.concatenate(parts))
            names = [name.replace("q_proj", p) for p in ("q_proj", "k_proj", "v_proj")]
            self.split |= zip(names, np.split(made, ends))
        return self.split.pop(name)

    def streams(self, name):
        """One tensor for the matrices of all streams, written with the first of them."""
        base, number = re.match(r"(.*)[.](\d+)[.]weight$", name).groups()
        if number == "0":
            names = [f"{base}.{n}.weight" for n in range(self.config.altup_num_inputs - 1)]
            made = self.store(self.name(base + ".weight"), np.stack(
                [self.parameters[n].detach().numpy().astype(np.float32) for n in names]))
            self.split |= zip(names, made)
        return self.split.pop(name)

    def experts(self, name, values):
        """transformers has gate and up in one parameter, gpt-oss interleaved and transposed."""
        base, part = name.rsplit(".", 1)
        oss, bias = self.kind == "gpt_oss", part.endswith("_bias")
        suffix = ".bias" if bias else ".weight"
        if oss and not bias:
            values = values.swapaxes(1, 2)
        if part.startswith("down_proj"):
            made = self.store(self.name(base + ".down_proj" + suffix), np.ascontiguousarray(values))
            return made.swapaxes(1, 2) if oss and not bias else made
        half = values.shape[1] // 2
        gate, up = (values[:, ::2], values[:, 1::2]) if oss else (values[:, :half],
                                                                  values[:, half:])
        gate = self.store(self.name(base + ".gate_proj" + suffix), np.ascontiguousarray(gate))
        up = self.store(self.name(base + ".up_proj" + suffix), np.ascontiguousarray(up))
        made = np.stack([gate, up], axis=2) if oss else np.concatenate([gate, up], axis=1)
        made = made.reshape(values.shape)
        return made.swapaxes(1, 2) if oss and not bias else made

    def kv_heads(self):
        c = self.config
        if self.kind == "falcon" and not c.new_decoder_architecture and c.multi_query:
            return 1
        return getattr(c, "num_key_value_heads", None) or getattr(
            c, "num_kv_heads", None) or c.num_attention_heads

    def metadata(self):
        c, w = self.config, self.writer
        heads = c.num_attention_heads
        kv = self.kv_heads()
        w.add_context_length(c.max_position_embeddings)
        w.add_embedding_length(c.hidden_size)
        w.add_block_count(c.num_hidden_layers)
        inner = getattr(c, "intermediate_size", None) or getattr(
            c, "n_inner", None) or getattr(c, "ffn_hidden_size", None)
        if self.kind == "gpt_neox":
            w.add_parallel_residual(c.use_parallel_residual)
        w.add_feed_forward_length(inner or 4 * c.hidden_size)
        w.add_head_count(heads)
        w.add_head_count_kv(kv)
        if getattr(c, "rms_norm_eps", None) is not None:
            w.add_layer_norm_rms_eps(c.rms_norm_eps)
        else:
            w.add_layer_norm_eps(next(getattr(c, k) for k in (
                "norm_epsilon", "norm_eps", "layer_norm_eps",
                "layer_norm_epsilon") if hasattr(c, k)))
        if getattr(c, "head_dim", None) is not None and self.kind != "phi3":
            w.add_key_length(c.head_dim)
            w.add_value_length(c.head_dim)
        w.add_bos_token_id(1)
        w.add_eos_token_id(2)
        self.windows()
        self.ropes()
        self.scales()
        self.moe()
        self.altup()

    def windows(self):
        c, w = self.config, self.writer
        window = getattr(c, "sliding_window", None)
        if self.kind not in ("gemma2", "gemma3_text", "phi3", "gpt_oss", "olmo3", "starcoder2",
                             "cohere2", "gemma3n_text", "exaone4") or (
                                 self.kind == "exaone4" and not window):
            return
        w.add_sliding_window(window or 0)
        if self.kind in ("olmo3", "exaone4", "gemma3n_text"):
            w.add_sliding_window_pattern([t == "sliding_attention" for t in c.layer_types])
        if self.kind == "gemma3_text":
            every = next(i + 1 for i, t in enumerate(c.layer_types) if t == "full_attention")
            w.add_sliding_window_pattern(every)

    def ropes(self):
        c, w = self.config, self.writer
        rope = getattr(c, "rope_parameters", None) or {}
        rope, local = rope.get("full_attention", rope), rope.get("sliding_attention", {})
        if self.kind in ("gpt2", "gpt_bigcode"):
            return
        w.add_rope_freq_base(rope["rope_theta"])
        if self.kind == "gemma3_text":
            w.add_rope_freq_base_swa(local["rope_theta"])
        kind = rope.get("rope_type", "default")
        dims = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        dims = int(dims * rope.get("partial_rotary_factor", 1.0))
        w.add_rope_dimension_count(dims)
        if "vl" in w.arch:  # of images; each counts in three directions
            w.add_array(f"{w.arch}.rope.dimension_sections", [dims // 2 - 4, 2, 2, 0])
        if w.arch.startswith("qwen3vl"):
            w.add_uint32(f"{w.arch}.n_deepstack_layers", 3)
        if kind in ("linear", "yarn"):
            w.add_string(f"{w.arch}.rope.scaling.type", kind)
            w.add_rope_scaling_factor(rope["factor"])
        if kind == "yarn":
            w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if self.kind == "ministral3":
            w.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
            w.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
        if kind == "llama3":
            plain = 1.0 / rope["rope_theta"] ** (np.arange(0, dims, 2) / dims)
            exact = self.model.model.rotary_emb.inv_freq.double().numpy()
            w.add_tensor("rope_freqs.weight", (plain / exact).astype(np.float32))
        if kind == "longrope":
            original = rope.get("original_max_position_embeddings",
                                getattr(c, "original_max_position_embeddings", None))
            stretch = c.max_position_embeddings / original
            w.add_rope_scaling_orig_ctx_len(original)
            w.add_rope_scaling_attn_factors(
                math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0)
            for length in ("long", "short"):
                w.add_tensor(f"rope_factors_{length}.weight",
                             np.array(rope[length + "_factor"], dtype=np.float32))

    def scales(self):
        c, w = self.config, self.writer
        if self.kind.startswith("cohere"):
            w.add_logit_scale(c.logit_scale)
        if self.kind == "gemma2":
            w.add_attn_logit_softcapping(c.attn_logit_softcapping)
            w.add_final_logit_softcapping(c.final_logit_softcapping)
        if self.kind in ("gemma2", "gemma3_text"):
            w.add_attention_scale(c.query_pre_attn_scalar ** -0.5)
        if self.kind == "granite":
            w.add_attention_scale(c.attention_multiplier)
            w.add_embedding_scale(c.embedding_multiplier)
            w.add_residual_scale(c.residual_multiplier)
            w.add_logit_scale(c.logits_scaling)

    def altup(self):
        c, w = self.config, self.writer
        if self.kind != "gemma3n_text":
            return
        w.add_altup_active_idx(c.altup_active_idx)
        w.add_altup_num_inputs(c.altup_num_inputs)
        w.add_embedding_length_per_layer_input(c.hidden_size_per_layer_input)
        w.add_shared_kv_layers(c.num_kv_shared_layers)
        w.add_activation_sparsity_scale([
            torch.distributions.normal.Normal(0, 1).icdf(torch.tensor(share)).item()
            for share in c.activation_sparsity_pattern])

    def moe(self):
        c, w = self.config, self.writer
        count = getattr(c, "num_local_experts", None) or getattr(c, "num_experts", None)
        if count is None or self.kind not in ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe",
                                              "gpt_oss"):
            return
        w.add_expert_count(count)
        w.add_expert_used_count(c.num_experts_per_tok)
        if getattr(c, "moe_intermediate_size", None):
            w.add_expert_feed_forward_length(c.moe_intermediate_size)
        if getattr(c, "norm_topk_prob", None) is not None:
            w.add_expert_weights_norm(c.norm_topk_prob)


def write(model, path, types, seed):
    """Writes `path` and gives the model the values of the written blocks."""
    file = File(model, path, types, seed)
    file.metadata()
    tied = model.config.tie_word_embeddings
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if tied and name == "lm_head.weight":
                continue
            values = file.tensor(name, parameter.detach().numpy().astype(np.float32).copy())
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(values)))
    file.writer.write_header_to_file()
    file.writer.write_kv_data_to_file()
    file.writer.write_tensors_to_file()
    file.writer.close()
    path.chmod(0o644)
