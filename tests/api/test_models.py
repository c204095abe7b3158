"""Several models behind one port: real processes, the demo and small models of random weights.

The children of a server are found by their parent in /proc; nothing here waits for a fixed time."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import openai
import pytest

from harness import (DEMO, ROOT, Server, Stream, dummy_model, free_port, http_post, run, wait_until)
from test_lora import write_adapter

ADMIN = "admin-key-1"
SMALL = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64,
         "max_position_embeddings": 512}


def card(server, name):
    return server.get(f"/v1/models/{name}").json


def state(server, name):
    return card(server, name)["state"]


def children(server):
    """{name: pid} of the processes of models, by their served names."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
            if int(text[text.rindex(")"):].split()[2]) != server.process.pid:
                continue
            names = re.search(rb'INFERD_SERVED_MODEL_NAME=\["([^"]*)"',
                              (entry / "environ").read_bytes())
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if names and b"serve" in command:
            found[names[1].decode()] = int(entry.name)
    return found


def gone(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text[text.rindex(")"):].split()[1] == "Z"


def survey_of(inferd, model, *flags):
    """What `inferd check` says, for programs."""
    command = [str(ROOT / inferd), "check", str(model), "--json", *map(str, flags)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def ask(server, model, path="/v1/completions", **fields):
    body = {"model": model, "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0,
            **fields}
    return server.post(path, body)


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """A directory of models: sections of a file, so that all have weights of random numbers."""
    directory = tmp_path_factory.mktemp("zoo")
    model = dummy_model(tmp_path_factory.mktemp("small") / "small", **SMALL)
    text = ""
    for name in ("ant", "bee", "cat", "dog"):
        text += (f"[model {name}]\nmodel = {model}\nload-format = dummy\nmax-num-seqs = 4\n"
                 f"max-num-batched-tokens = 64\naliases = {name}-latest\n")
    (directory / "zoo.conf").write_text(text)
    return directory


@pytest.fixture(scope="module")
def server(inferd, zoo):
    """Shared by tests that leave all as it was: nothing has to go for another."""
    server = Server(inferd, DEMO, "--models-dir", zoo, "--admin-key", ADMIN)
    yield server
    assert server.stop() == 0, server.log()


def admin(server, route, model, key=ADMIN):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return server.post(route, {"model": model}, headers=headers)


# choosing

def test_the_list_has_every_name_with_its_state(server, inferd):
    wait_until(lambda: state(server, "demo") == "ready", "the demo model")
    wait_until(lambda: card(server, "dog")["memory"]["host"] > 0, "the plans")
    cards = {item["id"]: item for item in server.get("/v1/models").json["data"]}
    assert set(cards) == {"demo", *(name + end for name in ("ant", "bee", "cat", "dog")
                                    for end in ("", "-latest"))}
    assert cards["demo"]["status"] == {"value": "loaded"} and cards["demo"]["reason"] is None
    assert cards["ant-latest"]["root"] == "ant" and cards["ant"]["max_model_len"] == 512
    # the plan that the headers give, and what a process takes beside it
    survey = survey_of(inferd, DEMO)
    assert survey["host_free"] > 1 << 20, "what processes beside a GPU are planned in"
    planned = survey["weights"] + survey["workspace"] + survey["kv_cache"]
    assert cards["demo"]["memory"] == {"host": planned + (64 << 20), "device": 0}
    assert server.get("/v1/models/nope").status == 404


def test_the_field_chooses_on_every_route(server):
    texts = {name: ask(server, name).json["choices"][0]["text"] for name in ("demo", "ant")}
    assert texts["demo"] != texts["ant"]
    assert ask(server, "ant-latest").json["choices"][0]["text"] == texts["ant"]
    chat = {"messages": [{"role": "user", "content": "2 plus 3?"}], "max_tokens": 4}
    bodies = {"/v1/chat/completions": chat, "/v1/messages": chat, "/tokenize": {"prompt": "a b"},
              "/detokenize": {"tokens": [5, 6]}, "/v1/responses": {"input": "a"},
              "/v1/chat/completions/render": chat, "/v1/messages/count_tokens": chat,
              "/v1/schema/check": {"schema": {"type": "string"}}}
    for path, body in bodies.items():
        answer = server.post(path, {"model": "demo", **body})
        assert answer.status == 200, (path, answer)
        answer = server.post(path, {"model": "nope", **body})
        assert answer.status == 404 and b"`nope`" in answer.body, (path, answer)
    answer = server.post("/v1/embeddings", {"model": "demo", "input": "a"})
    assert answer.error["code"] == "unsupported_endpoint", "what the model says is passed on"
    error = server.post("/v1/completions", {"prompt": "a"}).error
    assert (error["code"], error["param"]) == ("missing_required_parameter", "model")
    assert server.post("/v1/completions", b'{"model":').error["code"] == "invalid_json"
    assert server.post("/v1/completions", b'{"model":"demo","model":"demo"}').status == 400


def test_names_of_ollama_choose_too(server):
    body = {"model": "demo:latest", "messages": [{"role": "user", "content": "2 plus 3?"}],
            "options": {"temperature": 0, "num_predict": 4}}
    parts = server.post("/api/chat", body)
    assert parts.headers["content-type"] == "application/x-ndjson", parts
    parts = [json.loads(line) for line in parts.body.splitlines()]
    whole = server.post("/api/chat", {**body, "stream": False}).json
    assert "".join(part["message"]["content"] for part in parts) == whole["message"]["content"]
    assert parts[-1]["done"] and whole["eval_count"] == parts[-1]["eval_count"] > 0
    unknown = server.post("/api/chat", {**body, "model": "nope:latest"})
    assert unknown.status == 404 and "`nope:latest` does not exist" in unknown.json["error"]


def test_answers_are_those_of_one_model_to_the_bit(server, inferd):
    """Beside a server of the demo alone: bodies, streams, errors and headers."""
    alone = Server(inferd, DEMO)
    try:
        bodies = [{"prompt": "Once", "max_tokens": 20, "seed": 3, "logprobs": 2, "temperature": 1},
                  {"prompt": ["a", "b"], "n": 2, "max_tokens": 5, "temperature": 0},
                  {"prompt": "a", "max_tokens": -5},
                  {"prompt": "a", "unknown": 1, "max_tokens": 1, "temperature": 0},
                  {"prompt": "x " * 20000},
                  {"prompt": "a", "request_id": "mine", "max_tokens": 1, "temperature": 0}]
        for body in bodies:
            answers = [one.post("/v1/completions", {"model": "demo", **body})
                       for one in (alone, server)]
            texts = [re.sub(rb'"(id|created|model)":("[^"]*"|\d+)', b"", one.body)
                     for one in answers]
            assert texts[0] == texts[1] and answers[0].status == answers[1].status
            names = [set(one.headers) for one in answers]
            assert names[0] == names[1], names[0] ^ names[1]
            assert answers[0].headers.get("content-type") == answers[1].headers["content-type"]
        streams = [[chunk["choices"][0]["text"] for chunk in
                    Stream(one, {"model": "demo", "prompt": "Once", "max_tokens": 50,
                                 "temperature": 0}).chunks()] for one in (alone, server)]
        assert streams[0] == streams[1] and len(streams[0]) == 50
    finally:
        assert alone.stop() == 0


def test_lists_of_ollama_have_every_model_and_load_none(start, zoo, tmp_path):
    """Programs ask for all names, then for what each can do; as one model says of itself."""
    server = start(DEMO, "--models-dir", zoo, "--models-idle", "1h")
    wait_until(lambda: state(server, "demo") == "ready", "the demo model")
    wait_until(lambda: card(server, "dog")["memory"]["host"] > 0, "the plans")
    alone = start(DEMO)
    own = alone.post("/api/show", {"model": "demo"}).json
    tags = {tag["name"]: tag for tag in server.get("/api/tags").json["models"]}
    assert set(tags) == {"demo:latest", *(f"{name}{end}:latest" for name in
                                          ("ant", "bee", "cat", "dog") for end in ("", "-latest"))}
    assert len({tag["digest"] for tag in tags.values()}) == len(tags)
    mine = alone.get("/api/tags").json["models"][0]
    assert {**tags["demo:latest"], "digest": ""} == {**mine, "digest": ""}
    for name in ("demo", "demo:latest", "ant", "ant-latest:latest"):
        shown = server.post("/api/show", {"model": name})
        assert shown.status == 200, shown
        assert (shown.json == own) == name.startswith("demo")
    info = server.post("/api/show", {"model": "ant"}).json["model_info"]
    assert info["llama.context_length"] == 512
    assert server.post("/api/pull", {"model": "ant", "stream": False}).json == {"status": "success"}
    for path in ("/api/show", "/api/pull"):
        assert server.post(path, {"model": "nope"}).status == 404
        assert server.post(path, {}).status == 400
    assert set(children(server)) == {"demo"}, "nothing was loaded for it"
    running = server.get("/api/ps").json["models"]
    assert [(one["name"], one["context_length"]) for one in running] == [("demo:latest", 8192)]
    assert running[0]["size"] == card(server, "demo")["memory"]["host"]
    assert running[0]["size_vram"] == 0
    ends = datetime.fromisoformat(running[0]["expires_at"].replace("Z", "+00:00")).timestamp()
    assert 3000 < ends - time.time() <= 3601
    assert ask(server, "ant").status == 200
    assert {one["name"] for one in server.get("/api/ps").json["models"]} == \
        {"demo:latest", "ant:latest"}


def test_adapters_choose_their_model(start, zoo, tmp_path):
    model = dummy_model(tmp_path / "m", **SMALL)
    first, second = (write_adapter(tmp_path / name, model, seed, module="q_proj")
                     for seed, name in enumerate(("first", "second")))
    file = tmp_path / "server.conf"
    file.write_text(f"[model base]\nmodel = {model}\nload-format = dummy\naliases = b\n"
                    f"enable-lora = true\nallow-runtime-lora = true\nmax-loras = 2\n"
                    f"lora-modules = one={first}\n")
    server = start(None, "--models-dir", zoo, "--config", file, "--admin-key", ADMIN)
    cards = {item["id"]: item for item in server.get("/v1/models").json["data"]}
    assert cards["one"]["parent"] == "base" and cards["b"]["parent"] is None
    assert server.get("/v1/models/base:one").json["parent"] == "base"
    assert server.get("/v1/models/base:two").status == 404
    assert ask(server, "base:two").status == 404 and "base" not in children(server)
    wait_until(lambda: card(server, "base")["memory"]["host"] > 0, "the plan")
    shown = {name: server.post("/api/show", {"model": name}).json for name in ("base", "one")}
    assert shown["one"]["details"].pop("parent_model") == "base:latest"
    assert shown["base"]["details"].pop("parent_model") == "" and shown["one"] == shown["base"]
    tags = {tag["name"]: tag["details"]["parent_model"] for tag in
            server.get("/api/tags").json["models"]}
    assert tags["one:latest"] == "base:latest" and tags["base:latest"] == ""

    texts = {name: ask(server, name, max_tokens=16).json for name in
             ("base", "one", "base:one", "b:one")}
    words = {name: answer["choices"][0]["text"] for name, answer in texts.items()}
    assert words["one"] == words["base:one"] == words["b:one"] != words["base"]
    assert texts["b:one"]["model"] == "one"

    def listed():
        found = {one["id"]: one["parent"] for one in server.get("/v1/models").json["data"]
                 if one["parent"]}
        assert {name if ":" in name else f"{name}:latest" for name in found} == {
            tag["name"] for tag in server.get("/api/tags").json["models"]
            if tag["details"]["parent_model"]}
        return found

    headers = {"Authorization": f"Bearer {ADMIN}"}
    load = {"lora_name": "two", "lora_path": str(second)}
    assert server.post("/v1/load_lora_adapter", load, headers=headers).error["param"] == "model"
    load["model"] = "base"
    assert server.post("/v1/load_lora_adapter", load).status in (401, 403)
    answer = server.post("/v1/load_lora_adapter", load, headers=headers)
    assert answer.status == 200, answer
    changed = ask(server, "base:two", max_tokens=16).json["choices"][0]["text"]
    assert changed not in words.values()
    assert ask(server, "two", max_tokens=16).json["choices"][0]["text"] == changed
    assert listed() == {"one": "base", "two": "base"}
    gone = server.post("/v1/unload_lora_adapter", {"model": "base", "lora_name": "two"},
                       headers=headers)
    assert gone.status == 200 and ask(server, "base:two").status == 404
    assert ask(server, "two").status == 404 and listed() == {"one": "base"}
    # one that is called as a model is, and one of many characters that are escaped in JSON
    for name in ("ant", "\u0001" * 255):
        answer = server.post("/v1/load_lora_adapter", {**load, "lora_name": name}, headers=headers)
        assert answer.status == 200, answer
        shown = "base:ant" if name == "ant" else name
        assert listed() == {"one": "base", shown: "base"}
        answer = server.post("/v1/unload_lora_adapter", {"model": "base", "lora_name": name},
                             headers=headers)
        assert answer.status == 200 and listed() == {"one": "base"}
    assert server.post("/v1/unload_lora_adapter", {"model": "base", "lora_name": "one"},
                       headers=headers).status == 200
    assert listed() == {} and ask(server, "one").status == 404
    assert admin(server, "/v1/models/unload", "base").status == 200
    wait_until(lambda: state(server, "base") == "unloaded", "the end", context=server.log)
    assert listed() == {"one": "base"}, "it is loaded with those of its section"
    assert ask(server, "one", max_tokens=16).json["choices"][0]["text"] == words["one"]


def test_an_adapter_of_run_time_hides_no_model(start, tmp_path):
    """Nor one that comes later by a section."""
    model = dummy_model(tmp_path / "m", **SMALL)
    path = write_adapter(tmp_path / "a", model, 1, module="q_proj")
    section = f"model = {model}\nload-format = dummy\n"
    base = f"[model base]\n{section}enable-lora = true\nallow-runtime-lora = true\n"
    file = tmp_path / "server.conf"
    file.write_text(base)
    server = start(None, "--config", file, "--admin-key", ADMIN)
    load = {"lora_name": "late", "lora_path": str(path), "model": "base"}
    headers = {"Authorization": f"Bearer {ADMIN}"}
    assert server.post("/v1/load_lora_adapter", load, headers=headers).status == 200
    assert card(server, "late")["parent"] == "base"
    file.write_text(f"{base}[model late]\n{section}")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: card(server, "late")["parent"] is None, "the section", context=server.log)
    assert ask(server, "late").status == 200 and "late" in children(server)


def test_the_sdk_works(server):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="x") as client:
        assert {"demo", "ant"} <= {model.id for model in client.models.list()}
        stream = client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "2 plus 3?"}], stream=True)
        assert "5" in "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        with pytest.raises(openai.NotFoundError):
            client.completions.create(model="nope", prompt="a")


def test_operators_load_and_unload(server):
    for route in ("/v1/models/load", "/models/unload"):
        assert admin(server, route, "bee", key=None).status == 401
        assert admin(server, route, "nope").status == 404
    for load, unload in (("/v1/models/load", "/models/unload"),
                         ("/models/load", "/v1/models/unload")):
        answer = admin(server, load, "bee-latest")
        assert answer.status == 200 and answer.json["success"], answer
        wait_until(lambda: state(server, "bee") == "ready", "the load", context=server.log)
        assert admin(server, unload, "bee").status == 200
        wait_until(lambda: state(server, "bee") == "unloaded", "the end", context=server.log)
        assert "bee" not in children(server)


def test_words_of_vllm_for_load_and_unload(server):
    def sleeps(name):
        return server.get(f"/is_sleeping?model={name}").json

    headers = {"Authorization": f"Bearer {ADMIN}"}

    def act(path):
        return server.request("POST", path, headers=headers)

    assert sleeps("cat") == {"is_sleeping": True}
    for path in ("/sleep", "/wake_up"):
        assert server.request("POST", f"{path}?model=cat").status == 401
        assert act(path).error["param"] == "model"
        assert act(f"{path}?model=nope").status == 404
    assert act("/wake_up?model=cat-latest&tags=weights").status == 200
    wait_until(lambda: state(server, "cat") == "ready", "the load", context=server.log)
    assert sleeps("cat") == {"is_sleeping": False}
    for query, param in (("level=0", "level"), ("level=3", "level"), ("level=", "level"),
                         ("mode=abort", "mode")):
        answer = act(f"/sleep?model=cat&{query}")
        assert answer.status == 400 and answer.error["param"] == param, answer
    assert state(server, "cat") == "ready"
    stream = Stream(server, {"model": "cat", "prompt": "a", "max_tokens": 300, "ignore_eos": True})
    events = stream.events()
    next(events)
    assert act("/sleep?level=1&model=cat").status == 200
    assert len(list(events)) == 299 and stream.done, "what runs ends first"
    wait_until(lambda: sleeps("cat")["is_sleeping"], "the end", context=server.log)
    wait_until(lambda: "cat" not in children(server), "its process to end")
    assert ask(server, "cat").status == 200, "a request wakes it"
    assert server.get("/is_sleeping").error["param"] == "model"
    assert act("/sleep?level=2&model=cat&mode=wait").status == 200
    wait_until(lambda: state(server, "cat") == "unloaded", "the end", context=server.log)


def test_slots_of_llama_name_a_model(server):
    assert server.get("/slots").error["param"] == "model"
    slots = server.get("/slots?model=ant").json
    assert [(slot["id"], slot["n_ctx"]) for slot in slots] == [(i, 512) for i in range(4)]
    assert server.get("/slots?model=nope").status == 404
    assert admin(server, "/v1/models/unload", "ant").status == 200
    wait_until(lambda: state(server, "ant") == "unloaded", "the end", context=server.log)
    answer = server.get("/slots?model=ant&autoload=false")
    assert answer.status == 400 and "autoload" in answer.error["message"]


def test_the_process_of_a_model_hears_that_a_slot_is_needed(start, zoo, slow_model, tmp_path):
    file = tmp_path / "server.conf"
    file.write_text(f"[model slow]\nmodel = {slow_model}\nload-format = dummy\nnum-blocks = 600\n"
                    "max-num-seqs = 1\n")
    server = start(None, "--models-dir", zoo, "--config", file)
    path = "/slots?model=slow&fail_on_no_slot=1"
    assert server.get(path).json[0]["is_processing"] is False
    stream = Stream(server, {"model": "slow", "prompt": "a", "max_tokens": 8000,
                             "ignore_eos": True})
    next(stream.events())
    wait_until(lambda: server.get(path).status == 503, "the slot to be taken")
    assert server.get("/slots?model=slow").json[0]["is_processing"] is True
    stream.close()
    wait_until(lambda: server.get(path).status == 200, "it to be free")


def test_commands_for_people(server, inferd):
    flags = ["--port", server.port, "--admin-key", ADMIN]
    assert run(inferd, "load", "cat", *flags).stdout == "cat is ready\n"
    table = run(inferd, "ps", *flags).stdout.splitlines()
    assert table[0].split() == ["NAME", "STATE", "HOST", "DEVICE", "RUN", "WAIT", "USED", "REASON"]
    states = {line.split()[0]: line.split()[1] for line in table[1:]}
    assert states["cat"] == "ready" and "cat-latest" not in states and len(states) == 5
    lines = run(inferd, "top", "--once", "--interval", "100ms", "--port", server.port).stdout
    assert re.search(r"^inferd \S+  5 models  ready, up 0 h", lines), lines
    assert re.search(r"^cat  +ready  +\d\.\d\d GiB +0 +0 +0 +0$", lines, re.M), lines
    assert run(inferd, "unload", "cat", *flags).stdout == "cat is unloaded\n"
    for words, said in ((["load", "nope", *flags], "`nope` does not exist"),
                        (["load", "cat", "--port", server.port], "admin key"),
                        (["ps", "--port", free_port()], "no server answers")):
        answer = run(inferd, *words)
        assert answer.returncode == 1 and said in answer.stdout, answer.stdout
    assert run(inferd, "unload", *flags).returncode == 64


def test_metrics_of_all_and_of_one(server):
    assert server.metric("inferd_model_state", model_name="demo", state="ready") == 1
    assert server.metric("inferd_model_loads_total", model_name="demo") == 1
    ask(server, "demo", max_tokens=7, prompt="A new prompt.")
    own = server.get("/metrics?model=demo").body.decode()
    for kind, name in (("prompt", "prompt"), ("generated", "generation")):
        counted = float(re.search(rf"^vllm:{name}_tokens_total{{.*}} (\S+)$", own, re.M)[1])
        wait_until(lambda kind=kind, counted=counted:  # a process tells it now and then
                   server.metric("inferd_model_tokens_total", model_name="demo", kind=kind)
                   == counted > 0, f"{kind} tokens: {counted}")
    assert server.metric("inferd_model_memory_bytes", model_name="demo") == \
        card(server, "demo")["memory"]["host"]
    page = server.get("/metrics?model=demo").body.decode()
    assert 'inferd_kv_blocks{model="demo"' in page and "inferd_model_state" not in page
    assert server.get("/metrics?model=nope").status == 404


def test_a_new_file_appears_and_goes_without_a_restart(server, zoo):
    file = zoo / "new.conf"
    file.write_text((zoo / "zoo.conf").read_text().split("[model bee]")[0].replace("ant", "eel"))
    wait_until(lambda: server.get("/v1/models/eel").status == 200, "the new file")
    assert ask(server, "eel-latest").status == 200
    file.write_text("[model eel]\nport = 1\n")
    wait_until(lambda: "port is not set for one model" in server.log(), "the complaint")
    assert ask(server, "eel").status == 200, "a mistake in a file takes nothing away"
    file.unlink()
    wait_until(lambda: server.get("/v1/models/eel").status == 404, "the file to be missed")
    wait_until(lambda: "eel" not in children(server), "its process to end")
    (zoo / "broken").mkdir()
    (zoo / "broken" / "config.json").write_text("{}")
    wait_until(lambda: server.get("/v1/models/broken").status == 200, "the directory")
    answer = ask(server, "broken")
    assert answer.status == 503 and answer.headers["retry-after"], answer
    assert "config.json" in answer.error["message"] and state(server, "broken") == "failed"
    assert "config.json" in card(server, "broken")["reason"]
    (zoo / "broken" / "config.json").unlink()
    wait_until(lambda: server.get("/v1/models/broken").status == 404, "it to go")


def test_a_disk_that_hangs_holds_nobody_up(start, zoo, tmp_path):
    """A lease makes whoever opens the file wait, for 45 s or until it is given back."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # how the kernel asks for it back
    directory = tmp_path / "models"
    directory.mkdir()
    text = (zoo / "zoo.conf").read_text().split("[model bee]")[0]
    (directory / "a.conf").write_text(text)
    server = start(None, "--models-dir", directory)
    assert ask(server, "ant").status == 200
    file = directory / "b.conf"
    (tmp_path / "b.conf").write_text(text.replace("ant", "eel"))
    descriptor = os.open(tmp_path / "b.conf", os.O_RDWR)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    (tmp_path / "b.conf").rename(file)
    wait_until(lambda: fcntl.fcntl(descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK,
               "the server to open it")
    for _ in range(20):  # a lease that the kernel has taken away would show the file
        assert ask(server, "ant").status == 200 and server.get("/livez").status == 200
    assert server.get("/v1/models/eel").status == 404, "it was not waited for"
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(descriptor)
    wait_until(lambda: server.get("/v1/models/eel").status == 200, "the file", context=server.log)


# memory

def need(inferd, model, *flags):
    """What the parent plans for a model with these options."""
    plan = survey_of(inferd, model, *flags)
    return sum(plan[part] for part in ("weights", "workspace", "kv_cache", "states")) + (64 << 20)


@pytest.fixture
def crowded(start, inferd, zoo, slow_model, tmp_path):
    """A server with room for one that is slow, and one of the zoo beside it: (server, stream)."""
    options = ["--load-format", "dummy", "--num-blocks", 600]
    room = need(inferd, slow_model, *options)

    def make(more, *flags, **others):
        file = tmp_path / "server.conf"
        file.write_text(f"[model slow]\nmodel = {slow_model}\nload-format = dummy\n"
                        "num-blocks = 600\npreload = true\n")
        server = start(None, "--models-dir", zoo, "--config", file, *flags,
                       "--models-memory", room + int(more), **others)
        wait_until(lambda: state(server, "slow") == "ready", "the slow model", context=server.log)
        stream = Stream(server, {"model": "slow", "prompt": "a", "max_tokens": 8000,
                                 "ignore_eos": True})
        assert stream.status == 200, server.log()
        next(stream.events())
        return server, stream

    return make


@pytest.fixture(scope="module")
def small_need(inferd, zoo):
    model = re.search(r"model = (.*)", (zoo / "zoo.conf").read_text())[1]
    return need(inferd, model, "--load-format", "dummy", "--max-num-seqs", 4,
                "--max-num-batched-tokens", 64)


def test_memory_decides_and_no_active_model_goes(crowded, small_need):
    server, stream = crowded(1.5 * small_need)
    for name in ("bee", "cat", "dog", "bee"):
        assert ask(server, name).status == 200, server.log()
        assert state(server, "slow") == "ready"
        assert set(children(server)) == {"slow", name}
    next(stream.events())
    assert server.metric("inferd_model_loads_total", model_name="slow") == 1
    too_large = 0
    for line in server.log().splitlines():
        too_large += "cannot be loaded" in line
    assert too_large == 0
    stream.close()


@pytest.mark.parametrize("over", [-1, 0])
def test_the_last_byte_decides(crowded, small_need, over):
    server, stream = crowded(small_need + over, "--models-wait", "1s" if over < 0 else "60s")
    assert ask(server, "ant").status == (200 if over == 0 else 503)
    stream.close()


def test_what_never_fits_is_refused_at_once(start, zoo, small_need):
    server = start(None, "--models-dir", zoo, "--models-memory", small_need - 1)
    answer = ask(server, "ant")
    assert answer.status == 503 and "--models-memory" in answer.error["message"]
    assert admin(server, "/v1/models/load", "ant", key=None).status == 403


def test_a_request_waits_within_its_limit(crowded, small_need):
    """One model answers and fills the memory: another client hears when, in its own form."""
    server, busy = crowded(small_need // 2, "--models-wait", "2s", "--sse-ping-interval", "0.2s")
    answer = ask(server, "ant")
    assert answer.status == 503 and answer.error["code"] == "model_loading", answer
    assert int(answer.headers["retry-after"]) >= 1
    assert "--models-wait" in answer.error["message"]
    received = server.raw(http_post("/v1/completions", {"model": "ant", "prompt": "a",
                                                        "stream": True}, "Connection: close"))
    assert b"200 OK" in received and received.count(b": the model is being loaded") >= 2
    assert b'"model_loading"' in received and b"data: [DONE]" in received
    busy.close()
    wait_until(lambda: ask(server, "ant").status == 200, "room, once the client has left")


def test_a_full_queue_makes_room_for_who_has_less(crowded, small_need, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one alice\ntwo bob\n")
    keys.chmod(0o600)
    server, busy = crowded(small_need // 2, "--max-queue-requests", 2, "--api-key-file", keys,
                           key="one")
    wait_until(lambda: card(server, "ant")["memory"]["host"] > 0, "the plan")
    with ThreadPoolExecutor() as pool:
        alice = []
        for count in (1, 2):
            alice.append(pool.submit(ask, server, "ant"))
            wait_until(lambda: card(server, "ant")["waiting"] == count, "it to wait")
        bob = pool.submit(server.post, "/v1/completions",
                          {"model": "ant", "prompt": "a", "max_tokens": 1},
                          headers={"Authorization": "Bearer two"})
        gone_first = alice[1].result()
        assert gone_first.status == 429, "the newest of the client that has most"
        assert "2 requests wait for models, of which 2 are" in gone_first.error["message"]
        third = ask(server, "ant")
        assert third.status == 429 and "of which 1 are" in third.error["message"]
        busy.close()
        assert [alice[0].result().status, bob.result().status] == [200, 200]


# what happens to processes

def test_a_child_that_is_killed_takes_nobody_along(start, zoo):
    server = start(DEMO, "--models-dir", zoo)
    long = {"prompt": "a", "max_tokens": 400, "ignore_eos": True}
    other = Stream(server, {"model": "ant", **long})
    others = other.events()
    next(others)
    victim = Stream(server, {"model": "demo", **long, "max_tokens": 8000})
    events = victim.events()
    next(events)
    with ThreadPoolExecutor() as pool:
        whole = pool.submit(ask, server, "demo", max_tokens=8000, ignore_eos=True)
        wait_until(lambda: card(server, "demo")["running"] == 2, "both to run")
        pid = children(server)["demo"]
        os.kill(pid, signal.SIGKILL)
        answer = whole.result()
    assert answer.status == 500 and answer.error["code"] == "internal_error"
    assert "`demo`" in answer.error["message"]
    last = [chunk for _, chunk in events][-1]
    assert last["error"]["code"] == "internal_error" and victim.done
    # until it is heard of, requests may still reach what is left of the process
    wait_until(lambda: server.metric("inferd_model_failures_total", model_name="demo") == 1,
               "the end to be heard of")
    assert "ended by signal 9" in server.log()
    assert ask(server, "demo").status == 200, "a request waits until it is back"
    assert children(server)["demo"] != pid
    assert len(list(others)) == 399, "the other model went on"


@pytest.mark.parametrize("kept", [True, False])
def test_a_request_that_comes_with_the_end_of_a_process_waits(start, zoo, kept):
    """Both lie there when the parent looks: the request was sent to nobody, so it is not lost.
    `kept`: there is a connection to the process that was used before."""
    server = start(None, "--models-dir", zoo)
    assert ask(server, "ant").status == 200
    pid = children(server)["ant"]
    if not kept:
        time.sleep(1.5)  # the parent ends what is idle for a second
    with server.socket() as raw:
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: gone(pid) and len(os.listdir(f"/proc/{pid}/task")) == 1,
                       "the end of all its threads: then its sockets are closed")
            raw.sendall(http_post("/tokenize", {"model": "ant", "prompt": "a"}))
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        received = raw.recv(1 << 14)
        assert received.startswith(b"HTTP/1.1 200 "), received


def test_who_cannot_be_sent_is_held_for_a_second(start, zoo, monkeypatch):
    """A process that lives, and whose socket is gone: no end will be heard of. It is started
    again."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # the path of a socket is short
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    server = start(DEMO, "--models-dir", zoo)
    assert {ask(server, name).status for name in ("ant", "demo")} == {200}
    pid = children(server)["ant"]
    (name,) = re.findall(rb"INFERD_UDS=([^\0]*)", Path(f"/proc/{pid}/environ").read_bytes())

    def sockets():
        """The one that listens, and an end of each connection."""
        lines = Path(f"/proc/{pid}/net/unix").read_text().splitlines()
        return sum(line.endswith(f" {name.decode()}") for line in lines)

    wait_until(lambda: sockets() == 1, "the parent to end what is idle for a second")
    os.unlink(name)
    begin = time.monotonic()
    answer = ask(server, "ant")
    assert answer.status == 500, answer
    assert "`ant` ended, or cut its answer" in answer.error["message"]
    assert time.monotonic() - begin >= 1, "it was held"
    assert server.log().count("ant: its process takes no connections and is ended") == 1
    with ThreadPoolExecutor() as pool:  # these wait for the next one
        assert {one.status for one in pool.map(lambda _: ask(server, "ant"), range(4))} == {200}
    assert ask(server, "demo").status == 200
    assert ask(server, "ant").status == 200 and children(server)["ant"] != pid


def test_a_load_that_fails_is_not_tried_for_each_request(start, zoo, tmp_path):
    model = dummy_model(tmp_path / "m", **SMALL)
    file = tmp_path / "server.conf"
    file.write_text(f"[model odd]\nmodel = {model}\nload-format = dummy\n"
                    f"chat-template = {tmp_path}/none\n")
    server = start(DEMO, "--models-dir", zoo, "--config", file)
    answers = [ask(server, "odd") for _ in range(5)]  # the first may wait for the plan
    assert {answer.status for answer in answers} == {503}
    assert all(str(tmp_path) in answer.error["message"] for answer in answers), answers[0]
    assert server.metric("inferd_model_loads_total", model_name="odd") <= 2
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 10
    assert ask(server, "demo").status == 200


def test_children_end_with_their_parent(inferd, zoo, monkeypatch):
    """And the next start removes their sockets, but not those of a parent that lives."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # the path of a socket is short
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    other = Server(inferd, None, "--models-dir", zoo)
    server = Server(inferd, DEMO, "--models-dir", zoo)
    assert ask(server, "ant").status == 200
    pids = children(server)
    assert set(pids) == {"demo", "ant"}
    server.process.kill()
    server.process.wait()
    wait_until(lambda: all(gone(pid) for pid in pids.values()), "the children to end")
    assert len(list(place.iterdir())) == 2, "nobody was left to remove it"
    third = Server(inferd, None, "--models-dir", zoo)
    assert len(list(place.iterdir())) == 2, "of the two that live"
    for one in (other, third):
        assert ask(one, "ant").status == 200
        assert one.stop() == 0
    place.rmdir()


def test_sigterm_drains(start, zoo):
    server = start(DEMO, "--models-dir", zoo)
    stream = Stream(server, {"model": "demo", "prompt": "a", "max_tokens": 300, "ignore_eos": True})
    events = stream.events()
    next(events)
    pids = children(server)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "draining" in server.log(), "the drain")
    assert len(list(events)) == 299 and stream.done
    assert server.wait_exit(30) == 0
    assert all(gone(pid) for pid in pids.values())


@pytest.mark.parametrize("stopped", ["ready", "loading"])
def test_a_process_that_does_not_hear_sigterm_is_killed(start, zoo, stopped):
    server = start(DEMO, "--models-dir", zoo, "--admin-key", ADMIN)
    assert ask(server, "demo").status == 200
    if stopped == "loading":
        assert admin(server, "/v1/models/load", "ant").status == 200
    name = "ant" if stopped == "loading" else "demo"
    wait_until(lambda: name in children(server), "its process", context=server.log)
    pids = children(server)
    os.kill(pids[name], signal.SIGSTOP)
    try:
        server.process.send_signal(signal.SIGTERM)
        assert server.wait_exit(60) == 0, server.log()
        assert all(gone(pid) for pid in pids.values())
    finally:
        for pid in pids.values():
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


def test_sighup_reads_models_and_keys_again(start, tmp_path):
    model = dummy_model(tmp_path / "m", **SMALL)
    section = f"model = {model}\nload-format = dummy\nmax-num-seqs = 4\n"
    keys, file = tmp_path / "keys", tmp_path / "server.conf"
    keys.write_text("first\n")
    keys.chmod(0o600)
    file.write_text(f"api_key_file = {keys}\n[model a]\n{section}")
    server = start(None, "--config", file, key="first")
    assert ask(server, "a").status == 200
    pid = children(server)["a"]
    keys.write_text("second\n")
    file.write_text(f"api_key_file = {keys}\n[model a]\n{section}[model b]\n{section}")
    server.process.send_signal(signal.SIGHUP)
    server.key = "second"
    wait_until(lambda: server.get("/v1/models/b").status == 200, "the section")
    assert ask(server, "b").status == 200 and ask(server, "a").status == 200
    assert children(server)["a"] == pid, "what has not changed stays"
    server.key = "first"
    assert ask(server, "a").status == 401
    server.key = "second"
    file.write_text(f"api_key_file = {keys}\n[model a]\n{section}max-num-seqs = 1\n")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "already set in [model a]" in server.log(), "the refusal")
    assert server.get("/v1/models/b").status == 200
    file.write_text(f"api_key_file = {keys}\n[model a]\n{section}max-model-len = 256\n")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.get("/v1/models/b").status == 404, "b to be missed")
    wait_until(lambda: ask(server, "a").status == 200 and children(server)["a"] != pid,
               "the new options of a")
    wait_until(lambda: card(server, "a")["max_model_len"] == 256, "what the new process says")


def test_a_client_that_leaves_cancels_in_the_child(start, zoo):
    server = start(DEMO, "--models-dir", zoo)
    stream = Stream(server, {"model": "demo", "prompt": "a", "max_tokens": 8000,
                             "ignore_eos": True})
    next(stream.events())
    stream.close()
    wait_until(lambda: card(server, "demo")["running"] == 0, "the passage to end")
    wait_until(lambda: "inferd_requests_running{model=\"demo\"} 0" in
               server.get("/metrics?model=demo").body.decode(), "the request to be cancelled")


def test_a_slow_client_slows_its_own_stream_alone(start, zoo):
    """What the parent holds of an unread stream is bounded, as with one model."""
    server = start(DEMO, "--models-dir", zoo, "--stream-buffer-bytes", "8KiB",
                   "--slow-reader-timeout", "1s")
    with server.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.sendall(http_post("/v1/completions", {"model": "demo", "prompt": "a", "stream": True,
                                                  "max_tokens": 8000, "ignore_eos": True,
                                                  "logprobs": 20}))
        assert ask(server, "demo").status == 200
        wait_until(lambda: card(server, "demo")["running"] == 0, "the slow stream to end",
                   context=server.log)


def test_a_key_has_its_limits_over_all_models(start, zoo, tmp_path):
    """Its requests and tokens of a minute are those of all models together."""
    keys = tmp_path / "keys"
    lines = "one alice requests_per_minute=3\ntwo bob\nthree carol tokens_per_minute=100"
    keys.write_text(lines)
    keys.chmod(0o600)
    server = start(DEMO, "--models-dir", zoo, "--api-key-file", keys, key="two")
    assert {ask(server, model).status for model in ("demo", "ant", "bee", "cat")} == {200}
    server.key = "one"
    answers = [ask(server, model) for model in ("demo", "ant", "bee", "ant", "cat")]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[3].error["code"] == "rate_limit_exceeded"
    assert answers[3].headers["retry-after"]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == list("21000")
    server.key = "three"
    many = {"max_tokens": 300, "ignore_eos": True, "prompt": [5]}
    statuses = [ask(server, model, **many).status for model in ("ant", "bee", "demo")]
    assert statuses == [200, 429, 429]
    keys.write_text(lines + "000")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: ask(server, "bee", **many).status == 200, "the new bound")
    server.key = "two"
    assert ask(server, "demo").status == 200
    page = server.get("/metrics?model=demo").body.decode()
    assert 'key="alice"' in page and 'key="bob"' in page
    forged = server.post("/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 1},
                         headers={"Authorization": "Bearer one",
                                  "x-inferd-client": "0000000000000001 -"})
    assert forged.status == 429, "only the parent says who a client is"


def test_options_of_one_model_are_refused_with_the_way_to_do_it(inferd):
    section, alone = "in the section [model NAME]", "a server of its own"
    for flags, name, way in ((["--journal", "/tmp/x"], "journal", section),
                             (["--prefix-cache-file", "/tmp/x"], "prefix_cache_file", section),
                             (["--kv-events-endpoint", "tcp://127.0.0.1:1"], "kv_events", alone),
                             (["--lora-modules", "a=/b"], "lora", section),
                             (["--served-model-name", "a"], "served_model_name", "`aliases`")):
        answer = run(inferd, "serve", DEMO, DEMO, "--port", free_port(), *flags)
        assert answer.returncode == 78 and name in answer.stdout and way in answer.stdout, answer


def test_a_journal_of_one_model_of_several(inferd, zoo, tmp_path):
    """It has the requests of its model alone, and they are the same again."""
    file, journal = tmp_path / "server.conf", tmp_path / "steps"
    file.write_text(f"[model kept]\nmodel = {DEMO}\njournal = {journal}\njournal-size = 32MiB\n")
    server = Server(inferd, None, "--models-dir", zoo, "--config", file)
    for name in ("kept", "ant", "kept"):
        assert ask(server, name, max_tokens=9, seed=5, ignore_eos=True).status == 200
    assert server.stop() == 0, server.log()
    again = run(inferd, "replay", journal, DEMO, cwd=ROOT)
    assert again.returncode == 0, again.stdout
    assert "replayed 2 answers, 18 tokens: 0 differ, 0 were left out" in again.stdout, again.stdout
    file.write_text(f"[model kept]\nmodel = {DEMO}\nstore = {tmp_path}/store.db\n")
    answer = run(inferd, "serve", "--config", file, "--port", free_port())
    assert answer.returncode == 78 and "store is not set for one model" in answer.stdout


def test_a_server_of_one_model_says_so(start):
    server = start(DEMO, "--admin-key", ADMIN)
    for route in ("/v1/models/load", "/models/unload", "/sleep?level=1", "/wake_up?model=demo"):
        answer = admin(server, route, "demo")
        assert answer.status == 404 and "one model" in answer.error["message"], answer
    assert server.get("/is_sleeping").json == {"is_sleeping": False}
