"""The prefix cache in a file: prompts of before a restart, or of before a kill, are hits."""

import random
import signal

import pytest

from harness import DEMO

BLOCK = 16


def prompts(server, seed):
    """Token ids of three prompts that share a beginning."""
    draw = random.Random(seed)
    base = server.tokens(" ".join(str(draw.randrange(10**6)) for _ in range(60)))[:320]
    return [base + [draw.randrange(300, 400) for _ in range(40 + 30 * i)] for i in range(3)]


def ask(server, prompt, **more):
    answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 8, "temperature": 0,
                                             "logprobs": 2, **more}).json
    details = answer["usage"]["prompt_tokens_details"]
    return answer["choices"][0]["logprobs"], details["cached_tokens"], details.get(
        "floor_cached_tokens", 0)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_prompt_of_before_the_end_is_a_hit(start, tmp_path, end):
    flags = ("--prefix-cache-file", tmp_path / "blocks", "--prefix-cache-space", 0.0625)
    server = start(DEMO, *flags, expected_exit=-9 if end == signal.SIGKILL else 0)
    asked = prompts(server, 14)
    before = [ask(server, prompt)[0] for prompt in asked]
    salted = ask(server, asked[0], cache_salt="one")
    assert salted[:2] == (before[0], 0)
    # all have left when the next request was computed beside nothing
    ask(server, asked[0][:20])
    server.process.send_signal(end)
    server.wait_exit(60)

    server = start(DEMO, *flags)
    assert "with content" in server.log()
    for prompt, expected in zip(asked, before):
        got, cached, floor = ask(server, prompt)
        assert got == expected
        assert cached >= (len(prompt) - 1) // BLOCK * BLOCK
        assert 0 < floor <= cached
    assert ask(server, asked[0], cache_salt="other")[1:] == (0, 0)
    assert server.metric("inferd_prefix_cache_floor_hits_total") > 0
    assert server.metric("inferd_prefix_cache_floor_damaged_blocks_total") == 0


def test_a_file_of_another_model_length_is_empty_with_a_warning(start, tmp_path):
    flags = ("--prefix-cache-file", tmp_path / "blocks", "--prefix-cache-space", 0.0625)
    server = start(DEMO, *flags)
    prompt = prompts(server, 15)[0]
    ask(server, prompt)
    assert server.stop() == 0
    server = start(DEMO, *flags, "--max-model-len", 1024)
    assert "what it held is ignored" in server.log()
    assert ask(server, prompt)[1] == 0
