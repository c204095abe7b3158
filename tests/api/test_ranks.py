"""A model over several processes: the same bits as one, by our own start, by mpirun, and on two
hosts that are network namespaces; and what happens when one of them dies or hangs."""

import inspect
import json
import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness import PATIENCE, ROOT, UNABLE, Server, dummy_model, run, wait_until
from test_lora import write_adapter

SMALL = ("--load-format", "dummy", "--seed", "5", "--kv-cache-bytes", "64MiB",
         "--max-num-batched-tokens", "64", "--skip-tokenizer-init")
MPIRUN = "mpirun --allow-run-as-root --oversubscribe -n"
EMBEDDINGS = sorted(p.parent for p in (ROOT / "tests/vectors/embeddings").glob("*/expected.json"))
WITH_MPI = os.environ.get("INFERD_TEST_FLAVOUR", "plain") == "plain"  # MPI has no sanitizers
KILLS = int(os.environ.get("INFERD_TEST_KILLS", "6"))


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """Heads that 3 ranks cannot share evenly."""
    return dummy_model(tmp_path_factory.mktemp("ranks") / "dense", num_attention_heads=10,
                       num_key_value_heads=5, head_dim=64, hidden_size=320,
                       intermediate_size=544, num_hidden_layers=3)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    return dummy_model(tmp_path_factory.mktemp("ranks") / "mixture", model_type="qwen3_moe",
                       architectures=["Qwen3MoeForCausalLM"], num_experts=10,
                       num_experts_per_tok=3, moe_intermediate_size=96, norm_topk_prob=True,
                       decoder_sparse_step=1, mlp_only_layers=[1], hidden_size=256,
                       intermediate_size=512, num_attention_heads=8, num_key_value_heads=2,
                       head_dim=32, num_hidden_layers=3)


def answers(server):
    """What twelve requests of all kinds get, several at a time: ids and logprobs."""
    bodies = []
    for i in range(12):
        source = random.Random(i)
        bodies.append({"prompt": [source.randrange(4000) for _ in range(1 + i * 17 % 90)],
                       "max_tokens": 8 + i, "seed": i, "temperature": i % 3 / 2, "logprobs": 3,
                       "n": 1 + i % 2, "ignore_eos": True, "return_token_ids": True,
                       **({"prompt_logprobs": 1} if i % 4 == 0 else {})})
    found = [None] * len(bodies)

    def ask(i):
        answer = server.post("/v1/completions", bodies[i])
        assert answer.status == 200, answer
        found[i] = answer.json["choices"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in found
    return json.dumps(found)


@pytest.fixture(scope="module")
def alone(inferd, dense, mixture):
    """The answers of one process."""
    found = {}
    for model in (dense, mixture):
        server = Server(inferd, model, *SMALL)
        found[model] = answers(server)
        assert server.stop() == 0, server.log()
    assert len(set(found.values())) == 2
    return found


def children(pid):
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children")
            for child in path.read_text().split()]


def rank_of(pid):
    """None of a process that is no rank, such as mpirun's helper for another host."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((int(e.split(b"=")[1]) for e in entries
                 if e.startswith((b"OMPI_COMM_WORLD_RANK=", b"_INFERD_RANK="))), None)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("kind", ["dense", "mixture"])
def test_ranks_of_one_command_have_the_same_bits(start, alone, dense, mixture, kind, size):
    model = dense if kind == "dense" else mixture
    server = start(model, *SMALL, "--tensor-parallel-size", size)
    assert answers(server) == alone[model]
    ranks = children(server.process.pid)
    assert sorted(map(rank_of, ranks)) == list(range(1, size))
    shares = [os.sched_getaffinity(pid) for pid in (server.process.pid, *ranks)]
    everything = os.sched_getaffinity(0)
    if size <= len(everything):
        assert set().union(*shares) == everything and sum(map(len, shares)) == len(everything)
    else:
        assert {len(share) for share in shares} == {1}
    assert server.stop() == 0, server.log()
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("kind", ["dense", "mixture"])
def test_ranks_of_mpirun_have_the_same_bits(inferd, alone, dense, mixture, kind, size):
    model = dense if kind == "dense" else mixture
    server = Server(inferd, model, *SMALL, shell=f'exec {MPIRUN} {size} "$@"')
    assert answers(server) == alone[model]
    assert f"{size} over MPI" in server.log()
    first = next(pid for pid in children(server.process.pid) if rank_of(pid) == 0)
    os.kill(first, signal.SIGTERM)
    assert server.wait_exit(60) == 0, server.log()


def expect_near(one, many):
    """Greedy tokens up to a near draw, with logprobs that rounding explains."""
    compared = 0
    for i in range(0, len(one), 3):
        a, b = one[i][0]["logprobs"], many[i][0]["logprobs"]
        for best, mine, other in zip(a["top_logprobs"], a["token_logprobs"], b["token_logprobs"]):
            first, second = sorted(best.values(), reverse=True)[:2]
            if first - second < 0.04:
                break
            assert abs(mine - other) < 0.02, (i, mine, other)
            compared += 1
    assert compared > 10, compared


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", ["dense", "mixture"])
def test_fast_ranks_have_the_same_bits_over_both_transports(inferd, alone, dense, mixture, kind,
                                                            size):
    model = dense if kind == "dense" else mixture
    found = []
    for by_mpi in (False, True)[:1 + WITH_MPI]:
        shell = {"shell": f'exec {MPIRUN} {size} "$@"'} if by_mpi else {}
        server = Server(inferd, model, *SMALL, "--tensor-parallel-mode", "fast",
                        *(() if by_mpi else ("--tensor-parallel-size", size)), **shell)
        found.append(answers(server))
        assert "fast: each has parts of sums" in server.log()
        assert f'mode="fast"}} {size}\n' in server.get("/metrics").body.decode()
        ranks = children(server.process.pid)
        first = next(pid for pid in ranks if rank_of(pid) == 0) if by_mpi else server.process.pid
        os.kill(first, signal.SIGTERM)
        assert server.wait_exit(60) == 0, server.log()
    assert found[0] == found[-1]
    expect_near(json.loads(alone[model]), json.loads(found[0]))


def test_check_plans_for_ranks(inferd, dense):
    answer = run(inferd, "check", dense, *SMALL, "--tensor-parallel-size", 3,
                 "--tensor-parallel-mode", "fast")
    assert answer.returncode == 0 and "ranks     3 over" in answer.stdout, answer.stdout
    assert "fast: each has parts of sums" in answer.stdout
    answer = run(inferd, "check", dense, *SMALL, "--tensor-parallel-size", 11)
    assert answer.returncode == 78 and "at most 10" in answer.stdout, answer.stdout


def test_constraints_and_beams_have_the_same_bits(start):
    bodies = [{"guided_regex": "[a-z]{6,9}", "seed": 4},
              {"guided_json": {"type": "object"}, "seed": 2},
              {"use_beam_search": True, "n": 3}, {"n": 2, "best_of": 4, "seed": 9}]
    found = []
    for size in (1, 2):
        server = start(ROOT / "tests/fixtures/tiny", "--load-format", "dummy", "--seed", 5,
                       "--kv-cache-bytes", "64MiB", "--tensor-parallel-size", size)
        of_size = []
        for body in bodies:
            answer = server.post("/v1/completions", {"prompt": "One", "max_tokens": 24,
                                                     "logprobs": 1, **body})
            assert answer.status == 200, answer
            of_size.append(answer.json["choices"])
        assert server.stop() == 0, server.log()
        found.append(of_size)
    assert found[0] == found[1]


@pytest.mark.parametrize("case", EMBEDDINGS, ids=lambda case: case.name)
def test_vectors_have_the_same_bits(inferd, case):
    """Of encoders and decoders, with what follows the pooling."""
    expected = json.loads((case / "expected.json").read_text())
    flags = ("--load-format", "dummy", "--seed", str(expected["seed"]))
    texts = [f"A text of {n} numbers: " + " ".join(map(str, range(n))) for n in (1, 5, 17)]
    found = []
    for size in (1, 2):
        server = Server(inferd, case, *flags, "--tensor-parallel-size", size)
        answer = server.post("/v1/embeddings", {"input": texts})
        assert answer.status == 200, answer
        found.append(answer.json["data"])
        assert server.stop() == 0, server.log()
    assert found[0] == found[1]


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True)


class TwoHosts:
    """Two network namespaces with a cable between them. The second one has a name, shared memory
    and model files of its own, at the same path. `shell` starts a server by mpirun."""

    def __init__(self, names, shell, model):
        self.names, self.shell, self.model = names, shell, model

    def rank_1(self):
        """Its process, which nothing but its environment tells."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if rank_of(entry.name) == 1 and self.namespace(entry.name) == self.namespace():
                    return int(entry.name)
            except OSError:
                continue
        raise AssertionError("no rank 1 on the second host")

    def namespace(self, pid=None):
        path = f"/proc/{pid}/ns/net" if pid else f"/run/netns/{self.names[1]}"
        return os.stat(path).st_ino

    def received_bytes(self):
        """On the first host's end of the cable, so far."""
        counter = "/sys/class/net/cable0/statistics/rx_bytes"
        return int(subprocess.run(["ip", "netns", "exec", self.names[0], "cat", counter],
                                  check=True, stdout=subprocess.PIPE).stdout)

    def cut(self):
        ip("-n", self.names[0], "link", "set", "cable0", "down")


@pytest.fixture
def two_hosts(dense, tmp_path):
    """What mpirun runs where ssh would be stands in a script."""
    names = [f"ranks{os.getpid()}{side}" for side in "ab"]
    for name in names:
        ip("netns", "add", name)
    ip("link", "add", "cable0", "netns", names[0], "type", "veth", "peer", "name", "cable1",
       "netns", names[1])
    for i, name in enumerate(names):
        ip("-n", name, "addr", "add", f"10.99.77.{i + 1}/24", "dev", f"cable{i}")
        ip("-n", name, "link", "set", f"cable{i}", "up")
        ip("-n", name, "link", "set", "lo", "up")
    shell = tmp_path / "rsh"
    model = shutil.copytree(dense, tmp_path / "model of the second host")
    shell.write_text(f"""#!/bin/sh
shift
exec ip netns exec {names[1]} unshare -u -m sh -c "hostname secondhost
mount -t tmpfs tmpfs /dev/shm && mount --bind '{model}' '{dense}' && $*"
""")
    shell.chmod(0o755)
    yield TwoHosts(names, (
        f"exec ip netns exec {names[0]} mpirun --allow-run-as-root -n 2 "
        f"--host 10.99.77.1:1,10.99.77.2:1 --mca plm_rsh_agent {shell} --mca btl tcp,self "
        "--mca btl_tcp_if_include 10.99.77.0/24 --mca oob_tcp_if_include 10.99.77.0/24 \"$@\""),
        model)
    for name in names:
        for pid in subprocess.run(["ip", "netns", "pids", name], check=True,
                                  stdout=subprocess.PIPE).stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        ip("netns", "del", name)


def test_two_hosts_have_the_same_bits(inferd, alone, dense, two_hosts, tmp_path):
    server = Server(inferd, dense, *SMALL, uds=tmp_path / "socket", shell=two_hosts.shell)
    other, before = two_hosts.rank_1(), two_hosts.received_bytes()
    assert answers(server) == alone[dense]
    assert "2 over MPI" in server.log()
    page = server.get("/metrics").body.decode()
    exchanged = float(re.search(r"^inferd_rank_exchanged_bytes_total\S* (\S+)$", page, re.M)[1])
    assert two_hosts.received_bytes() - before > 0.9 * exchanged > 1e6
    root = Path(f"/proc/{other}/root")
    own = Path(two_hosts.model) / "config.json"
    assert os.path.samefile(root / dense.relative_to("/") / "config.json", own)
    assert not os.path.samefile(dense / "config.json", own)
    first = next(pid for pid in children(server.process.pid) if rank_of(pid) == 0)
    os.kill(first, signal.SIGTERM)
    assert server.wait_exit(60) == 0, server.log()


def test_a_rank_that_is_killed_on_another_host_ends_all(inferd, dense, two_hosts, tmp_path):
    server = Server(inferd, dense, *SMALL, uds=tmp_path / "socket", shell=two_hosts.shell)
    load = Load(server, 2)
    time.sleep(0.3)
    os.kill(two_hosts.rank_1(), signal.SIGKILL)
    load.finish(10)
    assert server.wait_exit(20) != 0, server.log()[-3000:]
    assert set(load.ends) <= {200, 500, 503, "closed"} and load.ends[-1] != 200, load.ends


def test_a_cut_cable_fails_requests_within_the_watchdog(inferd, dense, two_hosts, tmp_path):
    server = Server(inferd, dense, *SMALL, "--watchdog-interval", "2s", uds=tmp_path / "socket",
                    shell=two_hosts.shell)
    load = Load(server, 2)
    time.sleep(0.3)
    first = next(pid for pid in children(server.process.pid) if rank_of(pid) == 0)
    two_hosts.cut()
    load.finish(6)
    assert load.ends[-1] in (500, 503, "closed") and 500 in load.ends, load.ends
    wait_until(lambda: not Path(f"/proc/{first}").exists(), "rank 0 to end")
    server.process.kill()  # mpirun may wait for its daemon on the other host
    server.process.wait()


def test_an_adapter_of_run_time_has_the_same_bits(inferd, dense, tmp_path):
    """Rank 0 reads it: the others get it from there."""
    adapter, found = write_adapter(tmp_path / "adapter", dense, 1), []
    for options in ((), ("--tensor-parallel-size", 3), ("--pipeline-parallel-size", 2)):
        server = Server(inferd, dense, *SMALL, "--enable-lora", "--allow-runtime-lora", *options,
                        uds=tmp_path / "socket")
        ask = {"prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0, "ignore_eos": True,
               "logprobs": 1, "return_token_ids": True}
        plain = server.post("/v1/completions", ask).json["choices"]
        answer = server.post("/v1/load_lora_adapter", {"lora_name": "one",
                                                       "lora_path": str(adapter)})
        assert answer.status == 200, answer
        adapted = server.post("/v1/completions", {**ask, "model": "one"}).json["choices"]
        assert adapted != plain
        found.append((plain, adapted))
        assert server.stop() == 0, server.log()
    assert found[0] == found[1] == found[2]


def test_what_does_not_go_with_ranks_is_named(inferd, dense):
    answer = run(inferd, "serve", dense, *SMALL, "--tensor-parallel-size", 11, "--port", 0)
    assert answer.returncode == 78 and "at most 10" in answer.stdout, answer.stdout
    answer = run(inferd, "serve", dense, *SMALL, "--tensor-parallel-size", 65, "--port", 0)
    assert answer.returncode == 64, answer.stdout
    torchrun = {**os.environ, "TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "0"}
    answer = run(inferd, "serve", dense, *SMALL, "--port", 0, env=torchrun)
    assert answer.returncode == 78 and "started by torchrun" in answer.stdout, answer.stdout


class Load:
    """Clients that ask again and again until something fails; each notes how its requests end."""

    def __init__(self, server, count=4):
        self.server, self.ends = server, []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self, i):
        while True:
            try:
                answer = self.server.post("/v1/completions", {
                    "prompt": [i, 7, 9], "max_tokens": 100, "ignore_eos": True})
                end = answer.status
            except OSError:
                end = "closed"
            with self.lock:
                self.ends.append(end)
            if end != 200:
                return

    def finish(self, limit_s):
        """Every client has met the end of the server within the limit."""
        deadline = time.monotonic() + limit_s * PATIENCE
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), "a client still waits"


def test_a_killed_rank_ends_all_and_a_restart_serves(inferd, dense, alone):
    source = random.Random(os.environ.get("INFERD_TEST_SEED", "ranks"))
    for _ in range(KILLS):
        server = Server(inferd, dense, *SMALL, "--tensor-parallel-size", 3,
                        "--tensor-parallel-mode", source.choice(["exact", "fast"]))
        everyone = [server.process.pid, *children(server.process.pid)]
        victim = source.randrange(3)
        load = Load(server)
        time.sleep(source.random())
        os.kill(everyone[victim], signal.SIGKILL)
        load.finish(4)
        status = server.wait_exit(10)
        assert status == (-signal.SIGKILL if victim == 0 else 71), (victim, server.log()[-3000:])
        assert set(load.ends) <= {200, 500, 503, "closed"}, load.ends
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everyone[1:]),
                   "the other ranks to end")
    server = Server(inferd, dense, *SMALL, "--tensor-parallel-size", 3)  # as a supervisor does
    assert answers(server) == alone[dense]
    assert server.stop() == 0


def test_a_rank_that_hangs_fails_requests_within_the_watchdog(inferd, dense):
    server = Server(inferd, dense, *SMALL, "--tensor-parallel-size", 2, "--watchdog-interval", "2s")
    other = children(server.process.pid)[0]
    load = Load(server, 2)
    time.sleep(0.3)
    os.kill(other, signal.SIGSTOP)
    began = time.monotonic()
    load.finish(6)
    assert server.wait_exit(12) == 71, server.log()[-3000:]
    assert time.monotonic() - began >= 1, "the limit was not waited for"
    assert load.ends[-1] in (500, 503, "closed") and 500 in load.ends, load.ends
    assert "rank 1 does not answer" in server.log()
    assert not Path(f"/proc/{other}").exists()


def test_mpirun_ends_all_when_a_rank_is_killed(inferd, dense):
    server = Server(inferd, dense, *SMALL, shell=f'exec {MPIRUN} 3 "$@"')
    ranks = children(server.process.pid)
    load = Load(server, 2)
    time.sleep(0.3)
    os.kill(next(pid for pid in ranks if rank_of(pid) == 2), signal.SIGKILL)
    load.finish(10)
    assert server.wait_exit(20) != 0, server.log()[-3000:]
    assert load.ends[-1] in (500, 503, "closed"), load.ends
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks),
               "all ranks to end")


def test_a_rank_that_does_not_end_is_not_waited_for(inferd, dense, tmp_path):
    """Rank 1 stands still where MPI ends: rank 0 leaves after its limit, mpirun ends the rest."""
    source, hook = tmp_path / "hook.c", tmp_path / "hook.so"
    source.write_text("""#include <unistd.h>
int PMPI_Finalize(void);
int MPI_Finalize(void);
extern char *getenv(const char *name);
int MPI_Finalize(void) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  while (rank != NULL && *rank == '1') pause();
  return PMPI_Finalize();
}
""")
    subprocess.run(["mpicc", "-shared", "-fPIC", "-o", hook, source], check=True)
    server = Server(inferd, dense, *SMALL, "--watchdog-interval", "2s",
                    shell=f'exec {MPIRUN} 2 -x LD_PRELOAD={hook} "$@"')
    server.choice([1, 2, 3], max_tokens=4)
    ranks = children(server.process.pid)
    os.kill(next(pid for pid in ranks if rank_of(pid) == 0), signal.SIGTERM)
    assert server.wait_exit(30) != 0, server.log()
    assert "another rank does not end" in server.log()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks),
               "all ranks to end")


def test_an_idle_rank_that_dies_is_noticed(inferd, dense):
    server = Server(inferd, dense, *SMALL, "--tensor-parallel-size", 2)
    os.kill(children(server.process.pid)[0], signal.SIGKILL)
    assert server.wait_exit(10) == 71
    assert "rank 1 has ended" in server.log()


def makes_namespaces():
    name = f"ranks{os.getpid()}"
    if os.geteuid() != 0:
        return False
    made = subprocess.run(["ip", "netns", "add", name], check=False).returncode == 0
    able = made and subprocess.run(["ip", "netns", "exec", name, "unshare", "-u", "true"],
                                   check=False).returncode == 0
    if made:
        ip("netns", "del", name)
    return able


ON_TWO_HOSTS = [name for name, test in list(globals().items())
                if name.startswith("test_") and "two_hosts" in inspect.signature(test).parameters]
if not WITH_MPI:
    del test_ranks_of_mpirun_have_the_same_bits, test_mpirun_ends_all_when_a_rank_is_killed
    del test_a_rank_that_does_not_end_is_not_waited_for
elif not makes_namespaces():
    UNABLE.append((len(ON_TWO_HOSTS), "no network namespaces (not root, or a container): a model "
                   "on two hosts is not tested"))
if not WITH_MPI or UNABLE:
    for name in ON_TWO_HOSTS:
        del globals()[name]
