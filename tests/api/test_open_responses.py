"""What /v1/responses answers, whole and streamed, held to the schemas of Open Responses.

The document is that of 2026-04-24, as the package openresponses-py has it. Two of its places are
mended as later texts of the specification have them. Items of custom tools are no part of it: those
are held to the types of OpenAI's SDK."""

import json
import re
import sys
from importlib import metadata

import pytest
from jsonschema import Draft202012Validator
from openai.types.responses import Response, ResponseCustomToolCall, ResponseStreamEvent
from pydantic import TypeAdapter

from harness import DEMO, ROOT, Server

sys.path.append(str(ROOT / "tests/clients"))
from scripted import scripted_model  # noqa: E402 pylint: disable=wrong-import-position

FILES = [file for file in metadata.files("openresponses-py") if file.match("openapi/*.json")]
SPEC = json.loads(FILES[0].read_text())
SCHEMAS = SPEC["components"]["schemas"]
SCHEMAS["JsonSchemaResponseFormat"]["properties"]["schema"]["anyOf"].append({"type": "object"})
for end in ("Delta", "Done"):
    SCHEMAS[f"ResponseReasoning{end}StreamingEvent"]["properties"]["type"]["enum"] = [
        f"response.reasoning_text.{end.lower()}"]
EVENTS = {schema["properties"]["type"]["enum"][0]: name for name, schema in SCHEMAS.items()
          if name.endswith("StreamingEvent")}
CUSTOM = ("response.custom_tool_call_input.delta", "response.custom_tool_call_input.done")
THOUGHT = "<think>\nTwo and three.\n</think>\n\nIt is five."
CALL = '<tool_call>\n{"name": "f", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>'
PATCH = '<tool_call>\n{"name": "patch", "arguments": {"input": "+ \\"a\\"\\n- b"}}\n</tool_call>'
F = {"type": "function", "name": "f", "description": "d", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"], "additionalProperties": False}}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],
          "additionalProperties": False}
LETTER = json.loads((DEMO / "tokenizer.json").read_text())["model"]["vocab"]["a"]
CASES = {
    "text": {"input": "hi"},
    "thoughts": {"input": [{"role": "user", "content": "think"}]},
    "a call": {"input": "call", "tools": [F]},
    "a forced call": {"input": "call", "tools": [F, {**F, "name": "g", "strict": True}],
                      "tool_choice": {"type": "function", "name": "f"}},
    "an allowed tool": {"input": "call", "tools": [F, {**F, "name": "g"}], "tool_choice": {
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}},
    "cut": {"input": "hi", "max_output_tokens": 1},
    "a call that is cut": {"input": "call", "tools": [F], "tool_choice": "required",
                           "max_output_tokens": 9},
    "a schema": {"input": "hi", "text": {"format": {
        "type": "json_schema", "name": "n", "description": "d", "strict": True,
        "schema": SCHEMA}}},
    "an object": {"input": "hi", "max_output_tokens": 20,
                  "text": {"format": {"type": "json_object"}, "verbosity": "low"}},
    "scores": {"input": "hi", "top_logprobs": 2, "include": ["message.output_text.logprobs"]},
    "everything else": {"input": "hi", "instructions": "Be brief.", "metadata": {"a": "b"},
                        "temperature": 0.5, "top_p": 0.9, "presence_penalty": 1,
                        "frequency_penalty": -1, "parallel_tool_calls": False, "store": True,
                        "reasoning": {"effort": "low", "summary": "auto"}, "user": "u",
                        "truncation": "disabled", "safety_identifier": "s",
                        "prompt_cache_key": "k", "service_tier": "auto"},
    "no token is left": {"input": "hi", "allowed_token_ids": [LETTER], "regex": "a{5}b"},
}


@pytest.fixture(scope="module")
def spoken(inferd, tmp_path_factory):
    """A model that thinks, calls, or says a word, as it is asked."""
    asked = "messages[-1]['content'] == "
    model = scripted_model(tmp_path_factory.mktemp("model") / "spoken", [
        (f"{asked}'think'", THOUGHT), (f"{asked}'call'", CALL), (f"{asked}'patch'", PATCH),
        ("true", "Hello to you.")])
    server = Server(inferd, model, "--reasoning-parser", "qwen3", "--max-model-len", 2048)
    yield server
    assert server.stop() == 0, server.log()


def faults(name, value):
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
    return [f"{name} {'/'.join(map(str, fault.absolute_path))}: {fault.message[:200]}"
            for fault in Draft202012Validator(schema).iter_errors(value)]


def events_of(answer):
    return [json.loads(line[6:]) for line in answer.body.decode().splitlines()
            if line.startswith("data: ")]


@pytest.mark.parametrize("name", CASES)
def test_a_whole_answer(spoken, name):
    answer = spoken.post("/v1/responses", CASES[name])
    if name == "no token is left":
        assert answer.status == 400
        return
    assert answer.status == 200 and not faults("ResponseResource", answer.json), answer


@pytest.mark.parametrize("name", CASES)
def test_a_stream(spoken, name):
    answer = spoken.post("/v1/responses", {**CASES[name], "stream": True})
    assert answer.status == 200, answer
    wrong = [fault for event in events_of(answer) for fault in faults(EVENTS[event["type"]], event)]
    assert not wrong, wrong


def test_the_cases_have_every_event_that_is_sent(spoken):
    """Each event that the server can print is one of some case."""
    seen = {event["type"] for body in CASES.values()
            for event in events_of(spoken.post("/v1/responses", {**body, "stream": True}))}
    writer = (ROOT / "server/responses/writer.c").read_text()
    printed = set(re.findall(r'"(response\.[a-z_.]+)"', writer))
    assert len(printed) >= 15 and printed - seen == set(CUSTOM), printed - seen


@pytest.mark.parametrize("limit", [64, 8, 5])
@pytest.mark.parametrize("choice", ["auto", "required", {"type": "custom", "name": "patch"}])
def test_events_of_a_custom_tool(spoken, choice, limit):
    """The input of the call, whole or cut, is the same in every event, the item and the answer."""
    body = {"input": "patch", "tools": [{"type": "custom", "name": "patch"}, F],
            "tool_choice": choice, "max_output_tokens": limit, "temperature": 0}
    events = events_of(spoken.post("/v1/responses", {**body, "stream": True}))
    judge = TypeAdapter(ResponseStreamEvent)
    kinds = [type(judge.validate_python(event)).__name__ for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    of = {kind: [event for event in events if event["type"] == kind]
          for kind in {event["type"] for event in events}}
    whole = Response.model_validate(spoken.post("/v1/responses", body).json)
    streamed = Response.model_validate(events[-1]["response"])
    assert [item.type for item in whole.output] == [item.type for item in streamed.output]
    if "response.custom_tool_call_input.done" not in of:
        assert limit == 5 and not any("CustomToolCall" in kind for kind in kinds), kinds
        return
    (done,), (item,) = of["response.custom_tool_call_input.done"], streamed.output
    text = "".join(event["delta"] for event in of.get("response.custom_tool_call_input.delta", []))
    ends = of["response.output_item.done"][-1]["item"]
    assert text == done["input"] == ends["input"] == item.input == whole.output[0].input
    assert isinstance(item, ResponseCustomToolCall) and item.name == "patch"
    assert {event["item_id"] for event in of.get(CUSTOM[0], [done])} == {item.id} == {ends["id"]}
    if limit == 64 and choice == "auto":
        assert text == '+ "a"\n- b' and streamed.status == "completed"
    if limit != 64:
        assert streamed.status == whole.status == "incomplete" == ends["status"]
