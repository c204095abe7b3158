"""The socket of a client, lent to the process of the model that streams to it: what goes past the
parent, in which order, and how it ends."""

import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import DEMO, Server, Stream, dummy_model, http_post, wait_until
from test_models import SMALL, ask, card, children
from test_tls import TlsServer, certificate

WORK = {"prompt": "a", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
LONG = {"model": "ant", **WORK}
# Several MB of chunks: more than the kernel keeps for a client that does not read.
LARGE = {**LONG, "max_tokens": 450, "logprobs": 20, "n": 18}
# A window of less than a few segments of the loopback (64 KiB) may be opened again by timers alone,
# which by then stand at up to two minutes.
WINDOW = 256 << 10


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Two models of one layer, whose tokens are sometimes slow enough to be watched."""
    directory = tmp_path_factory.mktemp("zoo")
    model = dummy_model(tmp_path_factory.mktemp("small") / "small", **SMALL)
    (directory / "zoo.conf").write_text("".join(
        f"[model {name}]\nmodel = {model}\nload-format = dummy\nmax-num-seqs = {seqs}\n"
        "max-num-batched-tokens = 1024\n" for name, seqs in (("ant", 512), ("bee", 4))))
    return directory


@pytest.fixture(scope="module")
def server(inferd, zoo):
    server = Server(inferd, DEMO, "--models-dir", zoo)
    yield server
    assert server.stop() == 0, server.log()


def sockets(pid):
    """The sockets that a process has open, each by its own number."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(entry))
        except OSError:
            pass
    return {name for name in found if name.startswith("socket:")}


def lent(server, name):
    return sockets(server.process.pid) & sockets(children(server)[name])


def texts(chunks):
    return "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"])


def whole(server, model, **fields):
    return ask(server, model, **fields).json["choices"][0]["text"]


def read_chunks(raw):
    """All bytes up to the end of the connection -> (head, data of whole chunks, rest)."""
    data = b""
    while part := raw.recv(1 << 16):
        data += part
    head, _, data = data.partition(b"\r\n\r\n")
    body = b""
    while True:
        size, found, after = data.partition(b"\r\n")
        length = int(size, 16) if found else -1
        if length < 0 or len(after) < length + 2:
            return head, body, data
        assert after[length:length + 2] == b"\r\n", after[:length + 20]
        body, data = body + after[:length], after[length + 2:]
        if length == 0:
            return head, body, data


def read_answer(file):
    """One answer of several on a connection -> (status, headers, body)."""
    status = int(file.readline().split()[1])
    headers, body = {}, b""
    while (line := file.readline()) != b"\r\n":
        name, value = line.decode().rstrip("\r\n").split(": ", 1)
        headers[name.lower()] = value
    if "content-length" in headers:
        return status, headers, file.read(int(headers["content-length"]))
    while size := int(file.readline(), 16):
        body += file.read(size)
        assert file.readline() == b"\r\n"
    assert file.readline() == b"\r\n"
    return status, headers, body


def stream_of(server, body, head=()):
    raw = server.socket()
    raw.sendall(http_post("/v1/completions", {**body, "stream": True}, *head))
    return raw


def test_a_stream_goes_on_while_the_parent_stands_still(server):
    work = {**WORK, "max_tokens": 600}
    stream = Stream(server, {"model": "demo", **work})
    events = stream.events()
    # The socket goes along with the request, but is granted behind the first chunks alone.
    chunks = [next(events)[1] for _ in range(100)]
    wait_until(lambda: lent(server, "demo"), "the socket to be lent")
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        chunks += [next(events)[1] for _ in range(300)]
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    chunks += [chunk for _, chunk in events]
    assert texts(chunks) == whole(server, "demo", **work) and stream.done
    wait_until(lambda: not lent(server, "demo"), "the socket to be given back")


@pytest.mark.parametrize("pipelined", [False, True])
def test_models_in_turns_on_one_connection(server, pipelined):
    """A request never reaches the model of the one before, and no byte is lost between them."""
    wanted = {name: whole(server, name, max_tokens=12) for name in ("ant", "demo", "bee")}
    order = ["ant", "demo", "ant", "bee", "demo", "demo", "ant"]
    bodies = [{"model": name, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0,
               "stream": i != 3} for i, name in enumerate(order)]
    with server.socket() as raw:
        requests = [http_post("/v1/completions", body) for body in bodies]
        if pipelined:
            raw.sendall(b"".join(requests))
        file = raw.makefile("rb")
        for name, body, request in zip(order, bodies, requests):
            if not pipelined:
                raw.sendall(request)
            status, headers, data = read_answer(file)
            assert status == 200 and "connection" not in headers
            if body["stream"]:
                events = [line[6:] for line in data.split(b"\n\n") if line]
                assert events.pop() == b"[DONE]"
                assert texts(map(json.loads, events)) == wanted[name], name
                assert {json.loads(event)["model"] for event in events} == {name}
            else:
                assert json.loads(data)["choices"][0]["text"] == wanted[name]


def test_a_request_behind_a_stream_is_checked_by_the_parent(server):
    """What comes while another process writes is read when it is its turn, and strictly."""
    with server.socket() as raw:
        raw.sendall(http_post("/v1/completions", {**LONG, "max_tokens": 50, "stream": True}) +
                    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
                    b"Transfer-Encoding: chunked\r\n\r\n{}")
        _, body, rest = read_chunks(raw)
    assert body.endswith(b"data: [DONE]\n\n") and body.count(b"data: ") == 51
    assert rest.startswith(b"HTTP/1.1 400 ") and rest.count(b"HTTP/1.1") == 1, rest


def test_a_body_larger_than_any_buffer(server):
    """Requests are sent with the descriptor, in as many parts as the socket takes."""
    body = json.dumps({**LONG, "max_tokens": 30, "stream": True}).encode()
    with server.socket() as raw:
        raw.sendall(http_post("/v1/completions", b" " * (4 << 20) + body, "Connection: close"))
        _, data, rest = read_chunks(raw)
    assert data.count(b"data: ") == 31 and data.endswith(b"[DONE]\n\n") and rest == b""


def test_clients_without_chunks_are_answered(server):
    with server.socket() as raw:
        raw.sendall(http_post("/v1/completions", {**LONG, "max_tokens": 30, "stream": True},
                              version="HTTP/1.0"))
        data = b""
        while part := raw.recv(1 << 16):
            data += part
    assert data.count(b"data: ") == 31 and data.endswith(b"data: [DONE]\n\n")


def test_the_end_of_a_process_is_told_behind_a_whole_chunk(start, zoo):
    """And the connection stays: the next request on it finds the model back."""
    server = start(DEMO, "--models-dir", zoo)
    body = {"model": "demo", **WORK, "max_tokens": 8000, "stream": True}
    with server.socket() as raw:
        raw.sendall(http_post("/v1/completions", body))
        file = raw.makefile("rb")
        wait_until(lambda: raw.recv(1 << 14, socket.MSG_PEEK).count(b"data: ") > 8, "the stream")
        os.kill(children(server)["demo"], signal.SIGKILL)
        status, _, data = read_answer(file)
        events = [line[6:] for line in data.split(b"\n\n") if line]
        assert status == 200 and events.pop() == b"[DONE]"
        error = json.loads(events[-1])["error"]
        assert error["code"] == "internal_error" and "`demo`" in error["message"]
        wait_until(lambda: server.metric("inferd_model_failures_total", model_name="demo") == 1,
                   "the end to be heard of")
        raw.sendall(http_post("/v1/completions", {**body, "stream": False, "max_tokens": 4}))
        assert read_answer(file)[0] == 200


def read_stream(raw):
    """What comes up to the end of a stream or of the connection -> (events, the end was said)."""
    data = b""
    while not data.endswith(b"\r\n0\r\n\r\n") and (part := raw.recv(1 << 16)):
        data += part
    head, _, data = data.partition(b"\r\n\r\n")
    body, chunks = data, []
    while b"Transfer-Encoding: chunked" in head:
        size, found, after = data.partition(b"\r\n")
        if not found or int(size, 16) == 0:
            body = b"".join(chunks)
            break
        chunks.append(after[:int(size, 16)])
        data = after[int(size, 16) + 2:]
    return [event[6:] for event in body.split(b"\n\n") if event], body.endswith(b"[DONE]\n\n")


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_the_end_of_a_process_whose_client_reads_nothing(start, zoo, version):
    """Its socket may have a part of a chunk or of an event. Then nothing follows what is cut: the
    connection ends. Else the error is told behind a whole one."""
    server = start(None, "--models-dir", zoo, "--stream-buffer-bytes", "8MiB",
                   "--slow-reader-timeout", "1h")
    with server.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
        raw.sendall(http_post("/v1/completions", {**LARGE, "stream": True}, version=version))
        wait_until(lambda: card(server, "ant")["state"] == "ready", "the model")
        pid = children(server)["ant"]
        assert raw.recv(1, socket.MSG_PEEK), "the stream has begun: before, the answer is a 500"
        wait_until(lambda: server.get("/metrics?model=ant").body.count(b"inferd_") and
                   b'inferd_requests_running{model="ant"} 0' in
                   server.get("/metrics?model=ant").body, "all to be made")
        assert card(server, "ant")["running"] == 1, "it waits for its client"
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.metric("inferd_model_failures_total", model_name="ant") == 1,
                   "the end to be heard of")
        raw.settimeout(30)
        events, ended = read_stream(raw)
    assert events
    if ended:
        assert events.pop() == b"[DONE]"
        error = json.loads(events.pop())["error"]
        assert error["code"] == "internal_error" and "`ant`" in error["message"]
    else:
        events.pop()  # it may be cut
    assert all("choices" in json.loads(event) for event in events)
    assert ask(server, "ant").status == 200


def test_nothing_follows_a_part_of_an_event(start, zoo):
    """A stream whose chunks go past the parent, in events of nearly 1 MB: more than all buffers
    hold, so an event has come in part when its process is killed."""
    server = start(None, "--models-dir", zoo, "--stream-buffer-bytes", "8MiB", "--max-logprobs",
                   100, "--slow-reader-timeout", "1h")
    body = {**LONG, "prompt": [5] * 450, "max_tokens": 1, "echo": True, "logprobs": 100, "n": 14}
    with server.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
        raw.sendall(http_post("/v1/completions", {**body, "stream": True}, version="HTTP/1.0"))
        assert raw.recv(1, socket.MSG_PEEK)
        wait_until(lambda: b'inferd_requests_running{model="ant"} 0' in
                   server.get("/metrics?model=ant").body, "all to be made")
        assert card(server, "ant")["running"] == 1, "it waits for its client"
        os.kill(children(server)["ant"], signal.SIGKILL)
        wait_until(lambda: server.metric("inferd_model_failures_total", model_name="ant") == 1,
                   "the end to be heard of")
        raw.settimeout(30)
        events, ended = read_stream(raw)
    assert events and not ended and b"error" not in events[-1]
    assert all("choices" in json.loads(event) for event in events[:-1])


def test_a_client_that_leaves_is_heard_of_and_its_socket_closed(server):
    stream = Stream(server, {"model": "demo", **WORK, "max_tokens": 8000})
    next(stream.events())
    wait_until(lambda: lent(server, "demo"), "the socket to be lent")
    stream.close()
    wait_until(lambda: card(server, "demo")["running"] == 0, "the passage to end")
    wait_until(lambda: b'inferd_requests_running{model="demo"} 0' in
               server.get("/metrics?model=demo").body, "the request to be cancelled")
    wait_until(lambda: not lent(server, "demo"), "the socket to be closed")


def test_a_slow_reader_gets_all(start, zoo):
    """Its socket is full for as long as it does not read; then the rest comes, in order."""
    server = start(None, "--models-dir", zoo, "--stream-buffer-bytes", "8MiB",
                   "--slow-reader-timeout", "1h")
    expected = [choice["text"] for choice in server.post("/v1/completions", LARGE).json["choices"]]
    with server.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW)
        raw.sendall(http_post("/v1/completions", {**LARGE, "stream": True}, "Connection: close"))
        wait_until(lambda: card(server, "ant")["running"] == 1, "the stream to begin")
        wait_until(lambda: b'inferd_requests_running{model="ant"} 0' in
                   server.get("/metrics?model=ant").body, "all to be made")
        assert card(server, "ant")["running"] == 1, "it waits for its client"
        _, data, rest = read_chunks(raw)
    events = [line[6:] for line in data.split(b"\n\n") if line]
    assert events.pop() == b"[DONE]" and rest == b""
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    assert ["".join(choice["text"] for choice in choices if choice["index"] == index)
            for index in range(LARGE["n"])] == expected


def test_a_thousand_connections(server):
    """More than run at once; every stream is whole, and no descriptor stays behind."""
    expected = whole(server, "ant", **{**WORK, "max_tokens": 24})
    body = {**LONG, "max_tokens": 24}
    before = len(sockets(children(server)["ant"]))
    raws = [stream_of(server, body, ("Connection: close",)) for _ in range(300)]

    def read(raw):
        with raw:
            raw.settimeout(240)
            _, data, rest = read_chunks(raw)
        events = [line[6:] for line in data.split(b"\n\n") if line]
        return events.pop() == b"[DONE]" and rest == b"" and texts(map(json.loads, events))
    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(read, raws)) == {expected}
    # connections of the parent that are kept end after a second without a request
    wait_until(lambda: len(sockets(children(server)["ant"])) <= before + 2, "the sockets to close")


def test_over_a_unix_socket(inferd, zoo, tmp_path):
    server = Server(inferd, DEMO, "--models-dir", zoo, uds=tmp_path / "s.sock")
    work = {**WORK, "max_tokens": 600}
    try:
        stream = Stream(server, {"model": "demo", **work})
        events = stream.events()
        first = next(events)[1]
        wait_until(lambda: lent(server, "demo"), "the socket to be lent")
        expected = whole(server, "demo", **work)
        assert texts([first, *(chunk for _, chunk in events)]) == expected
    finally:
        assert server.stop() == 0


def test_over_tls(inferd, zoo, tmp_path):
    """The socket lent is one end of a pair; the thread that encrypts has the other."""
    certificate(tmp_path)
    server = TlsServer(inferd, tmp_path, "--models-dir", zoo)
    work = {**WORK, "max_tokens": 400}
    try:
        with server.open() as raw:
            file = raw.makefile("rb")
            for body in ({"model": "demo", **work, "stream": True}, {"model": "ant", **work},
                         {"model": "ant", **work, "stream": True}):
                raw.sendall(http_post("/v1/completions", body))
                status, _, data = read_answer(file)
                assert status == 200
                if body.get("stream"):
                    events = [line[6:] for line in data.split(b"\n\n") if line]
                    assert len(events) == 401 and events.pop() == b"[DONE]"
    finally:
        assert server.stop() == 0
