"""gpu_table: the tables of gpu_check: verdicts, figures, and a row for every goal.

Every share is of a ceiling that the same run measured. A row that cannot be made from what a run
found says `not measured`; a goal that needs what no machine of ours has says what is open.
"""

import datetime
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bench")]
from bench_server import table  # noqa: E402

OPEN = "open: needs "


def rows(results, part, **wanted):
    """The figures of a part whose fields have these values."""
    return [r for r in results
            if r.get("part") == part and all(r.get(k) == v for k, v in wanted.items())]


def value(results, part, name, **wanted):
    """The newest such figure, or None."""
    found = [r.get(name) for r in rows(results, part, **wanted)]
    return next((v for v in reversed(found) if isinstance(v, (int, float))), None)


def ceiling(results):
    return value(results, "ceiling", "tb_s", what="read")


def ratio(a, b):
    return a / b if isinstance(a, (int, float)) and isinstance(b, (int, float)) and b else None


def percent(share):
    return None if share is None else f"{share:.0%}"


def times(quotient):
    return None if quotient is None else f"{quotient:.2f} x"


def unit(number, text, digits=1):
    return None if number is None else f"{number:.{digits}f} {text}"


# ---- figures ----

def decode_row(r, read):
    share = percent(ratio(r.get("tb_s"), read))
    return [f"decode {r['heads']} {r['kv']} {r['batch']} x {r['len']}", f"{r['us']:.1f} us",
            f"{share} of the read ceiling" if share else ""]


def linear_row(r, read):
    peer, share = ratio(r.get("cublaslt_us"), r["us"]), percent(ratio(r.get("tb_s"), read))
    said = [f"{peer:.2f} x cuBLASLt's best" if peer else "cuBLASLt's best unknown"]
    if share and r["rows"] <= 32:
        said.append(f"{share} of the read ceiling")
    return [f"linear {r['layer']} x {r['rows']}", f"{r['us']:.1f} us", ", ".join(said)]


def packed_row(r, read):
    share, unpacked = percent(ratio(r.get("tb_s"), read)), r.get("unpack_us")
    said = [f"{times(ratio(r['bf16_us'], r['us'])) or '?'} bf16"]
    if share and r["rows"] <= 32:
        said.append(f"{share} of the read ceiling")
    if unpacked:
        said.append(f"{times(ratio(r['bf16_us'], r['bf16_us'] + unpacked)) or '?'} unpacked first")
    if not r["equal"]:
        said.append("other bits than unpacked weights")
    return [f"packed {r['layer']} {r['weights']} x {r['rows']}", f"{r['us']:.1f} us",
            ", ".join(said)]


def serve_row(r, _):
    return [f"decode {r['model']} x {r['concurrency']}",
            f"{r['figures']['output_tokens_per_s']:.0f} tokens/s", "prompts included"]


def peer_row(r, _):
    what = " ".join(str(r[k]) for k in ("what", "model", "concurrency", "batch", "queries", "len")
                    if r.get(k) is not None)
    result = (f"{r['us']:.1f} us" if "us" in r else f"{r['tokens_per_s']:.0f} tokens/s"
              if "tokens_per_s" in r else "refused")
    return [f"peer {what}", result, str(r.get("refused", ""))[:60]]


def start_row(r, _):
    own = f" ({r['anon_kib'] // 1024} its own)" if r.get("anon_kib") else ""
    return [f"start {r['model']}, {r['what']}", f"{r['ready_s']:.1f} s",
            f"{(r['rss_kib'] or 0) // 1024} MiB resident{own}; {r.get('products') or ''}"]


def device_row(r, _):
    said = [f"{name} {r[field]}" for name, field in (
        ("clock at most", "clocks.max.sm"), ("power", "power.limit"), ("ECC", "ecc.mode.current"),
        ("MIG", "mig.mode.current"), ("mode", "compute_mode"),
        ("clock held by", "clocks_event_reasons.active")) if r.get(field)]
    return [f"device {r.get('name')}", str(r.get("memory.total")), ", ".join(said)]


FIGURES = {
    "device": device_row,
    "card": lambda r, _: [f"card {r['name']}", f"{r['multiprocessors']} multiprocessors",
                          f"capability {r['capability']}, L2 {r['l2_mib']} MiB"],
    "clock": lambda r, _: [f"clock in {r['what']}", f"{r['least_mhz']} to {r['most_mhz']} MHz",
                           f"up to {r['most_w']} W, {r['most_c']} C, of {r['looks']} looks"],
    "ceiling": lambda r, _: [f"ceiling {r['what']}",
                             f"{r['tb_s']:.3f} TB/s" if "tb_s" in r else
                             f"{r['tflop_s']:.0f} TFLOP/s", ""],
    "decode": decode_row,
    "prefill": lambda r, _: [f"prefill {r['kernel']} {r.get('pages', '')} {r['queries']} of "
                             f"{r['len']}", f"{r['us']:.0f} us", f"{r['tflop_s']:.0f} TFLOP/s"],
    "linear": linear_row,
    "packed": packed_row,
    "sampler": lambda r, _: [f"sampler {r['logits']} x {r['rows']}", f"{r['us']:.1f} us", ""],
    "rest": lambda r, read: [f"{r['what']} {r['shape']}", f"{r['us']:.2f} us",
                             f"{percent(ratio(r.get('tb_s'), read))} of the read ceiling"
                             if r.get("tb_s") and read else ""],
    "start": start_row,
    "serve": serve_row,
    "step": lambda r, read: [f"step {r['model']} {r['batch']} x {r['context']}",
                             f"{r['ms']:.3f} ms",
                             f"{r['gb']:.2f} GB, {r['gb'] / r['ms']:.2f} TB/s"],
    "first": lambda r, _: [f"first token of {r['prompt']} {r['model']}", f"{r['ms']:.1f} ms",
                           f"{r['tflop_s']:.0f} TFLOP/s"],
    "warm": lambda r, _: [f"first token of {r['prompt']}, cached", f"{r['warm_ms']:.1f} ms",
                          f"cold {r['cold_ms']:.1f} ms"],
    "again": lambda r, _: [f"twice the same {r['requests']} requests", f"{r['equal']} equal",
                           "default, not batch-invariant"],
    "cache": lambda r, _: [f"{r['kv']} cache {r['model']} {r['batch']} x {r['context']}",
                           f"{r['ms']:.2f} ms", ""],
    "weights": lambda r, _: [f"{r['kind']} weights {r['model']} x {r['batch']}",
                             f"{r['ms']:.2f} ms", str(r.get("loaded") or "")],
    "peer": peer_row,
}


def figure_rows(results):
    read, made = ceiling(results), []
    for r in results:
        try:
            if r["part"] in FIGURES:
                made.append(FIGURES[r["part"]](r, read))
        except (KeyError, TypeError, ValueError, AttributeError) as odd:
            made.append([r["part"], "unreadable", f"{type(odd).__name__}: {odd}"])
    return made


# ---- goals ----

def step_share(results, model, batch):
    """The bytes of a step at the read ceiling of the run, as a share of the step's time."""
    read = ceiling(results)
    found = [r for r in rows(results, "step", model=model, batch=batch) if r.get("ms")]
    return found[-1]["gb"] / read / found[-1]["ms"] if found and read else None


def step_goal(model, batch):
    def made(results):
        ms = value(results, "step", "ms", model=model, batch=batch)
        share = percent(step_share(results, model, batch))
        return share and f"{share} ({ms:.3f} ms, {batch / ms * 1e3:.0f} tokens/s)"
    return made


def best_share(results):
    """Of decode attention over half a gigabyte and more: the worst of them."""
    read = ceiling(results)
    shares = [r["tb_s"] / read for r in rows(results, "decode", kv="bf16")
              if read and r.get("tb_s") and r["tb_s"] * r["us"] * 1e6 >= 0.5e9]
    return shares and f"{min(shares):.0%} to {max(shares):.0%} of {len(shares)} shapes"


def decode_us(results, batch, length, kv="bf16", heads="32/8x128"):
    return value(results, "decode", "us", heads=heads, kv=kv, batch=batch, len=length)


def decode_peers(results):
    pairs = []
    for r in rows(results, "peer"):
        if r.get("kind") == "decode" and r.get("us"):
            ours = decode_us(results, r["batch"], r["len"])
            if ours:
                pairs.append((r["us"] / ours, f"{r['batch']} x {r['len']}"))
    best = {}
    for quotient, shape in pairs:  # of several peers the fastest
        best[shape] = min(quotient, best.get(shape, quotient))
    return best and ", ".join(f"{q:.2f} x at {shape}" for shape, q in best.items())


def fp8_speed_up(results):
    bf16, fp8 = (value(results, "cache", "ms", kv=kv) for kv in ("bf16", "fp8"))
    attention = ratio(decode_us(results, 8, 16384), decode_us(results, 8, 16384, "fp8"))
    said = [times(ratio(bf16, fp8)) and f"{times(ratio(bf16, fp8))} a step of 8 x 16k",
            times(attention) and f"{times(attention)} the kernel"]
    return ", ".join(s for s in said if s)


def prefill_peer(kernel, peer):
    def made(results):
        ours = value(results, "prefill", "us", kernel=kernel, queries=8192, len=8192, pages="mixed")
        return times(ratio(value(results, "peer", "us", what=peer, queries=8192), ours))
    return made


def paged(results):
    ordered, mixed = (value(results, "prefill", "us", kernel="wgmma", queries=8192, len=8192,
                            pages=pages) for pages in ("ordered", "mixed"))
    loss = ratio(mixed, ordered)
    return loss and f"{loss - 1:+.1%} for scattered pages against ordered ones"


def skinny_one(results):
    read = ceiling(results)
    shares = [r["tb_s"] / read for r in rows(results, "linear", rows=1)
              if read and r.get("tb_s") and r["tb_s"] * r["us"] * 1e6 >= 0.1e9]
    return shares and f"{min(shares):.0%} to {max(shares):.0%}"


def skinny_mean(results):
    quotients = [r["cublaslt_us"] / r["us"] for r in rows(results, "linear")
                 if r.get("cublaslt_us") and r.get("us") and r["rows"] <= 16]
    product = 1.0
    for q in quotients:
        product *= q
    return quotients and f"{product ** (1 / len(quotients)):.2f} x over {len(quotients)} shapes"


def packed_us(r):
    """The faster way of a packed layer: to unpack while it multiplies, or before."""
    return min(r["us"], r["bf16_us"] + r["unpack_us"]) if r.get("unpack_us") else r["us"]


def packed_worst(least, most, weights="", loss=False):
    """Of all packed layers with so many rows the one that gains least over bf16."""
    def made(results):
        found = [(r["bf16_us"] / packed_us(r), r) for r in rows(results, "packed")
                 if least <= r["rows"] <= most and r.get("us") and r.get("bf16_us") and
                 r["weights"].startswith(weights)]
        if not found:
            return None
        gain, worst = min(found, key=lambda pair: pair[0])
        return (f"{times(1 / gain if loss else gain)} at worst ({worst['layer']}, "
                f"{worst['weights']}, {worst['rows']} rows)")
    return made


def packed_share(results):
    read = ceiling(results)
    shares = [r["tb_s"] / read for r in rows(results, "packed")
              if read and r.get("tb_s") and r["rows"] <= 16]
    return shares and f"{min(shares):.0%} to {max(shares):.0%}"


def packed_bits(results):
    found = [r["equal"] for r in rows(results, "packed")]
    return found and f"{sum(found)} of {len(found)}"


def forward(results):
    gemm = max((r["tflop_s"] for r in rows(results, "ceiling") if r.get("tflop_s")), default=None)
    found = value(results, "first", "tflop_s", model="Llama-3.1-8B", prompt=8192)
    return percent(ratio(found, gemm))


def sampler(results):
    peaked, flat = (value(results, "sampler", "us", logits=kind, rows=64)
                    for kind in ("peaked", "flat"))
    step = value(results, "step", "ms", model="Llama-3.1-8B", batch=64)
    share = ratio(max(peaked or 0, flat or 0), step and step * 1e3)
    return peaked and flat and (f"{peaked:.0f} us peaked, {flat:.0f} us flat" +
                                (f", {share:.1%} of a step of 8B" if share else ""))


def fp8_weights(results):
    fp8, bf16 = (value(results, part, "ms", model="Llama-3.1-8B", batch=1)
                 for part in ("weights", "step"))
    return times(ratio(bf16, fp8))


def idle(results):
    waited = value(results, "step", "waited", model="Llama-3.1-8B", batch=64)
    return waited is not None and f"at most {1 - waited:.1%} (the engine waits {waited:.1%})"


def start_up(results):
    found = [r for r in rows(results, "start") if "file" in str(r.get("what"))]
    return found and ", ".join(f"{r['ready_s']:.1f} s ({r['model']}, {r['what']})" for r in found)


def resident(results):
    found = [(r["rss_kib"] / 1024, (r.get("anon_kib") or 0) / 1024)
             for r in rows(results, "start") if r.get("rss_kib")]
    return found and "{:.0f} MiB, {:.0f} of them no file's pages".format(*max(found))


def transformers(results):
    said = []
    for count in (1, 8, 64):
        ours = [r["figures"]["output_tokens_per_s"] for r in rows(results, "serve",
                model="Llama-3.2-1B", concurrency=count)]
        for r in rows(results, "peer", model="Llama-3.2-1B", concurrency=count):
            if r.get("tokens_per_s") and ours:
                said.append(f"{ours[-1] / r['tokens_per_s']:.2f} x {r['what']} at {count}")
    return ", ".join(said)


def same_again(results):
    found = rows(results, "again")
    return found and f"{found[-1]['equal']} of {found[-1]['requests']} equal by default; " \
                     "--batch-invariant: step `parity invariant`"


# Goal, its bound, and what a run found or what is missing for it.
GOALS = [
    ("decode attention, 0.5 GB of KV and more", ">= 95 % of the read ceiling", best_share),
    ("decode attention 8 x 4k, 32/8 x 128", "<= 36 us",
     lambda r: unit(decode_us(r, 8, 4096), "us")),
    ("decode attention 1 x 1k", "<= 8 us", lambda r: unit(decode_us(r, 1, 1024), "us")),
    ("e4m3 cache against bf16, 16k, 8 requests", ">= 1.6 x", fp8_speed_up),
    ("decode attention against PyTorch's best", ">= 1.0 x, small >= 1.3 x", decode_peers),
    ("decode attention against FlashInfer", ">= 1.0 x", OPEN + "FlashInfer"),
    ("prefill 8k, wgmma against cuDNN", ">= 1.0 x", prefill_peer("wgmma", "CUDNN_ATTENTION")),
    ("prefill 8k, mma.sync against flash", ">= 1.0 x", prefill_peer("mma.sync",
                                                                    "FLASH_ATTENTION")),
    ("paged prefill against contiguous", "<= 3 % loss", paged),
    ("skinny product, 1 row, 100 MB and more", ">= 95 % of the read ceiling", skinny_one),
    ("skinny products, up to 16 rows", ">= 1.10 x cuBLASLt's best", skinny_mean),
    ("packed layers, up to 16 rows", ">= 85 % of the read ceiling", packed_share),
    ("packed layers against bf16, below 4,096 rows", ">= 1.0 x", packed_worst(1, 4095)),
    ("4 bits against bf16, 64 rows", ">= 1.5 x", packed_worst(64, 64, "4 bits")),
    ("packed layers, 4,096 rows", "<= 1.1 x the time of bf16", packed_worst(4096, 4096, loss=True)),
    ("packed layers, bits of the weights unpacked", "all", packed_bits),
    ("8B, 1 request", ">= 88 % of the floor", step_goal("Llama-3.1-8B", 1)),
    ("1B, 1 request", ">= 80 % of the floor", step_goal("Llama-3.2-1B", 1)),
    ("8B, 64 requests at 1k", ">= 80 % of the floor", step_goal("Llama-3.1-8B", 64)),
    ("8B, forward of 8k", ">= 70 % of the GEMM rate", forward),
    ("FP8 weights, 8B, 1 request", ">= 1.6 x bf16", fp8_weights),
    ("sampler, 64 rows of 128k, top-k and top-p", "<= 40 us, <= 3 % of a step", sampler),
    ("GPU idle between steps, 64 requests", "<= 2 %", idle),
    ("first token of a cached 16k prompt", "<= 15 ms",
     lambda r: unit(value(r, "warm", "warm_ms", model="Llama-3.1-8B"), "ms")),
    ("start to ready, cached files", "<= 6 s for 8B", start_up),
    ("resident memory of the host", "<= 400 MiB", resident),
    ("against transformers, same run", ">= 5 x at 64", transformers),
    ("against llama.cpp, bf16", ">= 1.2 x, >= 3 x at 64", OPEN + "llama.cpp"),
    ("against vLLM", "", OPEN + "vLLM"),
    ("the same ids again", "all", same_again),
]


def goal_rows(results):
    made = []
    for goal, bound, found in GOALS:
        try:
            said = found if isinstance(found, str) else found(results)
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as odd:
            said = f"unreadable: {type(odd).__name__}: {odd}"
        made.append([goal, bound, said or "not measured"])
    return made


def show(device, verdicts, results, unread=0):
    device = device or {}
    print(f"\n{device.get('name')}, driver {device.get('driver')}, {datetime.date.today()}\n")
    print(table(["figure", "result", "note"], figure_rows(results)))
    print()  # the longest first: of a long output often the end alone is kept
    print(table(["step", "verdict", "s", "note"],
                [[v["name"], v["state"], v["seconds"], v["note"]] for v in verdicts]))
    print()
    print(table(["goal", "bound", "found"], goal_rows(results)))
    if unread:
        print(f"\n{unread} lines of figures could not be read")
    sys.stdout.flush()
