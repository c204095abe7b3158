"""Replicas of a model in one process: the answers of one engine, a prefix that goes where it is
cached, one limit on what waits, one page of metrics."""

import concurrent.futures
import os
import re
from pathlib import Path

import pytest

from harness import Server, dummy_model, http_post, reload_text, run, wait_until
from test_models import survey_of
from test_ranks import SMALL, answers

TWO = ("--data-parallel-size", "2")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return dummy_model(tmp_path_factory.mktemp("replicas") / "model", hidden_size=128,
                       intermediate_size=256, num_hidden_layers=2, head_dim=32)


def of_replicas(server, name, **labels):
    """The samples of a family by replica."""
    return {dict(has)["replica"]: value for (sample, has), value in server.metrics().items()
            if sample == name and labels.items() <= dict(has).items()}


def ask(server, prompt, **fields):
    answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "temperature": 0,
                                             "ignore_eos": True, **fields})
    assert answer.status == 200, answer
    return answer.json


def test_the_answers_are_those_of_one_engine(inferd, start, model):
    alone = Server(inferd, model, *SMALL)
    expected = answers(alone)
    assert alone.stop() == 0, alone.log()
    server = start(model, *SMALL, *TWO)
    assert answers(server) == expected
    generated = of_replicas(server, "inferd_replica_generation_tokens_total")
    assert sorted(generated) == ["0", "1"] and min(generated.values()) > 0, generated
    assert "replicas  2 of one model" in server.log()
    assert server.get("/health").status == 200
    threads = {frozenset(os.sched_getaffinity(int(task.name)))
               for task in Path(f"/proc/{server.process.pid}/task").iterdir()
               if (task / "comm").read_text().strip() == "engine"}
    if len(os.sched_getaffinity(0)) > 1:
        assert len(threads) == 2 and not frozenset.intersection(*threads), threads
    assert server.stop() == 0, server.log()


def test_a_session_stays_where_its_prefix_is(start, model):
    server = start(model, *SMALL, *TWO)
    sessions = {n: [n * 100 + i % 97 for i in range(64)] for n in (1, 2, 3, 4)}
    for turn in range(3):
        for session in sessions.values():
            reply = ask(server, session, return_token_ids=True)
            if turn:
                cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
                assert cached >= len(session) - 32, (turn, reply["usage"])
            session += reply["choices"][0]["token_ids"] + [turn + 1] * 14
    sent = of_replicas(server, "inferd_replica_prompt_tokens_total")
    assert sent["0"] == sent["1"] > 0, sent
    assert server.metric("inferd_prompt_tokens_total") == sum(sent.values())
    blocks = of_replicas(server, "inferd_replica_kv_blocks", state="cached")
    assert min(blocks.values()) > 0, blocks


def test_one_limit_on_what_waits_which_a_reload_changes(start, model, tmp_path):
    """Four run, two in each; then so many wait as the limit says, and who comes next is refused."""
    file = tmp_path / "inferd.conf"
    file.write_text("max_queue_requests = 4\n")
    server = start(model, *SMALL, *TWO, "--config", file, "--max-num-seqs", "2")
    long = {"prompt": [5, 6, 7], "max_tokens": 4000, "ignore_eos": True}

    def state(name):
        return sum(of_replicas(server, "inferd_replica_requests", state=name).values())

    def send(count):
        opened = [server.socket() for _ in range(count)]
        for connection in opened:
            connection.sendall(http_post("/v1/completions", long))
        return opened

    asked = send(4)
    wait_until(lambda: state("running") == 4, "four that run")
    assert of_replicas(server, "inferd_replica_requests", state="running") == {"0": 2, "1": 2}
    asked += send(4)
    wait_until(lambda: state("waiting") == 4, "four that wait")
    refused = server.post("/v1/completions", long)
    assert refused.status == 429 and int(refused.headers["retry-after"]) >= 1, refused
    assert "changed: max_queue_requests" in reload_text(server, "max_queue_requests = 3\n", file)
    asked.pop().close()
    wait_until(lambda: state("waiting") == 3, "three that wait")
    assert server.post("/v1/completions", long).status == 429
    for connection in asked:
        connection.close()
    wait_until(lambda: state("running") + state("waiting") == 0, "the end of all")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda n: ask(server, [n] * 20), range(1, 4)))
    assert len(done) == 3
    assert server.stop() == 0, server.log()


@pytest.mark.parametrize("options, named", [
    (("--tensor-parallel-size", "2"), "several ranks (2)"),
    (("--prefix-cache-file", "/tmp/no-such-cache"), "prefix_cache_file"),
    (("--kv-events-endpoint", "tcp://127.0.0.1:0"), "kv_events_endpoint"),
])
def test_what_does_not_go_with_replicas_is_named(inferd, model, options, named):
    done = run(inferd, "serve", model, *SMALL, *TWO, "--port", "0", *options)
    assert done.returncode == 78, done.stdout
    assert "data_parallel_size is 2" in done.stdout and named in done.stdout, done.stdout


def test_the_memory_of_all_is_planned(inferd, model):
    def kv_blocks(*options):
        done = run(inferd, "check", model, "--load-format", "dummy", *options)
        assert done.returncode == 0, done.stdout
        line = next(line for line in done.stdout.splitlines() if line.startswith("memory"))
        return int(re.search(r"\((\d+) blocks", line)[1])

    # 48 MiB of what is free here: less than the context could use, and more than it needs at least
    free = survey_of(inferd, model, "--load-format", "dummy")["host_free"]
    small = ("--memory", f"{(48 << 20) / free:.9f}")
    assert 0 < 2 * kv_blocks(*small, *TWO) <= kv_blocks(*small)
