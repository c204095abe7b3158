"""A client that keeps connections open shuts nobody out: idle ones of who has most make room."""

import contextlib
import json
import time

import pytest
from conftest import ATTACKER
from harness import samples, wait_until
from victim import CHAT

MOST = 40  # connections that the server keeps open


def listed(server, connection):
    """Asks for the list of models on a connection that stays open."""
    return server.get("/v1/models", connection=connection).status


def silent(server, stack):
    stack.enter_context(contextlib.closing(server.socket()))


def half_a_head(server, stack):
    raw = stack.enter_context(contextlib.closing(server.socket()))
    raw.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n")


def kept_alive(server, stack):
    connection = stack.enter_context(contextlib.closing(server.connection()))
    connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {ATTACKER}"})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read()


@pytest.mark.parametrize("way", [silent, half_a_head, kept_alive], ids=lambda way: way.__name__)
def test_idle_connections_make_room(start, way):
    server = start("--max-connections", MOST)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(contextlib.closing(server.connection()))
        assert listed(server, own) == 200
        for _ in range(MOST - 1):
            way(server, stack)
        time.sleep(1.5)  # a connection is idle after a second
        for _ in range(30):
            assert server.post("/v1/chat/completions", CHAT).status == 200
        port = own.sock.getsockname()[1]
        assert listed(server, own) == 200
        assert own.sock.getsockname()[1] == port, "an honest connection was closed"
    assert server.stop() == 0, server.log()


def counted(server, connection, name):
    """A metric, read on a connection that stays open: one more for each look would be counted."""
    page = server.get("/metrics", connection=connection)
    return sum(value for _, value in samples(page.body.decode(), [name]))


def test_connections_with_requests_are_not_closed(start):
    """Who comes when all are at work hears that there are too many."""
    server = start("--max-connections", 4)
    body = {"prompt": [1000], "max_tokens": 30000, "ignore_eos": True}
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(contextlib.closing(server.connection()))
        wait_until(lambda: counted(server, own, "inferd_connections") == 1, "the start's to end")
        busy = [stack.enter_context(contextlib.closing(server.connection())) for _ in range(3)]
        for connection in busy:
            connection.request("POST", "/v1/completions", json.dumps(body), {
                "Content-Type": "application/json", "Authorization": f"Bearer {ATTACKER}"})
        wait_until(lambda: counted(server, own, "inferd_requests_running") == 3, "the requests")
        time.sleep(1.5)
        assert server.get("/livez").status == 503  # one idle connection is nobody's excess
        for connection in busy:
            connection.close()
        wait_until(lambda: counted(server, own, "inferd_requests_running") == 0, "them to end")
        wait_until(lambda: counted(server, own, "inferd_connections") == 1, "connections to end")
        assert server.get("/livez").status == 200
    assert server.stop() == 0, server.log()
