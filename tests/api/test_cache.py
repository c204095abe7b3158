"""Models as huggingface_hub leaves them on a disk, served by name and by path."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import snapshot_download

from harness import DEMO, PATIENCE, ROOT, wait_until
from hub import COMMIT, Hub

sys.path.insert(0, str(ROOT / "scripts/vectors"))
from gguf_demo import Type, write  # noqa: E402  pylint: disable=wrong-import-position

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


def test_all_that_the_cache_has(start, tmp_path, monkeypatch):
    """As huggingface_hub lays it out: models, one in two quantisations, none, a data set."""
    caches = tmp_path / "first", tmp_path / "second/hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(caches[0]))
    monkeypatch.setenv("HF_HOME", str(caches[1].parent))
    two, adapter, pipeline = (tmp_path / name for name in ("two", "adapter", "pipeline"))
    for folder in (two, adapter, pipeline):
        folder.mkdir()
    for kind in ("Q8_0", "F16"):
        write(Path(DEMO), two / f"demo-{kind}.gguf", getattr(Type, kind))
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/base"}')
    (pipeline / "model_index.json").write_text("{}")
    hub = Hub({NAME: DEMO, "a/two-GGUF": two, "b/adapter": adapter, "c/pipeline": pipeline,
               "d/later": DEMO})

    def get(name, cache=caches[0]):
        snapshot_download(name, cache_dir=cache, endpoint=hub.url, token=False)

    try:
        for name in (NAME, "a/two-GGUF", "b/adapter"):
            get(name)
        for name in (NAME, "c/pipeline"):
            get(name, caches[1])
        (caches[0] / "datasets--d--data/snapshots/1").mkdir(parents=True)
        server = start(None, "--models-from-cache", "--max-model-len", 256)
        names = ["a/two-GGUF:F16", "a/two-GGUF:Q8_0", NAME]
        assert [card["id"] for card in server.get("/v1/models").json["data"]] == names
        said = [line for line in server.log().splitlines() if "not served from the cache" in line]
        assert len(said) == 2, said
        assert "b/adapter: " in said[0] and "is a low-rank adapter" in said[0]
        assert "c/pipeline: " in said[1] and "no config.json" in said[1]
        body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
        for name in names:
            answer = server.post("/v1/completions", {**body, "model": name})
            assert answer.status == 200 and answer.json["model"] == name, answer
        get("d/later")
        wait_until(lambda: server.get("/v1/models/d/later").status == 200, "what is new")
        shutil.rmtree(caches[0] / "models--a--two-GGUF")
        wait_until(lambda: server.get(f"/v1/models/{names[0]}").status == 404, "what is gone")
        assert server.stop() == 0
        # A word means the same model, and has its own way to be loaded.
        server = start(NAME, "--models-from-cache", "--max-model-len", 256)
        assert [card["id"] for card in server.get("/v1/models").json["data"]] == [NAME, "d/later"]
        wait_until(lambda: server.get(f"/v1/models/{NAME}").json["state"] == "ready", "the word")
    finally:
        hub.close()
