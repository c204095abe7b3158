"""Histories of any provider: what is only in the history is mended and named, what steers the
answer is done or refused. Each case is a conversation as a client sent it and the plain one that
it must become: both give the same prompt."""

import json

import pytest

from harness import DEMO, Server

USER = {"role": "user", "content": "hi"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def call(name="f", arguments="{}", identity="call_1"):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls, **members):
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **members}


def result(content="7", identity="call_1", **members):
    return {"role": "tool", "tool_call_id": identity, "content": content, **members}


LAST = {"role": "user", "content": "and?"}

# (name, messages of chat, the plain messages, a word of x-inferd-mended)
CHAT = [
    ("null result", [USER, calling(call()), result(None), LAST],
     [USER, calling(call()), result(""), LAST], "messages[2].content:empty"),
    ("empty result", [USER, calling(call()), result([]), LAST],
     [USER, calling(call()), result(""), LAST], "messages[2].content:empty"),
    ("result without content",
     [USER, calling(call()), {"role": "tool", "tool_call_id": "call_1"}],
     [USER, calling(call()), result("")], "messages[2].content:empty"),
    ("no parts beside a call", [USER, calling(call(), content=[]), result(), LAST],
     [USER, calling(call()), result(), LAST], "messages[1].content:empty"),
    ("empty message of the user", [{"role": "user", "content": None}, LAST],
     [{"role": "user", "content": ""}, LAST], "messages[0].content:empty"),
    ("an image", [{"role": "user", "content": [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
        {"role": "assistant", "content": "ok"}, LAST],
     [{"role": "user", "content": "see\n[image left out]"}, {"role": "assistant", "content": "ok"},
      LAST], "messages[0].content[1]:image_left_out"),
    ("sound", [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, LAST],
     [{"role": "user", "content": "[audio left out]"}, LAST], "audio_left_out"),
    ("a file", [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}, LAST],
     [{"role": "user", "content": "[file left out]"}, LAST], "file_left_out"),
    ("a picture of a tool", [USER, calling(call()), result([{"type": "image_url"}])],
     [USER, calling(call()), result("[image left out]")], "image_left_out"),
    ("parts of responses", [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                            {"role": "assistant", "content": [{"type": "output_text",
                                                               "text": "b"}]}, LAST],
     [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, LAST], "text_part"),
    ("texts in a list", [{"role": "user", "content": ["a", "b"]}, LAST],
     [{"role": "user", "content": "a\nb"}, LAST], "text_part"),
    ("half an emoji", [{"role": "user", "content": "a\ud83d"}, LAST],
     [{"role": "user", "content": "a\ufffd"}, LAST], "half_character"),
    ("a nul", [{"role": "user", "content": "a\u0000b"}, LAST],
     [{"role": "user", "content": "a\ufffdb"}, LAST], "half_character"),
    ("half an emoji in the question", [{"role": "user", "content": "\udc00"}],
     [{"role": "user", "content": "\ufffd"}], "half_character"),
    ("a result that is a number", [USER, calling(call()), result(7), LAST],
     [USER, calling(call()), result("7"), LAST], "messages[2].content:json"),
    ("a result that is an object", [USER, calling(call()), result({"a": [1, None]}), LAST],
     [USER, calling(call()), result('{"a":[1,null]}'), LAST], "messages[2].content[0]:json"),
    ("a result that is a list of objects", [USER, calling(call()), result([{"a": 1}, True])],
     [USER, calling(call()), result('{"a":1}\ntrue')], "messages[2].content[1]:json"),
    ("one part without its list", [{"role": "user", "content": {"type": "text", "text": "a"}},
                                   LAST],
     [{"role": "user", "content": "a"}, LAST], "messages[0].content:text_part"),
    ("parts without a type", [{"role": "user", "content": [{"text": "a"}, None,
                                                           {"type": None, "text": "b"}]}, LAST],
     [{"role": "user", "content": "a\n\nb"}, LAST], "messages[0].content[1]:part_left_out"),
    ("a call without arguments",
     [USER, calling({"id": "call_1", "type": "function", "function": {"name": "f"}}), result(),
      LAST], [USER, calling(call()), result(), LAST], "messages[1].tool_calls:arguments"),
    ("ids that are numbers", [USER, calling(call(identity=5)), result(identity=5), LAST],
     [USER, calling(call()), result(), LAST], "messages[1].tool_calls:id"),
    ("an answer that was sound", [USER, {"role": "assistant", "audio": {"id": "a"}}, LAST],
     [USER, {"role": "assistant", "content": "[audio left out]"}, LAST], "messages[1].audio"),
    ("the first form of calls",
     [USER, {"role": "assistant", "content": None,
             "function_call": {"name": "f", "arguments": "{}"}},
      {"role": "function", "name": "f", "content": "7"}, LAST],
     [USER, calling(call()), result(), LAST], "function_call:tool_calls"),
    ("a custom call", [USER, calling({"id": "call_1", "type": "custom",
                                      "custom": {"name": "f", "input": "x"}}), result(), LAST],
     [USER, calling(call(arguments='{"input": "x"}')), result(), LAST], "custom_call"),
    ("arguments that are a list",
     [USER, calling(call(arguments=[1])), result(), LAST],
     [USER, calling(call(arguments="[1]")), result(), LAST], "arguments"),
    ("a call of another type", [USER, calling({**call(), "type": "tool"}), result(), LAST],
     [USER, calling(call()), result(), LAST], "tool_calls:type"),
    ("a call without a name", [USER, calling({**call(), "function": {"arguments": "{}"}}), LAST],
     [USER, calling(call(name="unknown")), LAST], "call_without_name"),
    ("two calls with one id", [USER, calling(call()), result(), LAST, calling(call()), result("8"),
                               LAST],
     [USER, calling(call()), result(), LAST, calling(call(identity="b")), result("8", "b"), LAST],
     "messages[4].tool_calls:duplicate_id"),
    ("a result without an id", [USER, calling(call()), {"role": "tool", "content": "7"}, LAST],
     [USER, calling(call()), result(), LAST], "result_without_id"),
    ("blocks of calls and results", [USER, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [
            {"type": "text", "text": "go"},
            {"type": "tool_result", "tool_use_id": "call_1", "content": "7"}]}],
     [USER, calling(call(arguments='{"a":1}'), content="so", reasoning_content="hm"), result(),
      {"role": "user", "content": "go"}],
     "messages[1].content[0]:reasoning_content,messages[1].content[2]:tool_calls,"
     "messages[2].content[1]:tool_message"),
    ("a result as the last word", [USER, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": [
            {"type": "text", "text": "7"}, {"type": "image", "source": {}}]}]}],
     [USER, calling(call()), result("7\n[image left out]")],
     "messages[2].content[0]:tool_message,messages[2].content[0].content[1]:image_left_out"),
    ("two results of one message", [USER, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {}},
        {"type": "tool_use", "id": "b", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "b", "content": "8"},
            {"type": "tool_result", "tool_use_id": "call_1"}]}, LAST],
     [USER, calling(call(), call(identity="b")), result("8", "b"), result(""), LAST],
     "messages[2].content[1]:tool_message"),
    ("a search that another server made", [USER, {"role": "assistant", "content": [
        {"type": "server_tool_use", "id": "call_1", "name": "f", "input": {"q": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "call_1", "content": [
            {"type": "web_search_result", "title": "t", "url": "http://x"}]},
        {"type": "text", "text": "ok"}]}, LAST],
     [USER, calling(call(arguments='{"q":"x"}')), result("t\nhttp://x"),
      {"role": "assistant", "content": "ok"}, LAST], "messages[1].content[1]:tool_message"),
    ("a block without an id", [USER, {"role": "assistant", "content": [
        {"type": "tool_use", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "7"}]}, LAST],
     [USER, calling(call()), result(), LAST], "result_without_id"),
    ("a thought in code", [USER, {"role": "assistant", "content": [
        {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "ok"}]}, LAST],
     [USER, {"role": "assistant", "content": "ok"}, LAST],
     "messages[1].content[0]:thinking_left_out"),
    ("what follows moved blocks keeps its place", [USER, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "call_1", "content": "7"},
            {"type": "tool_result", "tool_use_id": "call_1", "content": "7"}]},
        {"role": "user", "content": None}, LAST],
     [USER, calling(call()), result(), result(), {"role": "user", "content": ""}, LAST],
     "messages[3].content:empty"),
    ("nulls among the messages", [None, USER, None, {"role": "assistant", "content": "ok"}, LAST,
                                  None],
     [USER, {"role": "assistant", "content": "ok"}, LAST],
     "messages[0]:message_left_out,messages[2]:message_left_out,messages[5]:message_left_out"),
    ("texts among the messages", ["hi", {"role": "assistant", "content": "ok"}, "and?"],
     [USER, {"role": "assistant", "content": "ok"}, LAST],
     "messages[0]:user_message,messages[2]:user_message"),
    ("messages without a role", [{"content": "hi"}, {"role": None, "content": None,
                                                     "tool_calls": [call()]},
                                 {"tool_call_id": "call_1", "content": "7"}, {"content": "and?"}],
     [USER, calling(call()), result(), LAST],
     "messages[0]:role,messages[1]:role,messages[2]:role,messages[3]:role"),
    ("a result without its call", [USER, result(), LAST], [USER, result(), LAST],
     "messages[1]:result_without_call"),
]


@pytest.fixture(scope="module")
def strict(inferd):
    server = Server(inferd, DEMO, "--no-lenient-history")
    yield server
    assert server.stop() == 0, server.log()


def rendered(server, messages):
    answer = server.post("/v1/chat/completions/render", {"messages": messages, "tools": TOOLS})
    assert answer.status == 200, answer
    return answer.json["prompt"], answer.headers.get("x-inferd-mended", "")


@pytest.mark.parametrize("name,sent,plain,says", CHAT, ids=[row[0] for row in CHAT])
def test_chat(server, name, sent, plain, says):
    del name
    prompt, mended = rendered(server, sent)
    wanted, nothing = rendered(server, plain)
    assert prompt == wanted
    assert says in mended
    assert nothing == "" or sent == plain
    tokens = server.post("/tokenize", {"messages": sent, "tools": TOOLS})
    if "half" not in says:
        assert tokens.json["tokens"] == server.tokens(wanted), tokens


def test_a_right_history_is_not_touched(server):
    for _, _, plain, _ in CHAT[:-1]:
        assert rendered(server, plain)[1] == ""


STAYS = [  # refused although histories are mended: it steers the answer
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
     "unsupported_content_part"),
    ({"messages": [{"role": "user", "content": []}]}, "invalid_value"),
    ({"messages": [{"role": "user", "content": None}]}, "missing_required_parameter"),
    ({"messages": [USER], "stop": "a\ud83d"}, "invalid_json"),
    ({"messages": [USER], "tools": [{"type": "function", "function": {
        "name": "f", "description": "\ud83d"}}]}, "invalid_json"),
    ({"messages": []}, "invalid_value"),
    ({"messages": [USER, 5]}, "invalid_type"),
]


@pytest.mark.parametrize("body,code", STAYS)
def test_what_steers_stays_strict(server, strict, body, code):
    for each in (server, strict):
        answer = each.post("/v1/chat/completions", {**body, "max_tokens": 1})
        assert (answer.status, answer.error["code"] or "invalid_value") == (400, code), answer


def test_a_question_without_a_role_is_one(server):
    for messages, code in (([None], "invalid_value"),
                           ([{"content": [{"type": "image_url"}]}], "unsupported_content_part"),
                           ([USER, {"content": None}], "missing_required_parameter")):
        answer = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
        assert (answer.status, answer.error["code"] or "invalid_value") == (400, code), answer


def test_the_switch_makes_histories_strict(strict):
    accepted = {"two calls with one id", "a result without its call"}  # the template takes them
    for name, sent, _, _ in CHAT:
        answer = strict.post("/v1/chat/completions/render", {"messages": sent, "tools": TOOLS})
        assert answer.status == (200 if name in accepted else 400), (name, answer)
        assert "x-inferd-mended" not in answer.headers


# ---- /v1/responses ----

SAID = {"role": "assistant", "content": "ok"}

FUNCTION_CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}


def output(value):
    return {"type": "function_call_output", "call_id": "call_1", "output": value}


# (name, items, the plain messages of chat, a word of x-inferd-mended)
RESPONSES = [
    ("an output that is a number", [USER, FUNCTION_CALL, output(7), LAST],
     [USER, calling(call()), result(), LAST], "input[2].output:json"),
    ("an output that is an object", [USER, FUNCTION_CALL, output({"a": 1}), LAST],
     [USER, calling(call()), result('{"a":1}'), LAST], "input[2].output:json"),
    ("an output of parts without a type", [USER, FUNCTION_CALL, output([{"text": "7"}]), LAST],
     [USER, calling(call()), result(), LAST], "input[2].output[0]:json"),
    ("a reference without a type", [USER, {"id": "msg_1"}, SAID, LAST], [USER, SAID, LAST],
     "input[1]:item_reference_left_out"),
    ("a search", [USER, {"type": "web_search_call", "id": "ws_1", "status": "completed",
                         "action": {"type": "search", "query": "q"}}, SAID, LAST],
     [USER, SAID, LAST], "input[1]:web_search_call_left_out"),
    ("a shell", [USER, {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1",
                        "action": {"type": "exec", "command": ["ls"], "env": {}},
                        "status": "completed"},
                 {"type": "local_shell_call_output", "id": "call_1", "output": "a.txt"}, LAST],
     [USER, calling(call("local_shell", '{"type":"exec","command":["ls"],"env":{}}')),
      result("a.txt"), LAST], ""),
    ("a shell whose output names the item",
     [USER, {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1",
             "action": {"type": "exec"}},
      {"type": "local_shell_call_output", "id": "lsh_1", "output": "a.txt"}, LAST],
     [USER, calling(call("local_shell", '{"type":"exec"}')), result("a.txt"), LAST], ""),
    ("the newer shell", [USER, {"type": "shell_call", "call_id": "call_1",
                                "action": {"commands": ["ls", "pwd"]}},
                         {"type": "shell_call_output", "call_id": "call_1", "output": [
                             {"stdout": "a", "stderr": "b",
                              "outcome": {"type": "exit", "exit_code": 0}}]}, LAST],
     [USER, calling(call("shell", '{"commands":["ls","pwd"]}')), result("a\nb"), LAST], ""),
    ("a patch", [USER, {"type": "apply_patch_call", "call_id": "call_1",
                        "operation": {"type": "delete_file", "path": "x"}},
                 {"type": "apply_patch_call_output", "call_id": "call_1", "status": "completed",
                  "output": "done"}, LAST],
     [USER, calling(call("apply_patch", '{"type":"delete_file","path":"x"}')), result("done"),
      LAST], ""),
    ("a screen", [USER, {"type": "computer_call", "call_id": "call_1", "id": "cu_1",
                         "action": {"type": "screenshot"}},
                  {"type": "computer_call_output", "call_id": "call_1",
                   "output": {"type": "computer_screenshot", "image_url": "x"}}, LAST],
     [USER, calling(call("computer", '{"type":"screenshot"}')), result("[image left out]"), LAST],
     "input[2].output:image_left_out"),
    ("code that ran", [USER, {"type": "code_interpreter_call", "id": "call_1", "code": "1+1",
                              "container_id": "c", "outputs": [{"type": "logs", "logs": "2"}],
                              "status": "completed"}, LAST],
     [USER, calling(call("code_interpreter", '{"code":"1+1"}')), result("2"), LAST], ""),
    ("a call of an MCP server", [USER, {"type": "mcp_call", "id": "call_1", "server_label": "s",
                                        "name": "f", "arguments": "{}", "output": "7"}, LAST],
     [USER, calling(call()), result(), LAST], ""),
    ("an MCP call that failed", [USER, {"type": "mcp_call", "id": "call_1", "server_label": "s",
                                        "name": "f", "arguments": "{}", "error": "no"}, LAST],
     [USER, calling(call()), result("no"), LAST], ""),
    ("tools of an MCP server", [{"type": "mcp_list_tools", "id": "m", "server_label": "s",
                                 "tools": []}, USER], [USER], "mcp_list_tools_left_out"),
    ("approvals", [USER, {"type": "mcp_approval_request", "id": "a", "name": "f",
                          "arguments": "{}", "server_label": "s"},
                   {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
                   LAST], [USER, LAST], "mcp_approval_request_left_out"),
    ("a picture that was made", [USER, {"type": "image_generation_call", "id": "ig", "result": "x",
                                        "status": "completed"}, LAST],
     [USER, LAST], "input[1]:image_left_out"),
    ("a search in files", [USER, {"type": "file_search_call", "id": "fs", "queries": ["q"],
                                  "results": None, "status": "completed"}, SAID, LAST],
     [USER, SAID, LAST], "file_search_left_out"),
    ("a compaction", [{"type": "compaction", "id": "c", "encrypted_content": "x"}, USER], [USER],
     "compaction_left_out"),
    ("a reference", [{"type": "item_reference", "id": "msg_1"}, USER], [USER],
     "item_reference_left_out"),
    ("thoughts in code", [USER, {"type": "reasoning", "id": "rs", "summary": [],
                                 "encrypted_content": "x"}, SAID, LAST], [USER, SAID, LAST], ""),
    ("thoughts without a text", [USER, {"type": "reasoning", "id": "rs", "summary": [
        {"type": "encrypted", "data": "x"}]}, SAID, LAST], [USER, SAID, LAST],
     "input[1].summary[0]:encrypted_left_out"),
    ("a result without its call", [USER, {"type": "function_call_output", "call_id": "call_1",
                                          "output": "7"}, LAST],
     [USER, result(), LAST], "result_without_call"),
    ("an empty result", [USER, {"type": "function_call", "call_id": "call_1", "name": "f",
                                "arguments": "{}"},
                         {"type": "function_call_output", "call_id": "call_1", "output": None},
                         LAST], [USER, calling(call()), result(""), LAST],
     "input[2].output:empty"),
    ("a picture as a result", [USER, {"type": "function_call", "call_id": "call_1", "name": "f",
                                      "arguments": "{}"},
                               {"type": "function_call_output", "call_id": "call_1",
                                "output": [{"type": "input_image", "image_url": "x"}]}, LAST],
     [USER, calling(call()), result("[image left out]"), LAST], "image_left_out"),
    ("arguments as an object", [USER, {"type": "function_call", "call_id": "call_1", "name": "f",
                                       "arguments": {"a": 1}}, LAST],
     [USER, calling(call(arguments='{"a":1}')), LAST], "input[1]:arguments"),
    ("an old picture", [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]},
                        SAID, LAST],
     [{"role": "user", "content": "[image left out]"}, SAID, LAST],
     "input[0].content[0]:image_left_out"),
    ("another role", [{"role": "critic", "content": "bad"}, LAST],
     [{"role": "user", "content": "bad"}, LAST], "input[0].role:role"),
    ("nulls among the items", [None, USER, SAID, None, LAST, None], [USER, SAID, LAST],
     "input[0]:item_left_out,input[3]:item_left_out,input[5]:item_left_out"),
    ("texts among the items", ["hi", SAID, "and?"], [USER, SAID, LAST],
     "input[0]:user_message,input[2]:user_message"),
    ("items without a role", [{"content": "hi"}, {"type": "message", "content": [
        {"type": "output_text", "text": "ok"}]}, {"role": None, "content": "and?"}],
     [USER, SAID, LAST], "input[0].role:role,input[1].role:role,input[2].role:role"),
    ("blocks of Anthropic", [USER, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ok"},
        {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1",
                                      "content": [{"type": "text", "text": "7"}]}]}],
     [USER, calling(call(arguments='{"a":1}'), content="ok", reasoning_content="hm"), result()],
     "input[1].content[2]:tool_calls,input[2].content[0]:tool_message"),
    ("an unknown item", [USER, {"type": "of_tomorrow"}, LAST], [USER, LAST],
     "of_tomorrow_left_out"),
]


def prompt_tokens(server, messages, tools=None):
    body = {"messages": messages, **({"tools": TOOLS} if tools else {})}
    answer = server.post("/v1/chat/completions/render", body)
    assert answer.status == 200, answer
    return len(answer.json["token_ids"])


@pytest.mark.parametrize("name,items,plain,says", RESPONSES, ids=[row[0] for row in RESPONSES])
def test_responses(server, strict, name, items, plain, says):
    del name
    answer = server.post("/v1/responses", {"input": items, "max_output_tokens": 1})
    assert answer.status == 200, answer
    assert says in answer.headers.get("x-inferd-mended", ""), answer.headers
    assert answer.json["usage"]["input_tokens"] == prompt_tokens(server, plain)
    again = strict.post("/v1/responses", {"input": items, "max_output_tokens": 1})
    assert again.status == (400 if says else 200), again


def test_a_picture_in_the_question_is_refused(server):
    answer = server.post("/v1/responses", {"input": [
        {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]})
    assert answer.error["code"] == "unsupported_content_part"


# ---- /v1/messages ----

def block(kind, **members):
    return {"type": kind, **members}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


TEXT = block("text", text="ok")
IMAGE = block("image", source={"type": "base64", "media_type": "image/png", "data": "AA=="})
USE = block("tool_use", id="call_1", name="f", input={})

MESSAGES = [
    ("an old picture", [user(IMAGE, block("text", text="see")), assistant(TEXT), LAST],
     [{"role": "user", "content": "[image left out]\nsee"}, SAID, LAST],
     "messages.0.content.0:image_left_out"),
    ("a picture as a result", [USER, assistant(USE), user(
        block("tool_result", tool_use_id="call_1", content=[IMAGE]))],
     [USER, calling(call()), result("[image left out]")],
     "messages.2.content.0.content.0:image_left_out"),
    ("a text document", [user(block("document", title="t", source={
        "type": "text", "media_type": "text/plain", "data": "words"})), assistant(TEXT), LAST],
     [{"role": "user", "content": "t\nwords"}, SAID, LAST], ""),
    ("a document", [user(block("document", source={"type": "base64", "data": ""})),
                    assistant(TEXT), LAST],
     [{"role": "user", "content": "[file left out]"}, SAID, LAST], "file_left_out"),
    ("a result of a search", [user(block("search_result", source="http://x", title="t",
                                         content=[block("text", text="words")])),
                              assistant(TEXT), LAST],
     [{"role": "user", "content": "t\nhttp://x\nwords"}, SAID, LAST], ""),
    ("a search of the server", [USER, assistant(
        block("server_tool_use", id="call_1", name="f", input={"q": "x"}),
        block("web_search_tool_result", tool_use_id="call_1", content=[
            block("web_search_result", title="t", url="http://x", encrypted_content="zz")]),
        TEXT), LAST],
     [USER, calling(call(arguments='{"q":"x"}')), result("t\nhttp://x"), SAID, LAST], ""),
    ("code of the server", [USER, assistant(
        block("server_tool_use", id="call_1", name="f", input={}),
        block("code_execution_tool_result", tool_use_id="call_1", content=block(
            "code_execution_result", stdout="2", stderr="", return_code=0)), TEXT), LAST],
     [USER, calling(call()), result("2"), SAID, LAST], ""),
    ("an MCP server", [USER, assistant(
        block("mcp_tool_use", id="call_1", name="f", server_name="s", input={}),
        block("mcp_tool_result", tool_use_id="call_1", content=[block("text", text="7")])), LAST],
     [USER, calling(call()), result(), LAST], ""),
    ("a compaction", [USER, assistant(block("compaction", content="so far"), TEXT), LAST],
     [USER, {"role": "assistant", "content": "so far\nok"}, LAST], ""),
    ("a file", [user(block("container_upload", file_id="x"), block("text", text="see")),
                assistant(TEXT), LAST],
     [{"role": "user", "content": "[file left out]\nsee"}, SAID, LAST], "file_left_out"),
    ("an unknown block", [USER, assistant(block("of_tomorrow"), TEXT), LAST],
     [USER, {"role": "assistant", "content": "[of_tomorrow left out]\nok"}, LAST],
     "messages.1.content.0:of_tomorrow_left_out"),
    ("no content", [USER, {"role": "assistant", "content": None}, LAST], [USER, LAST],
     "messages.1.content:empty"),
    ("thoughts without a text", [USER, assistant(block("thinking", signature="x"), TEXT), LAST],
     [USER, SAID, LAST], ""),
    ("a call without input", [USER, assistant(block("tool_use", id="call_1", name="f")),
                              user(block("tool_result", tool_use_id="call_1", content="7"))],
     [USER, calling(call()), result()], ""),
    ("results of other types", [USER, assistant(USE), user(
        block("tool_result", tool_use_id="call_1", content={"a": 1})), assistant(TEXT), LAST],
     [USER, calling(call()), result('{"a":1}'), SAID, LAST],
     "messages.2.content.0.content:json"),
    ("a result that is a number", [USER, assistant(USE), user(
        block("tool_result", tool_use_id="call_1", content=7)), assistant(TEXT), LAST],
     [USER, calling(call()), result(), SAID, LAST], "messages.2.content.0.content:json"),
    ("blocks without a type", [user({"text": "a", "x": 1}), assistant(TEXT), LAST],
     [{"role": "user", "content": "a"}, SAID, LAST], "messages.0.content.0:text_part"),
    ("a developer", [{"role": "developer", "content": "d"}, USER],
     [{"role": "system", "content": "d"}, USER], "messages.0.role:role"),
    ("a role of no API", [{"role": "critic", "content": "d"}, assistant(TEXT), LAST],
     [{"role": "user", "content": "d"}, SAID, LAST], "messages.0.role:role"),
    ("calls and results of chat", [USER, calling(call()), result()],
     [USER, calling(call()), result()], "messages.1.tool_calls:tool_use,messages.2.role:role"),
    ("nulls among the messages", [None, USER, assistant(TEXT), None, LAST, None],
     [USER, SAID, LAST], "messages.0:message_left_out,messages.3:message_left_out"),
    ("texts among the messages", ["hi", assistant(TEXT), "and?"], [USER, SAID, LAST],
     "messages.0:user_message,messages.2:user_message"),
    ("messages without a role", [{"content": "hi"}, {"content": [USE]}, {"content": [
        block("tool_result", tool_use_id="call_1", content="7")]}, {"content": "and?"}],
     [USER, calling(call()), result(), LAST], "messages.0.role:role,messages.1.role:role"),
    ("a result without its call", [USER, user(block("tool_result", tool_use_id="x",
                                                    content="7")), LAST],
     [USER, result(), LAST], "result_without_call"),
]


@pytest.mark.parametrize("name,messages,plain,says", MESSAGES, ids=[row[0] for row in MESSAGES])
def test_messages(server, name, messages, plain, says):
    del name
    answer = server.post("/v1/messages", {"messages": messages, "max_tokens": 1})
    assert answer.status == 200, answer
    assert says in answer.headers.get("x-inferd-mended", ""), answer.headers
    counted = server.post("/v1/messages/count_tokens", {"messages": messages})
    assert counted.json["input_tokens"] == prompt_tokens(server, plain)


def test_blocks_in_the_question_are_refused(server):
    for one in (IMAGE, block("of_tomorrow"), block("document", source={"type": "base64"})):
        answer = server.post("/v1/messages", {"messages": [user(one)], "max_tokens": 1})
        assert answer.status == 400 and answer.json["error"]["type"] == "invalid_request_error"


def test_half_characters_of_other_fields_are_refused_in_the_shape_of_the_route(server):
    for path, body in (("/v1/messages", {"messages": [USER], "max_tokens": 1,
                                         "stop_sequences": ["\ud83d"]}),
                       ("/v1/responses", {"input": "a", "stop": "\ud83d"})):
        answer = server.post(path, json.dumps(body))
        assert answer.status == 400, answer
        assert "surrogate" in answer.json["error"]["message"]
