"""kill -9 at drawn moments, with batches and answers of the background running: every line of the
output once, what is stored equal to a run without kills, the file whole.

--kills 100 asks for as many; each round of work is compared with the one that no kill disturbed."""

import json
import random
import sqlite3
import time

from harness import wait_until
from storing import client, keys, start  # noqa: F401

ENDED = ("completed", "incomplete", "failed", "cancelled", "expired")
LINES, ANSWERS = 40, 8


def begin(server):
    """A round of work: two batches, answers of the background, and a conversation."""
    mine = client(server)
    texts = [{"custom_id": f"{i}", "method": "POST", "url": "/v1/completions",
              "body": {"prompt": f"Once {i}", "max_tokens": 60, "ignore_eos": True,
                       "temperature": 1, "seed": i}} for i in range(LINES)]
    talks = [{"custom_id": f"{i}", "method": "POST", "url": "/v1/responses",
              "body": {"input": f"Say {i}", "max_output_tokens": 40, "ignore_eos": True,
                       "temperature": 1, "seed": i}} for i in range(LINES // 2)]
    batches = []
    for lines in (texts, talks):
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        file = mine.files.create(file=("in.jsonl", data), purpose="batch")
        batches.append(mine.batches.create(input_file_id=file.id, endpoint=lines[0]["url"],
                                           completion_window="24h").id)
    talk = mine.conversations.create().id
    late = [mine.responses.create(
        model="demo", input=f"Tell {i}", background=True, stream=i == 1, max_output_tokens=80,
        temperature=1, extra_body={"seed": i, "ignore_eos": True},
        **({"conversation": talk} if i == 0 else {})) for i in range(ANSWERS)]
    late[1] = next(iter(late[1])).response
    return batches, [one.id for one in late], talk


def over(server, work):
    mine = client(server)
    return all(mine.batches.retrieve(one).status in ENDED for one in work[0]) and all(
        mine.responses.retrieve(one).status in ENDED for one in work[1])


def texts_of(answer):
    return [part["text"] for item in answer["output"] for part in item.get("content", [])]


def outcome(server, work):
    """What a client finds of a round, without what is drawn anew."""
    mine, found = client(server), []
    for one in work[0]:
        batch = mine.batches.retrieve(one)
        assert batch.status == "completed" and batch.error_file_id is None, batch
        lines = [json.loads(line) for line in
                 mine.files.content(batch.output_file_id).text.splitlines()]
        bodies = [line["response"]["body"] for line in lines]
        found.append([(line["custom_id"], texts_of(body) if "output" in body else
                       body["choices"][0]["text"]) for line, body in zip(lines, bodies)])
        for body in bodies[::7]:
            if "output" in body:
                assert mine.responses.retrieve(body["id"]).to_dict()["output"] == body["output"]
    for one in work[1]:
        answer = mine.responses.retrieve(one)
        found.append((answer.status, texts_of(answer.to_dict())))
    events = list(mine.responses.retrieve(work[1][1], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    found.append("".join(event.delta for event in events
                         if event.type == "response.output_text.delta"))
    found.append([texts_of({"output": [item.to_dict()]})
                  for item in mine.conversations.items.list(work[2], order="asc")])
    return found


def test_nothing_is_lost_or_twice(start, tmp_path, request):
    file, drawn = tmp_path / "answers.db", random.Random(1)
    left = request.config.getoption("--kills")
    server = start(file)
    work = begin(server)
    wait_until(lambda: over(server, work), "the round without kills", 120)
    expected, works = outcome(server, work), []
    assert [len(part) for part in expected[:2]] == [LINES, LINES // 2]
    assert len(expected[-1]) == 2, "the conversation has one turn"
    while left > 0:
        works.append(begin(server))
        while left > 0 and not over(server, works[-1]):
            time.sleep(drawn.expovariate(drawn.choice((1, 8))))
            server.process.kill()
            server.process.wait()
            left -= 1
            server = start(file)
        wait_until(lambda: over(server, works[-1]), "the end of a round", 120)
        assert outcome(server, works[-1]) == expected
    for one in works:  # also those that later kills might have harmed
        assert outcome(server, one) == expected
    assert server.stop() == 0, server.log()
    with sqlite3.connect(file) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rounds = len(works) + 1
        assert db.execute("SELECT count(*) FROM response WHERE state = 0").fetchone() == (
            rounds * LINES // 2,), "a line of /v1/responses has stored one answer"
        assert db.execute("SELECT count(*) FROM response WHERE state IN (1, 5)").fetchone() == (0,)
    print(f"{request.config.getoption('--kills')} kills in {len(works)} rounds")
