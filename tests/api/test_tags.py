"""Classifiers of tokens: /pooling and /classify beside transformers' own pipeline.

tests/vectors/encoders has tiny models, the probabilities of each token, and what the pipeline finds
by each aggregation_strategy (scripts/vectors/encoders.py)."""

import json
import shutil
import struct
from base64 import b64decode

import pytest

from harness import ROOT

DIRECTORY = ROOT / "tests/vectors/encoders"
EXPECTED = {p.parent.name: json.loads(p.read_text())
            for p in sorted(DIRECTORY.glob("*/expected.json"))}
TAGGED = [n for n, facts in EXPECTED.items() if "tags" in facts]
FOUND = [n for n in TAGGED if EXPECTED[n]["entities"] and EXPECTED[n]["dtype"] == "float32"]


def ok(server, path, body):
    answer = server.post(path, body)
    assert answer.status == 200, answer
    return answer.json


def allowed(facts):
    return 1e-5 if facts["dtype"] == "float32" else 2 * facts["error"]


def near(got, right, most):
    assert len(got) == len(right)
    worst = max(abs(a - b) for a, b in zip(got, right, strict=True))
    assert worst <= most, (worst, got, right)


@pytest.mark.parametrize("name", TAGGED)
def test_each_token_has_the_scores_of_the_reference(start, name):
    facts, server = EXPECTED[name], start(DIRECTORY / name)
    body = ok(server, "/pooling", {"input": facts["texts"], "task": "token_classify"})
    assert body["usage"]["prompt_tokens"] == sum(facts["sizes"])
    for data, right in zip(body["data"], facts["tags"], strict=True):
        assert len(data["data"]) == len(right)
        for got, row in zip(data["data"], right, strict=True):
            near(got, row, allowed(facts))
    coded = ok(server, "/pooling", {"input": facts["texts"], "encoding_format": "base64"})
    for data, same in zip(body["data"], coded["data"], strict=True):
        whole = b64decode(same["data"])
        flat = [x for row in data["data"] for x in row]
        values = struct.unpack(f"<{len(whole) // 4}f", whole)
        near(list(values), flat, 1e-7)


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
def test_entities_are_those_of_the_pipeline(start, name, strategy):
    facts, server = EXPECTED[name], start(DIRECTORY / name)
    body = ok(server, "/classify", {"input": facts["texts"], "aggregation": strategy})
    kind = "entity" if strategy == "none" else "entity_group"
    assert body == ok(server, "/classify", {"input": facts["texts"],
                                            "aggregation_strategy": strategy}) | {
        key: body[key] for key in ("id", "created")}
    for text, data, right in zip(facts["texts"], body["data"], facts["entities"][strategy],
                                 strict=True):
        got = data["entities"]
        assert [(e[kind], e["start"], e["end"]) for e in got] == \
            [(e[kind], e["start"], e["end"]) for e in right], text
        near([e["score"] for e in got], [e["score"] for e in right], 1e-5) if right else None
        assert [e["word"] for e in got] == [text[e["start"]:e["end"]] for e in right]
        if strategy == "none":
            assert [e["index"] for e in got] == [e["index"] for e in right]


def test_simple_is_the_default(start):
    facts, server = EXPECTED["bert-tags"], start(DIRECTORY / "bert-tags")
    body = {"input": facts["texts"][:3]}
    assert ok(server, "/classify", body)["data"] == \
        ok(server, "/classify", {**body, "aggregation": "simple"})["data"]


@pytest.mark.parametrize("name", ["bert-tags", "qwen3-tags"])
def test_bits_do_not_depend_on_the_batch(start, name):
    facts = EXPECTED[name]
    alone = start(DIRECTORY / name, "--max-num-seqs", "1")
    right = [ok(alone, "/pooling", {"input": t})["data"][0]["data"] for t in facts["texts"]]
    flags = ["--max-num-batched-tokens", "16"] if name == "qwen3-tags" else []
    beside = start(DIRECTORY / name, "--max-num-seqs", "8", *flags)
    for _ in range(2):
        data = ok(beside, "/pooling", {"input": facts["texts"]})["data"]
        assert [d["data"] for d in data] == right


def test_a_long_answer_in_base64_is_printed_in_parts(start, tmp_path):
    """The bound of a turn of the loop is that of other answers: 256 KiB."""
    model = shutil.copytree(DIRECTORY / "qwen3-tags", tmp_path / "long")
    for file, key in (("config", "max_position_embeddings"),
                      ("tokenizer_config", "model_max_length")):
        path = model / f"{file}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), key: 16000}))
    server, ids = start(model), [5 + i % 90 for i in range(15000)]
    body = ok(server, "/pooling", {"input": ids, "encoding_format": "base64"})
    assert len(b64decode(body["data"][0]["data"], validate=True)) == 4 * 5 * len(ids) > 256 * 1024
    assert server.metric("inferd_reply_turn_bytes_max", scope="one") <= 256 * 1024


def test_ids_have_scores_and_no_places(start):
    server = start(DIRECTORY / "bert-tags")
    found = ok(server, "/classify", {"input": [5, 6, 7, 8, 9], "aggregation": "none"})
    for e in found["data"][0]["entities"]:
        assert e["word"] is e["start"] is e["end"] is None and 0 < e["score"] <= 1


def test_places_of_a_text_that_is_cut(start):
    server = start(DIRECTORY / "bert-tags")
    text = EXPECTED["bert-tags"]["texts"][2]
    for side in ("left", "right"):
        data = ok(server, "/classify", {"input": text, "aggregation": "none",
                                        "truncate_prompt_tokens": 6,
                                        "truncation_side": side})["data"][0]
        for e in data["entities"]:
            assert text[e["start"]:e["end"]] == e["word"] != ""
            assert e["index"] < 6


@pytest.mark.parametrize("path, fields, param, says", [
    ("/pooling", {"task": "embed"}, "task", "classifies each token"),
    ("/pooling", {"task": "token_embed"}, "task", "'token_classify'"),
    ("/pooling", {"dimensions": 3}, "dimensions", "classifies"),
    ("/classify", {"raw_scores": True}, "raw_scores", "/pooling"),
    ("/classify", {"aggregation": "last"}, "aggregation", "'average'"),
    ("/classify", {"aggregation": 1}, "aggregation", "string"),
])
def test_what_has_no_meaning_is_refused_by_name(start, path, fields, param, says):
    answer = start(DIRECTORY / "bert-tags").post(path, {"input": "x", **fields})
    assert answer.status == 400, answer
    assert answer.error["param"] == param and says in answer.error["message"], answer


def test_other_models_have_no_entities(start):
    answer = start(DIRECTORY / "bert-labels").post(
        "/classify", {"input": "x", "aggregation": "simple"})
    assert answer.status == 400 and answer.error["param"] == "aggregation", answer
    answer = start(DIRECTORY / "bert-tags").post("/v1/embeddings", {"input": "x"})
    assert answer.status == 404 or "token_classify" in answer.error["message"], answer
