"""Whatever stands at a limit, the honest stream and the honest chat go on, by counts.

Every limit of the field tables and of the server's flags, one below, at it, one above, alone and in
pairs (boundaries.py), is sent by one key beside a stream and chats of another. Asserted: what is
outside a limit is refused and the field named, nothing is answered by 500, the chat begins within
so many steps, nobody makes room more often than an honest request asks, and
afterwards no block, no byte and no request is held.

Steps are counted by the server's journal, not by what a client has read: this program may stand
still for as long as a hundred steps of a small model last.

A seed draws the part that runs here: of a route all that is refused at one limit, half of what is
accepted, and a few pairs; with INFERD_TEST_LONG everything at one limit, and more pairs.
INFERD_BOUNDARIES=all runs all pairs, too, =N so many, and INFERD_BOUNDARIES_SEED draws others."""

import bisect
import itertools
import json
import os
import random
import threading

import pytest
from boundaries import ROUTES, Limits, body_of, cases_of, values_of
from conftest import ATTACKER
from harness import LONG, PATIENCE, Background, run, wait_until
from victim import CHAT, STREAM, ids

LIMITS = Limits(max_num_seqs=16, max_model_len=256, max_num_batched_tokens=64, max_logprobs=20,
                block_size=16)
PAIRS = os.environ.get("INFERD_BOUNDARIES", "40" if LONG else "10")
SEED = int(os.environ.get("INFERD_BOUNDARIES_SEED", "1"))
AT_ONCE = 4
# Tokens that each attack wants; and steps that may pass while a chat waits: one that waited for
# an attack to end would see all of the attack's. Behind its arrival in the engine the bound is that
# of the law: two steps, and two for the one in flight.
HELD_TOKENS, STEPS_MOST, STEPS_IN_ENGINE, TRIES = 120, 60, 4, 3
REFUSED = {400, 413, 429, 503}
CHATS = itertools.count()


def drawn():
    """(route, values) of this run: at one limit, and pairs."""
    found = []
    for route in ROUTES:
        cases = list(cases_of(route, LIMITS))
        singles = [case for case in cases if len(case) == 1]
        pairs = [case for case in cases if len(case) == 2]
        draw = random.Random(f"{SEED} {route}")
        if PAIRS != "all":
            pairs = draw.sample(pairs, int(PAIRS))
            if not LONG:
                accepted = [case for case in singles if case[0].within]
                left_out = draw.sample(accepted, len(accepted) // 2)
                singles = [case for case in singles if case not in left_out]
        found += [(route, case) for case in singles + pairs]
    return found


def says(route, case):
    return f"{route} " + ", ".join(f"{value.field}: {value.says}" for value in case)


class Asked(threading.Thread):
    """A request of the attacker, on a connection of its own."""

    def __init__(self, server, route, body, case=()):
        super().__init__(daemon=True)
        self.server, self.route, self.body, self.case = server, route, body, case
        self.status, self.answer, self.failure = None, None, None
        self.start()

    def run(self):
        connection = self.server.connection(120)
        try:
            connection.request("POST", self.route, json.dumps(self.body),
                               {"Content-Type": "application/json",
                                "Authorization": f"Bearer {ATTACKER}"})
            answer = connection.getresponse()
            self.status, self.answer = answer.status, answer.read()
        except Exception as failure:  # pylint: disable=broad-except
            self.failure = failure
        finally:
            connection.close()

    def check(self):
        self.join(120 * PATIENCE)
        name = says(self.route, self.case) or self.body
        assert not self.is_alive() and self.failure is None, (name, self.failure)
        assert self.status == 200 or self.status in REFUSED, (name, self.status, self.answer)
        outside = [value.field for value in self.case if not value.within]
        if not outside:
            assert self.status in (200, 400), (name, self.status, self.answer)
            return
        assert self.status == 400, (name, self.status, self.answer[:300])
        error = json.loads(self.answer)["error"]
        told = f"{error.get('param')} {error['message']}"
        assert any(field in told for field in outside) or len(self.case) > 1, (name, error)


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    return tmp_path_factory.mktemp("journal") / "steps"


@pytest.fixture(scope="module")
def limited(make, journal):
    server = make(*LIMITS.arguments(), "--journal", journal, "--max-queue-time", "1h")
    yield server
    assert server.stop() == 0, server.log()


def chat(server):
    """Asks one; returns its X-Request-Id."""
    name = f"chat-{next(CHATS)}"
    answer = server.post("/v1/chat/completions", CHAT, headers={"X-Request-Id": name})
    assert answer.status == 200, answer
    return name


def trace_of(inferd, journal):
    trace = journal.with_name("trace")
    done = run(inferd, "replay", "--timeline", "-o", os.devnull, "--trace", trace, journal)
    assert done.returncode == 0, done.stdout
    return json.loads(trace.read_text())["traceEvents"]


def steps_of_chats(inferd, journal, chats):
    """Of each of these chats: the steps that began between its last byte and its first row, and
    those planned since the engine had it. One that begins in the next plan has no wait to draw."""
    events = []

    def written():
        events[:] = trace_of(inferd, journal)
        return set(chats) <= {event["args"]["name"].split()[-1] for event in events
                              if event["name"] == "thread_name"}

    wait_until(written, "the journal to have the chats")
    begun = sorted(event["ts"] for event in events if event["name"] == "step")
    names = {event["tid"]: event["args"]["name"].split()[-1] for event in events
             if event["name"] == "thread_name"}
    found = {}
    for event in sorted(events, key=lambda one: one.get("ts", 0)):
        name = names.get(event.get("tid"))
        if event.get("cat") != "request" or name not in chats or name in found:
            continue
        if event["name"] == "prompt":
            found[name] = 0, 0
            continue
        assert event["name"].startswith("waits"), event
        end = event["ts"] + event["dur"]
        passed = bisect.bisect_left(begun, end) - bisect.bisect_left(begun, event["ts"])
        found[name] = passed, event["args"]["last step"] - event["args"]["first step"]
    return found


def test_every_limit_has_values_on_both_sides():
    for route in ROUTES:
        values = values_of(route, LIMITS)
        for field in ("n", "best_of", "temperature", "top_p", "stop", "bad_words", "logit_bias",
                      "cache_salt", "stop_token_ids", "prompt_logprobs"):
            sides = {value.within for value in values if value.field == field}
            assert sides == {True, False}, (route, field, sides)


def chats_beside(server, groups):
    """Sends each group of cases beside a stream and a chat; returns the chats."""
    stream, chats = None, []
    for group in groups:
        if stream is None or not stream.thread.is_alive():
            assert stream is None or stream.failure is None, stream.failure
            stream = Background(server, {**STREAM, "max_tokens": 200})
        assert stream.started.wait(60)
        asked = [Asked(server, route, body_of(route, case, HELD_TOKENS), case)
                 for route, case in group]
        chats.append(chat(server))
        for attack in asked:
            attack.check()
    assert stream.join().failure is None, stream.failure
    return chats


def test_nobody_waits_for_who_stands_at_a_limit(inferd, limited, journal):
    """Threads of a busy machine may stand still for many short steps before the engine has a chat:
    a group beside which that happened is sent again. What it caused would come again."""
    cases, before = drawn(), limited.metric("inferd_preemptions_total")
    groups = [cases[i:i + AT_ONCE] for i in range(0, len(cases), AT_ONCE)]
    for _ in range(TRIES):
        chats = chats_beside(limited, groups)
        wait_until(limited.idle, "the server to hold nothing", 60, limited.usage)
        passed = steps_of_chats(inferd, journal, chats)
        for name, group in zip(chats, groups):
            assert passed[name][1] <= STEPS_IN_ENGINE, (passed[name], [says(*c) for c in group])
        print(f"{len(groups)} chats, at most {max(passed.values())} steps")
        groups = [group for name, group in zip(chats, groups) if passed[name][0] > STEPS_MOST]
        if not groups:
            break
    assert not groups, [says(*case) for group in groups for case in group]
    made_room = limited.metric("inferd_preemptions_total") - before
    print(f"{len(cases)} requests, {made_room} made room")
    assert limited.metric("inferd_request_memory_bytes") == 0
    assert limited.metric("inferd_lane_jobs") == 0
    assert limited.alive()


@pytest.mark.parametrize("shape", [{"n": 15}, {"n": 16}, {"n": 17}, {"best_of": 16, "n": 1},
                                   {"prompt": [[7, i] for i in range(17)]}, {"n": 8, "twice": True},
                                   {"use_beam_search": True, "best_of": 15, "n": 1},
                                   {"use_beam_search": True, "best_of": 16, "n": 1}], ids=str)
def test_a_chat_begins_beside_one_that_has_every_place(inferd, limited, journal, shape):
    """The attack wants thrice the tokens that the chat may wait for, and goes on meanwhile."""
    body = {"prompt": [5, 6], "max_tokens": 200, "ignore_eos": True, **shape}
    twice = body.pop("twice", False)
    streams = []
    names = [f"inferd_requests_{state}" for state in ("running", "waiting")]

    def both_are_there():
        """A stream of 240 tokens may end before the attack has arrived: then another begins."""
        if not streams or not streams[-1].thread.is_alive():
            streams.append(Background(limited, {**STREAM, "max_tokens": 240}))
            assert streams[-1].started.wait(60) and streams[-1].failure is None
        return sum(map(limited.metric, names)) > 1

    both_are_there()
    attacks = [Asked(limited, "/v1/completions", body) for _ in range(2 if twice else 1)]
    wait_until(both_are_there, "the attack and the stream", 60)
    stream = streams[-1]
    chats = [chat(limited) for _ in range(3)]
    for attack in attacks:
        attack.check()
    for stream in streams:
        assert stream.join().failure is None, stream.failure
    wait_until(limited.idle, "the server to hold nothing", 60, limited.usage)
    passed = steps_of_chats(inferd, journal, chats).values()
    assert all(in_engine <= STEPS_IN_ENGINE for _, in_engine in passed), passed
    assert sum(steps for steps, _ in passed) <= 3 * STEPS_MOST, passed
