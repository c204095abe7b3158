"""A client of one model against a client of another: behind one port, each has a process.

What is asserted is counted: beside each attack on `target` a stream of `honest` has the tokens that
it has alone, and its chats are answered; what the attacker gets are answers and refusals."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from attacks import Attack
from conftest import ATTACKER, HONEST
from crowd import Crowd
from harness import Background, Server, http_post, wait_until
from storing import client
from test_batches import create, upload, wait
from test_boundaries import STEPS_IN_ENGINE, steps_of_chats
from victim import CHAT, STREAM, ids

TARGET = {"model": "target", "max_tokens": 2, "prompt": [5, 6, 7]}
OTHERS = 40


def authorized(key):
    return {"Authorization": f"Bearer {key}"}


def ask(server, body, key=ATTACKER):
    return server.post("/v1/completions", body, headers=authorized(key))


def card(server, name):
    return server.get(f"/v1/models/{name}").json


def child(server, name):
    """The process of a model."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (entry / "stat").read_text()
            ours = int(text[text.rindex(")"):].split()[2]) == server.process.pid
            if ours and f'INFERD_SERVED_MODEL_NAME=["{name}"]'.encode() in \
                    (entry / "environ").read_bytes() and b"serve" in \
                    (entry / "cmdline").read_bytes().split(b"\0"):
                return int(entry.name)
    return None


@pytest.fixture
def models(request, model, keys, tmp_path):
    """models(*flags) starts a server of `honest`, `target`, one that cannot be loaded,
    and many more; each test has its own, because it breaks things. `honest`, `target`: lines of
    their sections."""
    servers = []
    options = f"model = {model}\nload-format = dummy\nseed = 7\nnum-blocks = 4096\n"

    def begin(*flags, few=True, **lines):
        text = "".join(f"[model {name}]\n{options}{lines.get(name, '')}"
                       for name in ("honest", "target"))
        broken = tmp_path / ".broken"
        shutil.copytree(model, broken, dirs_exist_ok=True)
        text += f"[model broken]\n{options}".replace(str(model), str(broken))
        if not few:
            text += "".join(f"[model other{i}]\n{options}" for i in range(OTHERS))
        (tmp_path / "models.conf").write_text(text)
        servers.append(Server(
            request.config.getoption("--inferd"), None, "--models-dir", tmp_path, "--api-key-file",
            keys, "--metrics-auth", "off", *flags, key=HONEST))
        for name in ("target", "broken"):
            wait_until(lambda: card(servers[-1], name)["memory"]["host"] > 0, "the plans",
                       context=servers[-1].log)
        (broken / "tokenizer.json").write_text("{}")  # its plan was good
        return servers[-1]

    yield begin
    for server in servers:
        assert server.stop() == 0, server.log()


@contextlib.contextmanager
def beside(server):
    """A stream and chats of `honest` beside what happens in the block."""
    alone = Background(server, {**STREAM, "model": "honest"}).join()
    assert alone.failure is None, f"{alone.failure} {server.log()}"
    stream = Background(server, {**STREAM, "model": "honest", "max_tokens": 30000})
    assert stream.started.wait(60) and stream.failure is None, stream.failure
    yield stream
    honest_chats(server)
    wanted = ids(alone)
    wait_until(lambda: len(ids(stream, len(wanted))) == len(wanted) or stream.failure, "the stream")
    assert stream.failure is None, f"{stream.failure}: {server.log()}"
    with contextlib.suppress(OSError, AttributeError):
        stream.stream.connection.sock.shutdown(socket.SHUT_RDWR)
    stream.join()
    assert ids(stream, len(wanted)) == wanted
    assert server.metric("inferd_model_loads_total", model_name="honest") == 1


def honest_chats(server, count=4):
    for _ in range(count):
        answer = server.post("/v1/chat/completions", {**CHAT, "model": "honest"})
        assert answer.status == 200, answer
        assert server.get("/livez").status == 200 and server.get("/readyz").status == 200


class OfTarget(Attack):
    """`bodies` of the attack, for the model `target`."""
    connections = 4

    def __init__(self, fields=lambda i: {}):
        self.fields = fields

    def bodies(self, i):
        yield "/v1/completions", {**TARGET, **self.fields(i)}


class Made(Attack):
    """Bodies that are bytes by now."""
    connections = 4

    def __init__(self, bodies):
        self.made = [json.dumps(body).encode() for body in bodies]

    def bodies(self, i):
        yield "/v1/completions", self.made[i % len(self.made)]


def attack(server, crowd, chats=8):
    """Honest chats while the crowd goes on; then its answers, without an internal error."""
    for _ in range(chats):
        honest_chats(server, 1)
        assert crowd.running(), crowd.failures
    crowd.enough.set()
    answers = crowd.join()
    assert answers and {status for status, _ in answers} <= {200, 400, 404, 413, 429, 503}, \
        {(status, body[:200]) for status, body in answers if status >= 500}
    return answers


def test_bodies_of_many_bytes(models):
    """The parent looks for the name in each: behind 15 MiB of ids, escapes and brackets. They are
    made before: to make one keeps the thread that reads the honest stream from it for a second, and
    who does not read for that long is cut off."""
    server = models()
    parts = ({"prompt": "ab " * (5 << 20), "truncate_prompt_tokens": 5},
             {"user": "\\\"" * (3 << 20)}, {"prompt": [7] * (5 << 20)})
    bodies = Made([{**TARGET, **part} for part in parts])
    with beside(server):
        attack(server, Crowd(server, bodies, ATTACKER))


def test_names_that_no_model_has(models):
    """Each is answered at once, and leaves nothing behind."""
    server = models()
    before = len(server.get("/metrics").body)
    with beside(server):
        answers = attack(server, Crowd(server, OfTarget(lambda i: {"model": f"{i}" * 80}),
                                       ATTACKER, 200))
    assert {status for status, _ in answers} == {404}
    assert len(server.get("/metrics").body) < before + 20000
    assert server.metric("inferd_request_memory_bytes") == 0


def test_a_queue_that_one_client_fills(models):
    """What waits for a model that cannot come; the honest one waits among them, too."""
    server = models("--max-queue-requests", 300, "--models-wait", "300s")
    with beside(server):
        os.kill(waits_for_child(server, "target"), signal.SIGSTOP)  # it stays as it is: loading
        crowd = Crowd(server, Many(), ATTACKER)
        wait_until(lambda: card(server, "target")["waiting"] >= 290, "a full queue",
                   context=lambda: (card(server, "target"), crowd.failures))
        honest_chats(server)
        with ThreadPoolExecutor() as pool:
            own = pool.submit(ask, server, TARGET, HONEST)
            wait_until(lambda: any(status == 429 for status, _ in crowd.answers),
                       "a request of the attacker to go")
            os.kill(child(server, "target"), signal.SIGCONT)
            assert own.result().status == 200
        crowd.enough.set()
        answers = crowd.join()
    assert {status for status, _ in answers} <= {200, 429}
    assert sum(status == 200 for status, _ in answers) >= 250, "all that waited has run"


def waits_for_child(server, name):
    """Asks for the model, and stops nothing yet: its process."""
    threading.Thread(target=ask, args=(server, {**TARGET, "model": name}), daemon=True).start()
    wait_until(lambda: child(server, name), "its process", context=server.log)
    return child(server, name)


class Many(OfTarget):
    connections = 320


def test_streams_that_nobody_reads(models):
    server = models("--stream-buffer-bytes", "64KiB", "--slow-reader-timeout", "2s")
    body = {**TARGET, "stream": True, "max_tokens": 3000, "ignore_eos": True, "logprobs": 20}
    with beside(server), contextlib.ExitStack() as stack:
        for _ in range(40):
            raw = stack.enter_context(contextlib.closing(server.socket()))
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.sendall(http_post("/v1/completions", body, f"Authorization: Bearer {ATTACKER}"))
        wait_until(lambda: card(server, "target")["running"] >= 20,
                   "them to run", context=lambda: card(server, "target"))
        honest_chats(server, 8)
        wait_until(lambda: card(server, "target")["running"] == 0, "them to be cut off",
                   60, server.log)


def test_a_process_that_hangs(models):
    """Its watchdog ends it; whoever asked for it hears so, and it comes back."""
    server = models("--watchdog-interval", "2s")
    with beside(server), ThreadPoolExecutor() as pool:
        assert ask(server, TARGET).status == 200
        os.kill(child(server, "target"), signal.SIGSTOP)
        asked = [pool.submit(ask, server, TARGET) for _ in range(16)]
        honest_chats(server, 8)
        assert {one.result().status for one in asked} <= {500, 200}
        assert ask(server, TARGET).status == 200
    assert "target: it stands still" in server.log()


def test_a_process_that_dies_again_and_again(models):
    server = models()
    with beside(server):
        crowd = Crowd(server, OfTarget(lambda i: {"max_tokens": 200, "ignore_eos": True}), ATTACKER)
        for count in range(4):
            wait_until(lambda: card(server, "target")["running"] > 0, "it to be back",
                       60, server.log)
            os.kill(child(server, "target"), signal.SIGKILL)
            honest_chats(server, 2)
            wait_until(lambda: server.metric("inferd_model_failures_total",
                                             model_name="target") > count, "its end to be heard of")
        crowd.enough.set()
        assert {status for status, _ in crowd.join()} <= {200, 500, 503}


def test_a_load_that_fails_again_and_again(models):
    server = models()
    with beside(server):
        answers = attack(server, Crowd(server, OfTarget(lambda i: {"model": "broken"}), ATTACKER,
                                       100))
        assert {status for status, _ in answers} == {503}
        loads = server.metric("inferd_model_loads_total", model_name="broken")
        assert 1 <= loads <= 12, f"a load for each pause, not for each request: {answers[0]}"


def test_everybody_elses_model_is_wanted(models):
    """Memory for three: `honest` answers, so it stays, whatever is asked for beside it."""
    server = models(few=False)
    need = card(server, "target")["memory"]["host"]
    assert server.stop() == 0
    server = models("--models-memory", 3 * need, few=False)
    with beside(server):
        crowd = Crowd(server, Others(), ATTACKER)
        for _ in range(8):
            honest_chats(server, 1)
            assert card(server, "honest")["state"] == "ready"
        wait_until(lambda: len(crowd.answers) > 6, "some of them to be answered", 60, server.log)
        crowd.leave()


class Others(OfTarget):
    connections = OTHERS

    def bodies(self, i):
        yield "/v1/completions", {**TARGET, "model": f"other{i % OTHERS}"}


def test_a_client_that_wants_every_model(models):
    """Room for one beside `honest`, and 40 requests of one client, each for another model: who asks
    for one waits for one or two loads of those, and not for all."""
    server = models(few=False)
    need = card(server, "target")["memory"]["host"]
    assert server.stop() == 0
    server = models("--models-memory", 2 * need, few=False, honest="pin = true\n")
    with beside(server):
        crowd = Crowd(server, Others(), ATTACKER)
        for _ in range(3):
            wait_until(lambda: server.metric("inferd_model_requests", state="waiting") > 30
                       and card(server, "target")["state"] == "unloaded", "a queue", 60, server.log)
            asked = Background(server, TARGET)
            wait_until(lambda asked=asked: asked.times or server.metric(
                "inferd_model_requests", model_name="target", state="waiting"), "it to wait")
            waits = len(server.log())
            asked.join()
            assert asked.failure is None, asked.failure
            loads = re.findall(r"(\w+): loading ", server.log()[waits:])
            # one that loads and one that is due go before it
            assert "target" not in loads or loads.index("target") <= OTHERS / 5, loads
            honest_chats(server, 1)
        crowd.leave()


def chat_with_target(server, name):
    return server.post("/v1/chat/completions", {**CHAT, "model": "target"},
                       headers={"X-Request-Id": name})


def test_chats_with_the_model_that_another_client_floods(models, inferd, tmp_path):
    """One has every place of `target` and a queue behind them. A chat of another begins there
    within the steps of the law, and the other model does not notice."""
    journal = tmp_path / "steps"
    server = models("--max-num-seqs", 16, target=f"journal = {journal}\n")
    with beside(server):
        crowd = Crowd(server, OfTarget(lambda i: {"max_tokens": 200, "ignore_eos": True}), ATTACKER,
                      most=40)
        crowds = [crowd, *(Crowd(server, Many200(), ATTACKER) for _ in range(9))]
        wait_until(lambda: card(server, "target")["running"] >= 36, "every place to be taken",
                   60, server.log)
        names = [f"chat-{i}" for i in range(8)]
        for name in names:
            answer = chat_with_target(server, name)
            assert answer.status == 200 and all(one.running() for one in crowds), answer
            honest_chats(server, 1)
        passed = steps_of_chats(inferd, journal, names)
        for one in crowds:
            one.enough.set()
            assert {status for status, _ in one.join()} <= {200, 429}
    assert all(in_engine <= STEPS_IN_ENGINE for _, in_engine in passed.values()), passed


class Many200(OfTarget):
    def __init__(self):
        super().__init__(lambda i: {"max_tokens": 200, "ignore_eos": True})


def lines_of(names, count, tokens):
    """Of a batch: in turns of these models."""
    return [{"custom_id": f"{i}", "method": "POST", "url": "/v1/completions",
             "body": {**TARGET, "model": names[i % len(names)], "max_tokens": tokens,
                      "ignore_eos": True}} for i in range(count)]


def test_a_batch_of_the_model_that_another_client_chats_with(models, inferd, tmp_path):
    """Beside its lines a chat begins within the steps of the law, in their own model, and the
    other model does not notice. All lines are answered."""
    journal = tmp_path / "steps"
    server = models("--store", tmp_path / "store.db", "--max-num-seqs", 16,
                    target=f"journal = {journal}\n")
    attacker = client(server, ATTACKER)
    with beside(server):
        batches = [create(attacker, upload(attacker, lines_of(["target"], 120, 60)))
                   for _ in range(3)]
        names = [f"chat-{i}" for i in range(8)]
        for name in names:
            wait_until(lambda: server.metric("inferd_batch_lines_in_flight") > 0
                       and card(server, "target")["running"] > 0, "lines to run", 60, server.log)
            answer = chat_with_target(server, name)
            assert answer.status == 200, answer
            honest_chats(server, 1)
        passed = steps_of_chats(inferd, journal, names)
        counts = [wait(attacker, batch).request_counts for batch in batches]
    assert all(in_engine <= STEPS_IN_ENGINE for _, in_engine in passed.values()), passed
    assert [(count.completed, count.failed) for count in counts] == [(120, 0)] * 3


def test_batches_that_name_every_model(models, tmp_path):
    """Room for one beside `honest`, and lines of 40 models in turns: who asks for another one waits
    for a load or two of those, and a stream of it has all of its tokens."""
    server = models(few=False)
    need = card(server, "target")["memory"]["host"]
    assert server.stop() == 0
    server = models("--store", tmp_path / "store.db", "--models-memory", 2 * need, few=False,
                    honest="pin = true\n")
    attacker = client(server, ATTACKER)
    with beside(server):
        batch = create(attacker, upload(attacker, lines_of(
            [f"other{i}" for i in range(OTHERS)], 4 * OTHERS, 2)))
        for _ in range(3):
            before = server.metric("inferd_model_loads_total")
            wait_until(lambda before=before: server.metric("inferd_model_loads_total") > before,
                       "lines to have models loaded", 60, server.log)
            before = server.metric("inferd_model_loads_total")
            assert ask(server, TARGET, HONEST).status == 200
            assert server.metric("inferd_model_loads_total") - before <= OTHERS / 5
            honest_chats(server, 1)
        stream = Background(server, {**STREAM, "model": "target", "max_tokens": 2000}).join()
        assert stream.failure is None and len(ids(stream)) == 2000, stream.failure
        attacker.batches.cancel(batch.id)
        assert wait(attacker, batch).status == "cancelled"


def test_who_is_lost_with_a_process_is_who_ran_in_it(models):
    """Beside a flood of it `target` is killed four times. Of the honest ones each loses the stream
    that runs there, and nothing else: what comes behind waits until it is back, or hears of the
    pause of a model that ends again and again."""
    server = models()
    with beside(server):
        crowd = Crowd(server, Many200(), ATTACKER)
        for count in range(4):
            stream = Background(server, {**STREAM, "model": "target", "max_tokens": 30000})
            assert stream.started.wait(60) and stream.failure is None, stream.failure
            os.kill(child(server, "target"), signal.SIGKILL)
            wait_until(lambda: server.metric("inferd_model_failures_total",
                                             model_name="target") > count, "its end to be heard of")
            while (answer := chat_with_target(server, f"behind-{count}")).status == 503:
                assert "cannot be loaded" in answer.error["message"] and count > 0, answer
            assert answer.status == 200, answer
            assert stream.join().failure is None and "error" in stream.chunks_seen[-1]
            honest_chats(server, 1)
        crowd.enough.set()
        assert {status for status, _ in crowd.join()} <= {200, 500, 503}


def test_clients_that_ask_and_leave(models):
    """Each asks for a model that is not there, and goes: nothing of them is kept, and the model is
    loaded once."""
    server = models("--max-queue-requests", 4096, "--models-wait", "300s")
    with beside(server):
        waits_for_child(server, "target")
        os.kill(child(server, "target"), signal.SIGSTOP)
        request = http_post("/v1/completions", TARGET, f"Authorization: Bearer {ATTACKER}")
        for _ in range(5):
            with contextlib.ExitStack() as stack:
                for _ in range(200):
                    stack.enter_context(contextlib.closing(server.socket())).sendall(request)
                wait_until(lambda: card(server, "target")["waiting"] >= 200, "them to wait",
                           context=lambda: card(server, "target"))
            honest_chats(server, 1)
            wait_until(lambda: card(server, "target")["waiting"] <= 1, "them to be forgotten",
                       context=lambda: card(server, "target"))
        os.kill(child(server, "target"), signal.SIGCONT)
        assert ask(server, TARGET, HONEST).status == 200
        wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "memory to be free")
    assert server.metric("inferd_model_loads_total", model_name="target") == 1
