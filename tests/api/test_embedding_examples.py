"""The examples of docs/embeddings.md, as they are but for the ports."""

import contextlib
import io
import json
import re
import subprocess

import pytest

from harness import PATIENCE, ROOT

# Who listens on the ports of the page.
MODELS = {"8000": "bert-mean", "8001": "bert-rank", "8002": "bert-labels",
          "8003": "bert-tags"}


@pytest.fixture
def examples(start):
    """The fenced blocks of a language, with the addresses of servers of ours in them. These have
    the names of the models that the page serves."""
    text = (ROOT / "docs/embeddings.md").read_text()
    names = {}
    for name, port in re.findall(r"^inferd serve (\S+)(?:.*--port (\d+))?", text, re.MULTILINE):
        names.setdefault(port or "8000", name)
    servers = {port: start(ROOT / "tests/vectors/encoders" / name, "--served-model-name",
                           names.get(port, "labels"))
               for port, name in MODELS.items()}
    for port, server in servers.items():
        text = text.replace(f"127.0.0.1:{port}", f"{server.host}:{server.port}")
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return lambda language: [block for name, block in fenced if name == language]


def test_curl_examples(examples):
    commands = re.findall(r"^curl .*?(?=^curl|\Z)", "".join(examples("")), re.DOTALL | re.MULTILINE)
    answers = []
    for command in commands:
        done = subprocess.run(["bash", "-c", command], capture_output=True,
                              timeout=60 * PATIENCE, check=True)
        answers.append(json.loads(done.stdout))
    vectors, sorted_, scores, labels, pooled, found, tags = answers
    assert len({len(d["embedding"]) for d in vectors["data"]}) == 1 and len(vectors["data"]) == 2
    best = max(scores["data"], key=lambda d: d["score"])
    assert sorted_["results"] == [{
        "index": best["index"], "relevance_score": best["score"],
        "document": {"text": ["The fox is quick.", "A dog sleeps."][best["index"]]}}]
    entities = found["data"][0]["entities"]
    text = "Ada wrote to Charles in London."
    assert entities and all(e["word"] == text[e["start"]:e["end"]] for e in entities)
    assert len(tags["data"][0]["data"]) > 4 and {len(row) for row in tags["data"][0]["data"]} == {5}
    assert len(labels["data"]) == 2 and labels["data"][0]["probs"] == pooled["data"][0]["data"]


def test_python_examples(examples):
    output = io.StringIO()
    blocks = examples("python")
    assert len(blocks) == 1
    names = {}
    with contextlib.redirect_stdout(output):
        exec(compile(blocks[0], "embeddings.md", "exec"), names)  # pylint: disable=exec-used
    names["client"].close()
    size, cosine = output.getvalue().split()
    assert int(size) > 1 and -1 <= float(cosine) <= 1
