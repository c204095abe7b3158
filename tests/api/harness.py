"""What the API tests share: a server process, plain HTTP, raw sockets, streams, metrics.

Everything here is the standard library, so that a test sees the bytes of inferd and not the
kindness of a client library."""

import functools
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests"))
from ports import free_port  # noqa: E402,F401 pylint: disable=wrong-import-position
DEMO = Path(os.environ.get("INFERD_TEST_MODEL", ROOT / "models/demo"))
# Sanitizer builds are slower, and a virtual machine may get a fifth of its processors for minutes:
# deadlines stretch, expectations do not.
SLOWNESS = {"plain": 1, "asan": 6, "tsan": 20}[os.environ.get("INFERD_TEST_FLAVOUR", "plain")]
PATIENCE = max(4, 2 * SLOWNESS)
LONG = "INFERD_TEST_LONG" in os.environ  # `make check`: what is drawn is drawn at length
UNABLE = []  # (number of tests, why): what this machine cannot run, said at the end


def wait_until(condition, what, timeout_s=20.0, context=lambda: ""):
    """Polls until condition() is true; fails with `what` and what context() says."""
    begin = time.monotonic()
    while not condition():
        waited = time.monotonic() - begin
        assert waited < timeout_s * PATIENCE, f"waited {waited:.0f} s for {what}: {context()}"
        time.sleep(0.01 if waited < 1 else 0.05)


def dummy_model(directory, **overrides):
    """A model directory for --load-format dummy: the demo's tokenizer and a config of our own size,
    so that a test can choose how long a step takes and how long the context is."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (DEMO / name).exists():
            shutil.copy(DEMO / name, directory / name)
    config = json.loads((DEMO / "config.json").read_text())
    config.update(hidden_size=256, intermediate_size=768, num_hidden_layers=4,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=64,
                  max_position_embeddings=8192)
    config.update(overrides)
    (directory / "config.json").write_text(json.dumps(config))
    return directory


LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
ESCAPE = re.compile(r"\\(.)")


@functools.cache
def sample_of(names):
    """A line of one of these names, or of any."""
    name = "|".join(names) or r"[a-zA-Z_:][\w:]*"
    return re.compile(rf"(?m)^({name})(?:\{{(.*)\}})? (\S+)$")


def samples(page, names=()):
    """((name, sorted labels), value) of each sample, or of these names. Tests ask again and again,
    and Prometheus' own parser takes 45 ms of the processor for a page; test_metrics.py has both."""
    for name, labels, value in sample_of(tuple(names)).findall(page):
        found = {key: ESCAPE.sub(lambda escape: {"n": "\n"}.get(escape[1], escape[1]), text)
                 for key, text in LABEL.findall(labels)}
        yield (name, tuple(sorted(found.items()))), float(value)


def run(inferd, *arguments, **options):
    """Runs a command of inferd to its end; standard error is in stdout."""
    return subprocess.run([str(ROOT / inferd), *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60 * PATIENCE, **options)


class Response:
    """One HTTP answer: status, headers (lower case), body."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {key.lower(): value for key, value in headers}
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The error object, checked for its form: always these four keys."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str) and error["message"], error
        return error

    def __repr__(self):
        return f"<{self.status} {self.body[:500]!r}>"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Server:
    """One inferd process. It is ready when the constructor returns, unless wait=False. `shell` is
    what starts it: a place for ulimit and redirections. `listener` is a socket of a service
    manager: the server gets it as descriptor 3."""

    def __init__(self, inferd, model, *flags, host="127.0.0.1", uds=None, key=None, wait=True,
                 expected_exit=0, shell='exec "$@"', listener=None, port=0):
        self.host, self.uds, self.key, self.expected_exit = host, uds, key, expected_exit
        self.port = 0
        where = ["--uds", str(uds)] if uds else []
        if not uds:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self.port = listener.getsockname()[1] if listener else port or free_port(family, host)
            where = ["--host", host, "--port", str(self.port)]
        self.log_file = tempfile.NamedTemporaryFile("w+b", prefix="inferd-", suffix=".log")
        named = [str(model)] if model else []  # else the flags say which
        command = ["sh", "-c", shell, "sh", str(ROOT / inferd), "serve", *named, *where,
                   *map(str, flags)]
        passed = (listener.fileno(),) if listener else ()
        if listener:  # as a service manager does for a socket unit
            command[0] = "bash"  # other shells know the descriptors 0 to 9 alone
            command[2] = f'exec 3<&{passed[0]}; LISTEN_PID=$$ LISTEN_FDS=1 {shell}'
        self.process = subprocess.Popen(command, cwd=ROOT, pass_fds=passed,
                                        stdin=subprocess.DEVNULL, stdout=self.log_file,
                                        stderr=self.log_file)
        if wait:
            wait_until(self.ready, "the server to be ready", 60, self.log)

    def log(self):
        return Path(self.log_file.name).read_text(errors="replace")

    def alive(self):
        return self.process.poll() is None

    def ready(self):
        assert self.alive(), f"exit status {self.process.returncode}: {self.log()[-6000:]}"
        try:
            return self.get("/readyz").status == 200
        except OSError:
            return False

    def stop(self):
        """Drains the server; returns its exit status. A hang is a failure."""
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        return self.wait_exit(60)

    def wait_exit(self, timeout_s):
        try:
            return self.process.wait(timeout_s * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"no exit within {timeout_s} s: {self.log()}") from None

    # plain HTTP

    def connection(self, timeout_s=60):
        if self.uds:
            return UnixConnection(self.uds, timeout_s * PATIENCE)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s * PATIENCE)

    def request(self, method, path, body=None, headers=None, connection=None):
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        if self.key:
            headers.setdefault("Authorization", f"Bearer {self.key}")
        headers = {name: value for name, value in headers.items() if value is not None}
        own = connection is None
        connection = connection or self.connection()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Response(answer.status, answer.getheaders(), answer.read())
        finally:
            if own:
                connection.close()

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body, **options):
        return self.request("POST", path, body, **options)

    def complete(self, prompt, **fields):
        """A completion that must succeed; returns its JSON."""
        answer = self.post("/v1/completions", {"prompt": prompt, **fields})
        assert answer.status == 200, answer
        return answer.json

    def choice(self, prompt, **fields):
        return self.complete(prompt, **fields)["choices"][0]

    def tokens(self, text, **fields):
        return self.post("/tokenize", {"prompt": text, **fields}).json["tokens"]

    def max_model_len(self):
        return self.get("/v1/models").json["data"][0]["max_model_len"]

    # raw bytes

    def socket(self, timeout_s=30):
        if self.uds:
            raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            raw.settimeout(timeout_s * PATIENCE)
            raw.connect(str(self.uds))
            return raw
        return socket.create_connection((self.host, self.port), timeout_s * PATIENCE)

    def raw(self, *pieces, timeout_s=30, half_close=False):
        """Sends bytes as they are, returns everything until the server closes."""
        with self.socket(timeout_s) as connection:
            for piece in pieces:
                try:
                    connection.sendall(piece)
                except (BrokenPipeError, ConnectionResetError):
                    break
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def ended(self, identifiers):
        """Those of these request ids whose lines the log has, in its order: that of their ends."""
        lines = re.findall(r'"event":"request",.*"id":"([^"]*)"', self.log())
        return [name for name in lines if name in identifiers]

    # metrics

    def metrics(self, *names):
        """{(name, sorted labels): value} of the page, or of these names alone."""
        page = self.get("/metrics")
        assert page.status == 200, page
        return dict(samples(page.body.decode(), names))

    def metric(self, name, **labels):
        """Sum of the samples of that name whose labels include these."""
        wanted = set(labels.items())
        return sum(value for (_, has), value in self.metrics(name).items() if wanted <= set(has))

    def usage(self):
        return self.metrics("inferd_requests_running", "inferd_requests_waiting",
                            "inferd_kv_blocks")

    def idle(self):
        return not any(value for (name, labels), value in self.usage().items()
                       if name != "inferd_kv_blocks" or ("state", "used") in labels)


def reload_text(server, text, file, result="ok"):
    """Writes the configuration file and reloads; returns the lines of this reload."""
    before, count = len(server.log()), server.metric("inferd_reloads_total", result=result)
    file.write_text(text)
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.metric("inferd_reloads_total", result=result) == count + 1,
               "the reload", context=server.log)
    return server.log()[before:]


def read_all(connection):
    """Everything until the end of the connection; a reset ends it too."""
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def http_post(path, body, *headers, version="HTTP/1.1"):
    """The bytes of a POST, for raw sockets."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"POST {path} {version}", "Host: localhost", "Content-Type: application/json",
             f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def statuses(received):
    """Status numbers of all responses in a byte string, 1xx included."""
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", received)]


class Stream:
    """A streamed completion read with a raw reader: every event is checked for its frame."""

    def __init__(self, server, body, headers=None, path="/v1/completions"):
        self.connection = server.connection()
        headers = {"Content-Type": "application/json", **(headers or {})}
        if server.key:
            headers.setdefault("Authorization", f"Bearer {server.key}")
        self.connection.request("POST", path, json.dumps({"stream": True, **body}), headers)
        self.response = self.connection.getresponse()
        self.status = self.response.status
        self.headers = {k.lower(): v for k, v in self.response.getheaders()}
        self.done = False

    def events(self):
        """Yields (monotonic seconds, decoded JSON); ends at [DONE]."""
        while True:
            line = self.response.readline()
            assert line, "the stream ended without [DONE]"
            if line.startswith(b":"):
                assert self.response.readline() == b"\n"
                continue
            assert line.startswith(b"data: ") and line.endswith(b"\n"), line
            assert self.response.readline() == b"\n", "an event ends with one blank line"
            data = line[6:-1]
            if data == b"[DONE]":
                self.done = True
                assert self.response.read() == b"", "nothing follows [DONE]"
                self.connection.close()
                return
            yield time.monotonic(), json.loads(data.decode())

    def chunks(self):
        return [chunk for _, chunk in self.events()]

    def close(self):
        """Drops the connection, as a client that has gone away."""
        if self.connection.sock:
            self.connection.sock.close()
        self.response.close()
        self.connection.close()


class Background:
    """A streamed completion read by a thread of its own; keeps times and chunks."""

    def __init__(self, server, body):
        self.times, self.chunks_seen, self.failure = [], [], None
        self.stream = None
        self.started = threading.Event()
        self.thread = threading.Thread(target=self._read, args=(server, body), daemon=True)
        self.thread.start()

    def _read(self, server, body):
        try:
            self.stream = Stream(server, body)
            assert self.stream.status == 200, self.stream.response.read()
            for at, chunk in self.stream.events():
                self.times.append(at)
                self.chunks_seen.append(chunk)
                self.started.set()
        except Exception as failure:  # pylint: disable=broad-except
            self.failure = failure
        self.started.set()

    def join(self, timeout_s=120):
        self.thread.join(timeout_s * PATIENCE)
        assert not self.thread.is_alive(), "the stream did not end"
        return self

    def text(self):
        return "".join(c["choices"][0]["text"] for c in self.chunks_seen if c["choices"])

    def finish_reasons(self):
        return [c["choices"][0]["finish_reason"] for c in self.chunks_seen
                if c["choices"] and c["choices"][0]["finish_reason"]]
