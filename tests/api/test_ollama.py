"""Ollama's API over plain HTTP: the same answers as on /v1, what programs ask about the model, and
the rules that hold for every route: keys, limits, sizes, origins, shares.

The real clients are in tests/clients/test_ollama.py."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from gguf import GGUFReader

import seeing
from harness import DEMO, PATIENCE, ROOT, Server, wait_until

sys.path.insert(0, str(ROOT / "scripts/vectors"))
from gguf_demo import Type, write  # noqa: E402  pylint: disable=wrong-import-position

ASK = [{"role": "user", "content": "What is 2 plus 3?"}]
COLD = {"temperature": 0, "num_predict": 24}
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
ENCODERS = ROOT / "tests/vectors/encoders"


def lines_of(answer):
    assert answer.status == 200, answer
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.body.endswith(b"\n") and b"\n\n" not in answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


def error_of(answer):
    assert set(answer.json) == {"error"}, answer
    return answer.json["error"]


# ---- answers ----

def test_a_chat_is_that_of_v1(server):
    """Text, counts and end; the times add up to no more than the whole."""
    wanted = server.post("/v1/chat/completions", {"messages": ASK, "temperature": 0}).json
    whole = server.post("/api/chat", {"model": "demo", "messages": ASK, "options": COLD,
                                      "stream": False}).json
    parts = lines_of(server.post("/api/chat", {"model": "demo", "messages": ASK, "options": COLD}))
    text = wanted["choices"][0]["message"]["content"]
    assert whole["message"] == {"role": "assistant", "content": text}
    assert "".join(part["message"]["content"] for part in parts) == text and len(parts) > 2
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    for last in (whole, parts[-1]):
        assert last["prompt_eval_count"] == wanted["usage"]["prompt_tokens"]
        assert last["eval_count"] == wanted["usage"]["completion_tokens"]
        assert last["done_reason"] == "stop" and last["model"] == "demo"
        assert all(isinstance(last[name], int) and last[name] >= 0 for name in DURATIONS)
        assert sum(last[name] for name in DURATIONS[1:]) <= last["total_duration"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", last["created_at"])


def test_raw_is_completions(server):
    for fields in ({}, {"stop": ["."]}, {"seed": 5, "temperature": 1.3, "top_k": 40}):
        wanted = server.choice("Once upon", **{"max_tokens": 24, "temperature": 0, **fields})
        answer = server.post("/api/generate", {
            "model": "demo", "prompt": "Once upon", "raw": True, "stream": False,
            "options": {**COLD, **fields}}).json
        assert answer["response"] == wanted["text"]
        assert answer["done_reason"] == wanted["finish_reason"]


def test_generate_is_a_chat_of_one_question(server):
    wanted = server.post("/v1/chat/completions", {
        "messages": [{"role": "system", "content": "Be brief."}, *ASK], "temperature": 0}).json
    answer = server.post("/api/generate", {
        "model": "demo:latest", "system": "Be brief.", "prompt": ASK[0]["content"],
        "options": COLD, "stream": False}).json
    assert answer["response"] == wanted["choices"][0]["message"]["content"]
    assert answer["prompt_eval_count"] == wanted["usage"]["prompt_tokens"]


def test_log_probabilities_are_those_of_v1(server):
    body = {"messages": ASK, "logprobs": True, "top_logprobs": 3}
    wanted = server.post("/v1/chat/completions", {**body, "temperature": 0}).json
    body.update(model="demo", options=COLD)
    whole = server.post("/api/chat", {**body, "stream": False}).json
    parts = lines_of(server.post("/api/chat", body))
    assert whole["logprobs"] == wanted["choices"][0]["logprobs"]["content"]
    assert sum((part.get("logprobs", []) for part in parts), []) == whole["logprobs"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_num_predict(server, number):
    answer = server.post("/api/chat", {"model": "demo", "messages": ASK, "stream": False,
                                       "options": {"num_predict": number, "temperature": 0}}).json
    assert answer["eval_count"] == number and answer["done_reason"] == "length"


def test_the_context_is_a_limit(server):
    """More tokens than fit are no error; more of a context than there is, is."""
    most = server.max_model_len()
    short = {"model": "demo", "prompt": "a", "raw": True, "stream": False}
    for size in (1, most):
        assert server.post("/api/generate", {**short, "options": {
            "num_ctx": size, "num_predict": 1}}).status == 200
    answer = server.post("/api/generate", {**short, "options": {"num_ctx": most + 1}})
    assert answer.status == 400 and f"{most + 1} is more than" in error_of(answer)
    assert server.post("/api/generate", {**short, "options": {
        "num_predict": 10 ** 9, "stop": [" "]}}).status == 200
    answer = server.post("/api/generate", {**short, "prompt": "a " * most})
    assert answer.status == 400 and f"> {most} maximum" in error_of(answer)


def test_calls_and_results(server):
    """A round trip: the arguments are an object, and the prompt of the second turn is chat's."""
    tool = {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    history = [{"role": "user", "content": "What is the weather in Paris?"}]
    body = {"model": "demo", "tools": [tool], "options": {"temperature": 0}}
    parts = lines_of(server.post("/api/chat", {**body, "messages": history}))
    calls = sum((part["message"].get("tool_calls", []) for part in parts), [])
    assert [call["function"] for call in calls] == [
        {"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}}]
    identity = calls[0].pop("id")  # older clients send it back without one
    for result in ({"tool_name": "get_weather"}, {}):
        second = [*history, {"role": "assistant", "content": "", "tool_calls": calls},
                  {"role": "tool", "content": "Sunny.", **result}]
        answer = server.post("/api/chat", {**body, "messages": second, "stream": False})
        assert answer.status == 200 and "x-inferd-mended" not in answer.headers
        chat = server.post("/v1/chat/completions", {
            "tools": [tool], "temperature": 0, "messages": [*history, {
                "role": "assistant", "content": "", "tool_calls": [{
                    "id": identity, "type": "function", "function": {
                        "name": "get_weather", "arguments": '{"city": "Paris"}'}}]},
                {"role": "tool", "content": "Sunny.", "tool_call_id": identity}]}).json
        assert answer.json["message"]["content"] == chat["choices"][0]["message"]["content"]
        assert answer.json["prompt_eval_count"] == chat["usage"]["prompt_tokens"]


def test_thoughts(start):
    """The model is a toy, so the thoughts are its own text: what counts is where they go."""
    template = ROOT / "tests/fixtures/templates/qwen3.jinja"
    server = start(DEMO, "--served-model-name", "demo", "--max-model-len", 512, "--chat-template",
                   template, "--reasoning-parser", "think")
    body = {"messages": ASK}
    assert "thinking" in server.post("/api/show", {"model": "demo"}).json["capabilities"]
    for think, kwargs in ((True, {"enable_thinking": True}), (False, {"enable_thinking": False})):
        answer = server.post("/api/chat", {**body, "model": "demo", "think": think,
                                           "options": COLD, "stream": False})
        wanted = server.post("/v1/chat/completions", {
            **body, "chat_template_kwargs": kwargs, "temperature": 0, "max_tokens": 24}).json
        message = wanted["choices"][0]["message"]
        assert answer.json["message"].get("thinking") == message.get("reasoning")
        assert answer.json["message"]["content"] == (message["content"] or "")
        assert answer.json["prompt_eval_count"] == wanted["usage"]["prompt_tokens"]


def test_pictures(start, tmp_path):
    server = start(seeing.make(tmp_path / "seer"), "--served-model-name", "seer")
    url = seeing.url(seeing.png(20, 30))
    assert "vision" in server.post("/api/show", {"model": "seer"}).json["capabilities"]
    for image in (url, url.split(",")[1]):
        answer = server.post("/api/generate", {
            "model": "seer", "prompt": "What is it?", "images": [image], "options": COLD,
            "stream": False})
        chat = server.post("/v1/chat/completions", {
            "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": url}},
                {"type": "text", "text": "What is it?"}]}]}).json
        assert answer.json["response"] == chat["choices"][0]["message"]["content"]
        assert answer.json["prompt_eval_count"] == chat["usage"]["prompt_tokens"]
    answer = server.post("/api/chat", {"model": "seer", "messages": [
        {"role": "user", "content": "a", "images": ["AAAA"]}]})
    assert answer.status == 400 and "messages[0].content[0]" in error_of(answer)


def test_a_model_that_does_not_see_says_so(server):
    answer = server.post("/api/chat", {"model": "demo", "messages": [
        {"role": "user", "content": "a", "images": ["QUJD"]}]})
    assert answer.status == 400 and "image" in error_of(answer)


# ---- vectors ----

def test_vectors(start):
    server = start(ENCODERS / "bert-mean", "--served-model-name", "encoder")
    texts = ["a machine", "the old fox saw it"]
    wanted = [row["embedding"] for row in server.post("/v1/embeddings", {
        "input": texts, "normalize": True}).json["data"]]
    answer = server.post("/api/embed", {"model": "encoder:latest", "input": texts})
    assert answer.status == 200 and answer.json["embeddings"] == wanted
    assert answer.json["prompt_eval_count"] == server.post(
        "/v1/embeddings", {"input": texts}).json["usage"]["prompt_tokens"]
    one = server.post("/api/embeddings", {"model": "encoder", "prompt": texts[0]}).json
    plain = server.post("/v1/embeddings", {"input": texts[0], "normalize": False}).json
    assert one == {"embedding": plain["data"][0]["embedding"]}
    for route, field, found in (("/api/embed", "input", "embeddings"),
                                ("/api/embeddings", "prompt", "embedding")):
        assert server.post(route, {"model": "encoder", field: ""}).json[found] == []
    long = "fox " * 2000
    cut = server.post("/api/embed", {"model": "encoder", "input": long})
    assert cut.status == 200 and cut.json["prompt_eval_count"] == server.max_model_len()
    assert server.post("/api/embed", {"model": "encoder", "input": long, "options": {
        "num_ctx": 7}}).json["prompt_eval_count"] == 7
    refused = server.post("/api/embed", {"model": "encoder", "input": long, "truncate": False})
    assert refused.status == 400 and "maximum context length" in error_of(refused)
    refused = server.post("/api/chat", {"model": "encoder", "messages": ASK})
    assert refused.status == 400 and "makes embeddings" in error_of(refused)
    assert server.post("/api/show", {"model": "encoder"}).json["capabilities"] == ["embedding"]


# ---- what programs ask about the model ----

def test_a_file_is_shown_as_it_is(start, tmp_path):
    """Against llama.cpp's own reader: every value, the number of parameters, the bytes."""
    path = tmp_path / "demo.gguf"
    write(Path(DEMO), path, Type.Q8_0)
    reader = GGUFReader(path)
    server = start(path, "--max-model-len", 256, "--served-model-name", "own:q8,other")
    shown = server.post("/api/show", {"model": "own:q8"}).json
    info = shown["model_info"]
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "tokenizer.chat_template":
            continue
        if name == "llama.context_length":
            assert info[name] == 256  # what the server takes
        elif len(field.types) > 1 and field.types[0].name == "ARRAY":
            assert info[name] is None, name
        else:
            assert info[name] == pytest.approx(field.contents()), name
    parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
    assert info["general.parameter_count"] == parameters
    details = {"parent_model": "", "format": "gguf", "family": "llama", "families": ["llama"],
               "parameter_size": f"{parameters / 1e6:.2f}M", "quantization_level": "Q8_0"}
    assert shown["details"] == details
    assert "tools" in shown["capabilities"] and "completion" in shown["capabilities"]
    assert shown["template"] == reader.fields["tokenizer.chat_template"].contents()
    tags = server.get("/api/tags").json["models"]
    assert [tag["name"] for tag in tags] == ["own:q8", "other:latest"]
    assert {tag["size"] for tag in tags} == {path.stat().st_size}
    assert len({tag["digest"] for tag in tags}) == 2
    running = server.get("/api/ps").json["models"]
    assert [model["name"] for model in running] == ["own:q8"]
    assert running[0]["context_length"] == 256 and running[0]["details"] == details


def test_a_checkpoint_is_shown_in_the_same_words(server):
    config = json.loads((Path(DEMO) / "config.json").read_text())
    shown = server.post("/api/show", {"name": "demo"}).json
    info = shown["model_info"]
    assert info["general.architecture"] == "llama"
    assert info["llama.block_count"] == config["num_hidden_layers"]
    assert info["llama.embedding_length"] == config["hidden_size"]
    assert info["llama.attention.head_count_kv"] == config["num_key_value_heads"]
    assert info["llama.context_length"] == server.max_model_len()
    names = [tag["name"] for tag in server.get("/api/tags").json["models"]]
    assert names == ["demo:latest", "alias/demo:latest"]
    for name in names:
        assert server.post("/api/show", {"model": name}).status == 200


def test_pulling_what_is_there(server):
    assert lines_of(server.post("/api/pull", {"model": "demo"}))[-1] == {"status": "success"}
    assert server.post("/api/pull", {"model": "demo", "stream": False}).json == {
        "status": "success"}
    answer = server.post("/api/pull", {"model": "llama3.2"})
    assert answer.status == 404 and "'llama3.2' not found" in error_of(answer)


@pytest.mark.parametrize("method, path", [
    ("POST", "/api/create"), ("POST", "/api/copy"), ("DELETE", "/api/delete"),
    ("POST", "/api/push"), ("HEAD", "/api/blobs/sha256:00"), ("POST", "/api/blobs/sha256:00")])
def test_nobody_changes_models(server, method, path):
    answer = server.request(method, path, body=None if method == "HEAD" else {"model": "demo"})
    assert answer.status == 404
    if method != "HEAD":
        assert "changes of models by clients" in error_of(answer)


# ---- the rules of every route ----

ROUTES = {"/api/chat": {"model": "demo", "messages": ASK}, "/api/show": {"model": "demo"},
          "/api/generate": {"model": "demo", "prompt": "a"}, "/api/pull": {"model": "demo"},
          "/api/embed": {"model": "demo", "input": "a"}, "/api/tags": None, "/api/ps": None,
          "/api/embeddings": {"model": "demo", "prompt": "a"}, "/api/version": None}


def test_keys_sizes_and_origins(start):
    server = start(DEMO, "--served-model-name", "demo", "--api-key", "secret",
                   "--max-body-bytes", 100_000)
    for path, body in ROUTES.items():
        method = "GET" if body is None else "POST"
        answer = server.request(method, path, body=body)
        assert answer.status == 401 and "API key" in error_of(answer), path
        answer = server.request(method, path, body=body, headers={
            "Authorization": "Bearer secret", "Origin": "http://evil.example"})
        assert answer.status == 403 and "Origin" in error_of(answer), path
        if body is None:
            continue
        small = path in ("/api/show", "/api/pull")
        huge = {**body, "pad": "x" * (66_000 if small else 101_000)}
        answer = server.post(path, huge, headers={"Authorization": "Bearer secret"})
        assert answer.status == 413 and "larger than" in error_of(answer), path
        answer = server.post(path, '{"model": "demo"', headers={"Authorization": "Bearer secret"})
        wanted = "makes no embeddings" if "embed" in path else "JSON"
        assert answer.status == 400 and wanted in error_of(answer), path


def test_strict_parameters(start):
    server = start(DEMO, "--served-model-name", "demo", "--strict-params")
    for path, body in ROUTES.items():
        if body is None or "embed" in path:
            continue
        answer = server.post(path, {**body, "zebra": 1})
        assert answer.status == 400 and "'zebra'" in error_of(answer), path
    answer = server.post("/api/chat", {**ROUTES["/api/chat"], "options": {"zebra": 1}})
    assert answer.status == 400 and "'options.zebra'" in error_of(answer)


def test_an_unknown_option_is_named(server):
    answer = server.post("/api/chat", {**ROUTES["/api/chat"], "stream": False, "zebra": 1,
                                       "options": {"num_predict": 1, "okapi": 2}})
    assert answer.status == 200
    assert answer.headers["x-inferd-ignored-params"] == "zebra,options.okapi"


def test_a_full_queue_answers_429_and_leaves_room_for_others(start, slow_model):
    """A key that fills the queue by this API is refused, and another key is not: its request takes
    the place of the newest of the first, whose answer is an error in Ollama's form."""
    server = start(slow_model, "--load-format", "dummy", "--served-model-name", "demo",
                   "--max-num-seqs", 1, "--max-queue-requests", 2, "--api-key", "first,second")
    body = {"model": "demo", "prompt": "a b c", "raw": True, "options": {"num_predict": 3000}}
    first, answers, connections = {"Authorization": "Bearer first"}, [], []

    def ask():
        answers.append(server.post(
            "/api/generate", {**body, "stream": False, "options": {"num_predict": 1}},
            headers={"Authorization": "Bearer second"}))

    def running_and_waiting():
        return (server.metric("inferd_requests_running"), server.metric("inferd_requests_waiting"))

    for state in (1, 0), (1, 1), (1, 2):
        connections.append(server.connection())
        connections[-1].request("POST", "/api/generate", json.dumps(body), {
            "Content-Type": "application/json", **first})
        wait_until(lambda wanted=state: running_and_waiting() == wanted, "it to run, or to wait")
    refused = server.post("/api/generate", body, headers=first)
    assert refused.status == 429 and int(refused.headers["retry-after"]) > 0
    assert "busy" in error_of(refused)
    thread = threading.Thread(target=ask)
    thread.start()
    evicted = connections[2].getresponse()
    assert evicted.status == 429
    assert set(json.loads(evicted.read())) == {"error"}
    for connection in connections:
        connection.close()
    thread.join()
    assert [answer.status for answer in answers] == [200]


def test_a_drain_ends_a_stream_with_an_error_line(inferd, slow_model):
    server = Server(inferd, slow_model, "--load-format", "dummy", "--served-model-name", "demo",
                    "--drain-timeout", "0s")
    connection = server.connection()
    connection.request("POST", "/api/generate", json.dumps({
        "model": "demo", "prompt": "a b c", "raw": True, "options": {"num_predict": 8000}}),
        {"Content-Type": "application/json"})
    stream = connection.getresponse()
    first = json.loads(stream.readline())
    assert first["done"] is False
    server.stop()
    *_, last = [json.loads(line) for line in stream.read().splitlines()]
    assert last == {"error": "The server is shutting down."}
    connection.close()


# ---- the document ----

def run_block(inferd, number):
    """Runs a block of commands of docs/moving.md as they stand there, but for the port and for the
    place of `inferd`. Returns what each has printed."""
    section = (ROOT / "docs/moving.md").read_text().split("## From Ollama")[1]
    block = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[number]
    serve, *commands = block.splitlines()
    program, verb, *flags = serve.split()
    assert (program, verb, flags[-2:]) == ("inferd", "serve", ["--port", "11434"])
    server = Server(inferd, None, *flags[:-2])
    outputs = []
    for command in commands:
        assert command.startswith(("curl ", "inferd "))
        command = command.replace("127.0.0.1:11434", f"{server.host}:{server.port}")
        command = re.sub(r"^inferd (.*)11434$", rf"{ROOT / inferd} \g<1>{server.port}", command)
        done = subprocess.run(["bash", "-c", command], capture_output=True,
                              timeout=60 * PATIENCE, check=True)
        outputs.append(done.stdout.decode())
    assert server.stop() == 0, server.log()
    return outputs


def test_the_first_five_minutes(inferd):
    tags, shown, parts, answer, running = map(str.splitlines, run_block(inferd, 0))
    assert json.loads(tags[0])["models"][0]["name"] == "demo:latest"
    assert "tools" in json.loads(shown[0])["capabilities"]
    assert len(parts) > 1 and "".join(json.loads(part)["response"] for part in parts)
    assert json.loads(answer[0])["message"]["content"] == "2 plus 3 is 5."
    assert json.loads(running[0])["models"][0]["size"] > 0


def test_the_first_five_minutes_with_several_models(inferd):
    tags, before, answer, after, table = run_block(inferd, 1)
    assert [model["name"] for model in json.loads(tags)["models"]] == ["demo:latest"]
    assert json.loads(before)["models"] == []
    assert json.loads(answer)["message"]["content"] == "2 plus 3 is 5."
    assert [model["name"] for model in json.loads(after)["models"]] == ["demo:latest"]
    assert re.search(r"^demo +ready ", table, re.MULTILINE)
