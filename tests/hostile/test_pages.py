"""Answers that many ask for at once, or that nobody takes: what they hold, and what a turn of the
loop prints of them."""

import contextlib
import json
import signal
import socket
from pathlib import Path

import pytest
import vocabulary
from conftest import ATTACKER, HONEST
from harness import Server, read_all, wait_until
from victim import beside

KIB, MIB = 1 << 10, 1 << 20
CLIENTS = 400
HELD_EACH = 40 * KIB  # that the server has for any connection, its answer aside


def peak(server):
    """Most bytes of memory that the process has had."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


@contextlib.contextmanager
def asking(server, path, count=CLIENTS, window=4096):
    """Clients that have asked for a page, each with a small window for it."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(count)]
        for client in clients:
            client.settimeout(60)
            if window:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
            client.connect(("127.0.0.1", server.port))
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                           f"Authorization: Bearer {ATTACKER}\r\n\r\n".encode())
        yield clients


def unread(server, count):
    wait_until(lambda: server.metric("inferd_connections", state="waiting") >= count,
               "the answers to wait", 20, server.usage)


@pytest.mark.parametrize("path", ["/openapi.json", "/"])
def test_pages_that_nobody_takes_are_not_copied(start, alone, path):
    server = start()
    with beside(server, alone):
        before = peak(server)
        with asking(server, path):
            unread(server, CLIENTS)
            assert peak(server) - before < CLIENTS * HELD_EACH
    assert server.stop() == 0, server.log()


def test_metrics_that_nobody_takes_count(start, alone):
    """What is kept for clients that do not read is within what requests may hold."""
    server, most = start(), 50

    def replies():
        return server.metric("inferd_request_memory_bytes", kind="reply")

    with beside(server, alone):
        with asking(server, "/metrics", most):
            unread(server, most)
            assert replies() >= most * len(server.get("/metrics").body) / 2, replies()
        wait_until(lambda: replies() == 0, "the replies to be free", context=replies)
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "memory to be free")
    assert server.stop() == 0, server.log()


def test_metrics_for_many_at_once(start, alone):
    """They are printed once and sent over several turns of the loop, which has streams to serve."""
    server, count = start(), 64
    with beside(server, alone):
        server.process.send_signal(signal.SIGSTOP)
        with asking(server, "/metrics", count, 0) as clients:
            server.process.send_signal(signal.SIGCONT)
            pages = [read_all(client) for client in clients]
        assert all(page.startswith(b"HTTP/1.1 200 ") for page in pages)
        assert all(page.rstrip(b"\r\n0").count(b"# HELP inferd_step_duration_seconds ") == 1
                   for page in pages)
        printed = server.metric("inferd_reply_turn_bytes_max", scope="all")
        assert sum(map(len, pages)) > 2 * MIB
        assert printed <= MIB + 256 * KIB + count * 16 * KIB, printed
    assert server.stop() == 0, server.log()


def test_ids_that_stand_for_long_texts(request, tmp_path, keys):
    """What /detokenize and an echo make of ids counts before it is made: 400 KB of ids would be
    400 MB of text, and as much again while it is written as UTF-8."""
    size, long, most = 4096, 8192, 64 * MIB
    folder = vocabulary.model(tmp_path / "model", size, vocab_size=size + 1)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": size, "special": False,
                                      "content": "x" * long})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    server = Server(request.config.getoption("--inferd"), folder, "--load-format", "dummy",
                    "--max-request-memory", most, "--api-key-file", keys, "--metrics-auth", "off",
                    key=HONEST)
    ids = [size] * 50_000
    assert server.post("/detokenize", {"tokens": ids[:10]}).json["prompt"] == "x" * 10 * long
    before = peak(server)
    assert server.post("/detokenize", {"tokens": ids}).status == 503
    assert server.post("/v1/completions", {"prompt": ids[:30_000], "echo": True,
                                           "max_tokens": 1}).status == 503
    assert peak(server) - before < most
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "memory to be free", 60)
    assert server.stop() == 0, server.log()
