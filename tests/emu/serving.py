"""One inferd on the emulated GPU, and what tests ask of it. Only the standard library."""

import concurrent.futures
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests"))
from ports import free_port  # noqa: E402 pylint: disable=wrong-import-position

TINY = ROOT / "tests/fixtures/tiny"
GAP = 0.2
LOGPROB = 0.2       # of 7,200 the largest was 0.048
LOGPROB_RMS = 0.03  # of these: 0.009
PATIENCE_S = 300
VOCAB = 384
FEW = ["--max-num-seqs", "8"]  # for tests that need no large batch: fewer graphs at the start
REAL_GPU = os.environ.get("SERVE_REAL_GPU")  # scripts/gpu_check
LONG = REAL_GPU or "INFERD_TEST_LONG" in os.environ  # `make check`: what is drawn, at length
SEED = int(os.environ.get("INFERD_TEST_SEED") or time.time_ns())
random.seed(SEED)
# On a GPU several servers have one device's memory, and would pin 4 GiB of the host's each.
SHARED_GPU = ["--num-blocks", "1000", "--swap-space", "0"] if REAL_GPU else []


class Server:
    """One inferd on a free port; everything it says is kept."""

    def __init__(self, program, device, *flags, model=None, **settings):
        self.port = free_port()
        self.log = tempfile.TemporaryFile("w+")
        weights = [str(model)] if model else [str(TINY), "--load-format", "dummy", "--seed", "11"]
        command = [program, "serve", *weights, "--device", device, "--dtype", "bfloat16",
                   "--port", str(self.port), "--max-model-len", "512", "--max-num-seqs", "40",
                   "--return-tokens-as-token-ids",  # bytes have no text of their own
                   "--max-queue-time", f"{PATIENCE_S}s",  # emulated steps are slow
                   *SHARED_GPU, *map(str, flags)]
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
        """(status, answer) of one completion; `refusal` keeps the headers of the last refusal."""
        body = {"ignore_eos": True, "temperature": 0, "return_token_ids": True, **body}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            self.refusal = refused.headers
            return refused.code, json.load(refused)

    def stream(self, **body):
        """(status, headers, events) of one streaming completion, until the stream ends."""
        body = {"ignore_eos": True, "temperature": 0, "stream": True, **body}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("POST", "/v1/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        events = [line[6:] for line in answer.read().decode().splitlines()
                  if line.startswith("data: ")]
        connection.close()
        return answer.status, answer.headers, events

    def status(self, path):
        """HTTP status of a GET; 0 when nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as page:
                return page.status
        except urllib.error.HTTPError as refused:
            return refused.code
        except OSError:
            return 0

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
    source = random.Random(seed or random.random())
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
