"""One request in the words of chat, responses, messages and Ollama's chat, streamed or not, and
each answer in one form: what the eight views of one answer say can be compared."""

import json

ROUTES = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
VIEWS = [(route, stream) for route in ROUTES for stream in (False, True)]
OLLAMAS = [("ollama", False), ("ollama", True)]  # what it asks has other names: ollama_body
LIMITS = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
STOPS = {"chat": "stop", "responses": "stop", "messages": "stop_sequences"}
CUT = ("length", "incomplete", "max_tokens")


def tools_of(route, functions):
    if route == "chat":
        return [{"type": "function", "function": function} for function in functions]
    if route == "responses":
        return [{"type": "function", **function} for function in functions]
    return [{"name": function["name"], "input_schema": function["parameters"],
             **{k: v for k, v in function.items() if k not in ("name", "parameters")}}
            for function in functions]


def choice_of(route, choice):
    """`choice` is auto, required, none, or the name of a function."""
    word = choice in ("auto", "required", "none")
    if route == "messages":
        kind = {"required": "any"}.get(choice, choice) if word else "tool"
        return {"type": kind, **({} if word else {"name": choice})}
    if word:
        return choice
    return {"type": "function", **({"name": choice} if route == "responses" else
                                   {"function": {"name": choice}})}


def format_of(route, schema):
    if route == "chat":
        return {"response_format": {"type": "json_schema",
                                    "json_schema": {"name": "n", "schema": schema}}}
    form = {"type": "json_schema", "schema": schema}
    return {"output_config": {"format": form}} if route == "messages" else \
        {"text": {"format": {"name": "n", **form}}}


def body_of(route, messages, *, functions=(), choice=None, limit=64, stop=None, schema=None,
            **fields):
    body = {"input" if route == "responses" else "messages": messages, LIMITS[route]: limit}
    if functions:
        body["tools"] = tools_of(route, functions)
    if choice is not None:
        body["tool_choice"] = choice_of(route, choice)
    if stop is not None:
        body[STOPS[route]] = [stop]
    if schema is not None:
        body.update(format_of(route, schema))
    return {**body, **fields}


def ollama_body(messages, *, functions=(), choice=None, limit=64, stop=None, schema=None, stream,
                **options):
    """The same request; what is in no name of this function is one of the options."""
    body = {"messages": messages, "stream": stream, "options": {"num_predict": limit, **options}}
    if functions:
        body["tools"] = tools_of("chat", functions)
    if choice is not None:
        body["tool_choice"] = choice_of("chat", choice)
    if stop is not None:
        body["options"]["stop"] = [stop]
    if schema is not None:
        body["format"] = schema
    return body


class Reading:
    """What an answer says, gathered piece by piece."""

    def __init__(self):
        self.text, self.calls, self.finish = "", [], None

    def begin_call(self, name, arguments=""):
        self.calls.append([name, arguments])

    def settled(self):
        """(text, calls, "length" or "end"); arguments that are JSON in one spelling, none as {}."""
        calls = []
        for name, arguments in self.calls:
            try:
                arguments = json.loads(arguments or "{}")
            except ValueError:
                arguments = "~" + arguments
            calls.append((name, arguments))
        assert self.finish, "no end"
        return self.text, calls, "length" if self.finish in CUT else "end"


def read_chat(reading, piece, index=0):
    for choice in piece["choices"]:
        if choice["index"] != index:
            continue
        message = choice.get("delta") or choice.get("message") or {}
        reading.text += message.get("content") or ""
        for call in message.get("tool_calls") or []:
            if call["function"].get("name"):
                reading.begin_call(call["function"]["name"])
            reading.calls[-1][1] += call["function"].get("arguments") or ""
        reading.finish = choice["finish_reason"] or reading.finish


def read_response(reading, response):
    for item in response["output"]:
        if item["type"] == "message":
            reading.text += "".join(part["text"] for part in item["content"])
        elif item["type"] == "function_call":
            reading.begin_call(item["name"], item["arguments"])
    reading.finish = response["status"]


def read_response_event(reading, event):
    kind = event["type"]
    if kind == "response.output_text.delta":
        reading.text += event["delta"]
    elif kind == "response.output_item.added" and event["item"]["type"] == "function_call":
        reading.begin_call(event["item"]["name"])
    elif kind == "response.function_call_arguments.delta":
        reading.calls[-1][1] += event["delta"]
    elif kind in ("response.completed", "response.incomplete"):
        reading.finish = event["response"]["status"]
        whole = Reading()
        read_response(whole, event["response"])
        assert whole.settled() == reading.settled(), "the last event tells what the deltas told"


def read_block(reading, block):
    if block["type"] == "text":
        reading.text += block["text"]
    elif block["type"] == "tool_use":
        cut = block["input"].get("partial_json")
        whole = json.dumps(block["input"]) if block["input"] else ""
        reading.begin_call(block["name"], whole if cut is None else cut)


def read_message(reading, message):
    for block in message["content"]:
        read_block(reading, block)
    reading.finish = message["stop_reason"] or reading.finish


def read_message_event(reading, event):
    delta = event.get("delta", {})
    if "content_block" in event:
        read_block(reading, event["content_block"])
    reading.text += delta.get("text", "")
    if "partial_json" in delta:
        reading.calls[-1][1] += delta["partial_json"]
    reading.finish = delta.get("stop_reason") or reading.finish


def read_ollama(reading, line):
    message = line["message"]
    reading.text += message["content"]
    for call in message.get("tool_calls") or []:
        assert call["function"]["index"] == len(reading.calls)
        arguments = call["function"]["arguments"]
        reading.begin_call(call["function"]["name"], arguments.get("partial_json") or
                           (json.dumps(arguments) if arguments else ""))
    reading.finish = line.get("done_reason") or reading.finish
    assert line["done"] == (reading.finish is not None)


READERS = {("ollama", False): read_ollama, ("ollama", True): read_ollama,
           ("chat", False): read_chat, ("chat", True): read_chat,
           ("responses", False): read_response, ("responses", True): read_response_event,
           ("messages", False): read_message, ("messages", True): read_message_event}


def read(answer, view, index=0):
    """What a choice of an answer says."""
    assert answer.status == 200, answer
    reading = Reading()
    more = {"index": index} if view[0] == "chat" else {}
    begin = "{" if view[0] == "ollama" else "data: {"
    pieces = [answer.json] if not view[1] else [
        json.loads(line[len(begin) - 1:]) for line in answer.body.decode().split("\n")
        if line.startswith(begin)]
    for piece in pieces:
        READERS[view](reading, piece, **more)
    return reading.settled()


def ask(server, view, messages, **fields):
    """The answer of one view."""
    if view[0] == "ollama":
        model = server.get("/v1/models").json["data"][0]["id"]
        body = {"model": model, **ollama_body(messages, stream=view[1], **fields)}
        return read(server.post("/api/chat", body), view)
    body = body_of(view[0], messages, stream=view[1], **fields)
    return read(server.post(ROUTES[view[0]], body), view)


def ask_all(server, messages, **fields):
    """What all eight views say alike."""
    answers = {view: ask(server, view, messages, **fields) for view in VIEWS + OLLAMAS}
    first = answers[VIEWS[0]]
    assert all(answer == first for answer in answers.values()), answers
    return first
