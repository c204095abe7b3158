#!/usr/bin/env python3
"""Writes tests/vectors/embeddings: tiny random models as sentence-transformers embeds with them.

    pip install torch transformers sentence-transformers numpy     (CPU builds will do)
    scripts/vectors/embeddings.py [--out DIR] [--seed N] [--only PREFIX]

One directory a case, as sentence-transformers saves it, but for the weights: config.json, the
tokenizer, modules.json, 1_Pooling; and expected.json with

  seed, dtype     the dummy weights (engine/model/weights/dummy.h) and the run type
  texts, vectors  of the fp32 run on weights rounded to that type
  sizes           texts in tokens, with the special ones
  cut             vectors of `truncate_dim` dimensions, where the model allows it
  error           the largest 1 - cosine of the bf16 run of sentence-transformers itself
"""

import argparse
import copy
import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoConfig, AutoModel

from model_cases import gemma3, gpt2, llama, mistral, qwen2, qwen3
from model_weights import fill

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/fixtures/tiny"
EOT, END = "<|endoftext|>", "<|im_end|>"  # ids 0 and 1
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OURS = {"vocab_size": 346, "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 0,
        "pad_token_id": 0}
CUT = 16

# Configuration; tokens before and behind a text; pooling; whether vectors are normalised; `whole`:
# config.json names the model with its head, as that of Qwen3-Embedding does.
CASES = {
    "qwen3-last": (qwen3(64, 4, 2, 96, head_dim=32, tie_word_embeddings=True, is_matryoshka=True,
                         **OURS), [], [EOT], "lasttoken", True, True),
    "qwen3-last-bf16": (qwen3(96, 4, 2, 128, "bfloat16", head_dim=32, **OURS), [], [EOT],
                        "lasttoken", True, True),
    "qwen2-mean": (qwen2(64, 4, 2, 96, matryoshka_dimensions=[CUT, 32], **OURS), [], [], "mean",
                   False, False),
    "llama-mean-bf16": (llama(96, 3, 1, 128, "bfloat16", **OURS), [EOT], [END], "mean", True,
                        False),
    "mistral-last": (mistral(64, 2, 2, 96, sliding_window=8, **OURS), [EOT], [EOT], "lasttoken",
                     True, False),
    "gpt2-cls": (gpt2(64, 2, **{**OURS, "n_positions": 256}), [END], [], "cls", True, False),
    "gemma3-mean": (gemma3(64, 4, 2, 96, head_dim=32, sliding_window=8, num_hidden_layers=3,
                           sliding_window_pattern=3, rope_theta=1e4, rope_local_base_freq=5e3,
                           **OURS), [EOT], [EOT], "mean", True, False),
}

TEXTS = [
    "a", "hello world", "The quick brown fox jumps over the lazy dog.",
    "one two three four five six seven eight nine ten " * 4,
    "the cat sat on the mat", "\u00e9t\u00e9 \u65e5\u672c\u8a9e \U0001f600",
    "  spaces   and\n\nlines ", "how are you today? " * 9, "x", "def f(x):\n    return x + 1\n",
]


def with_template(directory, before, behind):
    """The tokenizer of tests/fixtures/tiny, with tokens that its post-processor adds."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, directory / name)
    path = directory / "tokenizer.json"
    made = json.loads(path.read_text())
    pieces = [{"SpecialToken": {"id": t, "type_id": 0}} for t in before]
    pieces += [{"Sequence": {"id": "A", "type_id": 0}}]
    pieces += [{"SpecialToken": {"id": t, "type_id": 0}} for t in behind]
    used = {t: {"id": t, "ids": [0 if t == EOT else 1], "tokens": [t]} for t in before + behind}
    if used:
        made["post_processor"] = {"type": "TemplateProcessing", "single": pieces,
                                  "pair": [*pieces, {"Sequence": {"id": "B", "type_id": 1}}],
                                  "special_tokens": used}
    path.write_text(json.dumps(made, ensure_ascii=False))
    config = json.loads((directory / "tokenizer_config.json").read_text())
    config.update(tokenizer_class="PreTrainedTokenizerFast", pad_token=EOT, model_max_length=256)
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def reference(directory, config, pooling, normalises, seed):
    """A SentenceTransformer with the dummy weights of `seed`."""
    (directory / "config.json").write_text(json.dumps(config))
    dtype = TYPES[config.get("torch_dtype") or config["dtype"]]
    model = AutoModel.from_config(AutoConfig.from_pretrained(directory), dtype=torch.float32)
    scale = getattr(model.get_input_embeddings(), "embed_scale", None)
    if scale is not None:  # Gemma rounds it to the type that the model runs in
        with torch.no_grad():
            scale.copy_(scale.to(dtype).float())
    fill(model, seed, dtype)
    model.save_pretrained(directory)
    modules = [Transformer(str(directory), model_kwargs={"dtype": torch.float32})]
    modules += [Pooling(config.get("hidden_size") or config["n_embd"], pooling_mode=pooling)]
    return SentenceTransformer(modules=modules + [Normalize()] * normalises, device="cpu")


def rounded(rows):
    return [[float(f"{x:.7g}") for x in row] for row in rows]


def cosines(left, right):
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    return (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


def embed(model, texts, **options):
    """One text at a time: nothing is padded."""
    rows = [model.encode(t, show_progress_bar=False, convert_to_tensor=True, **options)
            for t in texts]
    return np.stack([row.float().numpy() for row in rows])


def write_case(out, name, case, seed, texts=TEXTS):
    config, before, behind, pooling, normalises, whole = copy.deepcopy(case)
    directory = Path(out) / name
    with tempfile.TemporaryDirectory() as work:
        with_template(Path(work), before, behind)
        model = reference(Path(work), config, pooling, normalises, seed)
        vectors = embed(model, texts)
        model.save(str(directory), create_model_card=False)
    (directory / "model.safetensors").unlink()
    if whole:
        (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    saved = json.loads((directory / "config.json").read_text())
    kept = {k: config[k] for k in ("is_matryoshka", "matryoshka_dimensions") if k in config}
    saved.update(kept, dtype=config.get("torch_dtype") or config["dtype"])
    (directory / "config.json").write_text(json.dumps(saved, indent=1) + "\n")
    facts = {"seed": seed, "dtype": saved["dtype"], "texts": texts, "vectors": rounded(vectors),
             "sizes": [len(model.tokenizer(t)["input_ids"]) for t in texts]}
    if kept:
        facts["cut"] = rounded(embed(model, texts, truncate_dim=CUT, normalize_embeddings=True))
    lower = embed(copy.deepcopy(model).to(torch.bfloat16), texts)
    facts["error"] = float(f"{1 - cosines(vectors, lower).min():.3g}")
    (directory / "expected.json").write_text(json.dumps(facts) + "\n")
    return facts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests/vectors/embeddings")
    parser.add_argument("--seed", type=int, default=20261)
    parser.add_argument("--only")
    options = parser.parse_args()
    for i, (name, case) in enumerate(CASES.items()):
        if options.only and not name.startswith(options.only):
            continue
        shutil.rmtree(options.out / name, ignore_errors=True)
        facts = write_case(options.out, name, case, options.seed + i)
        print(f"{name}: {len(facts['vectors'])} vectors of {len(facts['vectors'][0])}, "
              f"{max(facts['sizes'])} tokens at most, bf16 error {facts['error']}")


if __name__ == "__main__":
    main()
