"""What operators close, and the limits of each key."""

import re
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


LONG = {"prompt": "a", "max_tokens": 8000, "ignore_eos": True}


def slow(start, model, *flags, **options):
    return start(model, "--load-format", "dummy", *flags, **options)


def fill(server, key):
    """Takes the only sequence of the server: what comes then waits. Ends when the block ends."""
    server.key = key
    stream = Stream(server, {**LONG})
    next(stream.events())
    return stream


def test_a_key_may_not_wait_more_than_its_line_says(start, slow_model, tmp_path):
    path = key_file(tmp_path, "root", "few team-a max_waiting=2", "short b max_tokens_waiting=40")
    server = slow(start, slow_model, "--api-key-file", path, "--max-num-seqs", 1,
                  "--max-queue-time", "10min", key="root")
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


def test_a_key_runs_no_more_than_its_line_says(start, slow_model, tmp_path):
    """Its second request waits for the first one; other keys do not."""
    path = key_file(tmp_path, "root", "one team-a max_running=1")
    server = slow(start, slow_model, "--api-key-file", path, "--max-queue-time", "10min",
                  key="root")
    holder = fill(server, "one")
    server.key = "root"
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(server.post, "/v1/completions", {"prompt": "a", "max_tokens": 1},
                             **header("one"))
        wait_until(lambda: server.metric("inferd_requests_waiting") == 1, "the second to wait")
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200
        assert server.metric("inferd_requests_waiting") == 1 and not second.done()
        holder.close()
        assert second.result().status == 200
    # A request of more choices than the key may run is answered, alone.
    answer = server.post("/v1/completions", {"prompt": "a", "max_tokens": 2, "n": 3},
                         **header("one"))
    assert answer.status == 200 and len(answer.json["choices"]) == 3


def test_a_client_that_leaves_gives_its_place_back(start, slow_model, tmp_path):
    path = key_file(tmp_path, "root", "few team-a max_waiting=1")
    server = slow(start, slow_model, "--api-key-file", path, "--max-num-seqs", 1,
                  "--max-queue-time", "10min", key="root")
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
    assert "the old values stay" in server.log()
    assert server.post("/v1/completions", body, **header("plain")).status == 200


def test_requests_and_tokens_per_minute(start, tmp_path):
    path = key_file(tmp_path, "root", "slow team-a requests_per_minute=3",
                    "thrifty team-b tokens_per_minute=60")
    server = start(DEMO, "--api-key-file", path, key="root")
    body = {"prompt": "a", "max_tokens": 2, "ignore_eos": True}
    left = []
    for _ in range(3):
        answer = server.post("/v1/completions", body, **header("slow"))
        assert answer.status == 200, answer
        assert answer.headers["x-ratelimit-limit-requests"] == "3"
        left.append(int(answer.headers["x-ratelimit-remaining-requests"]))
        assert re.fullmatch(r"(\d+m)?[\d.]+m?s", answer.headers["x-ratelimit-reset-requests"])
        assert "x-ratelimit-limit-tokens" not in answer.headers
    assert left == [2, 1, 0], left
    answer = server.post("/v1/completions", body, **header("slow"))
    assert answer.status == 429 and answer.error["code"] == "rate_limit_exceeded", answer
    assert "requests_per_minute=3" in answer.error["message"]
    assert 1 <= int(answer.headers["retry-after"]) <= 20
    assert server.get("/v1/models", **header("slow")).status == 200, "it is no request for tokens"

    # Generated tokens count when they come, and stay a debt: here 1 + 90 of 60.
    answer = server.post("/v1/completions", {**body, "max_tokens": 90}, **header("thrifty"))
    assert answer.status == 200 and answer.headers["x-ratelimit-limit-tokens"] == "60"
    spent = answer.json["usage"]["total_tokens"]
    answer = server.post("/v1/completions", body, **header("thrifty"))
    assert answer.status == 429 and "tokens_per_minute=60" in answer.error["message"]
    assert spent - 60 - 5 <= int(answer.headers["retry-after"]) <= spent - 60 + 3
    assert server.post("/v1/completions", body).status == 200, "other keys are not affected"

    counted = {label: server.metric("inferd_key_requests_total", key=label)
               for label in ("team-a", "team-b", "unlabelled")}
    assert counted == {"team-a": 4, "team-b": 2, "unlabelled": 1}
    assert server.metric("inferd_key_refused_total", key="team-a") == 1
    assert server.metric("inferd_key_refused_total", key="unlabelled") == 0
    assert server.metric("inferd_key_generation_tokens_total", key="team-a") == 6
    assert server.metric("inferd_key_generation_tokens_total", key="team-b") == 90
    assert (server.metric("inferd_key_prompt_tokens_total", key="team-b")
            == spent - 90)
    page = server.get("/metrics").body
    assert b"thrifty" not in page, "a key in the metrics"


def test_labels_in_metrics_have_a_bound(start, tmp_path):
    path = key_file(tmp_path, "root", *(f"key-{i} label-{i}" for i in range(300)))
    server = start(DEMO, "--api-key-file", path, key="root")
    body = {"prompt": "a", "max_tokens": 1}
    for i in range(300):
        assert server.post("/v1/completions", body, **header(f"key-{i}")).status == 200
    assert server.post("/v1/completions", body).status == 200
    labels = {dict(has)["key"]: value for (name, has), value in server.metrics().items()
              if name == "inferd_key_requests_total"}
    assert len(labels) == 257 and labels["label-255"] == 1 and "label-256" not in labels
    assert labels["other"] == 300 + 1 - 256
