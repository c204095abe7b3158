"""bench_peers: part `peers` of tests/bench/bench_load: one open-loop trace against inferd, vLLM and
llama-server, each with all of the machine's processors.

The trace is two Poisson processes at once, each by an inferd-bench of its own: chats, and prompts
that are long for this machine. Its rates are given as multiples of what inferd serves in a closed
loop of chats, so that all are asked for more than they can do. An answer is good if its first token
and the mean time between the others come within the bounds of its kind. Each server starts fresh,
and gets the same prompts at the same times. The model is that of bench_models.py --small.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from bench_server import Server, table

CHAT = {"input_len": 128, "output_len": 64}
LONG = {"input_len": 2048, "output_len": 64}
WARM = {"input_len": 512, "output_len": 8}
CONTEXT, SEQUENCES, CACHE_TOKENS = 4096, 64, 64 * 1024
LLAMA_SLOTS = 16  # twice as fast as 64, which share one cache; each has its own part of it


def inferd(args, folder, *flags):
    return Server([args.build / "inferd", "serve", args.peer_models / "hf", "--max-model-len",
                   CONTEXT, "--max-num-seqs", SEQUENCES, "--num-blocks", CACHE_TOKENS // 16,
                   *flags], log=folder / "inferd.log")


def inferd_slo(args, folder):
    """Told how long the first tokens of both kinds may take."""
    tokens = LONG["input_len"] * args.ttft_ms // args.long_ttft_ms
    return inferd(args, folder, "--scheduling-policy", "slo", "--max-queue-time",
                  f"{args.ttft_ms / 1000}s", "--queue-time-tokens", tokens)


def vllm(args, folder):
    cores = os.cpu_count()
    environment = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
                   "VLLM_CPU_OMP_THREADS_BIND": f"0-{cores - 1}", "VLLM_NO_USAGE_STATS": "1",
                   "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    return Server([args.vllm.parent / "vllm", "serve", args.peer_models / "hf", "--dtype",
                   "bfloat16", "--max-model-len", CONTEXT, "--max-num-seqs", SEQUENCES,
                   "--served-model-name", "model", "--host", "127.0.0.1",
                   *args.vllm_flags.split()], folder / "vllm.log",
                  {**os.environ, **environment}, "/health")


def llama(args, folder):
    return Server([args.llama_server, "-m", args.peer_models / "bf16.gguf", "--host", "127.0.0.1",
                   "-np", LLAMA_SLOTS, "-c", CACHE_TOKENS, "--no-kv-unified",
                   *args.llama_flags.split()],
                  folder / "llama.log", ready_path="/health")


def start_load(args, server, folder, name, **options):
    flags = [word for key, value in options.items()
             for word in ("--" + key.replace("_", "-"), str(value))]
    return subprocess.Popen(
        [args.build / "inferd-bench", "serve", "--base-url", server.url, "--first-id", "300",
         "--vocab-size", "150000", "--quiet", "--json", folder / f"{name}.json", *flags],
        stdout=subprocess.DEVNULL)  # its status says that some were refused


def load(args, server, folder, **options):
    start_load(args, server, folder, "load", **options).wait()
    return json.loads((folder / "load.json").read_text())


def offer(args, server, folder, rates):
    """The trace. Returns what each kind of request got."""
    kinds = {"chat": (CHAT, rates[0], args.ttft_ms, 1), "long": (LONG, rates[1],
                                                               args.long_ttft_ms, 2)}
    running = [start_load(args, server, folder, name, concurrency=0, request_rate=rate, seed=seed,
                          num_requests=max(1, round(rate * args.peer_seconds)), ttft_slo=ttft,
                          tpot_slo=args.tpot_ms, **lengths)
               for name, (lengths, rate, ttft, seed) in kinds.items()]
    for one in running:
        one.wait()
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in kinds}


def row(server, kind, found):
    good = found["goodput_requests_per_s"] * found["duration_s"] / found["requests"]
    times = (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"), ("itl", "p99"))
    return [server, kind, found["requests"], f"{100 * good:.1f} %", found["refused"],
            *(f"{found[what][at]:.0f}" if what in found else "" for what, at in times)]


def peers(args, folder):
    if args.peer_models is None:
        sys.exit("bench_load: part peers needs --peer-models DIR, of bench_models.py --small")
    servers = {"inferd": inferd, "inferd, slo": inferd_slo}
    if args.vllm:
        servers["vLLM"] = vllm
    if args.llama_server:
        servers["llama-server"] = llama
    if args.servers:
        servers = {name: servers[name] for name in args.servers.split(";")}
    capacity, rates = None, args.rates and [float(rate) for rate in args.rates.split(",")]
    rows, result = [], {}
    for name, start in servers.items():
        server = start(args, folder)
        load(args, server, folder, num_requests=4, concurrency=2, seed=9, **WARM)
        if not rates:  # of the first server
            capacity = load(args, server, folder, num_requests=2 * SEQUENCES, seed=8,
                            concurrency=SEQUENCES // 2, **CHAT)["requests_per_s"]
            rates = [args.overload * capacity * share for share in (0.85, 0.015)]
        found = offer(args, server, folder, rates)
        server.stop()
        result[name] = found
        rows += [row(name, kind, one) for kind, one in found.items()]
        print(f"bench_load: {name} is done", file=sys.stderr, flush=True)
    print(f"\nChats of {CHAT['input_len']} tokens at {rates[0]:.2f}/s and prompts of "
          f"{LONG['input_len']} at {rates[1]:.2f}/s, {args.peer_seconds} s, {CHAT['output_len']} "
          f"tokens of output; good: first token within {args.ttft_ms} ms ({args.long_ttft_ms} for "
          f"the long ones), then one every {args.tpot_ms} ms on average\n")
    print(table(["server", "requests", "of them", "good", "429", "first token p50 ms", "p99",
                 "time per token p50 ms", "gap p99 ms"], rows))
    return {"rates": rates, "capacity": capacity, "servers": result}
