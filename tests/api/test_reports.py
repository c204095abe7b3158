"""What people met with other servers and their clients: each file of tests/reports is a public
report with its requests and what is right. tests/reports/README.md says how to add one.

Every stream is checked for the rules that clients rely on, whatever the report is about."""

import json
import re

import pytest

from harness import DEMO, ROOT, Server

FOLDER = ROOT / "tests/reports"
FILES = sorted(FOLDER.glob("*.json"))
WORDS = {"source", "met", "template", "requests"}
OF_REQUEST = {"method", "path", "headers", "body", "raw", "status", "has", "lacks", "header",
              "says", "prompt_of"}


@pytest.fixture(scope="module")
def servers(inferd):
    """One server, and one for each chat template that a report names."""
    running = {}

    def get(template):
        if template not in running:
            flags = ["--chat-template", ROOT / "tests/fixtures/templates" / template] if template \
                else []
            running[template] = Server(inferd, DEMO, "--max-model-len", 2048, *flags)
        return running[template]

    yield get
    for server in running.values():
        assert server.stop() == 0, server.log()


def test_there_are_enough_reports():
    sources = [json.loads(file.read_text())["source"] for file in FILES]
    assert len(FILES) >= 60 and len(set(sources)) == len(sources)
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", source) for source in sources), sources


def test_the_table_of_kinds_names_tests_that_there_are():
    table = (ROOT / "tests/api/SESSIONS.md").read_text()
    rows = [line for line in table.splitlines() if line.startswith("| ") and "::" in line]
    assert len(rows) >= 20
    for line in rows:
        for file, name in re.findall(r"([\w.]+)::(\w+)", line):
            found = [path for place in ("api", "contract", "server/*")
                     for path in (ROOT / "tests").glob(f"{place}/{file}")]
            begins = rf"^def {name}\(" if file.endswith(".py") else rf"^Test\(\w+, {name}\)"
            assert any(re.search(begins, path.read_text(), re.M) for path in found), (file, name)


def look_up(value, path):
    """`choices.0.message.content` of a JSON value; KeyError if it is not there."""
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def events_of(answer):
    """The JSON of each event; checks what every SSE parser must be able to read."""
    text = answer.body.decode()
    assert "\r" not in text and text.endswith("\n\n"), text[-80:]
    events = []
    for block in text[:-2].split("\n\n"):
        for line in block.split("\n"):
            assert re.match(r"(data|event): .|:", line), repr(line)
            if line.startswith("data: ") and line != "data: [DONE]":
                events.append(json.loads(line[6:]))
    return events


def check_chunks(answer, body):
    """The rules of chunks of chat and completions that clients break on."""
    assert answer.body.endswith(b"data: [DONE]\n\n")
    chunks, finishes, calls = events_of(answer), {}, {}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    wants_usage = (body.get("stream_options") or {}).get("include_usage", False)
    for chunk in chunks:
        assert isinstance(chunk["choices"], list)
        assert chunk["choices"] or (chunk is chunks[-1] and wants_usage and chunk["usage"])
        for choice in chunk["choices"]:
            assert isinstance(choice["index"], int) and "finish_reason" in choice
            assert choice["index"] not in finishes, "something follows the finish reason"
            if choice["finish_reason"] is not None:
                finishes[choice["index"]] = choice["finish_reason"]
            for call in (choice.get("delta") or {}).get("tool_calls") or []:
                assert isinstance(call["index"], int)
                assert isinstance(call["function"].get("arguments", ""), str)
                known = calls.setdefault((choice["index"], call["index"]), call)
                assert known is not call or (call["id"] and call["function"]["name"])
                assert call.get("id") in (None, known["id"])
    assert set(finishes) == set(range(body.get("n") or 1))
    assert "" not in finishes.values()
    if wants_usage:
        assert chunks[-1]["usage"]["completion_tokens"] > 0 and chunks[-1]["choices"] == []
    by_call = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for call in (choice.get("delta") or {}).get("tool_calls") or []:
                key = choice["index"], call["index"]
                by_call[key] = by_call.get(key, "") + call["function"].get("arguments", "")
    return {"choices": [{"finish_reason": finishes[i]} for i in sorted(finishes)],
            "arguments": [by_call[key] for key in sorted(by_call)]}


def check_events(answer, path):
    """The rules of events of responses and messages."""
    assert b"[DONE]" not in answer.body
    events = events_of(answer)
    if path.startswith("/v1/responses"):
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[0]["type"] == "response.created" and "error" not in events[0]
        return events[-1]["response"]
    assert events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop"
    return events


def prompt_of(server, messages, tools):
    body = {"messages": messages, **({"tools": tools} if tools else {})}
    answer = server.post("/v1/chat/completions/render", body)
    assert answer.status == 200, answer
    return answer.json["prompt"]


def run(server, request):
    assert set(request) <= OF_REQUEST, set(request) - OF_REQUEST
    body, path = request.get("body"), request["path"]
    sent = request["raw"].encode() if "raw" in request else body
    answer = server.request(request.get("method", "POST" if sent is not None else "GET"), path,
                            body=sent, headers=request.get("headers"))
    assert answer.status == request.get("status", 200), answer
    for name, words in request.get("header", {}).items():
        assert (words or "") in answer.headers.get(name, "" if words is None else "absent"), answer
        assert words is not None or name not in answer.headers
    if "says" in request:
        assert request["says"] in answer.body.decode(), answer
    if "prompt_of" in request:
        tools = (body or {}).get("tools")
        assert prompt_of(server, body["messages"], tools) == \
            prompt_of(server, request["prompt_of"], tools)
    value = None
    if isinstance(body, dict) and body.get("stream") and answer.status == 200:
        chunked = "completions" in path
        value = check_chunks(answer, body) if chunked else check_events(answer, path)
    elif request.get("has") or request.get("lacks"):
        value = answer.json
    for place, wanted in request.get("has", {}).items():
        found = look_up(value, place)
        if isinstance(wanted, dict) and isinstance(found, str):
            found = json.loads(found)  # JSON in a text, such as arguments
        if isinstance(wanted, list) and isinstance(wanted[0], dict):
            found = [json.loads(each) if isinstance(each, str) else each for each in found]
        assert found == wanted if wanted != "..." else found not in (None, "", []), (place, found)
    for place in request.get("lacks", []):
        with pytest.raises((KeyError, IndexError)):
            look_up(value, place)


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_report(servers, file):
    report = json.loads(file.read_text())
    assert set(report) <= WORDS and report["met"] and report["requests"]
    for request in report["requests"]:
        run(servers(report.get("template")), request)
