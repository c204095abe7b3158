"""What clients met on other servers and here, each by its own request on chat, responses and
messages. SESSIONS.md says which test holds what."""

import json
import re

import pytest

from harness import DEMO, ROOT, Server
from views import ROUTES, VIEWS, ask, ask_all, body_of, read

USER = [{"role": "user", "content": "Once upon a time"}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
F = {"name": "f", "parameters": {"type": "object", "properties": {"u": {"type": "string"}},
                                 "required": ["u"], "additionalProperties": False}}
FIXED = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": ["abcdef"]}},
                                     "required": ["a"], "additionalProperties": False}}
GET_WEATHER = {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
ADD = {"name": "add", "description": "Adds two numbers", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}}


# ---- a call that is cut ----

def test_a_call_that_the_limit_cuts_is_a_call_in_every_view(server):
    ends = set()
    for limit in range(1, 25):
        text, calls, finish = ask_all(server, USER, functions=[F], choice="required", limit=limit,
                                      temperature=0)
        assert text == "" and len(calls) <= 1, (limit, text, calls)
        assert finish == "length" or calls, (limit, calls)
        ends.add((finish, len(calls), calls != [] and isinstance(calls[0][1], str)))
        for stream in (False, True):
            body = body_of("chat", USER, functions=[F], choice="required", limit=limit,
                           temperature=0, n=2, stream=stream)
            answer = server.post(ROUTES["chat"], body)
            for index in (0, 1):
                assert read(answer, ("chat", stream), index) == (text, calls, finish)
    assert {("length", 0, False), ("length", 1, True)} <= ends, ends


def test_a_call_of_the_models_own_that_the_limit_cuts(server):
    seen = set()
    for limit in range(1, 25):
        text, calls, _ = ask_all(server, WEATHER, functions=[GET_WEATHER], choice="auto",
                                 limit=limit, temperature=0)
        assert "<" not in text and "get_weather" not in text, (limit, text)
        seen.update(name for name, _ in calls)
    assert seen == {"get_weather"}


def test_a_stop_string_within_arguments(server):
    """The bytes in front of it belong to the call, in every view."""
    text, calls, _ = ask_all(server, USER, functions=[FIXED], choice="required", stop="cd")
    assert text == "" and len(calls) == 1, (text, calls)
    assert calls[0][0] == "f" and re.fullmatch(r'~\{\s*"a":\s*"ab', calls[0][1]), calls


# ---- schemas of functions, and formats beside them ----

NULLS = [
    {"type": "object", "properties": None, "required": None},
    {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"], "maxLength": None,
                                            "description": None, "items": None}},
     "required": ["a"], "additionalProperties": False, "$defs": None},
    {"type": "object", "properties": {"a": {"type": "array", "items": None, "maxItems": 0}},
     "required": ["a"], "additionalProperties": None, "patternProperties": None},
]


@pytest.mark.parametrize("parameters", NULLS, ids=range(len(NULLS)))
@pytest.mark.parametrize("choice", ["required", "f"])
def test_keywords_that_are_null_are_absent(server, parameters, choice):
    _, calls, _ = ask_all(server, USER, functions=[{"name": "f", "parameters": parameters}],
                          choice=choice, limit=48, temperature=0)
    assert calls[0][0] == "f", calls


FIVE = {"type": "object", "properties": {"t": {"const": 5}}, "required": ["t"],
        "additionalProperties": False}


@pytest.mark.parametrize("choice", ["required", "f"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_forced_call_beside_a_format(server, choice, strict):
    """The call follows its own schema; the format binds text, of which there is none."""
    text, calls, _ = ask_all(server, USER, functions=[{**FIXED, "strict": strict}], choice=choice,
                             schema=FIVE)
    assert (text, calls[0]) == ("", ("f", {"a": "abcdef"})), (text, calls)


@pytest.mark.parametrize("view", VIEWS, ids=str)
@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_free_choice_beside_a_format(server, choice, view):
    text, calls, _ = ask(server, view, USER, functions=[FIXED], choice=choice, schema=FIVE)
    assert calls or json.loads(text) == {"t": 5}, (text, calls)
    assert all(call == ("f", {"a": "abcdef"}) for call in calls) and not (text and calls)
    assert choice == "auto" or not calls


def test_a_call_has_an_offered_name(server):
    """The demo model wants get_weather, which is not offered."""
    names = []
    for seed in range(4):
        for view in VIEWS:
            _, calls, _ = ask(server, view, WEATHER, functions=[ADD], choice="auto", seed=seed,
                              temperature=1, limit=80)
            names += [name for name, _ in calls]
    assert set(names) == {"add"}, names


# ---- values at their edges ----

@pytest.mark.parametrize("route,name", [("messages", "max_tokens"),
                                        ("responses", "max_output_tokens")])
def test_limits_of_other_routes_at_their_edges(server, route, name):
    for number in (0, -1, -2):
        answer = server.post(ROUTES[route], body_of(route, USER, **{"limit": number}))
        assert answer.status == 400, answer
        said = answer.json["error"]["message"]
        assert name in said and str(number) in said and "1" in said, said
    assert server.post(ROUTES[route], body_of(route, USER, limit=1)).status == 200


HALVES = ["a\ud83d", "\udc00b", "a\u0000b"]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("half", HALVES, ids=ascii)
def test_half_characters_are_mended(server, route, half):
    """In the question, in a text of the history and in the result of a call."""
    mended = half.replace("\u0000", "\ufffd").encode("utf-16", "surrogatepass") \
        .decode("utf-16", "replace")

    def prompt(text):
        answer = server.post(ROUTES[route], body_of(route, history_of(route, text), limit=1))
        assert answer.status == 200, answer
        usage = answer.json["usage"]
        return (usage.get("input_tokens") or usage["prompt_tokens"],
                "half_character" in answer.headers.get("x-inferd-mended", ""))

    assert prompt(half) == (prompt(mended)[0], True)
    assert prompt(mended)[1] is False


def history_of(route, text):
    """A conversation with a call, in which `text` is said by all."""
    if route == "chat":
        turn = [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "c", "content": text}]
    elif route == "responses":
        turn = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": text}]
    else:
        turn = [{"role": "assistant", "content": [
            {"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c", "content": text}]}]
    return [{"role": "user", "content": text}, *turn, {"role": "assistant", "content": text},
            {"role": "user", "content": text}]


RESULTS = {
    "chat": [{"role": "tool", "tool_call_id": "c", **rest}
             for rest in ({}, {"content": None}, {"content": []}, {"content": ""})],
    "responses": [{"type": "function_call_output", "call_id": "c", **rest}
                  for rest in ({}, {"output": None}, {"output": []}, {"output": ""})],
    "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", **rest}]}
                 for rest in ({}, {"content": None}, {"content": []}, {"content": ""})],
}


@pytest.mark.parametrize("route", ROUTES)
def test_a_tool_that_returned_nothing(server, route):
    """Missing, null and empty results are one history."""
    counts = set()
    for result in RESULTS[route]:
        history = history_of(route, "x")
        history[2] = result
        answer = server.post(ROUTES[route], body_of(route, history, limit=1))
        assert answer.status == 200, (result, answer)
        usage = answer.json["usage"]
        counts.add(usage.get("input_tokens") or usage["prompt_tokens"])
    assert len(counts) == 1, counts


# ---- templates that cannot take what clients send ----

@pytest.fixture(scope="module", params=["gemma2", "mistral"])
def narrow(inferd, request):
    server = Server(inferd, DEMO, "--chat-template",
                    ROOT / f"tests/fixtures/templates/{request.param}.jinja")
    server.template = request.param
    yield server
    assert server.stop() == 0, server.log()


def said(role, text):
    return {"role": role, "content": text}


SHAPES = [
    [said("system", "one"), said("user", "two")],
    [said("user", "one"), said("user", "two")],
    [said("user", "one"), said("assistant", "two"), said("assistant", "three"),
     said("user", "four")],
    [said("assistant", "one"), said("user", "two")],
    [said("user", "one"), said("system", "two"), said("assistant", "three"), said("user", "four")],
]


def prompt_sizes(server, chat, responses, messages):
    """Tokens of the prompt on each route."""
    rendered = server.post("/v1/chat/completions/render", {"messages": chat})
    counts = [server.post("/v1/responses/input_tokens", {"input": responses}),
              server.post("/v1/messages/count_tokens", {"messages": messages})]
    for answer in (rendered, *counts):
        assert answer.status == 200, (server.template, answer)
    return [len(rendered.json["token_ids"]), *(count.json["input_tokens"] for count in counts)], \
        rendered.json["prompt"]


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_conversations_that_the_template_refuses_are_mended(narrow, shape):
    sizes, prompt = prompt_sizes(narrow, shape, shape, shape)
    assert len(set(sizes)) == 1, sizes
    assert all(message["content"] in prompt for message in shape), prompt


def test_ids_of_calls_get_the_form_of_the_template(narrow):
    if narrow.template != "mistral":
        return  # Gemma's template knows no calls
    histories = [json.loads(json.dumps(history_of(route, "x")).replace('"c"', '"toolu_01AbCdEfGh"'))
                 for route in ("chat", "responses", "messages")]
    sizes, prompt = prompt_sizes(narrow, *histories)
    assert len(set(sizes)) == 1, sizes
    assert "toolu" not in prompt and prompt.count("c00000000") >= 1, prompt


# ---- requests as programs of editors write them ----

# The fields that the providers of Cline and Continue send to servers of this kind: what Cline makes
# of a turn of tools, what Continue asks for a chat and for the text at the cursor.
CLINE = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}, "messages": [
    {"role": "system", "content": "You are Cline."},
    {"role": "user", "content": [{"type": "text", "text": "<task>\nhi\n</task>"},
                                 {"type": "text", "text": "<environment_details/>"}]},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"u\":1}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "7"},
    {"role": "user", "content": [{"type": "text", "text": "go on"}]}],
    "tools": [{"type": "function", "function": {**F, "strict": False}}]}
CONTINUE = {"max_tokens": 16, "stream": True, "stream_options": {"include_usage": True},
            "messages": [{"role": "system", "content": "You are in chat mode."},
                         {"role": "user", "content": "hi"}], "stop": ["\n\n"], "tools": None}
CURSOR = {"prompt": "def f(", "suffix": "", "max_tokens": 8, "temperature": 0.01, "stream": True,
          "stop": ["\n\n", "<|endoftext|>"], "presence_penalty": 0, "frequency_penalty": 0}


@pytest.mark.parametrize("path,body", [("/v1/chat/completions", {**CLINE, "max_tokens": 16}),
                                       ("/v1/chat/completions", CONTINUE),
                                       ("/v1/completions", CURSOR)],
                         ids=["cline", "continue", "continue, at the cursor"])
def test_requests_of_editors(server, path, body):
    answer = server.post(path, {**body, "model": "demo"})
    assert answer.status == 200 and answer.body.endswith(b"data: [DONE]\n\n"), answer
    chunks = [json.loads(line[6:]) for line in answer.body.decode().splitlines()
              if line.startswith("data: {")]
    usage = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    assert len(usage) == ("stream_options" in body)
    assert "x-inferd-ignored-params" not in answer.headers, answer.headers
