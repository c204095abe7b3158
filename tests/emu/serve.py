#!/usr/bin/env python3
"""The whole server on the emulated GPU: tokens, logprobs and faults over HTTP.

    tests/emu/serve.py build/emu/plain/inferd [--part I/N] [part of a test's name]...

One binary has both back ends: `--device cpu` answers what `--device cuda` must answer. A GPU sums
in another order, so greedy tokens are compared up to the first difference, and a difference counts
as one only where the CPU's two best logprobs are further apart than GAP; logprobs of equal tokens
must agree within LOGPROB, all of a test within LOGPROB_RMS. On one device tokens are compared
without any allowance: alone, together, chunked, from the cache, after preemption. Only the standard
library; ends with a line of counts.
"""

import concurrent.futures
import math
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import serve_default
import serve_drafts
import serve_faults
import serve_fp8
import serve_host
import serve_lora
import serve_ranks
import serve_sleep
import serve_states
from serving import FEW, LONG, REAL_GPU, SEED, Server, check_logprobs, compare, prompts


def test_greedy_tokens_of_both_devices(both):
    cpu, cuda = both
    bodies = [{"prompt": p, "max_tokens": 12, "logprobs": 5} for p in prompts(10, 100)]
    for body in bodies:  # several ids have one text, and a text is one key of top_logprobs
        body["return_tokens_as_token_ids"] = True
    differences = [d for pair in zip(cpu.all(bodies), cuda.all(bodies)) for d in compare(*pair)]
    assert len(differences) > 10 * 12 // 3, f"only {len(differences)} tokens could be compared"
    check_logprobs(differences)


def test_prompt_logprobs_of_both_devices(both):
    bodies = [{"prompt": p, "max_tokens": 1, "prompt_logprobs": 2} for p in prompts(3, 90)]
    differences = []
    for left, right in zip(*(server.all(bodies) for server in both)):
        for expected, got in zip(left["prompt_logprobs"], right["prompt_logprobs"]):
            if expected is None:
                assert got is None
                continue
            differences += [expected[token]["logprob"] - got[token]["logprob"]
                            for token in set(expected) & set(got)]
    check_logprobs(differences)


def sampled(seed=None):
    """Requests that use every part of the sampler."""
    source = random.Random(seed or random.random())
    kinds = [
        {}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 40, "top_p": 0.9},
        {"repetition_penalty": 1.4}, {"presence_penalty": 1.5, "frequency_penalty": 0.7},
        {"logit_bias": {"17": 9, "18": -100}}, {"allowed_token_ids": list(range(40, 60))},
        {"bad_words": ["the", "quick", "one two"]}, {"min_tokens": 6, "ignore_eos": False},
        {"logprobs": 3}, {"temperature": 0},
    ]
    return [{"temperature": 1.2, "seed": source.randrange(1 << 30), "max_tokens": 8,
             "prompt": p, **kind} for p, kind in zip(prompts(len(kinds), 60, seed), kinds)]


def test_tokens_do_not_depend_on_mates(both):
    cuda = both[1]
    bodies = sampled()
    together = [choice["token_ids"] for choice in cuda.all(bodies)]
    alone = [cuda.all([body])[0]["token_ids"] for body in bodies]
    assert together == alone
    allowed = bodies[8]["allowed_token_ids"]
    assert all(token in allowed for token in together[8]), together[8]
    assert 18 not in together[7], together[7]


def test_most_draws_are_those_of_the_cpu(both):
    bodies = [{**body, "max_tokens": 1, "min_tokens": min(1, body.get("min_tokens", 0))}
              for body in sampled()]
    pairs = list(zip(*(server.all(bodies) for server in both)))
    first = sum(left["token_ids"][0] == right["token_ids"][0] for left, right in pairs)
    assert first >= len(pairs) * 2 // 3, f"{first} of {len(pairs)} first tokens agree"


def test_penalties_forbid_repetition(both):
    """With the largest penalties and no bias a greedy stream does not come back to a token."""
    body = {"prompt": prompts(1, 30)[0], "max_tokens": 24, "presence_penalty": 2,
            "frequency_penalty": 2, "repetition_penalty": 10}
    tokens = both[1].all([body])[0]["token_ids"]
    assert len(set(tokens)) == len(tokens), tokens


def swapped(server, direction):
    return float(re.search(rf'inferd_swapped_blocks_total{{.*direction="{direction}".*}} (\S+)',
                           server.metrics())[1])


def small_pool(program, bodies, *flags):
    """Choices of a server whose pool does not hold all bodies at once, and what it swapped."""
    server = Server(program, "cuda", "--block-size", 16, "--num-blocks", 18, *FEW,
                    "--max-model-len", 128, "--max-num-batched-tokens", 64, *flags)
    try:
        choices = server.all(bodies)
        assert server.preemptions() > 0, "the pool was not small enough"
        return choices, swapped(server, "out"), swapped(server, "in")
    finally:
        assert server.stop() == 0, server.text()


def test_a_small_pool_preempts_and_changes_nothing(program):
    """By recomputation, and by swapping, which brings back the very bits; e4m3 blocks at length."""
    bodies = [{"prompt": (p * 24)[:24], "max_tokens": 26, "temperature": i % 2, "seed": i,
               "repetition_penalty": 1 if i % 2 == 0 else 1.2, "logprobs": 2}
              for i, p in enumerate(prompts(6, 24))]
    swap = ["--preemption-mode", "swap", "--swap-space", "0.01"]
    for cache in ("auto", "fp8") if LONG else ("auto",):
        large = Server(program, "cuda", "--block-size", 16, "--kv-cache-dtype", cache, *FEW)
        expected = large.all(bodies)
        assert large.stop() == 0, large.text()
        tokens = [choice["token_ids"] for choice in expected]
        logprobs = [choice["logprobs"] for choice in expected]
        for flags in ([["--preemption-mode", "recompute"], swap] if cache == "auto" else [swap]):
            got, out, back = small_pool(program, bodies, "--kv-cache-dtype", cache, *flags)
            assert [choice["token_ids"] for choice in got] == tokens, flags
            assert [choice["logprobs"] for choice in got] == logprobs, flags
            assert (out > 0 and back > 0) == (flags is swap), (flags, out, back)
        if cache == "auto":
            cpu = Server(program, "cpu")
            pairs = list(zip(cpu.all(bodies), got))[::2]  # the greedy ones
            assert cpu.stop() == 0, cpu.text()
            check_logprobs([d for pair in pairs for d in compare(*pair)])


def test_alternatives_of_the_vocabulary(program):
    """The host sorts what the kernel does not: it changes neither tokens nor the best 20."""
    server = Server(program, "cuda", *FEW, "--max-logprobs", -1)
    bodies = [{**body, "prompt_logprobs": 20, "logprobs": 20, "prompt": body["prompt"][:20]}
              for body in sampled()]
    try:
        few = server.all(bodies)
        many = server.all([{**body, "prompt_logprobs": -1 if i % 3 else 100,
                            "logprobs": -1 if i % 2 else 300} for i, body in enumerate(bodies)])
        beams = [server.all([{"prompt": bodies[0]["prompt"], "max_tokens": 4, "logprobs": count,
                              "use_beam_search": True, "best_of": 4}])[0] for count in (20, -1)]
    finally:
        assert server.stop() == 0, server.text()
    for i, (wanted, got) in enumerate([*zip(few, many), beams]):
        assert wanted["token_ids"] == got["token_ids"]
        assert wanted["logprobs"]["token_logprobs"] == got["logprobs"]["token_logprobs"]
        for best, top in zip(wanted["logprobs"]["top_logprobs"], got["logprobs"]["top_logprobs"]):
            assert len(best) <= 21 < len(top) and best.items() <= top.items()
            assert len(top) >= (384 if i % 2 else 300)
            assert i % 2 == 0 or abs(sum(map(math.exp, top.values())) - 1) < 1e-4
        for best, top in zip((wanted["prompt_logprobs"] or [])[1:],
                             (got["prompt_logprobs"] or [])[1:]):
            assert all(top[token] == value for token, value in best.items())
            assert len(top) in ((384,) if i % 3 else (100, 101))


def test_products_by_the_library(program):
    """Many rows go through (a fake) cuBLASLt, whose choices the next start reads from a file."""
    bodies = [{"prompt": p, "max_tokens": 8, "logprobs": 5, "return_tokens_as_token_ids": True}
              for p in prompts(5, 150)]
    cpu = Server(program, "cpu", "--max-num-batched-tokens", 150)
    expected = cpu.all(bodies)
    assert cpu.stop() == 0, cpu.text()
    with tempfile.TemporaryDirectory() as cache:
        for start in ("first", "second", "damaged"):
            folder = Path(cache) / "not/yet"  # as ~/.cache on a new machine
            files = list(folder.glob("inferd/products-*.txt"))
            if start == "damaged":
                files[0].write_text(files[0].read_text().replace("2 2 ", "2 2 3 ", 4)[:-40])
            before = files[0].read_text() if files else ""
            server = Server(program, "cuda", "--no-batch-invariant", "--max-num-batched-tokens",
                            150, *FEW, XDG_CACHE_HOME=str(folder), CACHE_DIRECTORY="")
            got = server.all(bodies)
            assert server.stop() == 0, server.text()
            prefill = "prefill by " + ("" if REAL_GPU else "wgmma")
            assert f"attention decode by mma.sync, {prefill}" in server.text(), server.text()
            check_logprobs([d for pair in zip(expected, got) for d in compare(*pair)])
            lines = next(folder.glob("inferd/products-*.txt")).read_text()
            assert len(lines.splitlines()) > 8, lines
            chosen = {line.split()[7] for line in lines.splitlines()}
            assert "0" in chosen, "none by the library"
            assert REAL_GPU or "1" in chosen, "none by the own kernels"
            assert (lines == before) == (start == "second"), f"{start} start: {lines}"


def processor_s():
    """Of this process and of the servers that have ended."""
    return sum(os.times()[:4])


# What tells least beside the others for its time: `make check` runs these, or who names one.
AT_LENGTH = {"test_drafts_where_blocks_are_few", "test_a_model_drafts_for_one_with_a_state",
             "test_mamba2_and_experts_without_a_gate", "test_short_convolutions"}


def main():
    program, wanted, first, step = sys.argv[1], sys.argv[2:], 1, 1
    if wanted[:1] == ["--part"]:  # every Nth test, beginning with the Ith
        first, step = map(int, wanted[1].split("/"))
        wanted = wanted[2:]
    everything = {**globals(), **vars(serve_lora), **vars(serve_fp8), **vars(serve_faults),
                  **vars(serve_default), **vars(serve_states), **vars(serve_drafts),
                  **vars(serve_ranks), **vars(serve_sleep), **vars(serve_host)}
    tests = [(name, test) for name, test in everything.items()
             if name.startswith("test_") and (any(part in name for part in wanted) if wanted
                                              else LONG or name not in AT_LENGTH)]
    tests = tests[first - 1::step]
    print(f"INFERD_TEST_SEED={SEED}", flush=True)
    both = [Server(program, device, "--max-num-batched-tokens", 96) for device in ("cpu", "cuda")]
    failed = 0
    for name, test in tests:
        begin, busy = time.monotonic(), processor_s()
        try:
            test(both if "both" in test.__code__.co_varnames else program)
            verdict = "ok  "
        except Exception as fault:  # noqa: BLE001 -- any fault of a test is counted
            failed += 1
            verdict = f"FAIL {type(fault).__name__}: {fault}\n"
        print(f"{verdict} {name} {time.monotonic() - begin:.1f} s, "
              f"{processor_s() - busy:.1f} s of processors", flush=True)
    for server in both:
        if server.stop() != 0:
            failed += 1
            print(f"FAIL exit status {server.process.returncode}\n{server.text()}")
    text = both[1].text()
    for part in ("graphs", "decode by mma.sync, prefill by mma.sync: no token depends on other"):
        if part not in text:
            failed += 1
            print(f"FAIL nothing of {part}\n{text}")
    card = "" if REAL_GPU else re.escape(os.environ.get("EMU_CARD", "emulated GPU"))
    if not re.search(r"KV blocks of \d+, cuda \(" + card, text):
        failed += 1
        print(f"FAIL not the emulated device\n{text}")
    print(f"{len(tests)} tests, {failed} failed")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
