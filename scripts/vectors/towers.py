#!/usr/bin/env python3
"""Writes tests/vectors/towers: tiny random models that see, and what transformers makes of patches.

    pip install torch transformers safetensors     (CPU builds will do)
    scripts/vectors/towers.py [--out DIR] [--only PREFIX]

One directory a case: config.json and model.safetensors, both as transformers saves them, with the
text model around the tower; and expected.safetensors with

  grids [images, 2]       patches of each image: rows, columns
  pixels [patches, ...]   drawn numbers in the place of pixels, all images one behind the other
  rows [rows, width]      what takes the place of embeddings, by the fp32 reference
  deep.N [rows, width]    what is added behind layer N of the text model
  error [1]               largest |bf16 run - fp32 run| of transformers itself, over all of these
  ids [tokens]            a prompt with these images, text before, between and behind them
  positions [3, tokens]   time, line and column of each token
  logits [tokens, vocab]  of the whole model, by the fp32 reference
  logits.error [1]        largest |bf16 run - fp32 run| of these
"""

import argparse
import copy
import json
import os
import shutil
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from safetensors.torch import save_file

TEXT = {"vocab_size": 32, "hidden_size": 24, "intermediate_size": 16, "num_hidden_layers": 3,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "max_position_embeddings": 256, "tie_word_embeddings": True}
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2],
        "mrope_interleaved": True}
SIGHT = {"depth": 3, "hidden_size": 16, "intermediate_size": 20, "num_heads": 2, "patch_size": 2,
         "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 24,
         "num_position_embeddings": 25}
WIDE = {**SIGHT, "hidden_size": 48, "num_heads": 2, "intermediate_size": 40, "depth": 2}
# The least image; the table itself; one row of blocks; more than a tile and a strip of keys.
GRIDS = [(2, 2), (6, 4), (2, 20), (18, 16), (10, 10)]


def qwen3_vl(dtype="float32", **sight):
    return {"architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl",
            "image_token_id": 30, "video_token_id": 31, "vision_start_token_id": 28,
            "vision_end_token_id": 29, "tie_word_embeddings": True, "dtype": dtype,
            "text_config": {**TEXT, "model_type": "qwen3_vl_text", "rope_parameters": ROPE},
            "vision_config": {**SIGHT, "model_type": "qwen3_vl", "deepstack_visual_indexes": [0, 2],
                              **sight}}


def qwen3_5(dtype="float32"):
    text = {**TEXT, "model_type": "qwen3_5_text", "linear_num_value_heads": 2,
            "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "linear_attention", "full_attention"],
            "rope_parameters": {**ROPE, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}}
    return {**qwen3_vl(dtype), "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5", "text_config": text,
            "vision_config": {**SIGHT, "model_type": "qwen3_5"}}


def qwen2_5_vl(dtype="float32"):
    made = qwen3_vl(dtype)
    sight = {k: v for k, v in SIGHT.items() if k != "num_position_embeddings"}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 3, 2]}
    text = {k: v for k, v in TEXT.items() if k != "head_dim"} | {"bos_token_id": 1,
                                                                 "eos_token_id": 2}
    return {**made, "architectures": ["Qwen2_5_VLForConditionalGeneration"],
            "model_type": "qwen2_5_vl",
            "text_config": {**text, "model_type": "qwen2_5_vl_text", "rope_parameters": rope},
            "vision_config": {**sight, "model_type": "qwen2_5_vl", "window_size": 12,
                              "fullatt_block_indexes": [1]}}


CASES = {
    "qwen3-vl": qwen3_vl(),
    "qwen3-vl-wide": qwen3_vl(**WIDE, deepstack_visual_indexes=[]),
    "qwen3-vl-bf16": qwen3_vl("bfloat16"),
    "qwen3-5": qwen3_5(),
    "qwen2-5-vl": qwen2_5_vl(),
    "qwen2-5-vl-bf16": qwen2_5_vl("bfloat16"),
}


def draw(model, dtype):
    """Numbers of the size that training leaves, so that every part counts."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            made = torch.randn(parameter.shape)
            if "pos_embed" in name:
                made *= 0.5
            elif made.dim() == 1:
                scales = "norm" in name or name.endswith("ln_q.weight")
                made = made * 0.1 + (1 if scales and name.endswith("weight") else 0)
            else:
                made /= made[0].numel() ** 0.5
            parameter.copy_(made.to(dtype).float())


def see(model, pixels, grids):
    """[rows, deep.0, ...] of transformers."""
    visual = model.model.visual
    thw = torch.tensor([[1, *grid] for grid in grids])
    with torch.no_grad():
        made = visual(pixels, grid_thw=thw)
    return [made.pooler_output, *(getattr(made, "deepstack_features", None) or [])]


def prompt(model, rows):
    """Ids in which the second and the third image stand side by side, and the last one ends."""
    config = model.config
    begin, pad, end = (config.vision_start_token_id, config.image_token_id,
                       config.vision_end_token_id)
    ids = []
    for number, count in enumerate(rows):
        text = [(7 * number + 3 * i) % begin for i in range(0 if number == 2 else 3 + number)]
        ids += [*text, begin, *[pad] * count, end]
    return ids[:-1]


def answer(model, ids, pixels, grids):
    """[3, tokens] and [tokens, vocab] of transformers."""
    thw = torch.tensor([[1, *grid] for grid in grids])
    ids = torch.tensor([ids])
    types = (ids == model.config.image_token_id).int()
    positions, _ = model.model.get_rope_index(ids, mm_token_type_ids=types, image_grid_thw=thw)
    with torch.no_grad():
        made = model(input_ids=ids, pixel_values=pixels, image_grid_thw=thw,
                     mm_token_type_ids=types, use_cache=False)
    return positions[:, 0], made.logits[0]


def write_case(out, name, config, seed):
    directory = out / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    torch.manual_seed(seed)
    dtype = getattr(torch, config["dtype"])
    kind = getattr(transformers, config["architectures"][0])
    made = transformers.AutoConfig.from_pretrained(directory)
    model = kind._from_config(made, dtype=torch.float32, attn_implementation="eager").eval()
    draw(model, dtype)
    sight = config["vision_config"]
    columns = 3 * sight["temporal_patch_size"] * sight["patch_size"] ** 2
    pixels = torch.randn(sum(h * w for h, w in GRIDS), columns)
    exact = see(model, pixels, GRIDS)
    half = copy.deepcopy(model).bfloat16()
    rough = see(half, pixels.bfloat16(), GRIDS)
    ids = prompt(model, [h * w // 4 for h, w in GRIDS])
    positions, logits = answer(model, ids, pixels, GRIDS)
    rough_logits = answer(half, ids, pixels.bfloat16(), GRIDS)[1].float()
    error = max((a - b.float()).abs().max() for a, b in zip(exact, rough))
    facts = {"grids": torch.tensor(GRIDS, dtype=torch.float32), "pixels": pixels,
             "rows": exact[0], "error": error.reshape(1), "ids": torch.tensor(ids).float(),
             "positions": positions.float(), "logits": logits,
             "logits.error": (rough_logits - logits).abs().max().reshape(1)}
    facts |= {f"deep.{i}": rows for i, rows in enumerate(exact[1:])}
    model.to(dtype).save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    save_file({key: value.contiguous() for key, value in facts.items()},
              directory / "expected.safetensors")
    for path in directory.iterdir():
        path.chmod(0o644)
    print(f"{name}: {len(exact[0])} rows, bf16 error {error:.3g}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=root / "tests/vectors/towers")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for i, (name, config) in enumerate(CASES.items()):
        if name.startswith(options.only):
            write_case(options.out, name, config, 3500 + i)


if __name__ == "__main__":
    main()
