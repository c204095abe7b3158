#!/usr/bin/env python3
"""The whole server on the emulated GPU: tokens, logprobs and faults over HTTP.

    tests/emu/serve.py build/emu/plain/inferd [part of a test's name]...

One binary has both back ends: `--device cpu` answers what `--device cuda` must answer. A GPU sums
in another order, so greedy tokens are compared up to the first difference, and a difference counts
as one only where the CPU's two best logprobs are further apart than GAP; logprobs of equal tokens
must agree within LOGPROB, all of a test within LOGPROB_RMS. On one device tokens are compared
without any allowance: alone, together, chunked, from the cache, after preemption. Only the standard
library; ends with a line of counts.
"""

import concurrent.futures
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TINY = ROOT / "tests/fixtures/tiny"
GAP = 0.2
LOGPROB = 0.2       # of 7,200 the largest was 0.048
LOGPROB_RMS = 0.03  # of these: 0.009
PATIENCE_S = 120
VOCAB = 384
EXIT_DEVICE_LOST = 71


class Server:
    """One inferd on a free port; everything it says is kept."""

    def __init__(self, program, device, *flags, **settings):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = tempfile.TemporaryFile("w+")
        command = [program, "serve", str(TINY), "--load-format", "dummy", "--seed", "11",
                   "--device", device, "--dtype", "bfloat16", "--port", str(self.port),
                   "--max-model-len", "512", "--max-num-seqs", "40",
                   "--return-tokens-as-token-ids",  # bytes have no text of their own
                   *map(str, flags)]
        if device == "cuda" and "--no-batch-invariant" not in flags:
            command.append("--batch-invariant")
        self.process = subprocess.Popen(command, stderr=self.log, stdout=self.log,
                                        env={**os.environ, **settings})
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5).read()
                return
            except OSError:
                time.sleep(0.02)

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def ask(self, **body):
        """(status, answer) of one completion."""
        body = {"ignore_eos": True, "temperature": 0, "return_token_ids": True, **body}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    def all(self, bodies):
        """Choices of many completions at once, in their order."""
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(lambda body: self.ask(**body), bodies))
        for status, answer in answers:
            assert status == 200, answer
        return [answer["choices"][0] for _, answer in answers]

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as page:
            return page.read().decode()

    def preemptions(self):
        return sum(float(line.split()[-1]) for line in self.metrics().splitlines()
                   if re.match(r"inferd\w*preemptions\w*[ {]", line))

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


def prompts(count, longest, seed=None):
    source = random.Random(seed)
    return [[source.randrange(2, VOCAB) for _ in range(source.randrange(1, longest))]
            for _ in range(count)]


def check_logprobs(differences):
    """Logprobs of two devices: each near the other, and most of them very near."""
    worst = max(differences, key=abs)
    assert abs(worst) <= LOGPROB, worst
    rms = (sum(d * d for d in differences) / len(differences)) ** 0.5
    assert rms <= LOGPROB_RMS, rms


def compare(cpu, cuda):
    """Greedy choices of two devices: differences of the logprobs of equal tokens."""
    differences = []
    ours, theirs = cuda["logprobs"], cpu["logprobs"]
    for i, (left, right) in enumerate(zip(cpu["token_ids"], cuda["token_ids"])):
        best = sorted(theirs["top_logprobs"][i].values(), reverse=True)
        if left != right:
            gap = best[0] - best[1] if len(best) > 1 else 0
            assert gap <= GAP, f"token {i}: {right}, expected {left}, gap {gap}"
            break
        differences.append(ours["token_logprobs"][i] - theirs["token_logprobs"][i])
    return differences


def test_greedy_tokens_of_both_devices(both):
    cpu, cuda = both
    bodies = [{"prompt": p, "max_tokens": 24, "logprobs": 5} for p in prompts(10, 150)]
    for body in bodies:  # several ids have one text, and a text is one key of top_logprobs
        body["return_tokens_as_token_ids"] = True
    differences = [d for pair in zip(cpu.all(bodies), cuda.all(bodies)) for d in compare(*pair)]
    assert len(differences) > 10 * 24 // 3, f"only {len(differences)} tokens could be compared"
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
    source = random.Random(seed)
    kinds = [
        {}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 40, "top_p": 0.9},
        {"repetition_penalty": 1.4}, {"presence_penalty": 1.5, "frequency_penalty": 0.7},
        {"logit_bias": {"17": 9, "18": -100}}, {"allowed_token_ids": list(range(40, 60))},
        {"bad_words": ["the", "quick", "one two"]}, {"min_tokens": 6, "ignore_eos": False},
        {"logprobs": 3}, {"temperature": 0},
    ]
    return [{"temperature": 1.2, "seed": source.randrange(1 << 30), "max_tokens": 12,
             "prompt": p, **kind} for p, kind in zip(prompts(len(kinds), 100, seed), kinds)]


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
    bodies = sampled()
    pairs = list(zip(*(server.all(bodies) for server in both)))
    first = sum(left["token_ids"][0] == right["token_ids"][0] for left, right in pairs)
    assert first >= len(pairs) * 2 // 3, f"{first} of {len(pairs)} first tokens agree"


def test_penalties_forbid_repetition(both):
    """With the largest penalties and no bias a greedy stream does not come back to a token."""
    body = {"prompt": prompts(1, 30)[0], "max_tokens": 40, "presence_penalty": 2,
            "frequency_penalty": 2, "repetition_penalty": 10}
    tokens = both[1].all([body])[0]["token_ids"]
    assert len(set(tokens)) == len(tokens), tokens


def test_a_small_pool_preempts_and_changes_nothing(program):
    bodies = [{"prompt": (p * 40)[:40], "max_tokens": 50, "temperature": 1, "seed": i,
               "repetition_penalty": 1.2} for i, p in enumerate(prompts(8, 40))]
    large = Server(program, "cuda", "--block-size", 16)
    small = Server(program, "cuda", "--block-size", 16, "--num-blocks", 35,
                   "--max-num-batched-tokens", 64, "--max-num-seqs", 8)
    try:
        expected = [choice["token_ids"] for choice in large.all(bodies)]
        for _ in range(2):  # the second time from the cache, where it still is
            assert [choice["token_ids"] for choice in small.all(bodies)] == expected
        assert small.preemptions() > 0, "the pool was not small enough"
    finally:
        assert large.stop() == 0, large.text()
        assert small.stop() == 0, small.text()


def test_products_by_the_library(program):
    """Many rows go through (a fake) cuBLASLt, whose choices the next start reads from a file."""
    bodies = [{"prompt": p, "max_tokens": 16, "logprobs": 5, "return_tokens_as_token_ids": True}
              for p in prompts(6, 200)]
    cpu = Server(program, "cpu", "--max-num-batched-tokens", 150)
    expected = cpu.all(bodies)
    assert cpu.stop() == 0, cpu.text()
    with tempfile.TemporaryDirectory() as cache:
        for start in ("first", "second", "damaged"):
            files = list(Path(cache).glob("inferd/products-*.txt"))
            if start == "damaged":
                files[0].write_text(files[0].read_text().replace("1 2 ", "1 2 3 ", 4)[:-40])
            before = files[0].read_text() if files else ""
            server = Server(program, "cuda", "--no-batch-invariant", "--max-num-batched-tokens",
                            150, XDG_CACHE_HOME=cache, CACHE_DIRECTORY="")
            got = server.all(bodies)
            assert server.stop() == 0, server.text()
            check_logprobs([d for pair in zip(expected, got) for d in compare(*pair)])
            lines = next(Path(cache).glob("inferd/products-*.txt")).read_text()
            assert len(lines.splitlines()) > 8, lines
            assert any(line.split()[6] == "0" for line in lines.splitlines()), "none by the library"
            assert (lines == before) == (start == "second"), f"{start} start: {lines}"


def test_an_fp8_cache(program):
    """Twice the tokens in the same bytes, other logprobs but close, one answer in any company."""
    bodies = [{"prompt": p, "max_tokens": 10, "logprobs": 1} for p in prompts(9, 120)]
    size = ["--kv-cache-bytes", 8 << 20, "--max-num-batched-tokens", 64]
    plain = Server(program, "cuda", *size)
    small = Server(program, "cuda", *size, "--kv-cache-dtype", "fp8")
    try:
        expected, got = plain.all(bodies), small.all(bodies)
        alone = [small.all([body])[0] for body in bodies]
        assert [c["token_ids"] for c in got] == [c["token_ids"] for c in alone]
        assert [c["logprobs"] for c in got] == [c["logprobs"] for c in alone]
        firsts = [(a["logprobs"]["token_logprobs"][0], b["logprobs"]["token_logprobs"][0])
                  for a, b in zip(expected, got) if a["token_ids"][0] == b["token_ids"][0]]
        assert len(firsts) >= 3, (expected, got)  # of 192 first tokens 176 were the same
        assert all(abs(a - b) < 0.5 for a, b in firsts), firsts
        assert any(a != b for a, b in firsts), "nothing was stored as e4m3"
        blocks = [int(re.search(r'num_gpu_blocks="(\d+)"', s.metrics())[1]) for s in (plain, small)]
        assert 1.8 * blocks[0] < blocks[1] < 2.2 * blocks[0], blocks
        assert 'cache_dtype="fp8"' in small.metrics()
    finally:
        assert plain.stop() == 0, plain.text()
        assert small.stop() == 0, small.text()
    refused = Server(program, "cpu", "--kv-cache-dtype", "fp8")
    assert refused.stop() == 78 and "kv_cache_dtype fp8" in refused.text(), refused.text()


def test_a_lost_device_ends_the_server(program):
    server = Server(program, "cuda", EMU_FAIL="cudaGraphLaunch:40:700")
    answers = []
    ask = lambda: answers.append(server.ask(prompt=[5, 6, 7], max_tokens=400))  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert server.process.wait(PATIENCE_S) == EXIT_DEVICE_LOST, server.text()
    assert len(answers) == 3 and all(status >= 500 for status, _ in answers), answers
    assert "device failed at" in server.text(), server.text()


def test_a_plan_that_does_not_fit_is_refused(program):
    server = Server(program, "cuda", EMU_MEMORY=str(200 << 10))
    assert server.stop() == 78, server.text()
    assert "GiB too few" in server.text() and "--max-num-seqs" in server.text(), server.text()


def test_every_call_may_fail_at_start(program):
    """Whatever the driver refuses while the server starts: a reason, an exit status, no crash."""
    calls = ["cudaGetDeviceCount:1", "cudaSetDevice:1", "cudaStreamCreate:1",
             "cudaGetDeviceProperties:1", "cudaMallocHost:1", "cudaEventCreate:1",
             "cudaGraphInstantiate:1", "cudaStreamBeginCapture:1", "launch:1", "cublasLtMatmul:1",
             "cublasLtCreate:1"]
    for name, most in (("cudaMalloc", 40), ("cudaMemcpyAsync", 25), ("cudaMallocHost", 6),
                       ("cudaMemsetAsync", 40), ("launch", 150), ("cudaEventCreate", 4),
                       ("cudaStreamSynchronize", 6), ("cudaGraphInstantiate", 4)):
        calls += [f"{name}:{random.randrange(1, most)}", f"{name}:{random.randrange(1, most)}:2"]

    def start(call):
        command = [program, "check", str(TINY), "--load-format", "dummy", "--device", "cuda",
                   "--max-model-len", "128", "--max-num-seqs", "8", "--num-blocks", "40",
                   "--max-num-batched-tokens", "40"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=PATIENCE_S, env={**os.environ, "EMU_FAIL": call,
                                                       "XDG_CACHE_HOME": "", "HOME": ""})
        # Without the library the own kernels do all products; a trial that fails is no choice.
        expected = {"cublasLt": (0,), "launch": (0, 70)}
        expected = next((codes for name, codes in expected.items() if call.startswith(name)),
                        (70, 78))
        assert done.returncode in expected, f"{call}: {done.returncode}\n{done.stdout}"

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(start, calls))


def main():
    program, wanted = sys.argv[1], sys.argv[2:]
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")
             and (not wanted or any(part in name for part in wanted))]
    both = [Server(program, device, "--max-num-batched-tokens", 96) for device in ("cpu", "cuda")]
    failed = 0
    for name, test in tests:
        begin = time.monotonic()
        try:
            test(both if "both" in test.__code__.co_varnames else program)
            verdict = "ok  "
        except Exception as fault:  # noqa: BLE001 -- any fault of a test is counted
            failed += 1
            verdict = f"FAIL {type(fault).__name__}: {fault}\n"
        print(f"{verdict} {name} {time.monotonic() - begin:.1f} s", flush=True)
    for server in both:
        if server.stop() != 0:
            failed += 1
            print(f"FAIL exit status {server.process.returncode}\n{server.text()}")
    text = both[1].text()
    if "graphs" not in text:
        failed += 1
        print(f"FAIL no graphs\n{text}")
    real = os.environ.get("SERVE_REAL_GPU")  # scripts/gpu_check
    if not re.search(r"KV blocks of \d+, cuda \(" + ("" if real else "emulated GPU"), text):
        failed += 1
        print(f"FAIL not the emulated device\n{text}")
    print(f"{len(tests)} tests, {failed} failed")
    return 1 if failed or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
