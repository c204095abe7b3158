"""What operators close, and the limits of each key."""

import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import DEMO, Stream, http_post, wait_until

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
          "additionalProperties": False}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "n",
                                                                     "schema": SCHEMA}}}


@pytest.mark.parametrize("closed, field, body", [
    ("regex", "regex", {"regex": "a+"}),
    ("grammar", "grammar", {"grammar": 'root ::= "a"'}),
    ("schema", "response_format", FORMAT),
])
def test_a_kind_of_constraint_is_closed(start, closed, field, body):
    server = start(DEMO, "--disable-grammar", closed)
    for path, prompt in (("/v1/completions", {"prompt": "a"}),
                         ("/v1/chat/completions", {"messages": [{"role": "user",
                                                                 "content": "a"}]})):
        answer = server.post(path, {**prompt, "max_tokens": 2, **body})
        assert answer.status == 400, answer
        assert answer.error["code"] == "unsupported_parameter"
        assert answer.error["param"] == field
        assert f"'{field}'" in answer.error["message"]
        assert f"--disable-grammar {closed}" in answer.error["message"]
    assert server.metric("inferd_grammar_cache_misses_total") == 0, "something was compiled"
    assert server.metric("inferd_rejected_total", reason="unsupported") == 2
    for other in ({"regex": "a+"}, {"grammar": 'root ::= "a"'}, FORMAT):
        if other != body:
            assert server.choice("a", max_tokens=30, **other)["text"]


def key_file(tmp_path, *lines):
    path = tmp_path / "keys"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


def header(key):
    return {"headers": {"Authorization": f"Bearer {key}"}}


LONG = {"prompt": "a", "max_tokens": 1500, "ignore_eos": True}


def fill(server, key):
    """Takes the only sequence of the server: what comes then waits. Ends when the block ends."""
    server.key = key
    stream = Stream(server, {**LONG})
    next(stream.events())
    return stream


def test_a_key_may_not_wait_more_than_its_line_says(start, tmp_path):
    path = key_file(tmp_path, "root", "few team-a max_waiting=2", "short b max_tokens_waiting=40")
    server = start(DEMO, "--api-key-file", path, "--max-num-seqs", 1, "--max-queue-time", "10min",
                   key="root")
    holder = fill(server, "root")
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(server.post, "/v1/completions", {"prompt": "a", "max_tokens": 1},
                               **header("few")) for _ in range(2)]
        wait_until(lambda: server.metric("inferd_requests_waiting") == 2, "two to wait")
        for prompt in ("a", ["a", "b"]):
            answer = server.post("/v1/completions", {"prompt": prompt}, **header("few"))
            assert answer.status == 429, answer
            assert answer.error["code"] == "rate_limit_exceeded"
            assert answer.error["type"] == "rate_limit_error"
            assert "max_waiting=2" in answer.error["message"]
            assert int(answer.headers["retry-after"]) >= 1
        # Another key is not affected, but has a limit of its own: any length may wait alone.
        words = "one two three four five six seven eight nine ten " * 5
        waiting += [pool.submit(server.post, "/v1/completions",
                                {"prompt": words, "max_tokens": 1}, **header("short"))]
        wait_until(lambda: server.metric("inferd_requests_waiting") == 3, "three to wait")
        answer = server.post("/v1/completions", {"prompt": words}, **header("short"))
        assert answer.status == 429 and "max_tokens_waiting=40" in answer.error["message"]
        holder.close()
        assert all(each.result().status == 200 for each in waiting)
    # Nothing is left of what has ended, in whichever way: as many may wait again.
    holder = fill(server, "root")
    with ThreadPoolExecutor(2) as pool:
        again = [pool.submit(server.post, "/v1/completions", {"prompt": "a", "max_tokens": 1},
                             **header("few")) for _ in range(2)]
        wait_until(lambda: server.metric("inferd_requests_waiting") == 2, "two to wait again")
        holder.close()
        assert all(each.result().status == 200 for each in again)
    assert server.metric("inferd_rejected_total", reason="rate_limit") == 3


def test_a_client_that_leaves_gives_its_place_back(start, tmp_path):
    path = key_file(tmp_path, "root", "few team-a max_waiting=1")
    server = start(DEMO, "--api-key-file", path, "--max-num-seqs", 1, "--max-queue-time", "10min",
                   key="root")
    holder = fill(server, "root")
    for _ in range(5):
        connection = server.socket()
        connection.sendall(http_post("/v1/completions", LONG, "Authorization: Bearer few"))
        wait_until(lambda: server.metric("inferd_requests_waiting") == 1, "one to wait")
        assert server.post("/v1/completions", LONG, **header("few")).status == 429
        connection.close()
        wait_until(lambda: server.metric("inferd_requests_waiting") == 0, "it to leave")
    holder.close()
    assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1},
                       **header("few")).status == 200


def test_a_key_without_constraints(start, tmp_path):
    path = key_file(tmp_path, "free", "plain team-b grammar=off", "late max_waiting=5")
    server = start(DEMO, "--api-key-file", path, key="free")
    for body in ({"regex": "a+"}, {"grammar": 'root ::= "a"'}, FORMAT):
        body = {"prompt": "a", "max_tokens": 30, **body}
        assert server.post("/v1/completions", body).status == 200
        answer = server.post("/v1/completions", body, **header("plain"))
        assert answer.status == 400 and answer.error["code"] == "unsupported_parameter"
        assert "grammar=off" in answer.error["message"]
    # A reload changes the line; a bad file changes nothing, and the log says why.
    key_file(tmp_path, "free", "plain team-b grammar=on")
    server.process.send_signal(signal.SIGHUP)
    body = {"prompt": "a", "max_tokens": 3, "regex": "a+"}
    wait_until(lambda: server.post("/v1/completions", body, **header("plain")).status == 200,
               "the new line to be read")
    key_file(tmp_path, "free", "plain team-b grammer=off")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "'grammer' is unknown, supported: max_" in server.log(), "the refusal")
    assert "line 2 of" in server.log()
    assert "the old keys stay" in server.log()
    assert server.post("/v1/completions", body, **header("plain")).status == 200
