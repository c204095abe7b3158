"""Relatives of what clients met: for each kind further requests that nobody has reported, on chat,
responses and messages, whole and streamed. SESSIONS.md has the kinds and their tests."""

import json

import jsonschema
import pytest

from document import DOCUMENT, schema_of
from harness import DEMO, ROOT, Server
from test_sessions import prompt_sizes
from views import LIMITS, ROUTES, VIEWS, ask, ask_all, body_of

HI = [{"role": "user", "content": "Once upon a time"}]
LAST = {"role": "user", "content": "and?"}


def function(name="f", **parameters):
    return {"name": name, "parameters": {"type": "object", "additionalProperties": False,
                                         **parameters}}


def each(table):
    return pytest.mark.parametrize("case", table.values(), ids=table.keys())


def answers(server, route, body):
    """The answer to a body, whole and streamed."""
    for stream in (False, True):
        yield server.post(ROUTES[route], {**body, "stream": stream})


def error_of(answer):
    return answer.json["error"]["message"]


# ---- a call that is cut ----

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
CUT = {
    "objects in objects": function(properties={"a": {"type": "object", "properties": {
        "b": {"type": "object", "properties": {"c": TEXT}, "required": ["c"]}},
        "required": ["b"]}}, required=["a"]),
    "a list": function(properties={"a": {"type": "array", "items": NUMBER, "minItems": 3}},
                       required=["a"]),
    "keys that are no ASCII": function(properties={"größe \"x\"": {"enum": ["große\n Zeile"]}},
                                       required=["größe \"x\""]),
    "nothing to say": function(properties={}),
    "a long name": function("a_function_with_a_long_name-and-a-dash", properties={"a": TEXT},
                            required=["a"]),
    "a choice": function(properties={"a": {"anyOf": [NUMBER, {"type": "null"}, {"const": "x"}]}},
                         required=["a"]),
}


@each(CUT)
@pytest.mark.parametrize("choice", ["required", "named"])
def test_cut_calls(server, case, choice):
    seen = set()
    for limit in (2, 7, 13, 21, 44):
        text, calls, finish = ask_all(
            server, HI, functions=[case, function("other")], limit=limit, temperature=0,
            choice=case["name"] if choice == "named" else choice)
        assert text == "", (limit, text)
        assert all(name in (case["name"], "other") for name, _ in calls), calls
        assert finish == "length" or calls
        seen.add(len(calls))
    assert max(seen) > 0, seen


# ---- histories of other providers ----

def use(name="f", **members):
    return {"type": "tool_use", "id": "c", "name": name, "input": {}, **members}


def by_assistant(*blocks):
    return [HI[0], {"role": "assistant", "content": list(blocks)}, LAST]


HISTORIES = {
    "responses": {
        "a page that was opened": [
            HI[0], {"type": "web_search_call", "id": "w", "status": "completed",
                    "action": {"type": "open_page", "url": "http://x"}}, LAST],
        "a shell that timed out": [
            HI[0], {"type": "shell_call", "call_id": "c", "action": {"commands": ["x"],
                                                                     "timeout_ms": 1}},
            {"type": "shell_call_output", "call_id": "c", "max_output_length": 5,
             "output": [{"stdout": "", "stderr": "e", "outcome": {"type": "timeout"}}]}, LAST],
        "a picture that code made": [
            HI[0], {"type": "code_interpreter_call", "id": "c", "code": None, "container_id": "k",
                    "status": "failed", "outputs": [{"type": "image", "url": "http://x"}]}, LAST],
        "checks of a screen": [
            HI[0], {"type": "computer_call", "call_id": "c", "id": "i", "status": "completed",
                    "pending_safety_checks": [{"id": "s", "code": "x", "message": "m"}],
                    "actions": [{"type": "click", "x": 1, "y": 2, "button": "left"}]},
            {"type": "computer_call_output", "call_id": "c", "acknowledged_safety_checks": [],
             "output": {"type": "computer_screenshot", "file_id": "file"}}, LAST],
        "a custom tool with parts": [
            HI[0], {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "+a"},
            {"type": "custom_tool_call_output", "call_id": "c",
             "output": [{"type": "input_text", "text": "ok"}]}, LAST],
        "thoughts of three kinds": [
            HI[0], {"type": "reasoning", "id": "r", "summary": [], "content": None,
                    "encrypted_content": "x", "status": None},
            {"type": "reasoning", "id": "r2", "summary": [{"type": "summary_text", "text": "a"}]},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "b"}],
             "summary": None}, {"role": "assistant", "content": "ok"}, LAST],
        "a search for tools": [HI[0], {"type": "tool_search_call", "id": "t", "arguments": {}},
                               {"type": "tool_search_output", "tools": []}, LAST],
        "notes and phases": [HI[0], {"type": "message", "role": "assistant", "id": "m",
                                     "status": "completed", "phase": "commentary", "content": [
                                         {"type": "output_text", "text": "ok", "annotations": [
                                             {"type": "url_citation", "url": "u", "title": "t",
                                              "start_index": 0, "end_index": 1}],
                                          "logprobs": []}]}, LAST],
    },
    "messages": {
        "a page that was fetched": by_assistant(
            use(type="server_tool_use", name="web_fetch"),
            {"type": "web_fetch_tool_result", "tool_use_id": "c", "content": {
                "type": "web_fetch_result", "url": "u", "content": {
                    "type": "document", "source": {"type": "text", "media_type": "text/plain",
                                                   "data": "words"}}}}),
        "a search that failed": by_assistant(
            use(type="server_tool_use", name="web_search"),
            {"type": "web_search_tool_result", "tool_use_id": "c", "content": {
                "type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}}),
        "a shell of the server": by_assistant(
            use(type="server_tool_use", name="bash_code_execution"),
            {"type": "bash_code_execution_tool_result", "tool_use_id": "c", "content": {
                "type": "bash_code_execution_result", "stdout": "a", "stderr": "", "return_code": 0,
                "content": []}}),
        "an editor of the server": by_assistant(
            use(type="server_tool_use", name="text_editor_code_execution"),
            {"type": "text_editor_code_execution_tool_result", "tool_use_id": "c", "content": {
                "type": "text_editor_code_execution_view_result", "file_type": "text",
                "content": "x"}}),
        "tools that were found": by_assistant(
            use(type="server_tool_use", name="tool_search_tool_regex"),
            {"type": "tool_search_tool_result", "tool_use_id": "c", "content": {
                "type": "tool_search_tool_search_result", "tool_references": [
                    {"type": "tool_reference", "tool_name": "f"}]}}),
        "sources of a text": by_assistant({"type": "text", "text": "ok", "citations": [
            {"type": "char_location", "cited_text": "w", "document_index": 0,
             "start_char_index": 0, "end_char_index": 1}]}),
        "an error of a tool": [HI[0], {"role": "assistant", "content": [use()]},
                               {"role": "user", "content": [
                                   {"type": "tool_result", "tool_use_id": "c", "is_error": True,
                                    "content": [{"type": "text", "text": "no"},
                                                {"type": "tool_reference", "tool_name": "f"}],
                                    "cache_control": {"type": "ephemeral"}}]}],
        "callers of a call": [HI[0], {"role": "assistant", "content": [
            use(caller={"type": "direct"})]}, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "7"}]}],
    },
    "chat": {
        "sound and film": [{"role": "user", "content": [
            {"type": "video_url", "video_url": {"url": "http://x"}},
            {"type": "audio_url", "audio_url": {"url": "http://x"}}]},
            {"role": "assistant", "content": "ok"}, LAST],
        "a refusal": [HI[0], {"role": "assistant", "content": None, "refusal": "no"}, LAST],
        "members of the SDK": [HI[0], {"role": "assistant", "content": "ok", "refusal": None,
                                       "annotations": [], "audio": None, "function_call": None,
                                       "tool_calls": None, "reasoning": None}, LAST],
        "thoughts of routers": [HI[0], {"role": "assistant", "content": "ok", "reasoning_details": [
            {"type": "reasoning.encrypted", "data": "x"}], "reasoning": "hm"}, LAST],
        "calls with an index": [HI[0], {"role": "assistant", "content": "", "tool_calls": [
            {"index": 0, "id": "c", "type": "function", "extra_content": {"google": {}},
             "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "7", "name": "f"}, LAST],
        "a cache mark": [{"role": "system", "content": [
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}, HI[0]],
    },
}
PAST = {f"{route}: {name}": (route, history) for route, histories in HISTORIES.items()
        for name, history in histories.items()}


@each(PAST)
def test_histories(server, case):
    route, history = case
    for answer in answers(server, route, body_of(route, history, limit=2)):
        assert answer.status == 200, answer
        assert "x-inferd-ignored-params" not in answer.headers, answer.headers


# ---- a tool that returned nothing ----

EMPTY = {"one empty part": [{"type": "text", "text": ""}], "a null in a list": [None],
         "a null text": [{"type": "text", "text": None}], "no type": [{"text": ""}],
         "a list of an empty text": [""]}


@each(EMPTY)
def test_empty_results(server, case):
    """Each is the empty text."""
    sizes = set()
    for content in (case, ""):
        histories = {route: [HI[0], *turn(route, "c", content)] for route in ROUTES}
        for route, history in histories.items():
            for answer in answers(server, route, body_of(route, history, limit=1)):
                assert answer.status == 200, (route, answer)
        sizes.update(prompt_sizes(server, *histories.values())[0])
    assert len(sizes) == 1, sizes


# ---- fields of other servers ----

FIELDS = {  # of llama.cpp, Ollama, TGI, text-generation-webui, Google, Cohere
    "grammar": 'root ::= "a"', "json_schema": {"type": "integer"}, "guided_regex": "a",
    "mirostat": 2, "dry_multiplier": 0.8, "xtc_probability": 0.5, "dynatemp_range": 1.5,
    "options": {"temperature": 0, "num_predict": 2}, "n_predict": 3, "num_predict": 3,
    "generationConfig": {"maxOutputTokens": 2}, "parameters": {"max_new_tokens": 2},
    "typical_p": 0.5, "tfs_z": 0.5, "raw": True, "template": "{{ .Prompt }}",
    "system_instruction": "Be brief.", "preamble": "Be brief.", "logit_bias": {"300": 100},
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_that_steer(server, name):
    """Each has an effect that is the same on all routes, or is refused by its name on all."""
    said = {}
    for route in ROUTES:
        body = body_of(route, HI, limit=6, temperature=0)
        whole, streamed = answers(server, route, {**body, name: FIELDS[name]})
        assert whole.status == streamed.status, (whole, streamed)
        assert whole.status in (200, 400), whole
        if whole.status == 400:
            assert name in error_of(whole), whole
        else:
            assert name not in whole.headers.get("x-inferd-ignored-params", ""), whole.headers
            plain = ask(server, (route, False), HI, limit=6, temperature=0)
            done = ask(server, (route, False), HI, limit=6, temperature=0, **{name: FIELDS[name]})
            assert done != plain, (route, done)
        said[route] = whole.status
    assert len(set(said.values())) == 1, said


# ---- keywords of a schema that are null ----

NULLS = {
    "in anyOf": {"type": "object", "properties": {"a": {"anyOf": [
        {"const": 1, "title": None}, {"const": 2, "description": None}], "default": None}},
        "required": ["a"], "oneOf": None, "allOf": None},
    "in $defs": {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "required": ["a"],
                 "$defs": {"x": {"enum": ["y"], "pattern": None, "format": None}}},
    "bounds": {"type": "object", "properties": {"a": {
        "type": "integer", "enum": [3], "minimum": None, "maximum": None, "multipleOf": None,
        "exclusiveMinimum": None}}, "required": ["a"], "minProperties": None,
        "maxProperties": None},
    "lists": {"type": "object", "properties": {"a": {
        "type": "array", "items": {"const": 1}, "maxItems": 2, "minItems": None,
        "uniqueItems": None, "prefixItems": None, "contains": None}}, "required": ["a"]},
    "conditions": {"type": "object", "properties": {"a": {"const": True}}, "required": ["a"],
                   "if": None, "then": None, "else": None, "not": None, "dependentRequired": None,
                   "propertyNames": None, "unevaluatedProperties": None},
}


@each(NULLS)
@pytest.mark.parametrize("place", ["function", "format"])
def test_nulls_in_schemas(server, case, place):
    without = json.loads(json.dumps(case), object_hook=lambda members: {
        key: value for key, value in members.items() if value is not None})
    closed = {**case, "additionalProperties": False}
    if place == "function":
        _, calls, _ = ask_all(server, HI, functions=[{"name": "f", "parameters": closed}],
                              choice="f", limit=64, temperature=0)
        value = calls[0][1]
    else:
        value = json.loads(ask_all(server, HI, schema=closed, limit=64, temperature=0)[0])
    jsonschema.validate(value, without)


# ---- values at their edges ----

@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("top_p", [0, 0.0, -0.0, 1e-300, 1e-7])
def test_least_top_p(server, route, top_p):
    """The most likely token alone, whole and streamed, at any temperature."""
    for stream in (False, True):
        greedy = ask(server, (route, stream), HI, limit=8, temperature=0)
        fields = {"temperature": 1 if route == "messages" else 2, "seed": 5, "top_p": top_p}
        assert ask(server, (route, stream), HI, limit=8, **fields) == greedy


WRONG = {"zero": 0, "minus two": -2, "a half": 1.5, "a text": "7", "a list": [7], "true": True,
         "a large one": 2 ** 70}


@each(WRONG)
@pytest.mark.parametrize("route", ROUTES)
def test_limits_that_are_none(server, route, case):
    body = {**body_of(route, HI), LIMITS[route]: case}
    for answer in answers(server, route, body):
        if case == 2 ** 70 and answer.status == 200:
            continue
        assert answer.status == 400 and LIMITS[route] in error_of(answer), answer


HALVES = {"in a name": {"name": "a\ud800"}, "in thoughts": {"reasoning_content": "\udfff"},
          "in a refusal": {"refusal": "x\ud83d"}, "twice": {"content": "\ud83d\ud83d \udc00"},
          "beside a whole one": {"content": "\ud83d\ude00\ud83d"}}


@each(HALVES)
def test_halves_in_a_history(server, case):
    history = [HI[0], {"role": "assistant", "content": "ok", **case}, LAST]
    for answer in answers(server, "chat", body_of("chat", history, limit=1)):
        assert answer.status == 200, answer
        assert "half_character" in answer.headers["x-inferd-mended"]
    if "content" not in case:
        return
    for route in ("responses", "messages"):
        for answer in answers(server, route, body_of(route, history, limit=1)):
            assert answer.status == 200, answer
            assert "half_character" in answer.headers["x-inferd-mended"]


# ---- a forced call beside a format, and names that were not offered ----

FIVE = {"type": "object", "properties": {"t": {"const": 5}}, "required": ["t"],
        "additionalProperties": False}
BESIDE = {
    "two functions": [function(properties={"a": {"const": 1}}, required=["a"]),
                      function("g", properties={"b": {"const": 2}}, required=["b"])],
    "no parameters": [function(properties={})],
    "a list of choices": [function(properties={"a": {"enum": ["x", "y"]}}, required=["a"])],
    "the schema of the format": [{"name": "f", "parameters": FIVE}],
    "strict": [{**function(properties={"a": {"type": "boolean"}}, required=["a"]),
                "strict": True}],
}


@each(BESIDE)
@pytest.mark.parametrize("choice", ["required", "f"])
def test_forced_beside_a_format(server, case, choice):
    text, calls, _ = ask_all(server, HI, functions=case, choice=choice, schema=FIVE, limit=80,
                             temperature=0)
    schemas = {each["name"]: each["parameters"] for each in case}
    assert text == "" and calls
    for name, arguments in calls:
        jsonschema.validate(arguments, schemas[name])


NAMES = ["get", "get_weather_of", "get_weathe", "weather", "Get_weather", "g"]


@pytest.mark.parametrize("name", NAMES)
def test_names_beside_the_one_that_is_wanted(server, name):
    """The demo model wants get_weather, of which these are pieces or which is one of theirs."""
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    offered = [function(name, properties={"city": {"enum": ["Paris", "Rome"]}}, required=["city"])]
    for view in VIEWS:
        text, calls, _ = ask(server, view, asked, functions=offered, choice="auto", limit=60,
                             temperature=0)
        assert all(called == name for called, _ in calls), calls
        assert "<tool_call>" not in text


# ---- ids of other providers ----

IDS = ["toolu_01A09q90qw90lq917835lq9", "call_00_zX", "chatcmpl-tool-0a1b2c", "functions.f:12",
       "fc_0123456789abcdef", "é", "a b/c", "0"]


@pytest.fixture(scope="module")
def nine(inferd):
    server = Server(inferd, DEMO, "--chat-template",
                    ROOT / "tests/fixtures/templates/mistral.jinja")
    yield server
    assert server.stop() == 0, server.log()


def turn(route, identity, value):
    if route == "chat":
        return [{"role": "assistant", "content": None, "tool_calls": [
            {"id": identity, "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": identity, "content": value}]
    if route == "responses":
        return [{"type": "function_call", "call_id": identity, "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": identity, "output": value}]
    return [{"role": "assistant", "content": [use(id=identity)]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": identity,
                                          "content": value}]}]


def test_ids_of_every_provider_in_one_session(server, nine):
    for each_server in (server, nine):
        for route in ROUTES:
            history = [HI[0]]
            for number, identity in enumerate(IDS):
                history += turn(route, identity, str(number))
            for answer in answers(each_server, route, body_of(route, history, limit=1)):
                assert answer.status == 200, answer


# ---- schemas that were refused ----

SCHEMAS = {
    "items under not": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3,
                        "not": {"items": {"const": 1}}},
    "patternProperties under not": {"type": "object", "properties": {"x1": {"enum": [1, 2]}},
                                    "required": ["x1"], "additionalProperties": False,
                                    "not": {"patternProperties": {"^x": {"const": 1}}}},
    "objects beside keywords": {"enum": [{"a": 1, "b": 2}, {"a": 3}, {"b": 4}], "required": ["a"]},
    "different items": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True,
                        "minItems": 2, "maxItems": 3},
    "contains": {"type": "array", "items": {"enum": [1, 2, 3]}, "contains": {"const": 2},
                 "maxItems": 4},
    "if": {"type": "object", "properties": {"k": {"enum": ["n", "t"]}, "v": {}},
           "required": ["k", "v"], "additionalProperties": False,
           "if": {"properties": {"k": {"const": "n"}}},
           "then": {"properties": {"v": {"enum": [1, 2]}}},
           "else": {"properties": {"v": {"enum": ["a", "b"]}}}},
}


@each(SCHEMAS)
def test_schemas(server, case):
    """What is accepted is kept to on all routes; what is refused is so on all, in one text."""
    checked = server.post("/v1/schema/check", {"schema": case})
    assert checked.status == 200, checked
    if not checked.json["accepted"]:
        for route in ROUTES:
            for answer in answers(server, route, body_of(route, HI, schema=case)):
                assert answer.status == 400, (route, answer)
                assert checked.json["error"]["message"] in error_of(answer), (route, answer)
        return
    for seed in range(2):
        text, _, finish = ask_all(server, HI, schema=case, limit=200, seed=seed, temperature=1)
        if finish == "end":
            jsonschema.validate(json.loads(text), case, jsonschema.Draft202012Validator)


# ---- routes that are not served, origins ----

UNSERVED = ["/v1/images/generations", "/v1/audio/speech", "/v1/files",
            "/v1/fine_tuning/jobs", "/v1/moderations", "/v1/assistants", "/v1/batches",
            "/v1/messages/batches", "/v1/conversations", "/v1/videos", "/slots/0",
            "/v1beta/models/x:generateContent"]


def test_each_route_has_its_own_reason(server):
    reasons = {}
    for path in UNSERVED:
        answer = server.post(path, {})
        assert answer.status in (404, 405, 501), (path, answer)
        reasons[path] = error_of(answer)
        assert len(reasons[path]) > 20, reasons[path]
    assert len(set(reasons.values())) > len(UNSERVED) / 2, reasons


ORIGINS = {  # pattern: (origins that are let in, origins that are not)
    "capacitor://*": (["capacitor://localhost"], ["capacitors://localhost", "http://localhost"]),
    "tauri://*": (["tauri://localhost"], ["tauri:localhost", "null"]),
    "chrome-extension://*": (["chrome-extension://abcdef"], ["moz-extension://abcdef"]),
    "app://obsidian.md": (["app://obsidian.md"], ["app://obsidian.md.x", "app://other"]),
    "http://localhost:3000": (["http://localhost:3000"], ["http://localhost:3001",
                                                           "https://localhost:3000"]),
}


def test_origins(inferd):
    server = Server(inferd, DEMO, "--cors-origin", ",".join(ORIGINS))
    for allowed, others in ORIGINS.values():
        for origin in [*allowed, *others]:
            answer = server.get("/v1/models", headers={"Origin": origin})
            assert (answer.status == 200) == (origin in allowed), (origin, answer)
    assert server.stop() == 0


# ---- fields of the pooling routes ----

PAIR = {"query": "the fox", "documents": ["a dog", "a fox"]}
POOLED = {"bert-rank": {"/rerank": PAIR, "/v2/rerank": PAIR,
                        "/score": {"queries": "the fox", "documents": PAIR["documents"]}},
          "bert-labels": {"/classify": {"input": "a"}, "/pooling": {"input": "a"}},
          "bert-mean": {"/v1/embeddings": {"input": "a"}, "/pooling": {"input": "a"}}}
OF_TYPE = {"string": "x", "integer": 2, "number": 0.5, "boolean": True, "array": ["a"],
           "object": {"a": 1}}


def members_of(path):
    return DOCUMENT["components"]["schemas"][schema_of(path)[1]]["properties"]


def fields_of_pooling():
    """Name: a value of its type, of all fields of the pooling routes but what they pool."""
    fields = {}
    for routes in POOLED.values():
        for path in routes:
            for name, rules in members_of(path).items():
                kind = rules.get("type", "string")
                kinds = [kind] if isinstance(kind, str) else kind
                fields.setdefault(name, OF_TYPE[next(k for k in kinds if k != "null")])
    inputs = ("query", "queries", "documents", "input", "model", "text_1", "text_2", "data_1",
              "data_2", "texts", "messages")
    return {name: value for name, value in fields.items() if name not in inputs}


@pytest.mark.parametrize("kind", POOLED)
def test_no_field_of_a_pooling_route_is_ignored_by_another(start, kind):
    """It is known there and has its effect, or it is refused by name, or the header names it."""
    server = start(ROOT / "tests/vectors/encoders" / kind)
    for path, body in POOLED[kind].items():
        known = members_of(path)
        for name, value in fields_of_pooling().items():
            answer = server.post(path, {**body, name: value})
            assert answer.status in (200, 400), (path, name, answer)
            if answer.status == 400:
                assert name in answer.error["message"] + str(answer.error["param"]), answer
            elif name not in known:
                named = answer.headers.get("x-inferd-ignored-params", "").split(",")
                assert name in named, (path, name, answer)
