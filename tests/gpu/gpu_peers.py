#!/usr/bin/env python3
"""gpu_peers: what PyTorch and transformers do with the work that gpu_check gives inferd.

    tests/gpu/gpu_peers.py attention  32 heads over 8: prefill, cuDNN and flash, 512 to 16k tokens;
                                      decode, SDPA over dense caches of 1k to 32k tokens, then
                                      FlexAttention where the release has it
    tests/gpu/gpu_peers.py serve      greedy decoding of random weights of a model: 64, 8 and 1
                                      requests by the continuous batching of transformers, and one
                                      over a compiled static cache

Prints a JSON object a line: microseconds a call, or output tokens a second of a whole run, prompts
included, after one run to warm up. Calls are replayed from a graph where they can be; those of
decode rotate over caches that L2 does not hold. What a release refuses is said so. Needs torch with
CUDA, and transformers for `serve`; --tiny --device cpu tries the script itself.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gpu_parts import MODELS, SMALL  # noqa: E402

ROUNDS = 10
COLD_BYTES = 256 << 20  # more than four times the L2 cache of any card that this has met
REFUSALS = (RuntimeError, ValueError, TypeError, AttributeError, ImportError, KeyError)


def say(what, **figures):
    print(json.dumps({"part": "peer", "what": what, **figures}), flush=True)


def random(options, *shape):
    return torch.randn(*shape, device=options.device, dtype=torch.bfloat16)


def sdpa(q, k, v, **how):
    if k.shape[1] != q.shape[1]:
        how["enable_gqa"] = True
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **how)


def prefill(options):
    for n in (64,) if options.tiny else (8192, 512, 1024, 2048, 4096, 16384):
        for name in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
            for kv_heads in (8, 32):  # a release that refuses grouped heads may take single ones
                if prefill_case(options, name, n, kv_heads):
                    break


def prefill_case(options, name, n, kv_heads):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    figures = {"kind": "prefill", "queries": n, "kv_heads": kv_heads}
    q, k, v = (random(options, 1, heads, n, 128) for heads in (32, kv_heads, kv_heads))
    try:
        with sdpa_kernel(getattr(SDPBackend, name)):
            us = calls_us(lambda _: sdpa(q, k, v, is_causal=True), 5, options.device)
    except REFUSALS as refused:
        say(name, **figures, refused=str(refused)[:80])
        return False
    say(name, **figures, us=us)
    return True


def decode_calls():
    """(name, a call of one query token a request over a dense cache)"""
    yield "SDPA", sdpa
    try:
        from torch.nn.attention.flex_attention import flex_attention
    except ImportError:
        return
    flex = torch.compile(flex_attention, dynamic=False)
    yield "FlexAttention", lambda q, k, v: flex(q, k, v, enable_gqa=True)


def decode(options):
    """Every shape of the first peer comes before the second, which is compiled for each anew."""
    shapes = [(1, 1024), (8, 4096), (64, 1024), (8, 1024), (1, 4096), (64, 4096), (1, 32768),
              (8, 32768), (64, 32768)]
    for name, call in decode_calls():
        for batch, n in [(2, 64)] if options.tiny else shapes:
            decode_case(options, name, call, batch, n)
            if name != "SDPA":
                torch.compiler.reset()  # or the ninth shape would not be compiled


def decode_case(options, name, call, batch, n):
    size = 2 * batch * 8 * n * 128 * 2
    copies = 2 if options.tiny else max(1, min(64, COLD_BYTES // size + 1))
    q = random(options, batch, 32, 1, 128)
    caches = [(random(options, batch, 8, n, 128), random(options, batch, 8, n, 128))
              for _ in range(copies)]
    try:
        us = calls_us(lambda i: call(q, *caches[i % copies]), max(copies, 20), options.device)
        say(name, kind="decode", batch=batch, len=n, us=us)
    except REFUSALS as refused:
        say(name, kind="decode", batch=batch, len=n, refused=str(refused)[:80])


def attention(options):
    prefill(options)
    decode(options)


def finish():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def calls_us(run, calls, device):
    """Microseconds of one of `calls` calls in a row: from a graph, where there is a GPU and the
    calls can be captured."""
    def all_calls():
        for i in range(calls):
            run(i)

    if device == "cpu":
        return timed(all_calls) / calls
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(2):
            run(0)
    finish()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            all_calls()
    except RuntimeError:
        return timed(all_calls) / calls
    return timed(graph.replay) / calls


def timed(run):
    for _ in range(3):
        run()
    finish()
    begin = time.perf_counter()
    for _ in range(ROUNDS):
        run()
    finish()
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
    name = "Llama-3.2-1B"
    shape = dict(MODELS[name], **(SMALL if options.tiny else {}))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
            "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": None,
            "eos_token_id": [0], **shape}))
        config = AutoConfig.from_pretrained(folder)
    with torch.device(options.device):  # drawn there: on a processor a billion values take long
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16,
                                                 attn_implementation=options.attention)
    model = model.to(options.device).eval()
    model.generation_config.eos_token_id = None
    length, prompt = options.output, options.prompt
    rule = dict(do_sample=False, max_new_tokens=length, eos_token_id=None, pad_token_id=0)
    greedy = GenerationConfig(**rule)
    compiled = GenerationConfig(**rule, cache_implementation="static")

    def draw(count):  # anew for each run: releases find prompts of the run before in their cache
        return torch.randint(10, config.vocab_size, (count, prompt))

    def static():
        one = draw(1).to(options.device)
        made = model.generate(one, generation_config=compiled,
                              attention_mask=torch.ones_like(one))
        return made.shape[1] - prompt

    def continuous(count):
        made = model.generate_batch(draw(count).tolist(), generation_config=greedy,
                                    persistent_manager=True)
        return sum(len(output.generated_tokens) for output in made.values())

    # The most first: what transformers sets up for them serves the others. The compiled run may
    # take the rest of the time.
    runs = [("continuous batching", n, lambda n=n: continuous(n))
            for n in sorted(options.requests, reverse=True)]
    runs.append(("static cache", 1, static))
    for what, count, run in runs:
        figures = {"model": name, "concurrency": count, "prompt": prompt, "output": length}
        try:
            with torch.no_grad():
                say(what, **figures, tokens_per_s=tokens_per_s(run))
        except REFUSALS as refused:
            say(what, **figures, refused=str(refused)[:120])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["attention", "serve"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--attention", default="sdpa")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--tiny", action="store_true", help="the smallest shapes")
    options = parser.parse_args()
    if options.tiny:
        options.prompt, options.output, options.requests = 8, 4, [1, 2]
    (attention if options.what == "attention" else serve)(options)


if __name__ == "__main__":
    main()
