"""Models as huggingface_hub leaves them on a disk, served by name and by path."""

import json
import os
import shutil
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
    assert "inferd pull someone/else" in done.stdout


def test_another_served_name_and_tokens(start, inferd, cache, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    server = start(NAME, "--served-model-name", "short", "--max-model-len", 256)
    assert [m["id"] for m in server.get("/v1/models").json["data"]] == ["short"]
    done = subprocess.run([str(ROOT / inferd), "tokenize", NAME], input="Once upon a time",
                          stdout=subprocess.PIPE, text=True, timeout=60 * PATIENCE, check=True)
    assert [int(word) for word in done.stdout.split()] == server.tokens("Once upon a time")


def test_a_model_without_tokenizer(start, inferd, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(DEMO / name)
    done = run(inferd, "serve", tmp_path)
    assert done.returncode == 66 and "--skip-tokenizer-init" in done.stdout
    server, whole = start(tmp_path, "--skip-tokenizer-init", "--max-model-len", 256), start(DEMO)
    ids = whole.tokens("Once upon a time")
    fields = {"prompt": ids, "max_tokens": 8, "temperature": 0, "logprobs": 1}
    answer = server.post("/v1/completions", fields).json["choices"][0]
    wanted = whole.post("/v1/completions", {**fields, "return_token_ids": True,
                                            "return_tokens_as_token_ids": True})
    wanted = wanted.json["choices"][0]
    assert answer["token_ids"] == wanted["token_ids"] and answer["text"] == ""
    assert answer["logprobs"]["tokens"] == wanted["logprobs"]["tokens"]
    for path, body in (
            ("/v1/completions", {"prompt": "Once"}),
            ("/v1/completions", {"prompt": ids, "stop": ["a"]}),
            ("/v1/completions", {"prompt": ids, "bad_words": ["a"]}),
            ("/v1/completions", {"prompt": ids, "echo": True}),
            ("/v1/completions", {"prompt": ids, "response_format": {"type": "json_object"}}),
            ("/tokenize", {"prompt": "Once"}), ("/detokenize", {"tokens": ids})):
        refused = server.post(path, body)
        assert refused.status == 400, (path, body, refused)
        assert "--skip-tokenizer-init" in refused.error["message"], refused
    assert server.post("/v1/chat/completions",
                       {"messages": [{"role": "user", "content": "a"}]}).status == 400


def test_check_plans_from_headers(inferd, tmp_path):
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copy(DEMO / name, tmp_path / name)
    done = run(inferd, "check", tmp_path)
    assert done.returncode == 0, done.stdout
    for part in ("LlamaForCausalLM", "billion parameters", "tensors   attention: BF16", "weights",
                 "context   ", "device    ", "ok"):
        assert part in done.stdout, done.stdout
    weights = tmp_path / "model.safetensors"
    blob = bytearray(weights.read_bytes())
    blob[-2:] = b"\xff\xff"  # a NaN: only a load can see it
    weights.write_bytes(blob)
    assert run(inferd, "check", tmp_path).returncode == 0
    done = run(inferd, "check", tmp_path, "--load")
    assert done.returncode == 65 and "NaN" in done.stdout, done.stdout
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_size": 512}))
    done = run(inferd, "check", tmp_path)
    assert done.returncode == 65 and "shape" in done.stdout, done.stdout
