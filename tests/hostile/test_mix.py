"""Whatever else runs, an answer is what it is alone: every feature at once, under drawn settings.

Requests drawn by mix.py are answered one at a time by a server without drafts, cache or company.
Then servers with drafts of each kind, few blocks, stages, ranks, replicas and a file of the cache
get the same ones from several clients at once, as whole answers and as streams, while other clients
send more of them and go away at any time. Ids, text, logprobs and reasons must be equal.

INFERD_MIX_SEED draws other requests and settings."""

import json
import os
import random
import threading
import time

import mix
import pytest
from harness import LONG, PATIENCE, ROOT, Server, http_post, wait_until
from mix_answers import ask, difference
from test_lora import write_adapter

SEED = int(os.environ.get("INFERD_MIX_SEED", "1"))
COUNT, CLIENTS, LEAVERS, TURNS = (60 if LONG else 40), 12, 3, (2 if LONG else 1)
STREAMED = 0.4  # share of the answers that are asked for as streams
FIXTURES = ROOT / "tests/fixtures"
BASE = ("--load-format", "dummy", "--seed", 5, "--max-model-len", 512, "--served-model-name",
        "base", "--tool-call-parser", "hermes", "--max-logprobs", -1, "--max-queue-tokens", 10**6,
        "--stream-buffer-bytes", "16MiB")  # nobody is refused, nor cut off as a slow reader
TEMPLATE = ("{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
            "{% for message in messages %}{{ message.role }} {{ message.content }}. {% endfor %}")
LOOKUP = ("--num-speculative-tokens", 5, "--prompt-lookup-min", 1)
SMALL = ("--num-speculative-tokens", 4, "--speculative-model", FIXTURES / "tiny")
HEAD = ("--num-speculative-tokens", 3, "--speculative-model", FIXTURES / "eagle")
MTP = ("--num-speculative-tokens", 3, "--speculative-method", "mtp")
STAGES = ("--pipeline-parallel-size", 2)
RANKS = ("--tensor-parallel-size", 2)
REPLICAS = ("--data-parallel-size", 2)
TIGHT, FILE = "tight", "file"
ROWS = [("tiny", LOOKUP, TIGHT), ("tiny", SMALL, TIGHT), ("tiny", HEAD, TIGHT), ("tiny", HEAD),
        ("tiny", LOOKUP, FILE), ("tiny", TIGHT, FILE), ("tiny", STAGES, TIGHT),
        ("tiny", LOOKUP, STAGES, TIGHT), ("tiny", LOOKUP, RANKS, TIGHT),
        ("tiny", LOOKUP, REPLICAS, TIGHT), ("predicts", MTP, TIGHT), ("predicts", MTP),
        ("predicts", LOOKUP, STAGES), ("delta", LOOKUP, TIGHT), ("delta", SMALL),
        ("states", LOOKUP, TIGHT), ("states", SMALL), ("scan", LOOKUP, TIGHT), ("scan", LOOKUP),
        ("beside", LOOKUP, TIGHT), ("windows", LOOKUP, TIGHT), ("windows", STAGES, TIGHT),
        ("gemma4", LOOKUP, TIGHT), ("gemma4", SMALL, TIGHT)]
NAMES = {LOOKUP: "lookup", SMALL: "small", HEAD: "head", MTP: "mtp", STAGES: "stages",
         RANKS: "ranks", REPLICAS: "replicas"}
# Tokens for which a tight pool has blocks; layers with a window take more.
POOL, POOLS = 700, {"windows": 1650, "gemma4": 2700}
LARGE_POOL = 40000


def name_of(row):
    return "-".join([row[0], *(NAMES.get(part, part) for part in row[1:])])


def requests_of(model):
    rng = random.Random(f"{SEED} {model}")
    docs = mix.documents(rng)
    names = ["base", "base", "one"] if model == "tiny" else ["base"]
    return [mix.request(rng, docs, names) for _ in range(COUNT)]


def may_stream(request):
    return not {"use_beam_search", "best_of", "prompt_logprobs"} & set(request[1])


@pytest.fixture(scope="module")
def serve(request, tmp_path_factory):
    """serve(model, *flags): a server of a small model with random weights."""
    place = tmp_path_factory.mktemp("mix")
    adapter = write_adapter(place / "one", FIXTURES / "tiny", 3)
    (place / "template").write_text(TEMPLATE)

    def start(model, *flags):
        lora = ("--enable-lora", "--lora-modules", f"one={adapter}") if model == "tiny" else ()
        return Server(request.config.getoption("--inferd"), FIXTURES / model, *BASE, *lora,
                      "--chat-template", place / "template", *flags)

    return start


@pytest.fixture(scope="module")
def alone(serve):
    """alone(model): its requests, and what each gets when nothing else runs, by stream or not."""
    known = {}

    def find(model):
        if model not in known:
            requests = requests_of(model)
            server = serve(model, "--no-enable-prefix-caching", "--max-num-seqs", 5,
                           "--num-blocks", 600, "--block-size", 16, "--threads", 1)
            found = [{stream: ask(server, request, stream)
                      for stream in (False, True) if not stream or may_stream(request)}
                     for request in requests]
            assert server.stop() == 0, server.log()
            known[model] = requests, found
        return known[model]

    return find


def leave(server, requests, rng, enough):
    """Sends requests and goes away from each, at any time."""
    while not enough.is_set():
        path, body = rng.choice(requests)
        with server.socket() as connection:
            connection.sendall(http_post(path, {**body, "stream": rng.random() < 0.5}))
            time.sleep(rng.random() ** 3 * 0.1)


def together(server, requests, rng):
    """The answers of clients that ask at the same time, beside those who leave; and which of these
    came as streams."""
    order = rng.sample(range(len(requests)), len(requests))
    streams = [may_stream(request) and rng.random() < STREAMED for request in requests]
    found, failures, enough = [None] * len(requests), [], threading.Event()

    def client():
        try:
            while order:
                i = order.pop()
                found[i] = ask(server, requests[i], streams[i])
        except IndexError:
            pass  # another one took the last
        except Exception as failure:  # pylint: disable=broad-except
            failures.append(failure)

    seeds = [random.Random(rng.random()) for _ in range(LEAVERS)]
    leavers = [threading.Thread(target=leave, args=(server, requests, seed, enough))
               for seed in seeds]
    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in leavers + clients:
        thread.start()
    for thread in clients:
        thread.join(60 * PATIENCE)
    enough.set()
    for thread in leavers:
        thread.join()
    assert not failures and None not in found, (failures, server.log()[-3000:])
    return found, streams


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_an_answer_is_the_same_in_company(tmp_path, serve, alone, row):
    model, *parts = row
    requests, expected = alone(model)
    rng = random.Random(f"{SEED} {name_of(row)}")
    flags = mix.settings(rng)
    for part in parts:
        flags += part if isinstance(part, tuple) else []
    size = flags[flags.index("--block-size") + 1]
    pool = POOLS.get(model, POOL) if TIGHT in parts else LARGE_POOL
    flags += ["--num-blocks", pool // size]
    if FILE in parts:
        flags += ["--prefix-cache-file", tmp_path / "blocks", "--prefix-cache-space", 0.0625,
                  "--enable-prefix-caching"]
    server = serve(model, *flags)
    refused = 0
    # processes that wait for each other at every layer are slow where others run, too
    turns = 1 if {RANKS, STAGES} & set(parts) else TURNS
    for _ in range(turns):
        found, streams = together(server, requests, rng)
        for request, one, other, stream in zip(requests, expected, found, streams):
            if TIGHT in parts and isinstance(other, str) and "KV blocks" in other:
                refused += 1  # no pool of this size holds the request
                continue
            where = difference(one[stream], other)
            assert where is None, json.dumps([where, stream, request, list(map(str, flags))])
        wait_until(server.idle, "the server to be idle", context=server.usage)
    assert refused < turns * COUNT / 4
    assert server.stop() == 0, server.log()


@pytest.mark.parametrize("model", sorted({row[0] for row in ROWS}))
def test_a_stream_says_what_a_whole_answer_says(alone, model):
    """Fields that only a whole answer has, and those of the prompt, stand elsewhere in a stream."""
    for (path, body), found in zip(*alone(model)):
        if path != "/v1/completions" or True not in found or isinstance(found[False], str):
            continue
        for one, other in zip(found[False], found[True], strict=True):
            lacking = set(one) - set(other)
            assert lacking <= {"prompt_logprobs", "prompt_token_ids"}, (lacking, body)
            where = difference({k: one[k] for k in other}, other)
            assert where is None, json.dumps([where, body])
    refused = [found[False] for found in alone(model)[1] if isinstance(found[False], str)]
    assert len(refused) < 0.3 * COUNT, refused
