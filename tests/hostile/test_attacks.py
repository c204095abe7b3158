"""No request may hurt another: every attack beside a running stream and an honest second client.

What is asserted is counted, not timed: the stream's tokens are those it has alone, honest chats are
answered while the attack goes on, no answer of the attack is an internal error, and probes stay
green. tests/bench/bench_hostile measures what an attack adds to gaps and waits."""

import collections
import json
import signal

import pytest
from attacks import ATTACKS, Attack, side_by_side
from conftest import ATTACKER
from crowd import Crowd
from harness import Background, wait_until
from victim import CHAT, ids
from victim import STREAM as VICTIM

CHATS = 8


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_others_go_on(server, alone, attack):
    """The stream's tokens are the same to the bit, honest chats are answered, nothing breaks."""
    stream = Background(server, VICTIM)
    assert stream.started.wait(60) and stream.failure is None, stream.failure
    crowd = Crowd(server, attack, ATTACKER, attack.rounds, attack.clients)
    for _ in range(CHATS):
        answer = server.post("/v1/chat/completions", CHAT)
        assert answer.status == 200, answer
        assert crowd.running(), crowd.failures
        assert server.get("/livez").status == 200
        assert server.get("/readyz").status == 200
    crowd.enough.set()
    answers = crowd.join()
    assert len(answers) > 0
    assert {status for status, _ in answers} <= attack.allowed, collections.Counter(
        status for status, _ in answers)
    for status, body in answers:
        check_answer(status, json.loads(body))
    stream.join()
    assert stream.failure is None, stream.failure
    assert ids(stream) == alone


def check_answer(status, body):
    """A refusal has a reason; what was accepted ends as an answer."""
    if status != 200:
        error = body["error"]
        assert error["message"] and error["code"] != "internal_error", error
    for choice in body.get("choices", []):
        assert choice["finish_reason"] in ("stop", "length", "tool_calls"), choice
        assert "internal" not in json.dumps(choice.get("error", "")), choice


class ManyRows(Attack):
    """60 choices, each of which needs masks of 20 ms: all together more than a minute of work."""
    connections = 1

    def bodies(self, i):
        yield "/v1/completions", {"prompt": "a b", "max_tokens": 60, "temperature": 1.9, "n": 60,
                                  "grammar": side_by_side(12, "abcdef"[i % 6])}


@pytest.mark.parametrize("threads", [0, 2])
def test_a_client_that_leaves_amid_its_masks(start, alone, threads):
    """The watchdog sees a host that works, honest chats are answered meanwhile, and what the client
    has left behind ends at once: the server is idle, though masks for minutes were asked for."""
    server = start("--mask-threads", threads, "--watchdog-interval", "10s")
    stream = Background(server, VICTIM)
    assert stream.started.wait(60) and stream.failure is None, stream.failure
    crowd = Crowd(server, ManyRows(), ATTACKER)
    wait_until(lambda: server.metric("inferd_grammar_masks_total") > 2, "the first masks", 60)
    for _ in range(CHATS):
        answer = server.post("/v1/chat/completions", CHAT)
        assert answer.status == 200, answer
        assert server.get("/livez").status == 200
    assert crowd.running() and not crowd.answers
    crowd.leave()
    stream.join()
    assert stream.failure is None and ids(stream) == alone
    wait_until(server.idle, "the server to be idle again", 30, server.usage)
    assert (server.metric("inferd_grammar_masks_helped_total") > 0) == (threads > 0)
    assert server.stop() == 0, server.log()


def test_the_queue_of_one_key_refuses_no_other(server):
    """Whoever fills the queue gets the 429s."""
    flood = next(attack for attack in ATTACKS if attack.name.startswith("queue"))
    crowd = Crowd(server, flood, ATTACKER)
    try:
        wait_until(lambda: server.metric("inferd_requests_waiting") > 200, "the queue to fill")
        for k in range(20):
            answer = server.post("/v1/completions", {"prompt": f"honest {k}", "max_tokens": 2})
            assert answer.status == 200, answer
    finally:
        crowd.leave()


def test_a_server_under_attack_drains(start):
    """SIGTERM amid all attacks: the running stream goes on to its end, then the server ends."""
    server = start()
    stream = Background(server, {**VICTIM, "max_tokens": 400})
    assert stream.started.wait(60) and stream.failure is None, stream.failure
    crowds = [Crowd(server, attack, ATTACKER, most=1) for attack in ATTACKS]
    wait_until(lambda: sum(len(crowd.answers) for crowd in crowds) > 3, "the attacks to begin")
    server.process.send_signal(signal.SIGTERM)
    stream.join()
    assert stream.failure is None, stream.failure
    assert len(ids(stream)) == 400
    assert server.wait_exit(60) == 0
    for crowd in crowds:
        crowd.stopped.set()
