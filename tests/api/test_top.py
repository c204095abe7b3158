"""`inferd top` against real servers. What it makes of a page is tested in tests/server/top."""

import math
import os
import re
import signal
import subprocess

import pytest
from harness import DEMO, ROOT, free_port, run, wait_until

ONCE = ("top", "--once", "--interval", "50ms")


def address(server):
    return f"http://127.0.0.1:{server.port}"


def quantile(server, name, q):
    """histogram_quantile of PromQL, over all that the server has observed."""
    buckets = sorted((float(dict(labels)["le"]), value)
                     for (sample, labels), value in server.metrics().items()
                     if sample == f"{name}_bucket")
    rank, bound, below = q * buckets[-1][1], 0.0, 0.0
    for top, count in buckets:
        if math.isinf(top):
            return bound
        if count >= rank and count > below:
            return bound + (top - bound) * (rank - below) / (count - below)
        bound, below = top, count
    raise AssertionError(buckets)


def seconds(text):
    number, unit = text.split()
    return float(number) * {"ms": 1e-3, "s": 1.0}[unit]


def test_one_frame(server, inferd):
    server.complete("Once upon a time", max_tokens=20, ignore_eos=True)
    wait_until(server.idle, "an idle server", context=server.usage)
    done = run(inferd, *ONCE, address(server))
    assert done.returncode == 0 and "\x1b" not in done.stdout, done.stdout
    assert re.match(r"inferd \S+  demo  ready.*  127\.0\.0\.1:\d+\n", done.stdout), done.stdout
    assert re.search(r"^running +0 +waiting +0$", done.stdout, re.M), done.stdout
    assert re.search(r"^generated +0 tokens/s$", done.stdout, re.M), done.stdout
    for title, name in (("first token", "time_to_first_token"),
                        ("between tokens", "inter_token_latency")):
        row = re.search(rf"^{title} +([\d.]+ m?s) +([\d.]+ m?s) +(\d+)   since the start$",
                        done.stdout, re.M)
        assert row, done.stdout
        for shown, q in ((row[1], 0.5), (row[2], 0.99)):
            expected = quantile(server, f"inferd_{name}_seconds", q)
            assert seconds(shown) == pytest.approx(expected, rel=0.06), (title, q)
        assert int(row[3]) == server.metric(f"inferd_{name}_seconds_count")


@pytest.mark.parametrize("names", ["inferd", "vllm"])
def test_either_family_of_names(start, inferd, names):
    server = start(DEMO, "--metrics-names", names)
    server.complete("Once", max_tokens=3, ignore_eos=True)
    done = run(inferd, *ONCE, "--port", server.port)
    assert re.search(r"^running +0 ", done.stdout, re.M), done.stdout
    assert re.search(r"^first token .* 1   since the start$", done.stdout, re.M), done.stdout


def test_keys_and_who_may_read(start, inferd, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sesame alice\n")
    keys.chmod(0o600)
    server = start(DEMO, "--api-key-file", keys, "--metrics-auth", "on", key="sesame")
    server.complete("Once", max_tokens=3)
    environment = {**os.environ, "INFERD_API_KEY": "sesame"}
    done = run(inferd, *ONCE, address(server), env=environment)
    assert re.search(r"^alice +1 +0 +0 +0$", done.stdout, re.M), done.stdout
    done = run(inferd, *ONCE, address(server), "--api-key", "wrong")
    assert done.returncode == 1
    assert "answers /metrics with 401: Incorrect API key provided." in done.stdout


def test_a_unix_socket_and_a_root_path(start, inferd, tmp_path):
    server = start(DEMO, uds=tmp_path / "socket")
    for where in ([f"unix:{tmp_path}/socket"], ["--uds", tmp_path / "socket"]):
        assert "running" in run(inferd, *ONCE, *where).stdout
    server = start(DEMO, "--root-path", "/llm")
    assert "running" in run(inferd, *ONCE, f"{address(server)}/llm/").stdout
    done = run(inferd, *ONCE, f"{address(server)}/other")
    assert done.returncode == 1 and "with 404: Unknown request URL" in done.stdout


@pytest.mark.parametrize("arguments, status, said", [
    (["http://127.0.0.1:9"], 1, "no server answers at 127.0.0.1:9"),
    (["127.0.0.1:9"], 1, "no server answers at 127.0.0.1:9"),
    (["ftp://localhost"], 64, "'ftp://localhost' is no address of one server"),
    (["localhost"], 64, "'localhost' is no address of one server; accepted: HOST:PORT, http"),
    (["127.0.0.1:65536"], 64, "'127.0.0.1:65536' is no address"),
    (["127.0.0.1:9", "[::1]:9"], 64, "'[::1]:9' is no address of one server"),
    (["--interval", "1m"], 64, "--interval is '1m', accepted: 50ms to 3600s"),
    (["--interval"], 64, "--interval is '', accepted"),
    (["--nope"], 64, "nope"),
])
def test_what_is_wrong_is_said(inferd, arguments, status, said):
    done = run(inferd, "top", *arguments)
    assert done.returncode == status and said in done.stdout, done.stdout


def test_every_command_takes_an_address(start, inferd):
    """The options name no server here, so a word that is not read would end in a refusal."""
    server = start(DEMO, "--admin-key", "key")
    for where in (f"127.0.0.1:{server.port}", f"localhost:{server.port}", address(server)):
        for words, said in ((("health",), '"status"'), (("ps",), "NAME"), (ONCE, "running"),
                            (("usage", "--api-key", "key"), "answers /v1/usage with ")):
            done = run(inferd, words[0], where, *words[1:], "--port", free_port())
            assert said in done.stdout, (words, where, done.stdout)
    for command in ("health", "ps", "usage"):
        done = run(inferd, command, "models/demo")
        assert done.returncode == 64 and "'models/demo' is no address" in done.stdout, done.stdout


def test_frames_follow_until_a_signal(start, inferd):
    """A server that goes away is waited for: its successor is shown."""
    first = start(DEMO)
    command = [ROOT / inferd, "top", address(first), "--interval", "50ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        lines = iter(process.stdout.readline, "")
        assert sum("running" in line for line, _ in zip(lines, range(60))) > 1
        assert first.stop() == 0
        assert any("no server answers" in line for line in lines)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() in (0, 1)
