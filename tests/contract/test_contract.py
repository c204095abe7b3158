"""Schemathesis draws right and wrong bodies from /openapi.json and sends them to servers that
generate, keep conversations and batches, embed, rank and classify.

No answer is a 5xx, each is what the document says of it, a wrong body is refused, and a right one
only for a reason that schemas cannot say. CONTRACT_EXAMPLES=1000 draws longer, and other bodies."""

import json
import os
import random
import re

import pytest
import schemathesis
from document import BEYOND, DOCUMENT, complaint_about, schema_of
from harness import DEMO, ROOT, Server
from hypothesis import HealthCheck, Phase, given, seed, settings
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode

EXAMPLES = int(os.environ.get("CONTRACT_EXAMPLES", "20"))
ENCODERS = ROOT / "tests/vectors/encoders"
SERVERS = {  # the model, flags, and the routes that it is asked for
    "generates": (DEMO, ["--max-model-len", 128, "--max-queue-requests", 64], [
        "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
        "/v1/completions/render", "/v1/chat/completions/render", "/v1/responses/input_tokens",
        "/v1/messages/count_tokens", "/tokenize", "/detokenize", "/v1/schema/check"]),
    "keeps": (DEMO, ["--store", "STORE"], ["/v1/conversations", "/v1/conversations/{id}",
                                           "/v1/batches"]),
    "embeds": (ENCODERS / "bert-mean", [], ["/v1/embeddings", "/pooling", "/rerank", "/v2/rerank",
                                            "/score"]),
    "ranks": (ENCODERS / "bert-rank", [], ["/rerank", "/v2/rerank", "/score"]),
    "classifies": (ENCODERS / "bert-labels", [], ["/classify", "/pooling"]),
    "tags": (ENCODERS / "bert-tags", [], ["/classify", "/pooling"]),
}
# The name of a model is any text for the document: no answer but 404 would be drawn.
DRAWN = json.loads(json.dumps(DOCUMENT))
for component in DRAWN["components"]["schemas"].values():
    if "model" in component.get("properties", {}) and "x-rules" in component:
        component["properties"]["model"] = {"type": "null"}
OPERATIONS = {operation.path: operation for operation in (
    found.ok() for found in schemathesis.openapi.from_dict(DRAWN).get_all_operations())
    if operation.method == "post" and
    "application/json" in operation.definition.raw.get("requestBody", {}).get("content", {})}
ADMIN = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/models/load",
         "/v1/models/unload", "/api/pull"}
# Not yet: Ollama's API, whose answers are lines and whose errors are texts. scripts/fuzz_requests
# draws its bodies.
LINES = {"/api/chat", "/api/generate", "/api/show", "/api/embed", "/api/embeddings"}
# They want two of six names; the id of a file that is there.
HARDLY = {"/score", "/v1/batches"}


@pytest.fixture(scope="module")
def server_of(inferd, tmp_path_factory):
    running, store = {}, tmp_path_factory.mktemp("store") / "store.db"

    def get(kind):
        if kind not in running:
            model, flags, _ = SERVERS[kind]
            running[kind] = Server(inferd, model,
                                   *[store if flag == "STORE" else flag for flag in flags])
        return running[kind]

    yield get
    for server in running.values():
        assert server.stop() == 0, server.log()


def test_every_route_is_drawn():
    drawn = {path for _, _, paths in SERVERS.values() for path in paths}
    assert set(OPERATIONS) - ADMIN - LINES == drawn


def as_doubles(value):
    """Numbers as a reader of JSON may take them: beyond 2^53 only doubles are told apart."""
    if isinstance(value, dict):
        return {key: as_doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_doubles(item) for item in value]
    return int(float(value)) if type(value) is int and 2 ** 53 < abs(value) < 2 ** 62 else value


def complaint(server, connection, path, address, validator, body):
    """What is wrong with the answer to a body, or None. Counts what was accepted."""
    answer = server.request("POST", address, body=json.dumps(body), connection=connection)
    body = as_doubles(body)
    valid, accepted = validator.is_valid(body), answer.status == 200
    if wrong := complaint_about("post", path, answer):
        return wrong, accepted
    if answer.status >= 500:
        return f"{answer.status}", accepted
    if accepted and not valid:
        fault = next(validator.iter_errors(body))
        return f"a wrong body was accepted: {fault.json_path}: {fault.message[:100]}", accepted
    said = "" if accepted else answer.json["error"]["message"]
    if valid and not accepted and not re.search(BEYOND, said):
        return f"a right body was refused: {said[:200]}", accepted
    return None, accepted


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("kind, path", [(kind, path) for kind, (_, _, paths) in SERVERS.items()
                                        for path in paths])
def test_drawn_bodies(server_of, kind, path, mode):
    server, found, statuses = server_of(kind), {}, []
    connection, validator = server.connection(), Draft202012Validator(schema_of(path)[0])
    address = path
    if "{id}" in path:
        made = server.request("POST", path.removesuffix("/{id}"), body="{}", connection=connection)
        address = path.replace("{id}", made.json["id"])

    def send(case):
        body = case.body if isinstance(case.body, (dict, list, str, int, float, bool)) else None
        wrong, accepted = complaint(server, connection, path, address, validator, body)
        statuses.append(accepted)
        if wrong:
            found.setdefault(wrong, json.dumps(body)[:300])

    def draw_some(start):
        @settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))
        @seed(start)
        @given(case=OPERATIONS[path].as_strategy(generation_mode=mode))
        def draw(case):
            send(case)

        draw()

    first = random.randrange(2 ** 32) if "CONTRACT_EXAMPLES" in os.environ else 1
    must_accept = mode is GenerationMode.POSITIVE and path not in HARDLY
    for more in range(20):  # rules between fields are not drawn
        if more == 0 or (must_accept and not any(statuses)):
            draw_some(first + more)
    assert not found, "\n".join(f"{wrong}\n    {body}" for wrong, body in list(found.items())[:20])
    assert any(statuses) or not must_accept, "no body that was drawn is accepted"
