"""The small routes: models, tokenize and detokenize, health, version."""

from datetime import datetime

import pytest
from tokenizers import Tokenizer

from harness import DEMO

TEXTS = ["Once upon a time", "", " leading", "trailing ", "a\n\nb\tc", "12 + 34 = 46",
         "caf\u00e9 \u4f60\u597d \U0001f600", "<|im_start|>user\nhi<|im_end|>\n", "\u0301x" * 5,
         "x" * 300, "def f(x):\n    return x ** 2\n", "\u0000\u0001" .replace("\u0000", " "),
         '{"key": [1, 2, 3]}', "don't  can't\r\n won't"]


def test_models(server):
    page = server.get("/v1/models").json
    assert page["object"] == "list" and [c["id"] for c in page["data"]] == ["demo", "alias/demo"]
    card = page["data"][0]
    assert {"id", "object", "created", "owned_by", "root", "parent", "max_model_len",
            "permission"} <= set(card)
    assert card["object"] == "model" and card["owned_by"] == "inferd"
    assert card["max_model_len"] > 0
    # the same page for clients of Anthropic
    assert (card["type"], card["display_name"]) == ("model", "demo")
    assert datetime.fromisoformat(card["created_at"]).timestamp() == card["created"]
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "demo", "alias/demo")


def test_model(server):
    assert server.get("/v1/models/demo").json["id"] == "demo"
    for path in ("/v1/models/alias/demo", "/v1/models/alias%2Fdemo", "/models/alias/demo"):
        assert server.get(path).json["id"] == "alias/demo"
    answer = server.get("/v1/models/nope")
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
@pytest.mark.parametrize("special", [True, False])
def test_tokenize_as_hugging_face_does(server, text, special):
    reference = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    encoding = reference.encode(text, add_special_tokens=special)
    expected = encoding.ids
    answer = server.post("/tokenize", {"prompt": text, "add_special_tokens": special,
                                       "return_token_strs": True})
    assert answer.status == 200, answer
    body = answer.json
    assert body["tokens"] == expected
    assert body["count"] == len(expected) and body["max_model_len"] == server.max_model_len()
    assert body["token_strs"] == encoding.tokens, "as in the vocabulary"


def test_tokenize_beyond_the_context(server):
    text = "one two three " * server.max_model_len()
    assert server.post("/v1/tokenize", {"prompt": text}).json["count"] > server.max_model_len()


def test_detokenize(server):
    for text in TEXTS:
        ids = server.tokens(text, add_special_tokens=False)
        assert server.post("/detokenize", {"tokens": ids}).json["prompt"] == text
    for bad in ([-1], [1 << 30], ["a"], [1.5], None, "x"):
        answer = server.post("/v1/detokenize", {"tokens": bad})
        assert answer.status == 400 and answer.error["param"] == "tokens"


@pytest.mark.parametrize("body", [{}, {"prompt": None}, {"prompt": 5}, {"prompt": ["a"]},
                                  {"prompt": "a", "model": "nope"}])
def test_bad_tokenize(server, body):
    answer = server.post("/tokenize", body)
    assert answer.status == (404 if "model" in body else 400)
    assert answer.error["message"]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/ping"])
def test_health(server, path):
    answer = server.get(path)
    assert (answer.status, answer.json) == (200, {"status": "ok"})
    assert server.request("HEAD", path).status == 200


def test_ping_by_post(server):
    assert server.post("/ping", {}).status == 200


def test_version(server):
    version = server.get("/version").json["version"]
    assert version.count(".") == 2


def test_unprefixed_completions(server):
    answer = server.post("/completions", {"prompt": "Once", "max_tokens": 2})
    assert answer.json["object"] == "text_completion"
