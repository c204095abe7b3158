#!/usr/bin/env python3
"""Compares answers to prompts of embeddings with transformers' on fresh random models.

    make parity     or    tests/parity/parity_rows.py --build build [--seed N] [--count N]

Makes `count` random models of each kind in float32 (all drawn from --seed, which is new each time
and printed), and serves each without a tokenizer, with random bounds of a step. The prompts are
drawn rows, as `prompt_embeds` in safetensors or by torch.save, of a drawn type, and rows of the
model's own table.
What transformers makes of the same `inputs_embeds` must be the greedy ids up to the first place
where its two best logits are closer than 1e-3, and the log probabilities up to there within 1e-4.
A prompt alone, of all in one request, and rows of the table and their ids, must have the same bits.

Ends with `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import base64
import io
import json
import random
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import torch  # noqa: E402
from safetensors.torch import save as file_of  # noqa: E402

import models  # noqa: E402
import parity  # noqa: E402
from model_files import save  # noqa: E402
from model_weights import fill  # noqa: E402
from parity_embeddings import serve  # noqa: E402
from parity_served import post  # noqa: E402

KINDS = ["llama", "mistral", "qwen3", "gemma", "gemma2", "gemma3", "granite", "granitemoe",
         "hyperclovax", "gpt2", "opt", "bloom", "cohere", "falcon", "falcon_h1", "nemotron_h",
         "qwen3_5", "deepseek_v3", "qwen2_5_vl"]
TYPES = [torch.float32, torch.float16, torch.bfloat16]
PROMPTS, LENGTH, STEPS, CLOSE, TOLERANCE = 3, 60, 16, 1e-3, 1e-4


def text_of(rows, form):
    """In one of the two forms."""
    if form == "safetensors":
        return base64.b64encode(file_of({"prompt_embeds": rows.contiguous()})).decode()
    out = io.BytesIO()
    torch.save(rows, out)
    return base64.b64encode(out.getvalue()).decode()


def ask(port, drawn):
    """The choices of all prompts in one request, that of each alone, and those of the ids."""
    prompts, ids, form = drawn
    body = {"max_tokens": STEPS, "temperature": 0, "logprobs": 0, "return_token_ids": True,
            "ignore_eos": True}
    texts = [text_of(rows, form) for rows in prompts]
    status, together = post(port, "/v1/completions", {**body, "prompt_embeds": texts})
    assert status == 200, together
    alone = [post(port, "/v1/completions", {**body, "prompt_embeds": text})[1]["choices"][0]
             for text in texts]
    _, of_ids = post(port, "/v1/completions", {**body, "prompt": ids})
    return together["choices"], alone, of_ids["choices"][0]


def rows_of(model, ids):
    """What these ids are as inputs_embeds. Falcon-H1 scales ids outside of its module."""
    scale = model.config.embedding_multiplier if model.config.model_type == "falcon_h1" else 1
    with torch.no_grad():
        return model.get_input_embeddings()(torch.tensor(ids)) * scale


def logits_of(model, rows, ids):
    """Of the places that draw ids, behind rows."""
    given = torch.cat([rows, rows_of(model, ids)])[None]
    with torch.no_grad():
        made = model(inputs_embeds=given, use_cache=False).logits[0]
    return made[len(rows) - 1:len(rows) - 1 + len(ids)].float()


def parts(choice):
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def problems(model, prompts, answers):
    """(largest distance of a log probability, what is wrong with the answers)"""
    together, alone, of_ids = answers
    worst, wrong = 0.0, []
    for rows, choice in zip(prompts, together, strict=True):
        ids, said = parts(choice)
        scores = logits_of(model, rows.float(), ids)
        _, gaps = models.margins(scores.numpy())
        sure = next((i for i, gap in enumerate(gaps) if gap < CLOSE), len(ids))
        best = scores.argmax(dim=1).tolist()
        if len(ids) != STEPS or best[:sure] != ids[:sure]:
            wrong.append(f"ids {ids}, expected {best}, sure up to {sure}")
        exact = torch.log_softmax(scores, dim=-1)[torch.arange(len(ids)), ids]
        apart = (torch.tensor(said) - exact).abs()[:sure]
        worst = max(worst, float(apart.max()) if sure else 0.0)
    if worst > TOLERANCE:
        wrong.append(f"log probabilities differ by {worst:.1e}")
    if list(map(parts, together)) != list(map(parts, alone)):
        wrong.append("a prompt alone has another answer")
    if parts(together[-1]) != parts(of_ids):
        wrong.append("ids have another answer than their rows of the table")
    return worst, wrong


def draw_prompts(rng, model, vocabulary):
    """Drawn rows, as large as those of the table; the last prompt is rows of the table itself."""
    generator = torch.Generator().manual_seed(rng.getrandbits(62))
    ids = [rng.randrange(3, vocabulary) for _ in range(rng.randint(1, LENGTH))]
    own = rows_of(model, ids)
    prompts = [(torch.randn(rng.randint(1, LENGTH), own.shape[1], generator=generator) * own.std())
               .to(rng.choice(TYPES)) for _ in range(PROMPTS)]
    return [*prompts, own], ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--kind", default=",".join(KINDS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seed {options.seed}", flush=True)
    score = parity.Score()
    for index, kind in enumerate(options.count * options.kind.split(",")):
        rng = random.Random(f"{options.seed}-{index}")
        config = parity.random_config(rng, kind, "float32")
        if kind == "opt":  # another width is refused
            config["word_embed_proj_dim"] = config["hidden_size"]
        with tempfile.TemporaryDirectory() as work:
            directory = Path(work)
            (directory / "config.json").write_text(json.dumps(config))
            model = models.build(directory, config)
            fill(model, rng.getrandbits(62), torch.float32)
            save(model, config, directory, "plain", torch.float32)
            vocabulary = config.get("text_config", config)["vocab_size"]
            prompts, ids = draw_prompts(rng, model, vocabulary)
            form = rng.choice(["safetensors", "torch.save"])
            flags = ["--skip-tokenizer-init", "--enable-prompt-embeds", "--block-size",
                     rng.choice([4, 16]), "--max-num-batched-tokens", rng.choice([8, 64, 512]),
                     "--max-num-seqs", rng.choice([4, 8])]
            answers = serve(options.build, directory, flags, ask, (prompts, ids, form))
            worst, wrong = problems(model, prompts, answers)
        score.add(not wrong, f"{kind} {config['architectures'][0]}, {form}: {worst:.1e} "
                             f"{wrong or 'as transformers'}")
    print(f"{score.passed} passed, {score.failed} failed")
    sys.exit(1 if score.failed else 0)


if __name__ == "__main__":
    main()
