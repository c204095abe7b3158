"""Servers that restart, and that die, behind proxies with the examples of docs/examples/proxies.

Every request is counted: lost (no answer, or an error), cut (a stream without its end), or wrong (a
text that a server alone does not give).
"""

import http.client
import json
import re
import signal
import threading
import time
from collections import Counter

import pytest

from conftest import ROOT
from harness import DEMO, Server, wait_until
from ports import free_port

EXAMPLES = ROOT / "docs/examples/proxies"
CLIENTS = 8
BODIES = [{"prompt": f"Once upon a time there were {n}", "max_tokens": 4 + n % 9, "temperature": 0,
           "ignore_eos": True} for n in range(40)]


def text_of(answer, streamed):
    """The text of an answer's body; None if it ends too early."""
    if not streamed:
        return json.loads(answer)["choices"][0]["text"]
    events = [line[6:] for line in answer.decode().splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        return None
    return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


class Load:
    """Clients that ask through a proxy, without a retry of their own, until `stop`."""

    def __init__(self, port, texts, count, streams=True):
        self.port, self.texts, self.count, self.streams = port, texts, count, streams
        self.outcomes, self.failures = Counter(), []
        self.lock = threading.Lock()
        self.begun = 0
        self.busy = True  # more than `count` if the restarts take longer
        self.threads = [threading.Thread(target=self.run) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def next(self):
        with self.lock:
            if self.begun >= self.count and not self.busy:
                return None
            self.begun += 1
            return self.begun

    def ask(self, connection, number):
        body = BODIES[number % len(BODIES)]
        streamed = self.streams and number % 2 == 0
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": streamed}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        payload = answer.read()
        if answer.status != 200:
            return f"lost: {answer.status} {payload[:200]}"
        text = text_of(payload, streamed)
        if text is None:
            return f"cut: {payload[-200:]}"
        return "right" if text == self.texts[number % len(BODIES)] else f"wrong: {text}"

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        while number := self.next():
            try:
                outcome = self.ask(connection, number)
            except (OSError, http.client.HTTPException) as fault:
                outcome = f"lost: {fault!r}"
                connection.close()
            with self.lock:
                self.outcomes[outcome.split(":")[0]] += 1
                if outcome != "right":
                    self.failures.append((number, outcome))
        connection.close()

    def finish(self):
        self.busy = False
        for thread in self.threads:
            thread.join(600)


class Fleet:
    """Three servers, and a proxy with an example of docs/examples/proxies before them."""

    def __init__(self, inferd, launch, folder, example):
        self.inferd = inferd
        self.text = (EXAMPLES / example).read_text()
        flags = re.search(r"inferd serve MODEL --port 8001 ?(.*)", self.text)[1].split()
        self.flags = [*flags, "--max-num-seqs", "16"]
        self.servers = [Server(inferd, DEMO, *self.flags) for _ in range(3)]
        self.port = free_port()
        ports = [self.port, *(server.port for server in self.servers)]
        text = self.text
        for old, new in zip(range(8000, 8004), ports):
            text = re.sub(rf"(127.0.0.1:|--port ){old}\b", rf"\g<1>{new}", text)
        self.file = folder / example
        if example.startswith("nginx"):
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
                text = text.replace("http {", f"http {{\n{kind}_temp_path {folder}/{kind};", 1)
            self.file.write_text(text)
            launch("nginx", "-c", self.file, "-p", folder, "-e", folder / "error.log", "-g",
                   f"daemon off; pid {folder}/nginx.pid; user root; error_log {folder}/error.log;")
        elif example.startswith("haproxy"):
            self.file.write_text(text)
            launch("haproxy", "-db", "-f", self.file)
        else:
            self.file.write_text(text)
            launch("sh", self.file)
        wait_until(self.answers, "the proxy", 60)

    def answers(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            connection.request("GET", "/v1/models")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def end(self, index, how):
        server = self.servers[index]
        server.process.send_signal(how)
        status = server.wait_exit(120)
        assert status == (0 if how == signal.SIGTERM else -signal.SIGKILL), server.log()

    def begin(self, index):
        """It starts, and the proxy has time to see it: its checks come every 0.5 s."""
        port = self.servers[index].port
        self.servers[index] = Server(self.inferd, DEMO, *self.flags, port=port)
        time.sleep(2)

    def stop(self):
        for server in self.servers:
            server.stop()


@pytest.fixture
def fleet(inferd, launch, tmp_path):
    made = []

    def make(example):
        made.append(Fleet(inferd, launch, tmp_path, example))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture(scope="module")
def texts(inferd):
    """The answers of a server alone."""
    server = Server(inferd, DEMO)
    answers = [server.post("/v1/completions", body).json["choices"][0]["text"] for body in BODIES]
    assert server.stop() == 0
    return answers


@pytest.mark.parametrize("example", ["nginx.conf", "nginx-retries.conf", "haproxy.cfg",
                                     "haproxy-retries.cfg", "vllm-router.sh"])
def test_restarts_lose_nothing(fleet, texts, request, example):
    count = request.config.getoption("--requests")
    group = fleet(example)
    load = Load(group.port, texts, count)
    begin = time.monotonic()
    for restart in range(9):
        group.end(restart % 3, signal.SIGTERM)
        group.begin(restart % 3)
    load.finish()
    print(f"{example}: {load.begun} requests in {time.monotonic() - begin:.0f} s, nine restarts: "
          f"{dict(load.outcomes)}")
    assert load.outcomes == {"right": load.begun}, load.failures[:20]
    assert load.begun >= count


def test_a_killed_server_loses_no_answer(fleet, texts, request):
    """kill -9 behind HAProxy with retries: what is not streamed reaches another server."""
    count = request.config.getoption("--requests") // 5
    group = fleet("haproxy-retries.cfg")
    load = Load(group.port, texts, count, streams=False)
    for kill in range(6):
        group.end(kill % 3, signal.SIGKILL)
        group.begin(kill % 3)
    load.finish()
    print(f"{load.begun} requests, six kills: {dict(load.outcomes)}")
    assert load.outcomes == {"right": load.begun}, load.failures[:20]
