"""/v1/embeddings: the vectors of sentence-transformers, and what a request may ask for.

tests/vectors/embeddings has tiny models as sentence-transformers saves them, without weights, and
the vectors that it made (scripts/vectors/embeddings.py)."""

import base64
import json
import math
import struct

import openai
import pytest

from harness import ROOT

CASES = sorted(p.parent for p in (ROOT / "tests/vectors/embeddings").glob("*/expected.json"))


def cosine(a, b):
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(x * x for x in b))


def bits(vector):
    return struct.pack(f"<{len(vector)}f", *vector)


def embed(server, texts, **fields):
    answer = server.post("/v1/embeddings", {"input": texts, **fields})
    assert answer.status == 200, answer
    assert answer.json["object"] == "list"
    data = answer.json["data"]
    assert [d["index"] for d in data] == list(range(len(data)))
    assert {d["object"] for d in data} == {"embedding"}
    return [d["embedding"] for d in data]


def serve(start, case, *flags):
    expected = json.loads((case / "expected.json").read_text())
    server = start(case, "--load-format", "dummy", "--seed", expected["seed"],
                   "--served-model-name", case.name, *flags)
    return server, expected


@pytest.fixture
def qwen3(start):
    return serve(start, ROOT / "tests/vectors/embeddings/qwen3-last")


def refused(server, body, *, param, code, says):
    answer = server.post("/v1/embeddings", body)
    assert answer.status == 400, answer
    assert (answer.error["param"], answer.error["code"]) == (param, code), answer
    assert says in answer.error["message"], answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_vectors_are_those_of_sentence_transformers(start, case):
    server, expected = serve(start, case)
    allowed = 1e-5 if expected["dtype"] == "float32" else 2 * expected["error"]
    answer = server.post("/v1/embeddings", {"input": expected["texts"]})
    assert answer.json["model"] == case.name
    total = sum(expected["sizes"])
    assert answer.json["usage"] == {"prompt_tokens": total, "total_tokens": total}
    vectors = [d["embedding"] for d in answer.json["data"]]
    for text, got, want in zip(expected["texts"], vectors, expected["vectors"], strict=True):
        assert 1 - cosine(got, want) <= allowed, text
        scale = math.sqrt(sum(x * x for x in want))
        assert max(abs(x - y) for x, y in zip(got, want)) <= 10 * math.sqrt(allowed) * scale, text
        assert bits(embed(server, text)[0]) == bits(got), "alone it is another vector"
    if "cut" in expected:
        size = len(expected["cut"][0])
        cut = embed(server, expected["texts"], dimensions=size, normalize=True)
        for got, want in zip(cut, expected["cut"], strict=True):
            assert len(got) == size and 1 - cosine(got, want) <= allowed
            assert abs(sum(x * x for x in got) - 1) < 1e-6


def test_steps_do_not_change_a_bit(start):
    """Steps of 8 tokens, beside others and alone; with the prefix cache and without."""
    for name in ("qwen3-last", "llama-mean-bf16"):
        case = ROOT / "tests/vectors/embeddings" / name
        first, expected = serve(start, case, "--no-enable-prefix-caching")
        second, _ = serve(start, case, "--max-num-batched-tokens", 8, "--max-num-seqs", 4)
        want = embed(first, expected["texts"])
        for _ in range(2):  # the second time there is a cache to hit
            assert list(map(bits, embed(second, expected["texts"]))) == list(map(bits, want))


def test_every_form_of_input(qwen3):
    server, expected = qwen3
    text = expected["texts"][2]
    ids = server.post("/tokenize", {"prompt": text}).json["tokens"]
    assert ids[-1] == 0, "the post-processor appends the end of text"
    vectors = [embed(server, form)[0] for form in (text, [text], ids, [ids])]
    assert len(set(map(bits, vectors))) == 1
    other = embed(server, text, add_special_tokens=False)[0]
    assert bits(other) == bits(embed(server, ids[:-1])[0]) != bits(vectors[0])


def test_base64_has_the_same_bits(qwen3):
    server, expected = qwen3
    plain = embed(server, expected["texts"])
    coded = embed(server, expected["texts"], encoding_format="base64")
    assert [base64.b64decode(c, validate=True) for c in coded] == list(map(bits, plain))
    three = embed(server, "a", encoding_format="base64", dimensions=3)[0]
    assert len(base64.b64decode(three, validate=True)) == 12
    one = embed(server, "a", encoding_format="base64", dimensions=1)[0]
    assert len(one) == 8 and one.endswith("==")


def test_truncation_keeps_what_the_tokenizer_adds(qwen3):
    server, expected = qwen3
    text = expected["texts"][3]
    ids = server.post("/tokenize", {"prompt": text}).json["tokens"]
    head = embed(server, text, truncate_prompt_tokens=9)[0]
    assert bits(head) == bits(embed(server, ids[:8] + ids[-1:])[0])
    tail = embed(server, text, truncate_prompt_tokens=9, truncation_side="left")[0]
    assert bits(tail) == bits(embed(server, ids[-9:])[0])
    long = "one two " * 400
    answer = server.post("/v1/embeddings", {"input": ["a", long], "truncate_prompt_tokens": -1})
    assert answer.json["usage"]["prompt_tokens"] == 2 + 256
    refused(server, {"input": ["a", long]}, param="input", code="context_length_exceeded",
            says="256 tokens. However, 'input[1]' has at least 257")
    refused(server, {"input": [[5] * 257]}, param="input", code="context_length_exceeded",
            says="However, 'input' has 257")
    assert len(embed(server, [[5] * 256])) == 1, "the whole context"


def test_what_is_refused(qwen3):
    server, _ = qwen3
    bad = {"param": "input", "code": "missing_required_parameter"}
    refused(server, {}, says="'input' must be provided", **bad)
    refused(server, {"input": ""}, says="non-empty", **bad)
    refused(server, {"input": ["a", ""]}, says="non-empty", **bad)
    refused(server, {"input": []}, says="non-empty", **bad)
    refused(server, {"input": ["a", 1]}, param="input", code="invalid_type", says="array of")
    refused(server, {"input": [[1], [346]]}, param="input", code="invalid_value",
            says="range 0 to 345")
    refused(server, {"input": ["a"] * 1025}, param="input", code="invalid_value",
            says="Too many inputs: at most 1024")
    refused(server, {"input": "a", "encoding_format": "int8"}, param="encoding_format",
            code="invalid_value", says="'float' or 'base64', but got 'int8' instead")
    refused(server, {"input": "a", "dimensions": 65}, param="dimensions",
            code="integer_above_max_value", says="<= 64")
    refused(server, {"input": "a", "dimensions": 0}, param="dimensions",
            code="integer_below_min_value", says=">= 1")
    refused(server, {"input": "a", "normalize": "yes"}, param="normalize", code="invalid_type",
            says="a boolean")
    answer = server.post("/v1/embeddings", {"input": "a", "model": "other"})
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    answer = server.post("/v1/embeddings", {"input": "a", "zebra": 1, "user": "me"})
    assert answer.status == 200 and answer.headers["x-inferd-ignored-params"] == "zebra"


def test_sizes_that_the_model_was_trained_for(start):
    listed, _ = serve(start, ROOT / "tests/vectors/embeddings/qwen2-mean")
    refused(listed, {"input": "a", "dimensions": 20}, param="dimensions", code="invalid_value",
            says="'dimensions' is 20; the model was trained for 16 and 32.")
    assert len(embed(listed, "a", dimensions=64)[0]) == 64
    case = ROOT / "tests/vectors/embeddings/mistral-last"
    plain, _ = serve(start, case)
    refused(plain, {"input": "a", "dimensions": 16}, param="dimensions", code="invalid_value",
            says="returns 64 values")
    asked, _ = serve(start, case, "--matryoshka")
    assert len(embed(asked, "a", dimensions=16)[0]) == 16


def test_each_task_refuses_the_routes_of_the_other(server, qwen3):
    answer = server.post("/v1/embeddings", {"input": "a"})
    assert (answer.status, answer.error["code"]) == (400, "unsupported_endpoint")
    assert "generates and makes no embeddings" in answer.error["message"]
    ask = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
    for route, body in {"/v1/completions": {"prompt": "a"}, "/v1/chat/completions": ask,
                        "/v1/messages": ask, "/v1/responses": {"input": "a"}}.items():
        answer = qwen3[0].post(route, body)
        assert answer.status == 400, answer
        assert "Use /v1/embeddings" in answer.json["error"]["message"]
    assert qwen3[0].get("/v1/models").json["data"][0]["id"] == "qwen3-last"


def test_options_go_before_the_model(start):
    case = ROOT / "tests/vectors/embeddings/qwen3-last"
    seed = json.loads((case / "expected.json").read_text())["seed"]
    generates = start(case, "--load-format", "dummy", "--seed", seed, "--runner", "generate")
    assert generates.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status == 200
    mean, _ = serve(start, case, "--pooling", "mean")
    last, _ = serve(start, case, "--runner", "pooling")
    text = "hello world"
    assert bits(embed(mean, text)[0]) != bits(embed(last, text)[0])
    ids = last.post("/tokenize", {"prompt": text}).json["tokens"]
    steps = embed(last, [ids[:n + 1] for n in range(len(ids))], normalize=False)
    sums = [sum(column) / len(ids) for column in zip(*steps)]
    assert cosine(embed(mean, text)[0], sums) > 1 - 1e-9


def test_a_large_answer_comes_whole(qwen3):
    server, _ = qwen3
    texts = [f"{i} {i * i}" for i in range(1000)]
    plain = embed(server, texts)
    assert len(plain) == 1000 and {len(v) for v in plain} == {64}
    assert bits(plain[777]) == bits(embed(server, texts[777])[0])


def test_metrics_and_the_openai_sdk(qwen3):
    server, expected = qwen3
    client = openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none")
    got = client.embeddings.create(model="qwen3-last", input=expected["texts"])  # asks for base64
    assert got.usage.prompt_tokens == sum(expected["sizes"])
    for row, want in zip(got.data, expected["vectors"], strict=True):
        assert cosine(row.embedding, want) > 1 - 1e-5
    plain = client.embeddings.create(model="qwen3-last", input="a", encoding_format="float",
                                     dimensions=8, user="me")
    assert len(plain.data[0].embedding) == 8
    with pytest.raises(openai.BadRequestError) as error:
        client.embeddings.create(model="qwen3-last", input="a", dimensions=65)
    assert error.value.param == "dimensions"
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="qwen3-last", prompt="a")
    done = server.metric("inferd_requests_total", route="/v1/embeddings", code="200",
                         finish_reason="stop")
    assert done == 2, server.metrics()
