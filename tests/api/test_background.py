"""Answers that are made later: `background` of /v1/responses, by OpenAI's client."""

import sqlite3
import threading
import time

import openai
import pytest
from harness import DEMO, PATIENCE, Server, wait_until
from storing import ALICE, BOB, alice, bob, client, keys, server, start  # noqa: F401

QUESTION = "Once upon a time"
ENDED = ("completed", "incomplete", "failed", "cancelled")


def ask(client, tokens=16, **fields):
    """In the background; it does not end before it has so many tokens."""
    fields.setdefault("input", QUESTION)
    fields.setdefault("temperature", 0)
    return client.responses.create(model="demo", max_output_tokens=tokens, background=True,
                                   extra_body={"ignore_eos": True}, **fields)


def wait(client, made):
    """As OpenAI's guide polls."""
    until = time.monotonic() + 60 * PATIENCE
    while made.status in ("queued", "in_progress"):
        assert time.monotonic() < until, made.status
        time.sleep(0.02)
        made = client.responses.retrieve(made.id)
    return made


def content(made):
    """What must not differ between two answers to one request."""
    return made.status, made.output_text, made.usage and made.usage.model_dump()


LONG = 4000  # tokens: tens of seconds


def test_an_answer_is_made_later(alice):
    made = ask(alice, metadata={"a": "b"}, instructions="Be brief.")
    assert made.status == "queued" and made.background is True and made.store is True
    assert made.output == [] and made.usage is None and made.metadata == {"a": "b"}
    done = wait(alice, made)
    assert done.status == "incomplete" and done.background is True
    assert (done.id, done.created_at, done.metadata) == (made.id, made.created_at, {"a": "b"})
    now = alice.responses.create(model="demo", input=QUESTION, max_output_tokens=16, temperature=0,
                                 instructions="Be brief.", extra_body={"ignore_eos": True})
    assert done.output_text == now.output_text
    assert alice.responses.retrieve(made.id).output_text == done.output_text


def test_an_answer_is_in_progress_while_it_is_made(alice):
    made = ask(alice, LONG)
    wait_until(lambda: alice.responses.retrieve(made.id).status == "in_progress", "the run", 20)
    assert alice.responses.cancel(made.id).status == "cancelled"


def test_what_was_asked_is_listed_with_the_same_ids_before_and_after(alice):
    made = ask(alice)
    before = [item.id for item in alice.responses.input_items.list(made.id)]
    wait(alice, made)
    assert [item.id for item in alice.responses.input_items.list(made.id)] == before


def test_a_drawn_answer_is_the_same_again(start, tmp_path):
    """Its seed comes from its id: a kill in the middle changes nothing."""
    file = tmp_path / "answers.db"
    server = start(file)
    alice = client(server)
    made = [ask(alice, 600, temperature=1.0) for _ in range(4)]
    wait_until(lambda: alice.responses.retrieve(made[-1].id).status == "in_progress", "the run", 20)
    server.process.kill()
    server.process.wait()
    with sqlite3.connect(file) as db:
        assert db.execute("SELECT count(*) FROM response WHERE state = 1").fetchone()[0] >= 2
        rows = list(db.execute("SELECT id, request, body, input FROM response WHERE state = 1"))
    again = start(file)
    first = {row[0]: content(wait(client(again), client(again).responses.retrieve(row[0])))
             for row in rows}
    assert len({text for _, text, _ in first.values()}) == len(first), "each has its own seed"
    assert again.stop() == 0, again.log()
    with sqlite3.connect(file) as db:  # once more, from the same requests
        for key, request, body, items in rows:
            db.execute("UPDATE response SET state = 1, request = ?, body = ?, input = ? "
                       "WHERE id = ?", (request, body, items, key))
    third = start(file)
    for key, _, _, _ in rows:
        one = content(wait(client(third), client(third).responses.retrieve(key)))
        assert one[:2] == first[key][:2]
    assert third.stop() == 0, third.log()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_answers_outlive_an_orderly_end(start, tmp_path):
    """It does not wait for them, and forgets none."""
    file = tmp_path / "answers.db"
    server = start(file)
    mine = client(server)
    made, late = [ask(mine, 400) for _ in range(2)], ask(mine, LONG)
    assert server.stop() == 0, server.log()
    again = start(file)
    assert client(again).responses.cancel(late.id).status == "cancelled", "it was not waited for"
    for one in made:
        assert wait(client(again), client(again).responses.retrieve(one.id)).status == "incomplete"
    assert "run again" in again.log()
    assert again.stop() == 0, again.log()


# ---- cancelled, deleted


def test_a_cancelled_answer_stays_cancelled(server, alice):
    made = ask(alice, LONG)
    assert alice.responses.cancel(made.id).status == "cancelled"
    assert alice.responses.retrieve(made.id).status == "cancelled"
    assert alice.responses.cancel(made.id).status == "cancelled"
    wait_until(lambda: server.metric("inferd_requests_running") == 0, "the engine", 20)
    assert alice.responses.retrieve(made.id).status == "cancelled"


def test_what_has_ended_is_not_cancelled(alice):
    done = wait(alice, ask(alice))
    plain = alice.responses.create(model="demo", input=QUESTION, max_output_tokens=4)
    for made in (done, plain):
        with pytest.raises(openai.BadRequestError):
            alice.responses.cancel(made.id)
        assert alice.responses.retrieve(made.id).status == made.status


def test_a_deleted_answer_is_not_made(server, alice):
    made = ask(alice, LONG)
    alice.responses.delete(made.id)
    wait_until(lambda: server.metric("inferd_background_responses") == 0, "the run", 20)
    with pytest.raises(openai.NotFoundError):
        alice.responses.retrieve(made.id)


@pytest.mark.parametrize("path", ["", "resp_0", "resp_0/cancel/", "resp_0/stop", "/cancel",
                                  "x" * 170 + "/cancel"])
def test_nothing_else_is_posted_to_an_answer(server, path):
    answer = server.post(f"/v1/responses/{path}", {})
    assert answer.status in (400, 404), answer


# ---- streams


def stream(client, tokens=24, **fields):
    return ask(client, tokens, stream=True, **fields)


def test_a_stream_is_followed_and_read_again_from_any_event(alice):
    events = list(stream(alice))
    key = events[0].response.id
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.incomplete"
    assert events[-1].response.background is True
    assert alice.responses.retrieve(key).output_text == events[-1].response.output_text
    for after in (0, 1, len(events) // 2, len(events) - 2, len(events) - 1, len(events)):
        rest = list(alice.responses.retrieve(key, stream=True, starting_after=after))
        assert rest == events[after + 1:]
    assert list(alice.responses.retrieve(key, stream=True)) == events


def test_a_reader_may_leave_and_come_back(alice):
    seen = []
    with stream(alice, 400) as events:
        key = None
        for event in events:
            key = key or event.response.id
            seen.append(event)
            if event.sequence_number == 20:
                break
    seen += alice.responses.retrieve(key, stream=True, starting_after=20)
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert seen[-1].type == "response.incomplete"
    text = "".join(e.delta for e in seen if e.type == "response.output_text.delta")
    assert text == seen[-1].response.output_text == alice.responses.retrieve(key).output_text


def test_many_read_one_stream(alice):
    with stream(alice, 300) as events:
        key = next(iter(events)).response.id
    found, failures = [], []

    def read(after):
        try:
            found.append((after, list(alice.responses.retrieve(key, stream=True,
                                                               starting_after=after))))
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=read, args=(after,)) for after in (0, 3, 50, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = list(alice.responses.retrieve(key, stream=True))
    assert not failures, failures
    for after, events in found:
        assert events == whole[after + 1:]


def test_a_large_stream_is_whole(alice):
    """Its events are printed in turns of the loop."""
    tool = [{"type": "function", "name": "f", "description": "\u00e9\n" * 25_000,
             "parameters": {"type": "object", "properties": {}}}]
    events = list(stream(alice, tools=tool, tool_choice="none"))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert len(events[-1].response.tools[0].description) == 50_000
    again = list(alice.responses.retrieve(events[0].response.id, stream=True))
    assert again == events


def test_a_stream_outlives_a_kill(start, tmp_path):
    file = tmp_path / "answers.db"
    server = start(file)
    events = stream(client(server), 400)
    key = next(iter(events)).response.id
    server.process.kill()
    server.process.wait()
    again = start(file)
    whole = list(client(again).responses.retrieve(key, stream=True))
    assert [event.sequence_number for event in whole] == list(range(len(whole)))
    assert whole[-1].response.id == key and whole[-1].type == "response.incomplete"
    assert again.stop() == 0, again.log()


def test_a_cancelled_stream_ends(alice):
    events = iter(stream(alice, LONG))
    key = next(events).response.id
    alice.responses.cancel(key)
    types = [event.type for event in events]
    assert "response.completed" not in types and "response.incomplete" not in types
    assert alice.responses.retrieve(key).status == "cancelled"


@pytest.mark.parametrize("query, field", [
    ("stream=yes", "stream"), ("starting_after=1", "starting_after"),
    ("stream=true&starting_after=-1", "starting_after"),
    ("stream=true&starting_after=", "starting_after"),
    ("stream=true&starting_after=x", "starting_after"),
    ("stream=true&starting_after=2147483648", "starting_after")])
def test_a_wrong_place_in_a_stream_is_refused_by_name(server, alice, query, field):
    made = ask(alice, stream=True)
    key = list(made)[0].response.id
    answer = server.get(f"/v1/responses/{key}?{query}")
    assert answer.status == 400 and answer.json["error"]["param"] == field, answer


def test_what_was_not_streamed_has_no_events(server, alice):
    made = ask(alice)
    for _ in range(2):
        answer = server.get(f"/v1/responses/{made.id}?stream=true")
        assert answer.status == 400 and answer.json["error"]["param"] == "stream", answer
        wait(alice, made)


# ---- refused


@pytest.mark.parametrize("fields, param", [
    ({"store": False}, "background"), ({"background": 1}, "background"),
    ({"input": []}, "input"), ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "nothing"}}}},
     "text.format"),
    ({"previous_response_id": "resp_0"}, "previous_response_id"),
    ({"input": "word " * 20_000}, "input")])
def test_a_wrong_request_is_refused_at_once(server, fields, param):
    answer = server.post("/v1/responses", {"input": QUESTION, "background": True} | fields)
    assert answer.status == 400 and answer.json["error"]["param"] == param, answer


def test_without_a_store_it_is_refused(inferd):
    server = Server(inferd, DEMO)
    answer = server.post("/v1/responses", {"input": QUESTION, "background": True})
    assert answer.status == 400 and answer.json["error"]["code"] == "unsupported_parameter"
    assert "--store" in answer.json["error"]["message"]
    assert server.post("/v1/responses", {"input": QUESTION, "background": False,
                                         "max_output_tokens": 4}).status == 200
    assert server.post("/v1/responses/resp_0/cancel", {}).status == 404
    assert server.stop() == 0, server.log()


def test_what_has_not_ended_is_not_continued(alice):
    made = ask(alice, LONG)
    with pytest.raises(openai.BadRequestError) as error:
        alice.responses.create(model="demo", input="x", previous_response_id=made.id)
    assert error.value.param == "previous_response_id" and "not ended" in str(error.value)
    alice.responses.cancel(made.id)
    done = wait(alice, ask(alice))
    more = alice.responses.create(model="demo", input="x", previous_response_id=done.id,
                                  max_output_tokens=4)
    assert more.previous_response_id == done.id


def test_a_key_may_have_so_many(start, alice, tmp_path):
    server = start(tmp_path / "answers.db")
    mine = client(server)
    made = [ask(mine, LONG) for _ in range(64)]
    with pytest.raises(openai.RateLimitError) as error:
        ask(mine, LONG)
    assert "64" in str(error.value) and error.value.param == "background"
    other = ask(client(server, BOB), 8)
    assert wait(client(server, BOB), other).status == "incomplete", "another key has its own"
    mine.responses.cancel(made.pop().id)
    made.append(ask(mine, LONG))
    for one in made:
        assert mine.responses.cancel(one.id).status == "cancelled"
    wait_until(lambda: server.metric("inferd_background_responses") == 0, "the runs", 20)
    assert server.stop() == 0, server.log()


def test_a_write_that_fails_is_told(start, tmp_path):
    file = tmp_path / "answers.db"
    server = start(file)
    with sqlite3.connect(file) as db:
        db.execute("CREATE TRIGGER full BEFORE INSERT ON response "
                   "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
    answer = server.post("/v1/responses", {"input": QUESTION, "background": True})
    assert answer.status == 507 and answer.json["error"]["code"] == "store_failed", answer
    assert server.metric("inferd_background_responses") == 0
    assert server.stop() == 0, server.log()


def test_an_answer_that_cannot_be_written_is_written_later(start, tmp_path):
    """A full disk while it is made: it is not lost, and not made again."""
    file = tmp_path / "answers.db"
    server = start(file)
    mine = client(server)
    with sqlite3.connect(file) as db:  # from then on no answer that has ended can be written
        db.execute("CREATE TRIGGER full BEFORE INSERT ON response WHEN NEW.state <> 1 "
                   "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
    made = [ask(mine, 300), ask(mine, 300, stream=True)]
    key = next(iter(made[1])).response.id
    wait_until(lambda: server.metric("inferd_store_answers_total", result="retried") >= 2,
               "a write to fail", 60)
    assert mine.responses.retrieve(made[0].id).status == "in_progress"
    steps = server.metric("inferd_generation_tokens_total")
    with sqlite3.connect(file) as db:
        db.execute("DROP TRIGGER full")
    for one in (made[0].id, key):
        assert wait(mine, mine.responses.retrieve(one)).status == "incomplete"
    assert server.metric("inferd_generation_tokens_total") == steps
    wait_until(lambda: server.metric("inferd_background_responses") == 0, "the runs", 20)
    assert server.stop() == 0, server.log()


@pytest.mark.parametrize("call", ["cancel", "delete"])
@pytest.mark.parametrize("streams", [False, True])
def test_an_end_that_cannot_be_written_is_none(start, tmp_path, call, streams):
    """A full disk: the client is told so, and the answer is made all the same."""
    file = tmp_path / "answers.db"
    server = start(file)
    mine = client(server)
    made = ask(mine, 300, stream=streams)
    key = next(iter(made)).response.id if streams else made.id
    with sqlite3.connect(file) as db:
        for what in ("INSERT", "DELETE"):
            db.execute(f"CREATE TRIGGER full_{what} BEFORE {what} ON response "
                       "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
    with pytest.raises(openai.InternalServerError) as error:
        getattr(mine.responses, call)(key)
    assert error.value.status_code == 507 and error.value.code == "store_failed"
    with sqlite3.connect(file) as db:
        for what in ("INSERT", "DELETE"):
            db.execute(f"DROP TRIGGER full_{what}")
    done = wait(mine, mine.responses.retrieve(key))
    assert (done.status, done.usage.output_tokens) == ("incomplete", 300)
    if streams:
        events = list(mine.responses.retrieve(key, stream=True))
        assert [one.sequence_number for one in events] == list(range(len(events)))
        assert events[-1].response.output_text == done.output_text
    assert server.stop() == 0, server.log()


def test_a_key_that_is_gone_gets_nothing_made(start, keys, tmp_path):
    file = tmp_path / "answers.db"
    server = start(file)
    made = ask(client(server, BOB), LONG)
    server.process.kill()
    server.process.wait()
    text = keys.read_text()
    keys.write_text(f"{ALICE} alice\n")
    again = start(file)
    with sqlite3.connect(file) as db:
        wait_until(lambda: db.execute("SELECT state FROM response").fetchone() == (2,), "the end")
    assert again.stop() == 0, again.log()
    keys.write_text(text)
    third = start(file)
    found = client(third, BOB).responses.retrieve(made.id)
    assert found.status == "failed" and "API key" in found.error.message
    assert third.stop() == 0, third.log()


# ---- whose


def test_another_key_has_nothing_of_it(server, alice, bob):
    made = ask(alice, LONG)
    streamed = next(iter(stream(alice, LONG))).response
    for one in (made, streamed):
        for call in (bob.responses.retrieve, bob.responses.cancel, bob.responses.delete,
                     lambda key: bob.responses.retrieve(key, stream=True),
                     lambda key: bob.responses.retrieve(key, stream=True, starting_after=0),
                     lambda key: list(bob.responses.input_items.list(key))):
            with pytest.raises(openai.NotFoundError):
                call(one.id)
        with pytest.raises(openai.BadRequestError) as error:
            bob.responses.create(model="demo", input="x", previous_response_id=one.id)
        assert error.value.code == "previous_response_not_found"
        assert alice.responses.retrieve(one.id).status in ("queued", "in_progress")
        assert alice.responses.cancel(one.id).status == "cancelled"
    assert server.metric("inferd_background_responses") >= 0
