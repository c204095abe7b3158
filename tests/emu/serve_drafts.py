"""Draft tokens on the emulated GPU: fewer steps, and every token and logprob as without.

Run by serve.py.
"""

import json
import random
import re
import tempfile
from pathlib import Path

from serve_default import model_folder
from serve_lora import write_adapter
from serving import FEW, LONG, ROOT, TINY, Server, compare

DRAFTS = ["--num-speculative-tokens", 4, "--prompt-lookup-min", 1]


def count(server, name):
    """The sum of a counter over its labels."""
    return sum(map(float, re.findall(rf"^inferd_{name}_total\S* (\S+)", server.metrics(), re.M)))


def reciting(number):
    """Prompts of a few tokens again and again, greedy or drawn, with parts of the sampler that look
    at the tokens so far. A penalty below 1 makes a text repeat itself, so that some draft is right,
    however few the costs of the steps allow."""
    kinds = [{}, {"repetition_penalty": 0.5}, {"temperature": 0.7}, {"repetition_penalty": 1.1},
             {"presence_penalty": 0.5, "temperature": 0.5}, {"bad_words": ["the", "one two"]},
             {"min_tokens": 20, "ignore_eos": False}, {"logit_bias": {"17": 3}},
             {"structured_outputs": {"regex": "(?:ab|abc|b){9,40}"}, "temperature": 0.7},
             {"structured_outputs": {"regex": "one(?: and two| or three){3,8}"}}]
    few = [random.randrange(2, 384) for _ in range(6)]
    return [{"prompt": [random.choice(few) for _ in range(random.randrange(20, 90))],
             "max_tokens": 40, "logprobs": 1, "seed": i, **kinds[i % len(kinds)]}
            for i in range(number)]


def answers(choices):
    return [(choice["token_ids"], choice["logprobs"]) for choice in choices]


def check_drafts(program, model, *flags):
    """Alone a request drafts in nearly every step; among eight, steps overlap and some wait."""
    bodies, few = reciting(20 if LONG else 10), 10 if LONG else 5
    model = None if model is None else ROOT / "tests/fixtures" / model
    load = [] if model is None else ["--load-format", "dummy", "--seed", "11"]
    plain, drafting = (Server(program, "cuda", *load, *FEW, *flags, *more, model=model)
                       for more in ([], DRAFTS))
    expected = answers(plain.all(bodies))
    together = answers(drafting.all(bodies))
    alone = [answers(drafting.all([body]))[0] for body in bodies[:few]]
    made, right = (count(drafting, f"spec_decode_{kind}_tokens") for kind in ("draft", "accepted"))
    for server in (plain, drafting):
        assert server.stop() == 0, server.text()
    assert together == expected, "beside others"
    assert alone == expected[:few], "alone"
    assert made >= right > 0, (made, right)
    assert made > right, "some drafts were to be wrong"


def test_drafts_change_no_token(program):
    check_drafts(program, None)


def test_drafts_of_models_with_a_state(program):
    check_drafts(program, "states", "--max-model-len", 256)


def test_drafts_where_blocks_are_few(program):
    """Requests with drafts are preempted, and swapped, and go on."""
    check_drafts(program, None, "--block-size", 16, "--num-blocks", 24, "--max-model-len", 192)


def test_drafts_on_both_devices(both):
    cpu, cuda = both
    bodies = [{"prompt": body["prompt"], "max_tokens": 16, "logprobs": 5,
               "return_tokens_as_token_ids": True} for body in reciting(8)]
    drafting = Server(cuda.process.args[0], "cuda", *FEW, *DRAFTS)
    differences = [d for pair in zip(cpu.all(bodies), drafting.all(bodies)) for d in compare(*pair)]
    assert drafting.stop() == 0, drafting.text()
    assert len(differences) > 16, f"only {len(differences)} tokens could be compared"


def other_model(folder, **changes):
    """Another model of the same tokens: fewer layers, other weights."""
    return model_folder(folder, {**json.loads((TINY / "config.json").read_text()), **changes})


def check_draft_model(program, model, drafter, *flags, counters=()):
    """Returns how many draft tokens were made and how many of them were right. The counters must
    have counted."""
    bodies = [{**body, "max_tokens": 24} for body in reciting(10)]
    model = TINY if model is None else ROOT / "tests/fixtures" / model
    load = ["--load-format", "dummy", "--seed", "11", *FEW, *flags]
    drafts = ["--num-speculative-tokens", 4, "--speculative-model", drafter]
    plain, drafting = (Server(program, "cuda", *load, *more, model=model) for more in ([], drafts))
    expected = answers(plain.all(bodies))
    together = answers(drafting.all(bodies))
    alone = [answers(drafting.all([body]))[0] for body in bodies[:4]]
    counted = {name: count(drafting, name) for name in counters}
    made, right = (count(drafting, f"spec_decode_{kind}_tokens") for kind in ("draft", "accepted"))
    for server in (plain, drafting):
        assert server.stop() == 0, server.text()
    assert f"drafts    by {drafter}: " in drafting.text(), drafting.text()
    assert together == expected, "beside others"
    assert alone == expected[:4], "alone"
    assert made > 0 and all(counted.values()), (made, counted)
    return made, right


def test_a_model_that_drafts_for_itself_is_always_right(program):
    """One wrong row of its cache, or another type or sum than the model's, would show; but for
    what a grammar cuts."""
    made, right = check_draft_model(program, None, TINY)
    assert right > 0.95 * made, (made, right)


def test_drafts_of_another_model_change_no_token(program):
    with tempfile.TemporaryDirectory() as folder:
        drafter = other_model(folder, num_hidden_layers=1)
        made, right = check_draft_model(program, None, drafter)
        assert right < made, (made, right)


def test_a_model_drafts_for_one_with_a_state(program):
    check_draft_model(program, "states", TINY, "--max-model-len", 256)


def test_a_model_drafts_where_blocks_are_few(program):
    """Its blocks go to the host and come back with the model's, those of the prefix cache too."""
    check_draft_model(program, None, TINY, "--block-size", 16, "--num-blocks", 24,
                      "--max-model-len", 192, "--preemption-mode", "swap",
                      "--prefix-cache-space", "0.01",
                      counters=["preemptions", "swapped_blocks", "prefix_cache_hits"])


def test_a_model_without_adapters_drafts_for_one_with_them(program):
    bodies = [{**body, "max_tokens": 16, "model": ("one", "base")[i % 2]}
              for i, body in enumerate(reciting(6))]
    with tempfile.TemporaryDirectory() as name:
        one = write_adapter(Path(name) / "one", 4, {"self_attn.q_proj": (64, 64),
                                                    "mlp.down_proj": (64, 128)})
        flags = [*FEW, "--served-model-name", "base", "--lora-modules", f"one={one}",
                 "--enable-lora"]
        servers = [Server(program, "cuda", *flags, *more)
                   for more in ([], ["--num-speculative-tokens", 3, "--speculative-model", TINY])]
        plain, drafting = (answers(server.all(bodies)) for server in servers)
        made = count(servers[1], "spec_decode_draft_tokens")
        for server in servers:
            assert server.stop() == 0, server.text()
    assert plain == drafting and made > 0


def test_a_draft_model_that_does_not_run_on_a_gpu_is_refused_by_name(program):
    config = json.loads((ROOT / "tests/fixtures/gemma4/config.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        server = Server(program, "cuda", *FEW, "--num-speculative-tokens", 3,
                        "--speculative-model", model_folder(folder, config))
        assert server.process.wait(60) == 78, server.text()
    assert "device cuda cannot run the layers of Gemma4" in server.text(), server.text()
    assert "set by --speculative-model" in server.text(), server.text()


def test_the_log_says_when_drafts_may_change_the_last_bits(program):
    server = Server(program, "cuda", *FEW, *DRAFTS, "--no-batch-invariant")
    assert server.stop() == 0
    assert "with --batch-invariant" in server.text()
    assert "drafts    by prompt lookup" in server.text()
