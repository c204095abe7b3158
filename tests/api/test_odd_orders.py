"""Conversations in odd orders, with roles of other APIs, against every chat template of the tests:
each is rendered, or the role of its last message is refused by name. A template's own words about
what it does not take reach no client whose history can be mended."""

import json
import random

import pytest

from harness import DEMO, ROOT, Server

FIXTURES = ROOT / "tests/fixtures"
TEMPLATES = sorted(str(path.relative_to(FIXTURES)) for folder in ("templates", "calls")
                   for path in (FIXTURES / folder).glob("*.jinja"))
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d",
                                           "parameters": {"type": "object", "properties": {}}}}]
ROLES = ["human", "ai", "model", "bot", "Assistant", "USER", "System", "ipython", "critic",
         "environment", "latest_reminder"]
IDS = ["c", "call_abcdefghi", "toolu_01", "abcdefghi", "functions.f:0"]
ARGUMENTS = ["{}", '{"a": 1}', "", '{"a', "null", "[1]", '"text"']


@pytest.fixture(scope="module", name="model")
def of_a_model_with_all_special_tokens(tmp_path_factory):
    """Llama 2's template adds bos_token to text."""
    folder = tmp_path_factory.mktemp("model")
    for path in DEMO.iterdir():
        (folder / path.name).symlink_to(path.resolve())
    config = json.loads((DEMO / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**config, "bos_token": "<|endoftext|>"}))
    return folder


def calls(rng, text):
    """An answer with calls, and results for most of them, in some order."""
    ids = [rng.choice(IDS) + str(i or "") for i in range(rng.randint(1, 3))]
    parts = [{"type": "text", "text": text}]
    content = rng.choice([None, "", text, text, parts, []])
    yield {"role": "assistant", "content": content, "tool_calls": [
        {"id": identity, "type": "function",
         "function": {"name": "f", "arguments": rng.choice(ARGUMENTS)}} for identity in ids]}
    for identity in rng.sample(ids, rng.randint(0, len(ids))):
        yield {"role": "tool", "tool_call_id": identity,
               "content": rng.choice([text + identity, "", None, []])}


def draw(rng):
    messages = []
    for i in range(rng.randint(1, 9)):
        text = f"w{i}w"
        role = rng.choice(["system", "user", "user", "assistant", "assistant", "calls", "tool",
                           "developer", "function", "other"])
        parts = [{"type": "text", "text": text}]
        if role == "calls":
            messages += calls(rng, text)
        elif role == "tool":
            messages.append({"role": role, "tool_call_id": rng.choice(IDS), "content": text})
        elif role == "function":
            messages.append({"role": role, "name": "f", "content": text})
        elif role == "assistant":
            messages.append({"role": role, "content": rng.choice([text, text, "", None, parts]),
                             **rng.choice([{}, {}, {"tool_calls": []}])})
        elif role == "other":
            messages.append({"role": rng.choice(ROLES), "content": text})
        else:
            messages.append({"role": role, "content": rng.choice([text, text, parts])})
    return messages


def takes_tools(server):
    body = {"messages": [{"role": "user", "content": "a"}], "tools": TOOLS}
    return server.post("/v1/chat/completions/render", body).status == 200


@pytest.mark.parametrize("name", TEMPLATES)
def test_odd_orders(inferd, model, name):
    rng = random.Random(41)
    server = Server(inferd, model, "--chat-template", FIXTURES / name)
    kinds = [{}, {"tools": TOOLS}] if takes_tools(server) else [{}]
    rendered = 0
    for number in range(40):
        messages, tools = draw(rng), kinds[number % len(kinds)]
        answer = server.post("/v1/chat/completions/render", {"messages": messages, **tools})
        if answer.status != 200:
            last = f"messages[{len(messages) - 1}].role"
            assert answer.error["param"] == last, (messages, answer)
            assert messages[-1]["role"] in answer.error["message"], answer
            assert messages[-1]["role"] in ("critic", "environment", "latest_reminder")
            continue
        rendered += 1
        prompt = answer.json["prompt"]
        assert "None" not in prompt, (messages, prompt)
        for message in messages:
            text = message["content"] or ""
            text = "".join(part["text"] for part in text) if isinstance(text, list) else text
            assert text in prompt, (messages, prompt, answer.headers)
    assert rendered > 30
    assert server.stop() == 0, server.log()


def say(role, text):
    return {"role": role, "content": text}


def calling(*ids, content=None):
    return {"role": "assistant", "content": content, "tool_calls": [
        {"id": identity, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for identity in ids]}


def result(identity, text):
    return {"role": "tool", "tool_call_id": identity, "content": text}


# (template, the messages, what they become, a word of x-inferd-mended)
MENDED = [
    ("llama3", [say("user", "a"), calling("x", "y"), result("y", "2"), result("x", "1"),
                say("user", "b")],
     [say("user", "a"), calling("x"), result("x", "1"), calling("y"), result("y", "2"),
      say("user", "b")], "messages[1].tool_calls[1]:message"),
    ("gpt_oss", [say("user", "a"), calling("x", "y"), result("x", "1"), result("y", "2")],
     [say("user", "a"), calling("x"), result("x", "1"), calling("y"), result("y", "2")],
     "messages[1].tool_calls[1]:message"),
    ("gpt_oss", [say("user", "a"), {**calling("x", "y", content="b"), "reasoning_content": "t"},
                 result("x", "1"), result("y", "2")],
     [say("user", "a"), say("assistant", "b"), {**calling("x"), "reasoning_content": "t"},
      result("x", "1"), calling("y"), result("y", "2")], "messages[1].content:message"),
    ("llama3", [say("user", "a"), calling("x", content="b"), result("x", "1"), say("user", "c")],
     [say("user", "a"), say("assistant", "b"), calling("x"), result("x", "1"), say("user", "c")],
     "messages[1].content:message"),
    ("mistral", [say("user", "a"), calling("x", content="b"), result("x", "1"), say("ai", "c")],
     [say("user", "a"), say("assistant", "b"), say("user", "[no message]"), calling("x"),
      result("x", "1"), say("assistant", "c")], "messages[1].content:message"),
    ("mistral", [say("system", "s"), say("user", "a"), calling("x"), result("x", "1")],
     [say("user", "s\na"), calling("x"), result("x", "1")], "messages[0]:system_as_user"),
    ("mistral", [say("user", "a"), say("assistant", "b"), calling("x", content="c"),
                 result("x", "1")],
     [say("user", "a"), say("assistant", "b\nc"), say("user", "[no message]"), calling("x"),
      result("x", "1")], "messages[2]:joined"),
    ("gpt_oss", [say("user", "a"), calling("x"), say("user", "b"), result("x", "1")],
     [say("user", "a"), calling("x"), say("user", "b"), say("user", "1")],
     "messages[3]:result_without_call"),
    ("gemma3", [say("system", "a"), say("developer", "b"), say("user", "c")],
     [say("system", "a\n\nb"), say("user", "c")], "messages[1]:joined"),
    ("mistral", [say("system", "a")], [say("user", "a")], "messages[0]:system_as_user"),
    ("mistral", [say("user", "a"), say("critic", "b"), say("assistant", "c"), say("user", "d")],
     [say("user", "a\nb"), say("assistant", "c"), say("user", "d")], "messages[1]:role"),
    ("llama3", [calling("x"), result("x", "1"), say("user", "b")],
     [say("user", "[no message]"), calling("x"), result("x", "1"), say("user", "b")],
     "messages[0]:question_missing"),
    ("qwen3", [say("user", "a"), {"role": "function", "name": "f", "content": "b"}],
     [say("user", "a"), result("", "b")], "messages[1]:result_without_call"),
    ("qwen3", [say("Human", "a"), say("AI", "b"), say("human", "c")],
     [say("user", "a"), say("assistant", "b"), say("user", "c")], "messages[0]:role"),
    ("smollm2", [say("user", "a"), calling("x"), result("x", "1"), say("user", "b")],
     [say("user", "a"), calling("x", content=""), result("x", "1"), say("user", "b")], ""),
    ("qwen3_coder", [say("user", "a"), {"role": "assistant", "content": None, "tool_calls": [
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": "null"}}]},
                     result("x", "1")], [say("user", "a"), calling("x"), result("x", "1")], ""),
]


@pytest.mark.parametrize("case", range(len(MENDED)))
def test_what_it_becomes(inferd, model, case):
    name, sent, plain, says = MENDED[case]
    server = Server(inferd, model, "--chat-template", FIXTURES / f"templates/{name}.jinja")
    tools = {"tools": TOOLS} if takes_tools(server) and "x" in json.dumps(sent) else {}
    prompts = [server.post("/v1/chat/completions/render", {"messages": messages, **tools})
               for messages in (sent, plain)]
    assert prompts[0].status == 200 and prompts[0].json["prompt"] == prompts[1].json["prompt"]
    assert says in prompts[0].headers.get("x-inferd-mended", ""), prompts[0].headers
    assert server.stop() == 0, server.log()


def test_off_the_words_of_the_template_say_whose_they_are(inferd, model):
    server = Server(inferd, model, "--chat-template", FIXTURES / "templates/mistral.jinja",
                    "--no-lenient-history")
    answer = server.post("/v1/chat/completions", {"messages": [say("user", "a"), say("user", "b")]})
    assert (answer.status, answer.error["param"]) == (400, "messages")
    assert "does not take these 'messages': After the system" in answer.error["message"]
    answer = server.post("/v1/chat/completions", {"messages": [say("ai", "a"), say("user", "b")]})
    assert (answer.status, answer.error["param"]) == (400, "messages[0].role")
    assert "'ai'" in answer.error["message"] and "'assistant'" in answer.error["message"]
    assert server.stop() == 0, server.log()
