#!/usr/bin/env python3
"""Compares the log probabilities that inferd answers with log_softmax of transformers' logits.

    make && tests/parity/parity_scores.py --build build [--prompts 6] [--seed N]

inferd serves models/demo in float32 with --max-logprobs -1; random prompts are sent with echo and
with prompt_logprobs, both for the whole vocabulary. Every value must be within 1e-3 of torch's, and
every rank between the number of tokens that are surely likelier and of those that may be. Ends with
a line of counts; exits 1 when something failed.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import torch  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from ports import free_port  # noqa: E402

DEMO = ROOT / "models/demo"
TOLERANCE = 1e-3


class Server:
    """inferd with its defaults, on a free port."""

    def __init__(self, program, *flags):
        self.url = f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen([program, "serve", DEMO, "--port",
                                         self.url.rpartition(":")[2], *flags],
                                        stderr=subprocess.DEVNULL)
        while self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/readyz", timeout=5).read()
                return
            except OSError:
                time.sleep(0.05)
        sys.exit(f"{program} ended with status {self.process.returncode}")

    def complete(self, body):
        request = urllib.request.Request(f"{self.url}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["choices"][0]

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def check(ids, answer, scores):
    """The largest difference, and how many values were compared. `scores`: (tokens, vocabulary)."""
    worst, count = 0, 0
    tops = answer["logprobs"]["top_logprobs"]
    for place in range(1, len(ids)):
        expected = scores[place - 1]
        position = answer["prompt_logprobs"][place]
        assert len(position) == len(tops[place]) == len(expected)
        for key, entry in position.items():
            right = float(expected[int(key)])
            assert tops[place]["token_id:" + key] == entry["logprob"]
            worst = max(worst, abs(entry["logprob"] - right))
            count += 1
        for key in (str(ids[place]), *list(position)[1:6]):
            right, rank = float(expected[int(key)]), position[key]["rank"]
            assert (int((expected > right + TOLERANCE).sum()) < rank
                    <= int((expected > right - TOLERANCE).sum())), (place, key, rank)
    return worst, count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    source = random.Random(options.seed)
    model = AutoModelForCausalLM.from_pretrained(DEMO, torch_dtype=torch.float32)
    server = Server(f"{options.build}/inferd", "--max-logprobs", "-1", "--dtype", "float32",
                    "--return-tokens-as-token-ids")
    worst, count, failed = 0.0, 0, 0
    try:
        for _ in range(options.prompts):
            ids = [source.randrange(model.config.vocab_size) for _ in range(source.randint(2, 40))]
            with torch.no_grad():
                scores = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)
            answer = server.complete({"prompt": ids, "max_tokens": 1, "echo": True, "logprobs": -1,
                                      "prompt_logprobs": -1})
            some, number = check(ids, answer, scores)
            worst, count, failed = max(worst, some), count + number, failed + (some > TOLERANCE)
    finally:
        server.stop()
    print(f"seed {options.seed}: {count} log probabilities, the largest difference {worst:.2g}")
    print(f"{options.prompts - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
