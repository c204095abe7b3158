"""Prefix caches behind vllm-router: how many tokens of prompts are found in them, by its policies.

Several tenants ask with a long prefix each, more of them than the cache of one server holds, and
few enough for the caches of all. A router that sends a tenant where its prefix is makes use of all
caches; one that takes turns gives each server the prefixes of all tenants.
"""

import concurrent.futures
import http.client
import json
import random
import re

import pytest

from harness import DEMO, Server, wait_until
from ports import free_port

SERVERS, TENANTS, CLIENTS, REQUESTS = 3, 12, 4, 480
PREFIX_WORDS, QUESTION_WORDS = 400, 12
# A prefix takes 26 to 29 blocks. The first cache holds three of them, the second six, beside four
# sequences that run; the last holds all twelve.
BLOCKS = [100, 176, 800]
WORDS = ("the a little big red dog cat bird tree house girl boy sun rain play run jump see find "
         "happy sad friend mother box ball park day night sing eat cake water").split()


def prompts():
    """The same for each policy: a tenant drawn anew for each request, and a question of its own."""
    chance = random.Random(1)

    def text(count):
        return " ".join(chance.choice(WORDS) for _ in range(count))

    prefixes = [text(PREFIX_WORDS) for _ in range(TENANTS)]
    return [f"{chance.choice(prefixes)}. {text(QUESTION_WORDS)}" for _ in range(REQUESTS)]


class Group:
    """Servers with a small cache each, and vllm-router with a policy before them."""

    def __init__(self, inferd, launch, folder, policy, blocks):
        flags = ["--num-blocks", blocks, "--block-size", "16", "--max-num-seqs", "4"]
        self.port = free_port()
        self.servers, words = [], []
        for number in range(SERVERS):
            events = []
            if policy == "kv_aware":
                address = f"tcp://127.0.0.1:{free_port()}"
                events = ["--kv-events-endpoint", address.replace("127.0.0.1", "*"),
                          "--kv-events-format", "map"]
            self.servers.append(Server(inferd, DEMO, *flags, *events))
            if events:
                words += ["--kv-event-source",
                          f"http://127.0.0.1:{self.servers[number].port}={address}"]
        if words:
            words += ["--kv-event-block-size", "16", "--kv-event-model", "demo"]
        launch("vllm-router", "--host", "127.0.0.1", "--port", self.port, "--policy", policy,
               "--worker-urls", *(f"http://127.0.0.1:{server.port}" for server in self.servers),
               "--prometheus-port", free_port(), "--log-dir", folder, *words)
        wait_until(self.answers, "the router", 60)

    def ask(self, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None,
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        payload = answer.read()
        connection.close()
        return answer.status, payload

    def answers(self):
        try:
            return self.ask("/v1/models")[0] == 200
        except OSError:
            return False

    def count(self, name):
        """The sum of a counter over the servers."""
        return sum(float(re.search(rf"^vllm:{name}_total\{{[^}}]*\}} (\S+)",
                                   server.get("/metrics").body.decode(), re.MULTILINE)[1])
                   for server in self.servers)

    def complete(self, prompt):
        status, payload = self.ask("/v1/completions", {"model": "demo", "prompt": prompt,
                                                       "max_tokens": 4, "ignore_eos": True})
        assert status == 200, payload

    def hit_rate(self):
        """Of the tokens of all prompts, the share that was in a cache."""
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(self.complete, prompts()))
        return self.count("prefix_cache_hits") / self.count("prefix_cache_queries")

    def stop(self):
        for server in self.servers:
            server.stop()


@pytest.fixture
def rate(inferd, launch, tmp_path):
    def measure(policy, blocks):
        group = Group(inferd, launch, tmp_path, policy, blocks)
        try:
            found = group.hit_rate()
        finally:
            group.stop()
        print(f"{policy}, {blocks} blocks: {found:.2f} of the prompt tokens were in a cache")
        return found

    return measure


@pytest.mark.parametrize("blocks", BLOCKS)
def test_affinity_finds_more_prefixes(rate, blocks):
    """cache_aware remembers what it has sent where. kv_aware reads the events of the servers, and
    where a server forgets a prefix soon, it sends the tenant to the server that is least busy."""
    turns = rate("round_robin", blocks)
    few, _, all_of_them = BLOCKS
    assert rate("cache_aware", blocks) > turns + (0.2 if blocks < all_of_them else 0)
    assert rate("kv_aware", blocks) > turns + (0.2 if few < blocks < all_of_them else 0)
