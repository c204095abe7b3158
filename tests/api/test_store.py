"""--store: answers of /v1/responses that outlive their request, by OpenAI's client."""

import json
import re
import resource
import signal
import sqlite3
import threading
import time

import openai
import pytest
from harness import DEMO, Server, run, wait_until
from storing import ALICE, BOB, alice, bob, client, keys, start  # noqa: F401

QUESTION = "Once upon a time"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("store") / "answers.db"




@pytest.fixture(scope="module")
def server(start, file):
    server = start(file)
    yield server
    assert server.stop() == 0, server.log()


def ask(client, text=QUESTION, **fields):
    return client.responses.create(model="demo", input=text, max_output_tokens=16, temperature=0,
                                   **fields)


def same(one, other):
    return one.model_dump(exclude_unset=True) == other.model_dump(exclude_unset=True)


# ---- the file: checked and copied while a server writes


def test_a_copy_of_a_store_in_use_is_a_store(start, inferd, tmp_path):
    path, copy = tmp_path / "answers.db", tmp_path / "copy.db"
    server = start(path)
    mine = client(server)
    made = ask(mine)

    def has(rows):  # an answer is written behind what its client gets
        said = run(inferd, "store", "check", path)
        assert said.returncode == 0, said.stdout
        return re.search(rf"{path} is whole: {rows} rows?\b", said.stdout)

    wait_until(lambda: has(1), "the first answer in the file")
    writer = threading.Thread(target=lambda: [ask(mine) for _ in range(10)])
    writer.start()
    done = run(inferd, "store", "copy", path, copy)
    writer.join()
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(rf"{copy} is whole: \d+ rows, \d+ bytes of texts\n", done.stdout)
    assert copy.stat().st_mode & 0o777 == 0o600
    wait_until(lambda: has(11), "all answers in the file")
    assert server.stop() == 0, server.log()
    other = start(copy)
    assert same(client(other).responses.retrieve(made.id), made)
    assert other.stop() == 0, other.log()
    done = run(inferd, "store", "copy", path, copy)
    assert done.returncode == 74 and "File exists" in done.stdout, done.stdout


def test_what_is_no_whole_store_is_said(start, inferd, tmp_path):
    path = tmp_path / "answers.db"
    server = start(path)
    for _ in range(20):
        ask(client(server))
    assert server.stop() == 0, server.log()
    data = bytearray(path.read_bytes())
    for page in range(len(data) // 4096 // 2, len(data) // 4096):
        data[page * 4096:page * 4096 + 2048] = b"#" * 2048
    path.write_bytes(data)
    for arguments in (("check", path), ("copy", path, tmp_path / "copy.db")):
        done = run(inferd, "store", *arguments)
        assert done.returncode == 74 and str(path) in done.stdout, done.stdout
        assert "malformed" in done.stdout or "damaged" in done.stdout, done.stdout
    done = run(inferd, "store", "check", tmp_path / "none")
    assert done.returncode == 74 and "unable to open" in done.stdout, done.stdout
    done = run(inferd, "store", "prune", path)
    assert done.returncode == 64 and "usage: inferd store" in done.stdout, done.stdout


# ---- kept, listed, deleted


def test_an_answer_is_found_as_it_was(alice):
    made = ask(alice, metadata={"a": "b"}, instructions="Be brief.")
    assert made.store is True
    assert same(alice.responses.retrieve(made.id), made)


def test_a_stream_is_kept_as_its_last_event_has_it(alice):
    *_, last = ask(alice, stream=True)
    assert last.type in ("response.completed", "response.incomplete")
    assert same(alice.responses.retrieve(last.response.id), last.response)


def test_what_is_not_to_be_kept_is_not(alice):
    made = ask(alice, store=False)
    assert made.store is False
    with pytest.raises(openai.NotFoundError) as error:
        alice.responses.retrieve(made.id)
    assert error.value.code == "response_not_found"


def test_a_deleted_answer_is_gone(alice):
    made = ask(alice)
    alice.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        alice.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        alice.responses.delete(made.id)
    with pytest.raises(openai.BadRequestError) as error:
        ask(alice, previous_response_id=made.id)
    assert error.value.code == "previous_response_not_found"
    assert error.value.param == "previous_response_id"


def test_the_input_is_listed_newest_first_page_by_page(alice):
    items = [{"role": "user", "content": f"{i}"} for i in range(7)]
    made = ask(alice, items)
    texts = [item.content[0].text for item in alice.responses.input_items.list(made.id, limit=3)]
    assert texts == ["6", "5", "4", "3", "2", "1", "0"]
    page = alice.responses.input_items.list(made.id, order="asc", limit=2)
    assert [item.content[0].text for item in page.data] == ["0", "1"]
    ids = {item.id for item in alice.responses.input_items.list(made.id)}
    assert page.has_more and len(ids) == 7


@pytest.mark.parametrize("query, field", [
    ("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("limit=", "limit"),
    ("order=up", "order"), ("after=", "after")])
def test_a_wrong_page_is_refused_by_name(server, alice, query, field):
    made = ask(alice)
    answer = server.get(f"/v1/responses/{made.id}/input_items?{query}")
    assert answer.status == 400 and answer.json["error"]["param"] == field, answer


@pytest.mark.parametrize("query", ["limit=1", "limit=100", "order=asc", "after=nothing"])
def test_a_right_page_is_listed(server, alice, query):
    made = ask(alice)
    answer = server.get(f"/v1/responses/{made.id}/input_items?{query}")
    assert answer.status == 200 and len(answer.json["data"]) == 1, answer


@pytest.mark.parametrize("path", [
    "resp_unknown", "resp_unknown/input_items", "x" * 159, "x" * 160, "x" * 5000, "a/b", "%00",
    "a%2Fb", "resp_unknown/input_items/more"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_no_other_path_is_an_answer(server, method, path):
    answer = server.request(method, f"/v1/responses/{path}")
    assert answer.status in (400, 404), answer
    if path != "%00":
        assert answer.json["error"]["code"] == "response_not_found", answer


def test_methods_are_listed(server):
    answer = server.request("PUT", "/v1/responses/resp_1", {})
    assert answer.status == 405 and answer.headers["allow"] == "GET, HEAD, POST, DELETE, OPTIONS"


def test_a_stream_of_what_has_ended_is_refused(server, alice):
    answer = server.get(f"/v1/responses/{ask(alice).id}?stream=true")
    assert answer.status == 400 and answer.json["error"]["param"] == "stream"


# ---- large answers: a job prints them


def large(size):
    """A tool that the answer repeats."""
    return [{"type": "function", "name": "f", "description": "\u00e9\n" * (size // 4),
             "parameters": {"type": "object", "properties": {}}}]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("size", [1000, 60_000, 100_000])
def test_a_large_answer_is_found_as_it_was_and_at_once(server, alice, size, stream):
    made = ask(alice, tools=large(size), tool_choice="none", stream=stream)
    if stream:
        made = list(made)[-1].response
    assert made.store is True and len(made.tools) == 1
    assert same(alice.responses.retrieve(made.id), made)
    assert ask(alice, "x", previous_response_id=made.id).previous_response_id == made.id


@pytest.mark.parametrize("size, kept", [(1000, True), (100_000, False)])
def test_an_answer_that_fails_says_whether_it_is_kept(start, tmp_path, size, kept):
    """Nothing may wait when a server ends: what is not printed at once is not kept."""
    file = tmp_path / "answers.db"
    server = start(file, "--drain-timeout", "60s")
    events = client(server).responses.create(model="demo", input=QUESTION, stream=True,
                                             tools=large(size), tool_choice="none",
                                             extra_body={"ignore_eos": True})
    while next(events).type != "response.output_text.delta":
        pass
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "drain" in server.log(), "the drain to begin")  # two at once may be one
    server.process.send_signal(signal.SIGTERM)
    *_, last = events
    server.wait_exit(30)
    assert last.type == "response.failed" and last.response.store is kept, last.type
    again = start(file)
    if kept:
        assert same(client(again).responses.retrieve(last.response.id), last.response)
    else:
        with pytest.raises(openai.NotFoundError):
            client(again).responses.retrieve(last.response.id)
    assert again.stop() == 0, again.log()


# ---- continued


def test_a_chain_of_twenty_turns_is_the_whole_conversation(server, alice):
    """As if the client had sent all of it, and all of it comes from the prefix cache."""
    history, previous, cached = [], None, 0
    for turn in range(20):
        question = {"role": "user", "content": f"Tell me about the number {turn}."}
        made = ask(alice, [question], previous_response_id=previous)
        history.append(question)
        whole = ask(alice, history, store=False)
        assert made.output_text == whole.output_text
        assert made.usage.input_tokens == whole.usage.input_tokens
        assert made.previous_response_id == previous
        if turn > 0:
            assert made.usage.input_tokens_details.cached_tokens >= cached // 16 * 16
        cached = made.usage.input_tokens
        history += [item.model_dump(exclude_unset=True) for item in made.output]
        previous = made.id


def test_instructions_are_not_continued(alice):
    first = ask(alice, instructions="Speak like a pirate.")
    second = ask(alice, "And then?", previous_response_id=first.id)
    plain = ask(alice, [{"role": "user", "content": QUESTION}, *[
        item.model_dump(exclude_unset=True) for item in first.output],
        {"role": "user", "content": "And then?"}], store=False)
    assert second.usage.input_tokens == plain.usage.input_tokens
    assert second.output_text == plain.output_text


def test_an_output_answers_a_call_of_the_answer_before(alice):
    call = {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"}
    tool = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}}
    first = ask(alice, [{"role": "user", "content": "1 + 1?"}, call,
                        {"type": "function_call_output", "call_id": "call_1", "output": "2"}],
                tools=[tool])
    second = ask(alice, [{"type": "function_call_output", "call_id": "call_1", "output": "3"}],
                 previous_response_id=first.id, tools=[tool])
    assert second.status in ("completed", "incomplete")


def test_input_tokens_are_counted_with_what_came_before(server, alice):
    first = ask(alice)
    body = {"model": "demo", "input": "And then?", "previous_response_id": first.id}
    counted = server.post("/v1/responses/input_tokens", body)
    second = ask(alice, "And then?", previous_response_id=first.id)
    assert counted.json["input_tokens"] == second.usage.input_tokens


def test_an_answer_can_be_continued_at_once(alice):
    for _ in range(50):
        first = ask(alice)
        assert ask(alice, "x", previous_response_id=first.id).previous_response_id == first.id


@pytest.mark.parametrize("value, status, param", [
    ("resp_unknown", 400, "previous_response_id"), (7, 400, "previous_response_id"),
    ("x" * 5000, 400, "previous_response_id"), ("", 200, None), (None, 200, None),
    ("a\u0000b", 400, None)])
def test_a_wrong_previous_answer_is_refused(server, value, status, param):
    answer = server.post("/v1/responses", {"input": QUESTION, "max_output_tokens": 4,
                                           "previous_response_id": value})
    assert answer.status == status, answer
    if param:
        assert answer.json["error"]["param"] == param, answer


def test_store_is_a_boolean(server):
    answer = server.post("/v1/responses", {"input": QUESTION, "store": "yes"})
    assert answer.status == 400 and answer.json["error"]["param"] == "store"


# ---- whose


def test_another_key_has_nothing_of_it(server, alice, bob):
    made = ask(alice)
    for call in (bob.responses.retrieve, bob.responses.delete,
                 lambda key: list(bob.responses.input_items.list(key))):
        with pytest.raises(openai.NotFoundError) as error:
            call(made.id)
        assert made.id in str(error.value)
    with pytest.raises(openai.BadRequestError) as error:
        ask(bob, previous_response_id=made.id)
    unknown = server.request("GET", "/v1/responses/resp_unknown")
    other = client(server, BOB).responses.with_raw_response
    assert unknown.status == 404 and other is not None
    assert alice.responses.retrieve(made.id).id == made.id


def test_a_client_cannot_choose_the_id(server, alice, bob):
    """Else it could take the place of another's answer."""
    headers = {"X-Request-Id": "chosen"}
    first = ask(alice, extra_headers=headers)
    second = ask(bob, extra_headers=headers)
    assert len({first.id, second.id, "resp_chosen"}) == 3
    assert alice.responses.retrieve(first.id).id == first.id


# ---- the file


def test_answers_outlive_the_server(start, tmp_path):
    file = tmp_path / "answers.db"
    first = start(file)
    made = ask(client(first))
    assert first.stop() == 0, first.log()
    second = start(file)
    assert same(client(second).responses.retrieve(made.id), made)
    assert ask(client(second), "x", previous_response_id=made.id).store
    assert second.stop() == 0, second.log()
    assert file.stat().st_mode & 0o777 == 0o600


def test_answers_that_are_written_outlive_a_kill(start, tmp_path):
    file = tmp_path / "answers.db"
    server = start(file)
    made = [ask(client(server)) for _ in range(20)]
    wait_until(lambda: server.metric("inferd_store_answers_total", result="written") == 20,
               "the answers to be written")
    server.process.kill()
    server.process.wait()
    again = start(file)
    for answer in made:
        assert same(client(again).responses.retrieve(answer.id), answer)
    assert again.stop() == 0, again.log()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_without_a_store_everything_is_as_before(inferd):
    server = Server(inferd, DEMO)
    for method, path in [("GET", "resp_1"), ("DELETE", "resp_1"), ("GET", "resp_1/input_items")]:
        answer = server.request(method, f"/v1/responses/{path}")
        assert answer.status == 404 and answer.json["error"]["code"] == "unsupported_endpoint"
    body = {"input": QUESTION, "max_output_tokens": 4}
    answer = server.post("/v1/responses", body | {"store": True})
    assert answer.status == 200 and answer.json["store"] is False
    answer = server.post("/v1/responses", body | {"previous_response_id": "resp_1"})
    assert answer.status == 400 and answer.json["error"]["code"] == "unsupported_parameter"
    assert "--store" in answer.json["error"]["message"]
    assert server.stop() == 0, server.log()


def test_without_keys_all_share_the_answers(start, tmp_path):
    server = start(tmp_path / "answers.db", keyed=False)
    made = ask(client(server, "anything"))
    assert client(server, "else").responses.retrieve(made.id).id == made.id
    assert server.stop() == 0, server.log()


def test_old_answers_are_forgotten(start, tmp_path):
    server = start(tmp_path / "answers.db", "--store-ttl", "1s")
    made = ask(client(server))
    time.sleep(2.1)
    with pytest.raises(openai.NotFoundError):
        client(server).responses.retrieve(made.id)
    assert server.stop() == 0, server.log()


@pytest.mark.parametrize("make, sentence", [
    (lambda path: path.write_text("dear diary\n" * 1000), "is not a database"),
    (lambda path: path.mkdir(), "Is a directory"),
    (lambda path: sqlite3.connect(path).execute("CREATE TABLE t (x)"), "of another program")])
def test_a_start_with_a_wrong_file_says_so(inferd, tmp_path, make, sentence):
    path = tmp_path / "answers.db"
    make(path)
    server = Server(inferd, DEMO, "--store", path, wait=False)
    assert server.wait_exit(30) in (74, 78), server.log()
    assert sentence in server.log() and str(path) in server.log()


def test_a_store_that_fails_hurts_what_needs_it_alone(start, tmp_path):
    """A full disk: answers go on, and say that they are not kept; it is kept again afterwards."""
    file = tmp_path / "answers.db"
    server = start(file)
    alice = client(server)
    kept = ask(alice)
    wait_until(lambda: server.metric("inferd_store_answers_total", result="written") == 1,
               "the first write")
    tables = ("response", "use")  # one that is written would mend the store
    with sqlite3.connect(file) as db:
        for table in tables:
            db.execute(f"CREATE TRIGGER full_{table} BEFORE INSERT ON {table} "
                       "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END")
    ask(alice)
    wait_until(lambda: "disk is full" in server.log(), "the failure", 30)
    answer = server.post("/v1/responses", {"input": QUESTION, "max_output_tokens": 4})
    assert answer.status == 200 and answer.json["store"] is False
    assert "store" in answer.headers["x-inferd-ignored-params"]
    answer = server.post("/v1/responses", {"input": QUESTION, "store": True})
    assert answer.status == 507 and answer.json["error"]["code"] == "store_failed"
    assert answer.json["error"]["param"] == "store"
    assert alice.responses.retrieve(kept.id).id == kept.id
    with sqlite3.connect(file) as db:
        for table in tables:
            db.execute(f"DROP TRIGGER full_{table}")
    wait_until(lambda: ask(alice).store, "the store", 60)
    assert server.log().count("answers cannot be kept") == 1
    assert server.stop() == 0, server.log()


def test_a_file_that_cannot_grow_hurts_what_needs_it_alone(start, tmp_path):
    """Writes fail by the system, as on a file system that has become read-only: here by a limit of
    the size of files that the process gets while it runs."""
    server = start(tmp_path / "answers.db")
    alice = client(server)
    kept = ask(alice)
    wait_until(lambda: server.metric("inferd_store_answers_total", result="written") == 1,
               "the first write")
    _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, most))
    wait_until(lambda: not ask(alice).store, "an answer that says that it is not kept", 60)
    answer = server.post("/v1/responses", {"input": QUESTION, "store": True})
    assert answer.status == 507 and answer.json["error"]["code"] == "store_failed"
    answer = server.post("/v1/conversations", {})
    assert answer.status == 507 and answer.json["error"]["code"] == "store_failed"
    answer = server.post("/v1/completions", {"prompt": "Once", "max_tokens": 2})
    assert answer.status == 200, "it needs no store"
    assert alice.responses.retrieve(kept.id).id == kept.id
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))
    wait_until(lambda: ask(alice).store, "the store", 60)
    again = ask(alice)
    wait_until(lambda: server.get(f"/v1/responses/{again.id}").status == 200, "its answer", 30)
    assert server.post("/v1/conversations", {}).status == 200
    assert server.stop() == 0, server.log()


def test_many_clients_at_once(server):
    failures = []

    def talk(key):
        try:
            mine, previous = client(server, key), None
            for _ in range(8):
                previous = ask(mine, "x", previous_response_id=previous).id
                assert mine.responses.retrieve(previous).id == previous
        except Exception as error:  # pylint: disable=broad-except
            failures.append(repr(error))

    threads = [threading.Thread(target=talk, args=(key,)) for key in (ALICE, BOB) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def test_metrics_count_what_is_kept(server, alice):
    before = server.metric("inferd_store_answers_total", result="written")
    ask(alice)
    wait_until(lambda: server.metric("inferd_store_answers_total", result="written") > before,
               "the answer")
    assert server.metric("inferd_store_rows") > 0 and server.metric("inferd_store_bytes") > 0
    assert json.loads(server.get("/v1/models").body)
