#!/usr/bin/env python3
"""Compares models that see with transformers: random models, drawn pictures, fresh each time.

    tests/parity/parity_vision.py --build build [--count 20] [--seed N] [--only qwen3_vl]

A model of each family in turn, with random sizes and weights, is saved by transformers and run by
build/vision_driver: the tower and the text model, in float32. A prompt has 0 to 4 pictures with
text before, between and behind them, or none between. transformers prepares the pictures, finds the
positions and goes on greedily. Of every token of the prompt and of the continuation

- the log-probabilities of all tokens must be within 1e-4 of transformers'; where layers keep a
  state, which amplifies rounding at some tokens, within four times what nudges of the weights by
  2^-22 change of transformers' own at the same token, if that is more;
- the best token must be the one that transformers generated, unless the two best are that close;
- the bits must be the same in one chunk and in chunks that are cut anywhere, but not within a
  picture that its tokens see whole.

Ends with `N of N cases are equal`.
"""

import argparse
import copy
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]
import towers  # noqa: E402
import vision_families  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from PIL import Image  # noqa: E402

TOLERANCE, STEPS, NUDGES = 1e-4, 16, 4
FIRST_MARK, BEGIN, END, PAD = 58, 60, 61, 62  # ids; 63 stands for videos
PATCH, MERGE = 2, 2


def sections(rng, pairs):
    time, line = sorted(rng.randint(0, pairs) for _ in range(2))
    return [time, line - time, pairs - line]


def text_of(rng, head):
    heads = rng.choice([1, 2])
    return {**towers.TEXT, "vocab_size": 64, "hidden_size": heads * 2 * head,
            "num_attention_heads": heads * 2, "num_key_value_heads": heads, "head_dim": head,
            "intermediate_size": 8 * rng.randint(2, 8), "bos_token_id": BEGIN, "eos_token_id": END,
            "num_hidden_layers": rng.randint(2, 4),
            "max_position_embeddings": 512, "tie_word_embeddings": rng.random() < 0.5}


def sight_of(rng, text):
    heads = rng.choice([1, 2, 3])
    return {**towers.SIGHT, "depth": rng.randint(1, 4), "hidden_size": 16 * heads,
            "num_heads": heads, "intermediate_size": 8 * rng.randint(2, 6), "patch_size": PATCH,
            "spatial_merge_size": MERGE, "num_position_embeddings": rng.choice([4, 25, 49]),
            "out_hidden_size": text["hidden_size"]}


def model_of(kind, rng):
    head = rng.choice([8, 16, 32])
    text = text_of(rng, head)
    if not kind.startswith("qwen"):
        return vision_families.model_of(kind, rng, text, 1 + (kind in vision_families.PACKED))
    sight = sight_of(rng, text)
    rope = {"rope_type": "default", "rope_theta": rng.choice([1e3, 1e4, 1e6])}
    name = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL",
            "qwen3_vl_moe": "Qwen3VLMoe", "qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe"}[kind]
    if kind.startswith("qwen3_5"):
        part = rng.choice([0.25, 0.5]) if head > 8 else 0.5
        rope |= {"partial_rotary_factor": part,
                 "mrope_section": sections(rng, int(head * part) // 2)}
        kinds = ["linear_attention", "full_attention"]
        text |= {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
                 "linear_value_head_dim": 32, "layer_types":
                 [rng.choice(kinds) for _ in range(text["num_hidden_layers"] - 1)] + kinds[1:]}
    else:
        rope |= {"mrope_section": sections(rng, head // 2)}
    if kind.startswith("qwen3"):
        rope |= {"mrope_interleaved": True}
    if kind.startswith("qwen3_vl"):
        deep = rng.sample(range(sight["depth"]), rng.randint(0, min(2, sight["depth"])))
        sight |= {"deepstack_visual_indexes": sorted(deep)}
    if kind.endswith("moe"):
        text |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                 "shared_expert_intermediate_size": 16, "decoder_sparse_step": 1,
                 "norm_topk_prob": True}
    if kind == "qwen2_vl":
        sight = {key: sight[key] for key in ("depth", "num_heads", "patch_size",
                                             "spatial_merge_size", "temporal_patch_size")
                 } | {"embed_dim": sight["hidden_size"], "hidden_size": text["hidden_size"],
                      "mlp_ratio": rng.choice([1, 2, 4])}
    if kind == "qwen2_5_vl":
        del sight["num_position_embeddings"]
        sight |= {"window_size": 4 * rng.randint(1, 5),
                  "fullatt_block_indexes": rng.sample(range(sight["depth"]), 1)}
    return {"architectures": [f"{name}ForConditionalGeneration"], "model_type": kind,
            "image_token_id": PAD, "video_token_id": PAD + 1, "vision_start_token_id": BEGIN,
            "vision_end_token_id": END, "dtype": "float32",
            "tie_word_embeddings": text["tie_word_embeddings"],
            "text_config": {**text, "model_type": f"{kind}_text", "rope_parameters": rope},
            "vision_config": {**sight, "model_type": kind}}


def picture(rng):
    """Noise over a slope, of any shape."""
    longest = rng.choice([4, 20, 60])
    width, height = (rng.randint(1, longest) for _ in range(2))
    noise = np.random.default_rng(rng.getrandbits(32)).integers(0, 100, (height, width, 3))
    slope = np.linspace(0, 155, width)[None, :, None]
    made = Image.fromarray((noise + slope).astype(np.uint8))
    if rng.random() < 0.2:
        made = made.convert("L").convert("RGB")
    if rng.random() < 0.2:  # transparent at one side, laid on white as the server does
        alpha = Image.fromarray((slope[:, :, 0] * np.ones((height, 1))).astype(np.uint8))
        made = Image.composite(made, Image.new("RGB", made.size, "white"), alpha)
    return made


def prompt(rng, places):
    """Ids with those in the place of each picture."""
    def text(least):
        return [rng.randrange(BEGIN) for _ in range(rng.randint(least, 12))]
    ids = text(1)
    for place in places:
        ids += [*place, *(text(0) if rng.random() < 0.6 else [])]
    return ids


def build(directory, config, seed):
    (directory / "config.json").write_text(json.dumps(config))
    torch.manual_seed(seed)
    kind = getattr(transformers, config["architectures"][0])
    made = transformers.AutoConfig.from_pretrained(directory)
    model = kind._from_config(made, dtype=torch.float32, attn_implementation="eager").eval()
    towers.draw(model, torch.float32)
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    return model


def types_of(model, ids):
    """What models want to be told of which ids are pictures."""
    kind = model.config.model_type
    if kind.startswith("qwen"):
        return {"mm_token_type_ids": (ids == model.config.image_token_id).int()}
    own = ids == getattr(model.config, "image_token_index", getattr(
        model.config, "image_token_id", PAD))
    if kind == "gemma4":
        return {"mm_token_type_ids": own.int()}
    return {"token_type_ids": own.int()} if kind == "gemma3" else {}


def whole(model, ids, inputs):
    """[tokens, vocab] of transformers and [3, tokens], or None where it has no such positions."""
    ids = torch.tensor([ids])
    types, positions = types_of(model, ids), None
    if model.config.model_type.startswith("qwen"):
        grids = inputs.get("image_grid_thw")
        positions = model.model.get_rope_index(ids, **types, image_grid_thw=grids)[0][:, 0]
    with torch.no_grad():
        made = model(input_ids=ids, use_cache=False, **types, **inputs)
    return made.logits[0], positions


def bounds_of(model, ids, inputs, theirs):
    """How far apart the log-probabilities of each token may be."""
    bounds = torch.full((len(ids),), TOLERANCE, dtype=torch.double)
    if not model.config.model_type.startswith("qwen3_5"):
        return bounds
    saved = copy.deepcopy(model.state_dict())
    for _ in range(NUDGES):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(saved[name] * (1 + 2.0**-22 * torch.randn(parameter.shape)))
        other, _ = whole(model, ids, inputs)
        left, right = (torch.log_softmax(x.double(), -1) for x in (theirs, other))
        bounds = torch.maximum(bounds, 4 * (left - right).abs().amax(-1))
    model.load_state_dict(saved)
    return bounds


def generate(model, ids, inputs):
    """Goes on with a cache, as people do; ids of pictures are never chosen."""
    ids = torch.tensor([ids])
    with torch.no_grad():
        made = model.generate(input_ids=ids, **types_of(model, ids), **inputs,
                              attention_mask=torch.ones_like(ids), do_sample=False,
                              max_new_tokens=STEPS, min_new_tokens=STEPS, pad_token_id=0,
                              suppress_tokens=list(range(FIRST_MARK, 64)))
    return made[0].tolist()


def seen_until(ids):
    """Up to where tokens of pictures see."""
    ends = [0] * len(ids)
    for i in reversed(range(len(ids))):
        if ids[i] == PAD:
            ends[i] = ends[i + 1] if i + 1 < len(ids) and ids[i + 1] == PAD else i + 1
    return ends


def whole_chunks(chunks, ends):
    """Chunks that end behind the picture in which these would end."""
    cut, at = [], 0
    while at < len(ends):
        end = min(at + chunks[min(len(cut), len(chunks) - 1)], len(ends))
        end = max(end, ends[end - 1])
        cut.append(end - at)
        at = end
    return cut


def drive(options, directory, ids, positions, grids, chunks, sees, packed):
    ends = seen_until(ids) if sees else []
    if sees:
        chunks = whole_chunks(chunks, ends)
    lists = [[len(ids), len(grids), PAD, len(chunks), int(sees), len(packed)], chunks, ids,
             positions.flatten().tolist() if grids and positions is not None else [-1], ends,
             *grids, *packed]
    text = "\n".join(" ".join(map(str, numbers)) for numbers in lists)
    made = subprocess.run([f"{options.build}/vision_driver", directory, "auto",
                           directory / "pixels"], input=text.encode(), capture_output=True)
    if made.returncode != 0:
        raise RuntimeError(made.stderr.decode().strip() or f"status {made.returncode}")
    return np.frombuffer(made.stdout, np.float32).reshape(len(ids), -1).copy()


def judge(ours, theirs, ids, begin, bounds):
    """Why not, or ''; and the largest difference."""
    ours, theirs = (torch.log_softmax(torch.as_tensor(x).double(), -1) for x in (ours, theirs))
    apart = (ours - theirs).abs().amax(-1)
    worst = apart.max().item()
    if not (apart <= bounds).all():
        at = (apart / bounds).argmax().item()
        return f"token {at} differs by {apart[at]:.2g}, allowed {bounds[at]:.2g}", worst
    for i in range(begin, len(ids)):
        best = theirs[i - 1, :FIRST_MARK].topk(2)
        close = (best.values[0] - best.values[1]).item() < 2 * bounds[i - 1]
        if ours[i - 1, :FIRST_MARK].argmax().item() != ids[i] and not close:
            return f"token {i} differs", worst
    return "", worst


def show(config, pictures):
    """As vision_families.show."""
    if not config.model_type.startswith("qwen"):
        return vision_families.show(config.to_dict(), pictures)
    processor = transformers.Qwen2VLImageProcessor(
        patch_size=PATCH, merge_size=MERGE, size={"shortest_edge": 16, "longest_edge": 1200})
    made = processor(pictures, return_tensors="pt")
    inputs = {"pixel_values": made["pixel_values"].float(),
              "image_grid_thw": made["image_grid_thw"]}
    grids = [row[1:] for row in made["image_grid_thw"].tolist()]
    places = [[BEGIN, *[PAD] * (h * w // MERGE**2), END] for h, w in grids]
    return inputs, inputs["pixel_values"], grids, places


def compare(options, kind, seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        model = build(directory, model_of(kind, rng), seed % (1 << 31))
        most = 2 if kind in vision_families.PACKED else 4  # prompts have at most 512 tokens
        pictures = [picture(rng) for _ in range(rng.randint(0, most))]
        if kind == "mistral3" and len(pictures) == 1:  # transformers fails if it is one token
            pictures[0] = pictures[0].resize((pictures[0].width + 6, pictures[0].height))
        inputs, grids, places, packed = {}, [], [], []
        (directory / "pixels").write_bytes(b"")
        if pictures:
            inputs, rows, grids, places = show(model.config, pictures)
            (directory / "pixels").write_bytes(rows.contiguous().numpy().tobytes())
        if kind in vision_families.PACKED:
            vision_families.write_processor(directory, model.config.to_dict(), 2)
            packed = [picture.size for picture in pictures]
        start = prompt(rng, places)
        ids = generate(model, start, inputs)
        both = model.config.text_config.to_dict().get("use_bidirectional_attention") == "vision"
        sees = (kind == "gemma3" or both) and bool(grids)
        theirs, positions = whole(model, ids, inputs)
        ours = drive(options, directory, ids, positions, grids, [len(start), 1], sees, packed)
        bounds = bounds_of(model, ids, inputs, theirs)
        why, worst = judge(ours, theirs, ids, len(start), bounds)
        for chunks in ([len(ids)], [1], [rng.randint(1, 20) for _ in range(len(ids))]):
            again = drive(options, directory, ids, positions, grids, chunks, sees, packed)
            if not why and again.tobytes() != ours.tobytes():
                why = f"other bits in chunks of {chunks[:8]}"
        print(f"{'FAIL' if why else 'ok  '} {kind} seed {seed}: {len(pictures)} pictures, "
              f"{len(ids)} tokens: {why or f'{worst:.1e}'}", flush=True)
        return not why


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kinds = [kind for kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5",
                               "qwen3_5_moe", *vision_families.NAMES)
             if options.only in (kind, "")]
    print(f"seed {options.seed}")
    equal = sum(compare(options, kinds[i % len(kinds)], options.seed + i)
                for i in range(options.count))
    print(f"{equal} of {options.count} cases are equal")
    sys.exit(equal != options.count)


if __name__ == "__main__":
    main()
