#!/usr/bin/env python3
"""OpenVINO as a peer of tests/bench/bench_embeddings, in an environment of its own.

    PYTHON tests/bench/bench_embeddings_openvino.py MODEL --dtype float32 --threads 2 --pooling mean

Run by bench_embeddings with the Python that its --openvino names (openvino, optimum-intel). Exports
the model, then reads lines of JSON, a list of texts each, and answers each with a line: the seconds
that their vectors took, tokenizing included, in batches of 32, and the first eight vectors.
"""

import argparse
import json
import sys
import time

import numpy
from optimum.intel import OVModelForFeatureExtraction
from tokenizers import Tokenizer

BATCH = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pooling", choices=["mean", "last"], default="mean")
    args = parser.parse_args()
    hint = {"float32": "f32", "bfloat16": "bf16"}[args.dtype]
    model = OVModelForFeatureExtraction.from_pretrained(
        args.model, export=True, compile=True, load_in_8bit=False,
        ov_config={"INFERENCE_NUM_THREADS": str(args.threads), "INFERENCE_PRECISION_HINT": hint,
                   "PERFORMANCE_HINT": "LATENCY"})
    # not AutoTokenizer: optimum-intel holds an older transformers than the one that saved the files
    tokenizer = Tokenizer.from_file(f"{args.model}/tokenizer.json")
    tokenizer.no_padding()  # the texts are of equal length

    def embed(texts):
        rows = tokenizer.encode_batch(texts)
        inputs = {"input_ids": numpy.array([r.ids for r in rows]),
                  "attention_mask": numpy.array([r.attention_mask for r in rows])}
        if "token_type_ids" in model.input_names:
            inputs["token_type_ids"] = numpy.array([r.type_ids for r in rows])
        hidden = numpy.asarray(model(**inputs).last_hidden_state, "float32")
        pooled = hidden[:, -1] if args.pooling == "last" else hidden.mean(1)  # of equal lengths
        return pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True)

    print("ready", flush=True)
    for line in sys.stdin:
        texts = json.loads(line)
        start = time.monotonic()
        vectors = [embed(texts[i:i + BATCH]) for i in range(0, len(texts), BATCH)]
        seconds = time.monotonic() - start
        print(json.dumps([seconds, vectors[0][:8].tolist()]), flush=True)


if __name__ == "__main__":
    main()
