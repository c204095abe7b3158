"""A model whose layers are cut over processes: the same bits as one, by our own start and by
mpirun, and what happens when one of them dies."""

import os
import signal
import threading
from pathlib import Path

import pytest

from harness import Server, dummy_model, run, wait_until
from test_ranks import MPIRUN, SMALL, WITH_MPI, answers, children, rank_of

LAST = {2: 3, 3: 1}  # layer of the first of so many stages: the head counts as some layers


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return dummy_model(tmp_path_factory.mktemp("stages") / "model", num_hidden_layers=5,
                       hidden_size=128, intermediate_size=256, head_dim=32)


@pytest.fixture(scope="module")
def alone(inferd, model):
    server = Server(inferd, model, *SMALL)
    found = answers(server)
    assert server.stop() == 0, server.log()
    return found


@pytest.mark.parametrize("size", [2, 3])
def test_stages_have_the_same_bits(start, alone, model, size):
    server = start(model, *SMALL, "--pipeline-parallel-size", size)
    assert answers(server) == alone
    assert f"{size} over shared memory, layers 0 to {LAST[size]} of 5 here" in server.log()
    assert server.metric("inferd_ranks", mode="layers") == size
    ranks = children(server.process.pid)
    assert sorted(map(rank_of, ranks)) == list(range(1, size))
    assert server.stop() == 0, server.log()
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)


@pytest.mark.parametrize("size", [2, 3])
def test_stages_of_mpirun_have_the_same_bits(inferd, alone, model, size):
    server = Server(inferd, model, *SMALL, "--pipeline-parallel-size", size,
                    shell=f'exec {MPIRUN} {size} "$@"')
    assert answers(server) == alone
    assert f"{size} over MPI, layers 0 to {LAST[size]} of 5 here" in server.log()
    first = next(pid for pid in children(server.process.pid) if rank_of(pid) == 0)
    os.kill(first, signal.SIGTERM)
    assert server.wait_exit(60) == 0, server.log()


def many_streams(server, count, tokens):
    """Threads that ask for so many tokens each, and their answers."""
    found = [None] * count

    def ask(i):
        found[i] = server.post("/v1/completions", {"prompt": [i + 1, 2, 3], "max_tokens": tokens,
                                                   "seed": i, "ignore_eos": True,
                                                   "return_token_ids": True})

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads, found


def test_many_streams_have_the_same_tokens(inferd, model):
    """Steps of other streams are in flight at the same time, one in each stage."""
    found = []
    for flags in ((), ("--pipeline-parallel-size", 3)):
        server = Server(inferd, model, *SMALL, *flags)
        threads, answered = many_streams(server, 24, 40)
        for thread in threads:
            thread.join()
        assert {answer.status for answer in answered} == {200}, answered
        found.append([answer.json["choices"][0]["token_ids"] for answer in answered])
        assert server.stop() == 0, server.log()
    assert found[0] == found[1]
    assert {len(ids) for ids in found[0]} == {40}


def test_a_killed_stage_ends_all(inferd, model):
    """With steps in flight in every stage: each client has an answer."""
    server = Server(inferd, model, *SMALL, "--pipeline-parallel-size", 3)
    threads, answered = many_streams(server, 12, 2000)
    wait_until(lambda: server.metric("inferd_requests_running") == 12, "the streams")
    ranks = children(server.process.pid)
    os.kill(ranks[-1], signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert {answer.status for answer in answered} == {500}, answered
    assert server.wait_exit(60) == 71, server.log()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks), "the other rank")


def test_what_does_not_go_with_stages_is_named(inferd, model):
    for options, named in ((("--data-parallel-size", "2"), "data_parallel_size is 2"),
                           (("--task", "embed"), "vectors"),
                           (("--prefix-cache-file", "/tmp/none"), "floors of the prefix cache"),
                           (("--swap-space", "1GiB"), "swapped requests")):
        done = run(inferd, "serve", model, *SMALL, "--pipeline-parallel-size", 2, "--port", "0",
                   *options)
        assert done.returncode == 78, done.stdout
        assert named in done.stdout, done.stdout
    done = run(inferd, "check", model, "--load-format", "dummy", "--pipeline-parallel-size", 2)
    assert done.returncode == 0 and "layers 0 to 3 of 5 here" in done.stdout, done.stdout


if not WITH_MPI:
    del test_stages_of_mpirun_have_the_same_bits
