"""What waits makes no work, and memory comes back: counted over HTTP, beside honest clients.

The bounds hold for any speed of the machine: they are of work for each event, not for each second.
Places in the queue are found in logarithmic time, so an event meets some tens of requests, while a
walk over all of them would meet a thousand and more."""

import json

import pytest
from attacks import Attack
from conftest import ATTACKER
from crowd import Crowd
from harness import http_post, wait_until
from victim import CHAT, beside

LISTS, PROMPTS = 12, 128  # of 12 clients, each a list of prompts in one body
WAITING = LISTS * PROMPTS
PLACES = 60  # most requests that an insertion or a removal meets among so many
MIB = 1 << 20


def visits(server):
    """Waiting requests that the scheduler has met so far."""
    return server.metric("inferd_queue_visits_total")


class Queue(Attack):
    """Fills the waiting queue with requests that never end by themselves."""
    connections = LISTS

    def __init__(self, fields=lambda i: {}):
        self.fields = fields

    def bodies(self, i):
        yield "/v1/completions", {"prompt": [[300 + i % LISTS, 300 + k] for k in range(PROMPTS)],
                                  "max_tokens": 20000, "ignore_eos": True, **self.fields(i)}


def fill(server, attack=None):
    """A crowd whose requests wait, all but those that run."""
    crowd = Crowd(server, attack or Queue(), ATTACKER)
    wait_until(lambda: server.metric("inferd_requests_waiting") > WAITING - 16, "a full queue", 60,
               lambda: f"{server.usage()} {crowd.answers[:3]} {crowd.failures}")
    return crowd


def empty(server):
    """Only the stream is left."""
    wait_until(lambda: server.metric("inferd_requests_waiting") == 0
               and server.metric("inferd_requests_running") <= 1, "the queue to be empty", 60,
               server.usage)


@pytest.fixture
def queues(start):
    """Starts a server in which eight sequences run and all others wait."""
    return lambda *flags: start("--max-num-seqs", 8, "--max-queue-requests", 2 * WAITING, *flags)


@pytest.mark.parametrize("policy", ["fcfs", "slo"])
def test_cancels_of_all_that_wait(queues, alone, policy):
    server = queues("--scheduling-policy", policy, "--max-queue-time", "0")
    with beside(server, alone):
        crowd, before = fill(server), visits(server)
        crowd.leave()
        empty(server)
        met = visits(server) - before
    assert met <= PLACES * WAITING, met
    assert server.stop() == 0, server.log()


def test_deadlines_of_all_that_wait(queues, alone):
    """Every list is answered by 429 once one of its prompts has waited for too long."""
    server = queues("--max-queue-time", "2s")
    with beside(server, alone):
        before = visits(server)
        crowd = Crowd(server, Queue(), ATTACKER)
        wait_until(lambda: len(crowd.answers) >= 2 * LISTS, "their deadlines", 60, server.usage)
        lists = len(crowd.leave()) + LISTS
        empty(server)
        steps = server.metric("inferd_step_duration_seconds_count")
        met = visits(server) - before
    assert {status for status, _ in crowd.answers} == {429}
    assert server.metric("inferd_aborted_total", cause="queue_timeout") > 0
    assert met <= PLACES * 2 * PROMPTS * lists + 4 * steps, met
    assert server.stop() == 0, server.log()


def test_every_request_of_better_priority_than_the_last(queues, alone):
    """Each goes before those of its client that wait already: by arrival it would go behind."""
    server = queues("--scheduling-policy", "priority", "--max-queue-time", "0")
    with beside(server, alone):
        before = visits(server)
        crowd = fill(server, Queue(lambda i: {"priority": 1000 - i}))
        met = visits(server) - before
        crowd.leave()
        empty(server)
    assert met <= PLACES * WAITING, met
    assert server.stop() == 0, server.log()


def held(server, *kinds):
    """Bytes that requests hold."""
    return sum(server.metric("inferd_request_memory_bytes", kind=kind) for kind in kinds)


def nothing_is_held(server):
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "memory to be free", 60,
               lambda: {key: value for key, value in server.metrics().items()
                        if key[0] == "inferd_request_memory_bytes"})


AUTHORIZED = f"Authorization: Bearer {ATTACKER}"


def test_bodies_that_never_end(start, alone):
    """What has come of them counts, other clients are served meanwhile, and it comes back."""
    server = start("--max-request-memory", "96MiB")
    body = json.dumps({"prompt": "ab cd " * MIB, "max_tokens": 1}).encode()
    part = http_post("/v1/completions", body, AUTHORIZED)[:-MIB]
    with beside(server, alone):
        connections = [server.socket() for _ in range(8)]
        for connection in connections:
            connection.sendall(part)
        wait_until(lambda: held(server, "body") >= 8 * (len(body) - MIB), "the bodies to count",
                   context=lambda: held(server, "body"))
        assert held(server, "body") <= 96 * MIB
        for connection in connections:
            connection.close()
        wait_until(lambda: held(server, "body") == 0, "the bodies to be free", 60)
    nothing_is_held(server)
    assert server.stop() == 0, server.log()


class Scores(Attack):
    """A prompt of which every token is scored: a block of it alone takes longer than a step may."""
    connections = 1

    def bodies(self, i):
        yield "/v1/completions", {"prompt": [300 + (i + k) % 9973 for k in range(24000)],
                                  "max_tokens": 1, "prompt_logprobs": 1}


def test_chats_pass_a_prompt_whose_blocks_are_slow(start, alone):
    """They are answered meanwhile, not behind it."""
    server = start("--max-step-ms", 1)
    with beside(server, alone):
        crowd = Crowd(server, Scores(), ATTACKER)
        wait_until(lambda: server.metric("inferd_requests_running") == 2, "the prompt to begin")
        for _ in range(8):
            answer = server.post("/v1/chat/completions", CHAT)
            assert answer.status == 200, answer
        assert not crowd.answers and not crowd.failures
        crowd.leave()
        empty(server)
    nothing_is_held(server)
    assert server.stop() == 0, server.log()


def test_prompts_of_one_key_do_not_evict_what_another_has_cached(start):
    """60 prompts that fill the cache twice over, beside a prompt that has been computed before."""
    blocks, size = 512, 16
    server = start("--num-blocks", blocks, "--block-size", size, "--max-model-len", 2048)
    prompt = [7 + i % 900 for i in range(1500)]

    def cached():
        usage = server.complete(prompt, max_tokens=1)["usage"]
        return (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)

    assert cached() == 0
    assert cached() == 1499
    headers = {"Authorization": f"Bearer {ATTACKER}"}
    for i in range(60):
        body = {"prompt": [2000 + i, *range(300)], "max_tokens": 1}
        assert server.post("/v1/completions", body, headers=headers).status == 200
    assert cached() == 1499
    assert server.stop() == 0
