"""docs/openapi.json as a judge: what a body must fit, what an answer must be, and what the server
refuses for reasons that no schema says."""

import functools
import json

from jsonschema import Draft202012Validator

from harness import ROOT

DOCUMENT = json.loads((ROOT / "docs/openapi.json").read_text())
# What the server refuses and schemas do not say, by the words of the error.
BEYOND = "|".join([
    # what is in a text: grammars, patterns, schemas
    "^grammar, line", "Invalid JSON at byte", "^Invalid schema at", "Expected a JSON schema",
    # the model, its template and the limits of the server
    "model `.*` does not exist", "^model '.*' not found", "Too many inputs: at most",
    "maximum context length", "prompt is too long",
    "prompt tokens fit beside", "at once; this server runs at most 64",
    "does not take documents", "not supported for the served model, which takes none",
    "the server keeps no (answers|conversations)",
    "not supported for a model that (classifies|makes embeddings)",
    "but the served model (classifies|makes embeddings)", "whose scores are cosines",
    "choices were given; at most", "its vocabulary has no tokens for",
    "was not trained for shorter",
    "Expected a value <= 20", "is more than the 20 alternatives", "tokenizer_config.json, line",
    "out of vocabulary",
    "no encoder stands before the model", "--enable-prompt-embeds turns it on",
    # rules between numbers, between fields, and what is cut to nothing
    "it must be less than or equal to", "it must be greater than or equal to",
    "there is no file", "must be provided and non-empty",
    "leaves nothing of the prompt", "must be equal to 'n'",
    "Only one constraint",
    "'top_logprobs' needs", "which is not among 'tools'", "asks for a tool, but 'tools'",
    "cannot be continued by a forced",
    "Beam search", "'prompt_logprobs' are not available", "no tool is left",
    "cannot both be given", "contradict each other", "what cannot be cut of them",
    "or as many as second ones",
    # parts of messages and items, which the routes of other dialects translate
    r"Missing required parameter: '(input|items|tools|messages)\[",
    r"Invalid( type for)? '(input|items|tools|messages)\[", "Content parts of type",
    r"Items of type",
    r"^messages\.\d", r"^tools\.\d", r"^tool_choice", r"^system\.\d",
    "Tools of another type",
])


def schema_of(route):
    """What a body must fit, with the rules between its fields, and the name of its component."""
    body = DOCUMENT["paths"][route]["post"]["requestBody"]["content"]["application/json"]["schema"]
    name = body["$ref"].rsplit("/", 1)[1]
    rules = DOCUMENT["components"]["schemas"][name]["x-rules"]
    return {"allOf": [body, *rules], "components": DOCUMENT["components"]}, name


@functools.cache
def judge_of(method, route, status, kind):
    """The validator of answers with this status and type, or None where the document has none. It
    is kept: one that is new reads the whole document at its first reference."""
    told = DOCUMENT["paths"][route][method]["responses"]
    told = told.get(str(status)) or told[f"{status // 100}XX"]
    if "$ref" in told:
        told = DOCUMENT["components"]["responses"][told["$ref"].rsplit("/", 1)[1]]
    if kind not in told["content"]:
        return None
    return Draft202012Validator({**told["content"][kind].get("schema", {}),
                                 "components": DOCUMENT["components"]})


def complaint_about(method, route, answer):
    """What is wrong with an answer by the document, or None."""
    kind = answer.headers["content-type"].split(";")[0]
    judge = judge_of(method, route, answer.status, kind)
    if judge is None:
        return f"{answer.status} of type {kind}"
    value = answer.json if kind == "application/json" else answer.body.decode()
    fault = next(judge.iter_errors(value), None)
    if fault is None:
        return None
    return f"{answer.status} {'/'.join(map(str, fault.absolute_path))}: {fault.message[:100]}"
