"""What an answer says, whole or as a stream, without what is drawn anew for each (ids, times)."""

import json

GROWING = ("text", "token_ids", "content", "reasoning", "arguments", "thinking", "partial_json",
           "tokens", "token_logprobs", "top_logprobs", "text_offset")


def add(found, piece):
    """Adds a chunk to what came before: texts and lists grow, of other values the last stays."""
    for key, value in piece.items():
        before = found.get(key)
        if isinstance(value, dict):
            found[key] = add(before or {}, value)
        elif key == "tool_calls" and value:
            calls = found.setdefault(key, {})
            for call in value:
                add(calls.setdefault(call["index"], {}), call)
        elif key in GROWING and before is not None and value is not None:
            found[key] = before + value
        elif value is not None or key not in found:
            found[key] = value
    return found


def choices_of(chunks):
    """The choices of a stream."""
    found = {}
    for chunk in chunks:
        for piece in chunk["choices"]:
            add(found.setdefault(piece["index"], {}), piece)
    return [found[index] for index in sorted(found)]


def blocks_of(events):
    """The blocks of a stream of /v1/messages, and why it ended."""
    found, end = {}, {}
    for event in events:
        if event["type"] == "content_block_start":
            found[event["index"]] = event["content_block"]
        elif event["type"] == "content_block_delta":
            add(found[event["index"]], event["delta"])
        elif event["type"] == "message_delta":
            end = event["delta"]
    return [found[index] for index in sorted(found)] + [end]


def without_ids(value):
    if isinstance(value, list):
        return [without_ids(item) for item in value]
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items()
                if key not in ("id", "call_id")}
    return value


def whole(path, answer):
    if path == "/v1/messages":
        return [answer["content"], answer["stop_reason"], answer["stop_sequence"]]
    if path == "/v1/responses":
        return [answer["output"], answer["status"]]
    return answer["choices"]


def streamed(path, text):
    events = [json.loads(line[6:]) for line in text.decode().split("\n")
              if line.startswith("data: ") and line != "data: [DONE]"]
    failed = [event["error"]["message"] for event in events if event.get("error")]
    if failed:
        return failed[0]
    if path == "/v1/messages":
        return blocks_of(events)
    if path == "/v1/responses":
        return whole(path, events[-1]["response"])
    return choices_of(events)


def ask(server, request, stream):
    """What a request gets: a list, or the message that says why it gets nothing."""
    path, body = request
    answer = server.post(path, {**body, "stream": True} if stream else body)
    if answer.status != 200:
        assert answer.status == 400, answer
        return answer.json["error"]["message"]
    return without_ids(streamed(path, answer.body) if stream else whole(path, answer.json))


def difference(one, other, where=""):
    """The first place where two answers differ, and what stands there; None if they are equal."""
    if isinstance(one, dict) and isinstance(other, dict) and set(one) == set(other):
        found = (difference(one[k], other[k], f"{where}.{k}") for k in one)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        found = (difference(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(one, other)))
    else:
        return None if one == other else f"{where}: {str(one)[:300]} is {str(other)[:300]}"
    return next((place for place in found if place), None)
