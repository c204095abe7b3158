#!/usr/bin/env python3
"""Writes seeds of tests/fuzz/corpus: tiny GGUF files, and headers of quantised safetensors,
pictures and their processors.

    pip install gguf && scripts/vectors/fuzz_seeds.py

gguf/    one file; split/ two files, the length of the first in front (u16); packed/ config.json, a
0xFF byte, the header of model.safetensors.
"""

import base64
import json
import os
import struct
import tempfile

import numpy as np
from gguf import GGMLQuantizationType as Type, GGUFWriter, PoolingType
from gguf.quants import quantize

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests/fuzz/corpus")
H, F, V, LAYERS = 32, 32, 12, 1
BYTES = ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u0120a", "\u0120", "c", "abc", "<0x0A>",
         "\u2581"]


def save(target, name, data):
    os.makedirs(os.path.join(OUT, target), exist_ok=True)
    with open(os.path.join(OUT, target, name), "wb") as file:
        file.write(data)


def metadata(w, arch, spm):
    w.add_block_count(LAYERS)
    w.add_context_length(64)
    w.add_embedding_length(H)
    w.add_feed_forward_length(F)
    w.add_head_count(2)
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(1e4)
    w.add_tokenizer_model("llama" if spm else "gpt2")
    w.add_tokenizer_pre("default" if spm else "llama-bpe")
    w.add_token_list(BYTES)
    w.add_token_types([2, 3, 3] + [1] * 7 + [6, 1])
    if spm:
        w.add_token_scores([0.0] * 3 + [-float(i) for i in range(9)])
    else:
        w.add_token_merges(["a b", "\u0120 a", "ab c"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_chat_template("{{ messages[0].content }}")


def tensors(w, kind, experts):
    shapes = {"token_embd": (V, H), "output_norm": (H,), "output": (V, H)}
    layer = {"attn_norm": (H,), "attn_q": (H, H), "attn_k": (H // 2, H), "attn_v": (H // 2, H),
             "attn_output": (H, H), "ffn_norm": (H,)}
    if experts:
        layer |= {"ffn_gate_inp": (2, H), "ffn_gate_exps": (2, F, H), "ffn_up_exps": (2, F, H),
                  "ffn_down_exps": (2, H, F)}
    else:
        layer |= {"ffn_gate": (F, H), "ffn_up": (F, H), "ffn_down": (H, F)}
    shapes |= {f"blk.0.{name}": shape for name, shape in layer.items()}
    for name, shape in shapes.items():
        values = np.full(shape, 0.5, np.float32)
        plain = len(shape) == 1 or "inp" in name
        w.add_tensor(name + ".weight", values if plain else quantize(values, kind),
                     raw_dtype=Type.F32 if plain else kind)


def gguf(arch="llama", kind=Type.Q8_0, spm=False, experts=False, split=0, bare=False):
    with tempfile.TemporaryDirectory() as scratch:
        w = GGUFWriter(os.path.join(scratch, "m.gguf"), arch, split_max_tensors=split)
        if not bare:
            metadata(w, arch, spm)
            if experts:
                w.add_expert_count(2)
                w.add_expert_used_count(1)
            tensors(w, kind, experts)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        files = sorted(os.listdir(scratch))
        return [open(os.path.join(scratch, name), "rb").read() for name in files]


def encoder(unigram):
    """BERT with a classifier, and the vocabulary of WordPiece or of SentencePiece's Unigram."""
    with tempfile.TemporaryDirectory() as scratch:
        w = GGUFWriter(os.path.join(scratch, "m.gguf"), "bert")
        w.add_block_count(LAYERS)
        w.add_context_length(16)
        w.add_embedding_length(H)
        w.add_feed_forward_length(F)
        w.add_head_count(2)
        w.add_layer_norm_eps(1e-12)
        w.add_pooling_type(PoolingType.MEAN)
        w.add_array("bert.classifier.output_labels", ["a", "b"])
        w.add_tokenizer_model("t5" if unigram else "bert")
        marked = ["<unk>", "<s>", "</s>", "\u2581a", "b", "\u2581", "ab", "\u2581A"]
        w.add_token_list(marked if unigram else ["[UNK]", "[CLS]", "[SEP]", *marked[3:]])
        w.add_token_types([2 if unigram else 3, 3, 3, 1, 1, 1, 1, 5])
        if unigram:
            w.add_token_scores([0.0] * 3 + [-1.0, -2.0, -2.5, -3.0, -4.0])
            w.add_precompiled_charsmap(b"\0\x04\0\0" + bytes(1024) + b"a\0")
        shapes = {"token_embd.weight": (8, H), "token_types.weight": (2, H),
                  "position_embd.weight": (16, H), "cls.weight": (H, H), "cls.bias": (H,),
                  "cls.output.weight": (2, H), "cls.output.bias": (2,)}
        sizes = {"attn_q": (H, H), "attn_k": (H, H), "attn_v": (H, H), "attn_output": (H, H),
                 "ffn_up": (F, H), "ffn_down": (H, F)}
        for name in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
            shapes |= {f"{name}.weight": (H,), f"{name}.bias": (H,)}
        for name, shape in sizes.items():
            shapes |= {f"blk.0.{name}.weight": shape, f"blk.0.{name}.bias": shape[:1]}
        for name, shape in shapes.items():
            kind = Type.Q8_0 if len(shape) == 2 else Type.F32
            values = np.full(shape, 0.5, np.float32)
            w.add_tensor(name, quantize(values, kind), raw_dtype=kind)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        with open(os.path.join(scratch, "m.gguf"), "rb") as file:
            return file.read()


SIZES = {"F32": 4, "F16": 2, "I32": 4, "U8": 1, "I8": 1, "F8_E4M3": 1, "I64": 8}
G, N = 16, H  # group size, rows of q_proj
QUANTISED = {
    "gptq": ({"quant_method": "gptq", "group_size": G, "bits": 4},
             {"qweight": ("I32", [H // 8, N]), "qzeros": ("I32", [H // G, N // 8]),
              "scales": ("F16", [H // G, N])}),
    "awq": ({"quant_method": "awq", "group_size": G, "version": "gemm"},
            {"qweight": ("I32", [H, N // 8]), "qzeros": ("I32", [H // G, N // 8]),
             "scales": ("F16", [H // G, N])}),
    "w4a16": ({"quant_method": "compressed-tensors", "format": "pack-quantized"},
              {"weight_packed": ("I32", [N, H // 8]), "weight_scale": ("F16", [N, H // G]),
               "weight_zero_point": ("I32", [N // 8, H // G]), "weight_shape": ("I64", [2])}),
    "w8a8": ({"quant_method": "compressed-tensors", "format": "int-quantized"},
             {"weight": ("I8", [N, H]), "weight_scale": ("F32", [N, 1])}),
    "fp8": ({"quant_method": "fp8", "weight_block_size": [128, 128]},
            {"weight": ("F8_E4M3", [N, H]), "weight_scale_inv": ("F32", [1, 1])}),
    "nvfp4": ({"quant_method": "modelopt", "quant_algo": "NVFP4"},
              {"weight": ("U8", [N, H // 2]), "weight_scale": ("F8_E4M3", [N, H // 16]),
               "weight_scale_2": ("F32", [1])}),
    "mxfp4": ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"},
              {"weight_packed": ("U8", [N, H // 2]), "weight_scale": ("U8", [N, H // 32])}),
}


def packed(scheme, parts):
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": V, "hidden_size": H,
              "intermediate_size": F, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 1, "max_position_embeddings": 64, "torch_dtype": "bfloat16",
              "tie_word_embeddings": True, "quantization_config": scheme}
    prefix = "model.layers.0."
    names = {"model.embed_tokens.weight": ("F16", [V, H]), "model.norm.weight": ("F16", [H]),
             prefix + "input_layernorm.weight": ("F16", [H]),
             prefix + "post_attention_layernorm.weight": ("F16", [H]),
             prefix + "self_attn.k_proj.weight": ("F16", [H // 2, H]),
             prefix + "self_attn.v_proj.weight": ("F16", [H // 2, H]),
             prefix + "self_attn.o_proj.weight": ("F16", [H, H]),
             prefix + "mlp.gate_proj.weight": ("F16", [F, H]),
             prefix + "mlp.up_proj.weight": ("F16", [F, H]),
             prefix + "mlp.down_proj.weight": ("F16", [H, F])}
    names |= {prefix + "self_attn.q_proj." + name: entry for name, entry in parts.items()}
    header, at = {}, 0
    for name, (kind, shape) in names.items():
        end = at + SIZES[kind] * int(np.prod(shape))
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, end]}
        at = end
    dump = {"separators": (",", ":")}
    return json.dumps(config, **dump).encode() + b"\xff" + json.dumps(header, **dump).encode()


def pictures():
    """Files and processors that stand in tests/vectors already."""
    vectors = os.path.join(OUT, "../../vectors")
    for line in open(os.path.join(vectors, "picture_files.jsonl"), encoding="ascii"):
        row = json.loads(line)
        if 0 < len(row["file"]) < 1600:
            save("picture", row["name"], base64.b64decode(row["file"]))
    seen = set()
    for line in open(os.path.join(vectors, "pictures.jsonl"), encoding="ascii"):
        row = json.loads(line)
        if row["name"] not in seen:
            seen.add(row["name"])
            files = {key: row[key] for key in ("preprocessor", "processor", "config")}
            save("vision", row["name"], json.dumps(files).encode())


def sounds():
    """Short files of each format that stand in tests/vectors already."""
    for line in open(os.path.join(OUT, "../../vectors/sound_files.jsonl"), encoding="ascii"):
        row = json.loads(line)
        if 0 < len(row["file"]) < 12000:
            save("sound", row["name"], base64.b64decode(row["file"]))


def main():
    pictures()
    sounds()
    save("gguf", "byte_level", gguf(kind=Type.Q4_0)[0])
    save("gguf", "sentencepiece", gguf(kind=Type.Q4_1, spm=True)[0])
    save("gguf", "experts", gguf(arch="qwen3moe", kind=Type.MXFP4, experts=True)[0])
    save("gguf", "qwen2", gguf(arch="qwen2", kind=Type.Q5_0)[0])
    save("gguf", "olmo2", gguf(arch="olmo2", kind=Type.Q5_1, spm=True)[0])
    save("gguf", "numbers", gguf(arch="gemma3", kind=Type.F16)[0][:6000])
    save("gguf", "bare", gguf(bare=True)[0])
    save("gguf", "wordpiece", encoder(False))
    save("gguf", "unigram", encoder(True))
    first, second = gguf(kind=Type.Q4_0, split=7)[:2]
    pairs = {"two": (first, second), "ring": (first, first), "reversed": (second, first),
             "cut": (first, second[:200]), "one": (first, b""), "bare": (first[:64], second)}
    for name, (left, right) in pairs.items():
        save("split", name, struct.pack("<H", len(left)) + left + right)
    for name, (scheme, parts) in QUANTISED.items():
        save("packed", name, packed(scheme, parts))


if __name__ == "__main__":
    main()
