"""Experts in host memory beside the emulated GPU: the answers of both devices, in any company.

Run by serve.py.
"""

import json
import re
import subprocess
import tempfile

from serve_default import model_folder
from serve_ranks import MIXTURE
from serve_states import answers, check_devices, conversations
from serving import FEW, LONG, Server

LAYERS = 4
# rounding to bfloat16 often changes which experts are chosen
FLAGS = ["--load-format", "dummy", "--seed", "11", "--dtype", "float16", *FEW]
CONFIGURATION = 78


def shape():
    return dict(MIXTURE, num_hidden_layers=LAYERS, vocab_size=384)


def check(program, folder, expected, bodies, *placement):
    """Near the CPU, with the bits of one sequence alone, also when it is preempted."""
    server = Server(program, "cuda", *FLAGS, *placement, model=folder)
    alone = [server.all([body])[0] for body in bodies]
    got = server.all(bodies)
    assert server.stop() == 0, server.text()
    assert answers(got) == answers(alone), "beside others and alone"
    check_devices(expected[::2], got[::2], 1)
    small = Server(program, "cuda", *FLAGS, *placement, "--block-size", 16, "--num-blocks", 16,
                   "--max-num-batched-tokens", 40, "--max-model-len", 128,
                   "--num-speculative-tokens", 3, model=folder)
    again = small.all(bodies)
    preempted = small.preemptions()
    assert small.stop() == 0, small.text()
    assert answers(again) == answers(alone), "in chunks, preempted, with drafts"
    assert preempted > 0, "the pool was not small enough"
    return server.text()


def test_experts_in_host_memory(program):
    bodies = conversations(4)
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, shape())
        cpu = Server(program, "cpu", *FLAGS, "--cpu-experts", "all", model=folder)
        expected = cpu.all(bodies)
        assert cpu.stop() == 0, cpu.text()
        assert "with device cpu all of them are computed on the CPU" in cpu.text(), cpu.text()
        half, whole = (["--n-cpu-moe", LAYERS // 2], LAYERS // 2), (["--cpu-moe"], LAYERS)
        for placement, layers in (half, whole) if LONG else (half,):
            text = check(program, folder, expected, bodies, *placement)
            assert f"experts   of {layers} of {LAYERS} layers in host memory" in text, text
            assert re.search(rf"experts   of {layers} layers in host memory, computed by \d+ thr",
                             text), text


def survey(program, folder, *flags):
    run = subprocess.run([program, "check", folder, "--json", "--load-format", "dummy", "--device",
                          "cuda", "--max-num-seqs", "8", *flags], check=False, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    return run.returncode, run.stdout, run.stderr


def test_the_plan_of_experts_in_host_memory(program):
    with tempfile.TemporaryDirectory() as folder:
        model_folder(folder, shape())
        plans = []
        for layers in range(LAYERS + 1):
            status, out, said = survey(program, folder, "--cpu-experts", str(layers))
            assert status == 0, said
            plans.append(json.loads(out.splitlines()[-1]))
        weights = [plan["weights"] for plan in plans]
        host = [plan["host_weights"] for plan in plans]
        assert weights == sorted(weights, reverse=True) and len(set(weights)) == LAYERS + 1
        assert host[0] == 0 and host == sorted(host) and len(set(host)) == LAYERS + 1
        for value, message in ((str(LAYERS + 1), f"it must be 0 to {LAYERS}, all or auto"),
                               ("some", "it must be auto, all, or the number of layers"),
                               ("-1", "it must be auto, all, or the number of layers")):
            status, _, said = survey(program, folder, f"--cpu-experts={value}")
            assert status == CONFIGURATION and message in said, (value, status, said)
