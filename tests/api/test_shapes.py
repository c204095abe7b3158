"""Templates that cannot take what clients send: at start each shape of conversation is rendered
once, what is refused is logged by name, and the conversations of clients are mended to what is
taken."""

import pytest

from harness import DEMO, ROOT, Server

TEMPLATES = ROOT / "tests/fixtures/templates"
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d",
                                           "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture(scope="module", params=["gemma2", "mistral", "gemma3", "llama3"])
def served(inferd, request):
    server = Server(inferd, DEMO, "--chat-template", TEMPLATES / f"{request.param}.jinja")
    server.template = request.param
    yield server
    assert server.stop() == 0, server.log()


def says(role, text):
    return {"role": role, "content": text}


def calling(identity, content=None):
    return {"role": "assistant", "content": content, "tool_calls": [
        {"id": identity, "type": "function", "function": {"name": "f", "arguments": "{}"}}]}


def result(identity, text="seven"):
    return {"role": "tool", "tool_call_id": identity, "name": "f", "content": text}


SHAPES = {
    "a system message": [says("system", "one"), says("user", "two")],
    "a system message behind others": [says("user", "one"), says("system", "two"),
                                       says("assistant", "three"), says("user", "four")],
    "two messages of the user in a row": [says("user", "one"), says("user", "two")],
    "two messages of the assistant in a row": [says("user", "one"), says("assistant", "two"),
                                               says("assistant", "three"), says("user", "four")],
    "a message of the assistant at the start": [says("assistant", "one"), says("user", "two")],
}
CALLS = {
    "a call without text": [says("user", "one"), calling("call_abcdefghijklm"),
                            result("call_abcdefghijklm"), says("assistant", "two"),
                            says("user", "three")],
    "a result without its call": [says("user", "one"), result("x"), says("assistant", "two"),
                                  says("user", "three")],
    "a call without a result": [says("user", "one"), calling("call_abcdefghijklm", "ok"),
                                says("user", "two"), says("assistant", "three"),
                                says("user", "four")],
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_rendered(served, name):
    answer = served.post("/v1/chat/completions/render", {"messages": SHAPES[name]})
    assert answer.status == 200, (served.template, answer)
    for message in SHAPES[name]:
        assert message["content"] in answer.json["prompt"], (served.template, answer)
    refused = f"the chat template does not take {name}\"" in served.log()
    assert refused == ("x-inferd-mended" in answer.headers), (served.template, answer.headers)


@pytest.mark.parametrize("name", CALLS)
def test_every_shape_of_calls_is_rendered(served, name):
    tools = {} if served.template in ("gemma2", "gemma3") else {"tools": TOOLS}  # they know none
    answer = served.post("/v1/chat/completions/render", {"messages": CALLS[name], **tools})
    assert answer.status == 200, (served.template, answer)
    assert "None" not in answer.json["prompt"]
    if not tools:
        assert "messages[1]" in answer.headers["x-inferd-mended"]
    for message in CALLS[name]:
        if message["role"] == "assistant":
            continue  # Llama's template does not show the text beside a call
        assert message["content"] in answer.json["prompt"], (served.template, answer)


def test_a_lost_result_between_two_questions(served):
    """Between messages of the user that must alternate a result is the user's, too; and one that
    was the system's begins a conversation."""
    for messages in ([says("user", "one"), result("x"), says("user", "two")],
                     [result("x")], [says("system", "one"), says("assistant", "two"),
                                     says("user", "three")]):
        answer = served.post("/v1/chat/completions/render", {"messages": messages})
        assert answer.status == 200, (served.template, answer)
        for message in messages:
            assert message["content"] in answer.json["prompt"], (served.template, answer)


def test_ids_of_other_providers_are_mapped_one_to_one(served):
    """Mistral's template takes nine letters and digits alone. Ids stay different, the same call has
    the same id in every turn, and an id that fits is not touched."""
    if served.template != "mistral":
        return
    turns = [says("user", "one"), calling("call_abcdefghijklm", "a"),
             result("call_abcdefghijklm"), calling("toolu_01", "b"), result("toolu_01"),
             calling("abcdefghi", "c"), result("abcdefghi"), says("assistant", "ok"),
             says("user", "two")]
    longer = turns + [says("assistant", "ok"), says("user", "three")]
    prompts = [served.post("/v1/chat/completions/render", {"messages": each}).json["prompt"]
               for each in (turns, longer)]
    assert prompts[0].count("c00000000") >= 1 and prompts[0].count("c00000001") >= 1, prompts[0]
    assert "abcdefghi" in prompts[0] and "toolu" not in prompts[0]
    assert prompts[1].startswith(prompts[0].rstrip()), prompts


def test_off_the_template_refuses(inferd):
    server = Server(inferd, DEMO, "--chat-template", TEMPLATES / "gemma2.jinja",
                    "--no-lenient-history")
    answer = server.post("/v1/chat/completions/render", {"messages": SHAPES["a system message"]})
    assert answer.status == 400, answer
    assert server.stop() == 0


# The names that families have for how much a model reasons (the last: Kimi K3's, MiniMax M3's).
EFFORT = ("{{ messages[0].content }}/{{ enable_thinking }}/{{ thinking }}/{{ thinking_mode }}/"
          "{{ thinking_effort }}/{{ thinking_budget }}{# enabled or disabled #}")


def test_an_effort_means_the_same_on_all_routes(inferd, tmp_path):
    (tmp_path / "t.jinja").write_text(EFFORT)
    server = Server(inferd, DEMO, "--chat-template", tmp_path / "t.jinja")
    try:
        for effort, says_it in (("minimal", "True/True/enabled/low/"),
                                ("high", "True/True/enabled/high/"),
                                ("xhigh", "True/True/enabled/max/"),
                                ("none", "False/False/disabled//0")):
            user = [{"role": "user", "content": "hi"}]
            chat = server.post("/v1/chat/completions/render",
                               {"messages": user, "reasoning_effort": effort})
            assert chat.json["prompt"] == "hi/" + says_it
            responses = server.post("/v1/responses", {"input": "hi", "max_output_tokens": 1,
                                                      "reasoning": {"effort": effort}})
            messages = server.post("/v1/messages/count_tokens", {
                "messages": user, "output_config": {"effort": effort}})
            tokens = len(chat.json["token_ids"])
            assert responses.json["usage"]["input_tokens"] == tokens
            assert messages.json["input_tokens"] == tokens
            for answer in (chat, responses, messages):
                assert "x-inferd-ignored-params" not in answer.headers
        off = server.post("/v1/messages/count_tokens", {"messages": user,
                                                        "thinking": {"type": "disabled"}})
        assert off.json["input_tokens"] == tokens
    finally:
        assert server.stop() == 0, server.log()
