"""lm-eval over /v1/completions, beside lm-eval over transformers: the same tasks, the same numbers.

The tasks and their few documents are made here; nothing is downloaded. Of local-completions each
kind of request is used: likelihoods with echo and logprobs, rolling ones, and text until a stop.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import DEMO, PATIENCE

SUMS = [(2, 3, 7), (4, 4, 9), (1, 6, 2)]  # two terms, and a wrong sum
STORY = "Once upon a time there was a little cat. It lived in a house with a red door."
TASKS = {
    "choose": {"output_type": "multiple_choice", "doc_to_text": "{{question}}",
               "doc_to_choice": "{{choices}}", "doc_to_target": 0,
               "metric_list": [{"metric": "acc"}]},
    "read": {"output_type": "loglikelihood_rolling", "doc_to_text": "",
             "doc_to_target": "{{story}}", "metric_list": [{"metric": "bits_per_byte"}]},
    "write": {"output_type": "generate_until", "doc_to_text": "{{question}}",
              "doc_to_target": " {{choices[0]}}", "metric_list": [{"metric": "exact_match"}],
              "generation_kwargs": {"until": ["\n"], "max_gen_toks": 12}},
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tasks")
    documents = [{"question": f"What is {a} plus {b}?", "story": f"{STORY} It was {a}.",
                  "choices": [f"A: {a + b}", f"A: {wrong}"]} for a, b, wrong in SUMS]
    (directory / "documents.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    for name, task in TASKS.items():  # JSON is YAML
        (directory / f"{name}.yaml").write_text(json.dumps({
            "task": name, "dataset_path": "json", "test_split": "test", **task,
            "dataset_kwargs": {"data_files": {"test": str(directory / "documents.jsonl")}}}))
    return directory


def evaluate(tasks, output, model, *arguments):
    """Runs lm-eval; returns its results and its answers, each by task."""
    command = [Path(sys.executable).parent / "lm-eval", "run", "--model", model, *arguments,
               "--tasks", *TASKS, "--include_path", tasks, "--output_path", output,
               "--log_samples"]
    environment = {"PATH": os.environ["PATH"], "HOME": output, "HF_HOME": output,
                   "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, text=True, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=120 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    (results,) = output.rglob("results_*.json")
    answers = {}
    for name in TASKS:
        (samples,) = output.rglob(f"samples_{name}_*.jsonl")
        lines = [json.loads(line) for line in samples.read_text().splitlines()]
        lines.sort(key=lambda line: line["doc_id"])
        answers[name] = [line["filtered_resps"] for line in lines]
    return json.loads(results.read_text())["results"], answers


@pytest.fixture(scope="module")
def reference(tasks, tmp_path_factory):
    return evaluate(tasks, tmp_path_factory.mktemp("reference"), "hf", "--device", "cpu",
                    "--model_args", f"pretrained={DEMO},dtype=float32,max_length=2048")


@pytest.mark.parametrize("how", [
    [f"tokenizer_backend=huggingface,tokenizer={DEMO}", "--batch_size", "3"],
    ["tokenizer_backend=remote,num_concurrent=3"],
    ["tokenizer_backend=remote,tokenized_requests=False"],
], ids=["ids in batches", "ids side by side", "texts"])
def test_the_numbers_are_those_of_transformers(tasks, reference, url, tmp_path, how):
    served = f"model=demo,base_url={url}/completions,max_length=2048,{how[0]}"
    results, answers = evaluate(tasks, tmp_path, "local-completions", "--model_args", served,
                                *how[1:])
    expected, expected_answers = reference
    assert results["choose"]["acc,none"] == expected["choose"]["acc,none"] == 1
    assert results["write"]["exact_match,none"] == expected["write"]["exact_match,none"] == 1
    assert answers["write"] == expected_answers["write"]
    for ours, theirs in zip(answers["choose"], expected_answers["choose"], strict=True):
        for (likelihood, greedy), (true_likelihood, true_greedy) in zip(ours, theirs, strict=True):
            assert float(likelihood) == pytest.approx(float(true_likelihood), rel=0.02, abs=0.02)
            assert greedy == true_greedy
    for ours, theirs in zip(answers["read"], expected_answers["read"], strict=True):
        assert float(ours[0]) == pytest.approx(float(theirs[0]), rel=0.01)
