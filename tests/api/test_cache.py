"""Models as huggingface_hub leaves them on a disk, served by name and by path."""

import os
import subprocess

import pytest
from huggingface_hub import snapshot_download

from harness import DEMO, PATIENCE, ROOT
from hub import COMMIT, Hub

NAME = "someone/Demo-26M"


@pytest.fixture(scope="module", name="cache")
def download(tmp_path_factory):
    """The demo model in a cache that huggingface_hub itself has laid out."""
    cache = tmp_path_factory.mktemp("home") / "hub"
    hub = Hub({NAME: DEMO})
    try:
        snapshot_download(NAME, cache_dir=cache, endpoint=hub.url, token=False)
    finally:
        hub.close()
    snapshot = cache / "models--someone--Demo-26M/snapshots" / COMMIT
    assert (snapshot / "model.safetensors").is_symlink(), "the cache must be one of links"
    return cache


def ask(server):
    return server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8,
                                           "temperature": 0})


def test_served_by_name_and_by_folder(start, cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    folder = cache / "models--someone--Demo-26M"
    plain = ask(start(DEMO, "--max-model-len", 256)).json["choices"][0]["text"]
    for what in (NAME, folder, folder / "snapshots" / COMMIT):
        server = start(what, "--max-model-len", 256)
        assert [m["id"] for m in server.get("/v1/models").json["data"]] == [NAME]
        assert ask(server).json["choices"][0]["text"] == plain
        assert server.post("/v1/completions", {"model": NAME, "prompt": "a",
                                               "max_tokens": 1}).status == 200


def run(inferd, *arguments, **environment):
    return subprocess.run([str(ROOT / inferd), *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60 * PATIENCE,
                          env={**os.environ, **environment}, check=False)


def test_a_name_that_is_in_no_cache(inferd, cache, tmp_path):
    done = run(inferd, "serve", "someone/else", HF_HUB_CACHE=str(cache), HF_HOME=str(tmp_path))
    assert done.returncode == 66
    assert str(cache) in done.stdout and f"{tmp_path}/hub" in done.stdout
    assert "hf download someone/else" in done.stdout


def test_another_served_name_and_tokens(start, inferd, cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    server = start(NAME, "--served-model-name", "short", "--max-model-len", 256)
    assert [m["id"] for m in server.get("/v1/models").json["data"]] == ["short"]
    done = subprocess.run([str(ROOT / inferd), "tokenize", NAME], input="Once upon a time",
                          stdout=subprocess.PIPE, text=True, timeout=60 * PATIENCE, check=True)
    assert [int(word) for word in done.stdout.split()] == server.tokens("Once upon a time")
