"""HTTP as an SDK never sends it: framing, smuggling, slow and rude clients, keep-alive."""

import http.client
import json
import socket
import struct
import threading
import time

import pytest

from harness import DEMO, PATIENCE, Stream, http_post, read_all, statuses, wait_until

BODY = json.dumps({"prompt": "Hello", "max_tokens": 2}).encode()
GOOD = http_post("/v1/completions", BODY)
GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SMUGGLED = b"0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"


def headers(*lines):
    return HEAD + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def chunked(*pieces):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


LENGTH = b"Content-Length: %d" % len(BODY)
# (name, bytes, statuses that are right). All of them must also close the connection.
FRAMING = [
    ("length and chunked", headers(b"Content-Length: 5", b"Transfer-Encoding: chunked") + SMUGGLED,
     {400}),
    ("chunked and length", headers(b"Transfer-Encoding: chunked", b"Content-Length: 5") + SMUGGLED,
     {400}),
    ("two lengths", headers(LENGTH, b"Content-Length: 0") + BODY, {400}),
    ("two equal lengths", headers(LENGTH, LENGTH) + BODY, {400}),
    ("length list", headers(b"Content-Length: 5, 5") + BODY, {400}),
    ("length letters", headers(b"Content-Length: abc") + BODY, {400}),
    ("length negative", headers(b"Content-Length: -1") + BODY, {400}),
    ("length plus", headers(b"Content-Length: +5") + BODY, {400}),
    ("length hex", headers(b"Content-Length: 0x19") + BODY, {400}),
    ("length empty", headers(b"Content-Length:") + BODY, {400}),
    ("length huge", headers(b"Content-Length: 99999999999999999999") + BODY, {400, 413}),
    ("encoding gzip", headers(b"Transfer-Encoding: gzip") + BODY, {400}),
    ("encoding twice", headers(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked")
     + chunked(BODY), {400}),
    ("encoding disguised", headers(b"Transfer-Encoding: xchunked") + BODY, {400}),
    ("encoding in 1.0", b"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n"
     b"Content-Type: application/json\r\n\r\n" + chunked(BODY), {400}),
    ("space before colon", headers(b"Content-Length : 5") + BODY, {400}),
    ("no host", b"GET /v1/models HTTP/1.1\r\n\r\n", {400}),
    ("two hosts", b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", {400}),
    ("control in name", headers(b"X\x01Y: 1", LENGTH) + BODY, {400}),
    ("control in value", headers(b"X-Y: a\x01b", LENGTH) + BODY, {400}),
    ("http/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {505}),
    ("http/3.0", b"GET /v1/models HTTP/3.0\r\nHost: localhost\r\n\r\n", {505}),
    ("long line", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", {414}),
    ("long header", headers(b"X-Long: " + b"a" * 100000, LENGTH), {431}),
    ("many headers", headers(*[b"X-%d: 1" % i for i in range(5000)], LENGTH), {431}),
    ("nul in path", b"GET /v1/models%00x HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
    ("bad chunk size", headers(b"Transfer-Encoding: chunked") + b"zz\r\nabc\r\n0\r\n\r\n", {400}),
    ("chunk size overflow", headers(b"Transfer-Encoding: chunked")
     + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n", {400, 413}),
    ("tls hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64, {400}),
    ("bare lf", GET.replace(b"\r\n", b"\n"), {400}),
    ("nul in value", headers(b"Authorization: Bearer KEY\0x", LENGTH) + BODY, {400}),
    ("folded line", headers(b"X-Y: a", b" b", LENGTH) + BODY, {400}),
    ("chunk extension", headers(b"Transfer-Encoding: chunked")
     + b"%x;name=value\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY), {400}),
    ("bare lf behind a size", headers(b"Transfer-Encoding: chunked")
     + b"%x\n%s\r\n0\r\n\r\n" % (len(BODY), BODY), {400}),
]


@pytest.mark.parametrize("name,sent,expected", FRAMING,
                         ids=[row[0].replace(" ", "-") for row in FRAMING])
def test_framing(server, name, sent, expected):
    """One refusal in JSON, then the end: what follows is never taken for a request."""
    received = server.raw(sent, half_close=name == "tls hello")
    found = statuses(received)
    assert len(found) == 1 and found[0] in expected, received[:300]
    head, _, body = received.partition(b"\r\n\r\n")
    assert json.loads(body)["error"]["message"] and b"x-request-id: " in head.lower(), received
    assert server.choice("Hello", max_tokens=1)


def test_smuggled_request_is_not_answered(server):
    before = server.metrics()
    both = headers(b"Content-Length: 4", b"Transfer-Encoding: chunked")
    received = server.raw(both + SMUGGLED * 3)
    assert statuses(received) == [400]
    after = server.metrics()
    models = [k for k in after if k[0] == "inferd_http_requests_total"
              and ("route", "/v1/models") in k[1]]
    for key in models:
        assert after[key] == before.get(key, 0)


def test_chunked_body(server):
    """A body in one-byte chunks, or with a trailer, is a body."""
    pieces = [BODY[i:i + 1] for i in range(len(BODY))]
    plain = headers(b"Transfer-Encoding: chunked", b"Connection: close") + chunked(*pieces)
    odd = (headers(b"Transfer-Encoding: chunked", b"Connection: close")
           + b"%x\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(BODY), BODY))
    for sent in (plain, odd):
        received = server.raw(sent)
        assert statuses(received) == [200], received
        assert b'"text_completion"' in received


def test_body_in_pieces(server):
    """Every split of headers and body over packets gives the same answer."""
    sent = http_post("/v1/completions", BODY, "Connection: close")
    for step in (1, 7, 64):
        with server.socket() as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(0, len(sent), step):
                connection.sendall(sent[at:at + step])
            assert statuses(read_all(connection)) == [200]


def test_keep_alive(server):
    connection = server.connection()
    first = None
    for _ in range(100):
        answer = server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 1},
                             connection=connection)
        assert answer.status == 200
        first = first or connection.sock
        assert connection.sock is first, "the connection was not kept"
    connection.close()


def test_errors_keep_the_connection(server):
    """A refused value is no reason to cut the connection."""
    connection = server.connection()
    for _ in range(5):
        assert server.post("/v1/completions", {}, connection=connection).status == 400
        first = connection.sock
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1},
                           connection=connection).status == 200
        assert connection.sock is first
    connection.close()


def test_pipelining(server):
    """Requests sent at once are answered in order, a stream between two others included."""
    stream = json.dumps({"prompt": "Hello", "max_tokens": 2, "stream": True}).encode()
    ids = [f"pipe-{i}" for i in range(4)]
    bodies = [BODY, stream, BODY, BODY]
    sent = [http_post("/v1/completions", b, f"X-Request-Id: {i}") for b, i in zip(bodies, ids)]
    sent[-1] = http_post("/v1/completions", BODY, f"X-Request-Id: {ids[-1]}", "Connection: close")
    received = server.raw(b"".join(sent))
    assert statuses(received) == [200] * 4
    places = [received.find(f"cmpl-{i}".encode()) for i in ids]
    assert -1 not in places and places == sorted(places)


def test_http_1_0(server):
    received = server.raw(http_post("/v1/completions", BODY, version="HTTP/1.0"))
    assert statuses(received) == [200]
    assert b"chunked" not in received.split(b"\r\n\r\n")[0].lower()
    stream = json.dumps({"prompt": "Hello", "max_tokens": 2, "stream": True}).encode()
    received = server.raw(http_post("/v1/completions", stream, version="HTTP/1.0"))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"chunked" not in head.lower() and body.endswith(b"data: [DONE]\n\n")


def test_expect_continue(server):
    """100 only after the checks: a body that is too large is refused without having been sent."""
    head = headers(b"Expect: 100-continue", LENGTH, b"Connection: close")
    with server.socket() as connection:
        connection.sendall(head)
        assert statuses(connection.recv(4096)) == [100]
        connection.sendall(BODY)
        assert statuses(read_all(connection)) == [200]
    too_large = headers(b"Expect: 100-continue", b"Content-Length: %d" % (1 << 30))
    assert statuses(server.raw(too_large)) == [413]


def test_body_too_large(server):
    """Decided from Content-Length alone; a chunked one is cut at the limit."""
    answer = server.raw(headers(b"Content-Length: %d" % ((16 << 20) + 1)))
    assert statuses(answer) == [413]
    assert b'"body_too_large"' in answer
    piece = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    found = statuses(server.raw(headers(b"Transfer-Encoding: chunked"), *[piece] * 24))
    assert found in ([], [413])


def test_head_and_options(server):
    answer = server.request("HEAD", "/v1/models")
    assert (answer.status, answer.body) == (200, b"")
    answer = server.request("OPTIONS", "/v1/completions")
    assert answer.status == 204 and "POST" in answer.headers["allow"]
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("method,path,allow", [
    ("GET", "/v1/completions", "POST"), ("PUT", "/v1/completions", "POST"),
    ("DELETE", "/v1/models", "GET"), ("POST", "/v1/models", "GET"), ("POST", "/metrics", "GET"),
    ("PATCH", "/tokenize", "POST")])
def test_wrong_method(server, method, path, allow):
    answer = server.request(method, path, body="{}" if method != "GET" else None)
    assert answer.status == 405
    assert allow in answer.headers["allow"]
    assert answer.error["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/v1/models/", "//v1//models", "/v1/models?x=1", "/models"])
def test_path_forms(server, path):
    assert server.get(path).json["object"] == "list"


def test_request_id(server):
    answer = server.get("/v1/models", headers={"X-Request-Id": "abc-1.2:3_x"})
    assert answer.headers["x-request-id"] == "abc-1.2:3_x"
    answer = server.get("/v1/models", headers={"X-Client-Request-Id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    for bad in ("a" * 129, "a b", "x\u00e9", "<script>"):
        answer = server.get("/v1/models", headers={"X-Request-Id": bad.encode("latin-1")})
        given = answer.headers["x-request-id"]
        assert len(given) == 32 and int(given, 16) >= 0


def test_same_request_id_twice_at_once(server):
    body = {"prompt": "Hello", "max_tokens": 32, "ignore_eos": True}
    streams = [Stream(server, body, {"X-Request-Id": "twin"}) for _ in range(2)]
    assert [len(s.chunks()) for s in streams] == [32, 32]


def test_host_and_origin(server):
    """A web page must not reach a loopback server: not by DNS rebinding, not by a form."""
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example"):
        answer = server.get("/v1/models", headers={"Host": host})
        assert (answer.status, answer.error["code"]) == (403, "host_not_allowed")
    for host in ("localhost", "127.0.0.1:1234", "[::1]", "LOCALHOST"):
        assert server.get("/v1/models", headers={"Host": host}).status == 200
    answer = server.get("/v1/models", headers={"Origin": "http://evil.example"})
    assert (answer.status, answer.error["code"]) == (403, "origin_not_allowed")


def test_half_close_means_gone(start):
    """By default a client that closes its sending side is gone; --half-close allow serves it."""
    body = json.dumps({"prompt": "Hello", "max_tokens": 2}).encode()
    request = http_post("/v1/completions", body, "Connection: close")
    allowing = start(DEMO, "--half-close", "allow")
    assert statuses(allowing.raw(request, half_close=True)) == [200]
    strict = start(DEMO, "--half-close", "cancel")
    long = json.dumps({"prompt": "Hello", "max_tokens": 8000, "ignore_eos": True, "stream": True})
    with strict.socket() as connection:
        connection.sendall(http_post("/v1/completions", long.encode()))
        connection.recv(1)
        connection.shutdown(socket.SHUT_WR)
        received = read_all(connection)
    assert b"[DONE]" not in received
    wait_until(strict.idle, "the half-closed request to leave", context=strict.usage)
    assert strict.metric("inferd_aborted_total", cause="disconnect") == 1


def test_slow_headers_and_bodies(start):
    """Both have a deadline; meanwhile others are served."""
    server = start(DEMO, "--header-timeout", "1", "--body-timeout", "1")
    slow = [server.socket() for _ in range(50)]
    for at, connection in enumerate(slow):
        connection.sendall(HEAD if at % 2 else headers(b"Content-Length: 100") + b"{")
    begin = time.monotonic()
    assert server.choice("Hello", max_tokens=1)
    for at, connection in enumerate(slow):
        received = read_all(connection)
        assert statuses(received) in ([408], []), received
        connection.close()
    assert time.monotonic() - begin >= 0.5
    wait_until(lambda: server.metric("inferd_connections", state="reading") == 0,
               "the slow connections to be gone")


def test_dribbling_does_not_extend_the_deadline(start):
    server = start(DEMO, "--header-timeout", "1")
    begin = time.monotonic()
    with server.socket() as connection:
        connection.sendall(HEAD)
        try:
            while time.monotonic() - begin < 15 * PATIENCE:
                connection.sendall(b"X-A: b\r\n")
                time.sleep(0.1)
                connection.settimeout(0.001)
                try:
                    if connection.recv(4096) == b"":
                        break
                except TimeoutError:
                    continue
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert time.monotonic() - begin < 14 * PATIENCE


def test_reset_storm(server):
    """Hundreds of connections cut at every stage; the shared fixture then checks for leftovers."""
    linger = struct.pack("ii", 1, 0)
    long = json.dumps({"prompt": "Hello", "max_tokens": 100, "ignore_eos": True,
                       "stream": True}).encode()
    request = http_post("/v1/completions", long)
    for at in range(300):
        connection = server.socket()
        connection.sendall(request[:1 + at * len(request) // 250])
        if at % 3 == 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()
    assert server.choice("Hello", max_tokens=1)


def test_slow_reader_is_cut(start):
    """A stream that nobody reads stops holding KV blocks."""
    server = start(DEMO, "--stream-buffer-bytes", "4096", "--slow-reader-timeout", "1")
    length = server.max_model_len()
    body = json.dumps({"prompt": "Hello", "max_tokens": length - 16, "ignore_eos": True,
                       "stream": True, "logprobs": 20}).encode()
    connections = []
    for _ in range(4):
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect((server.host, server.port))
        connection.sendall(http_post("/v1/completions", body))
        connections.append(connection)
    wait_until(lambda: server.metric("inferd_aborted_total", cause="slow_reader") == 4,
               "four slow readers to be cut", 60, server.usage)
    wait_until(server.idle, "their blocks to be free", context=server.usage)
    for connection in connections:
        connection.close()


def test_memory_of_clients_that_left(start):
    """Clients send large bodies and leave at once, more than the memory for requests holds; when
    they are gone nothing is counted any more, and no reply printed more in a turn than it may."""
    server = start(DEMO, "--max-request-memory", "32MiB", "--max-body-bytes", "4MiB")
    body = json.dumps({"prompt": "ab cd " * (600 << 10), "max_tokens": 1}).encode()
    request = http_post("/v1/completions", body)
    for _ in range(40):
        connection = server.socket()
        try:
            connection.sendall(request)
        except OSError:
            pass  # refused before its body had arrived
        connection.close()
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "the memory to be free",
               60, server.usage)
    ids = [5 + i % 200 for i in range(1500)]
    answer = server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "n": 60,
                                             "return_token_ids": True})
    choices = answer.json["choices"]
    assert [choice["prompt_token_ids"] for choice in choices] == [ids] * 60
    assert answer.headers["transfer-encoding"] == "chunked"
    assert 0 < server.metric("inferd_reply_turn_bytes_max", scope="one") <= 256 << 10


def test_metrics_while_requests_hold_all_memory(start):
    """A body that is on its way leaves less than a page of metrics; the page comes all the same."""
    most = 128 << 10
    server = start(DEMO, "--max-request-memory", most, "--max-body-bytes", most)
    with server.socket() as connection:
        connection.sendall(http_post("/v1/completions", b" " * most)[:-(8 << 10)])
        wait_until(lambda: server.metric("inferd_request_memory_bytes", kind="body") > most / 2,
                   "the body to be counted", 60, server.usage)
        for _ in range(8):  # one after the other: each page gives back what it took
            assert server.get("/metrics").status == 200
        assert server.metric("inferd_request_memory_bytes") <= most


def test_many_connections_at_once(server):
    """256 idle connections and a probe; none of them is refused."""
    connections = [server.socket() for _ in range(256)]
    assert server.choice("Hello", max_tokens=1)
    for connection in connections:
        connection.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    for connection in connections:
        assert statuses(read_all(connection)) == [200]
        connection.close()


def test_requests_in_parallel_threads(server):
    """Many small requests over many kept connections."""
    failures = []

    def work():
        connection = http.client.HTTPConnection(server.host, server.port, timeout=60 * PATIENCE)
        for _ in range(20):
            answer = server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 1},
                                 connection=connection)
            if answer.status != 200:
                failures.append(answer)
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
