"""Requests at the limits of every field: L - 1, L and L + 1 of each, alone and in pairs.

The limits of the fields are those of docs/openapi.json, which is made from the tables of
server/fields; those of the options are the flags of the server that is asked. A value says whether
it is within its limit: if not, the request must be refused and the answer name the field."""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

OPENAPI = Path(__file__).parent.parent.parent / "docs/openapi.json"
ROUTES = {"/v1/completions": "CompletionRequest", "/v1/chat/completions": "ChatCompletionRequest"}
# Without effect on what runs beside it, or with an effect that other tests have.
LEFT_OUT = {"model", "prompt", "messages", "stream_interval", "metadata", "user", "seed",
            "safety_identifier", "prompt_cache_key", "request_id", "thinking_token_budget"}
ANY_COUNT = 1 << 53  # a count without a bound of its own


@dataclass(frozen=True)
class Value:
    field: str
    value: object
    says: str
    within: bool


class Limits:
    """The flags of the server that bound a request."""

    def __init__(self, **flags):
        self.flags = flags

    def arguments(self):
        for name, value in self.flags.items():
            yield from ("--" + name.replace("_", "-"), value)

    def __getattr__(self, name):
        return self.flags[name]


def resolve(schema, shared):
    while "$ref" in schema:
        schema = shared[schema["$ref"].rsplit("/", 1)[1]]
    return schema


def parts(schema, shared):
    """The forms that a value may have."""
    schema = resolve(schema, shared)
    for inner in schema.get("anyOf", schema.get("allOf", [])):
        yield from parts(inner, shared)
    if "anyOf" not in schema and "allOf" not in schema:
        yield schema


def words(count, length=2):
    return [f"q{i}".ljust(length, "z")[:max(length, 1)] for i in range(count)]


def of_form(field, form, shared):
    """Values at the limits of one form."""
    types = form.get("type", [])
    types = {types} if isinstance(types, str) else set(types)
    if types & {"integer", "number"}:
        step = 1 if "integer" in types else 0.01
        low, high = form.get("minimum", form.get("exclusiveMinimum")), form.get("maximum")
        for value in () if low is None or low < -ANY_COUNT else (low - step, low, low + step):
            within = value > low or (value == low and "minimum" in form)
            yield Value(field, value, f"{value:g}", within)
        for value in () if high is None or high >= ANY_COUNT else (high - step, high, high + step):
            yield Value(field, value, f"{value:g}", value <= high)
    if "string" in types:
        for length, within in around(form.get("minLength"), form.get("maxLength")):
            yield Value(field, "z" * length, f"{length} bytes", within)
    if "array" in types:
        item = resolve(form.get("items", {}), shared)
        ids = item.get("type") == "integer"
        for count, within in around(form.get("minItems"), form.get("maxItems")):
            yield Value(field, list(range(300, 300 + count)) if ids else words(count),
                        f"{count} of them", within)
        for length, within in () if ids else around(item.get("minLength"), item.get("maxLength")):
            yield Value(field, ["z" * length], f"one of {length} bytes", within)
    if "object" in types and "maxProperties" in form:
        for count, within in around(None, form["maxProperties"]):
            yield Value(field, {str(300 + i): -1 for i in range(count)}, f"{count} of them", within)


def around(least, most):
    """(size, within) beside each limit; None = there is none."""
    for size in () if least is None else (least - 1, least, least + 1):
        if size >= 0:
            yield size, size >= least
    for size in () if most is None else (most - 1, most, most + 1):
        yield size, size <= most


def of_options(route, limits):
    """Values at the limits of the server's flags."""
    def three(field, limit, make=int):
        return [Value(field, make(limit + by), f"option + {by}", by <= 0) for by in (-1, 0, 1)]

    for count in (limits.max_num_seqs + by for by in (-1, 0, 1)):
        yield Value("n", count, f"{count}, beside the places", True)
    if route == "/v1/completions":
        yield from three("prompt", limits.max_model_len - 1, lambda count: [7] * count)
        for tokens in (limits.max_num_batched_tokens + by for by in (-1, 0, 1)):
            yield Value("prompt", [7] * tokens, f"{tokens} tokens, beside a step's", True)
        for tokens in (limits.block_size + by for by in (-1, 0, 1)):
            yield Value("prompt", [7] * tokens, f"{tokens} tokens, beside a block's", True)
        yield from three("logprobs", limits.max_logprobs)
        yield from three("prompt_logprobs", limits.max_logprobs)
        for count in (limits.max_num_seqs + by for by in (-1, 0, 1)):
            yield Value("prompt", [[7, i] for i in range(count)], f"{count} prompts", True)


def values_of(route, limits):
    page = json.loads(OPENAPI.read_text("utf-8"))
    shared = page["components"]["schemas"]
    body = resolve(page["paths"][route]["post"]["requestBody"]["content"]["application/json"]
                   ["schema"], shared)
    found = {}
    for field, schema in body["properties"].items():
        if field in LEFT_OUT:
            continue
        for form in parts(schema, shared):
            for value in of_form(field, form, shared):
                found.setdefault((field, value.says), value)
    for value in of_options(route, limits):
        found[value.field, value.says] = value
    return list(found.values())


def cases_of(route, limits):
    """(values) alone, then every pair of two fields."""
    values = values_of(route, limits)
    yield from ((value,) for value in values)
    yield from ((a, b) for a, b in itertools.combinations(values, 2) if a.field != b.field)


def body_of(route, case, tokens):
    """A request that holds its places for `tokens` tokens, with the values of the case."""
    body = {"max_tokens": tokens, "ignore_eos": True}
    if route == "/v1/completions":
        body["prompt"] = [5, 6]
    else:
        body["messages"] = [{"role": "user", "content": "x"}]
    for value in case:
        body[value.field] = value.value
        if value.field == "top_logprobs":
            body["logprobs"] = True
        if value.field in ("length_penalty", "early_stopping"):
            body["use_beam_search"] = True
    return body
