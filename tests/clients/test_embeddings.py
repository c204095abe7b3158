"""LangChain's OpenAIEmbeddings and a vector store that is fed through it."""

import json

import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import OpenAIEmbeddings

from harness import ROOT, Server

CASE = ROOT / "tests/vectors/embeddings/qwen3-last"
EXPECTED = json.loads((CASE / "expected.json").read_text())


@pytest.fixture(scope="module")
def model(request):
    """Texts are sent as they are: else the client sends ids of OpenAI's own tokenizer."""
    server = Server(request.config.getoption("--inferd"), CASE, "--load-format", "dummy",
                    "--seed", EXPECTED["seed"], "--served-model-name", "embedder")
    yield OpenAIEmbeddings(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                           model="embedder", check_embedding_ctx_length=False, max_retries=0)
    assert server.stop() == 0, server.log()


def test_documents_and_query(model):
    vectors = model.embed_documents(EXPECTED["texts"])
    for got, want in zip(vectors, EXPECTED["vectors"], strict=True):
        assert sum(x * y for x, y in zip(got, want, strict=True)) > 0.99999  # both of length 1
    assert model.embed_query(EXPECTED["texts"][3]) == vectors[3]


def test_a_vector_store_finds_what_it_was_given(model):
    store = InMemoryVectorStore.from_texts(EXPECTED["texts"], model)
    for text in EXPECTED["texts"]:
        found, score = store.similarity_search_with_score(text, k=1)[0]
        assert found.page_content == text and score > 0.99999
