"""Models with a state per sequence on the emulated GPU: one answer in any company, both devices'.

Run by serve.py.
"""

import random
import re

from serving import FEW, ROOT, Server, check_logprobs, compare, prompts

FLAGS = ["--load-format", "dummy", "--seed", "11", *FEW]


def serve(program, device, name, *flags):
    return Server(program, device, *FLAGS, *flags, model=ROOT / "tests/fixtures" / name)


def answers(choices):
    return [(choice["token_ids"], choice["logprobs"]) for choice in choices]


def cached(server):
    return float(re.search(r"^inferd_prefix_cache_hits_total\S* (\S+)", server.metrics(), re.M)[1])


def conversations(count):
    """Sampled and greedy; the beginning of 70 tokens is the same, as a prompt of a system is."""
    start = [random.randrange(2, 384) for _ in range(70)]
    return [{"prompt": start + [random.randrange(2, 384) for _ in range(20)], "max_tokens": 26,
             "logprobs": 2, "seed": i, "temperature": 0.8 * (i % 2)} for i in range(count)]


def check_states(program, name, *more):
    """Bits of both devices are near each other; on one they are the same however it computes."""
    bodies = conversations(6)
    servers = [serve(program, device, name, *more) for device in ("cpu", "cuda")]
    expected, got = (server.all(bodies) for server in servers)
    differences = [d for pair in list(zip(expected, got))[::2] for d in compare(*pair)]
    alone = [servers[1].all([body])[0] for body in bodies]
    again = [servers[1].all([body])[0] for body in bodies]
    hits = cached(servers[1])
    for server in servers:
        assert server.stop() == 0, server.text()
    assert len(differences) > 10, f"only {len(differences)} tokens could be compared"
    check_logprobs(differences)
    assert answers(alone) == answers(got), "beside others and alone"
    assert answers(again) == answers(got), "from a snapshot"
    assert hits > 0, "no prompt was a hit"
    whole = ["--no-enable-prefix-caching"]
    small = ["--block-size", 16, "--num-blocks", 20, "--max-num-batched-tokens", 40,
             "--max-model-len", 128]
    for flags in (whole, small, [*small, *whole]):
        server = serve(program, "cuda", name, *more, *flags)
        got = answers(server.all(bodies))
        preempted = server.preemptions()
        assert server.stop() == 0, server.text()
        assert got == answers(alone), flags
        assert preempted > 0 or flags in (whole, small), "three begin where two have room to end"


def test_forks_copy_their_state(program):
    """Choices of one prompt, and beams: those of a server that computes each by itself."""
    body = {"prompt": prompts(1, 90)[0], "max_tokens": 10, "seed": 5, "temperature": 1,
            "logprobs": 1}
    server = serve(program, "cuda", "states")
    status, many = server.ask(**body, n=3)
    assert status == 200, many
    beams = server.all([{**body, "temperature": 0, "use_beam_search": True, "best_of": 3,
                         "n": 1}] * 2)
    assert server.stop() == 0, server.text()
    other = serve(program, "cuda", "states", "--no-enable-prefix-caching",
                  "--max-num-batched-tokens", 24)
    status, again = other.ask(**body, n=3)
    alone = other.all([{**body, "temperature": 0, "use_beam_search": True, "best_of": 3, "n": 1}])
    assert other.stop() == 0, other.text()
    assert answers(many["choices"]) == answers(again["choices"])
    assert len({tuple(tokens) for tokens, _ in answers(many["choices"])}) > 1, "all are the same"
    assert answers(beams) == answers(alone * 2)


def test_short_convolutions(program):
    check_states(program, "states")


def test_gated_delta_nets(program):
    check_states(program, "delta")


def test_mamba2_and_experts_without_a_gate(program):
    """In float16: rounding to bfloat16 often changes which experts are chosen."""
    check_states(program, "scan", "--dtype", "float16")
