"""Encoders: the vectors of sentence-transformers on real, tiny, random weights.

tests/vectors/encoders has the models, and what sentence-transformers made of texts
(scripts/vectors/encoders.py)."""

import json
import shutil
import subprocess

import pytest

from harness import ROOT
from test_embeddings import bits, cosine, embed, refused

DIRECTORIES = sorted(p.parent for p in (ROOT / "tests/vectors/encoders").glob("*/expected.json"))
EXPECTED = {d.name: json.loads((d / "expected.json").read_text()) for d in DIRECTORIES}
EMBEDDERS = [d for d in DIRECTORIES if "vectors" in EXPECTED[d.name]]


@pytest.mark.parametrize("case", EMBEDDERS, ids=lambda case: case.name)
def test_vectors_are_those_of_sentence_transformers(start, case):
    expected, server = EXPECTED[case.name], start(case)
    allowed = 1e-5 if expected["dtype"] == "float32" else 2 * expected["error"]
    answer = server.post("/v1/embeddings", {"input": expected["texts"]})
    assert answer.json["usage"]["prompt_tokens"] == sum(expected["sizes"])
    got = [d["embedding"] for d in answer.json["data"]]
    for text, vector, right in zip(expected["texts"], got, expected["vectors"], strict=True):
        assert 1 - cosine(vector, right) <= allowed, text
        assert len(vector) == len(right)
        assert sum(x * x for x in vector) == pytest.approx(sum(x * x for x in right), rel=1e-2)


@pytest.mark.parametrize("name", ["bert-mean", "modernbert-mean"])
def test_bits_do_not_depend_on_the_batch(start, name):
    texts = EXPECTED[name]["texts"]
    directory = ROOT / "tests/vectors/encoders" / name
    server = start(directory, "--max-num-seqs", "5")
    together = [bits(v) for v in embed(server, texts * 3)]
    alone = [bits(embed(server, [text])[0]) for text in texts]
    assert together == alone * 3
    other = start(directory, "--threads", "1", "--block-size", "4")
    assert [bits(v) for v in embed(other, texts[::-1])] == alone[::-1]


def test_a_text_beyond_the_context_is_refused_and_generation_too(start):
    server = start(ROOT / "tests/vectors/encoders/bert-mean")
    refused(server, {"input": ["a", "word " * 300]}, param="input", code="context_length_exceeded",
            says="input[1]")
    answer = server.post("/v1/completions", {"prompt": "x"})
    assert answer.status == 400
    assert answer.error["code"] == "unsupported_endpoint"
    cut = embed(server, ["word " * 300], truncate_prompt_tokens=-1)
    assert bits(cut[0]) == bits(embed(server, ["word " * 198])[0])  # and [CLS], [SEP]


def check(inferd, directory, *flags):
    done = subprocess.run([inferd, "check", directory, *flags], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "flags", "says"), [
    ("bert-mean", [], "embeds    pooling mean"),
    ("bert-rank", [], "reranks   pooling cls, 1 label, sigmoid"),
    ("bert-rank", ["--task", "classify"], "classifies pooling cls, 1 label, sigmoid"),
    ("bert-labels", ["--runner", "pooling"], "classifies pooling cls, 3 labels, softmax"),
    ("llama-labels", [], "classifies pooling last, 3 labels, sigmoid"),
    ("qwen3-judge", ["--task", "rerank"], "of yes or no to a question"),
    ("qwen3-judge-untied-bf16", [], "of yes or no to a question"),
    ("gguf-bert-mean", [], "embeds    pooling mean"),
    ("gguf-xlmr-rank", [], "reranks   pooling cls, 1 label, sigmoid"),
    ("gguf-qwen3-judge", [], "of yes or no to a question"),
])
def test_check_says_the_task(inferd, name, flags, says):
    status, text = check(inferd, ROOT / "tests/vectors/encoders" / name, *flags)
    assert status == 0, text
    assert says in text


@pytest.mark.parametrize(("name", "flags", "says"), [
    ("bert-labels", ["--task", "rerank"], "needs a model of one label; this one has 3"),
    ("bert-labels", ["--task", "generate"], "task is generate, but the model classifies"),
    ("bert-rank", ["--runner", "generate"], "task is generate, but the model classifies"),
    ("bert-rank", ["--task", "embed"], "task is embed, but the model classifies"),
    ("bert-rank", ["--pooling", "mean"], "pooling is set, but the task is rerank"),
    ("bert-mean", ["--task", "classify"], "has no classifier"),
    ("bert-mean", ["--task", "rerank"], "is no Qwen3 that answers yes or no"),
    ("qwen3-rank", ["--skip-tokenizer-init"], "which needs texts"),
    ("gguf-bert-labels", [], "\"cls.weight\" is missing: converters leave the pooler"),
])
def test_a_task_that_the_model_cannot_do_is_refused_by_name(inferd, name, flags, says):
    status, text = check(inferd, ROOT / "tests/vectors/encoders" / name, *flags)
    assert status != 0
    assert says in text


@pytest.mark.parametrize(("keys", "says"), [
    ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, "identity"),
    ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}, "tanh"),
    ({"problem_type": "regression"}, "identity"),
    ({"sentence_transformers": {"activation_fn": "os.system"}}, "Sigmoid, Softmax, Tanh"),
    ({"id2label": {"0": "a", "1": "b"}}, "the number of labels (id2label)"),
])
def test_config_says_how_scores_become_probabilities(inferd, tmp_path, keys, says):
    directory = tmp_path / "model"
    shutil.copytree(ROOT / "tests/vectors/encoders/bert-rank", directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **keys}))
    assert says in check(inferd, directory)[1]
