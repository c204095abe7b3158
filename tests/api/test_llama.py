"""llama.cpp's routes: names as its server's README and code have them, values as the rest of this
server has them; of one model, and behind a parent."""

import json
import re

import pytest

from harness import DEMO, ROOT, Stream, dummy_model, http_post, wait_until
from test_loans import read_chunks
from test_models import ADMIN, SMALL, children, state

# Of llama.cpp's tools/server, README.md and get_props, 2026-07; and of the settings in `params`.
# media_marker, cors_proxy_enabled, webui_settings and ui are of features that are not here.
NAMES = {"default_generation_settings", "total_slots", "model_alias", "model_path", "modalities",
         "endpoint_slots", "endpoint_props", "endpoint_metrics", "webui", "chat_template",
         "chat_template_caps", "bos_token", "eos_token", "build_info", "is_sleeping"}
SETTINGS = {"n_predict", "max_tokens", "seed", "temperature", "top_k", "top_p", "min_p",
            "repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty",
            "ignore_eos", "stop", "stream"}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}}}}
TALKS = [
    {"messages": [{"role": "user", "content": "2 plus 3?"}]},
    {"messages": [{"role": "system", "content": "Be \"brief\"\n"},
                  {"role": "user", "content": "Grüße \U0001f600 \u0001"}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                  {"role": "user", "content": "c"}], "tools": [TOOL]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b <|im_e"}],
     "continue_final_message": True, "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": False},
]


@pytest.mark.parametrize("talk", TALKS)
def test_a_template_is_applied_as_for_a_chat(server, talk):
    answer = server.post("/apply-template", talk)
    assert answer.status == 200 and set(answer.json) == {"prompt"}, answer
    rendered = server.post("/v1/chat/completions/render", talk).json
    assert answer.json["prompt"] == rendered["prompt"]
    assert talk["messages"][-1]["content"] in answer.json["prompt"]


def test_a_prompt_longer_than_the_context_is_shown(server):
    talk = {"messages": [{"role": "user", "content": "word " * 20000}]}
    assert server.post("/v1/chat/completions/render", talk).status == 400
    assert server.post("/apply-template", talk).json["prompt"].count("word ") == 20000


def test_what_is_no_conversation_is_refused_by_name(server):
    for body, param in (({}, "messages"), ({"messages": []}, "messages"),
                        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
                        ({"messages": TALKS[0]["messages"], "model": "nope"}, "model")):
        answer = server.post("/apply-template", body)
        assert answer.status in (400, 404) and answer.error["param"] == param, answer
    assert server.get("/apply-template").status == 405
    assert server.post("/props", {}).status == 405, "as llama.cpp's without --props"


def test_properties(server):
    props = server.get("/props").json
    assert set(props) == NAMES
    settings = props["default_generation_settings"]
    assert set(settings) == {"params", "n_ctx"} and set(settings["params"]) == SETTINGS
    card = server.get("/v1/models").json["data"][0]
    assert settings["n_ctx"] == card["max_model_len"] and props["model_alias"] == card["id"]
    config = json.loads((DEMO / "tokenizer_config.json").read_text())
    assert props["chat_template"] == config["chat_template"]
    assert props["bos_token"] == "" and props["model_path"] == str(DEMO)
    ends = json.loads((DEMO / "generation_config.json").read_text())["eos_token_id"]
    first = ends[0] if isinstance(ends, list) else ends
    tokens = json.loads((DEMO / "tokenizer.json").read_text())["added_tokens"]
    assert props["eos_token"] in {token["content"] for token in tokens}
    assert first in {token["id"] for token in tokens if token["content"] == props["eos_token"]}
    assert props["modalities"] == {"vision": False, "audio": False}
    assert props["chat_template_caps"]["supports_tools"] is True
    assert props["total_slots"] >= 1 and props["is_sleeping"] is False


# Of a slot, as llama.cpp's server prints those that run nothing.
SLOT = {"id", "n_ctx", "speculative", "is_processing"}


def test_slots_are_the_places_of_the_model(start, tmp_path):
    model = dummy_model(tmp_path / "m", **SMALL | {"max_position_embeddings": 8192})
    server = start(model, "--load-format", "dummy", "--max-num-seqs", 2, "--max-model-len", 8192)
    slots = server.get("/slots").json
    assert [set(slot) for slot in slots] == [SLOT, SLOT] and [s["id"] for s in slots] == [0, 1]
    assert len(slots) == server.get("/props").json["total_slots"]
    assert {slot["n_ctx"] for slot in slots} == {8192}
    assert server.get("/props").json["endpoint_slots"] is True

    def taken():
        return [slot["is_processing"] for slot in server.get("/slots").json]

    assert taken() == [False, False]
    streams = []
    for count in (1, 2):
        answer = server.get("/slots?fail_on_no_slot=1")
        assert answer.status == 200 and sum(s["is_processing"] for s in answer.json) == count - 1
        streams.append(Stream(server, {"prompt": [5], "max_tokens": 8000, "ignore_eos": True}))
        next(streams[-1].events())
        wait_until(lambda count=count: sum(taken()) == count, "it to be shown")
    full = server.get("/slots?fail_on_no_slot=1")
    assert full.status == 503 and "no slot available" in full.error["message"], full
    assert server.get("/slots").status == server.get("/slots?fail_on_no_slot=").status == 200
    for stream in streams:
        stream.close()
    wait_until(lambda: taken() == [False, False], "both to be free")
    for action in ("save", "restore", "erase"):
        refused = server.post(f"/slots/0?action={action}", {})
        assert refused.status == 404, refused
        assert "slots in files of llama.cpp" in refused.error["message"]


def test_defaults_are_those_of_the_model(start, tmp_path):
    """And what a request is drawn with that names none, as /render says."""
    model = dummy_model(tmp_path / "m", **SMALL)
    (model / "generation_config.json").write_text(json.dumps(
        {"temperature": 0.35, "top_p": 0.8, "top_k": 17, "repetition_penalty": 1.25,
         "max_new_tokens": 33}))
    for flags in ((), ("--generation-config", "none")):
        server = start(model, "--load-format", "dummy", "--max-num-seqs", 3, *flags)
        props = server.get("/props").json
        params = props["default_generation_settings"]["params"]
        drawn = server.post("/v1/completions/render", {"prompt": "a"}).json[0]["sampling_params"]
        for name, other in (("temperature",) * 2, ("top_p",) * 2, ("top_k",) * 2, ("min_p",) * 2,
                            ("repeat_penalty", "repetition_penalty"), ("presence_penalty",) * 2,
                            ("frequency_penalty",) * 2):
            assert params[name] == pytest.approx(drawn[other]), name
        assert params["temperature"] == (1 if flags else pytest.approx(0.35))
        assert params["n_predict"] == params["max_tokens"] == (-1 if flags else 33)
        assert props["total_slots"] == 3


# /completion and /infill

# Of an answer, as the README lists them; generation_settings and timings have names of their own.
ANSWER = {"index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted",
          "tokens_evaluated", "generation_settings", "has_new_line", "truncated", "stop_type",
          "stopping_word", "tokens_cached", "timings"}
PART = {"index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated"}
TIMES = {"cache_n", *(f"{what}_{name}" for what in ("prompt", "predicted")
                      for name in ("n", "ms", "per_token_ms", "per_second"))}


def complete(server, **body):
    answer = server.post("/completion", {"prompt": "Once upon a time", "n_predict": 8,
                                         "temperature": 0, **body})
    assert answer.status == 200, answer
    return answer.json


def events(server, path, body):
    """Every event of a stream."""
    with server.socket() as raw:
        raw.sendall(http_post(path, {"stream": True, **body}, "Connection: close"))
        head, data, rest = read_chunks(raw)
    assert head.startswith(b"HTTP/1.1 200 ") and b"text/event-stream" in head and rest == b""
    lines = data.decode().split("\n\n")
    assert lines.pop() == "" and all(line.startswith("data: ") for line in lines), lines[-3:]
    return [json.loads(line[6:]) for line in lines]


@pytest.mark.parametrize("fields, same", [
    ({"temperature": 0.9, "seed": 5, "top_k": 20, "top_p": 0.9, "min_p": 0.01}, {}),
    ({"temperature": 1, "seed": 4, "repeat_penalty": 1.2, "presence_penalty": 0.5},
     {"repetition_penalty": 1.2}),
    ({"temperature": 1, "seed": 4, "repeat_penalty": 1.2, "repeat_last_n": 0},
     {"repetition_penalty": None}),
    ({"stop": ["e"], "n_predict": 40}, {"max_tokens": 40}),
    ({"ignore_eos": True, "n_predict": 60}, {"max_tokens": 60}),
    ({"grammar": 'root ::= "yes" | "no"'}, {}),
    ({"json_schema": {"enum": ["a\nb"]}, "n_predict": 30},
     {"guided_json": {"enum": ["a\nb"]}, "max_tokens": 30}),
    ({"logit_bias": [[300, 5.5], [301, False]]}, {"logit_bias": {"300": 5.5, "301": -100}}),
    ({"logit_bias": {"300": 50}}, {"logit_bias": {"300": 50}}),
    ({"prompt": [5, 6, 7, 300]}, {}),
])
def test_a_completion_is_that_of_v1(server, fields, same):
    own = {"n_predict", "repeat_penalty", "repeat_last_n", "json_schema", "logit_bias"}
    body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8,
            **{name: value for name, value in fields.items() if name not in own}, **same,
            "return_token_ids": True}
    wanted = server.post("/v1/completions", body).json
    choice, usage = wanted["choices"][0], wanted["usage"]
    answer = complete(server, return_tokens=True, **fields)
    assert set(answer) == ANSWER and answer["stop"] is True and answer["index"] == 0
    assert (answer["content"], answer["tokens"]) == (choice["text"], choice["token_ids"])
    assert answer["tokens_predicted"] == usage["completion_tokens"]
    assert answer["tokens_predicted"] == answer["timings"]["predicted_n"]
    assert answer["tokens_evaluated"] == usage["prompt_tokens"]
    stop = "limit" if choice["finish_reason"] == "length" else \
        "word" if isinstance(choice["stop_reason"], str) else "eos"
    assert answer["stop_type"] == stop
    assert answer["stopping_word"] == (choice["stop_reason"] if stop == "word" else "")
    assert answer["has_new_line"] == ("\n" in answer["content"])
    assert set(answer["timings"]) == TIMES and set(answer["generation_settings"]) == SETTINGS
    assert complete(server, **fields)["tokens"] == []
    parts = events(server, "/completion", {"prompt": "Once upon a time", "n_predict": 8,
                                           "temperature": 0, **fields})
    assert all(set(part) == PART and part["stop"] is False for part in parts[:-1])
    assert "".join(part["content"] for part in parts) == answer["content"]
    assert [token for part in parts for token in part["tokens"]] == answer["tokens"]
    last = parts[-1]
    assert set(last) == ANSWER and (last["content"], last["tokens"]) == ("", [])
    left_out = {"content", "tokens", "timings", "tokens_cached", "generation_settings"}
    assert {k: v for k, v in last.items() if k not in left_out} == {
        k: v for k, v in answer.items() if k not in left_out}


def test_several_answers_are_a_list(server):
    two = complete(server, prompt=["Once", "upon a"])
    assert [one["index"] for one in two] == [0, 1]
    assert [one["content"] for one in two] == [complete(server, prompt=text)["content"]
                                               for text in ("Once", "upon a")]
    four = complete(server, prompt=["Once", "upon a"], n_cmpl=2, temperature=1, seed=3)
    assert [one["index"] for one in four] == [0, 1, 2, 3]
    parts = events(server, "/completion", {"prompt": ["Once", "upon a"], "n_predict": 8,
                                           "temperature": 0})
    assert [part["index"] for part in parts if part["stop"]] == [0, 1]
    for one in two:
        mine = [part["content"] for part in parts if part["index"] == one["index"]]
        assert "".join(mine) == one["content"]


def test_nothing_is_predicted_and_the_prompt_is_kept(start):
    """As editors warm the cache up."""
    server = start(DEMO)
    text = "one two three four " * 40
    warm = complete(server, prompt=text, n_predict=0)
    assert (warm["content"], warm["tokens_predicted"], warm["stop_type"]) == ("", 0, "limit")
    assert warm["tokens_cached"] == 0 < warm["tokens_evaluated"]
    again = complete(server, prompt=text + "five", n_predict=1)
    assert again["tokens_cached"] > warm["tokens_evaluated"] - 40
    assert again["timings"]["cache_n"] == again["tokens_cached"]


def test_without_a_number_it_goes_to_the_end_of_the_context(start, tmp_path):
    model = dummy_model(tmp_path / "m", **{**SMALL, "max_position_embeddings": 64})
    server = start(model, "--load-format", "dummy")
    answer = server.post("/completion", {"prompt": [5, 6, 7], "ignore_eos": True}).json
    assert answer["tokens_predicted"] == 61 and answer["stop_type"] == "limit"
    assert answer["generation_settings"]["n_predict"] == -1


@pytest.mark.parametrize("body, param", [
    ({}, "prompt"), ({"prompt": ""}, "prompt"), ({"prompt": {"prompt_string": "a"}}, "prompt"),
    ({"prompt": [5, "a"]}, "prompt"), ({"prompt": "a", "n_predict": -2}, "n_predict"),
    ({"prompt": "a", "n_predict": 1.5}, "n_predict"),
    ({"prompt": "a", "temperature": 2.5}, "temperature"),
    ({"prompt": "a", "n_probs": 3}, "n_probs"),
    ({"prompt": "a", "samplers": ["top_k"]}, "samplers"),
    ({"prompt": "a", "mirostat": 1}, "mirostat"),
    ({"prompt": "a", "repeat_penalty": 1.1, "repeat_last_n": 64}, "repeat_last_n"),
    ({"prompt": "a", "logit_bias": [["a", 1]]}, "logit_bias"),
    ({"prompt": "a", "logit_bias": [[300, True]]}, "logit_bias"),
    ({"prompt": "a", "logit_bias": [[300]]}, "logit_bias"),
    ({"prompt": "a", "logit_bias": [[300, 101]]}, "logit_bias"),
    ({"prompt": "a", "json_schema": 5}, "json_schema"),
    ({"prompt": "a", "grammar": "root ::= ("}, "grammar"),
    ({"prompt": "a", "n_cmpl": 129}, "n_cmpl"), ({"prompt": "a", "unknown": 1}, None),
    ({"prompt": "a", "model": "nope"}, "model")])
def test_what_is_not_there_is_refused_by_name(server, body, param):
    answer = server.post("/completion", {"n_predict": 1, **body})
    if param is None:  # a name that nobody knows is named in a header
        assert answer.status == 200 and answer.headers["x-inferd-ignored-params"] == "unknown"
        return
    assert answer.status in (400, 404) and answer.error["param"] == param, answer
    assert param in answer.error["message"] or param == "model"


def test_what_changes_nothing_is_taken(server):
    plain = complete(server)["content"]
    assert plain == complete(
        server, cache_prompt=True, id_slot=-1, n_keep=0, samplers=[], n_probs=0, mirostat=0,
        typical_p=1.0, xtc_probability=0.0, xtc_threshold=0.1, dry_multiplier=0.0, dry_base=1.75,
        dynatemp_range=0.0, min_keep=0, repeat_last_n=64, repeat_penalty=1.0, seed=-1,
        logit_bias=[], n_cmpl=1, timings_per_token=False, lora=[], t_max_predict_ms=0,
        post_sampling_probs=False, stop=[])["content"]


FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def test_infill_is_a_suffix_of_v1(start, tmp_path):
    model = dummy_model(tmp_path / "m", **SMALL)
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    config = json.loads((model / "config.json").read_text())
    for i, name in enumerate(FIM):
        tokenizer["added_tokens"].append({
            "id": config["vocab_size"] + i, "content": name, "special": True, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False})
    config["vocab_size"] += 3
    path.write_text(json.dumps(tokenizer))
    (model / "config.json").write_text(json.dumps(config))
    server = start(model, "--load-format", "dummy")
    wanted = server.post("/v1/completions", {"prompt": "def f(", "suffix": "return 1", "seed": 1,
                                             "max_tokens": 12, "ignore_eos": True}).json
    body = {"input_prefix": "def f(", "input_suffix": "return 1", "n_predict": 12, "seed": 1,
            "ignore_eos": True}
    answer = server.post("/infill", body).json
    assert answer["content"] == wanted["choices"][0]["text"] and set(answer) == ANSWER
    assert answer["tokens_evaluated"] == wanted["usage"]["prompt_tokens"]
    parts = events(server, "/infill", body)
    assert "".join(part["content"] for part in parts) == answer["content"]
    assert server.post("/infill", {**body, "input_extra": [], "prompt": ""}).status == 200
    for wrong, param in (({"input_suffix": ""}, "input_suffix"), ({"prompt": "x"}, "prompt"),
                         ({"input_suffix": None}, "input_suffix"), ({"n_predict": 0}, "n_predict"),
                         ({"input_extra": [{"filename": "a", "text": "b"}]}, "input_extra")):
        refused = server.post("/infill", {**body, **wrong})
        assert refused.status == 400 and refused.error["param"] == param, refused


def test_a_model_that_fills_nothing_in_says_so(server):
    answer = server.post("/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 1})
    assert answer.status == 400 and answer.error["param"] == "input_suffix", answer


def test_a_stream_that_fails_ends_with_its_error(start, slow_model):
    server = start(slow_model, "--load-format", "dummy", "--drain-timeout", "1ms")
    with server.socket() as raw:
        raw.sendall(http_post("/completion", {"prompt": [5, 6], "ignore_eos": True, "stream": True},
                              "Connection: close"))
        received = raw.recv(1 << 14)
        server.process.terminate()
        while part := raw.recv(1 << 14):
            received += part
    assert server.wait_exit(30) == 0
    (last,) = re.findall(rb'data: (\{"error".*\})\n\n', received)
    assert json.loads(last)["error"]["code"] and b"[DONE]" not in received


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    directory = tmp_path_factory.mktemp("zoo")
    model = dummy_model(tmp_path_factory.mktemp("small") / "small", **SMALL)
    (directory / "zoo.conf").write_text(f"[model ant]\nmodel = {model}\nload-format = dummy\n")
    return directory


def test_behind_a_parent(start, zoo):
    """A model is named by the body, or by the query; with none the parent says what it is."""
    server = start(DEMO, "--models-dir", zoo, "--admin-key", ADMIN)
    alone = start(DEMO)
    props = server.get("/props").json
    assert props["role"] == "router" and props["default_generation_settings"]["n_ctx"] == 0
    assert props["build_info"] == alone.get("/props").json["build_info"]
    refused = server.get("/props?model=ant&autoload=false")
    assert refused.status == 400 and refused.error["param"] == "autoload", refused
    assert server.post("/tokenize?autoload=0", {"model": "ant", "prompt": "a"}).status == 400
    assert state(server, "ant") == "unloaded" and "ant" not in children(server)
    own, theirs = (one.get("/props?model=demo").json for one in (server, alone))
    assert {**own, "webui": None} == {**theirs, "webui": None}
    ant = server.get("/props?model=ant&autoload=true").json
    assert ant["model_alias"] == "ant" and ant["default_generation_settings"]["n_ctx"] == 512
    assert server.get("/props?model=ant&autoload=false").json == ant, "it is in memory"
    assert server.get("/props?model=nope").status == 404
    for talk in TALKS:
        answers = [one.post("/apply-template", {"model": "demo", **talk})
                   for one in (server, alone)]
        assert answers[0].body == answers[1].body and answers[0].status == 200
    assert server.post("/apply-template", TALKS[0]).error["param"] == "model"
    bodies = [{"model": "demo", "prompt": "Once", "n_predict": 20, "temperature": 0, "stream": flag}
              for flag in (False, True)]
    texts = [[complete(one, **bodies[0])["content"],
              "".join(part["content"] for part in events(one, "/completion", bodies[1]))]
             for one in (server, alone)]
    assert texts[0] == texts[1] and len(set(texts[0])) == 1


def test_the_table_of_routes_says_so():
    page = (ROOT / "docs/api.md").read_text()
    for route in ("POST /apply-template", "GET /props", "POST /completion", "POST /infill"):
        assert f"`{route}`" in page
