"""What people have on disk, each form served by one command and asked by curl and the openai SDK.

The demo model in the forms in which models are published: a hub cache that huggingface_hub itself
laid out, GGUF with Q8_0 and with the mixture of Q4_K_M, fp8 in blocks, AWQ, GPTQ and w4a16. The
files are packed in this run (scripts/vectors/packing.py). How far rounding may move the answers is
bounded by the log probabilities of a text that the model itself wrote."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import openai
import pytest
from gguf.quants import dequantize
from huggingface_hub import snapshot_download

from harness import DEMO, ROOT
from hub import Hub

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/vectors"))
import gguf_demo  # noqa: E402  pylint: disable=wrong-import-position
import packed_checkpoint  # noqa: E402  pylint: disable=wrong-import-position
import packing  # noqa: E402  pylint: disable=wrong-import-position

NAME = "someone/Demo-26M"
TEXT = "Once upon a time, there was a little girl named"


def curl(server, path, body):
    made = subprocess.run(["curl", "-sS", f"http://{server.host}:{server.port}{path}", "-H",
                           "Content-Type: application/json", "-d", json.dumps(body)],
                          capture_output=True, text=True, check=True)
    return json.loads(made.stdout)


def asked(server):
    """The text that curl and the SDK get alike, for a completion and a chat."""
    body = {"prompt": TEXT, "max_tokens": 12, "temperature": 0}
    text = curl(server, "/v1/completions", body)["choices"][0]["text"]
    chat = {"messages": [{"role": "user", "content": "What is 2 plus 3?"}], "max_tokens": 12,
            "temperature": 0}
    said = curl(server, "/v1/chat/completions", chat)["choices"][0]["message"]["content"]
    with openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none") as client:
        model = client.models.list().data[0].id
        assert client.completions.create(model=model, **body).choices[0].text == text
        answer = client.chat.completions.create(model=model, **chat).choices[0].message.content
        assert answer == said
    return text, said


def told(server, text):
    """Log probabilities of the tokens of a text."""
    choice = server.choice(text, max_tokens=1, temperature=0, echo=True, logprobs=1)
    return np.array(choice["logprobs"]["token_logprobs"][1:-1])


@pytest.fixture(scope="module", name="wanted")
def ask_the_checkpoint(demo):
    text, said = asked(demo)
    return text, said, told(demo, TEXT + text)


def check(server, wanted, loss):
    """Of the checkpoint's own text no more than `loss` nats a token are lost."""
    text, said, logprobs = wanted
    found = asked(server)
    assert all(found), "an answer is empty"
    assert logprobs.mean() - told(server, TEXT + text).mean() <= loss
    if loss == 0:
        assert found == (text, said)


def test_a_cache_of_huggingface_hub(start, wanted, tmp_path, monkeypatch):
    hub = Hub({NAME: DEMO})
    try:
        snapshot = snapshot_download(NAME, cache_dir=tmp_path, endpoint=hub.url, token=False)
    finally:
        hub.close()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for model in (NAME, tmp_path / "models--someone--Demo-26M", snapshot):
        server = start(str(model), "--max-model-len", 512)
        check(server, wanted, 0)
        server.stop()


def test_blocks_are_those_of_the_package():
    rng = np.random.default_rng(3)
    values = rng.standard_normal((6, 1024), dtype=np.float32)
    values[2] *= 1e-3
    values[3] = 0
    for pack, kind, bound in ((packing.q4_k, gguf_demo.Type.Q4_K, 0.1),
                              (packing.q6_k, gguf_demo.Type.Q6_K, 0.025)):
        error = np.abs(dequantize(pack(values), kind) - values).mean(1)
        assert (error <= bound * np.abs(values).mean(1)).all(), (kind, error)


@pytest.mark.parametrize("form, loss", [("Q8_0", 0.02), ("Q4_K_M", 0.25)])
def test_gguf(start, wanted, tmp_path, form, loss):
    gguf_demo.write(DEMO, tmp_path / f"demo-{form}.gguf", form)
    check(start(str(tmp_path / f"demo-{form}.gguf"), "--max-model-len", 512), wanted, loss)


@pytest.mark.parametrize("form, loss", [("fp8", 0.1), ("awq", 0.25), ("gptq", 0.25),
                                        ("w4a16", 0.25)])
def test_safetensors(start, wanted, tmp_path, form, loss):
    packed_checkpoint.write(DEMO, tmp_path / form, form)
    server = start(str(tmp_path / form), "--max-model-len", 512)
    check(server, wanted, loss)
    shown = subprocess.run([ROOT / "build/inferd", "check", tmp_path / form], check=True,
                           capture_output=True, text=True)
    assert "mlp" in shown.stdout
