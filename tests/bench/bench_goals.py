"""bench_goals: part `goals` of tests/bench/bench_cpu: inferd beside each peer, and the goals.

Engines take turns: one measures all that is asked of it, then the next; the table has medians of
the repeats, and a ratio is the median of the ratios within each repeat. inferd and vLLM answer over
HTTP, to one client (inferd-bench) with prompts of token ids; llama.cpp by llama-batched-bench,
whose figures are those of its decode phase alone ("whole": with the prompts, as all over HTTP are),
and OpenVINO GenAI as a library (bench_openvino.py). The models are those of bench_models.py.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench_server import Server, machine, machine_busy, table

HERE = Path(__file__).resolve().parent
FOUR_BITS = ("q4_0", "q4_k_m")
OPENVINO = {"bf16": "ov-fp16", "q8_0": "ov-int8", "int4": "ov-int4"}
BLOCK = 16


def say(*words):
    print(*words, file=sys.stderr, flush=True)


class Job:
    """What one engine is asked in one round."""

    def __init__(self, args, shape):
        self.streams = [int(n) for n in args.streams.split(",")]
        self.prompt, self.output, self.prefill, self.prefix, self.prefix_prompt = shape[:5]
        self.clients, self.vocab = shape[5], shape[6]
        self.threads = args.threads
        self.seed = 0


class Http:
    """inferd, or a server that has its dialect; `command` gets a port at its end."""

    def __init__(self, name, bench, command, environment=None, ready="/readyz", stay=False):
        self.name, self.bench, self.command = name, bench, command
        self.environment, self.ready, self.stay = environment, ready, stay
        self.server = None

    def open(self):
        if self.server is None:
            self.server = Server(self.command, self.bench.folder / f"{self.name}.log",
                                 {**os.environ, **(self.environment or {})}, self.ready, 600)
        elif self.stay:
            self.each(signal.SIGCONT)

    def close(self):
        """A server that starts slowly stays, stopped, so that it takes no time from others."""
        if self.stay:
            self.each(signal.SIGSTOP)
        else:
            self.server.stop()
            self.server = None

    def each(self, number):
        for pid in [self.server.pid, *descendants(self.server.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def end(self):
        if self.server is not None:
            self.each(signal.SIGCONT)
            self.server.stop()
            self.server = None

    def load(self, concurrency, requests, prompt, output, prefix=0):
        job, out = self.bench.job, self.bench.folder / "load.json"
        job.seed += 1
        done = subprocess.run(
            [self.bench.args.build / "inferd-bench", "serve", "--base-url", self.server.url,
             "--quiet", "--concurrency", str(concurrency), "--num-requests", str(requests),
             "--input-len", str(prompt), "--output-len", str(output), "--prefix-len", str(prefix),
             "--first-id", "300", "--vocab-size", str(job.vocab), "--seed", str(job.seed),
             "--json", out], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench_goals: the load failed: {done.stdout}{done.stderr}")
        result = json.loads(out.read_text())
        if result["short_answers"]:
            sys.exit(f"bench_goals: {self.server.url} gave short answers")
        return result

    def measure(self, job, what):
        found = {"load": self.server.ready_s}
        self.load(2, 2, job.prompt, 4)
        for n in job.streams if "decode" in what else []:
            result = self.load(n, max(2, n), job.prompt, job.output)
            found[f"decode {n}"] = result["output_tokens_per_s"]
            if n == 1:
                found["decode phase 1"] = 1000 / result["tpot"]["p50"]
        for length in job.prefill if "prefill" in what else []:
            found[f"prefill {length}"] = self.load(1, 1, length, 1)["prompt_tokens_per_s"]
        if "prefix" in what:
            found["prefix"] = self.load(job.clients, job.clients, job.prefix_prompt, job.output,
                                        job.prefix)["output_tokens_per_s"]
        return found


class Llama:
    """llama-batched-bench over one file."""

    def __init__(self, name, bench, program, model):
        self.name, self.bench, self.program, self.model = name, bench, program, model

    def open(self):
        pass

    close = end = open

    def rows(self, prompts, output, streams, *words):
        context = max(streams) * (max(prompts) + output) + 64
        if "-pps" in words:
            context = max(prompts) + max(streams) * output + 64
        threads = str(self.bench.args.threads)
        done = subprocess.run(
            [self.program, "-m", self.model, "-c", str(context), "-t", threads, "-tb", threads,
             "-npp", ",".join(map(str, prompts)), "-ntg", str(output), "-npl",
             ",".join(map(str, streams)), "--output-format", "jsonl", *words],
            capture_output=True, text=True, check=False)
        lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
        if done.returncode != 0 or not lines:
            sys.exit(f"bench_goals: {self.program}: {done.stdout[-500:]}{done.stderr[-2000:]}")
        return lines

    def measure(self, job, what):
        found = {}
        if "decode" in what:
            for row in self.rows([job.prompt], job.output, job.streams):
                found[f"decode {row['pl']}"] = row["speed_tg"]
                found[f"whole {row['pl']}"] = row["pl"] * row["tg"] / row["t"]
        if "prefill" in what:
            for length in job.prefill:
                found[f"prefill {length}"] = self.rows([length], 1, [1])[0]["speed_pp"]
        if "prefix" in what:
            row = self.rows([job.prefix], job.output, [job.clients], "-pps")[0]
            found["prefix"] = job.clients * job.output / (row["t_pp"] + row["t_tg"])
        return found


class Library:
    """OpenVINO GenAI, a process each round."""

    def __init__(self, name, bench, python, model):
        self.name, self.bench, self.python, self.model = name, bench, python, model

    def open(self):
        pass

    close = end = open

    def measure(self, job, what):
        job.seed += 1
        asked = {"threads": job.threads, "vocab": job.vocab, "seed": job.seed,
                 "prompt": job.prompt, "output": job.output,
                 "streams": job.streams if "decode" in what else [],
                 "prefill": job.prefill if "prefill" in what else [],
                 "prefix": job.prefix if "prefix" in what else 0,
                 "tail": job.prefix_prompt - job.prefix, "clients": job.clients}
        done = subprocess.run([self.python, HERE / "bench_openvino.py", self.model, "--job",
                               json.dumps(asked)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"bench_goals: {self.name}: {done.stderr[-3000:]}")
        return json.loads(done.stdout.splitlines()[-1])


def descendants(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def inferd(bench, name, model, *words):
    job = bench.job
    longest = max(job.prefill + [job.prefix_prompt]) + 2 * BLOCK
    blocks = max(max(job.streams) * ((job.prompt + job.output) // BLOCK + 2),
                 longest // BLOCK + job.clients * 16) + 64
    return Http(name, bench, [
        bench.args.build / "inferd", "serve", model, "--threads", job.threads, "--max-num-seqs",
        max(max(job.streams), 32), "--max-model-len", longest + job.output, "--num-blocks",
        blocks + job.output // BLOCK + 1, *words])


def vllm(bench):
    job, python = bench.job, bench.args.vllm
    longest = max(job.prefill + [job.prefix_prompt]) + 2 * BLOCK + job.output
    environment = {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
                   "VLLM_CPU_OMP_THREADS_BIND": f"0-{job.threads - 1}",
                   "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    return Http("vllm bf16", bench, [
        Path(python).parent / "vllm", "serve", bench.args.models / "hf", "--dtype", "bfloat16",
        "--max-model-len", longest, "--max-num-seqs", max(job.streams), "--served-model-name",
        "model", "--host", "127.0.0.1", *bench.args.vllm_flags.split()],
        environment, "/health", stay=True)


def engines(bench):
    """(engine, what it measures), in the order of their turns."""
    args, models = bench.args, bench.args.models
    formats, every = args.formats.split(","), ("decode", "prefill", "prefix")
    found = []
    for name in formats:
        file = models / ("hf" if name == "bf16" else f"{name}.gguf")
        whole = {"bf16": every, "q8_0": ("decode", "prefill")}.get(name, ("decode",))
        found.append((inferd(bench, f"inferd {name}", file), whole))
        if args.llama and name != "bf16":
            found.append((Llama(f"llama.cpp {name}", bench, args.llama / "llama-batched-bench",
                                models / f"{name}.gguf"), ("decode",)))
        if name == "bf16" and args.llama:
            found.append((Llama("llama.cpp bf16", bench, args.llama / "llama-batched-bench",
                                models / "bf16.gguf"), ("decode", "prefill")))
        if name == "bf16" and args.vllm:
            found.append((vllm(bench), every))
        if args.openvino and name in ("bf16", "q8_0"):
            found.append((Library(f"openvino {name}", bench, args.openvino,
                                  models / OPENVINO[name]), whole))
    if args.openvino and set(formats) & set(FOUR_BITS):
        found.append((Library("openvino int4", bench, args.openvino, models / "ov-int4"),
                      ("decode",)))
    if args.llama_avx2 and "q4_k_m" in formats:
        found.append((inferd(bench, "inferd avx2 q4_k_m", models / "q4_k_m.gguf", "--cpu-isa",
                             "avx2"), ("decode",)))
        found.append((Llama("llama.cpp avx2 q4_k_m", bench,
                            args.llama_avx2 / "llama-batched-bench", models / "q4_k_m.gguf"),
                      ("decode",)))
    return found


class Goals:
    def __init__(self, results):
        self.results, self.rows = results, []

    def value(self, engine, metric):
        values = [found[metric] for found in self.results.get(engine, []) if metric in found]
        return median(values) if values else None

    def best(self, names, metric):
        """(value, name, metric) of the best of those that were measured."""
        found = [(self.value(name, metric), name, metric) for name in names]
        return max((one for one in found if one[0] is not None), default=(None, "", metric))

    def add(self, what, ours, peer, factor):
        (a, name, one), (b, other, two) = ours, peer
        if a is None or b is None:
            return
        ratio = median(left[one] / right[two] for left, right in
                       zip(self.results[name], self.results[other]))
        goal = ["", ""] if factor is None else [f">= {factor:g}",
                                                "met" if ratio >= factor else "missed"]
        self.rows.append([what, f"{name} {a:.1f}", f"{other} {b:.1f}", f"{ratio:.2f}", *goal])

    def four_bits(self):
        ours = [f"inferd {name}" for name in FOUR_BITS]
        theirs = [f"llama.cpp {name}" for name in FOUR_BITS]
        self.add("4 bits, 1 stream, decode phase", self.best(ours, "decode phase 1"),
                 self.best(theirs, "decode 1"), 1.1)
        for n, factor in ((8, 2), (32, 2.5)):
            metric = f"decode {n}"
            self.add(f"4 bits, {n} streams", self.best(ours, metric), self.best(theirs, metric),
                     factor)
            self.add(f"4 bits, {n} streams", self.best(ours, metric),
                     self.best(["openvino int4"], metric), 1.3)
            self.add(f"4 bits, {n} streams, prompts included", self.best(ours, metric),
                     self.best(theirs, f"whole {n}"), None)

    def others(self):
        q8, bf16 = ["inferd q8_0"], ["inferd bf16"]
        self.add("Q8_0, 1 stream, decode phase", self.best(q8, "decode phase 1"),
                 self.best(["llama.cpp q8_0"], "decode 1"), 1.1)
        for n, factor in ((8, 2), (32, 2.5)):
            self.add(f"Q8_0, {n} streams", self.best(q8, f"decode {n}"),
                     self.best(["llama.cpp q8_0"], f"decode {n}"), factor)
            self.add(f"Q8_0, {n} streams, prompts included", self.best(q8, f"decode {n}"),
                     self.best(["llama.cpp q8_0"], f"whole {n}"), None)
        for n in (1, 8, 32):
            for peer in ("vllm bf16", "openvino bf16"):
                self.add(f"bf16, {n} streams", self.best(bf16, f"decode {n}"),
                         self.best([peer], f"decode {n}"), 1.2)

    def long(self, job):
        bf16 = ["inferd bf16"]
        peers = ["vllm bf16", "openvino bf16", "llama.cpp bf16"]
        for length in job.prefill:
            metric = f"prefill {length}"
            self.add(f"prefill {length}, bf16", self.best(bf16, metric), self.best(peers, metric),
                     1.1)
        first, last = f"prefill {job.prefill[0]}", f"prefill {job.prefill[-1]}"
        self.add(f"{last} beside {first}, bf16", self.best(bf16, last), self.best(bf16, first), 0.8)
        for length in job.prefill:
            metric = f"prefill {length}"
            self.add(f"prefill {length}, activations of 8 bits", self.best(["inferd q8_0"], metric),
                     self.best(bf16, metric), 1.7)
        self.add(f"{job.clients} x {job.prefix} shared prefix", self.best(bf16, "prefix"),
                 self.best(["vllm bf16"], "prefix"), 1.5)
        for ours, theirs in (("decode phase 1", "decode 1"), ("decode 8", "whole 8")):
            self.add(f"AVX2 alone, Q4_K_M, {ours.split()[-1]} streams",
                     self.best(["inferd avx2 q4_k_m"], ours),
                     self.best(["llama.cpp avx2 q4_k_m"], theirs), 1)

    def bound(self, what, value, limit, unit):
        self.rows.append([what, f"{value:.2f}{unit}", "", "", f"<= {limit:g}{unit}",
                          "met" if value <= limit else "missed"])


def anonymous_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def load_once(bench, model):
    """(seconds from exec to ready, anonymous memory) with a small KV cache."""
    server = Server([bench.args.build / "inferd", "serve", model, "--threads", bench.args.threads,
                     "--skip-tokenizer-init", "--num-blocks", "8", "--max-model-len", "64",
                     "--max-num-batched-tokens", "64", "--max-num-seqs", "1"],
                    bench.folder / "load.log")
    found = server.ready_s, anonymous_bytes(server.pid)
    server.stop()
    return found


def loads(bench, goals):
    """Loading with a warm page cache, and what a daemon holds beside the size of its file."""
    for name in [*FOUR_BITS, "q8_0", "large"]:
        model = bench.args.models / f"{name}.gguf"
        if not model.exists():
            continue
        made = [load_once(bench, model) for _ in range(bench.args.repeats + 1)][1:]
        size, seconds = model.stat().st_size, median(one for one, _ in made)
        memory = median(two for _, two in made)
        goals.bound(f"{name}: ready, {size / 2**30:.2f} GiB", seconds, 2, " s")
        goals.bound(f"{name}: memory beside the file", memory / size, 1.05, "")
        say(f"  {name}: {seconds:.2f} s, {memory / 2**20:.0f} MiB of {size / 2**20:.0f}")


def print_figures(results):
    metrics = sorted({metric for runs in results.values() for run in runs for metric in run},
                     key=lambda m: (m.split()[0], int(m.split()[-1]) if m[-1].isdigit() else 0))
    goals = Goals(results)
    rows = []
    for engine in results:
        values = [goals.value(engine, metric) for metric in metrics]
        rows.append([engine, *("" if v is None else f"{v:.1f}" for v in values)])
    print("\nTokens/s, medians; load in seconds\n")
    print(table(["engine", *metrics], rows))


def save(bench, results):
    if bench.args.json:
        bench.args.json.write_text(json.dumps({"machine": machine(), "results": results}, indent=1))


def run(bench, shape):
    """`shape`: prompt, output, lengths of prefill, prefix, prompt with a prefix, clients of it,
    vocabulary."""
    bench.job = Job(bench.args, shape)
    results, parts = {}, bench.args.goals.split(",")
    todo = engines(bench)
    if bench.args.engines:
        todo = [x for x in todo if any(w in x[0].name for w in bench.args.engines.split(","))]
    try:
        for repeat in range(bench.args.repeats if todo and parts != ["load"] else 0):
            for engine, what in todo:
                begin, busy = time.monotonic(), machine_busy()
                bench.job.seed = 100 * repeat  # the same prompts for all
                engine.open()
                found = engine.measure(bench.job, set(what) & set(parts))
                engine.close()
                took = time.monotonic() - begin
                results.setdefault(engine.name, []).append(found)
                say(f"repeat {repeat + 1}: {engine.name}, {took:.0f} s, machine "
                    f"{100 * (machine_busy() - busy) / took / os.cpu_count():.0f} % busy:",
                    ", ".join(f"{key} {value:.1f}" for key, value in found.items()))
                save(bench, results)
    finally:
        for engine, _ in todo:
            engine.end()
    goals = Goals(results)
    goals.four_bits()
    goals.others()
    goals.long(bench.job)
    if "load" in parts:
        loads(bench, goals)
    print_figures(results)
    print("\nGoals\n")
    print(table(["", "inferd", "peer", "ratio", "goal", ""], goals.rows))
