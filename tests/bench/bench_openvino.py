#!/usr/bin/env python3
"""The peer of tests/bench/bench_cpu --parts goals that is a library: OpenVINO GenAI, one run.

    PYTHON tests/bench/bench_openvino.py MODEL --job JSON

Run by bench_goals.py with the Python of an environment that has openvino-genai. The job says the
threads, the streams, the prompts; prints one line of JSON: output tokens/s by the number of
streams, prompt tokens/s by length, output tokens/s of prompts that share a prefix, seconds to load.
"""

import argparse
import json
import random
import time

import numpy as np
import openvino as ov
import openvino_genai as genai


def prompt(draw, length, vocab):
    return [draw.randrange(300, vocab) for _ in range(length)]


def run(pipe, prompts, output):
    """Seconds for all prompts together."""
    config = genai.GenerationConfig(max_new_tokens=output, ignore_eos=True, do_sample=False)
    ids = [ov.Tensor(np.array([one], dtype=np.int64)) for one in prompts]
    begin = time.monotonic()
    results = pipe.generate(ids, [config] * len(ids))
    took = time.monotonic() - begin
    assert all(len(r.m_generation_ids[0]) == output for r in results), "short answers"
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--job", type=json.loads, required=True)
    args = parser.parse_args()
    job, draw, vocab = args.job, random.Random(args.job["seed"]), args.job["vocab"]
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2
    scheduler.max_num_seqs = 64
    scheduler.max_num_batched_tokens = 512
    scheduler.enable_prefix_caching = True
    begin = time.monotonic()
    pipe = genai.ContinuousBatchingPipeline(
        args.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": job["threads"]})
    found = {"load": time.monotonic() - begin}
    run(pipe, [prompt(draw, job["prompt"], vocab)], 4)
    for count in job["streams"]:
        many = [prompt(draw, job["prompt"], vocab) for _ in range(count)]
        found[f"decode {count}"] = count * job["output"] / run(pipe, many, job["output"])
    for length in job["prefill"]:
        found[f"prefill {length}"] = length / run(pipe, [prompt(draw, length, vocab)], 1)
    if job["prefix"]:
        head = prompt(draw, job["prefix"], vocab)
        many = [head + prompt(draw, job["tail"], vocab) for _ in range(job["clients"])]
        found["prefix"] = job["clients"] * job["output"] / run(pipe, many, job["output"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
