"""LangChain's OpenAIEmbeddings and a vector store that is fed through it."""

import json

import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import OpenAIEmbeddings

from harness import ROOT, Server

# A decoder with weights from a seed, and an encoder.
CASES = [ROOT / "tests/vectors/embeddings/qwen3-last", ROOT / "tests/vectors/encoders/bert-mean"]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def served(request):
    """The client and what it should get. Texts are sent as they are: else the client sends ids of
    OpenAI's own tokenizer."""
    expected = json.loads((request.param / "expected.json").read_text())
    flags = ["--load-format", "dummy", "--seed", expected["seed"]] if "seed" in expected else []
    server = Server(request.config.getoption("--inferd"), request.param, *flags,
                    "--served-model-name", "embedder")
    yield OpenAIEmbeddings(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                           model="embedder", check_embedding_ctx_length=False,
                           max_retries=0), expected
    assert server.stop() == 0, server.log()


def test_documents_and_query(served):
    model, expected = served
    vectors = model.embed_documents(expected["texts"])
    for got, want in zip(vectors, expected["vectors"], strict=True):
        assert sum(x * y for x, y in zip(got, want, strict=True)) > 0.99999  # both of length 1
    assert model.embed_query(expected["texts"][3]) == vectors[3]


def test_a_vector_store_finds_what_it_was_given(served):
    model, expected = served
    store = InMemoryVectorStore.from_texts(expected["texts"], model)
    for text in expected["texts"]:
        found, score = store.similarity_search_with_score(text, k=1)[0]
        assert found.page_content == text and score > 0.99999
