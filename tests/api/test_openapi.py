"""/openapi.json: a valid document, the one of docs/, and one that judges bodies as the server does.

Each route gets bodies of which one field, or two, have values that fit or not: of each field a
third of the values; all where fields are few, and with INFERD_TEST_LONG. Where the schema accepts
what the server refuses, the error must be one of a rule that schemas cannot say. What is answered,
errors too, must be what the document says of it."""

import json
import random
import re

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from document import BEYOND, DOCUMENT, complaint_about, schema_of
from harness import DEMO, LONG, ROOT

MESSAGES = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
BASES = {
    "/v1/completions": {"prompt": "a", "max_tokens": 1},
    "/v1/chat/completions": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/responses": {"input": "Hi", "max_output_tokens": 1},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": MESSAGES},
    "/api/chat": {"model": "demo", "messages": MESSAGES, "stream": False,
                  "options": {"num_predict": 1}},
    "/api/generate": {"model": "demo", "prompt": "a", "stream": False,
                      "options": {"num_predict": 1}},
    "/api/embed": {"model": "demo", "input": "a"},
    "/completion": {"prompt": "a", "n_predict": 1},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1, 2]},
    "/v1/schema/check": {"schema": {"type": "string"}},
    "/v1/embeddings": {"input": "a"},
    "/rerank": {"query": "a", "documents": ["b", "a b"]},
    "/v2/rerank": {"query": "a", "documents": ["b", "a b"]},
    "/score": {"queries": "a", "documents": ["b", "a b"]},
    "/classify": {"input": "a"},
    "/pooling": {"input": "a"},
    "/v1/conversations": {"metadata": {"a": "b"}},
    "/v1/batches": {"input_file_id": None, "endpoint": "/v1/completions",
                    "completion_window": "24h"},
}
# Who serves a route that the demo model does not.
ENCODERS = {"/rerank": "bert-rank", "/v2/rerank": "bert-rank", "/score": "bert-rank",
            "/classify": "bert-labels", "/pooling": "bert-labels"}
VALUES = [
    None, True, False, 0, 1, 1.0, -1, 2, 5, 0.5, 1.5, -0.5, 128, 129, 2.0001, -2, 2 ** 70, -101,
    "", "a", "left", "right", "auto", "none", "required", "float", "base64", "never", "disabled",
    "a" * 40, "a" * 128, "a" * 129, "a" * 256, "a" * 257, "a" * 1025, "{", "-", "a b",
    [], ["a"], [""], ["a", 1], [1], [1, 2.5], [-1], [True], [[1, 2]], [[]], [[1], ["a"]], ["text"],
    ["audio"], ["a"] * 17, [{}], [[[]]], [None],
    {}, {"a": 1}, {"0": 5}, {"00": 5}, {"0": 101}, {"x": 1}, {"0": "a"},
    {"include_usage": True}, {"include_usage": 1}, {"include_usage": None}, {"a": "b" * 513},
    {"type": "text"}, {"type": "json_object"}, {"type": "x"}, {"type": None},
    {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {}}},
    {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}},
    {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "integer"}}},
    {"json_object": True}, {"json_object": False, "other": False}, {"other": 1},
    {"choice": ["a"]}, {"choice": []}, {"regex": 1},
    [{"text": "a"}], [{"text": "a"}, "b"], [{"text": 1}], [{"text": ""}], ["a"] * 1025, "Left",
    "Right", "embed", "classify", "token_embed",
    MESSAGES, [{"role": "user"}], [{"role": "tool", "content": "a"}], [{"role": 1}],
    [{"role": "user", "content": []}], [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}]}], [{"content": "a"}],
    [{"role": "user", "content": "a", "name": 1}], [{"role": "user", "content": 5}],
    [{"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}, *MESSAGES],
    [{"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f"}}]}, *MESSAGES],
    [TOOL], [{"type": "other"}], [{"function": {"name": "a b"}}], [{"function": {}}],
    [{"function": {"name": "f", "strict": 1}}], [{"function": {"name": "f", "parameters": 1}}],
    {"type": "function", "function": {"name": "f"}}, {"type": "function"},
]


def test_the_document_is_valid_and_served(server):
    validate(DOCUMENT)
    answer = server.get("/openapi.json")
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    assert answer.json == DOCUMENT
    for path, operations in DOCUMENT["paths"].items():
        for method in operations:
            told = server.request(method.upper(), path.replace("{id}", "demo"), body={}
                                  if method == "post" else None)
            assert told.status != 405 and (told.status != 404 or path in (
                "/tokenizer_info", "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
                "/v1/models/load", "/v1/models/unload",
                "/v1/responses/{id}", "/v1/responses/{id}/cancel", "/v1/conversations",
                "/v1/conversations/{id}", "/v1/files", "/v1/files/{id}", "/v1/batches",
                "/v1/batches/{id}", "/v1/batches/{id}/cancel", "/v1/usage")), path
            assert complaint_about(method, path, told) is None, (path, told)


def upload(server):
    """A file that batches can be made of: each of its lines is refused when it runs."""
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": 1}}
    form = ('--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--x\r\n'
            'Content-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
            f"{json.dumps(line)}\r\n--x--")
    answer = server.request("POST", "/v1/files", form,
                            headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert answer.status == 200, answer
    return answer.json["id"]


def judged(server, connection, route, valid, body):
    """None if schema and server agree, else what each says. The schema says what is right: what is
    wrong in a history may be mended, and then the answer says so."""
    answer = server.request("POST", route, body=json.dumps(body), connection=connection)
    wrong = complaint_about("post", route, answer)
    if wrong:
        return json.dumps(body)[:150], wrong
    if valid == (answer.status == 200) or answer.headers.get("x-inferd-mended"):
        return None
    error = answer.json["error"] if answer.status != 200 else {}
    error = error if isinstance(error, dict) else {"message": error}
    if valid and re.search(BEYOND, error["message"]):
        return None
    changed = {k: v for k, v in body.items() if BASES[route].get(k, ...) != v}
    return (json.dumps(changed)[:150], "schema: " + ("right" if valid else "wrong"), answer.status,
            error.get("param"), error.get("code"), error.get("message", "")[:150])


@pytest.mark.parametrize("route", sorted(BASES))
def test_schema_and_server_judge_alike(start, route, tmp_path, monkeypatch):
    task = "embed" if route in ("/v1/embeddings", "/api/embed") else "generate"
    kept = ["--store", tmp_path / "answers.db"] if route in ("/v1/conversations", "/v1/batches") \
        else []
    server = start(ROOT / "tests/vectors/encoders" / ENCODERS[route]) if route in ENCODERS else \
        start(DEMO, "--task", task, "--max-model-len", 128, *kept)
    if route == "/v1/batches":
        monkeypatch.setitem(BASES[route], "input_file_id", upload(server))
    schema, component = schema_of(route)
    validator = Draft202012Validator(schema)
    fields = sorted(DOCUMENT["components"]["schemas"][component]["properties"])
    connection = server.connection()
    bodies = [dict(BASES[route]), {}]
    drawn, whole = random.Random(f"1 {route}"), LONG or len(fields) < 8
    for field in fields:
        row = json.dumps(DOCUMENT["components"]["schemas"][component]["properties"][field])
        fixed = "Not supported" in row or "Without effect" in row
        bodies += [{**BASES[route], field: value}
                   for value in (drawn.sample(VALUES, 8) if fixed else
                                 VALUES if whole else drawn.sample(VALUES, len(VALUES) // 3))]
    for _ in range(300 if LONG else 150):
        two = {field: drawn.choice(VALUES) for field in drawn.sample(fields, 2)}
        bodies.append({**BASES[route], **two})
    valid = [validator.is_valid(body) for body in bodies]
    wrong = [found for body, good in zip(bodies, valid)
             if (found := judged(server, connection, route, good, body))]
    assert not wrong, "\n".join(map(str, [len(wrong), *wrong[:60]]))
    assert sum(valid) > 20, "the values say something"
