"""Draft tokens change how many steps an answer takes and nothing that a client sees of it."""

import subprocess

import pytest

from harness import DEMO, PATIENCE

PROMPTS = ["Once upon a time", '{"name": "Ann", "age": 5}\n{"name": "Ann", "age":',
           "1 2 3 1 2 3 1 2"]


def answers(server):
    return [server.complete(prompt, max_tokens=80, temperature=temperature, seed=3, logprobs=2,
                            return_token_ids=True, frequency_penalty=penalty)["choices"]
            for prompt in PROMPTS for temperature, penalty in ((0, 0), (0.8, 0), (0, 0.5))]


@pytest.mark.parametrize("flags", [[], ["--speculative-model", DEMO]],
                         ids=["prompt lookup", "draft model"])
def test_answers_with_drafts_are_those_without(start, server, flags):
    drafting = start(DEMO, "--max-model-len", 2048,
                     "--num-speculative-tokens", 5, *flags)
    expected = answers(server)
    for _ in range(30):  # how many drafts pay depends on the machine's time, so until one was right
        assert answers(drafting) == expected
        if drafting.metric("inferd_spec_decode_accepted_tokens_total") > 0:
            break
    made, right = (drafting.metric(f"inferd_spec_decode_{name}_tokens_total")
                   for name in ("draft", "accepted"))
    assert made >= right > 0
    for name in ("inferd_spec_decode_accepted_tokens_per_pos_total",
                 "vllm:spec_decode_num_accepted_tokens_per_pos_total"):
        places = [drafting.metric(name, position=str(i)) for i in range(5)]
        assert sum(places) == drafting.metric(name) == right
        assert places == sorted(places, reverse=True), "a place counts if those before it do"
    method = "draft_model" if flags else "ngram"
    assert drafting.metric("inferd_spec_decode_info", method=method) == 1
    withheld = [drafting.metric("inferd_spec_decode_withheld_total", reason=reason)
                for reason in ("misses", "time")]
    assert sum(withheld) == drafting.metric("inferd_spec_decode_withheld_total")
    assert server.metric("inferd_spec_decode_draft_tokens_total") == 0


SCHEMA = {"type": "object", "required": ["name", "tags", "kind"], "additionalProperties": False,
          "properties": {"name": {"type": "string", "maxLength": 12},
                         "tags": {"type": "array", "items": {"enum": ["red", "green", "greenish"]},
                                  "minItems": 2, "maxItems": 4},
                         "kind": {"const": "a constant of several words"}}}
CONSTRAINTS = [
    {"response_format": {"type": "json_schema",
                         "json_schema": {"name": "s", "schema": SCHEMA, "strict": True}}},
    {"response_format": {"type": "json_object"}},
    {"structured_outputs": {"regex": "(?:left|right|leftover)(?: and (?:left|right)){2,9}"}},
    {"structured_outputs": {"choice": ["the first of two answers", "the first one"]}},
    {"structured_outputs": {"grammar": 'root ::= item (", " item){2,9} "."\n'
                                       'item ::= "one" | "two" | "(" item ")"'}},
]


def constrained_answers(server):
    return [server.complete(prompt, max_tokens=48, temperature=temperature, seed=seed, logprobs=2,
                            return_token_ids=True, frequency_penalty=penalty,
                            logit_bias={"40": 2}, **constraint)["choices"]
            for constraint in CONSTRAINTS for prompt in PROMPTS[:2]
            for seed, temperature, penalty in ((1, 0, 0), (2, 0.8, 0), (3, 0.8, 0.5))]


@pytest.mark.parametrize("flags", [[], ["--speculative-model", DEMO]],
                         ids=["prompt lookup", "draft model"])
def test_constrained_answers_with_drafts_are_those_without(start, server, flags):
    drafting = start(DEMO, "--max-model-len", 2048, "--num-speculative-tokens", 5, *flags)
    expected = constrained_answers(server)
    for _ in range(10):
        assert constrained_answers(drafting) == expected
        if drafting.metric("inferd_spec_decode_accepted_tokens_total") > 0:
            break
    assert drafting.metric("inferd_spec_decode_accepted_tokens_total") > 0


def test_a_draft_model_of_other_tokens_is_refused(inferd, tmp_path):
    result = subprocess.run([inferd, "serve", DEMO, "--port", "0",
                             "--num-speculative-tokens", "3", "--speculative-model",
                             "tests/fixtures/tiny"], capture_output=True, text=True,
                            timeout=60 * PATIENCE)
    assert result.returncode == 78 and "same vocabulary" in result.stdout + result.stderr


@pytest.mark.parametrize("flags, words", [
    (["--speculative-method", "mtp"], "num_speculative_tokens is 0"),
    (["--speculative-method", "mtp", "--num-speculative-tokens", "3"], "num_nextn_predict_layers"),
    (["--spec-method", "draft_model", "--num-speculative-tokens", "3"], "speculative_model is not"),
    (["--spec-method", "ngram", "--spec-model", DEMO, "--spec-tokens", "3"], "must be draft_model"),
])
def test_a_method_that_does_not_work_is_refused_by_name(inferd, flags, words):
    result = subprocess.run([inferd, "serve", DEMO, "--port", "0", *flags], capture_output=True,
                            text=True, timeout=60 * PATIENCE)
    assert result.returncode == 78 and words in result.stdout + result.stderr


@pytest.mark.parametrize("model", ["tests/fixtures/predicts", "tests/fixtures/delta"],
                         ids=["experts", "states"])
def test_a_layer_that_predicts_changes_no_answer(start, model):
    """With random weights it is rarely right."""
    flags = ["--load-format", "dummy", "--seed", 5, "--max-model-len", 512]
    plain = start(model, *flags)
    drafting = start(model, *flags, "--num-speculative-tokens", 3, "--speculative-method", "mtp")
    assert answers(drafting) == answers(plain)
    assert drafting.metric("inferd_spec_decode_draft_tokens_total") > 0
