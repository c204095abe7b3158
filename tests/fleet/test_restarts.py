"""Servers that restart, and that die, behind proxies with the examples of docs/examples/proxies.

Every request is counted (load.py): none may be lost, cut or wrong.
"""

import http.client
import re
import signal
import time

import pytest

from conftest import ROOT
from harness import DEMO, Server, wait_until
from load import Load
from ports import free_port

EXAMPLES = ROOT / "docs/examples/proxies"


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
            text = re.sub(rf"(127.0.0.1:|--port |port_value: ){old}\b", rf"\g<1>{new}", text)
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
        elif example.startswith("envoy"):
            self.file.write_text(text)
            launch("envoy", "-c", self.file, "--disable-hot-restart", "-l", "error")
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


@pytest.mark.parametrize("example", ["nginx.conf", "nginx-retries.conf", "haproxy.cfg",
                                     "haproxy-retries.cfg", "envoy.yaml", "vllm-router.sh"])
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


@pytest.mark.parametrize("example", ["haproxy.cfg", "haproxy-retries.cfg"])
def test_busy_servers_are_not_left(fleet, texts, example):
    """All servers answer a check late, as on a host that is busy: they stay in use."""
    group = fleet(example)
    load = Load(group.port, texts, 500)
    for _ in range(3):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for server in group.servers:
                server.process.send_signal(number)
            time.sleep(0.8)
    load.finish()
    assert load.outcomes == {"right": load.begun}, load.failures[:20]


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
