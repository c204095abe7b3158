#!/usr/bin/env python3
"""Writes tests/vectors/towers: tiny random models that see or hear, and what transformers makes of
patches, or of rows of spectrograms.

    pip install torch transformers safetensors     (CPU builds will do)
    scripts/vectors/towers.py [--out DIR] [--only PREFIX]

One directory a case: config.json and model.safetensors, both as transformers saves them, with the
text model around the tower; and expected.safetensors with

  grids [images, 2]       patches of each image: rows, columns; of a sound 1, positions
  pixels [patches, ...]   drawn numbers in the place of pixels, all images one behind the other; of
                          sounds the five rows of a spectrogram around each position
  rows [rows, width]      what takes the place of embeddings, by the fp32 reference
  sizes [pictures, 2]     of LLaVA, whose images are views: width and height of the pictures, and
  packed [tokens, width]  what becomes of the rows: tiles are joined, new lines are behind them
  deep.N [rows, width]    what is added behind layer N of the text model
  error [1]               largest |bf16 run - fp32 run| of transformers itself, over all of these
  ids [tokens]            a prompt with these images, text before, between and behind them
  positions [3, tokens]   time, line and column of each token; of models that count text alone the
                          position, three times
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


BEGIN, END, PAD = 28, 29, 30  # ids
FLAT = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2,
        "num_attention_heads": 2, "patch_size": 2}
SMALL = {**TEXT, "num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def around(architecture, kind, text, sight, dtype="float32", **keys):
    return {"architectures": [f"{architecture}ForConditionalGeneration"], "model_type": kind,
            "dtype": dtype, "tie_word_embeddings": True, "text_config": {**SMALL, **text},
            "vision_config": {**FLAT, **sight}, **keys}


def mistral3(dtype="float32", text="mistral", **keys):
    return around("Mistral3", "mistral3", {"model_type": text, "rms_norm_eps": 1e-5},
                  {"model_type": "pixtral", "hidden_act": "silu"}, dtype, image_token_index=PAD,
                  spatial_merge_size=2, vision_feature_layer=-1, **keys)


def pixtral():
    return around("Llava", "llava", {"model_type": "mistral"},
                  {"model_type": "pixtral", "hidden_act": "gelu"}, image_token_index=PAD,
                  vision_feature_layer=-1, vision_feature_select_strategy="full")


def llava(kind, text, sight, dtype="float32", **keys):
    """Of views that are one square; the last layer of the tower goes unread with -2."""
    name = "".join(word.title() for word in kind.split("_"))
    return around(name, kind, {"max_position_embeddings": 512, **text},
                  {"patch_size": 4, "image_size": 24, "num_hidden_layers": 3, **sight}, dtype,
                  image_token_index=PAD, **keys)


CLIP = {"model_type": "clip_vision_model", "projection_dim": 8}
PINPOINTS = [[24, 24], [24, 48], [48, 24], [48, 48]]


def onevision(dtype="float32"):
    return llava("llava_onevision", {"model_type": "qwen2", "head_dim": 12}, {
        "model_type": "siglip_vision_model", "vision_use_head": False}, dtype,
        vision_feature_layer=-1, image_grid_pinpoints=PINPOINTS, vision_aspect_ratio="anyres_max_1")


def clip(kind="llava", dtype="float32", **keys):
    return llava(kind, {"model_type": "llama"}, CLIP, dtype, vision_feature_layer=-2,
                 vision_feature_select_strategy="default", **keys)


def qwen2_vl(dtype="float32"):
    made = qwen2_5_vl(dtype)
    sight = {key: SIGHT[key] for key in ("depth", "num_heads", "patch_size", "temporal_patch_size",
                                         "spatial_merge_size")}
    return {**made, "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl",
            "text_config": {**made["text_config"], "model_type": "qwen2_vl_text"},
            "vision_config": {**sight, "model_type": "qwen2_vl", "embed_dim": 16, "mlp_ratio": 2,
                              "hidden_size": TEXT["hidden_size"]}}


def smolvlm(dtype="float32"):
    return around("SmolVLM", "smolvlm", {"model_type": "llama"},
                  {"model_type": "smolvlm_vision", "image_size": 12}, dtype, image_token_id=PAD,
                  scale_factor=2)


def idefics3():
    return around("Idefics3", "idefics3", {"model_type": "llama"},
                  {"model_type": "idefics3_vision", "image_size": 58, "layer_norm_eps": 1e-5},
                  image_token_id=PAD, scale_factor=3)


def internvl(dtype="float32", **sight):
    return around("InternVL", "internvl", {"model_type": "qwen3"},
                  {"model_type": "internvl_vision", "image_size": [12, 12], "patch_size": [2, 2],
                   "attention_bias": True, **sight}, dtype, image_token_id=PAD)


def gemma3(dtype="float32"):
    """A window that is shorter than a picture."""
    text = {"model_type": "gemma3_text", "sliding_window": 6, "query_pre_attn_scalar": 16,
            "layer_types": ["sliding_attention", "full_attention"]}
    return around("Gemma3", "gemma3", text,
                  {"model_type": "siglip_vision_model", "image_size": 12, "vision_use_head": False},
                  dtype, image_token_index=PAD, boi_token_index=BEGIN, eoi_token_index=END,
                  mm_tokens_per_image=9)


def gemma4(dtype="float32", text=(), **sight):
    """Pictures that causal models see as text, with embeddings of layers; bounds of matrices."""
    rope = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                               "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    own = {"model_type": "gemma4_text", "hidden_activation": "gelu_pytorch_tanh",
           "global_head_dim": 32, "sliding_window": 6, "num_hidden_layers": 3,
           "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
           "rope_parameters": rope, "hidden_size_per_layer_input": 8,
           "vocab_size_per_layer_input": 32, "num_kv_shared_layers": 0, "pad_token_id": 3,
           "final_logit_softcapping": 30.0, "use_bidirectional_attention": None, **dict(text)}
    return around("Gemma4", "gemma4", own,
                  {"model_type": "gemma4_vision", "head_dim": 8, "num_key_value_heads": 2,
                   "pooling_kernel_size": 3, "position_embedding_size": 40,
                   "use_clipped_linears": True, **sight},
                  dtype, image_token_id=PAD, boi_token_id=BEGIN, eoi_token_id=END,
                  audio_config=None)


def qwen2_audio(dtype="float32", **hearing):
    text = {k: v for k, v in SMALL.items() if k != "head_dim"}
    return {"architectures": ["Qwen2AudioForConditionalGeneration"], "model_type": "qwen2_audio",
            "dtype": dtype, "tie_word_embeddings": False, "audio_token_index": PAD,
            "text_config": {**text, "model_type": "qwen2", "tie_word_embeddings": False},
            "audio_config": {"model_type": "qwen2_audio_encoder", "num_mel_bins": 6,
                             "d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2,
                             "encoder_ffn_dim": 20, "max_source_positions": 12, **hearing}}


def voxtral(dtype="float32"):
    return {"architectures": ["VoxtralForConditionalGeneration"], "model_type": "voxtral",
            "dtype": dtype, "tie_word_embeddings": False, "audio_token_id": PAD,
            "text_config": {**SMALL, "model_type": "llama", "tie_word_embeddings": False},
            "audio_config": {"model_type": "voxtral_encoder", "num_mel_bins": 6, "hidden_size": 16,
                             "num_hidden_layers": 2, "num_attention_heads": 2,
                             "intermediate_size": 64, "max_source_positions": 12}}


def audioflamingo3(dtype="float32", **more):
    """The least sound with a token, an odd number of positions; an MLP behind the means."""
    made = qwen2_audio(dtype)
    hearing = {"model_type": "audioflamingo3_encoder", "num_mel_bins": 6, "hidden_size": 16,
               "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20,
               "max_source_positions": 12}
    del made["audio_token_index"]
    return {**made, "architectures": ["AudioFlamingo3ForConditionalGeneration"],
            "model_type": "audioflamingo3", "audio_token_id": PAD, "audio_config": hearing, **more}


def glmasr(dtype="float32"):
    """Whole windows; half of each head turns by the position."""
    return {"architectures": ["GlmAsrForConditionalGeneration"], "model_type": "glmasr",
            "dtype": dtype, "tie_word_embeddings": True, "audio_token_id": PAD,
            "text_config": {**SMALL, "model_type": "llama", "tie_word_embeddings": True},
            "audio_config": {"model_type": "glmasr_encoder", "num_mel_bins": 6, "hidden_size": 16,
                             "num_hidden_layers": 2, "num_attention_heads": 2,
                             "intermediate_size": 64, "rope_parameters": {
                                 "rope_type": "default", "rope_theta": 500.0,
                                 "partial_rotary_factor": 0.5}}}


def qwen3_asr(dtype="float32"):
    """Attention over two chunks."""
    return {"architectures": ["Qwen3ASRForConditionalGeneration"], "model_type": "qwen3_asr",
            "dtype": dtype, "tie_word_embeddings": True, "audio_token_id": PAD,
            "text_config": {**SMALL, "model_type": "qwen3", "tie_word_embeddings": True},
            "audio_config": {"model_type": "qwen3_asr_encoder", "num_mel_bins": 11, "d_model": 16,
                             "encoder_layers": 2, "encoder_attention_heads": 2,
                             "encoder_ffn_dim": 20, "downsample_hidden_size": 5,
                             "n_window_infer": 200, "output_dim": SMALL["hidden_size"]}}


LARGE = {"use_bidirectional_attention": "vision", "hidden_size_per_layer_input": 0,
         "attention_k_eq_v": True, "num_global_key_value_heads": 1}


CASES = {
    "qwen3-vl": qwen3_vl(),
    "qwen3-vl-wide": qwen3_vl(**WIDE, deepstack_visual_indexes=[]),
    "qwen3-vl-bf16": qwen3_vl("bfloat16"),
    "qwen3-5": qwen3_5(),
    "qwen2-5-vl": qwen2_5_vl(),
    "qwen2-5-vl-bf16": qwen2_5_vl("bfloat16"),
    "mistral3": mistral3(),
    "mistral3-bf16": mistral3("bfloat16"),
    "pixtral": pixtral(),
    "smolvlm": smolvlm(),
    "smolvlm-bf16": smolvlm("bfloat16"),
    "idefics3": idefics3(),
    "internvl": internvl(),
    "internvl-bf16": internvl("bfloat16"),
    "gemma3": gemma3(),
    "gemma3-bf16": gemma3("bfloat16"),
    "gemma4": gemma4(),
    "gemma4-large": gemma4(text=LARGE, use_clipped_linears=False, standardize=True,
                           hidden_size=48, head_dim=24),
    "gemma4-bf16": gemma4("bfloat16"),
    "qwen2-vl": qwen2_vl(),
    "qwen2-vl-bf16": qwen2_vl("bfloat16"),
    "llava-onevision": onevision(),
    "llava-onevision-bf16": onevision("bfloat16"),
    "llava-clip": clip(),
    "llava-clip-bf16": clip(dtype="bfloat16"),
    "llava-next": clip("llava_next", image_grid_pinpoints=PINPOINTS),
    "qwen2-audio": qwen2_audio(),
    "qwen2-audio-long": qwen2_audio(d_model=24, encoder_ffn_dim=80, max_source_positions=700),
    "qwen2-audio-bf16": qwen2_audio("bfloat16"),
    "voxtral": voxtral(),
    "voxtral-bf16": voxtral("bfloat16"),
    "audioflamingo3": audioflamingo3(),
    "audioflamingo3-bf16": audioflamingo3("bfloat16", projector_bias=False),
    "glmasr": glmasr(),
    "glmasr-bf16": glmasr("bfloat16"),
    "qwen3-asr": qwen3_asr(),
    "qwen3-asr-bf16": qwen3_asr("bfloat16"),
}
PACKED = ("llava_next", "llava_onevision")
PICTURES = [(10, 40), (30, 28)]  # height, width


def draw(model, dtype):
    """Numbers of the size that training leaves, so that every part counts."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            made = torch.randn(parameter.shape)
            if "pos_embed" in name or "position_embedding" in name:
                made *= 0.5
            elif made.dim() == 1:
                scales = "norm" in name or ".ln_" in name
                made = made * 0.1 + (1 if scales and name.endswith("weight") else 0)
            else:
                made /= made[0].numel() ** 0.5
            if name.endswith("k_norm.weight") and model.config.model_type == "gemma4":
                made /= made.numel() ** 0.5  # what other families divide q.k by
            parameter.copy_(made.to(dtype).float())
        for name, buffer in model.named_buffers():  # of Gemma 4: bounds, and what means become
            if name.endswith(("_min", "_max")):
                made = (torch.rand(()) + 0.7) * (1 if name.endswith("max") else -1)
            elif name.endswith(("std_bias", "std_scale")):
                made = torch.randn(buffer.shape) * 0.2 + name.endswith("scale")
            elif name.endswith("layer_scalar"):
                made = torch.rand(buffer.shape) + 0.5
            else:
                continue
            buffer.copy_(made.to(dtype).float())


def hears(model):
    return model.config.model_type in ("qwen2_audio", "voxtral", "audioflamingo3", "glmasr",
                                       "qwen3_asr")


def most_positions(model):
    """Of a window; GLM-ASR has no table of them."""
    return getattr(model.config.audio_config, "max_source_positions", 12)


def chunks(pixels, grids):
    """Features and mask of Qwen3-ASR: chunks of 100 rows of the eight rows of each position."""
    made, masks, first = [], [], 0
    for _, count in grids:
        rows = pixels[first:first + count].view(8 * count, -1)
        own = torch.cat([torch.nn.functional.pad(part, (0, 0, 0, 104 - len(part)))[:100]
                         for part in rows.split(104)])
        made.append(own)
        masks.append(torch.arange(len(own)) < count // 13 * 100 + count % 13 * 8)
        first += count
    return {"input_features": torch.nn.utils.rnn.pad_sequence(made, batch_first=True).mT,
            "input_features_mask": torch.nn.utils.rnn.pad_sequence(masks,
                                                                   batch_first=True).long()}


def spectrograms(pixels, grids, rows):
    """[sounds, bands, rows] of the five rows around each position; zeros behind them."""
    made, first = [], 0
    for _, count in grids:
        five = pixels[first:first + count].view(count, 5, -1)
        own = torch.cat([five[:, 2:4].reshape(2 * count, -1), five[-1:, 4]])[:rows]
        made.append(torch.nn.functional.pad(own, (0, 0, 0, rows - len(own))).T)
        first += count
    return torch.stack(made)


def draw_pixels(model, grids, columns):
    if not hears(model):
        return torch.randn(sum(h * w for h, w in grids), columns)
    if model.config.model_type == "qwen3_asr":
        made = torch.randn(sum(w for _, w in grids), 8, columns // 8)
        places = torch.cat([torch.arange(w) for _, w in grids])
        made[places % 13 == 12, 4:] = 0  # a chunk has 100 rows
        return made.flatten(1)
    rows, made = 2 * most_positions(model), []
    for _, count in grids:
        own = torch.randn(rows, columns // 5)
        own[2 * count + 1:] = 0
        padded = torch.nn.functional.pad(own, (0, 0, 2, 1))
        made.append(padded.unfold(0, 5, 2).transpose(1, 2)[:count].reshape(count, columns))
    return torch.cat(made)


def is_flat(model):
    """Whether it takes pictures, not rows of patches in blocks."""
    return hears(model) or not model.config.model_type.startswith("qwen")


def merge_of(config):
    """Patches of a side of what becomes one row."""
    if config.model_type in ("qwen2_audio", "audioflamingo3"):
        return 2 ** 0.5
    if config.model_type in ("voxtral", "glmasr"):
        return 2
    if config.model_type == "qwen3_asr":
        return 1
    if config.model_type == "internvl":
        return round(1 / config.downsample_ratio)
    sight = config.vision_config
    if config.model_type == "gemma4":
        return sight.pooling_kernel_size
    if config.model_type == "gemma3":
        return sight.image_size // sight.patch_size // round(config.mm_tokens_per_image ** 0.5)
    names = ((sight, "spatial_merge_size"), (config, "spatial_merge_size"),
             (config, "scale_factor"))
    return next((getattr(part, name) for part, name in names if hasattr(part, name)), 1)


def views_of(model):
    """Of each picture."""
    config = model.config
    split = transformers.models.llava_next.modeling_llava_next.image_size_to_num_patches
    return [split(size, config.image_grid_pinpoints, config.vision_config.image_size)
            for size in PICTURES]


def show(model, pixels, grids):
    """What the model takes: rows of patches, or pictures that are put together of them."""
    if model.config.model_type == "qwen3_asr":
        return chunks(pixels, grids)
    if hears(model):
        rows = 2 * most_positions(model)
        lengths = torch.tensor([[2 * count] for _, count in grids])
        made = {"input_features": spectrograms(pixels, grids, rows)}
        if model.config.model_type == "voxtral":
            return made
        mask = "input_features_mask" if model.config.model_type != "qwen2_audio" else (
            "feature_attention_mask")
        return {**made, mask: (torch.arange(rows) < lengths).long()}
    if not is_flat(model):
        return {"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, *g] for g in grids])}
    if model.config.model_type == "gemma4":
        most, parts = max(h * w for h, w in grids), pixels.split([h * w for h, w in grids])
        places = [torch.stack([torch.arange(h * w) % w, torch.arange(h * w) // w], -1)
                  for h, w in grids]
        padded = [[torch.nn.functional.pad(part, (0, 0, 0, most - len(part)), value=value)
                   for part in each] for each, value in ((parts, 0), (places, -1))]
        return {"pixel_values": torch.stack(padded[0]),
                "image_position_ids": torch.stack(padded[1])}
    side = round((pixels.shape[1] / 3) ** 0.5)
    pictures, first = [], 0
    for height, width in grids:
        rows = pixels[first:first + height * width].view(height, width, 3, side, side)
        pictures.append(rows.permute(2, 0, 3, 1, 4).reshape(3, height * side, width * side))
        first += height * width
    sizes = [picture.shape[1:] for picture in pictures]
    most = [max(size[i] for size in sizes) for i in range(2)]
    padded = torch.stack([torch.nn.functional.pad(picture, (0, most[1] - picture.shape[2],
                                                            0, most[0] - picture.shape[1]))
                          for picture in pictures])
    if model.config.model_type in PACKED:
        parts = padded.split(views_of(model))
        return {"pixel_values": torch.nn.utils.rnn.pad_sequence(parts, batch_first=True),
                "image_sizes": torch.tensor(PICTURES)}
    if model.config.vision_config.model_type == "pixtral":
        return {"pixel_values": padded, "image_sizes": torch.tensor([list(size) for size in sizes])}
    if model.config.model_type in ("smolvlm", "idefics3"):
        return {"pixel_values": padded[None]}
    return {"pixel_values": padded}


def see(model, pixels, grids):
    """[rows, deep.0, ...] of transformers."""
    inputs = show(model, pixels, grids)
    with torch.no_grad():
        if hears(model) and model.config.model_type != "qwen2_audio":
            return [model.model.get_audio_features(**inputs, return_dict=True).pooler_output]
        if hears(model):
            tower, counts = model.model.audio_tower, [count for _, count in grids]
            keys = torch.arange(tower.config.max_source_positions)
            unseen = keys >= torch.tensor(counts)[:, None]
            mask = torch.zeros(unseen.shape).masked_fill(unseen, -torch.inf)
            made = tower(inputs["input_features"], attention_mask=mask[:, None, None].to(pixels))
            made = model.model.multi_modal_projector(made.last_hidden_state)
            return [torch.cat([rows[:count // 2] for rows, count in zip(made, counts)])]
        if not is_flat(model):
            made = model.model.visual(pixels, grid_thw=inputs["image_grid_thw"])
            return [made.pooler_output, *(getattr(made, "deepstack_features", None) or [])]
        if model.config.model_type in PACKED:
            return [see_views(model, pixels, grids)]
        made = model.model.get_image_features(**inputs, return_dict=True).pooler_output
    rows = torch.cat(list(made))
    return [rows.reshape(-1, rows.shape[-1])]


def see_views(model, pixels, grids):
    """[rows, width] before they are packed."""
    made = []
    projector = model.model.multi_modal_projector
    hook = projector.register_forward_hook(lambda *args: made.append(args[-1]))
    model.model.get_image_features(**show(model, pixels, grids), return_dict=True)
    hook.remove()
    return made[0].reshape(-1, made[0].shape[-1])


def pack(model, pixels, grids):
    """[tokens, width] of each picture."""
    with torch.no_grad():
        made = model.model.get_image_features(**show(model, pixels, grids), return_dict=True)
    return made.pooler_output


def prompt(counts):
    """Ids in which the second and the third image stand side by side, and the last one ends."""
    ids = []
    for number, count in enumerate(counts):
        text = [(7 * number + 3 * i) % BEGIN for i in range(0 if number == 2 else 3 + number)]
        ids += [*text, BEGIN, *[PAD] * count, END]
    return ids[:-1]


def answer(model, ids, pixels, grids):
    """[3, tokens] and [tokens, vocab] of transformers."""
    ids = torch.tensor([ids])
    inputs = show(model, pixels, grids)
    positions = torch.arange(ids.shape[1]).expand(3, -1)
    if not is_flat(model):
        inputs["mm_token_type_ids"] = (ids == PAD).int()
        positions, _ = model.model.get_rope_index(
            ids, mm_token_type_ids=inputs["mm_token_type_ids"],
            image_grid_thw=inputs["image_grid_thw"])
        positions = positions[:, 0]
    if model.config.model_type == "gemma4":
        inputs["mm_token_type_ids"] = (ids == PAD).int()
    if model.config.model_type == "gemma3":
        inputs["token_type_ids"] = (ids == PAD).int()
    with torch.no_grad():
        made = model(input_ids=ids, use_cache=False, **inputs)
    return positions, made.logits[0]


def shapes(model):
    """Grids of the images of a case, and the numbers of a patch."""
    if hears(model):
        hearing = model.config.audio_config
        if model.config.model_type == "qwen3_asr":
            return [(1, 43), (1, 13), (1, 26), (1, 5)], 8 * hearing.num_mel_bins
        if model.config.model_type in ("voxtral", "glmasr"):
            return [(1, most_positions(model))] * 4, 5 * hearing.num_mel_bins
        return [(1, most_positions(model)), (1, 2), (1, 8), (1, 7)], 5 * hearing.num_mel_bins
    sight = model.config.vision_config
    if not is_flat(model):
        return GRIDS, 3 * sight.temporal_patch_size * sight.patch_size ** 2
    size = (side if isinstance(side := sight.patch_size, int) else side[0])
    if model.config.model_type in PACKED:
        return [(6, 6)] * sum(views_of(model)), 3 * size ** 2
    if model.config.vision_config.model_type == "pixtral":
        return GRIDS[:3] + [(10, 6)], 3 * size ** 2
    if model.config.model_type == "gemma4":
        return [(6, 9), (3, 3), (15, 6), (3, 36)], 3 * size ** 2
    side = 18 if model.config.model_type == "idefics3" else 6
    return [(side, side)] * (2 if side > 6 else 4), 3 * size ** 2


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
    grids, columns = shapes(model)
    pixels = draw_pixels(model, grids, columns)
    exact = see(model, pixels, grids)
    half = copy.deepcopy(model).bfloat16()
    rough = see(half, pixels.bfloat16(), grids)
    packed = pack(model, pixels, grids) if model.config.model_type in PACKED else None
    ids = prompt([len(rows) for rows in packed] if packed else
                 [h * w // round(merge_of(model.config) ** 2) for h, w in grids])
    positions, logits = answer(model, ids, pixels, grids)
    rough_logits = answer(half, ids, pixels.bfloat16(), grids)[1].float()
    error = max((a - b.float()).abs().max() for a, b in zip(exact, rough))
    facts = {"grids": torch.tensor(grids, dtype=torch.float32), "pixels": pixels,
             "rows": exact[0], "error": error.reshape(1), "ids": torch.tensor(ids).float(),
             "positions": positions.float(), "logits": logits,
             "logits.error": (rough_logits - logits).abs().max().reshape(1)}
    if packed:
        facts |= {"sizes": torch.tensor(PICTURES).flip(1).float(), "packed": torch.cat(packed)}
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
