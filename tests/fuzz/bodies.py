"""Bodies for scripts/fuzz_requests: valid ones, made of the fields that docs/openapi.json lists,
and valid ones of which something is then broken.

Every field of a route's schema is drawn by its type and bounds; where a schema cannot say what fits
(token ids, patterns, conversations), the name has values of its own below. Values lean to the
bounds. `body` draws nothing but from the random.Random that it is given."""

import copy
import json
from pathlib import Path

SCHEMAS = json.loads((Path(__file__).parents[2] / "docs/openapi.json").read_text())
NO_EFFECT = ("Not supported", "Without effect")
VOCABULARY = 300  # ids that every tokenizer of the rigs has
BIG = 1 << 40     # a bound that only says: any number
BROKEN_SHARE = 0.12

WORDS = ("the", "a", "old", "machine", "counted", "it", "saw", "Wörld", "日本", "🦊", "\n", "{", "17",
         "\u00a0", "<|im_end|>", "</s>", "e\u0301", "zzzzzzzz", '"', "\\")
SCHEMA_LIST = (
    {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "integer"}},
     "required": ["a"], "additionalProperties": False},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 4}]}, {"const": "yes"}, {},
    {"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {
        "next": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}}, "required": ["next"]}}},
    {"type": "string", "pattern": "^[a-c]+$"}, {"type": "number", "minimum": -1, "maximum": 1},
)
PATTERNS = ("$", "[ab]?", "[a-f]{1,4}", "yes|no|", "[0-9]{3}-[0-9]{2}", "(the|a) \\w+", ".*", "é+")
GRAMMARS = ('root ::= "a" | "b" root', 'root ::= [0-9]{1,5}', 'start: "x" start | "y"',
            'root ::= ""')


def text(r, most=12):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(1, most)))


def ids(r, most=8):
    return [r.randint(0, VOCABULARY - 1) for _ in range(r.randint(1, most))]


def prompt(r):
    kind = r.randrange(8)
    if kind == 0:
        return ids(r, 40)
    if kind == 1:
        return [ids(r) for _ in range(r.randint(1, 4))]
    if kind == 2:
        return [text(r) for _ in range(r.randint(1, 4))]
    return text(r, r.choice((1, 12, 12, 80)))


def texts(r):
    return [{"text": text(r)} if r.random() < 0.2 else text(r) for _ in range(r.randint(1, 5))]


def content(r):
    if r.random() < 0.2:
        return [{"type": "text", "text": text(r)} for _ in range(r.randint(1, 3))]
    return text(r)


def messages(r, roles=("user", "assistant", "system")):
    talk = []
    if "system" in roles and r.random() < 0.3:
        talk.append({"role": "system", "content": text(r)})
    for i in range(r.choice((1, 1, 3, 5))):
        talk.append({"role": ("user", "assistant")[i % 2], "content": content(r)})
    return talk


def tool(r):
    return {"type": "function", "function": {
        "name": f"f{r.randrange(4)}", "description": text(r, 3), "parameters": SCHEMA_LIST[0]}}


def tools(r):
    return list({t["function"]["name"]: t for t in (tool(r) for _ in range(r.randint(1, 3)))}
                .values())


def response_format(r):
    named = {"name": "n", "schema": r.choice(SCHEMA_LIST)}
    return r.choice(({"type": "text"}, {"type": "json_object"},
                     {"type": "json_schema", "json_schema": named}))


def structured(r):
    return r.choice(({"json": r.choice(SCHEMA_LIST)}, {"regex": r.choice(PATTERNS)},
                     {"choice": ["a", "ab", "b"]}, {"grammar": r.choice(GRAMMARS)},
                     {"json_object": True}))


def biases(r):
    return {str(i): r.choice((-100, -1, 0.5, 100)) for i in ids(r)}


def items(r):
    return r.choice((text(r), [{"role": "user", "content": text(r)}],
                     [{"type": "message", "role": "user", "content": [
                         {"type": "input_text", "text": text(r)}]}]))


# What a schema cannot say: by field, then by route and field.
OWN = {
    "max_tokens": lambda r: r.choice((1, 1, 2, 5, 12, 40)), "max_completion_tokens":
    lambda r: r.randint(1, 20), "max_output_tokens": lambda r: r.randint(1, 20),
    "n": lambda r: r.choice((1, 2, 3, 8)), "best_of": lambda r: r.choice((0, 4, 8)),
    "min_tokens": lambda r: r.choice((0, 1)), "logprobs": lambda r: r.choice((0, 1, 5, 20)),
    "prompt_logprobs": lambda r: r.choice((0, 1, 5)), "top_logprobs": lambda r: r.randint(0, 5),
    "logit_bias": biases, "stop_token_ids": ids, "allowed_token_ids": ids, "logprob_token_ids": ids,
    "bad_words": lambda r: [text(r, 2).strip() or "a" for _ in range(r.randint(1, 3))],
    "stop": lambda r: r.choice(("e", ["a", "the end"], [" "])), "stop_sequences": lambda r: ["e"],
    "truncate_prompt_tokens": lambda r: r.choice((-1, 5, 30)), "model": lambda r: None,
    "prompt": prompt, "messages": messages, "input": prompt, "tools": tools, "query": text,
    "documents": texts, "queries": texts, "tokens": ids, "response_format": response_format,
    "structured_outputs": structured, "guided_json": lambda r: r.choice(SCHEMA_LIST),
    "json_schema": lambda r: r.choice(SCHEMA_LIST), "guided_regex": lambda r: r.choice(PATTERNS),
    "regex": lambda r: r.choice(PATTERNS), "guided_grammar": lambda r: r.choice(GRAMMARS),
    "grammar": lambda r: r.choice(GRAMMARS), "ebnf": lambda r: r.choice(GRAMMARS[:2]),
    "guided_choice": lambda r: ["a", "b c"], "tool_choice": lambda r: r.choice(("auto", "none")),
    **{name: lambda r: None for name in ("source_lang", "target_lang", "decoder_prompt",
                                    "prompt_embeds")},
    "suffix": lambda r: None, "chat_template": lambda r: None, "instruction": lambda r: None,
    "chat_template_kwargs": lambda r: {"enable_thinking": True}, "dimensions": lambda r: None,
    "reasoning_effort": lambda r: r.choice(("low", "high")), "audio": lambda r: None,
    "metadata": lambda r: {"a": text(r, 2)}, "user": lambda r: "me", "system": text,
    "function_call": lambda r: None, "functions": lambda r: None, "task": lambda r: None,
    "thinking": lambda r: {"type": "disabled"}, "output_config": lambda r: None,
    "reasoning": lambda r: None, "text": lambda r: None, "include": lambda r: [],
    "continue_final_message": lambda r: False, "stream_options": lambda r: {"include_usage": True},
    "request_id": lambda r: f"fuzz-{r.randrange(1 << 30)}", "modalities": lambda r: ["text"],
    "conversation": lambda r: None,
}
MESSAGE_TOOLS = ({"name": "f", "input_schema": {"type": "object"}},)
BY_ROUTE = {
    "/v1/chat/completions": {"logprobs": lambda r: r.random() < 0.5,
                             "documents": lambda r: [{"title": text(r, 2), "text": text(r)}]},
    "/v1/responses": {"input": items, "documents": lambda r: None,
                      "tools": lambda r: [{"type": "function", "name": "f", "parameters":
                                           SCHEMA_LIST[0]}]},
    "/v1/messages": {"messages": lambda r: messages(r, ("user", "assistant")),
                     "tools": lambda r: list(MESSAGE_TOOLS),
                     "tool_choice": lambda r: {"type": "auto"}},
    "/tokenize": {"prompt": text, "messages": lambda r: None, "tools": lambda r: None,
                  "documents": lambda r: None},
    "/v1/conversations": {"items": lambda r: [{"role": "user", "content": text(r)}]},
    "/v1/schema/check": {"schema": lambda r: r.choice(SCHEMA_LIST)},
    "/pooling": {"raw_scores": lambda r: None, "normalize": lambda r: None},
    **{route: {"truncate_prompt_tokens": lambda r: r.choice((-1, 80))}
       for route in ("/rerank", "/v2/rerank", "/score")},
}
BY_ROUTE["/apply-template"] = BY_ROUTE["/v1/chat/completions"]
BY_ROUTE["/completion"] = BY_ROUTE["/infill"] = {
    "n_predict": lambda r: r.choice((0, 1, 5, 20)), "n_cmpl": lambda r: r.choice((1, 2)),
    "repeat_last_n": lambda r: -1, "input_prefix": text, "input_suffix": lambda r: None,
    "json_schema": lambda r: r.choice(SCHEMA_LIST)}
BY_ROUTE["/v1/conversations/{id}"] = BY_ROUTE["/v1/conversations"]
BY_ROUTE["/v1/chat/completions/render"] = BY_ROUTE["/v1/chat/completions"]
BY_ROUTE["/v1/responses/input_tokens"] = BY_ROUTE["/v1/responses"]
OLLAMA = {"model": lambda r: r.choice(("demo", "demo:latest")), "images": lambda r: None,
          "options": lambda r: {"num_predict": r.choice((1, 5, 20)), "seed": r.randrange(9),
                                "temperature": r.choice((0, 1)), "top_k": r.choice((0, 5))},
          "messages": lambda r: [{"role": "user", "content": text(r)}], "prompt": text,
          "input": lambda r: r.choice((text(r), texts_of(r))), "think": lambda r: False,
          "keep_alive": lambda r: r.choice(("5m", -1, "1h30m")), "name": lambda r: "demo",
          "suffix": lambda r: None, "raw": lambda r: False, "dimensions": lambda r: None,
          "format": lambda r: r.choice(("json", "", SCHEMA_LIST[0])), "tools": tools,
          "logprobs": lambda r: True}


def texts_of(r):
    return [text(r) for _ in range(r.randint(1, 4))]


for _route in ("chat", "generate", "embed", "embeddings", "show", "pull"):
    BY_ROUTE[f"/api/{_route}"] = OLLAMA
BY_ROUTE["/v1/messages/count_tokens"] = BY_ROUTE["/v1/messages"]
CONSTRAINTS = ("response_format", "structured_outputs", "guided_json", "json_schema",
               "guided_regex", "regex", "guided_grammar", "grammar", "ebnf", "guided_choice")
NOT_BEAMS = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
             "repetition_penalty", "logit_bias", "allowed_token_ids", "bad_words", "stream",
             "logprob_token_ids", "tools", "tool_choice", *CONSTRAINTS)


def schema_of(route):
    body = SCHEMAS["paths"][route]["post"]["requestBody"]["content"]["application/json"]["schema"]
    return SCHEMAS["components"]["schemas"][body["$ref"].rsplit("/", 1)[1]]


def fields_of(route):
    """{name: schema} of the fields that do something."""
    return {name: schema for name, schema in schema_of(route)["properties"].items()
            if not schema.get("description", "").startswith(NO_EFFECT)}


def value_of(r, schema):
    """A value by type and bounds, near them as often as not; None where the schema says nothing."""
    if "anyOf" in schema:
        return value_of(r, schema["anyOf"][0])
    if "enum" in schema:
        return r.choice(schema["enum"])
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    low, high = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum", 4)
    if kind == "boolean":
        return r.random() < 0.5
    if kind == "integer":
        high = high if high < BIG else max(low, 0) + 5
        low = low if low > -BIG else -5
        return r.choice((low, high, r.randint(low, high)))
    if kind == "number":
        return r.choice((high, r.uniform(low, high) or high))
    if kind == "string":
        return "a" * r.choice((1, 5, min(schema.get("maxLength", 5), 300)))
    return None


def agree(r, route, body):
    """Takes out what contradicts something else."""
    limited = [name for name in CONSTRAINTS if name in body]
    for name in limited[1:]:
        del body[name]
    if body.get("use_beam_search"):
        body.update(best_of=max(body.get("n") or 1, 2))
        for name in NOT_BEAMS:
            body.pop(name, None)
    most = body.get("max_completion_tokens") or body.get("max_tokens") or 16
    if body.get("min_tokens") and body["min_tokens"] > most:
        del body["min_tokens"]
    if "best_of" in body and not body.get("use_beam_search"):
        if body.get("stream") or 0 < body["best_of"] < (body.get("n") or 1):
            del body["best_of"]
    if body.get("prompt_logprobs") is not None:
        body.pop("stream", None)
    if not body.get("stream"):
        for name in ("stream_options", "stream_interval"):
            body.pop(name, None)
    if "top_logprobs" in body and "responses" in route:
        body["include"] = ["message.output_text.logprobs"]
    elif "top_logprobs" in body or "logprob_token_ids" in body:
        body["logprobs"] = True if "chat" in route else max(body.get("logprobs") or 0, 0)
    if route == "/tokenize" and "prompt" in body:
        for name in ("chat_template_kwargs", "continue_final_message", "reasoning_effort",
                     "add_generation_prompt"):
            body.pop(name, None)
    if route == "/score" and isinstance(body["documents"], list):
        body["documents"] = (body["documents"] * 5)[:len(body["queries"])]
    if "tools" not in body or limited:
        for name in ("tools", "tool_choice", "parallel_tool_calls"):
            body.pop(name, None)
    if body.get("continue_final_message"):
        del body["continue_final_message"]
    return body


REQUIRED = {"/score": ("queries", "documents"), "/rerank": ("documents",), "/tokenize": ("prompt",),
            "/v2/rerank": ("documents",), "/v1/completions": ("prompt", "max_tokens"),
            "/v1/chat/completions": ("max_tokens",), "/v1/responses": ("max_output_tokens",),
            "/completion": ("n_predict",), "/infill": ("n_predict",)}  # else up to the context
ALIASES = {"texts", "items", "text_1", "text_2", "data_1", "data_2", "truncate", "return_text",
           "truncation_direction"}  # second names: one of each pair is given


def valid(r, route):
    fields, own = fields_of(route), {**OWN, **BY_ROUTE.get(route, {})}
    required = [*schema_of(route).get("required", ()), *REQUIRED.get(route, ())]
    others = [name for name in fields if name not in required and name not in ALIASES]
    chosen = [*required, *r.sample(others, min(len(others), r.choice((0, 1, 2, 4, 8, 16))))]
    drawn = {name: own[name](r) if name in own else value_of(r, fields[name]) for name in chosen}
    return agree(r, route, {name: value for name, value in drawn.items() if value is not None})


ODD = (None, True, 0, -1, 1 << 31, 1 << 63, 0.5, 1e308, "", "a", [], [[]], {}, {"a": {}}, "\ud800",
       "x" * 5000, [None], [-1], {"type": "x"})


def broken(r, body):
    """Bytes of the body with one mistake: of a value, a name, a place or the JSON itself."""
    body = copy.deepcopy(body)
    at, name = body, r.choice(list(body) or ["a"])
    while isinstance(at.get(name), dict) and at[name] and r.random() < 0.7:
        at = at[name]
        name = r.choice(list(at))
    kind = r.randrange(5)
    if kind == 0:
        at.pop(name, None)
    elif kind == 1:
        at[name] = r.choice(ODD)
    elif kind == 2 and isinstance(at.get(name), list):
        at[name] = [*at[name], r.choice(ODD)] * r.choice((1, 40))
    else:
        at[name + r.choice(("_", "s", ""))] = r.choice(ODD)
    data = bytearray(json.dumps(body).encode())
    if kind == 4:
        for _ in range(r.randint(1, 3)):
            place = r.randrange(len(data))
            data[place:place + r.randint(0, 3)] = bytes(r.choices(b'"{}[],:\\\x00\xff0e-', k=1))
    return bytes(data)


def body(r, route):
    """(bytes, the body as JSON; None if something in it is broken)"""
    good = valid(r, route)
    if r.random() < BROKEN_SHARE:
        return broken(r, good), None
    return json.dumps(good).encode(), good
