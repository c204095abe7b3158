"""Alternatives of the whole vocabulary: --max-logprobs -1, and how such answers stay bounded."""

import json
import math

import pytest

from harness import DEMO, Server, Stream, run, wait_until

P = "The capital of France is"
VOCABULARY = 4096  # of the demo model


@pytest.fixture(scope="module")
def wide(inferd):
    server = Server(inferd, DEMO, "--max-logprobs", -1, "--max-model-len", 2048)
    yield server
    assert server.alive(), server.log()
    assert 0 < server.metric("inferd_reply_turn_bytes_max", scope="one") <= 256 * 1024
    wait_until(server.idle, "the server to be idle", context=server.usage)
    assert server.stop() == 0, server.log()


@pytest.fixture
def server(wide):
    yield wide
    wait_until(wide.idle, "the server to be idle again", context=wide.usage)
    wait_until(lambda: wide.metric("inferd_request_memory_bytes") == 0, "the ledger to be empty")


def chat(server, **fields):
    reply = server.post("/v1/chat/completions",
                        {"messages": [{"role": "user", "content": "Say hi"}], "temperature": 0,
                         **fields})
    assert reply.status == 200, reply
    return reply.json


def total(logprobs):
    return math.fsum(math.exp(value) for value in logprobs)


def test_prompt_logprobs_of_the_vocabulary(server):
    answer = server.complete(P, max_tokens=1, prompt_logprobs=-1,
                             return_token_ids=True)["choices"][0]
    few = server.complete(P, max_tokens=1, prompt_logprobs=20)["choices"][0]["prompt_logprobs"]
    ids, positions = answer["prompt_token_ids"], answer["prompt_logprobs"]
    assert len(positions) == len(ids) and positions[0] is None
    for id, position, best in zip(ids[1:], positions[1:], few[1:]):
        assert sorted(map(int, position)) == list(range(VOCABULARY))
        assert list(position)[0] == str(id), "the token of the prompt comes first"
        assert abs(total(e["logprob"] for e in position.values()) - 1) < 1e-4
        for key, entry in best.items():
            assert position[key] == entry, "the same as of 20 alternatives, to the last digit"
        others = [e for k, e in position.items() if int(k) != id]
        values = [e["logprob"] for e in others]
        assert values == sorted(values, reverse=True)
        ranks = [e["rank"] for e in others]
        assert len(set(ranks)) == VOCABULARY - 1 and max(ranks) <= VOCABULARY
        assert position[str(id)]["rank"] == 1 + sum(e["logprob"] > position[str(id)]["logprob"]
                                                     for e in others)


@pytest.mark.parametrize("asked, count", [(-1, VOCABULARY), (VOCABULARY, VOCABULARY), (300, 300)])
def test_chat(server, asked, count):
    few = chat(server, logprobs=True, top_logprobs=20, max_tokens=3)["choices"][0]
    many = chat(server, logprobs=True, top_logprobs=asked, max_tokens=3)["choices"][0]
    assert many["message"] == few["message"]
    for wanted, entry in zip(few["logprobs"]["content"], many["logprobs"]["content"], strict=True):
        assert len(entry["top_logprobs"]) == count
        assert entry["top_logprobs"][:20] == wanted["top_logprobs"]
        assert (entry["token"], entry["logprob"]) == (wanted["token"], wanted["logprob"])
        values = [e["logprob"] for e in entry["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert total(values) < 1 + 1e-4 and (count < VOCABULARY or total(values) > 1 - 1e-4)


@pytest.mark.parametrize("asked", [-1, 300, 149, 148])
def test_completions(server, asked):
    """The keys are strings: of ids with the same string the likeliest stays, as of few."""
    fields = {"max_tokens": 3, "temperature": 0, "ignore_eos": True}
    few = server.complete(P, logprobs=20, **fields)["choices"][0]["logprobs"]
    many = server.complete(P, logprobs=asked, **fields)["choices"][0]["logprobs"]
    assert few["tokens"] == many["tokens"] and few["text_offset"] == many["text_offset"]
    assert few["token_logprobs"] == many["token_logprobs"]
    for wanted, top in zip(few["top_logprobs"], many["top_logprobs"], strict=True):
        for token, value in wanted.items():
            assert top[token] == value
        assert len(top) <= (asked if asked > 0 else VOCABULARY)
        assert len(top) > 0.9 * (asked if asked > 0 else VOCABULARY)


def test_keys_are_unique_and_ids_all_there(server):
    """As ids no key is dropped; as strings none occurs twice, which JSON readers would hide."""
    body = {"model": "demo", "prompt": P, "max_tokens": 1, "temperature": 0, "logprobs": -1}
    text = server.post("/v1/completions", {**body, "return_tokens_as_token_ids": False}).body
    pairs = []
    json.loads(text, object_pairs_hook=lambda p: pairs.append(p) or dict(p))
    top = max(pairs, key=len)
    assert len({key for key, _ in top}) == len(top) < VOCABULARY
    answer = server.complete(P, max_tokens=1, temperature=0, logprobs=-1,
                             return_tokens_as_token_ids=True)
    top = answer["choices"][0]["logprobs"]["top_logprobs"][0]
    assert sorted(top) == sorted(f"token_id:{i}" for i in range(VOCABULARY))


def test_echo(server):
    """One request scores the prompt and what follows; the same numbers as prompt_logprobs."""
    answer = server.complete(P, max_tokens=2, temperature=0, echo=True, logprobs=-1,
                             prompt_logprobs=-1, return_tokens_as_token_ids=True,
                             return_token_ids=True)["choices"][0]
    ids, logprobs = answer["prompt_token_ids"], answer["logprobs"]
    assert len(logprobs["top_logprobs"]) == len(ids) + 2
    assert logprobs["top_logprobs"][0] is None and logprobs["token_logprobs"][0] is None
    for top, position in zip(logprobs["top_logprobs"][1:len(ids)], answer["prompt_logprobs"][1:]):
        assert top == {f"token_id:{key}": entry["logprob"] for key, entry in position.items()}


def test_streams_say_the_same(server):
    """Frames are larger than the buffer of a stream, and printed while they are sent."""
    fields = {"prompt": P, "max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": -1,
              "echo": True, "n": 2, "return_token_ids": True}
    whole = server.complete(**fields)["choices"]
    parts = [{"text": "", "tokens": [], "tops": []} for _ in whole]
    stream = Stream(server, {"model": "demo", "stream": True, **fields,
                             "stream_options": {"include_usage": True}})
    last = None
    for chunk in stream.chunks():
        last = chunk
        for choice in chunk["choices"]:
            part = parts[choice["index"]]
            part["text"] += choice["text"]
            if choice["logprobs"] is None:
                continue
            part["tokens"] += choice["logprobs"]["tokens"]
            part["tops"] += choice["logprobs"]["top_logprobs"]
    assert last["usage"]["completion_tokens"] == 12
    for choice, part in zip(whole, parts):
        assert part["text"] == choice["text"]
        assert part["tokens"] == choice["logprobs"]["tokens"]
        assert part["tops"] == choice["logprobs"]["top_logprobs"]


def test_chat_stream(server):
    whole = chat(server, logprobs=True, top_logprobs=-1, max_tokens=4)["choices"][0]
    stream = Stream(server, {"messages": [{"role": "user", "content": "Say hi"}], "stream": True,
                             "temperature": 0, "logprobs": True, "top_logprobs": -1,
                             "max_tokens": 4}, path="/v1/chat/completions")
    entries = [entry for chunk in stream.chunks() for choice in chunk["choices"]
               for entry in (choice["logprobs"] or {}).get("content", [])]
    assert entries == whole["logprobs"]["content"]


@pytest.mark.parametrize("fields", [{"best_of": 3, "temperature": 1, "seed": 5},
                                    {"use_beam_search": True, "best_of": 3, "n": 2}])
def test_choices_known_at_the_end(server, fields):
    few = server.complete(P, max_tokens=4, logprobs=20, **fields)["choices"]
    many = server.complete(P, max_tokens=4, logprobs=-1, **fields)["choices"]
    for wanted, choice in zip(few, many, strict=True):
        assert choice["text"] == wanted["text"]
        for best, top in zip(wanted["logprobs"]["top_logprobs"], choice["logprobs"]["top_logprobs"],
                             strict=True):
            assert len(top) > 0.9 * VOCABULARY
            assert all(top[token] == value for token, value in best.items())


def test_grammar_leaves_the_others_at_the_floor(server):
    choice = server.complete(P, max_tokens=4, temperature=0, logprobs=-1,
                             structured_outputs={"choice": ["yes", "no"]})["choices"][0]
    top = choice["logprobs"]["top_logprobs"][0]
    possible = [value for value in top.values() if value > -9999]
    assert 2 <= len(possible) < 20 and abs(total(possible) - 1) < 1e-4


@pytest.mark.parametrize("path, fields, param, words", [
    ("/v1/completions", {"prompt": P, "logprobs": VOCABULARY + 1}, "logprobs", "4096"),
    ("/v1/completions", {"prompt": P, "prompt_logprobs": 5000}, "prompt_logprobs", "4096"),
    ("/v1/completions", {"prompt": P, "logprobs": -2}, "logprobs", "-1"),
    ("/v1/completions", {"prompt": [5] * 1500, "prompt_logprobs": 4096, "n": 2, "max_tokens": 1},
     "prompt_logprobs", "8388608"),
    ("/v1/completions", {"prompt": [5] * 1100, "logprobs": 4096, "echo": True, "n": 2,
                         "max_tokens": 1}, "logprobs", "8388608"),
    ("/v1/completions", {"prompt": P, "logprobs": -1, "max_tokens": 2000, "n": 2}, "logprobs",
     "'max_tokens'"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "logprobs": True,
                              "top_logprobs": -1, "max_tokens": 2000, "n": 2}, "top_logprobs",
     "'max_tokens'"),
    ("/v1/responses", {"input": "hi", "top_logprobs": 300,
                       "include": ["message.output_text.logprobs"]}, "top_logprobs", "148"),
])
def test_refused(server, path, fields, param, words):
    reply = server.post(path, {"model": "demo", **fields})
    assert reply.status == 400, reply
    assert reply.error["param"] == param and words in reply.error["message"], reply.error


def test_a_small_server_refuses_the_vocabulary(demo):
    reply = demo.post("/v1/completions", {"prompt": P, "prompt_logprobs": -1})
    assert reply.status == 400 and reply.error["param"] == "prompt_logprobs"
    assert "4096" in reply.error["message"] and "20" in reply.error["message"]


def test_memory_that_does_not_fit_is_503(start):
    server = start(DEMO, "--max-logprobs", -1, "--max-model-len", 2048,
                   "--max-request-memory", "16MiB")
    reply = server.post("/v1/completions", {"prompt": P, "logprobs": -1, "max_tokens": 1000})
    assert reply.status == 503, reply
    assert len(server.complete(P, logprobs=-1, max_tokens=2)["choices"]) == 1


@pytest.mark.parametrize("flag", ["-2", "4097"])
def test_flags_out_of_range(inferd, flag):
    result = run(inferd, "serve", DEMO, "--port", 0, "--max-logprobs", flag)
    assert result.returncode in (64, 78), result
    assert "max_logprobs" in result.stdout.replace("-", "_") and "-1" in result.stdout, result


def test_the_vocabulary_is_the_largest_number(start):
    server = start(DEMO, "--max-logprobs", VOCABULARY, "--max-model-len", 2048)
    assert len(chat(server, logprobs=True, top_logprobs=VOCABULARY, max_tokens=1)["choices"][0]
               ["logprobs"]["content"][0]["top_logprobs"]) == VOCABULARY


def test_clients_that_leave(server):
    """A stream and a reply of many megabytes are dropped in the middle; nothing stays behind."""
    body = {"model": "demo", "prompt": P, "max_tokens": 200, "ignore_eos": True, "logprobs": -1}
    for stream in (True, False):
        connection = server.socket()
        text = json.dumps({**body, "stream": stream, "max_tokens": 200 if stream else 20})
        head = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n")
        connection.sendall((head + text).encode())
        got = b""
        while len(got) < 200_000:
            got += connection.recv(65536)
        assert b" 200 " in got[:20]
        connection.close()
