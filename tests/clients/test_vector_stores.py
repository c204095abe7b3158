"""Vector stores that are fed through inferd: Qdrant and FAISS, each in this process."""

import json

import faiss
import numpy
import pytest
from openai import OpenAI
from qdrant_client import QdrantClient, models

from harness import ROOT, Server

CASE = ROOT / "tests/vectors/encoders/bert-mean"


@pytest.fixture(scope="module")
def embed(request):
    """Texts -> vectors, and the texts with the vectors that they should get."""
    expected = json.loads((CASE / "expected.json").read_text())
    server = Server(request.config.getoption("--inferd"), CASE, "--served-model-name", "embedder")
    client = OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                    max_retries=0)

    def ask(texts):
        data = client.embeddings.create(model="embedder", input=texts).data
        return numpy.array([d.embedding for d in data], "float32")

    yield ask, expected["texts"], numpy.array(expected["vectors"], "float32")
    client.close()
    assert server.stop() == 0, server.log()


def test_qdrant_finds_what_the_reference_finds(embed):
    ask, texts, right = embed
    store = QdrantClient(":memory:")
    store.create_collection("texts", vectors_config=models.VectorParams(
        size=right.shape[1], distance=models.Distance.COSINE))
    store.upsert("texts", [models.PointStruct(id=i, vector=v.tolist(), payload={"text": t})
                           for i, (t, v) in enumerate(zip(texts, ask(texts), strict=True))])
    for i, vector in enumerate(ask(texts)):
        found = store.query_points("texts", query=vector.tolist(), limit=3).points
        assert found[0].payload["text"] == texts[i] and found[0].score > 0.99999
        near = right @ right[i]
        assert [p.score for p in found] == pytest.approx(sorted(near, reverse=True)[:3], abs=1e-4)
    store.close()


def test_faiss_finds_what_the_reference_finds(embed):
    ask, texts, right = embed
    index = faiss.IndexFlatIP(right.shape[1])
    index.add(ask(texts))
    scores, places = index.search(ask(texts), 3)
    assert places[:, 0].tolist() == list(range(len(texts)))
    near = numpy.sort(right @ right.T, axis=1)[:, :-4:-1]
    assert numpy.allclose(scores, near, atol=1e-4)
