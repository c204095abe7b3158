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


def test_a_classifier_is_refused_by_name(inferd, tmp_path):
    directory = tmp_path / "classifier"
    shutil.copytree(ROOT / "tests/vectors/encoders/bert-mean", directory)
    config = json.loads((directory / "config.json").read_text())
    config["architectures"] = ["BertForSequenceClassification"]
    (directory / "config.json").write_text(json.dumps(config))
    done = subprocess.run([inferd, "check", directory], capture_output=True, text=True)
    assert done.returncode != 0
    assert "classifies (2 labels), which is not supported yet" in done.stdout + done.stderr
