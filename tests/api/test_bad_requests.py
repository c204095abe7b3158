"""Garbage in: each row is one bad request with the status, code and param it must get, and after
each of them the next request works. The rows follow the API contract of README.md."""

import json
import random
import re

import pytest

from harness import DEMO, Stream, wait_until

P = "Once upon a time"
NEST = "[" * 65 + "]" * 65
INVALID_JSON = "invalid_json"
MISSING = "missing_required_parameter"
TYPE = "invalid_type"
VALUE = "invalid_value"
LOW, HIGH = "integer_below_min_value", "integer_above_max_value"
UNSUPPORTED = "unsupported_parameter"


def raw(text):
    return text if isinstance(text, bytes) else text.encode()


# (name, body, code, param): status 400. A dict is sent as JSON, text and bytes as they are.
BODIES = [
    # syntax
    ("empty body", b"", INVALID_JSON, None),
    ("blank body", b"   ", INVALID_JSON, None),
    ("truncated", raw('{"prompt": "a"'), INVALID_JSON, None),
    ("trailing comma", raw('{"prompt": "a",}'), INVALID_JSON, None),
    ("trailing bytes", raw('{"prompt": "a"} x'), INVALID_JSON, None),
    ("two documents", raw('{"prompt": "a"}{"prompt": "a"}'), INVALID_JSON, None),
    ("single quotes", raw("{'prompt': 'a'}"), INVALID_JSON, None),
    ("comment", raw('{"prompt": "a" /* hi */}'), INVALID_JSON, None),
    ("duplicate key", raw('{"prompt": "a", "prompt": "b"}'), INVALID_JSON, None),
    ("escaped duplicate", raw('{"prompt": "a", "prom\\u0070t": "b"}'), INVALID_JSON, None),
    ("nan", raw('{"prompt": "a", "temperature": NaN}'), INVALID_JSON, None),
    ("infinity", raw('{"prompt": "a", "temperature": Infinity}'), INVALID_JSON, None),
    ("leading zero", raw('{"prompt": "a", "max_tokens": 01}'), INVALID_JSON, None),
    ("bare point", raw('{"prompt": "a", "temperature": 1.}'), INVALID_JSON, None),
    ("plus sign", raw('{"prompt": "a", "temperature": +1}'), INVALID_JSON, None),
    ("hex number", raw('{"prompt": "a", "max_tokens": 0x10}'), INVALID_JSON, None),
    ("bad utf-8", b'{"prompt": "\xff\xfe"}', INVALID_JSON, None),
    ("overlong utf-8", b'{"prompt": "\xc0\xaf"}', INVALID_JSON, None),
    ("utf-8 surrogate", b'{"prompt": "\xed\xa0\x80"}', INVALID_JSON, None),
    ("lone high surrogate", raw('{"prompt": "\\ud800"}'), INVALID_JSON, None),
    ("lone low surrogate", raw('{"prompt": "\\udc00 a"}'), INVALID_JSON, None),
    ("escaped nul", raw('{"prompt": "a\\u0000b"}'), INVALID_JSON, None),
    ("raw control byte", b'{"prompt": "a\x01b"}', INVALID_JSON, None),
    ("raw newline in string", b'{"prompt": "a\nb"}', INVALID_JSON, None),
    ("bad escape", raw('{"prompt": "\\x41"}'), INVALID_JSON, None),
    ("too deep", raw('{"prompt": %s}' % NEST), INVALID_JSON, None),
    ("very deep", b'{"prompt": ' + b"[" * 200000, INVALID_JSON, None),
    ("key too long", raw('{"prompt": "a", "%s": 1}' % ("k" * 300)), INVALID_JSON, None),
    ("top level array", b"[1, 2]", None, None),
    ("top level string", b'"prompt"', None, None),
    ("top level null", b"null", None, None),
    # prompt
    ("no prompt", {}, MISSING, "prompt"),
    ("null prompt", {"prompt": None}, MISSING, "prompt"),
    ("empty prompt", {"prompt": ""}, None, "prompt"),
    ("empty list", {"prompt": []}, None, "prompt"),
    ("number prompt", {"prompt": 5}, TYPE, "prompt"),
    ("object prompt", {"prompt": {"a": 1}}, TYPE, "prompt"),
    ("mixed prompt", {"prompt": ["a", 1]}, None, "prompt"),
    ("mixed lists", {"prompt": [[1], "a"]}, None, "prompt"),
    ("null in list", {"prompt": ["a", None]}, None, "prompt"),
    ("empty string in list", {"prompt": ["a", ""]}, None, "prompt"),
    ("empty id list in list", {"prompt": [[1], []]}, None, "prompt"),
    ("negative id", {"prompt": [1, -1]}, None, "prompt"),
    ("huge id", {"prompt": [1, 1 << 30]}, None, "prompt"),
    ("id over int64", raw('{"prompt": [99999999999999999999]}'), None, "prompt"),
    ("fraction id", {"prompt": [1, 1.5]}, None, "prompt"),
    ("true as id", {"prompt": [True]}, None, "prompt"),
    ("129 prompts", {"prompt": ["a"] * 129}, None, "prompt"),
    # numbers
    ("max_tokens zero", {"prompt": P, "max_tokens": 0}, None, "max_tokens"),
    ("max_tokens negative", {"prompt": P, "max_tokens": -2}, LOW, "max_tokens"),
    ("max_tokens fraction", {"prompt": P, "max_tokens": 1.5}, TYPE, "max_tokens"),
    ("max_tokens string", {"prompt": P, "max_tokens": "16"}, TYPE, "max_tokens"),
    ("max_tokens bool", {"prompt": P, "max_tokens": True}, TYPE, "max_tokens"),
    ("temperature high", {"prompt": P, "temperature": 2.01}, None, "temperature"),
    ("temperature negative", {"prompt": P, "temperature": -0.1}, None, "temperature"),
    ("temperature overflow", raw('{"prompt": "a", "temperature": 1e999}'), None, None),
    ("temperature string", {"prompt": P, "temperature": "hot"}, TYPE, "temperature"),
    ("top_p negative", {"prompt": P, "top_p": -0.1}, None, "top_p"),
    ("top_p high", {"prompt": P, "top_p": 1.1}, None, "top_p"),
    ("top_k", {"prompt": P, "top_k": -2}, LOW, "top_k"),
    ("min_p", {"prompt": P, "min_p": 1.5}, None, "min_p"),
    ("presence", {"prompt": P, "presence_penalty": 2.5}, None, "presence_penalty"),
    ("frequency", {"prompt": P, "frequency_penalty": -2.5}, None, "frequency_penalty"),
    ("repetition zero", {"prompt": P, "repetition_penalty": 0}, None, "repetition_penalty"),
    ("repetition high", {"prompt": P, "repetition_penalty": 11}, None, "repetition_penalty"),
    ("seed fraction", {"prompt": P, "seed": 1.5}, TYPE, "seed"),
    ("seed too large", raw('{"prompt": "a", "seed": 9223372036854775808}'), None, "seed"),
    ("logprobs high", {"prompt": P, "logprobs": 21}, HIGH, "logprobs"),
    ("logprobs high, stream", {"prompt": P, "logprobs": 21, "stream": True}, HIGH, "logprobs"),
    ("logprobs bool", {"prompt": P, "logprobs": True}, TYPE, "logprobs"),
    ("prompt_logprobs high", {"prompt": P, "prompt_logprobs": 21}, None, "prompt_logprobs"),
    ("prompt_logprobs stream", {"prompt": P, "prompt_logprobs": 1, "stream": True}, None,
     "prompt_logprobs"),
    ("min over max", {"prompt": P, "max_tokens": 4, "min_tokens": 5}, None, "min_tokens"),
    ("min negative", {"prompt": P, "min_tokens": -1}, LOW, "min_tokens"),
    ("n zero", {"prompt": P, "n": 0}, LOW, "n"),
    ("n huge", {"prompt": P, "n": 1000000}, HIGH, "n"),
    ("stream_interval", {"prompt": P, "stream": True, "stream_interval": 0}, LOW,
     "stream_interval"),
    ("priority", {"prompt": P, "priority": "high"}, TYPE, "priority"),
    # lists and objects
    ("stop empty", {"prompt": P, "stop": ""}, None, "stop"),
    ("stop empty inside", {"prompt": P, "stop": ["a", ""]}, None, "stop"),
    ("17 stops", {"prompt": P, "stop": [str(i) for i in range(17)]}, None, "stop"),
    ("long stop", {"prompt": P, "stop": "x" * 1025}, None, "stop"),
    ("stop number", {"prompt": P, "stop": 3}, TYPE, "stop"),
    ("stop ids range", {"prompt": P, "stop_token_ids": [1 << 30]}, None, "stop_token_ids"),
    ("stop ids many", {"prompt": P, "stop_token_ids": [1] * 129}, None, "stop_token_ids"),
    ("bias key", {"prompt": P, "logit_bias": {"cat": 1}}, None, "logit_bias"),
    ("bias id", {"prompt": P, "logit_bias": {"99999999": 1}}, None, "logit_bias"),
    ("bias value", {"prompt": P, "logit_bias": {"5": 101}}, None, "logit_bias"),
    ("bias type", {"prompt": P, "logit_bias": [1]}, TYPE, "logit_bias"),
    ("bias many", {"prompt": P, "logit_bias": {str(i): 1 for i in range(1025)}}, None,
     "logit_bias"),
    ("allowed empty", {"prompt": P, "allowed_token_ids": []}, None, "allowed_token_ids"),
    ("allowed range", {"prompt": P, "allowed_token_ids": [-1]}, None, "allowed_token_ids"),
    ("bad words empty", {"prompt": P, "bad_words": [""]}, None, "bad_words"),
    ("bad words long", {"prompt": P, "bad_words": ["x" * 257]}, None, "bad_words"),
    ("bad words many", {"prompt": P, "bad_words": ["x"] * 129}, None, "bad_words"),
    ("salt long", {"prompt": P, "cache_salt": "s" * 129}, None, "cache_salt"),
    ("salt empty", {"prompt": P, "cache_salt": ""}, None, "cache_salt"),
    ("user long", {"prompt": P, "user": "u" * 257}, None, "user"),
    ("echo string", {"prompt": P, "echo": "true"}, TYPE, "echo"),
    ("stream number", {"prompt": P, "stream": 1}, TYPE, "stream"),
    ("options alone", {"prompt": P, "stream_options": {"include_usage": True}}, None,
     "stream_options"),
    ("options type", {"prompt": P, "stream": True, "stream_options": 1}, TYPE, "stream_options"),
    ("truncate", {"prompt": P, "truncate_prompt_tokens": -2}, LOW, "truncate_prompt_tokens"),
    ("side", {"prompt": P, "truncation_side": "middle"}, None, "truncation_side"),
    ("logprob ids alone", {"prompt": P, "logprob_token_ids": [1]}, None, "logprob_token_ids"),
    ("model long", {"prompt": P, "model": "m" * 257}, None, "model"),
    ("model number", {"prompt": P, "model": 1}, TYPE, "model"),
    # known and refused
    ("suffix", {"prompt": P, "suffix": "end"}, UNSUPPORTED, "suffix"),
    ("prompt_embeds", {"prompt": P, "prompt_embeds": "AAAA"}, UNSUPPORTED, "prompt_embeds"),
    ("typical_p", {"prompt": P, "typical_p": 0.5}, UNSUPPORTED, "typical_p"),
    ("mirostat", {"prompt": P, "mirostat": 2}, UNSUPPORTED, "mirostat"),
    ("mirostat_tau", {"prompt": P, "mirostat_tau": 4.2}, UNSUPPORTED, "mirostat_tau"),
    ("dry", {"prompt": P, "dry_multiplier": 0.8}, UNSUPPORTED, "dry_multiplier"),
    ("xtc", {"prompt": P, "xtc_probability": 0.5}, UNSUPPORTED, "xtc_probability"),
    ("n_predict", {"prompt": P, "n_predict": 5}, UNSUPPORTED, "n_predict"),
    ("max_new_tokens", {"prompt": P, "max_new_tokens": 5}, UNSUPPORTED, "max_new_tokens"),
    ("lora", {"prompt": P, "lora": "x"}, UNSUPPORTED, "lora"),
    ("kv_transfer", {"prompt": P, "kv_transfer_params": {"a": 1}}, UNSUPPORTED,
     "kv_transfer_params"),
]

NOT_THERE = [
    ("unknown model", "/v1/completions", {"prompt": P, "model": "nope"}, "model_not_found"),
    ("unknown url", "/v1/nope", {"prompt": P}, "unknown_url"),
    ("stored answer", "/v1/responses/resp_1/cancel", {}, "unsupported_endpoint"),
]

MEDIA = [
    ("form", "application/x-www-form-urlencoded", {}),
    ("text", "text/plain", {}),
    ("multipart", "multipart/form-data; boundary=x", {}),
    ("charset", "application/json; charset=latin-1", {}),
    ("gzip", "application/json", {"Content-Encoding": "gzip"}),
]


def names(rows):
    return [row[0].replace(" ", "-") for row in rows]


def still_works(server):
    assert server.choice("Hello", max_tokens=1)["finish_reason"] in ("length", "stop")


@pytest.mark.parametrize("name,body,code,param", BODIES, ids=names(BODIES))
def test_bad_body(server, name, body, code, param):
    answer = server.post("/v1/completions", body)
    assert answer.status == 400, answer
    error = answer.error
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    if code:
        assert error["code"] == code
    assert "x-request-id" in answer.headers
    assert "rate limit" not in error["message"].lower() and "429" not in error["message"]
    still_works(server)


def test_list_is_long_enough():
    assert len(BODIES) + len(NOT_THERE) + len(MEDIA) >= 60
    assert len(set(names(BODIES))) == len(BODIES)


@pytest.mark.parametrize("name,path,body,code", NOT_THERE, ids=names(NOT_THERE))
def test_not_there(server, name, path, body, code):
    answer = server.post(path, body)
    assert answer.status == 404, answer
    assert answer.error["code"] == code
    assert answer.error["type"] == "invalid_request_error"
    still_works(server)


def test_unknown_model_is_named(server):
    error = server.post("/v1/completions", {"prompt": P, "model": 'x"y'}).error
    assert error["message"].startswith("The model `x") and "does not exist" in error["message"]


def test_the_log_has_the_field_at_fault(server):
    answer = server.post("/v1/completions", {"prompt": P, "temperature": 3})
    of_request = f'"id":"{answer.headers["x-request-id"]}"'

    def lines():
        return [line for line in server.log().splitlines() if of_request in line]

    wait_until(lines, "the line of the request")
    assert '"code":"invalid_value","param":"temperature",' in lines()[0]


@pytest.mark.parametrize("name,content_type,headers", MEDIA, ids=names(MEDIA))
def test_media_type(server, name, content_type, headers):
    answer = server.post("/v1/completions", json.dumps({"prompt": P}),
                         headers={"Content-Type": content_type, **headers})
    assert answer.status == 415, answer
    assert answer.error["code"] == "unsupported_media_type"
    still_works(server)


def test_form_hint_names_the_header(server):
    answer = server.post("/v1/completions", "prompt=a",
                         headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert "Content-Type: application/json" in answer.error["message"]


def test_too_long_prompt(start):
    server = start(DEMO, "--max-model-len", "512")
    length = server.max_model_len()
    assert length == 512
    ids = server.tokens("a b c d e f g h", add_special_tokens=False)
    prompt = (ids * (length // len(ids) + 2))[:length]
    for fields, fits in (({"prompt": prompt[:-1], "max_tokens": 1}, True),
                         ({"prompt": prompt, "max_tokens": 1}, False),
                         ({"prompt": prompt[:-1], "max_tokens": 2}, False),
                         ({"prompt": prompt[:-1]}, True),
                         ({"prompt": [5], "max_tokens": length}, False),
                         ({"prompt": [5], "max_tokens": 1 << 40}, False)):
        answer = server.post("/v1/completions", fields)
        if fits:
            assert answer.status == 200, answer
            continue
        assert answer.status == 400, answer
        assert answer.error["code"] == "context_length_exceeded"
        assert "his model's maximum context length is" in answer.error["message"]
        assert str(length) in answer.error["message"]
        assert answer.error["param"] == "prompt"
    answer = server.post("/v1/completions", {"prompt": "a b c d " * length * 8, "max_tokens": 1})
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    still_works(server)


def test_every_bad_bias_key_is_named(server):
    body = {"prompt": P, "logit_bias": {"cat": 1, "5": 1, "dog": 2}}
    message = server.post("/v1/completions", body).error["message"]
    assert "cat" in message and "dog" in message


def test_a_request_that_forbids_every_token_hears_why(server):
    """At its first token, or behind some of a stream. A stop id that a constraint needs as text may
    not come where the text may not end."""
    digits = [server.tokens(digit, add_special_tokens=False)[0] for digit in "0123456789"]
    forbid = ({"allowed_token_ids": digits[:1], "bad_words": ["0"]},
              {"allowed_token_ids": digits[:2], "structured_outputs": {"regex": "[01]{3}[2-9]"}},
              {"stop_token_ids": digits[7:8], "min_tokens": 4,
               "structured_outputs": {"regex": "[01]{2}7[01]{4}"}})
    for fields in forbid:
        body = {"prompt": P, "max_tokens": 9, "temperature": 0, **fields}
        answer = server.post("/v1/completions", body)
        assert (answer.status, answer.error["code"]) == (400, "no_token_allowed"), answer
        assert "'allowed_token_ids'" in answer.error["message"]
        stream = Stream(server, body)
        if stream.status == 200:
            assert stream.chunks()[-1]["error"] == answer.error
        stream.close()
    still_works(server)


# A pattern that allows the empty text, a finite one, one that may go on for ever.
PATTERNS = ("$", "[01]?", "[01]{2}", "[01]{2}(?:7|77)?", "(?:no|now)?", "[0-9]*")


def body_that_takes_tokens_away(server, rng):
    ids = [server.tokens(digit, add_special_tokens=False)[0] for digit in "0127"]
    body = {"prompt": P, "max_tokens": rng.randint(1, 8), "seed": rng.randint(0, 99)}
    if rng.random() < 0.85:
        body["guided_regex"] = rng.choice(PATTERNS)
    if rng.random() < 0.5:
        body["ignore_eos"] = True
    if rng.random() < 0.4:
        body["min_tokens"] = rng.randint(0, body["max_tokens"])
    if rng.random() < 0.3:
        body["stop_token_ids"] = rng.sample(ids, 2)
    if rng.random() < 0.3:
        body["logprobs"] = rng.randint(0, 5)
    if rng.random() < 0.3:
        body["echo"] = True
    if rng.random() < 0.3:
        body["allowed_token_ids"] = rng.sample(ids, 2)
    if rng.random() < 0.3:
        body["bad_words"] = rng.sample(["0", "1", "7", "no", "01"], 2)
    if rng.random() < 0.3:
        body["logit_bias"] = {str(i): -100 for i in ids}
    return {**body, **rng.choice(({}, {}, {"n": 2}, {"n": 2, "best_of": 3}))}


def test_no_drawn_ban_is_an_internal_error(server):
    """Whatever takes tokens away: an answer, or 400. A constrained text that stops is a whole one,
    also where the client lets no stop token come."""
    rng, seen = random.Random(31), {200: 0, 400: 0}
    for _ in range(300):
        body = body_that_takes_tokens_away(server, rng)
        answer = server.post("/v1/completions", body)
        assert answer.status in seen, (body, answer)
        seen[answer.status] += 1
        if answer.status == 400:
            assert answer.error["code"] == "no_token_allowed", (body, answer)
        else:
            for choice in answer.json["choices"]:
                text = choice["text"][len(P) if "echo" in body else 0:]
                if choice["finish_reason"] == "stop" and "guided_regex" in body:
                    assert re.fullmatch(body["guided_regex"], text), (body, choice)
        if "best_of" in body:
            continue
        stream = Stream(server, body)
        chunks = stream.chunks() if stream.status == 200 else [{"error": 1}]
        stream.close()
        failed = "error" in chunks[-1]
        assert failed == (answer.status == 400), (body, chunks[-1])
        if failed and stream.status == 200:
            assert chunks[-1]["error"] == answer.error, (body, chunks[-1])
    assert min(seen.values()) > 9, seen
    still_works(server)


def test_a_constraint_of_the_empty_text_gives_it(server):
    for fields in ({}, {"ignore_eos": True}, {"min_tokens": 5}, {"allowed_token_ids": [5]},
                   {"ignore_eos": True, "n": 3}, {"ignore_eos": True, "n": 2, "best_of": 3}):
        body = {"prompt": "a", "max_tokens": 12, "guided_regex": "$", **fields}
        answer = server.post("/v1/completions", body)
        assert answer.status == 200, (body, answer)
        for choice in answer.json["choices"]:
            assert (choice["text"], choice["finish_reason"]) == ("", "stop"), (body, choice)
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 9, "ignore_eos": True,
            "structured_outputs": {"regex": "$"}}
    choice = server.post("/v1/chat/completions", chat).json["choices"][0]
    assert (choice["message"]["content"] or "", choice["finish_reason"]) == ("", "stop")


@pytest.mark.parametrize("field", ["n", "best_of"])
def test_values_that_change_nothing_are_accepted(server, field):
    assert server.choice(P, max_tokens=1, **{field: 1})["text"] is not None


NO_OPS = {"response_format": {"type": "text"}, "typical_p": 1, "mirostat": 0, "grammar": None,
          "use_beam_search": False, "suffix": None, "guided_json": None, "best_of": None,
          "user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto",
          "logit_bias": {}, "stop": None, "seed": None, "stream_options": None}


def test_no_ops_and_harmless_fields(server):
    answer = server.post("/v1/completions", {"prompt": P, "max_tokens": 1, **NO_OPS})
    assert answer.status == 200, answer
    assert "x-inferd-ignored-params" not in answer.headers


def test_strangers_are_reported(server):
    answer = server.post("/v1/completions", {"prompt": P, "max_tokens": 1, "zebra": 1, "ox": 2})
    assert answer.status == 200, answer
    assert set(answer.headers["x-inferd-ignored-params"].split(",")) == {"zebra", "ox"}


def mutate(rng, body):
    """One to four random edits of a valid body: bytes changed, cut, doubled or moved."""
    body = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(body))
        kind = rng.randrange(5)
        if kind == 0:
            body[at] = rng.randrange(256)
        elif kind == 1:
            del body[at:at + rng.randint(1, 8)]
        elif kind == 2:
            body[at:at] = body[at:at + rng.randint(1, 16)]
        elif kind == 3:
            body[at:at] = rng.choice([b"[", b"{", b'"', b"\\u0000", b"1e999", b"-", b"\xff"])
        else:
            body[:at] = body[:at][::-1]
        body = body or bytearray(b"{")
    return bytes(body)


def test_mutated_bodies(server):
    """Seeded mutations of a body with many fields: always a proper answer, never a 5xx."""
    rng = random.Random(20)
    seed = json.dumps({"prompt": [P, "b"], "max_tokens": 2, "temperature": 0.7, "top_p": 0.9,
                       "stop": ["x", "yy"], "logit_bias": {"5": 1.5}, "logprobs": 2, "seed": 7,
                       "stream_options": None, "allowed_token_ids": [1, 2, 3]}).encode()
    counts = {}
    connection = server.connection()
    for _ in range(600):
        answer = server.post("/v1/completions", mutate(rng, seed), connection=connection)
        counts[answer.status] = counts.get(answer.status, 0) + 1
        assert answer.status in (200, 400, 404), answer
        if answer.status != 200:
            assert answer.error["type"] == "invalid_request_error"
        if answer.headers.get("connection", "").lower() == "close":
            connection.close()
    connection.close()
    assert counts[400] > 300
    still_works(server)
