"""/v1/files and /v1/batches, by OpenAI's client."""

import io
import json
import sqlite3
import threading
import time

import openai
import pytest
from harness import DEMO, ROOT, Server, run, wait_until
from openai.types import Batch, FileObject
from storing import ALICE, BOB, alice, bob, client, keys, server, start  # noqa: F401

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


def line(name, url=TEXT, **body):
    body.setdefault("max_tokens", 8)
    if url == CHAT:
        body.setdefault("messages", [{"role": "user", "content": f"Say {name}."}])
    else:
        body.setdefault("prompt", f"Once {name}")
    return {"custom_id": f"{name}", "method": "POST", "url": url,
            "body": {"model": "demo", "temperature": 0, **body}}


def jsonl(lines):
    return "".join(json.dumps(one) + "\n" for one in lines).encode()


def upload(client, lines, name="in.jsonl"):
    data = lines if isinstance(lines, bytes) else jsonl(lines)
    return client.files.create(file=(name, data), purpose="batch")


def create(client, file, endpoint=TEXT, **fields):
    return client.batches.create(input_file_id=file.id, endpoint=endpoint,
                                 **({"completion_window": "24h"} | fields))


def wait(client, batch):
    wait_until(lambda: client.batches.retrieve(batch.id).status in ENDED, f"{batch.id}", 60)
    return client.batches.retrieve(batch.id)


def results(client, key):
    return [json.loads(text) for text in client.files.content(key).text.splitlines()]


# ---- files


def test_a_file_is_kept_listed_and_removed(alice):
    data = jsonl([line("a"), line("b", prompt="\u00e9")])
    made = alice.files.create(file=("my in.jsonl", data), purpose="batch")
    FileObject.model_validate(made.model_dump())
    assert made.id.startswith("file-") and made.bytes == len(data)
    assert (made.filename, made.purpose, made.status) == ("my in.jsonl", "batch", "processed")
    assert alice.files.retrieve(made.id) == made
    assert alice.files.content(made.id).content == data
    others = [upload(alice, [line("x")]).id for _ in range(3)]
    ids = [one.id for one in alice.files.list(limit=2)]
    assert ids[:4] == [*reversed(others), made.id]
    assert [one.id for one in alice.files.list(order="asc", purpose="batch")] == ids[::-1]
    assert list(alice.files.list(purpose="batch_output")) == []
    gone = alice.files.delete(made.id)
    assert gone.deleted and gone.id == made.id
    for call in (alice.files.retrieve, alice.files.content, alice.files.delete):
        with pytest.raises(openai.NotFoundError) as error:
            call(made.id)
        assert error.value.code == "not_found"


WRONG = [
    (b"", "there is none"), (b"\n\n", "there is none"), (b"{", "line 1: Invalid JSON"),
    (b"[]", "line 1: it is no JSON object"),
    (jsonl([line("a")]) + b"nonsense\n" + jsonl([line("b")]), "1 lines are wrong: line 2: "),
    (jsonl([line("a"), line("b"), line("a")]), "line 3: its 'custom_id' is there before"),
    (jsonl([line("a"), line("b", CHAT)]), "line 2: its 'url' is another"),
    (jsonl([line("a") | {"custom_id": 1}]), "'custom_id'"), (jsonl([line("")]), "'custom_id'"),
    (jsonl([line("a" * 513)]), "'custom_id'"), (jsonl([line("a") | {"method": "GET"}]), "'method'"),
    (jsonl([line("a") | {"url": "/v1/models"}]), "'url'"),
    (jsonl([line("a") | {"body": "x"}]), "'body'"),
    (jsonl([line("a", stream=True)]), "'body.stream'"),
    (jsonl([line("a", background=True)]), "'body.background'"),
    (jsonl([line(f"{i}") | {"method": ""} for i in range(100)]), "100 lines are wrong: line 1: "),
]


@pytest.mark.parametrize("data, words", WRONG, ids=range(len(WRONG)))
def test_wrong_lines_are_named_by_their_numbers(alice, data, words):
    with pytest.raises(openai.BadRequestError) as error:
        upload(alice, data)
    assert error.value.param == "file" and words in str(error.value), error.value


@pytest.mark.parametrize("data", [
    jsonl([line("a" * 512)]), jsonl([line("a")])[:-1], b"\r\n" + jsonl([line("a")]) + b"\n",
    jsonl([line("a", stream=False, background=None)]).replace(b"\n", b"\r\n")])
def test_right_lines_are_taken(alice, data):
    assert upload(alice, data).bytes == len(data)


@pytest.mark.parametrize("form, kind, status, words", [
    ("purpose=batch", "application/x-www-form-urlencoded", 415, "multipart/form-data"),
    ("{}", "application/json", 415, "multipart/form-data"),
    ("", "multipart/form-data", 415, "multipart/form-data"),
    ("", "multipart/form-data; boundary=", 400, "boundary"),
    ("--x--", "multipart/form-data; boundary=x", 400, "'purpose'"),
    ("--x", "multipart/form-data; boundary=x", 400, "at byte 3"),
    ('--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x--',
     "multipart/form-data; boundary=x", 400, "'file'"),
    ('--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nvision\r\n--x--',
     "multipart/form-data; boundary=x", 400, "'purpose'"),
    ('--x\r\nContent-Disposition: form-data; name="expires_after[seconds]"\r\n\r\n1\r\n--x--',
     "multipart/form-data; boundary=x", 400, "expires_after[seconds]")])
def test_a_wrong_form_is_refused_by_name(server, form, kind, status, words):
    answer = server.request("POST", "/v1/files", form, headers={"Content-Type": kind})
    assert answer.status == status and words in answer.json["error"]["message"], answer


def test_a_file_has_at_most_the_bytes_of_a_body(start, tmp_path):
    server = start(tmp_path / "answers.db", "--max-body-bytes", "4000")
    assert upload(client(server), [line("a", prompt="x" * 3000)]).id
    with pytest.raises(openai.APIStatusError) as error:
        upload(client(server), [line("a", prompt="x" * 4000)])
    assert error.value.status_code == 413
    assert server.stop() == 0, server.log()


# ---- batches


def test_a_batch_is_answered_as_the_requests_would_be(alice):
    lines = [line(f"{i}", CHAT) for i in range(12)]
    lines[5]["body"]["max_tokens"] = -7
    lines[7]["body"]["model"] = "nothing"
    file = upload(alice, lines)
    made = create(alice, file, CHAT, metadata={"a": "b"})
    Batch.model_validate(made.model_dump())
    assert (made.status, made.input_file_id, made.metadata) == ("in_progress", file.id, {"a": "b"})
    assert made.request_counts.total == 12 and made.expires_at == made.created_at + 86400
    done = wait(alice, made)
    Batch.model_validate(done.model_dump())
    assert done.status == "completed" and done.completed_at >= made.created_at
    counts = done.request_counts
    assert (counts.total, counts.completed, counts.failed) == (12, 10, 2)
    found, wrong = results(alice, done.output_file_id), results(alice, done.error_file_id)
    assert [one["custom_id"] for one in found] == [f"{i}" for i in range(12) if i not in (5, 7)]
    assert [(one["custom_id"], one["response"]["status_code"]) for one in wrong] == [
        ("5", 400), ("7", 404)]
    assert wrong[0]["response"]["body"]["error"]["param"] == "max_tokens"
    assert len({one["id"] for one in found + wrong}) == 12
    for one in found[:4]:
        sent = next(own for own in lines if own["custom_id"] == one["custom_id"])
        same = alice.chat.completions.create(**sent["body"])
        assert one["response"]["status_code"] == 200 and one["error"] is None
        assert one["response"]["body"]["choices"] == same.model_dump(
            exclude_unset=True)["choices"]
        assert one["response"]["body"]["usage"]["total_tokens"] == same.usage.total_tokens
    output = alice.files.retrieve(done.output_file_id)
    assert output.purpose == "batch_output" and output.filename.endswith("output.jsonl")
    assert alice.batches.list(limit=1).data[0] == done
    assert {one.id for one in alice.files.list(purpose="batch_output")} >= {
        done.output_file_id, done.error_file_id}


def test_answers_of_other_endpoints(alice):
    made = create(alice, upload(alice, [
        {"custom_id": "r", "method": "POST", "url": "/v1/responses",
         "body": {"input": "Hi", "max_output_tokens": 4, "store": False}},
        {"custom_id": "e", "method": "POST", "url": "/v1/responses", "body": {}}]), "/v1/responses")
    done = wait(alice, made)
    assert (done.request_counts.completed, done.request_counts.failed) == (1, 1)
    assert results(alice, done.output_file_id)[0]["response"]["body"]["object"] == "response"
    made = create(alice, upload(alice, [
        {"custom_id": "v", "method": "POST", "url": "/v1/embeddings", "body": {"input": "Hi"}}]),
        "/v1/embeddings")
    done = wait(alice, made)
    assert done.output_file_id is None and done.request_counts.failed == 1
    body = results(alice, done.error_file_id)[0]["response"]["body"]
    assert body["error"]["code"] == "unsupported_endpoint", "this model makes none"


def test_vectors_of_a_batch(inferd, tmp_path):
    server = Server(inferd, ROOT / "tests/vectors/encoders/bert-mean", "--store",
                    tmp_path / "answers.db")
    mine = client(server)
    done = wait(mine, create(mine, upload(mine, [
        {"custom_id": f"{i}", "method": "POST", "url": "/v1/embeddings",
         "body": {"input": f"text {i}"}} for i in range(3)]), "/v1/embeddings"))
    found = results(mine, done.output_file_id)
    name = mine.models.list().data[0].id
    for i, one in enumerate(found):
        same = mine.embeddings.create(input=f"text {i}", model=name, encoding_format="float")
        assert one["response"]["body"]["data"][0]["embedding"] == same.data[0].embedding
    assert server.stop() == 0, server.log()


@pytest.mark.parametrize("fields, param", [
    ({"input_file_id": "file-0"}, "input_file_id"), ({"input_file_id": None}, "input_file_id"),
    ({"input_file_id": "resp_0"}, "input_file_id"), ({"endpoint": CHAT}, "endpoint"),
    ({"endpoint": "/v1/models"}, "endpoint"), ({"endpoint": None}, "endpoint"),
    ({"completion_window": "8d"}, "completion_window"), ({"completion_window": "7d"}, None),
    ({"completion_window": "0h"}, "completion_window"), ({"completion_window": "169h"},
                                                         "completion_window"),
    ({"completion_window": "24"}, "completion_window"), ({"completion_window": 24},
                                                         "completion_window"),
    ({"metadata": {"a": 1}}, "metadata"), ({"metadata": None}, None)])
def test_a_wrong_batch_is_refused_by_name(server, alice, fields, param):
    file = upload(alice, [line("a", max_tokens=1)])
    body = {"input_file_id": file.id, "endpoint": TEXT, "completion_window": "24h"} | fields
    answer = server.post("/v1/batches", body)
    assert answer.status == (400 if param else 200), answer
    if param:
        assert answer.json["error"]["param"] == param, answer


@pytest.mark.parametrize("path", ["batch_0", "file-0", "x" * 200, "a%2Fb", "batch_0/x"])
def test_no_other_path_is_a_batch_or_a_file(server, path):
    for method, full in [("GET", f"/v1/batches/{path}"), ("POST", f"/v1/batches/{path}/cancel"),
                         ("POST", f"/v1/batches/{path}"), ("GET", f"/v1/files/{path}"),
                         ("GET", f"/v1/files/{path}/content"), ("DELETE", f"/v1/files/{path}")]:
        answer = server.request(method, full)
        assert answer.status == 404 and answer.json["error"]["code"] == "not_found", answer


def test_a_cancelled_batch_keeps_what_it_has(alice):
    lines = [line(f"{i}", max_tokens=2000 if i else 1, ignore_eos=True) for i in range(200)]
    made = create(alice, upload(alice, lines))
    wait_until(lambda: alice.batches.retrieve(made.id).request_counts.completed > 0, "a line", 60)
    assert alice.batches.cancel(made.id).status == "cancelling"
    done = wait(alice, made)
    assert done.status == "cancelled" and done.cancelled_at >= done.cancelling_at
    assert 0 < done.request_counts.completed < 200
    found = results(alice, done.output_file_id)
    assert len(found) == done.request_counts.completed
    numbers = [int(one["custom_id"]) for one in found]
    assert numbers == sorted(set(numbers)), "in the order of the lines, each once"
    assert alice.batches.cancel(made.id).status == "cancelled"
    finished = wait(alice, create(alice, upload(alice, [line("a")])))
    with pytest.raises(openai.BadRequestError):
        alice.batches.cancel(finished.id)


def test_a_batch_is_cancelled_once_that_is_written(start, tmp_path):
    """So a kill behind the answer does not undo it."""
    file = tmp_path / "answers.db"
    server = start(file)
    mine = client(server)
    made = create(mine, upload(mine, [line(f"{i}", max_tokens=2000, ignore_eos=True)
                                      for i in range(50)]))
    told = threading.Event()

    def cancel():
        assert mine.batches.cancel(made.id).status == "cancelling"
        told.set()

    thread = threading.Thread(target=cancel)
    with sqlite3.connect(file, isolation_level=None) as db:
        db.execute("BEGIN IMMEDIATE")  # nobody else writes, as on a disk that is slow
        thread.start()
        assert not told.wait(0.5)
        db.execute("ROLLBACK")
    thread.join()
    assert told.is_set()
    server.process.kill()
    server.process.wait()
    again = start(file)
    assert wait(client(again), made).status == "cancelled"
    assert again.stop() == 0, again.log()


def test_a_line_that_runs_again_replaces_its_answer(start, tmp_path):
    """What a batch has answered is lost with its line, and the answer of /v1/responses is there."""
    file = tmp_path / "answers.db"
    server = start(file)
    mine = client(server)
    talk = mine.conversations.create()
    with sqlite3.connect(file) as db:
        db.execute("CREATE TRIGGER lose BEFORE UPDATE ON item BEGIN SELECT RAISE(IGNORE); END")
    made = create(mine, upload(mine, [
        {"custom_id": f"{i}", "method": "POST", "url": "/v1/responses",
         "body": {"input": f"Hi {i}", "max_output_tokens": 4, "ignore_eos": True}
         | ({"conversation": talk.id} if i == 0 else {})} for i in range(6)]), "/v1/responses")
    with sqlite3.connect(file) as db:
        wait_until(lambda: server.metric("inferd_batch_lines_total", result="answered") > 6,
                   "a second answer", 30)
        db.execute("DROP TRIGGER lose")
    done = wait(mine, made)
    found = [one["response"]["body"]["id"] for one in results(mine, done.output_file_id)]
    assert len(set(found)) == 6
    with sqlite3.connect(file) as db:
        assert {one for one, in db.execute("SELECT id FROM response WHERE state = 0")} == set(found)
    assert mine.responses.retrieve(found[3]).id == found[3]
    assert len(list(mine.conversations.items.list(talk.id))) == 2
    assert server.stop() == 0, server.log()


def test_an_output_is_not_copied_through_memory(start, tmp_path):
    """Lines become the file where they lie: an output may be larger than what requests may hold.
    What is read of it is counted."""
    server = start(tmp_path / "answers.db", "--max-body-bytes", "1000000",
                   "--max-request-memory", "2000000")
    mine = client(server)
    body = line("0", max_tokens=1)
    body["body"] |= {"prompt": "a b c d e f g h " * 15, "echo": True, "logprobs": 5}
    made = create(mine, upload(mine, [body | {"custom_id": f"{i:0100}"} for i in range(150)]))
    done = wait(mine, made)
    assert (done.status, done.request_counts.completed) == ("completed", 150), done
    size = mine.files.retrieve(done.output_file_id).bytes
    assert size > 2000000
    with pytest.raises(openai.APIStatusError) as error:
        mine.files.content(done.output_file_id)
    assert error.value.status_code == 503 and "memory" in str(error.value)
    assert server.stop() == 0, server.log()
    again = start(tmp_path / "answers.db")
    assert len(client(again).files.content(done.output_file_id).content) == size
    client(again).files.delete(done.output_file_id)
    assert again.stop() == 0, again.log()
    with sqlite3.connect(tmp_path / "answers.db") as db:
        assert db.execute("SELECT count(*) FROM item").fetchone() == (0,)


def test_an_expired_batch_says_which_lines_were_not_run(alice):
    lines = [line(f"{i}", max_tokens=2000 if i else 1, ignore_eos=True) for i in range(100)]
    made = create(alice, upload(alice, lines), completion_window="2s")
    done = wait(alice, made)
    assert done.status == "expired" and done.expired_at >= done.expires_at
    found, wrong = results(alice, done.output_file_id), results(alice, done.error_file_id)
    assert len(found) + len(wrong) == 100 and done.request_counts.failed == len(wrong)
    assert all(one["error"]["code"] == "batch_expired" and one["response"] is None
               for one in wrong)
    assert [one["custom_id"] for one in wrong] == [
        f"{i}" for i in range(100) if f"{i}" not in {one["custom_id"] for one in found}]


def test_a_key_has_at_most_64_batches_that_have_not_ended(start, tmp_path):
    """The loop goes over all of them, so their number has a bound; another key has its own."""
    server = start(tmp_path / "answers.db")
    alice, bob = client(server), client(server, BOB)
    slow = [line(str(i), max_tokens=2000, ignore_eos=True) for i in range(40)]
    file = upload(alice, slow)
    made = [create(alice, file) for _ in range(64)]
    with pytest.raises(openai.RateLimitError) as error:
        create(alice, file)
    assert "of this API key 64: at most 4096 may wait, 64 of a key" in str(error.value)
    assert create(bob, upload(bob, [line("a")])).status == "in_progress"
    for batch in made:
        alice.batches.cancel(batch.id)
    assert {wait(alice, batch).status for batch in made} == {"cancelled"}
    create(alice, file)
    assert server.stop() == 0, server.log()


def test_clients_come_first(inferd, start, tmp_path):
    """By the journal: no line has a token in a step that reads a prompt of a client."""
    journal, trace = tmp_path / "steps", tmp_path / "steps.json"
    server = start(tmp_path / "answers.db", "--journal", journal)
    alice = client(server)
    lines = [line(f"{i}", max_tokens=400 if i else 1, ignore_eos=True) for i in range(600)]
    made = create(alice, upload(alice, lines))
    wait_until(lambda: alice.batches.retrieve(made.id).request_counts.completed > 0, "a line", 60)
    for i in range(8):
        alice.completions.create(model="demo", prompt=f"{i} " + "word " * 300, max_tokens=5,
                                 extra_headers={"X-Request-Id": f"chat-{i}"})
    answered = alice.batches.retrieve(made.id).request_counts.completed
    assert answered < 600, "the batch was there all the time"
    alice.batches.cancel(made.id)
    assert server.stop() == 0, server.log()
    assert run(inferd, "replay", "--trace", trace, journal, cwd=ROOT).returncode == 0
    events = json.loads(trace.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events
             if event["name"] == "thread_name"}
    steps = {"chat": set(), "batch": set()}
    for event in events:
        name = names.get(event.get("tid"), "")
        kind = "chat" if "chat-" in name else "batch" if "batch_" in name else None
        if event["name"] in ("prompt", "draws")[:1 if kind == "chat" else 2] and kind:
            args = event["args"]
            steps[kind].update(range(args["first step"], args["last step"] + 1))
    assert len(steps["chat"]) >= 8 and len(steps["batch"]) > 30
    assert not steps["chat"] & steps["batch"]


def test_a_batch_outlives_kills_and_no_line_is_twice(start, tmp_path):
    file = tmp_path / "answers.db"
    lines = [line(f"{i}", max_tokens=24, ignore_eos=True, temperature=1) for i in range(50)]
    server = start(file)
    made = create(client(server), upload(client(server), lines))
    for share in (4, 20):
        wait_until(lambda: client(server).batches.retrieve(  # pylint: disable=cell-var-from-loop
            made.id).request_counts.completed >= share, f"{share} lines", 60)
        server.process.kill()
        server.process.wait()
        server = start(file)
    done = wait(client(server), made)
    found = results(client(server), done.output_file_id)
    assert [one["custom_id"] for one in found] == [f"{i}" for i in range(50)]
    assert done.request_counts.completed == 50 and done.error_file_id is None
    texts = {one["custom_id"]: one["response"]["body"]["choices"][0]["text"] for one in found}
    assert server.stop() == 0, server.log()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT DISTINCT conversation FROM item").fetchall() == [
            (done.output_file_id,)], "lines are gone, or answers of the output"
    assert len(set(texts.values())) > 25, "each line has its own seed"


def test_an_orderly_end_loses_no_line(start, tmp_path):
    file = tmp_path / "answers.db"
    server = start(file)
    made = create(client(server), upload(client(server), [
        line(f"{i}", max_tokens=100 if i > 2 else 1500, ignore_eos=True) for i in range(30)]))
    wait_until(lambda: server.metric("inferd_requests_running") >= 2, "the engine", 60)
    begin = time.monotonic()
    assert server.stop() == 0, server.log()
    assert time.monotonic() - begin < 30
    again = start(file)
    done = wait(client(again), made)
    assert len(results(client(again), done.output_file_id)) == 30
    assert again.stop() == 0, again.log()


def test_a_full_disk_loses_no_line(start, tmp_path):
    file = tmp_path / "answers.db"
    server = start(file)
    mine = client(server)
    with sqlite3.connect(file) as db:  # before the batch, which may be through in a moment
        db.execute("CREATE TRIGGER full BEFORE UPDATE ON item "
                   "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
    made = create(mine, upload(mine, [line(f"{i}") for i in range(20)]))
    wait_until(lambda: "disk is full" in server.log(), "the failure", 30)
    with sqlite3.connect(file) as db:
        db.execute("DROP TRIGGER full")
    done = wait(mine, made)
    assert [one["custom_id"] for one in results(mine, done.output_file_id)] == [
        f"{i}" for i in range(20)]
    assert server.stop() == 0, server.log()


def test_what_a_full_disk_refuses_comes_again(start, tmp_path):
    """Lines that ask to be kept, and that begin while nothing can be."""
    file = tmp_path / "answers.db"
    server = start(file, "--max-num-seqs", "2")
    mine = client(server)
    body = {"input": "Once", "store": True, "max_output_tokens": 200, "ignore_eos": True}
    lines = [{"custom_id": f"{i}", "method": "POST", "url": "/v1/responses", "body": body}
             for i in range(12)]
    with sqlite3.connect(file) as db:
        db.execute("CREATE TRIGGER full BEFORE INSERT ON response WHEN new.state = 0 "
                   "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
    made = create(mine, upload(mine, lines), "/v1/responses")
    refused = [{"result": "again"}, {"result": "failed"}]
    wait_until(lambda: any(server.metric("inferd_batch_lines_total", **one) for one in refused),
               "a refusal", 30)
    with sqlite3.connect(file) as db:
        db.execute("DROP TRIGGER full")
    done = wait(mine, made)
    assert done.error_file_id is None, results(mine, done.error_file_id)
    assert [one["custom_id"] for one in results(mine, done.output_file_id)] == [
        f"{i}" for i in range(12)]
    assert server.stop() == 0, server.log()


def test_a_batch_whose_key_is_gone_fails(start, keys, tmp_path):
    file = tmp_path / "answers.db"
    server = start(file)
    made = create(client(server, BOB), upload(client(server, BOB), [
        line(f"{i}", max_tokens=2000, ignore_eos=True) for i in range(50)]))
    server.process.kill()
    server.process.wait()
    text = keys.read_text()
    keys.write_text(f"{ALICE} alice\n")
    again = start(file)
    with sqlite3.connect(file) as db:
        wait_until(lambda: db.execute("SELECT count(*) FROM response WHERE state = 6"
                                      ).fetchone() == (1,), "the end", 30)
    assert again.stop() == 0, again.log()
    keys.write_text(text)
    third = start(file)
    found = client(third, BOB).batches.retrieve(made.id)
    assert found.status == "failed" and "API key" in found.errors.data[0].message
    assert third.stop() == 0, third.log()


# ---- whose


def test_another_key_has_nothing_of_it(server, alice):
    bob = client(server, BOB)
    file = upload(alice, [line("secret", max_tokens=2000, ignore_eos=True)])
    made = create(alice, file)
    for call in (bob.files.retrieve, bob.files.content, bob.files.delete):
        with pytest.raises(openai.NotFoundError) as error:
            call(file.id)
        assert "secret" not in str(error.value)
    for call in (bob.batches.retrieve, bob.batches.cancel):
        with pytest.raises(openai.NotFoundError):
            call(made.id)
    with pytest.raises(openai.BadRequestError) as error:
        create(bob, file)
    assert error.value.param == "input_file_id"
    assert list(bob.files.list()) == [] and list(bob.batches.list()) == []
    assert list(bob.files.list(after=file.id)) == [] and list(bob.batches.list(after=made.id)) == []
    assert server.request("GET", f"/v1/files/{file.id}/content",
                          headers={"Authorization": "Bearer nothing"}).status == 401
    assert alice.files.retrieve(file.id) == file
    assert alice.batches.cancel(made.id).status == "cancelling"
    done = wait(alice, made)
    for key in (done.output_file_id, done.error_file_id):
        if key is not None:
            with pytest.raises(openai.NotFoundError):
                bob.files.content(key)
    with pytest.raises(openai.NotFoundError):
        alice.responses.retrieve(file.id)
    assert server.get(f"/v1/conversations/{made.id}/items").status == 404


def test_without_a_store_they_are_refused(inferd):
    server = Server(inferd, DEMO)
    for method, path in [("POST", "/v1/files"), ("GET", "/v1/files"), ("GET", "/v1/files/file-0"),
                         ("POST", "/v1/batches"), ("GET", "/v1/batches/batch_0"),
                         ("POST", "/v1/batches/batch_0/cancel")]:
        answer = server.request(method, path, {} if method == "POST" else None)
        assert answer.status == 404 and answer.json["error"]["code"] == "unsupported_endpoint"
    assert server.stop() == 0, server.log()


def test_uploads_by_a_stream_are_taken(alice):
    assert alice.files.create(file=io.BytesIO(jsonl([line("a")])), purpose="batch").filename
