#!/usr/bin/env python3
"""gpu_peers: what PyTorch and transformers do with the work that gpu_check gives inferd.

    scripts/gpu_peers.py attention            prefill attention, cuDNN and flash, 512 to 16k tokens
    scripts/gpu_peers.py serve --config FILE  greedy decoding of random weights of that shape: one
                                              request over a compiled static cache, and 1, 8, 64
                                              requests by transformers' continuous batching

Prints a JSON object a line: microseconds a call, or output tokens a second of a whole run, prompts
included, after one run to warm up. What a release refuses is said so. Needs torch with CUDA, and
transformers for `serve`; --device cpu --attention sdpa with a small shape tries the script itself.
"""

import argparse
import json
import time

import torch

ROUNDS = 10


def say(what, **figures):
    print(json.dumps({"part": "peer", "what": what, **figures}), flush=True)


def attention(options):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    for n in (512, 1024, 2048, 4096, 8192, 16384):
        q, k, v = (torch.randn(1, 32, n, 128, device=options.device, dtype=torch.bfloat16)
                   for _ in range(3))
        for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
            try:
                with sdpa_kernel(getattr(SDPBackend, name)):
                    us = timed(lambda: torch.nn.functional.scaled_dot_product_attention(
                        q, k, v, is_causal=True))
                say(name, queries=n, us=us)
            except RuntimeError as refused:
                say(name, queries=n, refused=str(refused)[:80])


def timed(run):
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(ROUNDS):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6 / ROUNDS


def tokens_per_s(run):
    """Of the second run; `run` returns how many tokens it made."""
    run()
    begin = time.perf_counter()
    made = run()
    if made == 0:
        raise RuntimeError("it made no token")
    return made / (time.perf_counter() - begin)


def serve(options):
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(options.config)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16,
                                             attn_implementation=options.attention)
    model = model.to(options.device).eval()
    model.generation_config.eos_token_id = None
    length, prompt = options.output, options.prompt
    ids = torch.randint(10, config.vocab_size, (max(options.requests), prompt))
    rule = dict(do_sample=False, max_new_tokens=length, eos_token_id=None, pad_token_id=0)
    greedy = GenerationConfig(**rule)
    compiled = GenerationConfig(**rule, cache_implementation="static")

    def static():
        one = ids[:1].to(options.device)
        made = model.generate(one, generation_config=compiled,
                              attention_mask=torch.ones_like(one))
        return made.shape[1] - prompt

    def continuous(count):
        made = model.generate_batch(ids[:count].tolist(), generation_config=greedy,
                                    persistent_manager=True)
        return sum(len(output.generated_tokens) for output in made.values())

    runs = [("static cache", 1, static)]
    # The most first: what transformers sets up for them serves the others.
    runs += [("continuous batching", n, lambda n=n: continuous(n))
             for n in sorted(options.requests, reverse=True)]
    for what, count, run in runs:
        figures = {"model": options.name, "concurrency": count, "prompt": prompt, "output": length}
        try:
            with torch.no_grad():
                say(what, **figures, tokens_per_s=tokens_per_s(run))
        except (RuntimeError, ValueError, TypeError, AttributeError, ImportError) as refused:
            say(what, **figures, refused=str(refused)[:120])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["attention", "serve"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--config", help="folder with config.json")
    parser.add_argument("--name", default="", help="how the figures call the model")
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 64])
    options = parser.parse_args()
    (attention if options.what == "attention" else serve)(options)


if __name__ == "__main__":
    main()
