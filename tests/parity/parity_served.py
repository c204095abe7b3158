#!/usr/bin/env python3
"""Compares a server's answers with transformers' on fresh random models of the families of 2026.

    tests/parity/parity_served.py --build build [--seed N] [--count 1] [--kind qwen3_5,glm4_moe]

Makes `count` random models of each kind in float32 (all drawn from --seed, which is new each time
and printed), as transformers saves them, and serves each without a tokenizer. A completion of
prompts of ids, all in one request, must have the ids of transformers' greedy continuation up to the
first place where its two best logits are closer than 1e-3, and their log probabilities within 1e-4
(--bound) up to there. The same bits must come for the last prompt alone, for it once more from the
prefix cache, for each of two choices of it, and for all prompts from a server with so few blocks
that it preempts. /v1/embeddings must be refused with the name of the task.

Ends with `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import json
import random
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import torch  # noqa: E402

import models  # noqa: E402
import parity  # noqa: E402
from model_files import save  # noqa: E402
from model_weights import fill  # noqa: E402
from parity_embeddings import serve  # noqa: E402

KINDS = ["qwen3_5", "qwen3_5_moe", "gemma4_small", "gemma4_experts", "gemma4_unified", "glm4_moe",
         "deepseek_v3", "glm4_moe_lite", "nemotron_h", "internvl_qwen3", "qwen3_vl_moe",
         "ministral3", "gemma3n", "phimoe", "mamba", "falcon_mamba", "mamba2", "jamba",
         "olmo_hybrid", "xglm", "biogpt", "codegen", "deepseek_v32", "glm_moe_dsa"]
PROMPTS, LENGTH, STEPS, CLOSE, BLOCK = 3, 70, 20, 1e-3, 16


def post(port, path, body):
    """(status, answer)"""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def body_of(prompts, **more):
    return {"prompt": prompts, "max_tokens": STEPS, "temperature": 0, "logprobs": 0,
            "return_token_ids": True, "ignore_eos": True, **more}


def choices_of(port, prompts, **more):
    status, answer = post(port, "/v1/completions", body_of(prompts, **more))
    assert status == 200, answer
    return answer["choices"]


def preemptions(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines
               if line.startswith("inferd_preemptions_total"))


def ask(port, prompts):
    """The choices of all prompts in one request, those of the last, and a refusal."""
    together, last = choices_of(port, prompts), prompts[-1]
    others = [*choices_of(port, last), *choices_of(port, last), *choices_of(port, last, n=2)]
    return together, others, post(port, "/v1/embeddings", {"input": prompts[0]})


def ask_few(port, prompts):
    """The choices of all prompts, and how often one was preempted."""
    return choices_of(port, prompts), preemptions(port)


def said(choice):
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def problems(model, prompts, bound, answers, few):
    """What is wrong with the answers."""
    choices, others, refusal = answers
    for prompt, choice in zip(prompts, choices, strict=True):
        ids = choice["token_ids"]
        rows = models.run(model, prompt + ids)[len(prompt) - 1:-1]
        _, gaps = models.margins(rows)
        sure = next((i for i, gap in enumerate(gaps) if gap < CLOSE), len(ids))
        best = rows.argmax(axis=1)
        if len(ids) != STEPS or list(best[:sure]) != ids[:sure]:
            yield f"ids {ids}, expected {best.tolist()}, sure up to {sure}"
        exact = torch.log_softmax(torch.from_numpy(rows), dim=-1).numpy()
        own = np.array(choice["logprobs"]["token_logprobs"])
        worst = float(np.abs(own - exact[np.arange(len(ids)), ids])[:sure].max(initial=0))
        if worst > bound:
            yield f"log probabilities differ by {worst:.1e}"
    for name, other in zip(("alone", "again", "choice 0", "choice 1"), others, strict=True):
        if said(other) != said(choices[-1]):
            yield f"the last prompt has another answer: {name}"
    if list(map(said, few[0])) != list(map(said, choices)):
        yield "a server with few blocks has other answers"
    if few[1] == 0:
        yield "nothing was preempted"
    status, answer = refusal
    if status < 400 or "generat" not in answer["error"]["message"]:
        yield f"/v1/embeddings: {status} {answer}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--bound", type=float, default=1e-4)
    parser.add_argument("--kind", default=",".join(KINDS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seed {options.seed}", flush=True)
    score = parity.Score()
    for index, kind in enumerate(options.count * options.kind.split(",")):
        rng = random.Random(f"{options.seed}-{index}")
        config = parity.random_config(rng, kind, "float32")
        with tempfile.TemporaryDirectory() as work:
            directory = Path(work)
            (directory / "config.json").write_text(json.dumps(config))
            model = models.build(directory, config)
            fill(model, rng.getrandbits(62), torch.float32)
            save(model, config, directory, "plain", torch.float32)
            vocabulary = config.get("text_config", config)["vocab_size"]
            prompts = [[rng.randrange(3, vocabulary) for _ in range(rng.randint(40, LENGTH))]
                       for _ in range(PROMPTS)]
            flags = ["--skip-tokenizer-init", "--block-size", BLOCK]
            answers = serve(options.build, directory, flags, ask, prompts)
            # all begin, but only two can end beside each other
            blocks = 1 + sum(-(-len(prompt) // BLOCK) for prompt in prompts) + 1
            few = serve(options.build, directory, [*flags, "--num-blocks", blocks], ask_few,
                        prompts)
            wrong = list(problems(model, prompts, options.bound, answers, few))
        score.add(not wrong, f"{kind} {config['architectures'][0]}: {wrong or 'as transformers'}")
    print(f"{score.passed} passed, {score.failed} failed")
    sys.exit(1 if score.failed else 0)


if __name__ == "__main__":
    main()
