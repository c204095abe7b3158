"""Fields at the edges of their limits, and fields of other servers: each is done or refused."""

import json

import pytest

from harness import DEMO, Server, Stream

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
          "additionalProperties": False}
ROUTES = {
    "/v1/completions": {"prompt": "a"},
    "/v1/chat/completions": {"messages": HI},
    "/v1/messages": {"messages": HI, "max_tokens": 4},
    "/v1/responses": {"input": "a"},
}


def post(server, path, **fields):
    return server.post(path, {**ROUTES[path], **fields})


def limit(path, number):
    return {"max_output_tokens" if path == "/v1/responses" else "max_tokens": number}


@pytest.mark.parametrize("path", ROUTES)
def test_top_p_zero_is_greedy(server, path):
    """0 is the least value of OpenAI's: the most likely token, whatever the temperature."""
    texts = set()
    for fields in ({"top_p": 0, "temperature": 1}, {"top_p": 0.0}, {"temperature": 0}):
        answer = post(server, path, seed=7, **{**limit(path, 12), **fields}).json
        kept = answer.get("choices") or answer.get("content") or answer.get("output")
        first = kept[0]
        texts.add(str(first.get("text") or first.get("message") or first["content"][0]["text"]))
    assert len(texts) == 1, texts
    for wrong in (-0.001, 1.001):
        answer = post(server, path, **{**limit(path, 1), "top_p": wrong})
        assert answer.status == 400 and "top_p" in answer.json["error"]["message"], answer


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_limit_on_tokens_at_its_edges(server, path, name):
    """One sentence says what is possible; -1 is no limit, as llama.cpp has it."""
    says = (f"Invalid '{name}': integer below minimum value. "
            "Expected a value >= 1, or -1 for no limit")
    for number in (0, -2, -100):
        answer = post(server, path, **{name: number})
        assert answer.status == 400, answer
        assert answer.error["message"].startswith(f"{says}, but got {number} instead"), answer
    one = post(server, path, **{name: 1}).json["usage"]["completion_tokens"]
    assert one == 1
    free = post(server, path, **{name: -1}, stop=["e"]).json
    assert free["usage"]["completion_tokens"] >= 1
    endless = post(server, path, **{name: -1}, ignore_eos=True, truncate_prompt_tokens=None).json
    assert endless["usage"]["total_tokens"] == server.max_model_len(), endless["usage"]


@pytest.mark.parametrize("path", ROUTES)
def test_extra_body_is_refused_with_its_reason(server, path):
    for stream in (False, True):
        answer = post(server, path, **limit(path, 1), extra_body={"top_k": 1}, stream=stream)
        assert answer.status == 400, answer
        assert "the SDKs unpack it" in answer.json["error"]["message"], answer
    assert post(server, path, **limit(path, 1), extra_body={}).status == 200


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("field", [{"num_ctx": 4096}, {"return_progress": True}])
def test_fields_that_would_change_the_answer_are_refused(server, path, field):
    answer = post(server, path, **limit(path, 1), **field)
    assert answer.status == 400 and next(iter(field)) in answer.json["error"]["message"], answer


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/messages",
                                  "/v1/responses"])
def test_ollamas_format_is_done(server, path):
    def text(**fields):
        answer = post(server, path, **limit(path, 40), temperature=0, **fields)
        assert answer.status == 200, answer
        kept = answer.json
        if "choices" in kept:
            choice = kept["choices"][0]
            return choice.get("text") or choice["message"]["content"]
        return (kept.get("content") or kept["output"][0]["content"])[0]["text"]

    assert json.loads(text(format=SCHEMA)) in ({"a": 1}, {"a": 2})
    assert text(format="json").lstrip().startswith("{")
    assert text(format="") == text()
    answer = post(server, path, **limit(path, 4), format="yaml")
    assert answer.status == 400 and "format" in answer.json["error"]["message"], answer


@pytest.mark.parametrize("stream", [False, True])
def test_output_format_of_messages_is_done(server, stream):
    body = {"messages": HI, "max_tokens": 40, "output_format": {"type": "json_schema",
                                                                "schema": SCHEMA}}
    answer = server.post("/v1/messages", {**body, "stream": stream})
    assert answer.status == 200, answer
    if stream:
        events = [json.loads(line[6:]) for line in answer.body.decode().splitlines()
                  if line.startswith("data: ")]
        text = "".join(event["delta"].get("text", "") for event in events if "delta" in event)
    else:
        text = answer.json["content"][0]["text"]
    assert json.loads(text) in ({"a": 1}, {"a": 2})
    both = server.post("/v1/messages", {**body, "output_config": {"format": body["output_format"]}})
    assert both.status == 400 and "output_format" in both.json["error"]["message"]
    wrong = server.post("/v1/messages", {**body, "output_format": {"type": "yaml"}})
    assert wrong.json["error"]["message"].startswith("output_format.type: expected 'json_schema'")


def test_fields_of_chat_have_their_effect_on_messages(server):
    """They were left out with a header."""
    def text(**fields):
        answer = post(server, "/v1/messages", temperature=1, **fields)
        assert answer.status == 200, answer
        return answer.json["content"][0]["text"]

    bias = text(logit_bias={"300": 100})
    assert bias and bias == text(logit_bias={"300": 100})
    for refused in ({"stop": "a"}, {"n": 2}, {"logprobs": True}, {"reasoning_effort": "low"},
                    {"response_format": {"type": "json_object"}}, {"echo": True}):
        answer = post(server, "/v1/messages", **refused)
        assert answer.status == 400 and next(iter(refused)) in answer.json["error"]["message"]
    assert post(server, "/v1/messages", n=1).status == 200


def test_responses_have_all_members_of_the_reference(server):
    """What Open Responses requires of a ResponseResource."""
    required = {"id", "object", "created_at", "completed_at", "status", "incomplete_details",
                "model", "previous_response_id", "instructions", "output", "error", "tools",
                "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
                "presence_penalty", "frequency_penalty", "top_logprobs", "temperature",
                "reasoning", "usage", "max_output_tokens", "max_tool_calls", "store",
                "background", "service_tier", "metadata", "safety_identifier",
                "prompt_cache_key"}
    whole = post(server, "/v1/responses", max_output_tokens=2, presence_penalty=0.5).json
    assert not required - set(whole), required - set(whole)
    assert whole["presence_penalty"] == 0.5 and whole["frequency_penalty"] == 0
    stream = Stream(server, {"input": "a", "max_output_tokens": 2}, path="/v1/responses")
    for line in stream.response.read().decode().splitlines():
        if line.startswith("data: {") and '"response":{' in line:
            assert '"presence_penalty":' in line and '"frequency_penalty":' in line


@pytest.mark.parametrize("path,reason", [
    ("/v1/chat/completions/batch", "batches of conversations"),
    ("/v1/chat/completions/chatcmpl-1", "stored answers"),
    ("/v1/responses/compact", "compaction"),
    ("/v1/responses/resp_1", "stored answers")])
def test_routes_that_are_not_served_have_their_own_reason(server, path, reason):
    answer = server.post(path, {})
    assert answer.status == 404 and f"does not serve {reason}" in answer.error["message"], answer


def test_schemes_of_programs_may_have_any_host(inferd):
    server = Server(inferd, DEMO, "--cors-origin", "vscode-webview://*,https://app.example")
    for origin, allowed in (("vscode-webview://0a1b2c", True), ("vscode-webview://", True),
                            ("vscode-webviews://x", False), ("https://app.example", True),
                            ("https://other.example", False), ("vscode-webview:x", False)):
        answer = server.get("/v1/models", headers={"Origin": origin})
        assert (answer.status == 200) == allowed, (origin, answer)
        assert (answer.headers.get("access-control-allow-origin") == origin) == allowed, origin
    assert server.stop() == 0


@pytest.mark.parametrize("origin", ["https://*", "http://*", "file://*", "*://*", "x://*.y",
                                    "://*"])
def test_wildcards_of_the_web_are_refused(inferd, origin):
    server = Server(inferd, DEMO, "--cors-origin", origin, wait=False)
    assert server.wait_exit(20) == 78 and "cors_origin" in server.log()
