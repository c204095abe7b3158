"""SIGHUP: what a running server takes over from its configuration, and what it names."""

import subprocess

from harness import DEMO, PATIENCE, ROOT, Stream, free_port, reload_text, wait_until

KEY = "secret-key-1"


def test_reload_takes_over_limits_keys_and_the_level(start, tmp_path):
    """SIGHUP reads the whole file: what may change does, the rest is named."""
    file = tmp_path / "inferd.conf"
    base = f"model = {DEMO}\n"
    file.write_text(base)
    server = start(DEMO, "--config", file)
    body = {"prompt": "word " * 400, "max_tokens": 1}
    assert server.post("/v1/completions", body).status == 200
    said = reload_text(server, base + "max_body_bytes = 1024\nlog_level = debug\nport = 1\n"
                       "max_queue_requests = 2000\nblock_size = 32\n", file)
    assert "changed: max_body_bytes, log_level;" in said, said
    assert "need a restart: block_size, max_queue_requests" in said, "port is a flag: " + said
    assert (server.post("/v1/completions", body).status) == 413
    wait_until(lambda: "reply written" in server.log(), "lines of level debug")
    said = reload_text(server, base + f"api_key = {KEY}\n", file)
    assert "changed: api_key, max_body_bytes, log_level; keys read again: 1" in said, said
    assert server.post("/v1/completions", body).status == 401
    server.key = KEY
    assert server.post("/v1/completions", body).status == 200
    assert KEY not in server.log()
    assert "changed: nothing" in reload_text(server, base + f"api_key = {KEY}\n", file)


def test_reload_takes_over_the_names_of_the_model(start, tmp_path):
    file = tmp_path / "inferd.conf"
    file.write_text("served_model_name = old\n")
    server = start(DEMO, "--config", file)

    def names():
        return [card["id"] for card in server.get("/v1/models").json["data"]]

    def asked(name):
        return server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "model": name})

    stream = Stream(server, {"prompt": "a", "max_tokens": 300, "ignore_eos": True, "model": "old"})
    events = stream.events()
    next(events)
    said = reload_text(server, "served_model_name = new, alias\n", file)
    assert "changed: served_model_name;" in said, said
    assert {event["model"] for _, event in events} == {"old"}, "it ends as it began"
    assert names() == ["new", "alias"]
    assert asked("alias").json["model"] == "new" and asked("old").status == 404
    assert server.metric("inferd_generation_tokens_total", model="new") >= 301
    said = reload_text(server, "\n", file)
    assert "changed: served_model_name;" in said and names() == ["demo"], said


def test_a_wrong_file_changes_nothing(start, tmp_path):
    file = tmp_path / "inferd.conf"
    file.write_text("max_logprobs = 5\n")
    server = start(DEMO, "--config", file)
    asked = {"prompt": "a", "max_tokens": 1, "logprobs": 5}
    for text, words in (("max_logprobs = 1\nprot = 1\n", "line 2: prot is unknown"),
                        ("max_logprobs = 1\napi_key_file = /nonexistent\n", "/nonexistent"),
                        ("max_logprobs = 1\nmax_num_batched_tokens = 1\nmax_num_seqs = 2\n",
                         "max_num_batched_tokens is 1")):
        said = reload_text(server, text, file, result="rejected")
        assert words in said and "the old values stay" in said, said
        assert server.post("/v1/completions", asked).status == 200
    assert "changed: max_logprobs;" in reload_text(server, "max_logprobs = 1\n", file)
    assert server.post("/v1/completions", asked).status == 400


def test_the_command_waits_for_the_answer(start, inferd, tmp_path, monkeypatch):
    """As the unit of systemd runs it: its status is that of the reload."""
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    file = tmp_path / "inferd.conf"
    file.write_text("\n")
    server = start(DEMO, "--config", file)

    def reload(text, *words):
        file.write_text(text)
        done = subprocess.run([ROOT / inferd, "reload", *words], text=True, timeout=60 * PATIENCE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout, done.stderr

    pid = str(server.process.pid)
    status, out, _ = reload("max_logprobs = 1\nblock_size = 32\n", pid)
    assert status == 0 and out == "changed: max_logprobs; needs a restart: block_size\n", out
    status, _, said = reload("prot = 1\n", pid)
    assert status == 78 and "line 1: prot is unknown" in said and "the old values stay" in said
    assert reload("max_logprobs = 2\n", pid)[:2] == (0, "changed: max_logprobs\n")
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    status, out, _ = reload("max_logprobs = 3\n", pid)
    assert status == 0 and "the log alone" in out
    wait_until(lambda: server.log().count("changed: max_logprobs") == 3, "the line of the log")
    status, _, said = reload("", "999999999")
    assert status == 69 and "process 999999999: No such process" in said
    with subprocess.Popen(["sleep", "60"]) as other:
        status, _, said = reload("", str(other.pid))
        assert other.poll() is None, "it got SIGHUP"
        other.kill()
    assert status == 69 and f'process {other.pid} is "sleep", not "inferd"' in said, said
    for words in ((), ("x",), ("0",), ("-1",), (pid, pid)):
        assert reload("", *words)[0] == 64, words


def test_a_reload_does_not_open_a_server_to_the_world(start, tmp_path):
    file = tmp_path / "inferd.conf"
    file.write_text(f"api_key = {KEY}\n")
    server = start(DEMO, "--config", file, "--listen", f"0.0.0.0:{free_port()}", key=KEY)
    said = reload_text(server, "\n", file, result="rejected")
    assert "no key would be left" in said, said
    assert server.get("/v1/models", headers={"Authorization": None}).status == 401


# listeners
