"""Whatever stands at a limit, the honest stream and the honest chat go on, by counts.

Every limit of the field tables and of the server's flags, one below, at it, one above, alone and in
pairs (boundaries.py), is sent by one key beside a stream and chats of another. Asserted: what is
outside a limit is refused and the field named, nothing is answered by 500, the chat begins within
so many steps of the stream, nobody makes room more often than an honest request asks, and
afterwards no block, no byte and no request is held.

A seed draws the part that runs here: of a route all that is refused at one limit, half of what is
accepted, and a few pairs; with INFERD_TEST_LONG everything at one limit, and more pairs.
INFERD_BOUNDARIES=all runs all pairs, too, =N so many, and INFERD_BOUNDARIES_SEED draws others."""

import itertools
import json
import os
import random
import threading

import pytest
from boundaries import ROUTES, Limits, body_of, cases_of, values_of
from conftest import ATTACKER
from harness import LONG, PATIENCE, Background, wait_until
from victim import CHAT, STREAM, ids

LIMITS = Limits(max_num_seqs=16, max_model_len=256, max_num_batched_tokens=64, max_logprobs=20,
                block_size=16)
PAIRS = os.environ.get("INFERD_BOUNDARIES", "40" if LONG else "10")
SEED = int(os.environ.get("INFERD_BOUNDARIES_SEED", "1"))
AT_ONCE = 4
# Tokens that each attack wants; and those that the stream may get while the chat waits: a chat that
# waited for an attack to end would see the stream get all of the attack's.
HELD_TOKENS, STEPS_MOST = 120, 60
REFUSED = {400, 413, 429, 503}


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
def limited(make):
    server = make(*LIMITS.arguments())
    yield server
    assert server.stop() == 0, server.log()


def test_every_limit_has_values_on_both_sides():
    for route in ROUTES:
        values = values_of(route, LIMITS)
        for field in ("n", "best_of", "temperature", "top_p", "stop", "bad_words", "logit_bias",
                      "cache_salt", "stop_token_ids", "prompt_logprobs"):
            sides = {value.within for value in values if value.field == field}
            assert sides == {True, False}, (route, field, sides)


def test_nobody_waits_for_who_stands_at_a_limit(limited):
    stream = Background(limited, {**STREAM, "max_tokens": 200})
    cases, chats, worst = drawn(), 0, 0
    before = limited.metric("inferd_preemptions_total")
    for i in range(0, len(cases), AT_ONCE):
        if not stream.thread.is_alive():
            assert stream.failure is None, stream.failure
            stream = Background(limited, {**STREAM, "max_tokens": 200})
        assert stream.started.wait(60)
        asked = [Asked(limited, route, body_of(route, case, HELD_TOKENS), case)
                 for route, case in cases[i:i + AT_ONCE]]
        had = len(ids(stream))
        answer = limited.post("/v1/chat/completions", CHAT)
        assert answer.status == 200, (answer, [says(*case) for case in cases[i:i + AT_ONCE]])
        steps = len(ids(stream)) - had
        worst, chats = max(worst, steps), chats + 1
        assert steps <= STEPS_MOST, (steps, [says(*case) for case in cases[i:i + AT_ONCE]])
        for attack in asked:
            attack.check()
    stream.join()
    assert stream.failure is None, stream.failure
    made_room = limited.metric("inferd_preemptions_total") - before
    print(f"{len(cases)} requests, {chats} chats, at most {worst} steps, {made_room} made room")
    wait_until(limited.idle, "the server to hold nothing", 60, limited.usage)
    assert limited.metric("inferd_request_memory_bytes") == 0
    assert limited.metric("inferd_lane_jobs") == 0
    assert limited.alive()


@pytest.mark.parametrize("shape", [{"n": 15}, {"n": 16}, {"n": 17}, {"best_of": 16, "n": 1},
                                   {"prompt": [[7, i] for i in range(17)]}, {"n": 8, "twice": True},
                                   {"use_beam_search": True, "best_of": 15, "n": 1},
                                   {"use_beam_search": True, "best_of": 16, "n": 1}], ids=str)
def test_a_chat_begins_beside_one_that_has_every_place(limited, shape):
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
    had = len(ids(stream))
    for _ in itertools.repeat(None, 3):
        assert limited.post("/v1/chat/completions", CHAT).status == 200
    assert len(ids(stream)) - had <= 3 * STEPS_MOST
    for attack in attacks:
        attack.check()
    for stream in streams:
        assert stream.join().failure is None, stream.failure
    wait_until(limited.idle, "the server to hold nothing", 60, limited.usage)
