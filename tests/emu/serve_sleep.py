"""A model that sleeps: the device gets its memory back, and answers are the same afterwards.

Run by serve.py. What the device holds is read off the process: the emulator maps a file of its own
for each piece that can be given back; on a GPU it is what the driver says is free.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from serve_lora import ADMIN_KEY, write_adapter
from serving import FEW, PATIENCE_S, REAL_GPU, TINY, Server, free_port, prompts

SLEEPS = [*FEW, "--sleep-space", "1GiB", "--admin-key", ADMIN_KEY]
MIB = 1 << 20


def act(server, path, method="POST"):
    """(status, answer) of an operator's request."""
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method,
                                     headers={"Authorization": f"Bearer {ADMIN_KEY}"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def is_sleeping(server, query=""):
    return act(server, f"/is_sleeping{query}", "GET")[1]["is_sleeping"]


def device_pieces(process):
    """Bytes of each piece of the emulated device's memory that can be given back."""
    pieces = []
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        if line.endswith("/memfd:device (deleted)"):
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            pieces.append(end - begin)
    return pieces


def device_bytes(process):
    """What can be given back and is not."""
    if REAL_GPU:
        said = subprocess.run(["nvidia-smi", "--query-gpu=memory.used",
                               "--format=csv,noheader,nounits"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        return int(said.split()[0]) * MIB
    return sum(device_pieces(process))


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def asked():
    """Greedy ones and drawn ones, longer than a block, whose prompts are in the prefix cache."""
    return [{"prompt": (p * 70)[:70], "max_tokens": 12, "temperature": i % 2, "seed": i,
             "logprobs": 5} for i, p in enumerate(prompts(4, 30))]


def seen(server, bodies):
    return [(choice["token_ids"], choice["logprobs"]) for choice in server.all(bodies)]


def cached(server, body):
    return server.ask(**body)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_answers_are_the_same_after_a_sleep(program):
    server = Server(program, "cuda", *SLEEPS)
    try:
        bodies = asked()
        before = seen(server, bodies)
        awake = device_bytes(server.process.pid)
        assert cached(server, bodies[0]) > 0
        for turn in range(2):
            status, answer = act(server, "/sleep?level=1&mode=wait" if turn else "/sleep")
            assert status == 200 and answer["is_sleeping"], answer
            given = answer["device_bytes_freed"]
            assert awake - device_bytes(server.process.pid) >= given * 0.9 > MIB, answer
            if not REAL_GPU:
                assert device_bytes(server.process.pid) == 0 and given == awake
            assert 0 < answer["host_bytes_kept"] < given
            assert is_sleeping(server) and server.status("/readyz") == 200
            assert act(server, "/sleep")[1]["is_sleeping"], "it does already"
            if turn == 0:
                assert act(server, "/wake_up") == (
                    200, {"is_sleeping": False, "device_bytes_freed": 0, "host_bytes_kept": 0})
            assert cached(server, bodies[0]) == 0, "a request wakes it; its cache was dropped"
            assert not is_sleeping(server)
            assert seen(server, bodies) == before
            assert cached(server, bodies[0]) > 0
        assert act(server, "/wake_up")[0] == 200
    finally:
        assert server.stop() == 0, server.text()
    assert server.text().count("asleep    ") == 2, server.text()


def test_what_runs_ends_first_and_what_comes_wakes_it(program):
    server = Server(program, "cuda", *SLEEPS)
    try:
        bodies = [{"prompt": [5, 6, 7, 8 + i], "max_tokens": 24} for i in range(4)]
        before = [server.ask(**body)[1]["choices"][0]["token_ids"] for body in bodies]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in range(2):
                running = [pool.submit(server.ask, **body) for body in bodies]
                wait_for(lambda: re.search(r"vllm:num_requests_running\S* [1-9]", server.metrics()),
                         "a request to run")
                status, answer = pool.submit(act, server, "/sleep").result()
                assert status == 200 and answer["is_sleeping"], answer
                assert [one.result()[1]["choices"][0]["token_ids"] for one in running] == before
                woken = list(pool.map(lambda body: server.ask(**body), bodies))
                assert [a["choices"][0]["token_ids"] for _, a in woken] == before
        # A wish that is taken back before it comes true.
        stream = threading.Thread(target=server.stream, kwargs={"prompt": [5], "max_tokens": 60})
        stream.start()
        wait_for(lambda: re.search(r"vllm:num_requests_running\S* [1-9]", server.metrics()),
                 "a request to run")
        refused = []
        sleeper = threading.Thread(target=lambda: refused.append(act(server, "/sleep")))
        sleeper.start()
        wait_for(lambda: "an operator wants the model asleep" in server.text().splitlines()[-1],
                 "the wish")
        assert act(server, "/wake_up")[0] == 200
        sleeper.join(PATIENCE_S)
        stream.join(PATIENCE_S)
        assert refused[0][0] == 503 and "something has woken it" in str(refused[0]), refused
        act(server, "/sleep")
    finally:
        assert server.stop() == 0, "it can end asleep: " + server.text()


def test_a_device_without_room_sleeps_on(program):
    """As another program would take the memory meanwhile: requests hear why, and may come again."""
    trial = Server(program, "cuda", *SLEEPS)
    calls = len(device_pieces(trial.process.pid))  # that take such memory in a start
    assert trial.stop() == 0 < calls
    for fault in (1, 2):
        taken = calls + fault
        server = Server(program, "cuda", *SLEEPS, EMU_FAIL=f"cuMemCreate:{taken}:2")
        try:
            expected = server.ask(prompt=[5, 6], max_tokens=8)[1]["choices"][0]["token_ids"]
            assert act(server, "/sleep")[0] == 200
            if fault == 1:
                status, answer = server.ask(prompt=[5, 6], max_tokens=8)
                assert status == 503 and answer["error"]["code"] == "overloaded", answer
                assert "the device has no memory" in answer["error"]["message"]
                assert server.refusal["Retry-After"]
            else:
                status, answer = act(server, "/wake_up")
                assert status == 503 and "no memory" in answer["error"]["message"], answer
            assert is_sleeping(server) and device_bytes(server.process.pid) == 0
            answer = server.ask(prompt=[5, 6], max_tokens=8)[1]
            assert answer["choices"][0]["token_ids"] == expected
        finally:
            assert server.stop() == 0, server.text()
        assert "sleeps on: the model needs" in server.text(), server.text()


def test_adapters_sleep_with_the_model(program):
    """Their weights are kept too; one that comes while the model sleeps wakes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_adapter(Path(folder) / "one", 4, {"self_attn.q_proj": (64, 64)})
        other = write_adapter(Path(folder) / "two", 4, {"self_attn.q_proj": (64, 64)})
        server = Server(program, "cuda", *SLEEPS, "--enable-lora", "--lora-modules", f"one={path}",
                        "--allow-runtime-lora", "--max-loras", 2)
        try:
            body = {"prompt": [5, 6, 7], "max_tokens": 12, "logprobs": 3}
            before = seen(server, [{**body, "model": "one"}, body])
            assert before[0] != before[1], "the adapter changes nothing"
            assert act(server, "/sleep")[0] == 200
            assert seen(server, [{**body, "model": "one"}, body]) == before
            assert act(server, "/sleep")[0] == 200
            request = urllib.request.Request(
                f"http://127.0.0.1:{server.port}/v1/load_lora_adapter",
                json.dumps({"lora_name": "two", "lora_path": str(other)}).encode(),
                {"Content-Type": "application/json", "Authorization": f"Bearer {ADMIN_KEY}"})
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                assert answer.status == 200
            wait_for(lambda: not is_sleeping(server), "the adapter to be taken")
            assert seen(server, [{**body, "model": "one"}, body]) == before
            assert seen(server, [{**body, "model": "two"}])[0] not in before
        finally:
            assert server.stop() == 0, server.text()


def test_what_cannot_sleep_is_refused_by_name(program):
    for flags, says in ((["--device", "cpu"], "cpu has no memory of its own"),
                        (["--sleep-space", "1KiB"], "or hold the weights"),
                        (["--data-parallel-size", "2"], "data_parallel_size"),
                        (["--prefix-cache-space", "0.1"], "prefix_cache"),
                        (["--speculative-model", str(TINY), "--num-speculative-tokens", "2"],
                         "speculative_model")):
        server = Server(program, "cuda", *SLEEPS, *flags)
        assert server.process.wait(PATIENCE_S) == 78, server.text()
        assert "sleep_space" in server.text() and says in server.text(), server.text()
    server = Server(program, "cuda", *SLEEPS)
    try:
        for field, value in (("level", 2), ("level", 0), ("mode", "abort")):
            status, answer = act(server, f"/sleep?{field}={value}")
            assert status == 400 and answer["error"]["param"] == field, answer
        assert not is_sleeping(server)
    finally:
        assert server.stop() == 0, server.text()


def test_several_models_sleep_in_turns(program):
    """Two models on a device for one: what gives way sleeps, is woken by a request, and one that
    finds no room to sleep is unloaded."""
    with tempfile.TemporaryDirectory() as folder:
        conf = Path(folder) / "models"
        conf.mkdir()
        for name in ("ant", "bee", "cat"):
            (conf / f"{name}.conf").write_text(
                f"[model {name}]\nmodel = {TINY}\nload-format = dummy\n"
                f"seed = {len(name) + ord(name[0])}\nkv-cache-bytes = 250MiB\n")
        server = Several(program, conf, "--sleep-space", "4MiB")
        try:
            first = {name: server.answer(name) for name in ("ant", "bee")}
            assert len(set(map(str, first.values()))) == 2
            assert server.states() == {"ant": "asleep", "bee": "ready", "cat": "unloaded"}
            sleeper = server.children()["ant"]
            assert device_bytes(sleeper) == 0
            card = server.card("ant")
            assert card["memory"]["host"] > 0 and is_sleeping(server, "?model=ant")
            for _ in range(3):
                for name in ("ant", "bee"):
                    assert server.answer(name) == first[name]
            assert server.children()["ant"] == sleeper, "it is the same process"
            assert server.loads() == {"ant": 1, "bee": 1, "cat": 0}
            # An operator's sleep, and a request that wakes it.
            assert act(server, "/sleep?model=bee&level=1")[0] == 200
            wait_for(lambda: server.states()["bee"] == "asleep", server.text())
            assert server.answer("bee") == first["bee"]
            assert act(server, "/sleep?model=bee&level=2")[0] == 200
            wait_for(lambda: server.states()["bee"] == "unloaded", server.text())
            # One whose process dies asleep is only not in memory any more.
            assert act(server, "/sleep?model=ant")[0] == 200
            wait_for(lambda: server.states()["ant"] == "asleep", server.text())
            os.kill(server.children()["ant"], 9)
            wait_for(lambda: server.states()["ant"] == "unloaded", server.text())
            assert server.answer("ant") == first["ant"]
        finally:
            assert server.stop() == 0, server.text()


class Several(Server):
    """A parent of several models on the emulated GPU."""

    def __init__(self, program, conf, *flags):  # pylint: disable=super-init-not-called
        self.log = tempfile.TemporaryFile("w+")
        self.port = free_port()
        self.process = subprocess.Popen(
            [program, "serve", "--models-dir", str(conf), "--device", "cuda", "--dtype", "bfloat16",
             "--port", str(self.port), "--max-model-len", "512", *FEW, "--admin-key", ADMIN_KEY,
             "--batch-invariant", "--swap-space", "0",
             "--return-tokens-as-token-ids", *flags],
            stdout=self.log, stderr=self.log, env={**os.environ, "EMU_MEMORY": str(512 * MIB)})
        wait_for(lambda: self.status("/readyz") == 200, self.text())
        wait_for(lambda: len(self.states()) == 3, self.text())

    def answer(self, name):
        status, answer = self.ask(model=name, prompt=[5, 6, 7, 8], max_tokens=12, logprobs=3)
        assert status == 200, answer
        return answer["choices"][0]["token_ids"], answer["choices"][0]["logprobs"]

    def cards(self):
        return {card["id"]: card for card in act(self, "/v1/models", "GET")[1]["data"]}

    def card(self, name):
        return self.cards()[name]

    def states(self):
        return {name: card["state"] for name, card in self.cards().items()}

    def loads(self):
        return {name: int(float(re.search(rf'inferd_model_loads_total{{model_name="{name}"}} (\S+)',
                                          self.metrics())[1])) for name in self.cards()}

    def children(self):
        """{model: process}"""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if f"\nPPid:\t{self.process.pid}\n" not in (entry / "status").read_text():
                    continue
                text = (entry / "environ").read_bytes().decode()
            except OSError:
                continue
            named = re.search(r'INFERD_SERVED_MODEL_NAME=\["(\w+)"', text)
            if named and "INFERD_UDS=" in text:
                found[named[1]] = int(entry.name)
        return found
