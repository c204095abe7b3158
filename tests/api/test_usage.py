"""/v1/usage and quotas: what is counted of whom, across a kill, and what a quota refuses."""

import json
import subprocess
import time

import openai
import pytest
from harness import DEMO, PATIENCE, ROOT, Server, wait_until
from storing import ALICE, BOB, client

ADMIN = "sk-admin-0123456789"
DAY = 24 * 3600
ENCODERS = ROOT / "tests/vectors/encoders"


@pytest.fixture(scope="module")
def start(inferd, tmp_path_factory):
    def begin(file, alice="", bob="", *flags, model=DEMO):
        keys = tmp_path_factory.mktemp("keys") / "keys"
        keys.write_text(f"{ALICE} alice {alice}\n{BOB} bob {bob}\n")
        keys.chmod(0o600)
        return Server(inferd, model, "--served-model-name", "demo", "--store", file,
                      "--api-key-file", keys, "--admin-key", ADMIN, *flags, key=ALICE)
    return begin


def usage(server, key=ALICE, query="?group_by=model,api_key_id"):
    answer = server.request("GET", f"/v1/usage{query}", headers={"Authorization": f"Bearer {key}"})
    assert answer.status == 200, answer
    return answer.json


def totals(server, key=ALICE, **which):
    """(requests, input, cached, output) of all days."""
    rows = [row for day in usage(server, key)["data"] for row in day["results"]
            if which.items() <= row.items()]
    return tuple(sum(row[name] for row in rows) for name in
                 ("num_model_requests", "input_tokens", "input_cached_tokens", "output_tokens"))


def used(answer):
    return answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]


def ask(server, tokens, key=ALICE, **fields):
    body = {"prompt": "Once", "max_tokens": tokens, "ignore_eos": True} | fields
    return server.request("POST", "/v1/completions", body,
                          headers={"Authorization": f"Bearer {key}"})


@pytest.fixture(scope="module")
def server(start, tmp_path_factory):
    server = start(tmp_path_factory.mktemp("usage") / "answers.db")
    yield server
    assert server.stop() == 0, server.log()


def test_all_dialects_are_counted_once(server):
    mine, before = client(server), totals(server)
    talk = [{"role": "user", "content": "Hi"}]
    told = [
        mine.chat.completions.create(model="demo", messages=talk, max_tokens=5).usage,
        mine.completions.create(model="demo", prompt=["One", "Two three"], n=3, max_tokens=4).usage,
        mine.completions.create(model="demo", prompt="Beams", n=2, max_tokens=4,
                                extra_body={"use_beam_search": True}).usage,
        [part for part in mine.completions.create(
            model="demo", prompt="A stream", max_tokens=6, stream=True,
            stream_options={"include_usage": True})][-1].usage]
    tokens = [(one.prompt_tokens, one.completion_tokens) for one in told]
    answer = mine.responses.create(model="demo", input="Hi", max_output_tokens=5)
    tokens.append((answer.usage.input_tokens, answer.usage.output_tokens))
    message = server.post("/v1/messages", {"model": "demo", "messages": talk, "max_tokens": 3})
    tokens.append(tuple(message.json["usage"][name] for name in ("input_tokens", "output_tokens")))
    cached = message.json["usage"].get("cache_read_input_tokens") or 0
    requests, prompts, _, outputs = (now - old for now, old in zip(totals(server), before))
    assert requests == len(tokens)
    assert prompts == sum(one for one, _ in tokens) + cached
    assert outputs == sum(one for _, one in tokens)


@pytest.mark.parametrize("model, calls", [
    ("bert-mean", [("/v1/embeddings", {"input": ["One", "Two three four"]}),
                   ("/v1/embeddings", {"input": "Five", "encoding_format": "base64"}),
                   ("/pooling", {"input": "Six"})]),
    ("bert-rank", [("/rerank", {"query": "who", "documents": ["One", "Two three", "Four"]}),
                     ("/score", {"queries": "who", "documents": ["One", "Two"]})])])
def test_vectors_and_scores_are_counted_as_their_answers_say(start, tmp_path, model, calls):
    """As prompts, without an output; what is refused, and what a quota refuses, as nothing."""
    server = start(tmp_path / "answers.db", "tokens_per_day=60", model=ENCODERS / model)
    tokens = 0
    for number, (path, body) in enumerate(calls, 1):
        answer = server.post(path, body)
        assert answer.status == 200, answer
        tokens += answer.json["usage"]["prompt_tokens"]
        assert totals(server) == (number, tokens, 0, 0)
    path, body = calls[0]
    assert server.post(path, {**body, "model": 5}).status == 400
    long = {key: ["many words " * 9] * 4 if isinstance(value, list) else value
            for key, value in body.items()}
    refused = server.post(path, long)
    assert refused.status == 429 and refused.error["code"] == "insufficient_quota", refused
    assert totals(server) == (len(calls), tokens, 0, 0)
    assert server.stop() == 0, server.log()


def test_cached_tokens_are_those_of_the_answers(server):
    body = {"prompt": "the same long beginning of a text " * 8, "max_tokens": 1}
    before = totals(server)
    shown = [server.post("/v1/completions", body).json["usage"] for _ in range(2)]
    cached = [(one["prompt_tokens_details"] or {}).get("cached_tokens", 0) for one in shown]
    assert cached[1] > 0 and totals(server)[2] - before[2] == sum(cached)


def test_a_request_that_is_left_counts_what_it_made(server):
    before = totals(server)
    stream = client(server).completions.create(model="demo", prompt="Once", max_tokens=2000,
                                               stream=True, extra_body={"ignore_eos": True})
    for _ in range(5):
        next(stream)
    stream.close()
    wait_until(server.idle, "the engine", 30)
    requests, prompts, _, outputs = (now - old for now, old in zip(totals(server), before))
    assert requests == 1 and prompts > 0 and 5 <= outputs < 2000


def test_batches_and_the_background_count_for_their_key(server):
    mine, before = client(server), totals(server)
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions",
            "body": {"prompt": "Once", "max_tokens": 7, "ignore_eos": True}}
    file = mine.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch")
    made = mine.batches.create(input_file_id=file.id, endpoint="/v1/completions",
                               completion_window="24h")
    late = mine.responses.create(model="demo", input="Hi", background=True, max_output_tokens=5)
    wait_until(lambda: mine.batches.retrieve(made.id).status == "completed", "the batch", 30)
    wait_until(lambda: mine.responses.retrieve(late.id).status not in ("queued", "in_progress"),
               "the answer", 30)
    told = mine.responses.retrieve(late.id).usage
    assert totals(server)[0] - before[0] == 2
    assert totals(server)[3] - before[3] == 7 + told.output_tokens


def test_a_key_sees_itself_and_an_admin_all(server):
    ask(server, 3, BOB)
    ask(server, 3)
    mine, theirs = totals(server), totals(server, BOB)
    names = {(row["api_key_name"], row["api_key_id"]) for day in usage(server)["data"]
             for row in day["results"]}
    assert {name for name, _ in names} == {"alice"}
    for query in ("?api_key_ids=", "?group_by=api_key_id&api_key_ids="):
        for _, own in {(row["api_key_name"], row["api_key_id"])
                       for day in usage(server, BOB)["data"] for row in day["results"]}:
            assert not any(day["results"] for day in usage(server, ALICE, query + own)["data"])
    assert totals(server, ADMIN, api_key_name="alice") == mine
    assert totals(server, ADMIN, api_key_name="bob") == theirs
    whole = [row for day in usage(server, ADMIN, "")["data"] for row in day["results"]]
    assert [row["api_key_id"] for row in whole] == [None] and whole[0]["model"] is None
    assert whole[0]["output_tokens"] == mine[3] + theirs[3]
    assert server.request("GET", "/v1/usage", headers={"Authorization": "Bearer x"}).status == 401


def test_days_are_paged_and_filtered(server):
    today = int(time.time()) // DAY
    page = usage(server, ALICE, "")
    assert [day["start_time"] // DAY for day in page["data"]] == list(range(today - 6, today + 1))
    assert not page["has_more"] and page["next_page"] is None
    query = f"?start_time={(today - 9) * DAY + 5}&end_time={(today + 1) * DAY}&limit=4"
    seen, page = [], usage(server, ALICE, query)
    while True:
        seen += [day["start_time"] // DAY for day in page["data"]]
        if not page["has_more"]:
            break
        page = usage(server, ALICE, f"{query}&page={page['next_page']}")
    assert seen == list(range(today - 9, today + 1))
    assert not any(day["results"] for day in usage(server, ALICE, "?models=other")["data"])
    ask(server, 1)
    assert any(day["results"] for day in usage(server, ALICE, "?models=x,demo")["data"])
    for query, param in [("?start_time=-1", "start_time"), ("?start_time=x", "start_time"),
                         ("?limit=0", "limit"), ("?limit=32", "limit"), ("?group_by=a", "group_by"),
                         ("?bucket_width=1h", "bucket_width"), ("?end_time=0", "end_time"),
                         ("?start_time=9&end_time=9", "end_time"), ("?page=1", "page")]:
        answer = server.get(f"/v1/usage{query}")
        assert answer.status == 400 and answer.json["error"]["param"] == param, query


def test_a_table_for_people(server, inferd):
    where = f"127.0.0.1:{server.port}"
    ask(server, 2)
    run = [inferd, "usage", where, "--api-key", ALICE]
    text = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    requests, prompts, cached, outputs = totals(server)
    assert text.splitlines()[0].split()[:2] == ["DAY", "(UTC)"]
    assert text.splitlines()[-1].split()[1:] == ["alice", "demo", *map(str, (
        requests, prompts, cached, outputs))]
    whole = subprocess.run([*run, "--json", "--days", "1"], capture_output=True, text=True,
                           check=True).stdout
    assert len(json.loads(whole)["data"]) == 1
    wrong = subprocess.run([inferd, "usage", where, "--days", "32"], capture_output=True, text=True,
                           check=False)
    assert wrong.returncode == 64 and "1 to 31" in wrong.stderr
    wrong = subprocess.run([inferd, "usage", where], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "401" in wrong.stderr


# ---- quotas


def test_a_quota_is_refused_by_name_also_after_a_kill(start, tmp_path):
    file = tmp_path / "answers.db"
    server = start(file, "tokens_per_day=20 tokens_per_month=1000")
    prompt = used(ask(server, 1).json)[0]
    rest = 20 - (prompt + 1)
    assert used(ask(server, rest - 2 * prompt).json)[1] == rest - 2 * prompt
    left = prompt  # as many as the next prompt has: it may run, whatever it makes then
    assert ask(server, 1).status == 200, left
    refused = ask(server, 1)
    assert refused.status == 429, refused
    error, wait = refused.json["error"], int(refused.headers["retry-after"])
    assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
    assert "tokens_per_day=20: 21 tokens are used" in error["message"]
    assert 0 < wait <= DAY and abs((int(time.time()) + wait) % DAY) <= 2
    assert ask(server, 1, BOB).status == 200
    usage(server)  # it is written then
    server.process.kill()
    server.process.wait()
    again = start(file, "tokens_per_day=20")
    assert ask(again, 1).status == 429
    with pytest.raises(openai.RateLimitError):
        client(again).responses.create(model="demo", input="Hi")
    assert again.get("/v1/models").status == 200
    assert again.stop() == 0, again.log()
    third = start(file, "tokens_per_day=100 tokens_per_month=21")
    assert "tokens_per_month=21: 21 tokens are used" in ask(third, 1).json["error"]["message"]
    assert third.stop() == 0, third.log()


def test_prompts_that_wait_count_for_the_quota(start, tmp_path):
    """Many at once do not all begin, because none has begun."""
    server = start(tmp_path / "answers.db", "tokens_per_day=200")
    body = {"prompt": ["a b c d e f g h i j"] * 30, "max_tokens": 1}
    assert server.post("/v1/completions", body).status == 429
    assert totals(server) == (0, 0, 0, 0)
    body["prompt"] = body["prompt"][:2]
    assert server.post("/v1/completions", body).status == 200
    assert server.stop() == 0, server.log()


def test_a_batch_waits_for_its_quota(start, tmp_path):
    server = start(tmp_path / "answers.db", "tokens_per_day=30")
    mine = client(server)
    lines = "".join(json.dumps({"custom_id": f"{i}", "method": "POST", "url": "/v1/completions",
                                "body": {"prompt": "Once", "max_tokens": 10, "ignore_eos": True}})
                    + "\n" for i in range(40))
    file = mine.files.create(file=("in.jsonl", lines.encode()), purpose="batch")
    made = mine.batches.create(input_file_id=file.id, endpoint="/v1/completions",
                               completion_window="24h")
    wait_until(lambda: server.metric("inferd_batch_lines_total", result="again") > 0, "refusals",
               30)
    batch = mine.batches.retrieve(made.id)
    assert batch.status == "in_progress" and batch.request_counts.failed == 0
    mine.batches.cancel(made.id)
    wait_until(lambda: mine.batches.retrieve(made.id).status == "cancelled", "the end", 30)
    assert server.stop() == 0, server.log()


def test_a_quota_needs_a_store(inferd, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"{ALICE} alice tokens_per_month=5\n")
    keys.chmod(0o600)
    run = subprocess.run([inferd, "serve", DEMO, "--port", "0", "--api-key-file", keys],
                         capture_output=True, text=True, check=False, timeout=60 * PATIENCE)
    assert run.returncode == 78 and "need --store" in run.stderr, run


def test_without_a_store_there_is_no_usage(inferd):
    server = Server(inferd, DEMO)
    answer = server.get("/v1/usage")
    assert answer.status == 404 and answer.json["error"]["code"] == "unsupported_endpoint", answer
    assert server.stop() == 0, server.log()
