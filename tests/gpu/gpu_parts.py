#!/usr/bin/env python3
"""gpu_parts: the parts of gpu_check that need more than one command, each run as its own process.

    tests/gpu/gpu_parts.py device --build DIR           driver, clocks, libraries, Python with torch
    tests/gpu/gpu_parts.py serve MODEL --build DIR      a model with dummy weights over HTTP
    tests/gpu/gpu_parts.py fp8 MODEL --build DIR        long contexts with a cache of e4m3
    tests/gpu/gpu_parts.py weights MODEL --build DIR    one request over FP8 weights
    tests/gpu/gpu_parts.py files MODEL --build DIR      start from a checkpoint written here, twice

Prints a JSON object a line, as soon as it is known; ends with a line of words, and with status 1
when something failed, behind the end of the server's log. --tiny takes a model of a few kilobytes,
to try this on the emulator.
"""

import argparse
import concurrent.futures
import glob
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bench")]
from bench_server import Server  # noqa: E402
from gpu_run import NOT_HERE, smi  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/fixtures/tiny"
DECODE_PROMPT = 128
LOG_LINES = 30  # of a server that failed
SAY_S = 3       # for it to say why
LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=128256)
MODELS = {
    "Llama-3.2-1B": dict(LLAMA, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
                         num_attention_heads=32, num_key_value_heads=8, head_dim=64,
                         tie_word_embeddings=True),
    "Llama-3.1-8B": dict(LLAMA, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                         num_attention_heads=32, num_key_value_heads=8, head_dim=128,
                         tie_word_embeddings=False),
    "Qwen2.5-7B": dict(vocab_size=152064, hidden_size=3584, intermediate_size=18944,
                       num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
                       head_dim=128, tie_word_embeddings=False, model_type="qwen2",
                       architectures=["Qwen2ForCausalLM"]),
}
# What --tiny makes of a model: two layers of an eighth of the heads, and of lengths.
SMALL = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, vocab_size=384)


def say(part, **figures):
    print(json.dumps({"part": part, **figures}), flush=True)


# ---- arithmetic: what a step reads and a prefill computes ----

def layer_weights(c):
    heads = (c["num_attention_heads"] + 2 * c["num_key_value_heads"]) * c["head_dim"]
    return c["hidden_size"] * (heads + c["num_attention_heads"] * c["head_dim"] +
                               3 * c["intermediate_size"])


def step_bytes(c, batch, context):
    """Weights in bf16, read once, with the head, and the keys and values of every request."""
    weights = c["num_hidden_layers"] * layer_weights(c) + c["vocab_size"] * c["hidden_size"]
    token = 2 * c["num_key_value_heads"] * c["head_dim"] * c["num_hidden_layers"]
    return 2 * (weights + token * batch * context)


def forward_flops(c, tokens):
    """Products of all tokens, causal attention, and the head for the last token."""
    attention = 4 * tokens * tokens // 2 * c["num_attention_heads"] * c["head_dim"]
    return (c["num_hidden_layers"] * (2 * tokens * layer_weights(c) + attention) +
            2 * c["vocab_size"] * c["hidden_size"])


# ---- servers ----

def resident(server):
    """KiB of the daemon in the host's memory, and how many of them are no file's pages."""
    found = {"rss_kib": server.resident_kib()}
    try:
        status = Path(f"/proc/{server.pid}/status").read_text()
        found["anon_kib"] = int(status.split("RssAnon:")[1].split()[0])
    except (OSError, IndexError):
        pass
    return found


class Kit:
    """The programs, a model's folder, and how many measurements failed."""

    def __init__(self, options):
        self.build, self.tiny, self.model = options.build.resolve(), options.tiny, options.model
        self.config = dict(MODELS[self.model], **(SMALL if self.tiny else {}))
        if options.what == "weights":
            self.config["quantization_config"] = {"quant_method": "fp8",
                                                  "activation_scheme": "dynamic"}
        self.folder = Path(tempfile.mkdtemp(prefix="gpu_check_"))
        config = {"max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                  "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": None,
                  "eos_token_id": [0], **self.config}
        (self.folder / "config.json").write_text(json.dumps(config))
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(TINY / name, self.folder / name)
        self.failures, self.lacks, self.server = [], None, None

    def move(self, folder):
        """Takes the model's folder elsewhere."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = folder

    def length(self, tokens):
        return max(4, tokens // 128) if self.tiny else tokens

    def start(self, *flags, dummy=True):
        command = [self.build / "inferd", "serve", self.folder, "--device", "cuda",
                   "--max-model-len", self.length(16384) + 128, "--log-format", "text",
                   *(["--load-format", "dummy", "--seed", "3"] if dummy else []), *flags]
        if self.tiny:
            command += ["--num-blocks", "64", "--max-num-seqs", "8",
                        "--max-num-batched-tokens", "64"]
        limit_s = float(os.environ.get("GPU_CHECK_LIMIT_S", 120))  # of this step: time for the log
        self.server = Server(command, self.folder / "log", limit_s=max(1, limit_s - 5))
        return self.server

    def stop(self):
        """Ends the server. One whose device failed says so and ends by itself."""
        try:
            self.server.process.wait(SAY_S if self.failures else 0)
        except subprocess.TimeoutExpired:
            self.server.stop()

    def server_log(self):
        """The last lines of the daemon, without those of requests."""
        try:
            lines = (self.folder / "log").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join([x for x in lines if " request status=" not in x][-LOG_LINES:])

    def said(self, word):
        """What the daemon's log says behind a word at start."""
        found = re.search(rf"{word} +(.*)", (self.folder / "log").read_text(errors="replace"))
        return found[1].strip() if found else None

    def load(self, server, concurrency, prompt, output, count=None, seed=1):
        """The figures of inferd-bench, or None when it failed."""
        path = self.folder / "load.json"
        path.unlink(missing_ok=True)
        prompt, concurrency = self.length(prompt), min(concurrency, 4 if self.tiny else 1 << 20)
        command = [self.build / "inferd-bench", "serve", "--base-url", server.url,
                   "--num-requests", min(count, 4) if self.tiny and count else
                   count or max(4, 2 * concurrency),
                   "--concurrency", concurrency, "--input-len", prompt,
                   "--output-len", self.length(output) if self.tiny else output,
                   "--vocab-size", min(32000, self.config["vocab_size"]), "--seed", seed,
                   "--quiet", "--json", path]
        done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0 or not path.exists():
            self.failures.append(f"{concurrency} x {prompt}: {done.stdout.strip()[-200:]}")
            print(self.failures[-1], flush=True)
            return None
        figures = json.loads(path.read_text())
        kept = {k: figures[k] for k in ("requests", "duration_s", "output_tokens_per_s",
                                        "cached_tokens") if k in figures}
        for series in ("ttft", "tpot", "itl"):
            kept[series] = {k: figures.get(series, {}).get(k) for k in ("p50", "p99")}
        return kept


def median(figures, name):
    return figures[name]["p50"] if figures else None


def gap_ms(figures):
    """The time between tokens: the median of all gaps. Where tokens came in bursts, which a busy
    client makes of them, half the gaps are nothing, and a request's mean is taken."""
    gap, mean = median(figures, "itl"), median(figures, "tpot")
    return gap if gap and mean and 0.75 <= gap / mean <= 1.25 else mean or gap


def steps(server):
    """(seconds of all steps, seconds of them that the engine waited for the device)"""
    page = server.page("/metrics")
    return tuple(float(re.search(rf"^{name}_sum\S* (\S+)", page, re.MULTILINE)[1])
                 for name in ("inferd_step_duration_seconds", "inferd_device_wait_seconds"))


def decode_alone(kit, server, batch, context, output=128):
    """The figures of decodes beside which no prompt is computed: the same prompts came before, and
    all but the token behind the last whole block is cached."""
    length, seed = context + 1, 11 + batch
    kit.load(server, batch, length, 1, count=batch, seed=seed)
    before = steps(server)
    figures = kit.load(server, batch, length, output, count=batch, seed=seed)
    after = steps(server)
    return figures, (after[1] - before[1]) / max(1e-9, after[0] - before[0])


def decode(kit, server, batch, context, output=128):
    """The time between tokens while all requests run."""
    figures, waited = decode_alone(kit, server, batch, context, output)
    ms = gap_ms(figures)
    if ms:
        say("step", model=kit.model, batch=batch, context=context + output // 2, ms=ms,
            gb=step_bytes(kit.config, batch, context + output // 2) / 1e9, waited=waited,
            cached_tokens=figures.get("cached_tokens"))
    return ms


def again(kit, server, requests):
    """The same requests twice, all at once: how many have the same ids. The second find nothing of
    the first in the cache."""
    source = random.Random(5)
    bodies = [{"prompt": [source.randrange(10, kit.config["vocab_size"] - 1)
                          for _ in range(source.randrange(1, kit.length(256) + 1))],
               "max_tokens": 16 if kit.tiny else 32, "temperature": i % 2, "seed": i,
               "ignore_eos": True, "return_token_ids": True} for i in range(requests)]

    def ask(body, turn):
        body = {**body, "cache_salt": f"turn {turn}"}
        request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]["token_ids"]

    with concurrent.futures.ThreadPoolExecutor(requests) as pool:
        first, second = (list(pool.map(ask, bodies, [turn] * requests)) for turn in range(2))
    say("again", model=kit.model, requests=requests,
        equal=sum(a == b for a, b in zip(first, second)))


def serve(kit):
    server = kit.start()
    say("start", model=kit.model, what="dummy weights", ready_s=server.ready_s, **resident(server),
        products=kit.said("products"), prefill=kit.said("attention"))
    for concurrency in (1, 8, 64, 256):  # each with prompts of its own: none is cached
        figures = kit.load(server, concurrency, DECODE_PROMPT, 64, seed=concurrency)
        if figures:
            say("serve", model=kit.model, concurrency=concurrency, prompt=DECODE_PROMPT, output=64,
                figures=figures)
    decode(kit, server, 1, 128)
    decode(kit, server, 64, 1024)
    for prompt in (1024, 8192):
        ms = median(kit.load(server, 1, prompt, 2, count=4, seed=prompt), "ttft")
        if ms:
            flops = forward_flops(kit.config, kit.length(prompt))
            say("first", model=kit.model, prompt=prompt, ms=ms, tflop_s=flops / ms * 1e-9)
    cold, warm = (median(kit.load(server, 1, 16000, 2, count=1, seed=77), "ttft")
                  for _ in range(2))
    if cold and warm:
        say("warm", model=kit.model, prompt=16000, cold_ms=cold, warm_ms=warm)
    if "1B" in kit.model:
        again(kit, server, 8 if kit.tiny else 64)
    if "8B" in kit.model:
        ms = decode(kit, server, 8, 16000, 64)
        say("cache", kv="bf16", model=kit.model, batch=8, context=16000, ms=ms)
    kit.stop()
    return f"ready in {server.ready_s:.1f} s"


def fp8(kit):
    server = kit.start("--kv-cache-dtype", "fp8")
    figures, _ = decode_alone(kit, server, 8, 16000, 64)
    say("cache", kv="fp8", model=kit.model, batch=8, context=16000, ms=gap_ms(figures))
    kit.stop()
    return f"ready in {server.ready_s:.1f} s"


# ---- a checkpoint ----

def llama_tensors(c):
    """(name, shape) of a Llama checkpoint with tied or own head."""
    h, d = c["hidden_size"], c["head_dim"]
    yield "model.embed_tokens.weight", [c["vocab_size"], h]
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name, rows in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"]),
                           ("v", c["num_key_value_heads"])):
            yield layer + f"self_attn.{name}_proj.weight", [rows * d, h]
        yield layer + "self_attn.o_proj.weight", [h, c["num_attention_heads"] * d]
        for name in ("gate", "up"):
            yield layer + f"mlp.{name}_proj.weight", [c["intermediate_size"], h]
        yield layer + "mlp.down_proj.weight", [h, c["intermediate_size"]]
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield layer + name + ".weight", [h]
    yield "model.norm.weight", [h]
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", [c["vocab_size"], h]


def checkpoint_header(kit, is_fp8):
    """name -> (dtype, shape, bytes); of FP8 a scale of each matrix, as vLLM and others write it."""
    header = {}
    for name, shape in llama_tensors(kit.config):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if is_fp8 and "_proj." in name:
            header[name] = ("F8_E4M3", shape, count)
            header[name + "_scale"] = ("F32", [1], 4)
        else:
            header[name] = ("BF16", shape, 2 * count)
    return header


def write_checkpoint(kit, is_fp8=False):
    """Random numbers of both signs below 0.03, one tile again and again; returns the bytes."""
    entries, header, at = checkpoint_header(kit, is_fp8), {}, 0
    for name, (dtype, shape, size) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    half = os.urandom(1 << 15 if kit.tiny else 1 << 25)
    bf16 = bytearray(2 * len(half))
    bf16[0::2] = half
    bf16[1::2] = half[::-1].translate(bytes((b & 0x80) | 0x3c for b in range(256)))
    tiles = {"BF16": bf16, "F8_E4M3": half.translate(bytes(b & 0xbf for b in range(256))),
             "F32": struct.pack("<f", 0.01)}  # times codes of up to 1.9
    with open(kit.folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for dtype, _, size in entries.values():
            tile = memoryview(tiles[dtype])
            for begin in range(0, size, len(tile)):
                file.write(tile[:size - begin])
    return at


def has_room(kit, need):
    """Whether a file fits; else says so, and the step counts as not run."""
    free = shutil.disk_usage(kit.folder).free
    if free < need * 1.1:
        kit.lacks = f"{need / 1e9:.1f} GB of disk are not free at {kit.folder.parent}"
    return not kit.lacks


def files(kit):
    if not has_room(kit, step_bytes(kit.config, 0, 0)):
        return kit.lacks
    size = write_checkpoint(kit)
    for turn in ("written just now", "again"):
        server = kit.start(dummy=False)
        say("start", model=kit.model, what=f"file of {size / 1e9:.2f} GB, {turn}",
            ready_s=server.ready_s, **resident(server))
        kit.stop()
    return f"{size / 1e9:.2f} GB, ready in {server.ready_s:.1f} s"


def weights(kit):
    """Dummy weights are never quantised, so these are a file; it lies in memory where there is
    room."""
    size = sum(bytes_of for _, _, bytes_of in checkpoint_header(kit, True).values())
    if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2 * size:
        kit.move(Path(tempfile.mkdtemp(prefix="gpu_check_", dir="/dev/shm")))
    if not has_room(kit, size):
        return kit.lacks
    write_checkpoint(kit, is_fp8=True)
    server = kit.start(dummy=False)
    figures, _ = decode_alone(kit, server, 1, 128)
    say("weights", kind="fp8", model=kit.model, batch=1, ms=gap_ms(figures), gb=size / 1e9,
        loaded=kit.said("device"))
    kit.stop()
    return f"{size / 1e9:.2f} GB, ready in {server.ready_s:.1f} s"


# ---- the machine ----

def libraries(program):
    """Libraries that are not found, or what the loader says of a program that it cannot load."""
    loader = (glob.glob("/lib64/ld-linux-*.so*") + glob.glob("/lib/ld-linux-*.so*") + [""])[0]
    try:
        done = subprocess.run([loader, "--list", str(program)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=30, check=False)
    except OSError as fault:
        return [str(fault)]
    # "libx.so.1 => not found", or "FILE: FILE: version `GLIBC_2.36' not found (required by FILE)"
    lacking = [(re.findall(r"version `([^']+)'", line) or line.split())[0]
               for line in done.stdout.splitlines() if "not found" in line]
    return list(dict.fromkeys(lacking)) or ([done.stdout.strip()[-200:]] if done.returncode else [])


def python_with_torch(chosen):
    """(interpreter, release of torch, folders of its CUDA libraries)"""
    # The import itself takes many seconds, and may fail only where it is used.
    ask = ("import sys, glob; from importlib.metadata import version; print(version('torch')); "
           "[print(f) for p in sys.path for f in glob.glob(p + '/nvidia/*/lib')"
           " + glob.glob(p + '/torch/lib')]")
    others = [path for folder in ("*", "*/venv", "*/.venv")
              for path in sorted(glob.glob(f"/opt/{folder}/bin/python3"))]
    candidates = [chosen, os.environ.get("VIRTUAL_ENV", "") + "/bin/python", sys.executable,
                  shutil.which("python3"), *others]
    for python in dict.fromkeys(str(c) for c in candidates if c and Path(c).exists()):
        try:
            done = subprocess.run([python, "-c", ask], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.DEVNULL, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout:
            release, *folders = done.stdout.split("\n")
            return python, release, [f for f in folders if f]
    return None, None, []


def cublaslt(major, folders):
    """The library that inferd opens by name, or where others lie."""
    places = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *folders,
              "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"]
    found = [f for place in places if place for f in sorted(glob.glob(place + "/libcublasLt.so.*"))]
    good = [f for f in found if re.search(rf"\.so\.{major}$", f)]
    return (good or [None])[0], found


def device(options):
    build = options.build.resolve()
    programs = [build / name for name in ("gpu/tests_cuda", "gpu/gpu_bench", "inferd",
                                          "inferd-bench") if (build / name).exists()]
    lacking = {p.name: libraries(p) for p in programs}
    majors = [re.findall(rb"libcublasLt\.so\.(\d+)", p.read_bytes()) for p in programs
              if p.name in ("inferd", "gpu_bench")]
    major = next((m[0].decode() for m in majors if m), "13")
    python, torch, folders = python_with_torch(options.python)
    library, others = cublaslt(major, folders)
    say("device", **smi(["name", "driver_version", "compute_cap", "memory.total", "clocks.sm",
                         "clocks.mem", "clocks.max.sm", "power.limit", "ecc.mode.current",
                         "mig.mode.current", "compute_mode", "clocks_event_reasons.active"]),
        glibc=os.confstr("CS_GNU_LIBC_VERSION"), cores=os.cpu_count(), python=python, torch=torch,
        cublaslt=library, other_cublaslt=others, lacking=lacking, kernel=os.uname().release)
    bad = [f"{name} lacks {', '.join(which)}" for name, which in lacking.items() if which]
    for line in bad:
        print(line, flush=True)
    print(f"cuBLASLt {library or 'not found: ' + major}; torch {torch}"
          if not bad else "; ".join(bad), flush=True)
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["device", "serve", "fp8", "weights", "files"])
    parser.add_argument("model", nargs="?", choices=list(MODELS), default="Llama-3.2-1B")
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--python", help="an interpreter with torch")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    if options.what == "device":
        return device(options)
    kit, note = Kit(options), "ended"
    try:
        note = globals()[options.what](kit)
    except Exception as fault:  # noqa: BLE001 -- what the server said of it comes first
        kit.failures.append(f"{type(fault).__name__}: {fault}")
        if kit.server:
            kit.stop()
    finally:
        if kit.failures or note == "ended":
            print(kit.server_log(), flush=True)
        shutil.rmtree(kit.folder, ignore_errors=True)
    print(note if not kit.failures else f"{len(kit.failures)} failed: {kit.failures[0]}",
          flush=True)
    return 1 if kit.failures else NOT_HERE if kit.lacks else 0


if __name__ == "__main__":
    sys.exit(main())
