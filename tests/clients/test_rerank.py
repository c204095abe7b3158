"""Rerankers through the clients that people use for them: Cohere's, LangChain's and LiteLLM's.

The scores must be those that sentence-transformers gave the pairs of tests/vectors/encoders."""

import asyncio
import json

import cohere
import litellm
import pytest
from langchain_cohere import CohereRerank
from langchain_core.documents import Document

from harness import ROOT, Server

# A cross-encoder, and a decoder that answers yes or no.
CASES = [("bert-rank", []), ("qwen3-judge", ["--task", "rerank"])]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case[0])
def served(request):
    name, flags = request.param
    directory = ROOT / "tests/vectors/encoders" / name
    server = Server(request.config.getoption("--inferd"), directory, *flags,
                    "--served-model-name", "reranker")
    yield f"http://{server.host}:{server.port}", json.loads(
        (directory / "expected.json").read_text())
    assert server.stop() == 0, server.log()


def question(facts):
    """A query with most documents, and the scores of its pairs."""
    queries = [query for query, _ in facts["pairs"]]
    query = max(queries, key=queries.count)
    asked = [i for i, text in enumerate(queries) if text == query]
    return query, [facts["pairs"][i][1] for i in asked], [facts["scores"][i] for i in asked]


def check(found, scores, top=None):
    """`found`: (index, score) of the answer, best first."""
    best = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:top]
    assert len(found) == len(best)
    assert [score for _, score in found] == sorted((s for _, s in found), reverse=True)
    for index, score in found:
        assert abs(score - scores[index]) < 1e-3
    for (index, _), right in zip(found, best, strict=True):
        assert index == right or abs(scores[index] - scores[right]) < 1e-3


def test_cohere(served):
    url, facts = served
    query, documents, scores = question(facts)
    client = cohere.ClientV2("none", base_url=url)
    answer = client.rerank(model="reranker", query=query, documents=documents)
    check([(r.index, r.relevance_score) for r in answer.results], scores)
    assert answer.id and answer.meta.api_version.version == "2"
    first = client.rerank(model="reranker", query=query, documents=documents, top_n=1,
                          max_tokens_per_doc=4096)
    check([(r.index, r.relevance_score) for r in first.results], scores, top=1)

    async def ask():
        async with cohere.AsyncClientV2("none", base_url=url) as other:
            return await other.rerank(model="reranker", query=query, documents=documents)

    assert asyncio.run(ask()).results == answer.results
    with pytest.raises(cohere.BadRequestError, match="at most 1024"):
        client.rerank(model="reranker", query=query, documents=["a"] * 1025)
    with pytest.raises(cohere.NotFoundError, match="does not exist"):
        client.rerank(model="another", query=query, documents=documents)


def test_langchain(served):
    url, facts = served
    query, documents, scores = question(facts)
    tool = CohereRerank(base_url=url, cohere_api_key="none", model="reranker", top_n=2)
    found = tool.rerank(documents, query)
    check([(r["index"], r["relevance_score"]) for r in found], scores, top=2)
    kept = tool.compress_documents([Document(text) for text in documents], query)
    assert [d.page_content for d in kept] == [documents[r["index"]] for r in found]
    assert [d.metadata["relevance_score"] for d in kept] == [r["relevance_score"] for r in found]


@pytest.mark.parametrize("provider", ["cohere", "hosted_vllm"])
def test_litellm(served, provider):
    url, facts = served
    query, documents, scores = question(facts)
    litellm.telemetry = False
    answer = litellm.rerank(model=f"{provider}/reranker", query=query, documents=documents,
                            api_base=url, api_key="none", top_n=len(documents))
    check([(r["index"], r["relevance_score"]) for r in answer.results], scores)
