"""/rerank, /score, /classify, /pooling: the scores of sentence-transformers and transformers.

tests/vectors/encoders has tiny models and what the references made of texts and of pairs of texts
(scripts/vectors/encoders.py)."""

import json
import math

import pytest

from harness import ROOT
from test_embeddings import bits, cosine, embed

DIRECTORY = ROOT / "tests/vectors/encoders"
EXPECTED = {p.parent.name: json.loads(p.read_text())
            for p in sorted(DIRECTORY.glob("*/expected.json"))}
PAIRED = [n for n, facts in EXPECTED.items() if "pairs" in facts]
LABELLED = [n for n, facts in EXPECTED.items() if "probs" in facts]
RERANKS = ["/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/v1/reranking"]


def serve(start, name, *flags):
    judges = ["--task", "rerank"] if name == "qwen3-judge" else []  # the GGUF file says it
    return start(DIRECTORY / name, *judges, *flags)


def ok(server, path, body):
    answer = server.post(path, body)
    assert answer.status == 200, answer
    return answer.json


def scores(server, pairs, **fields):
    queries, documents = zip(*pairs, strict=True)
    body = ok(server, "/score", {"queries": queries, "documents": documents, **fields})
    assert [d["index"] for d in body["data"]] == list(range(len(pairs)))
    return [d["score"] for d in body["data"]]


def refused(server, path, body, *, param, code, says):
    answer = server.post(path, body)
    assert answer.status == 400, answer
    assert (answer.error["param"], answer.error["code"]) == (param, code), answer
    assert says in answer.error["message"], answer


def near(got, right, allowed):
    worst = max(abs(a - b) for a, b in zip(got, right, strict=True))
    assert worst <= allowed, (worst, got, right)


@pytest.mark.parametrize("name", PAIRED)
def test_scores_are_those_of_the_reference(start, name):
    facts, server = EXPECTED[name], serve(start, name)
    single = facts["dtype"] == "float32"
    near(scores(server, facts["pairs"]), facts["scores"], 1e-5 if single else 2 * facts["error"])
    raw = scores(server, facts["pairs"], raw_scores=True)
    near(raw, facts["raw"], 5e-5 if single else 20 * facts["error"])
    assert raw == scores(server, facts["pairs"], use_activation=False)
    body = ok(server, "/score", {"text_1": [p[0] for p in facts["pairs"]],
                                 "text_2": [p[1] for p in facts["pairs"]]})
    assert body["usage"]["prompt_tokens"] == sum(facts["sizes"])
    assert {d["object"] for d in body["data"]} == {"score"}


@pytest.mark.parametrize("name", LABELLED)
def test_probabilities_are_those_of_the_reference(start, name):
    facts, server = EXPECTED[name], serve(start, name)
    allowed = 1e-5 if facts["dtype"] == "float32" else 2 * facts["error"]
    config = json.loads((DIRECTORY / name.removeprefix("gguf-") / "config.json").read_text())
    body = ok(server, "/classify", {"input": facts["texts"]})
    assert body["usage"]["prompt_tokens"] == sum(facts["sizes"])
    for data, right in zip(body["data"], facts["probs"], strict=True):
        near(data["probs"], right, allowed)
        best = data["probs"].index(max(data["probs"]))
        assert data["label"] == config["id2label"][str(best)]
        assert data["num_classes"] == len(right)
    raw = ok(server, "/classify", {"input": facts["texts"], "raw_scores": True})["data"]
    for data, right in zip(raw, facts["raw"], strict=True):
        near(data["probs"], right, 5e-5 if facts["dtype"] == "float32" else 20 * facts["error"])
    pooled = ok(server, "/pooling", {"input": facts["texts"], "task": "classify"})["data"]
    assert [d["data"] for d in pooled] == [d["probs"] for d in body["data"]]
    alone = ok(server, "/classify", {"input": facts["texts"][-1]})["data"][0]
    assert bits(alone["probs"]) == bits(body["data"][-1]["probs"])


@pytest.mark.parametrize("name", ["bert-rank", "qwen3-rank", "qwen3-judge"])
def test_documents_come_in_the_order_of_their_scores(start, name):
    server = serve(start, name, "--max-num-seqs", "3")
    texts = [p[1] for p in EXPECTED[name]["pairs"]]
    texts += texts[:2]  # equal scores come in the order of the documents
    each = [scores(server, [("the fox", text)])[0] for text in texts]
    right = sorted(range(len(texts)), key=lambda i: (-each[i], i))
    for path in RERANKS:
        body = ok(server, path, {"query": "the fox", "documents": texts})
        results = body["results"]
        assert [r["index"] for r in results] == right
        assert [r["relevance_score"] for r in results] == [each[i] for i in right]
        assert body["id"].startswith("rerank-")
        assert body["model"]
        shown = [r["document"]["text"] for r in results] if path != "/v2/rerank" else None
        assert shown in (None, [texts[i] for i in right])
        assert ("meta" in body) == (path == "/v2/rerank")
    few = ok(server, "/rerank", {"query": "the fox", "top_n": 2, "return_documents": False,
                                 "documents": [{"text": t} for t in texts]})
    assert few["results"] == [{"index": i, "relevance_score": each[i]} for i in right[:2]]
    bare = ok(server, "/rerank", {"query": "the fox", "texts": texts, "return_text": True})
    assert bare == [{"index": i, "score": each[i], "text": texts[i]} for i in right]
    assert "text" not in ok(server, "/rerank", {"query": "the fox", "texts": texts})[0]


def test_a_pair_that_is_too_long_is_refused_or_cut(start):
    server = serve(start, "bert-rank")
    long = "word " * 300
    refused(server, "/rerank", {"query": "a", "documents": ["b", long]}, param="documents",
            code="context_length_exceeded", says="'documents[1]' has at least")
    refused(server, "/score", {"text_1": "a", "text_2": long}, param="text_2",
            code="context_length_exceeded", says="'text_2' has at least")
    fields = {"query": "a", "documents": [long]}
    cut = ok(server, "/rerank", {**fields, "truncate_prompt_tokens": -1})
    assert cut["usage"]["prompt_tokens"] == 200
    same = ok(server, "/rerank", {"query": "a", "documents": ["word " * 196]})
    assert cut["results"][0]["relevance_score"] == same["results"][0]["relevance_score"]
    assert ok(server, "/rerank", {"query": "a", "texts": [long], "truncate": True})[0]["score"] == \
        cut["results"][0]["relevance_score"]
    short = ok(server, "/rerank", {**fields, "max_tokens_per_doc": 7})
    assert short["usage"]["prompt_tokens"] == 3 + 1 + 7
    both = ok(server, "/score", {"text_1": long, "text_2": long, "truncate_prompt_tokens": 14,
                                 "truncation_side": "left"})
    assert both["usage"]["prompt_tokens"] == 14
    refused(server, "/rerank", {**fields, "truncate_prompt_tokens": 3},
            param="truncate_prompt_tokens", code="invalid_value", says="cannot be cut")


PAIR = {"query": "the fox", "documents": ["a dog", "a fox", "the the"]}
POOLED = {"/rerank": PAIR, "/v2/rerank": PAIR, "/v1/embeddings": {"input": "a"},
          "/score": {"queries": "the fox", "documents": PAIR["documents"]},
          "/classify": {"input": "a"}, "/pooling": {"input": "a"}}


def values_of(body):
    """The numbers of an answer of any pooling route, in the order of the inputs."""
    rows = body["results"] if "results" in body else body["data"]
    names = ("relevance_score", "score", "probs", "data", "embedding")
    return [next(row[name] for name in names if name in row)
            for row in sorted(rows, key=lambda row: row["index"])]


@pytest.mark.parametrize(("name", "routes"), [
    ("bert-rank", ["/rerank", "/v2/rerank", "/score"]),
    ("bert-labels", ["/classify", "/pooling"]),
    ("bert-mean", ["/rerank", "/v2/rerank", "/score", "/v1/embeddings", "/pooling"])])
def test_a_field_means_the_same_on_all_routes(start, name, routes):
    """An activation is left out, or that is refused; the order of bytes is that of the machine;
    bounds of 0 cut nothing."""
    server, seen = serve(start, name), {}
    for path in routes:
        body, pairs = POOLED[path], "documents" in POOLED[path]
        for field in ({"use_activation": False}, {"raw_scores": True}):
            answer = server.post(path, {**body, **field})
            if name == "bert-mean":
                assert (answer.status, answer.error["param"]) == (400, *field), answer
            else:
                seen.setdefault((pairs, "raw"), []).append(values_of(answer.json))
        for raw in (True, False) if name != "bert-mean" else ():
            both = {"raw_scores": raw, "use_activation": raw}
            for fields in (both, dict(reversed(both.items()))):
                refused(server, path, {**body, **fields}, param=list(fields)[1],
                        code="invalid_value", says="contradict")
            ok(server, path, {**body, **both, "use_activation": not raw})
        for order in ("native", "little"):
            ok(server, path, {**body, "endianness": order})
        refused(server, path, {**body, "endianness": "big"}, param="endianness",
                code="invalid_value", says="'native' or 'little'")
        same = [{}, {"use_activation": True}, {"raw_scores": False}]
        if pairs:
            same += [{"max_tokens_per_doc": 0}, {"max_tokens_per_query": 0}]
        seen.setdefault((pairs, "plain"), []).extend(
            values_of(ok(server, path, {**body, **fields})) for fields in same)
    for values in seen.values():
        assert all(value == values[0] for value in values), seen
    kinds = {pairs for pairs, _ in seen}
    assert all(seen[pairs, "raw"][0] != seen[pairs, "plain"][0] for pairs in kinds
               if (pairs, "raw") in seen)


def test_what_the_pairs_may_be(start):
    server = serve(start, "bert-rank")
    for body, param, says in (
            ({"documents": ["a"]}, "query", "must be provided"),
            ({"query": "a"}, "documents", "must be provided"),
            ({"query": "a", "documents": []}, "documents", "must be provided"),
            ({"query": "a", "documents": ["b", ""]}, "documents", "'documents[1]' is empty"),
            ({"query": "a", "documents": ["b"], "texts": ["c"]}, "texts", "cannot both be given"),
            ({"query": "a", "documents": ["b"] * 1025}, "documents", "at most 1024"),
            ({"query": "a", "documents": ["b"], "instruction": "c"}, "instruction", "takes none")):
        answer = server.post("/rerank", body)
        assert (answer.status, answer.error["param"]) == (400, param), answer
        assert says in answer.error["message"]
    refused(server, "/score", {"queries": ["a", "b"], "items": ["c", "d", "e"]}, param="queries",
            code="invalid_value", says="2 texts and 'items' 3")
    one = ok(server, "/score", {"data_1": "a", "data_2": ["b", "c"]})["data"]
    assert [d["score"] for d in one] == scores(server, [("a", "b"), ("a", "c")])


def test_a_vector_model_compares_by_cosines(start):
    server = serve(start, "bert-mean")
    texts = EXPECTED["bert-mean"]["texts"]
    vectors = embed(server, texts)
    each = [cosine(vectors[0], v) for v in vectors]
    body = ok(server, "/rerank", {"query": texts[0], "documents": texts})
    got = {r["index"]: r["relevance_score"] for r in body["results"]}
    near([got[i] for i in range(len(texts))], each, 1e-6)
    assert [r["index"] for r in body["results"]][0] == 0
    near(scores(server, list(zip(texts, texts[::-1], strict=True))),
         [cosine(a, b) for a, b in zip(vectors, vectors[::-1], strict=True)], 1e-6)
    assert [d["data"] for d in ok(server, "/pooling", {"input": texts})["data"]] == vectors
    refused(server, "/rerank", {"query": "a", "documents": ["b"], "raw_scores": True},
            param="raw_scores", code="unsupported_parameter", says="cosines")


@pytest.mark.parametrize(("name", "served", "others", "says"), [
    ("bert-rank", "/rerank", ["/classify", "/pooling", "/v1/embeddings", "/v1/completions"],
     "task rerank"),
    ("bert-labels", "/classify", ["/rerank", "/score", "/v1/embeddings", "/v1/completions"],
     "task classify"),
    ("bert-mean", "/v1/embeddings", ["/classify", "/v1/completions"], "makes embeddings"),
])
def test_each_task_refuses_the_routes_of_others(start, name, served, others, says):
    server = serve(start, name)
    for path in others:
        refused(server, path, {"input": "a", "query": "a", "documents": ["b"], "prompt": "a"},
                param=None, code="unsupported_endpoint", says=says)
    assert server.post(served, {"input": "a", "query": "a", "documents": ["b"]}).status == 200


def test_a_judge_shares_the_question_and_is_not_talked_round(start):
    server = serve(start, "qwen3-judge", "--block-size", "16")
    facts = EXPECTED["qwen3-judge"]
    assert len(facts["pairs"]) == 20
    near(scores(server, facts["pairs"]), facts["scores"], 1e-3)
    assert facts["pairs"][-1][1].endswith("yes")  # behind the end of the question
    before = server.metric("inferd_prefix_cache_hits_total")
    documents = [f"{i} {'x' * (i % 7)}" for i in range(100)]
    body = ok(server, "/rerank", {"query": "a new question", "documents": documents})
    hits = server.metric("inferd_prefix_cache_hits_total") - before
    each = body["usage"]["prompt_tokens"] / 100
    assert hits > 99 * (each - 64)  # but for the end of the question and a part of a block
    alone = ok(server, "/rerank", {"query": "a new question", "documents": [documents[7]]})
    found = next(r for r in body["results"] if r["index"] == 7)
    assert alone["results"][0]["relevance_score"] == found["relevance_score"]
    other = ok(server, "/rerank", {"query": "a new question", "documents": [documents[7]],
                                   "instruction": "Retrieve nothing"})
    assert other["results"][0]["relevance_score"] != found["relevance_score"]
    long = "word " * 600
    refused(server, "/rerank", {"query": "a", "documents": [long]}, param="documents",
            code="context_length_exceeded", says="'documents[0]' has at least")
    cut = ok(server, "/rerank", {"query": "a", "documents": [long], "truncate_prompt_tokens": -1})
    assert cut["usage"]["prompt_tokens"] == 600
    assert not math.isnan(cut["results"][0]["relevance_score"])
    refused(server, "/rerank", {"query": "a", "documents": ["b"], "truncate_prompt_tokens": 20},
            param="truncate_prompt_tokens", code="invalid_value", says="cannot be cut")
