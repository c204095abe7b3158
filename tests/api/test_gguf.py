"""A GGUF file served over HTTP: the demo model, converted with llama.cpp's package in this run.

In bfloat16 the file has the numbers of the checkpoint, so the answers must be the checkpoint's, and
so must the ids of any text. With blocks only the tokenizer's half of that holds."""

import json
import sys
from pathlib import Path

import pytest
from harness import DEMO, wait_until

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts/vectors"))
from gguf_demo import Type, write  # noqa: E402  pylint: disable=wrong-import-position

PROMPTS = ["Once upon a time", "The cat", "One day, a boy named Tom went to the park. He saw a"]
TEXTS = ["Hello, world! 12345 don't  stop\n\n\tnow", "Zażółć gęślą jaźń, 你好 мир 😀 e\u0301",
         "<|im_start|>user\nhi<|im_end|>\n", "  leading and trailing  ", "a" * 300]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    write(Path(DEMO), folder / "demo.gguf")
    write(Path(DEMO), folder / "blocks.gguf", Type.Q8_0)
    (folder / "split").mkdir()
    write(Path(DEMO), folder / "split/demo.gguf", split=20)
    return folder


def answers(server):
    fields = {"temperature": 0, "max_tokens": 24, "logprobs": 1}
    return [server.choice(prompt, **fields) for prompt in PROMPTS]


def test_a_file_answers_as_its_checkpoint(start, demo, files):
    server = start(str(files / "demo.gguf"), "--max-model-len", 512)
    for found, wanted in zip(answers(server), answers(demo)):
        assert found["text"] == wanted["text"]
        assert found["logprobs"] == wanted["logprobs"]
    assert "demo.gguf, 1 file: architecture llama" in server.log()


def test_texts_have_the_ids_of_the_checkpoint(start, demo, files):
    server = start(str(files / "demo.gguf"), "--max-model-len", 512)
    for text in TEXTS:
        assert server.tokens(text) == demo.tokens(text)


def test_the_chat_template_is_in_the_file(start, demo, files):
    server = start(str(files / "demo.gguf"), "--max-model-len", 512, "--served-model-name", "demo")
    body = {"model": "demo", "messages": [{"role": "user", "content": "Tell me about a dog."}],
            "temperature": 0, "max_tokens": 16}
    found, wanted = (s.post("/v1/chat/completions", body).json for s in (server, demo))
    assert found["choices"] == wanted["choices"]
    for count in ("prompt_tokens", "completion_tokens"):
        assert found["usage"][count] == wanted["usage"][count]


def test_a_directory_with_a_split_model(start, demo, files):
    server = start(str(files / "split"), "--max-model-len", 512)
    assert answers(server)[0]["text"] == answers(demo)[0]["text"]


def test_blocks_are_served(start, demo, files):
    server = start(str(files / "blocks.gguf"), "--max-model-len", 512)
    found, wanted = answers(server), answers(demo)
    assert found[0]["logprobs"]["token_logprobs"][0] == pytest.approx(
        wanted[0]["logprobs"]["token_logprobs"][0], abs=0.2)
    assert server.tokens(TEXTS[1]) == demo.tokens(TEXTS[1])


def test_a_broken_file_is_refused_by_name(start, files):
    whole = (files / "demo.gguf").read_bytes()
    (files / "cut.gguf").write_bytes(whole[:-100])
    server = start(str(files / "cut.gguf"), wait=False)
    server.expected_exit = 65
    wait_until(lambda: not server.alive(), "the end", context=server.log)
    assert "cut.gguf" in server.log() and "truncated" in server.log()


def test_tokenizer_info(start, files):
    """What the file itself says of its tokenizer, in the words of tokenizer_config.json."""
    settings = json.loads((Path(DEMO) / "tokenizer_config.json").read_text())
    for name in ("demo.gguf", "split"):
        info = start(str(files / name), "--max-model-len", 512,
                     "--enable-tokenizer-info-endpoint").get("/tokenizer_info").json
        assert info["chat_template"] == settings["chat_template"]
        assert info["tokenizer_class"] == "PreTrainedTokenizerFast"
        for special in ("eos_token", "pad_token", "bos_token"):
            assert info.get(special) == settings.get(special), special
        assert set(info) <= set(settings) | {"tokenizer_class"}
