#!/usr/bin/env python3
"""Writes tests/vectors/pictures.jsonl: what transformers makes of pictures of many sizes.

    scripts/vectors/pictures.py [OUT]        needs transformers, torchvision and numpy

A line is a case: the files of a processor, the size and the seed of a picture (tests/engine/vision/
show.h draws the same), and `is`: views, tokens, the text in the picture's place, and the CRC of the
rows of patches, or that transformers refuses it. The back end is torchvision on a CPU with AVX2.
"""

import json
import re
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

HALF = [0.5, 0.5, 0.5]
SIZES = [(1, 1), (1, 200), (200, 1), (31, 47), (3000, 40), (40, 3000), (56, 84), (336, 224),
         (97, 131), (640, 480), (1, 201)]


def vision(patch, **config):
    return {"vision_config": {"patch_size": patch}, **config}


# name: (class, preprocessor, processor, config)
KINDS = {
    "qwen2": ("Qwen2VL", {}, None, {}),
    "qwen2-few": ("Qwen2VL", {"size": {"shortest_edge": 3136, "longest_edge": 28 * 28 * 16}}, None,
                  {}),
    "qwen3": ("Qwen2VL", {"patch_size": 16, "image_mean": HALF, "image_std": HALF, "size": {
        "shortest_edge": 65536, "longest_edge": 16777216}}, None, {}),
    "glm": ("Glm4v", {}, None, {}),
    "glm-few": ("Glm46V", {"size": {"shortest_edge": 12544, "longest_edge": 28 * 28 * 40}}, None,
                {}),
    "gemma3": ("Gemma3", {"size": {"height": 896, "width": 896}, "resample": 2},
               {"image_seq_length": 256}, vision(14, mm_tokens_per_image=256)),
    "gemma3-crops": ("Gemma3", {"size": {"height": 112, "width": 112}, "do_pan_and_scan": True,
                                "pan_and_scan_min_crop_size": 64, "pan_and_scan_max_num_crops": 4,
                                "pan_and_scan_min_ratio_to_activate": 1.2},
                     {"image_seq_length": 16}, vision(14)),
    "gemma4": ("Gemma4", {}, None, {}),
    "gemma4-70": ("Gemma4", {"max_soft_tokens": 70}, None, {}),
    "pixtral": ("Pixtral", {"size": {"longest_edge": 1540}, "patch_size": 14},
                {"patch_size": 14, "spatial_merge_size": 2}, {}),
    "pixtral-few": ("Pixtral", {"size": {"longest_edge": 100}, "patch_size": {
        "height": 14, "width": 14}}, {"patch_size": 14, "spatial_merge_size": 1}, {}),
    "smolvlm": ("SmolVLM", {"size": {"longest_edge": 2048}, "max_image_size": {
        "longest_edge": 512}}, {"image_seq_len": 64}, vision(16, scale_factor=4)),
    "idefics3-few": ("Idefics3", {"size": {"longest_edge": 96}, "max_image_size": {
        "longest_edge": 32}}, {"image_seq_len": 4}, vision(8, scale_factor=2)),
    "idefics3-whole": ("Idefics3", {"do_image_splitting": False, "size": {"longest_edge": 96},
                                    "max_image_size": {"longest_edge": 64}},
                       {"image_seq_len": 16}, vision(8, scale_factor=2)),
    "internvl": ("GotOcr2", {"size": {"height": 448, "width": 448}, "crop_to_patches": True},
                 {"image_seq_length": 256}, vision([14, 14])),
    "internvl-few": ("GotOcr2", {"size": {"height": 56, "width": 56}, "crop_to_patches": True,
                                 "max_patches": 6, "min_patches": 2},
                     {"image_seq_length": 4}, vision([14, 14])),
    "llava": ("LlavaOnevision", {}, {"num_image_tokens": 729}, vision(14)),
    "llava-few": ("LlavaOnevision", {"size": {"height": 42, "width": 42}, "image_grid_pinpoints": [
        [42, 42], [42, 84], [84, 42], [84, 84], [42, 126], [420, 420]]},
        {"num_image_tokens": 9}, vision(14)),
    "llava-kept": ("LlavaOnevision", {"size": {"height": 42, "width": 42}, "image_grid_pinpoints": [
        [42, 42], [42, 126], [126, 42], [84, 84], [126, 126]]},
        {"num_image_tokens": 9, "vision_aspect_ratio": "anyres_max_2"},
        vision(14, vision_aspect_ratio="anyres_max_2")),
    "llava-next": ("LlavaNext", {"size": {"shortest_edge": 336}, "crop_size": {
        "height": 336, "width": 336}}, {"patch_size": 14}, vision(14)),
    "llava-next-few": ("LlavaNext", {
        "size": {"shortest_edge": 42}, "crop_size": {"height": 42, "width": 42},
        "image_grid_pinpoints": [[42, 84], [84, 42], [84, 84], [42, 126]]},
        {"patch_size": 14}, vision(14)),
    "clip": ("CLIP", {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}},
             {"patch_size": 14}, vision(14)),
    "clip-few": ("CLIP", {"size": {"shortest_edge": 56}, "crop_size": {"height": 42, "width": 42}},
                 {"patch_size": 14}, vision(14)),
}


def draw(width, height, seed):
    at = (np.arange(width * height * 3, dtype=np.uint64) + np.uint64(seed)) & 0xFFFFFFFF
    value = at * np.uint64(2654435761) & 0xFFFFFFFF
    value ^= value >> np.uint64(15)
    value = (value * np.uint64(2246822519) & 0xFFFFFFFF) >> np.uint64(24)
    return torch.from_numpy(value.astype(np.uint8).reshape(height, width, 3)).permute(2, 0, 1)


def case(name, width, height, alone=True, seed=1):
    kind, preprocessor, processor, config = KINDS[name]
    preprocessor = {"image_processor_type": f"{kind}ImageProcessor", **preprocessor}
    return {"name": name, "preprocessor": preprocessor, "processor": processor, "config": config,
            "width": width, "height": height, "alone": alone, "seed": seed}


def patch_side(row):
    patch = (row["config"].get("vision_config") or {}).get("patch_size")
    patch = row["preprocessor"].get("patch_size", patch)
    if isinstance(patch, dict):
        patch = patch["height"]
    return patch[0] if isinstance(patch, list) else patch


def by_rows(views, patch):
    """(views, 3, h, w) -> (rows, 3 * patch * patch); what is behind the last patch is left out."""
    views = views.reshape(-1, *views.shape[-3:])
    high, wide = views.shape[-2] // patch, views.shape[-1] // patch
    views = views[..., :high * patch, :wide * patch].reshape(-1, 3, high, patch, wide, patch)
    return views.permute(0, 2, 4, 1, 3, 5).reshape(-1, 3 * patch * patch)


def text_of(row, made, index=0):
    """What the class of the processor writes in the picture's place."""
    kind = row["preprocessor"]["image_processor_type"].removesuffix("ImageProcessor")
    said = row["processor"] or {}
    image = "<image>"
    names = {"GotOcr2": "InternVL", "CLIP": "Llava"}
    cls = getattr(transformers, f"{names.get(kind, kind)}Processor")
    own = cls.__new__(cls)
    own.image_token, own.boi_token, own.eoi_token = image, "<begin>", "<end>"
    own.start_image_token, own.end_image_token = "<begin>", "<end>"
    own.image_break_token, own.image_end_token = "<break>", "<end>"
    own.fake_image_token, own.global_image_token = "<begin>", "<whole>"
    own.global_image_tag = "<whole>"
    own.image_seq_len = own.image_seq_length = said.get("image_seq_len",
                                                        said.get("image_seq_length"))
    own.patch_size = said.get("patch_size")
    own.spatial_merge_size = said.get("spatial_merge_size")
    own.num_image_tokens = said.get("num_image_tokens")
    classed = kind in ("CLIP", "LlavaNext")
    own.vision_feature_select_strategy = "default" if classed else "full"
    own.num_additional_image_tokens = int(classed)
    own.vision_aspect_ratio = said.get("vision_aspect_ratio") or "anyres_max_9"
    own.full_image_sequence = f"\n\n<begin>{image * (own.image_seq_len or 0)}<end>\n\n"
    own.image_processor = made.processor
    if kind == "SmolVLM":
        cls = Idefics3Processor  # the same text; SmolVLM's class wants num2words
    text = cls.replace_image_token(own, made.inputs, index)
    return re.sub("(?:<image>)+", lambda m: f"<image*{len(m[0]) // len(image)}>", text)


def truth(row):
    cls = getattr(transformers, row["preprocessor"]["image_processor_type"])
    arguments = {key: value for key, value in row["preprocessor"].items()
                 if key != "image_processor_type"}
    processor = cls(**arguments)
    said, patch = row["processor"] or {}, patch_side(row)
    picture = draw(row["width"], row["height"], row["seed"])
    extra = {}
    if "Pixtral" in cls.__name__:
        extra["patch_size"] = said["patch_size"] * said["spatial_merge_size"]
    if "Idefics3" in cls.__name__ or "SmolVLM" in cls.__name__:
        extra["return_row_col_info"] = True
    pictures = [picture] if row["alone"] else [[picture, picture]]
    try:
        inputs = processor(images=pictures, input_data_format="channels_first",
                           return_tensors="pt", **extra)
    except (ValueError, RuntimeError, ZeroDivisionError):
        return {"refused": True}
    values = inputs["pixel_values"]
    if "Qwen2VL" in cls.__name__ or "Glm" in cls.__name__:
        _, high, wide = inputs["image_grid_thw"][0].tolist()
        patch = patch or 14
        rows, views = values, [1, high * patch, wide * patch]
    elif "Gemma4" in cls.__name__:
        places = inputs["image_position_ids"][0]
        high, wide = [int(places[:, axis].max()) + 1 for axis in (1, 0)]
        rows, views = values[0][:high * wide], [1, high * 16, wide * 16]
    else:
        values = values[0] if values.dim() == 5 else values
        rows = by_rows(values, patch)
        views = [values.shape[0], *values.shape[-2:]]
    made = SimpleNamespace(inputs=inputs, processor=processor)
    text = text_of(row, made)
    tokens = sum(int(n) for n in re.findall(r"<image\*(\d+)>", text))
    crc = zlib.crc32(np.ascontiguousarray(rows.numpy(), dtype=np.float32).tobytes())
    return {"views": views, "tokens": tokens, "text": text, "rows": list(rows.shape), "crc": crc}


def cases():
    for name in KINDS:
        for width, height in SIZES:
            yield case(name, width, height)
    for width, height in ((31, 47), (50, 50), (200, 1)):
        yield case("llava-few", width, height, alone=False)


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/vectors/pictures.jsonl")
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"), "another rounding"
    lines = [json.dumps({**row, "is": truth(row)}) for row in cases()]
    out.write_text("\n".join(lines) + "\n", "ascii")


if __name__ == "__main__":
    main()
