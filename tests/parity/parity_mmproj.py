#!/usr/bin/env python3
"""Compares towers that llama.cpp's converter wrote with the same towers in safetensors, over HTTP.

    tests/parity/parity_mmproj.py --llama DIR [--build build] [--seed N] [--count 1]
                                  [--kind qwen3_vl,internvl] [--type f32]

DIR has llama.cpp with convert_hf_to_gguf.py. A tiny random model of each kind is saved by
transformers, the converter makes its mmproj file of it (of LLaVA with CLIP, the old script in
tools/mtmd/legacy-models, which writes f32 and f16 alone), and inferd serves the text model from
safetensors twice: with its own tower, and with that of the file (--mmproj). The same conversations
about drawn pictures must have prompts of the same ids, log-probabilities within 1e-4 and the same
greedy tokens up to a place where the two best are that close. What the towers in safetensors make
of pictures is compared with transformers' by parity_seen.py. Values are drawn so that 16 bits have
them where the converter rounds whatever it is asked for.

Ends with `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import parity_seen  # noqa: E402
import seeing  # noqa: E402
import vision_families  # noqa: E402
from parity_embeddings import serve  # noqa: E402

KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "mistral3", "llava", "internvl_chat", "smolvlm",
         "idefics3", "gemma3", "llava_clip", "llava_next")
OLD = ("llava_clip", "llava_next")
# The old script was written for transformers 4, where the tower was a member.
OLD_SCRIPT = """
import runpy, sys
import torch, transformers
Tower = transformers.CLIPVisionModel
class Around(torch.nn.Module):
    @staticmethod
    def from_pretrained(directory):
        around = Around()
        around.vision_model = Tower.from_pretrained(directory)
        return around
sys.modules["transformers"].CLIPVisionModel = Around  # not the module that was imported first
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
BOUND, SIDE = 1e-4, vision_families.SIDE * vision_families.TIMES
CLASS = (56 * 56, 28 * 28 * 1280)  # pixels of a picture by Qwen's class
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
# float16 in every file
ROUNDED = ("mm_input_projection_weight", "multi_modal_projector.linear_1.weight",
           "multi_modal_projector.linear_2.weight", "patch_embedding.weight")


def draw(directory, kind, seed):
    """A model whose numbers the converter and a mmproj file have room for; where it is."""
    while True:
        shutil.rmtree(directory.parent, ignore_errors=True)
        _, made = vision_families.make(directory, kind, seed)
        config = json.loads((made / "config.json").read_text())
        sight = config["vision_config"]
        fits = {"internvl_chat": sight["num_hidden_layers"] > 3,  # it counts mlp1.3 as a layer
                "smolvlm": sight["image_size"] == SIDE, "idefics3": sight["image_size"] == SIDE,
                "mistral3": not config.get("multimodal_projector_bias")}
        if fits.get(kind, True):
            return made
        seed += 1 << 20


def write_model(directory, kind, seed):
    """As parity_seen.py has them, but for what a mmproj file cannot say. Where it is."""
    if kind in seeing.KINDS:
        sight = {"window_size": 112, "fullatt_block_indexes": [1]} if kind == "qwen2_5_vl" else {}
        seeing.make(directory, kind, seed, sight=sight, pixels=CLASS)
    else:
        directory = draw(directory, kind, seed)
    config = json.loads((directory / "config.json").read_text())
    if kind == "internvl_chat":
        (directory / "preprocessor_config.json").write_text(json.dumps(IMAGENET))
        return directory
    said = json.loads((directory / "preprocessor_config.json").read_text())
    for key, name in (("image_mean", "OPENAI_CLIP_MEAN"), ("image_std", "OPENAI_CLIP_STD")):
        said.setdefault(key, getattr(transformers.image_utils, name))
    if kind in ("mistral3", "llava"):
        config["vision_config"]["image_size"] = said["size"]["longest_edge"]
        config["vision_config"]["rope_parameters"]["rope_theta"] = 1e4
    said.pop("do_pan_and_scan", None)
    said.pop("max_patches", None)
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "preprocessor_config.json").write_text(json.dumps(said))
    path = directory / "model.safetensors"
    tensors = load_file(path)
    if kind == "gemma3":  # by the names of its files on the hub
        tensors = {name.replace("vision_tower.", "vision_tower.vision_model."): tensor
                   for name, tensor in tensors.items()}
    save_file({name: tensor.half().float() if name.endswith(ROUNDED) else tensor
               for name, tensor in tensors.items()}, path, {"format": "pt"})
    return directory


def cut_apart(directory, out, seed):
    """What the old script reads: a CLIP by itself, and a file of the projector."""
    config = json.loads((directory / "config.json").read_text())
    sight = transformers.CLIPVisionConfig(**config["vision_config"]).to_dict()
    if config["vision_feature_layer"] != -2 or seed % 2 == 0:  # the script's without the key
        sight["vision_feature_layer"] = config["vision_feature_layer"]
    if "image_grid_pinpoints" in config:
        sight["image_grid_pinpoints"] = config["image_grid_pinpoints"]
    tower, projector = {}, {}
    for name, tensor in load_file(directory / "model.safetensors").items():
        if "vision_tower." in name:
            tower[name.split("vision_tower.")[1].removeprefix("vision_model.")] = tensor
        elif "multi_modal_projector." in name or name.endswith("image_newline"):
            projector[name.removeprefix("model.")] = tensor
    out.mkdir()
    (out / "config.json").write_text(json.dumps(sight))
    save_file(tower, out / "model.safetensors", {"format": "pt"})
    torch.save(projector, out / "llava.projector")


def convert(options, directory, kind, seed):
    """The mmproj file of a directory."""
    file, out = directory / "mmproj-model.gguf", directory / "mmproj"
    command = [sys.executable, options.llama / "convert_hf_to_gguf.py", directory, "--mmproj",
               "--outtype", options.type, "--outfile", file]
    if kind in OLD:
        cut_apart(directory, out, seed)
        command = [sys.executable, "-c", OLD_SCRIPT,
                   options.llama / "tools/mtmd/legacy-models/convert_image_encoder_to_gguf.py",
                   "-m", out, "--llava-projector", out / "llava.projector", "--output-dir",
                   directory, "--clip-model-is-vision",
                   *(["--use-f32"] if options.type == "f32" else [])]
    made = subprocess.run(
        command, capture_output=True, text=True,
        env={"PYTHONPATH": str(options.llama / "gguf-py"), "PATH": "/usr/bin:/bin"})
    found = [*directory.glob("*mmproj*.gguf")]
    if made.returncode != 0 or len(found) != 1:
        raise RuntimeError((made.stdout + made.stderr)[-1500:])
    return found[0]


def ask_all(port, asked):
    made = []
    for _, messages in asked:
        answer, choice = parity_seen.chat(port, messages, top_logprobs=2)
        entries = choice["logprobs"]["content"]
        gaps = [entry["top_logprobs"][0]["logprob"] - entry["top_logprobs"][1]["logprob"]
                for entry in entries]
        made.append((answer["prompt_token_ids"], choice["token_ids"],
                     [entry["logprob"] for entry in entries], gaps))
    return made


def problem(own, other):
    """Why not, or ''; and the largest difference."""
    if own[0] != other[0]:
        return f"prompts of {len(own[0])} and {len(other[0])} ids", 0
    worst = 0
    for i, token in enumerate(own[1]):
        if token != other[1][i]:
            return "" if own[3][i] < 2 * BOUND else f"token {i} differs", worst
        worst = max(worst, abs(own[2][i] - other[2][i]))
        if worst > BOUND:
            return f"log-probability {i} differs by {worst:.2g}", worst
    return "", worst


def compare(options, kind, seed, score):
    with tempfile.TemporaryDirectory() as folder:
        directory = write_model(Path(folder) / kind, kind, seed)
        file = convert(options, directory, kind, seed)
        rng = random.Random(f"{kind} {seed}")
        asked = list(parity_seen.conversations(rng))
        own = serve(options.build, directory, [], ask_all, asked)
        other = serve(options.build, directory, ["--mmproj", file], ask_all, asked)
        for (name, _), left, right in zip(asked, own, other, strict=True):
            why, worst = problem(left, right)
            parity_seen.judge(score, f"{kind} {options.type} seed {seed} {name}: "
                                     f"{len(left[0])} tokens, {worst:.1e}", why)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama", type=Path, required=True)
    parser.add_argument("--build", default="build")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kind", default=",".join(KINDS))
    parser.add_argument("--type", default="f32", choices=("f32", "f16", "bf16", "q8_0"))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    score = [0, 0]
    for seed in range(options.seed, options.seed + options.count):
        for kind in options.kind.split(","):
            try:
                compare(options, kind, seed, score)
            except RuntimeError as error:
                parity_seen.judge(score, f"{kind} seed {seed}", str(error))
    print(f"{score[0]} passed, {score[1]} failed")
    sys.exit(score[1] > 0)


if __name__ == "__main__":
    main()
