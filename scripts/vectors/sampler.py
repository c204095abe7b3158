#!/usr/bin/env python3
"""Writes tests/vectors/sampler.txt: rows for the sampler with the answers of a plain reference.

    scripts/vectors/sampler.py [OUT]        needs numpy

The reference follows the definitions word by word in float64, with full sorts, and shares no code
with the engine. Random cases that hang on the last bits of an fp32 exponential (a cumulative sum
next to top_p, a runner-up next to the winner) are thrown away: both answers would be right.

A case is one line of integers; floats stand as the bits of their float32. Logits come from a recipe
(SplitMix64 numbers, exact in float32) plus single ids that are set by hand. See read_case in
tests/engine/sample/test_sampler_vectors.c for the order.
"""

import sys
from pathlib import Path

import numpy as np

GAMMA = np.uint64(0x9E3779B97F4A7C15)
M1, M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
U = np.uint64
INTERNAL, NO_CHOICE = -23, -37
LOGPROB_MIN = -9999.0
DRAWS = 12


def mix(x):
    x = (x ^ (x >> U(30))) * M1
    x = (x ^ (x >> U(27))) * M2
    return x ^ (x >> U(31))


def uniforms(key, position, vocab):
    """u of every id as engine/base/random.h defines it."""
    stream = mix(U(key) ^ mix(U(position) * GAMMA + GAMMA))
    ids = np.arange(vocab, dtype=U)
    coarse = (mix(stream + (ids >> U(2)) * GAMMA) >> (U(16) * (ids & U(3)))) & U(0xFFFF)
    fine = mix(~stream + ids * GAMMA) >> U(27)
    return (((coarse << U(37)) | fine).astype(np.float64) + 0.5) * 2.0**-53


class Ambiguous(Exception):
    """Both of two answers are right within rounding."""


def recipe_logits(case):
    ids = np.arange(case["vocab"], dtype=U)
    x = (mix(U(case["recipe"]) + ids * GAMMA) >> U(40)).astype(np.int64) - (1 << 23)
    logits = np.ldexp(x.astype(np.float64), case["scale"] - 24).astype(np.float32)
    for i, value in case["set"]:
        logits[i] = np.float32(value)
    return logits


def raw_logprobs(l):
    l64 = l.astype(np.float64)
    top = l64.max()
    with np.errstate(divide="ignore"):
        return l64 - (top + np.log(np.exp(l64 - top).sum()))


def change(l, case):
    """Steps 3 to 5, in float32 like the engine."""
    f = np.float32
    if case["allowed"]:
        keep = np.zeros(len(l), bool)
        keep[case["allowed"]] = True
        l[~keep] = -np.inf
    for word in case["bad"]:
        prefix = word[:-1]
        if not prefix or case["output"][-len(prefix):] == prefix:
            l[word[-1]] = -np.inf
    l[case["suppressed"]] = -np.inf
    for i, value in case["bias"]:
        l[i] = l[i] + f(value)
    r = f(case["repetition"])
    for i in sorted(set(case["prompt"]) | set(case["output"])):
        if r != 1:
            l[i] = l[i] / r if l[i] > 0 else l[i] * r
        count = case["output"].count(i)
        if count > 0:
            l[i] = l[i] - f(case["frequency"]) * f(count)
            l[i] = l[i] - f(case["presence"])
    return l


def infinity(l):
    if l.max() == np.inf:
        l = np.where(l == np.inf, np.float32(0), np.float32(-np.inf)).astype(np.float32)
    return l


def survivors(l, z, case):
    keep = z > -np.inf
    if case["min_p"] > 0:
        cut = np.log(np.float64(np.float32(case["min_p"])))
        if np.any(np.abs(z - cut) < 1e-5):
            raise Ambiguous
        keep &= z >= cut
    k = case["top_k"]
    if 0 < k < len(l):
        kept = np.sort(l[keep])[::-1]
        if k < len(kept):
            keep &= l >= kept[k - 1]
    top_p = np.float64(np.float32(case["top_p"]))
    if top_p < 1:
        p = np.where(keep, np.exp(z), 0.0)
        p /= p.sum()
        order = np.lexsort((-np.arange(len(l)), p))  # ascending p, of equals the higher id first
        cumulative = np.cumsum(p[order])
        gap = np.abs(cumulative - (1 - top_p))
        if np.any(gap[p[order] > 1e-8] < 5e-6):
            raise Ambiguous
        dropped = cumulative <= 1 - top_p
        dropped[-1] = False
        keep[order[dropped]] = False
        # a kept edge whose weight is next to nothing would be a matter of rounding as well
        if p[keep].min() < 1e-7:
            raise Ambiguous
    return keep


def draw(l, case, position):
    t = np.float64(np.float32(case["temperature"]))
    if t < np.float64(np.float32(1e-5)):
        return int(np.argmax(l))
    z = (l.astype(np.float64) - np.float64(l.max())) / t
    keep = survivors(l, z, case)
    score = np.where(keep, z - np.log(-np.log1p(-uniforms(case["key"], position, len(l)))), -np.inf)
    best = np.sort(score)[::-1]
    if len(best) > 1 and best[0] - best[1] < 1e-9:
        raise Ambiguous
    return int(np.argmax(score))


def clip(values):
    return np.maximum(values, LOGPROB_MIN).astype(np.float32)


def answer(case):
    """(status, [(id, logprob, rank)], [(id, logprob)])"""
    l = recipe_logits(case)
    if np.isnan(l).any():
        return INTERNAL, [], []
    if case["mask"] is not None:
        l[~np.array(case["mask"])] = -np.inf
    l = infinity(l)
    if l.max() == -np.inf:
        return INTERNAL if case["mask"] is None else NO_CHOICE, [], []
    raw, logprobs = l.copy(), raw_logprobs(l)
    order = np.lexsort((np.arange(len(l)), -l))
    top = [int(i) for i in order[: max(case["num_top"], 0)]]
    if case["num_top"] >= 0 and case["score"] < 0:
        top += [i for i in dict.fromkeys(case["extra"]) if i not in top]
    if case["score"] >= 0:
        ids = [case["score"]]
    else:
        l = infinity(change(l, case))
        if l.max() == -np.inf:
            return NO_CHOICE, [], []
        ids = [draw(l, case, p) for p in range(DRAWS)]
    chosen = [(i, clip(logprobs[i]), 1 + int((raw > raw[i]).sum())) for i in ids]
    return 0, chosen, [(i, clip(logprobs[i])) for i in top]


def random_case(r):
    sizes = [1, 2, 5, 31, 32, 33, 63, 64, 65, 100, 128, 200, 517, 1000, 3000, 9000, 20000]
    vocab = int(r.choice(sizes))
    ids = lambda n: [int(i) for i in r.integers(0, vocab, n)]  # noqa: E731
    sometimes = lambda p: r.random() < p  # noqa: E731
    pick = lambda *values: float(values[r.integers(len(values))])  # noqa: E731
    case = {
        "vocab": vocab,
        "recipe": int(r.integers(1 << 62)),
        "scale": int(r.integers(-2, 6)),
        "set": [(i, pick(8, 12, 20, 30)) for i in ids(int(r.choice([0, 0, 1, 3, 8, 12])))],
        "temperature": pick(0, 1, 1, 0.7, 1.3, 2, 0.1, 1e-5, 0.01),
        "top_p": pick(1, 1, 0.9, 0.5, 0.95, 0.1, 0.01, 0.999),
        "min_p": pick(0, 0, 0, 0.05, 0.5, 1e-3),
        "top_k": int(r.choice([0, 0, 1, 2, 5, 40, 100, 1000, vocab])),
        "presence": pick(0, 0, 0.5, -1.5, 2), "frequency": pick(0, 0, 0.3, -0.7, 2),
        "repetition": pick(1, 1, 1.1, 0.5, 10), "num_top": int(r.choice([-1, 0, 1, 5, 20])),
        "score": -1, "key": int(r.integers(1 << 63)), "prompt": ids(int(r.integers(0, 40))),
        "output": ids(int(r.integers(0, 30))), "suppressed": [], "bias": [], "allowed": [],
        "bad": [], "extra": [], "mask": None,
    }
    if sometimes(0.15):
        case["score"] = ids(1)[0]
    if sometimes(0.3):
        case["suppressed"] = ids(3)
    if sometimes(0.3):
        case["bias"] = [(i, float(r.uniform(-100, 100))) for i in ids(5)]
    if sometimes(0.2):
        case["allowed"] = ids(int(r.integers(1, 1 + min(vocab, 50))))
    if sometimes(0.3):
        case["bad"] = [ids(1), ids(2), case["output"][-2:] + ids(1), case["output"][-1:] + ids(2)]
    if sometimes(0.3):
        case["extra"] = ids(4)
    if sometimes(0.25):
        case["mask"] = [bool(b) for b in r.random(vocab) < r.choice([0.02, 0.5, 0.99])]
    if sometimes(0.1):
        values = [np.inf, -np.inf, 3e38, -3e38, 1e-42, -0.0]
        case["set"] += [(i, values[r.integers(len(values))]) for i in ids(6)]
    if sometimes(0.02):
        case["set"] += [(ids(1)[0], np.nan)]
    if sometimes(0.05):  # many exact ties
        case["scale"] = -200
    return case


def bits(value):
    return int(np.array(value, np.float32).view(np.uint32))


def listed(items):
    flat = [len(items)]
    for item in items:
        flat += item if isinstance(item, list) else [item]
    return flat


def words(mask):
    if mask is None:
        return [0]
    out = [0] * ((len(mask) + 31) // 32)
    for i, bit in enumerate(mask):
        out[i // 32] |= int(bit) << (i % 32)
    return [len(out), *out]


def line(case, result):
    status, chosen, top = result
    numbers = [case["vocab"], case["recipe"], case["scale"]]
    numbers += listed([[i, bits(v)] for i, v in case["set"]])
    for name in ("temperature", "top_p", "min_p", "presence", "frequency", "repetition"):
        numbers += [bits(case[name])]
    numbers += [case["top_k"], case["num_top"], case["score"], case["key"]]
    for name in ("prompt", "output", "suppressed", "allowed", "extra"):
        numbers += listed(case[name])
    numbers += listed([[i, bits(v)] for i, v in case["bias"]])
    numbers += listed([[len(w), *w] for w in case["bad"]])
    numbers += words(case["mask"])
    numbers += [status, *listed([[i, bits(p), rank] for i, p, rank in chosen])]
    numbers += listed([[i, bits(p)] for i, p in top])
    return " ".join(map(str, numbers))


def main():
    root = Path(__file__).resolve().parent.parent.parent
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/vectors/sampler.txt"
    r = np.random.default_rng(6)
    lines, thrown = [], 0
    with np.errstate(over="ignore", invalid="ignore"):
        while len(lines) < 600:
            case = random_case(r)
            try:
                lines.append(line(case, answer(case)))
            except Ambiguous:
                thrown += 1
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(f"{len(lines)}\n" + "\n".join(lines) + "\n")
    print(f"{out}: {len(lines)} cases, {thrown} ambiguous ones thrown away")


if __name__ == "__main__":
    main()
