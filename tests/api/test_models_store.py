"""--store with several models: one file for all of them. Each test has small models of random
weights; what is kept is asked for from the parent, whichever process has written it."""

import os
import re
import resource
import signal
import threading

import openai
import pytest

from harness import DEMO, Server, dummy_model, wait_until
from storing import ALICE, BOB, alice, bob, client, write_keys  # noqa: F401
from test_batches import create, jsonl, results, upload, wait
from test_models import SMALL, card, children, need, state

ADMIN = "sk-admin-0123456789"
NAMES = ("ant", "bee", "cat")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """A file with three models: sections, so that they have weights of random numbers."""
    model = dummy_model(tmp_path_factory.mktemp("small") / "small", **SMALL)
    file = tmp_path_factory.mktemp("zoo") / "zoo.conf"
    file.write_text("".join(f"[model {name}]\nmodel = {model}\nload-format = dummy\n"
                            "max-num-seqs = 4\nmax-num-batched-tokens = 64\n" for name in NAMES))
    return file


@pytest.fixture(scope="module")
def begin(inferd, zoo, tmp_path_factory):
    def make(store, *flags, alice="", model=None):
        return Server(inferd, model, "--config", zoo, "--store", store, "--api-key-file",
                      write_keys(tmp_path_factory, alice), "--admin-key", ADMIN, *flags, key=ALICE)
    return make


@pytest.fixture(scope="module")
def server(begin, tmp_path_factory):
    server = begin(tmp_path_factory.mktemp("store") / "answers.db", model=DEMO)
    yield server
    assert server.stop() == 0, server.log()


def respond(client, model, text="a", **fields):
    return client.responses.create(model=model, input=text, max_output_tokens=8, temperature=0,
                                   **fields)


def line(name, model, url="/v1/completions", **body):
    body = {"model": model, "temperature": 0, "max_tokens": 8, "prompt": f"Once {name}", **body}
    return {"custom_id": name, "method": "POST", "url": url, "body": body}


# answers

def test_an_answer_is_continued_by_another_model_at_once(alice):
    """Who has heard of the end of an answer may ask any process for it."""
    previous, said = None, []
    for turn in range(12):
        stream = turn % 3 == 2
        answer = respond(alice, NAMES[turn % 2], f"turn {turn}", stream=stream,
                         previous_response_id=previous)
        if stream:
            *_, last = answer
            answer = last.response
        assert answer.store and alice.responses.retrieve(answer.id) == answer, "as it was"
        previous = answer.id
        said.append(answer.id)
    items = alice.responses.input_items.list(said[7])
    assert items.data[0].content[0].text.startswith("turn 7")
    alice.responses.delete(said[3])
    with pytest.raises(openai.NotFoundError):
        alice.responses.retrieve(said[3])
    with pytest.raises(openai.BadRequestError) as error:
        respond(alice, "bee", previous_response_id=said[3])
    assert error.value.code == "previous_response_not_found"


def test_the_history_reaches_the_other_model(server, alice):
    """The tokens of a continued answer are those of the whole history."""
    first = respond(alice, "demo", "2 plus 3?")
    history = [{"role": "user", "content": "2 plus 3?"},
               *({"role": "assistant", "content": item.content[0].text} for item in first.output),
               {"role": "user", "content": "And?"}]
    second = respond(alice, "demo", "And?", previous_response_id=first.id)
    whole = respond(alice, "demo", history)
    assert second.usage.input_tokens == whole.usage.input_tokens
    assert second.output_text == whole.output_text
    other = respond(alice, "ant", "And?", previous_response_id=first.id)
    assert other.usage.input_tokens == respond(alice, "ant", history).usage.input_tokens


def test_what_a_key_has_is_nobody_elses(alice, bob):
    mine = respond(alice, "ant")
    with pytest.raises(openai.NotFoundError):
        bob.responses.retrieve(mine.id)
    with pytest.raises(openai.NotFoundError):
        bob.responses.delete(mine.id)
    with pytest.raises(openai.BadRequestError):
        respond(bob, "ant", previous_response_id=mine.id)
    assert respond(alice, "ant", store=False).store is False


def test_models_that_are_not_in_memory_are_not_loaded_for_what_is_kept(server, alice):
    answer = respond(alice, "cat")
    headers = {"Authorization": f"Bearer {ADMIN}"}
    server.post("/v1/models/unload", {"model": "cat"}, headers=headers)
    wait_until(lambda: state(server, "cat") == "unloaded", "the end", context=server.log)
    assert alice.responses.retrieve(answer.id) == answer
    assert alice.responses.input_items.list(answer.id).data
    alice.responses.delete(answer.id)
    assert state(server, "cat") == "unloaded" and "cat" not in children(server)


def test_a_conversation_of_several_models(alice):
    talk = alice.conversations.create(items=[{"role": "user", "content": "Once"}],
                                      metadata={"a": "b"})
    for model in ("ant", "bee", "ant"):
        answer = respond(alice, model, f"to {model}", conversation=talk.id)
        assert answer.conversation.id == talk.id
    texts = [item.content[0].text for item in
             alice.conversations.items.list(talk.id, order="asc") if item.role == "user"]
    assert texts == ["Once", "to ant", "to bee", "to ant"]
    alice.conversations.items.create(talk.id, items=[{"role": "user", "content": "later"}])
    assert len(alice.conversations.items.list(talk.id, limit=100).data) == 8
    assert alice.conversations.update(talk.id, metadata={"c": "d"}).metadata == {"c": "d"}
    assert alice.conversations.delete(talk.id).deleted
    with pytest.raises(openai.NotFoundError):
        respond(alice, "ant", conversation=talk.id)


def test_background_is_refused_by_name(server, alice):
    with pytest.raises(openai.BadRequestError) as error:
        respond(alice, "ant", background=True)
    assert error.value.param == "background" and "/v1/batches" in str(error.value)
    assert respond(alice, "ant", background=False).status in ("completed", "incomplete")
    answer = alice.responses.create(model="ant", input="a", max_output_tokens=1)
    with pytest.raises(openai.BadRequestError) as error:
        alice.responses.cancel(answer.id)
    assert "background" in str(error.value)


# usage

def totals(server, key=ALICE):
    """{model: (requests, input, output)}"""
    answer = server.request("GET", "/v1/usage?group_by=model",
                            headers={"Authorization": f"Bearer {key}"})
    assert answer.status == 200, answer
    found = {}
    for row in (row for day in answer.json["data"] for row in day["results"]):
        more = [row[name] for name in ("num_model_requests", "input_tokens", "output_tokens")]
        found[row["model"]] = tuple(map(sum, zip(more, found.get(row["model"], (0, 0, 0)),
                                                 strict=True)))
    return found


def test_use_is_counted_by_model(begin, tmp_path):
    server = begin(tmp_path / "answers.db")
    asked = {}
    for turn in range(7):
        name = NAMES[turn % 3]
        usage = server.post("/v1/completions", {"model": name, "prompt": [5, 6, 7], "max_tokens":
                                                turn + 1, "ignore_eos": True}).json["usage"]
        asked[name] = tuple(map(sum, zip(asked.get(name, (0, 0, 0)),
                                         (1, usage["prompt_tokens"], usage["completion_tokens"]),
                                         strict=True)))
    wait_until(lambda: totals(server) == asked, f"{asked}", context=lambda: f"{totals(server)}")
    assert totals(server, BOB) == {} and totals(server, ADMIN) == asked
    assert server.stop() == 0, server.log()
    again = begin(tmp_path / "answers.db")
    assert totals(again) == asked
    assert again.stop() == 0


def test_a_quota_is_that_of_all_models(begin, tmp_path):
    """Also across an end of the process of a model, and of the server."""
    def use(server, model, prompt=10, tokens=10):
        return server.post("/v1/completions", {"model": model, "prompt": [5] * prompt,
                                               "max_tokens": tokens, "ignore_eos": True})

    server = begin(tmp_path / "answers.db", alice="tokens_per_day=90")
    assert [use(server, NAMES[turn % 3]).status for turn in range(3)] == [200] * 3  # 60
    wait_until(lambda: sum(sum(row[1:]) for row in totals(server).values()) == 60, "the use")
    killed = children(server)["bee"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: children(server).get("bee") not in (None, killed)
               and state(server, "bee") == "ready", "its return")
    assert use(server, "bee").status == 200  # 80
    refused = use(server, "ant", 11)
    assert refused.status == 429 and "tokens_per_day=90: 80 tokens are used" in \
        refused.error["message"], refused
    assert use(server, "cat", 10, 1).status == 200  # 91: what is generated is not known before
    for name in NAMES:
        assert use(server, name, 1, 1).status == 429
    assert server.stop() == 0, server.log()
    again = begin(tmp_path / "answers.db", alice="tokens_per_day=91")
    assert [use(again, name, 1, 1).status for name in NAMES] == [429] * 3
    assert again.stop() == 0


# batches

def test_lines_of_a_batch_name_their_models(server, alice, bob):
    lines = [line(f"{name}{i}", name) for i in range(5) for name in (*NAMES, "demo")]
    batch = wait(alice, create(alice, upload(alice, lines)))
    assert (batch.status, batch.request_counts.completed) == ("completed", 20), batch
    found = {one["custom_id"]: one["response"] for one in results(alice, batch.output_file_id)}
    assert list(found) == [one["custom_id"] for one in lines], "in order"
    for one in lines:
        body = found[one["custom_id"]]["body"]
        alone = server.post("/v1/completions", one["body"]).json
        assert body["choices"] == alone["choices"] and body["model"] == one["body"]["model"]
    with pytest.raises(openai.NotFoundError):
        bob.batches.retrieve(batch.id)


def test_errors_of_lines_are_told(alice):
    lines = [line("good", "ant"), line("unknown", "nope"), line("wrong", "bee", max_tokens=-5),
             {**line("none", "x"), "body": {"prompt": "a"}}, line("last", "cat")]
    batch = wait(alice, create(alice, upload(alice, lines)))
    assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 3), batch
    errors = {one["custom_id"]: one["response"] for one in results(alice, batch.error_file_id)}
    assert {name: one["status_code"] for name, one in errors.items()} == \
        {"unknown": 404, "wrong": 400, "none": 400}
    assert "`nope` does not exist" in errors["unknown"]["body"]["error"]["message"]
    assert errors["wrong"]["body"]["error"]["param"] == "max_tokens"
    assert errors["none"]["body"]["error"]["param"] == "model"


def test_every_endpoint_of_a_batch(alice):
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
    bodies = {"/v1/chat/completions": chat, "/v1/responses": {"input": "a",
                                                              "max_output_tokens": 4}}
    for url, body in bodies.items():
        lines = [{"custom_id": name, "method": "POST", "url": url, "body": {"model": name, **body}}
                 for name in NAMES]
        batch = wait(alice, create(alice, upload(alice, lines), url))
        assert batch.request_counts.completed == 3, (url, batch)
        for one in results(alice, batch.output_file_id):
            assert one["response"]["body"]["model"] == one["custom_id"]


def test_a_seed_is_the_lines_own(alice):
    """The same line of another batch draws other tokens; one with a seed the same."""
    def texts(**fields):
        lines = [line("a", "ant", temperature=1, max_tokens=20, ignore_eos=True, **fields)]
        batch = wait(alice, create(alice, upload(alice, lines)))
        (one,) = results(alice, batch.output_file_id)
        return one["response"]["body"]["choices"][0]["text"]

    assert texts() != texts() and texts(seed=3) == texts(seed=3)


def test_a_batch_of_more_models_than_there_is_memory_for(begin, inferd, zoo, tmp_path):
    """And a client's stream goes on beside it: its model is not unloaded."""
    model = re.search(r"model = (.*)", zoo.read_text())[1]
    one = need(inferd, model, "--load-format", "dummy", "--max-num-seqs", 4,
               "--max-num-batched-tokens", 64)
    server = begin(tmp_path / "answers.db", "--models-memory", 2 * one)
    alice = client(server)
    stop, answers = threading.Event(), []

    def chat():
        while not stop.is_set():
            answers.append(server.post("/v1/completions",
                                       {"model": "ant", "prompt": [5], "max_tokens": 100,
                                        "ignore_eos": True},
                                       headers={"Authorization": f"Bearer {BOB}"}).status)

    thread = threading.Thread(target=chat)
    thread.start()
    try:
        lines = [line(f"{name}{i}", name) for i in range(4) for name in NAMES]
        batch = wait(alice, create(alice, upload(alice, lines)))
        assert batch.request_counts.completed == 12, batch
    finally:
        stop.set()
        thread.join()
    assert set(answers) == {200} and len(answers) > 3
    assert server.metric("inferd_model_loads_total", model_name="ant") <= 3
    assert server.stop() == 0, server.log()


def test_a_batch_goes_on_after_kills(begin, tmp_path):
    """Of processes of models, and of the parent: no line is lost, or twice in the output."""
    store = tmp_path / "answers.db"
    server = begin(store)
    lines = [line(f"{i:03}", NAMES[i % 3], max_tokens=200, ignore_eos=True) for i in range(120)]
    batch = create(client(server), upload(client(server), lines))
    for turn in range(2):
        done = client(server).batches.retrieve(batch.id).request_counts.completed
        wait_until(lambda done=done: client(server).batches.retrieve(batch.id)
                   .request_counts.completed > done, "some lines", 60)
        os.kill(children(server)[NAMES[turn]], signal.SIGKILL)
        wait_until(lambda: len(children(server)) == 3, "its return", 60)
    server.process.kill()
    server.process.wait()
    server = begin(store)
    ended = wait(client(server), batch)
    assert (ended.status, ended.request_counts.completed) == ("completed", 120), ended
    ids = [one["custom_id"] for one in results(client(server), ended.output_file_id)]
    assert ids == [one["custom_id"] for one in lines]
    assert server.stop() == 0, server.log()


def test_a_server_that_ends_stops_its_lines(begin, tmp_path):
    """They are no errors: the next start runs them again."""
    store = tmp_path / "answers.db"
    server = begin(store)
    lines = [line(f"{i:03}", NAMES[i % 3], max_tokens=400, ignore_eos=True) for i in range(60)]
    batch = create(client(server), upload(client(server), lines))
    wait_until(lambda: client(server).batches.retrieve(batch.id).request_counts.completed > 0,
               "some lines", 60)
    assert server.stop() == 0, server.log()
    server = begin(store)
    ended = wait(client(server), batch)
    assert (ended.request_counts.completed, ended.request_counts.failed) == (60, 0), ended
    assert server.stop() == 0, server.log()


def test_cancel_and_lists(alice, server):
    lines = [line(f"{i:03}", NAMES[i % 3], max_tokens=400, ignore_eos=True) for i in range(200)]
    file = upload(alice, lines)
    assert alice.files.content(file.id).content == jsonl(lines)
    batch = create(alice, file)
    assert batch.id in [one.id for one in alice.batches.list(limit=5)]
    alice.batches.cancel(batch.id)
    ended = wait(alice, batch)
    assert ended.status == "cancelled" and ended.request_counts.completed < 200
    alice.files.delete(file.id)
    wait_until(lambda: all(card(server, name)["running"] == 0 for name in NAMES), "the lines' end")
    assert server.metric("inferd_batch_lines_in_flight") == 0


def test_an_older_file_of_one_model_is_read(inferd, begin, keys_of_alice, tmp_path):
    """What waits there in the background is told of, and can be cancelled."""
    store = tmp_path / "answers.db"
    alone = Server(inferd, DEMO, "--served-model-name", "demo", "--store", store,
                   "--api-key-file", keys_of_alice, key=ALICE)
    kept = respond(client(alone), "demo")
    long = client(alone).responses.create(model="demo", input="a", max_output_tokens=4000,
                                          background=True, extra_body={"ignore_eos": True})
    alone.process.kill()
    alone.process.wait()
    server = begin(store)
    assert "1 responses with background wait for a server of one model" in server.log()
    assert client(server).responses.retrieve(kept.id) == kept
    assert client(server).responses.retrieve(long.id).status == "queued"
    assert client(server).responses.cancel(long.id).status == "cancelled"
    assert respond(client(server), "ant", previous_response_id=kept.id).store
    assert server.stop() == 0, server.log()


@pytest.fixture
def keys_of_alice(tmp_path):
    keys = tmp_path / "alice"
    keys.write_text(f"{ALICE} alice\n")
    keys.chmod(0o600)
    return keys


def test_answers_that_cannot_be_written_say_so(begin, tmp_path):
    """A full disk for one process: its answers are not kept and say so, those of others are."""
    server = begin(tmp_path / "answers.db")
    alice = client(server)
    assert respond(alice, "ant").store and respond(alice, "bee").store
    pid = children(server)["ant"]
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, most))
    lost = respond(alice, "ant")
    assert lost.store is False, "its end tells what became of it"
    with pytest.raises(openai.NotFoundError):
        alice.responses.retrieve(lost.id)
    with pytest.raises(openai.APIStatusError) as error:
        respond(alice, "ant", store=True)
    assert error.value.status_code == 507, error.value
    kept = respond(alice, "bee")
    assert kept.store and alice.responses.retrieve(kept.id) == kept
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
    wait_until(lambda: respond(alice, "ant").store, "it to be kept again", 30)
    assert server.stop() == 0, server.log()
