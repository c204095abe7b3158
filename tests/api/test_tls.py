"""TLS by --tls-cert: what clients of OpenSSL see, what is refused, and what a client that
misbehaves may hold."""

import datetime
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from openai import OpenAI

from certificates import certificate
from harness import (DEMO, SLOWNESS, Server, Stream, http_post, read_all, reload_text, run,
                     statuses, wait_until)

LONG = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True}


class TlsServer(Server):
    """A server whose clients verify its certificate."""

    def __init__(self, inferd, directory, *flags, **options):
        self.context = ssl.create_default_context(cafile=str(directory / "localhost.pem"))
        super().__init__(inferd, DEMO, "--tls-cert", directory / "localhost.pem",
                         "--tls-key", directory / "localhost.key", *flags, **options)

    def connection(self, timeout_s=60):
        return http.client.HTTPSConnection("localhost", self.port, context=self.context,
                                           timeout=timeout_s * 4 * SLOWNESS)

    def open(self, context=None):
        return (context or self.context).wrap_socket(self.socket(), server_hostname="localhost")


@pytest.fixture
def keys(tmp_path):
    certificate(tmp_path)
    return tmp_path


@pytest.fixture
def tls(inferd):
    """Starts servers with TLS; their ends are checked."""
    servers = []

    def make(directory, *flags, **options):
        servers.append(TlsServer(inferd, directory, *flags, **options))
        return servers[-1]

    yield make
    for server in servers:
        if server.alive():
            wait_until(server.idle, "the server to be idle", context=server.usage)
        assert server.stop() == server.expected_exit, server.log()


def handshakes(server, result):
    return server.metric("inferd_tls_handshakes_total", result=result)


def test_requests_and_streams_over_tls(tls, keys, server):
    """Answers are those of a plain server, by Python, curl and the SDK of OpenAI."""
    secure = tls(keys)
    body = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}
    plain = server.choice(**body)["text"]
    assert secure.choice(**body)["text"] == plain
    chunks = Stream(secure, body).chunks()
    assert "".join(c["choices"][0]["text"] for c in chunks if c["choices"]) == plain
    base = f"https://localhost:{secure.port}"
    curl = subprocess.run(["curl", "-sS", "--cacert", keys / "localhost.pem", "-d",
                           json.dumps(body), "-H", "Content-Type: application/json",
                           f"{base}/v1/completions"], stdout=subprocess.PIPE, check=True)
    assert json.loads(curl.stdout)["choices"][0]["text"] == plain
    os.environ["SSL_CERT_FILE"] = str(keys / "localhost.pem")
    try:
        client = OpenAI(base_url=f"{base}/v1", api_key="none")
        parts = client.completions.create(model="demo", stream=True, **body)
        assert "".join(part.choices[0].text for part in parts if part.choices) == plain
    finally:
        del os.environ["SSL_CERT_FILE"]
    assert "with TLS" in secure.log() and "certificate: CN=localhost" in secure.log()
    assert handshakes(secure, "ok") >= 4 and handshakes(secure, "failed") == 0


def test_large_bodies_and_pipelined_requests(tls, keys):
    """More bytes than a record, a pair of sockets or a buffer has, in both directions."""
    server = tls(keys)
    text = "word " * 200000
    answer = server.post("/tokenize", {"prompt": text, "return_token_strs": True})
    assert answer.status == 200 and answer.json["count"] >= 200000
    one = http_post("/v1/completions", {"prompt": "a", "max_tokens": 1})
    with server.open() as connection:
        connection.sendall(one * 20 + b"GET /livez HTTP/1.1\r\nHost: x\r\n"
                           b"Connection: close\r\n\r\n")
        assert statuses(read_all(connection)) == [200] * 21


def test_the_strict_reader_sees_what_was_decrypted(tls, keys):
    server = tls(keys)
    with server.open() as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                           b"Content-Length: 3\r\n\r\n{}")
        assert statuses(read_all(connection)) == [400]
    with server.open() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\nHost: x\n\n")
        assert statuses(read_all(connection)) == [400]


def test_versions_and_protocols(tls, keys):
    """TLS 1.2 and 1.3 alone; http/1.1 is chosen, and a client that has only h2 is told so."""
    server = tls(keys)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=str(keys / "localhost.pem"))
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2", "http/1.1"])
        with server.open(context) as connection:
            assert connection.selected_alpn_protocol() == "http/1.1"
            assert connection.cipher()[0].startswith(("ECDHE-", "TLS_")), "forward secrecy"
    for version, words in ((ssl.TLSVersion.TLSv1_1, "alert protocol version"),
                           (ssl.TLSVersion.TLSv1, "alert protocol version")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = version
        with pytest.raises(ssl.SSLError, match=words):
            server.open(context)
    only_h2 = ssl.create_default_context(cafile=str(keys / "localhost.pem"))
    only_h2.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError, match="no application protocol"):
        server.open(only_h2)
    weak = ssl.create_default_context(cafile=str(keys / "localhost.pem"))
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("ECDHE-ECDSA-AES128-SHA256:AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError, match="handshake failure"):
        server.open(weak)


def test_what_is_no_handshake_gets_an_answer_or_an_end(tls, keys):
    server = tls(keys, "--header-timeout", "1s")
    plain = server.raw(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert statuses(plain) == [400] and b"use https in the URL" in plain
    json.loads(plain.split(b"\r\n\r\n", 1)[1])
    for garbage in (bytes(range(256)) * 12, b"\x16\x03\x01\xff\xff" + bytes(200), b"\x80" * 50,
                    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x17\x03\x03\x00\x02ab"):
        server.raw(garbage)  # ends, at the latest when the time for headers is over
    assert handshakes(server, "failed") + handshakes(server, "timeout") == 6
    assert handshakes(server, "failed") >= 3
    assert server.choice("a", max_tokens=1)["text"]


def test_a_handshake_that_does_not_end_holds_nothing(tls, keys):
    """Silent clients and half handshakes are closed after --header-timeout; meanwhile others are
    served, and afterwards no descriptor is left."""
    server = tls(keys, "--header-timeout", "2s", "--log-level", "debug")
    assert server.choice("a", max_tokens=1)["text"]
    files = f"/proc/{server.process.pid}/fd"
    before = len(os.listdir(files))
    hello = ssl.MemoryBIO()
    half = server.context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    first = hello.read()
    held = [server.socket() for _ in range(40)]
    for i, connection in enumerate(held):
        connection.sendall(first[:len(first) if i % 2 else 50] if i % 4 else b"")
    assert server.choice("a", max_tokens=1)["text"]
    for connection in held:
        read_all(connection)  # until the server closes
        connection.close()
    assert handshakes(server, "timeout") == 40
    wait_until(lambda: len(os.listdir(files)) <= before, "descriptors to be closed")


def test_a_client_that_leaves_is_noticed(tls, keys):
    """A stream whose client goes away, with and without a goodbye, ends in the engine too."""
    server = tls(keys, "--max-model-len", 8192)
    for polite in (True, False):
        before = server.metric("inferd_aborted_total")
        stream = Stream(server, LONG)
        next(stream.events())
        if polite:
            stream.connection.sock.settimeout(10)
            try:
                stream.connection.sock.unwrap()
            except (ssl.SSLError, OSError, ValueError):
                pass
        stream.close()
        wait_until(lambda: server.metric("inferd_aborted_total") == before + 1, "the abort",
                   context=server.log)
        wait_until(server.idle, "the blocks to be free")


def test_a_slow_reader_is_cut_and_delays_nobody(tls, keys):
    server = tls(keys, "--slow-reader-timeout", "2s", "--max-model-len", 8192,
                 "--stream-buffer-bytes", 8192)
    raw = server.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with server.context.wrap_socket(raw, server_hostname="localhost") as connection:
        connection.sendall(http_post("/v1/completions", {**LONG, "stream": True, "n": 8,
                                                         "logprobs": 5}))
        wait_until(lambda: server.metric("inferd_aborted_total") == 1, "the cut", 60,
                   context=server.log)
        assert server.choice("a", max_tokens=1)["text"]
    wait_until(server.idle, "the blocks to be free")


def test_the_last_bytes_leave_before_the_process_does(tls, keys):
    """A drain that is cut short still sends the error event and the end of the session."""
    server = tls(keys, "--drain-timeout", "0.3s", "--max-model-len", 8192)
    stream = Stream(server, LONG)
    events = stream.events()
    next(events)
    server.process.send_signal(signal.SIGTERM)
    last = [event for _, event in events][-1]
    assert last["error"]["code"] == "draining" and stream.done
    assert server.wait_exit(20) == 0


def peer_serial(server, context=None):
    context = context or ssl._create_unverified_context()  # pylint: disable=protected-access
    with server.open(context) as connection:
        return x509.load_der_x509_certificate(connection.getpeercert(True)).serial_number


def test_a_reload_serves_the_new_certificate(tls, keys):
    """SIGHUP: new connections get the new certificate, old ones and their streams go on; a broken
    file is said, and the old certificate stays."""
    file = keys / "inferd.conf"
    file.write_text("\n")
    server = tls(keys, "--config", file, "--max-model-len", 8192, "--tls-refresh", 0)
    old = peer_serial(server)
    stream = Stream(server, {**LONG, "max_tokens": 300})
    events = stream.events()
    next(events)
    new, _ = certificate(keys)
    assert peer_serial(server) == old, "not before SIGHUP"
    server.context = ssl._create_unverified_context()  # pylint: disable=protected-access
    said = reload_text(server, "\n", file)
    assert "certificate: CN=localhost" in said, said
    assert peer_serial(server) == new.serial_number
    assert sum(1 for _ in events) >= 299 and stream.done, "the old session goes on"
    key = (keys / "localhost.key").read_text()
    for text, words in (("", "localhost.key has 0 bytes"), ("no key", "holds no private key")):
        (keys / "localhost.key").write_text(text)
        said = reload_text(server, "\n", file, result="rejected")
        assert words in said and "old values stay" in said, said
        assert peer_serial(server) == new.serial_number
    (keys / "localhost.key").write_text(key)
    reload_text(server, "\n", file)
    assert server.metric("inferd_tls_certificate_expiry_timestamp_seconds") == \
        new.not_valid_after_utc.timestamp()


def test_new_files_are_served_without_a_signal(tls, keys):
    """--tls-refresh: as programs that renew certificates, and mounted Secrets, replace them."""
    server = tls(keys, "--tls-refresh", "50ms")
    server.context = ssl._create_unverified_context()  # pylint: disable=protected-access
    new, _ = certificate(keys)
    wait_until(lambda: peer_serial(server) == new.serial_number, "the new certificate")
    (keys / "localhost.key").write_text("no key")
    wait_until(lambda: "the old certificate stays" in server.log(), "the broken key")
    assert peer_serial(server) == new.serial_number
    newer, _ = certificate(keys, stem="fresh")
    for kind in ("key", "pem"):
        (keys / f"fresh.{kind}").rename(keys / f"localhost.{kind}")
    wait_until(lambda: peer_serial(server) == newer.serial_number, "the third certificate")
    assert server.log().count("certificate: CN=localhost") == 3, server.log()


def test_resumed_sessions_end_with_the_certificate(tls, keys):
    """A client resumes its session, but not across a reload."""
    server = tls(keys)
    server.context.maximum_version = ssl.TLSVersion.TLSv1_2
    with server.open() as connection:
        session = connection.session
    with server.context.wrap_socket(server.socket(), server_hostname="localhost",
                                    session=session) as connection:
        assert connection.session_reused
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "keys read again" in server.log(), "the reload")
    with server.context.wrap_socket(server.socket(), server_hostname="localhost",
                                    session=session) as connection:
        assert not connection.session_reused


def test_clients_with_certificates(tls, keys, inferd):
    """--tls-client-ca: a client without a certificate of this authority gets no session."""
    authority = certificate(keys, "authority")
    certificate(keys, "client", signer=authority)
    certificate(keys, "stranger")
    socket_path = keys / "s"
    server = tls(keys, "--tls-client-ca", keys / "authority.pem", "--listen", f"unix:{socket_path}",
                 wait=False)
    server.context.load_cert_chain(str(keys / "client.pem"), str(keys / "client.key"))
    wait_until(server.ready, "the server")
    assert server.choice("a", max_tokens=1)["text"]
    for chain in (None, "stranger"):
        context = ssl.create_default_context(cafile=str(keys / "localhost.pem"))
        if chain:
            context.load_cert_chain(str(keys / f"{chain}.pem"), str(keys / f"{chain}.key"))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            with server.open(context) as connection:
                connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(1) == b"never"
    health = run(inferd, "health", "--uds", socket_path)
    assert health.returncode == 0, health.stdout


def test_commands_speak_tls_too(tls, keys, inferd):
    """`inferd health` and `inferd top` find their own server; of a URL they verify the name."""
    server = tls(keys)
    flags = ("--port", server.port, "--tls-cert", keys / "localhost.pem",
             "--tls-key", keys / "localhost.key")
    health = run(inferd, "health", "--ready", *flags)
    assert health.returncode == 0 and '"ok"' in health.stdout, health.stdout
    top = run(inferd, "top", "--once", "--interval", "100ms", *flags)
    assert top.returncode == 0 and "running" in top.stdout, top.stdout
    plain = run(inferd, "health", "--port", server.port)
    assert plain.returncode == 1 and "speaks TLS" in plain.stdout, plain.stdout
    url = run(inferd, "top", "--once", f"https://localhost:{server.port}")
    assert url.returncode == 1 and "no TLS with https://localhost" in url.stdout, url.stdout
    assert "NOT trusted" in url.stdout, url.stdout


def test_tls_to_a_plain_port_is_named(start):
    """https:// where http:// is served: the client sees a broken handshake, the log says why."""
    server = start(DEMO)
    with socket.create_connection(("127.0.0.1", server.port)) as raw, pytest.raises(ssl.SSLError):
        ssl.create_default_context().wrap_socket(raw, server_hostname="localhost")
    wait_until(lambda: "tls_to_plain_port" in server.log(), "the access line")


def start_fails(inferd, *flags):
    """The last line and the exit status of a start that must fail."""
    result = run(inferd, "serve", DEMO, "--port", 0, "--log-format", "text", *flags)
    assert result.returncode not in (0, 1), result.stdout
    return result.returncode, result.stdout.strip().splitlines()[-1]


def test_a_start_names_the_file_that_is_wrong(inferd, keys):
    certificate(keys, "other")
    pem, key = keys / "localhost.pem", keys / "localhost.key"
    (keys / "text").write_text("hello")
    locked = serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"))
    (keys / "locked.key").write_bytes(locked)
    for flags, words in (
            (("--tls-cert", keys / "none", "--tls-key", key), ["tls_cert: cannot open", "No such"]),
            (("--tls-cert", pem, "--tls-key", keys / "none"), ["tls_key: cannot open", "No such"]),
            (("--tls-cert", keys / "text", "--tls-key", key), ["tls_cert", "no chain of cert"]),
            (("--tls-cert", pem, "--tls-key", keys / "text"), ["tls_key", "no private key in PEM"]),
            (("--tls-cert", pem, "--tls-key", pem), ["tls_key", "no private key in PEM"]),
            (("--tls-cert", pem, "--tls-key", keys / "other.key"),
             ["tls_key", "other.key is not that of the certificate in"]),
            (("--tls-cert", pem, "--tls-key", keys / "locked.key"), ["tls_key", "passphrase"]),
            (("--tls-cert", keys, "--tls-key", key), ["tls_cert", "not a regular file"]),
            (("--tls-key", key), ["tls_key is set, but tls_cert is not"]),
            (("--tls-cert", pem, "--tls-key", key, "--tls-client-ca", keys / "text"),
             ["tls_client_ca", "no certificate in PEM"])):
        status, line = start_fails(inferd, *flags)
        assert all(word in line for word in words), line
        assert status == (74 if keys in flags else 78), line
    assert key.read_text()[40:80] not in line


def test_one_file_has_both_and_old_certificates_warn(tls, inferd, keys):
    """As for uvicorn, the key may stand in the file of the certificate, by vLLM's names too; a
    certificate that has expired is served with a warning."""
    made, _ = certificate(keys, days=-1, kind="rsa")
    both = keys / "both.pem"
    both.write_bytes((keys / "localhost.key").read_bytes() + (keys / "localhost.pem").read_bytes())
    server = Server(inferd, DEMO, "--ssl-certfile", both, wait=False)
    wait_until(lambda: "ready in" in server.log(), "the server", context=server.log)
    assert "the certificate has expired on" in server.log()
    try:
        with ssl.create_default_context(cafile=str(both)).wrap_socket(
                server.socket(), server_hostname="localhost") as connection:
            assert connection is None, "an expired certificate was taken"
    except ssl.SSLCertVerificationError as error:
        assert "expired" in str(error)
    assert made.not_valid_after_utc < datetime.datetime.now(datetime.timezone.utc)
    server.stop()


def test_many_clients_at_once(tls, keys):
    """Sessions come and go on all sides while streams run; every answer is whole."""
    server = tls(keys)
    wanted = server.choice("Once", max_tokens=30, temperature=0)["text"]
    wrong = []

    def ask():
        for _ in range(8):
            text = server.choice("Once", max_tokens=30, temperature=0)["text"]
            if text != wanted:
                wrong.append(text)

    def leave():
        for i in range(20):
            raw = server.socket()
            if i % 2:
                raw.sendall(b"\x16" * (i % 5))
            raw.close()

    threads = [threading.Thread(target=what) for what in (ask, leave) * 6]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert handshakes(server, "ok") >= 48
