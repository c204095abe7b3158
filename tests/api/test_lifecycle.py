"""Start, keys, listeners, drain: what an operator meets."""

import json
import os
import re
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from harness import (DEMO, PATIENCE, ROOT, SLOWNESS, Background, Server, Stream, dummy_model,
                     free_port, http_post, reload_text, run, statuses, wait_until)

KEY = "secret-key-1"


# keys

OPEN = ["/livez", "/readyz", "/health", "/ping", "/metrics"]
CLOSED = ["/v1/models", "/v1/models/demo", "/models", "/version", "/nope"]


def test_api_keys(start):
    server = start(DEMO, "--api-key", KEY, "--api-key", "second", key=KEY)
    wrong = ["", "Bearer", "Bearer ", "Bearer nope", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}",
             f"Basic {KEY}", KEY, f"Bearer  {KEY} x"]
    for value in wrong:
        for path in CLOSED:
            answer = server.get(path, headers={"Authorization": value})
            assert answer.status == 401, (value, path, answer)
            assert answer.error["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"].startswith("Bearer")
        answer = server.post("/v1/completions", b"not json", headers={"Authorization": value})
        assert answer.status == 401, "no body byte is parsed before the key is accepted"
    for path in OPEN:
        assert server.get(path, headers={"Authorization": ""}).status == 200
    for value in (f"Bearer {KEY}", f"bearer {KEY}", "Bearer second"):
        assert server.get("/v1/models", headers={"Authorization": value}).status == 200
    assert server.get("/nope").status == 404
    # x-api-key counts where clients of Anthropic ask, and only without Authorization
    alone = {"Authorization": None, "x-api-key": KEY}
    for path in ("/v1/models", "/v1/models/demo"):
        assert server.get(path, headers=alone).status == 200
        assert server.get(path, headers={**alone, "x-api-key": "nope"}).status == 401
        assert server.get(path, headers={**alone, "Authorization": "Bearer nope"}).status == 401
    for path in ("/version", "/nope"):
        assert server.get(path, headers=alone).status == 401
    url = f"http://{server.host}:{server.port}/v1"
    with openai.OpenAI(base_url=url, api_key=KEY) as client:
        assert client.completions.create(model="demo", prompt="a", max_tokens=1).choices
    with openai.OpenAI(base_url=url, api_key="x") as client:
        with pytest.raises(openai.AuthenticationError):
            client.models.list()


def test_metrics_need_a_key_where_asked(start):
    server = start(DEMO, "--api-key", KEY, "--metrics-auth", "on", key=KEY)
    for value in (None, "Bearer nope"):
        assert server.get("/metrics", headers={"Authorization": value}).status == 401
    assert server.get("/metrics").status == 200


def test_a_flood_of_one_key_does_not_make_another_wait(start, slow_model):
    """Shares between keys are even without any option: the one request of the second key comes
    behind a flood of the first, and ends among the first of it."""
    server = start(slow_model, "--load-format", "dummy", "--api-key", f"{KEY},other",
                   "--max-num-seqs", "2", "--max-queue-time", "10min", key=KEY)
    flood = 24
    ids = [f"flood-{i}" for i in range(flood)] + ["other"]
    running = Stream(server, {"prompt": "a b", "n": 2, "max_tokens": 8000, "ignore_eos": True})
    next(running.events())

    def ask(name):
        key = "other" if name == "other" else KEY
        body = {"prompt": "a b", "max_tokens": 4, "ignore_eos": True}
        return server.post("/v1/completions", body, headers={"Authorization": f"Bearer {key}",
                                                             "X-Request-Id": name})

    with ThreadPoolExecutor(len(ids)) as pool:
        asked = [pool.submit(ask, name) for name in ids[:-1]]
        wait_until(lambda: server.metric("inferd_requests_waiting") == flood, "the flood")
        asked.append(pool.submit(ask, ids[-1]))
        wait_until(lambda: server.metric("inferd_requests_waiting") == flood + 1 or
                   server.ended(["other"]), "the other")
        running.close()
        assert [each.result().status for each in asked] == [200] * len(ids)
    wait_until(lambda: len(server.ended(ids)) == len(ids), "their lines", context=server.log)
    first = server.ended(ids).index("other")
    assert first < 4, f"{first} requests of the other key came first"


def test_keys_separate_the_prefix_cache(start):
    server = start(DEMO, "--api-key", f"{KEY},other", key=KEY)
    prompt = server.tokens("A text that one tenant sends and another must not see cached. " * 6)

    def cached(key):
        body = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1},
                           headers={"Authorization": f"Bearer {key}"}).json
        return body["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached(KEY) == 0
    assert cached("other") == 0
    assert cached(KEY) > 0


def test_api_key_file(start, inferd, tmp_path):
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\nanother\n")
    file.chmod(0o644)
    refused = run(inferd, "serve", DEMO, "--port", "0", "--api-key-file", file)
    assert refused.returncode in (77, 78) and "keys" in refused.stdout
    assert KEY not in refused.stdout
    file.chmod(0o600)
    server = start(DEMO, "--api-key-file", file, key=KEY)
    assert server.get("/v1/models").status == 200
    assert server.get("/v1/models", headers={"Authorization": "Bearer nope"}).status == 401
    file.write_text("renewed-key-2\n")
    server.process.send_signal(signal.SIGHUP)
    server.key = "renewed-key-2"
    wait_until(lambda: server.get("/v1/models").status == 200, "the new key to be read")
    assert server.get("/v1/models", headers={"Authorization": f"Bearer {KEY}"}).status == 401
    assert KEY not in server.log() and "renewed-key-2" not in server.log()


def test_unix_socket(start, tmp_path):
    path = tmp_path / "s.sock"
    server = start(DEMO, uds=path)
    assert server.choice("Once", max_tokens=4)["text"]
    assert len(Stream(server, {"prompt": "a", "max_tokens": 5, "ignore_eos": True}).chunks()) == 5
    gone = Stream(server, {"prompt": "a", "max_tokens": 200, "ignore_eos": True})
    next(gone.events())
    gone.close()
    wait_until(server.idle, "the gone stream to leave", context=server.usage)
    assert server.stop() == 0
    assert not path.exists()


def test_ipv6(start, inferd):
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
        available = True
    except OSError:
        available = False
    if available:
        server = start(DEMO, host="::1")
        assert server.choice("Once", max_tokens=2)["text"] is not None
        assert server.get("/v1/models", headers={"Host": f"[::1]:{server.port}"}).status == 200
    else:
        refused = run(inferd, "serve", DEMO, "--host", "::1", "--port", "0")
        assert refused.returncode in (69, 78) and "::1" in refused.stdout


def test_port_in_use(start, inferd):
    server = start(DEMO)
    refused = run(inferd, "serve", DEMO, "--port", server.port)
    assert refused.returncode == 69 and str(server.port) in refused.stdout


def test_open_to_the_world_needs_keys(inferd):
    refused = run(inferd, "serve", DEMO, "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode in (64, 78)
    assert "--allow-unauthenticated" in refused.stdout


def test_port_opens_before_the_model_is_ready(inferd, tmp_path):
    """While loading: alive, not ready, 503 with Retry-After, then 200."""
    model = dummy_model(tmp_path / "big", hidden_size=1024, intermediate_size=4096,
                        num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=16)
    server = Server(inferd, model, "--load-format", "dummy", "--max-model-len", "512", wait=False)
    seen = set()
    deadline = time.monotonic() + 120 * PATIENCE
    while 200 not in seen and time.monotonic() < deadline and server.alive():
        try:
            answer = server.get("/readyz")
            seen.add(answer.status)
            if answer.status == 503:
                assert "retry-after" in answer.headers
                assert server.get("/livez").status == 200
                refused = server.post("/v1/completions", {"prompt": "a"})
                if refused.status != 200:
                    assert (refused.status, refused.error["code"]) == (503, "model_loading")
        except ConnectionRefusedError:
            continue
    assert seen == {200, 503}, server.log()
    assert server.stop() == 0


# bad starts

BAD_FLAGS = [(["--prot", "1"], 64, "--port"), (["--port", "x"], 64, "port"),
             (["--port", "70000"], 64, "port"), (["--max-num-seqs"], 64, "max-num-seqs"),
             (["--device", "cuda"], 78, "(set by --device)"),
             (["--block-size", "7"], (64, 78), "block"),
             (["--num-blocks", "2"], 78, "2 are there; raise --num-blocks"),
             (["--max-model-len", "999999"], 78,
              "max_model_len is 999999; the model allows 1 to 8192 (set by --max-model-len)"),
             (["--swap-space", "1"], 78,
              "swap_space is 1 GiB; it must be 0, because cpu cannot swap (set by --swap-space)"),
             (["--lora-modules", "a=b"], 78, "lora_modules names 1 adapters, but enable_lora is"),
             (["--enable-lora", "--lora-modules", "a=/nonexistent"], 66, "/nonexistent: "),
             (["--num-blocks", "100", "--max-model-len", "2000"], 78,
              "100 are there; lower --max-model-len to 1568, or raise --num-blocks"),
             (["--kv-cache-bytes", "900TiB"], 78,
              "are free (MemAvailable). Lower --kv-cache-bytes"),
             (["--num-blocks", "1000000000"], 78, "are free (MemAvailable). Lower --num-blocks"),
             (["--speculative-model", "/nonexistent", "--num-speculative-tokens", "2"], 66,
              "/nonexistent: No such file or directory"),
             (["--config", "/nonexistent"], (64, 66, 74, 78), "/nonexistent")]


@pytest.mark.parametrize("flags,status,word", BAD_FLAGS, ids=[" ".join(f[0]) for f in BAD_FLAGS])
def test_bad_flags(inferd, flags, status, word):
    refused = run(inferd, "serve", DEMO, "--port", "0", *flags)
    expected = status if isinstance(status, tuple) else (status,)
    assert refused.returncode in expected, refused.stdout
    assert word in refused.stdout


def test_missing_and_malformed_models(inferd, tmp_path):
    def start_with(model, *flags):
        done = run(inferd, "serve", model, "--port", "0", *flags)
        return done.returncode, done.stdout

    code, text = start_with(tmp_path / "nowhere")
    assert code == 66 and "nowhere" in text
    code, text = start_with(tmp_path)
    assert code == 66 and ("config.json" in text or "tokenizer.json" in text)
    for number, (config, words) in enumerate((
            ("{", ["config.json"]), ('{"architectures": ["NopeForCausalLM"]}', ["NopeForCausalLM"]),
            ('{"architectures": ["LlamaForCausalLM"], "hidden_size": -1}', ["hidden_size"]))):
        directory = dummy_model(tmp_path / str(number))
        (directory / "config.json").write_text(config)
        code, text = start_with(directory, "--load-format", "dummy")
        assert code in (65, 66, 78) and all(w in text for w in words), text
    for name in ("tokenizer.json", "tokenizer_config.json"):  # DeBERTa has a kind of its own
        (directory / name).unlink(missing_ok=True)
    (directory / "config.json").write_text('{"architectures": ["DebertaModel"]}')
    code, text = start_with(directory, "--load-format", "dummy")
    assert code == 65 and "DebertaModel" in text and "is not supported" in text, text
    directory = dummy_model(tmp_path / "no-weights")
    code, text = start_with(directory)
    assert code in (65, 66) and "safetensors" in text
    (directory / "model.safetensors").write_bytes(b"\xff" * 100)
    code, text = start_with(directory)
    assert code == 65 and "safetensors" in text


def test_infinity_in_a_config(inferd, tmp_path):
    """Nemotron-H and Falcon-H1 write it as Python does."""
    directory = dummy_model(tmp_path, time_step_limit=[0.0, float("inf")])
    assert "Infinity" in (directory / "config.json").read_text()
    done = run(inferd, "check", directory, "--load-format", "dummy")
    assert done.returncode == 0, done.stdout


def test_a_journal_gets_priorities(inferd, tmp_path):
    """Under systemd standard error is the journal, and JOURNAL_STREAM is its device and inode: the
    reason of a failed start is an error there, not one more line of information."""
    def first_lines(model, *flags, journal):
        with open(tmp_path / "journal", "w+") as file:
            status = os.fstat(file.fileno())
            stream = f"{status.st_dev}:{status.st_ino + (not journal)}"
            subprocess.run([str(ROOT / inferd), "serve", model, "--port", "0", *flags],
                           stderr=file, timeout=60 * PATIENCE,
                           env={**os.environ, "JOURNAL_STREAM": stream})
            file.seek(0)
            return file.read().splitlines()

    missing = tmp_path / "nowhere"
    lines = first_lines(missing, journal=True)
    assert [line for line in lines if line.startswith("<3>") and str(missing) in line], lines
    lines = first_lines(DEMO, "--num-blocks", "2", journal=True)
    assert lines[0].startswith("<6>inferd "), lines
    assert [line for line in lines if line.startswith("<3>") and "--num-blocks" in line], lines
    assert first_lines(DEMO, "--prot", "1", journal=True)[0].startswith("<3>inferd: ")
    assert not [line for line in first_lines(missing, journal=False) if line.startswith("<")]


def test_auto_says_which_back_end_and_why(inferd):
    """Without nvcc at build time, or without a GPU, one line gives the reason."""
    done = run(inferd, "check", DEMO)
    lines = [line for line in done.stdout.splitlines() if line.startswith("backend ")]
    assert done.returncode == 0 and len(lines) == 1, done.stdout
    assert re.match(r"backend   (cuda: .+|cpu: .*(CUDA|NVIDIA).+)$", lines[0]), lines


def test_every_command_says_what_a_misspelt_variable_is(inferd):
    options = {**os.environ, "INFERD_PROT": "3", "INFERD_PORT": str(free_port())}
    for command in (["check", DEMO], ["health"], ["config", "dump"]):
        done = run(inferd, *command, env=options)
        words = "inferd: INFERD_PROT in the environment is no option; did you mean INFERD_PORT?"
        assert words in done.stdout, (command, done.stdout)


def test_version_and_help(inferd):
    done = run(inferd, "version")
    assert done.returncode == 0 and "inferd" in done.stdout
    done = run(inferd, "--help")
    assert done.returncode == 0 and "serve" in done.stdout
    assert len(done.stdout.splitlines()) <= 50


def test_bench_says_what_is_wrong(inferd):
    for words in (["--help"], ["serve", "--help"], ["throughput", "-h"]):
        asked = run(inferd, "bench", *words)
        assert asked.returncode == 0 and "usage: inferd bench serve" in asked.stdout
    wrong = run(inferd, "bench", "serve", "--num-requests", "many")
    assert wrong.returncode == 64 and "--num-requests: 'many' is not valid" in wrong.stdout
    wrong = run(inferd, "bench", "throughput", DEMO, "--input-len", 8190, "--output-len", 3)
    assert wrong.returncode == 64 and "8190 and --output-len 3 are more" in wrong.stdout


def test_bench_of_a_smaller_vocabulary_says_what_to_ask_for(server, inferd):
    words = ("bench", "serve", "--base-url", f"http://{server.host}:{server.port}",
             "--num-requests", 2, "--input-len", 64, "--output-len", 2)
    failed = run(inferd, *words)
    assert failed.returncode == 1 and "from 100 to 31999: --vocab-size" in failed.stdout
    for more in (["--vocab-size", 4096], ["--text"]):
        done = run(inferd, *words, *more)
        assert done.returncode == 0 and "2 of 2 requests" in done.stdout, done
        assert "--vocab-size" not in done.stdout


def test_health_command(start, inferd):
    server = start(DEMO)
    assert run(inferd, "health", "--port", server.port).returncode == 0
    server.stop()
    gone = run(inferd, "health", "--port", server.port)
    assert gone.returncode == 1 and f"127.0.0.1:{server.port}" in gone.stdout


def test_health_asks_where_the_server_listens(inferd, tmp_path):
    for where in (f"unix:{tmp_path}/s.sock", f"127.0.0.1:{free_port()}", f":{free_port()}"):
        options = {**os.environ, "INFERD_LISTEN": where}
        assert run(inferd, "health", env=options).returncode == 1
        daemon = subprocess.Popen([str(ROOT / inferd), "serve", str(DEMO)], env=options,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: run(inferd, "health", "--ready", env=options).returncode == 0, where)
        finally:
            daemon.terminate()
            assert daemon.wait(60 * PATIENCE) == 0


def test_start_prints_a_curl_line_that_works(start):
    server = start(DEMO, "--log-format", "text")
    wait_until(lambda: "curl " in server.log(), "the curl line")
    command = next(line for line in server.log().splitlines() if line.startswith("curl "))
    answer = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, check=True, timeout=60 * PATIENCE)
    assert json.loads(answer.stdout)["choices"][0]["text"], command


def test_curl_line_of_a_json_log(start):
    """It can be pasted as it stands in the file: it has no quotes to be escaped."""
    keyed = start(DEMO, "--log-format", "json", "--api-key", "secret", key="secret")
    wait_until(lambda: "curl " in keyed.log(), "the curl line")
    command = re.search(r'"msg":"(curl [^"]*)"}', keyed.log()).group(1)
    assert "\\" not in command, command
    answer = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, check=True,
                            stderr=subprocess.DEVNULL, env={**os.environ, "KEY": "secret"},
                            timeout=60 * PATIENCE)
    assert json.loads(answer.stdout)["data"], command


def test_start_says_one_number_of_blocks(start):
    server = start(DEMO, "--num-blocks", 500)
    wait_until(lambda: "ready in" in server.log(), "the last line of the start")
    assert re.findall(r"(\d+) (?:KV )?blocks of", server.log()) == ["499", "499"], server.log()


def test_probes_are_logged_when_their_answer_changes(start):
    server = start(DEMO, "--log-format", "json", "--drain-delay", "10min")

    def lines():
        found = re.findall(r'"status":(\d+),"method":"GET","route":"(/[a-z]+)"', server.log())
        return [(int(status), route) for status, route in found if route != "/version"]

    for path in ("/health", "/ping", "/readyz", "/livez", "/livez"):
        server.get(path)
    assert server.get("/version").status == 200
    wait_until(lambda: "/version" in server.log() and "/livez" in server.log(), "the log")
    assert [line for line in lines() if line[0] == 200] == [(200, "/readyz"), (200, "/livez")]
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: server.get("/health").status == 503, "the drain")
    server.get("/health")
    server.stop()
    assert lines()[-1] == (503, "/health") and lines()[-2] == (200, "/livez")


def test_scrapes_are_logged_once(start):
    server = start(DEMO, "--log-format", "json", "--api-key", KEY, "--metrics-auth", "on", key=KEY)
    for _ in range(3):
        assert server.get("/metrics").status == 200
        assert server.get("/metrics", headers={"Authorization": "Bearer nope"}).status == 401
    wait_until(lambda: server.log().count('"status":401') == 3, "the lines", context=server.log)
    lines = [json.loads(line) for line in server.log().splitlines() if '"/metrics"' in line]
    assert [line["status"] for line in lines] == [200, 401, 401, 401], lines


def test_paths_without_a_route_are_logged(start):
    """A client of another server asks for what is not there: the log says what. A query may hold a
    secret."""
    server = start(DEMO, "--log-format", "json")
    server.get("/metrics/vllm?token=s3cret")
    server.request("DELETE", "/v1/models")
    server.get("/" + "x" * 300)
    server.raw(b"GET /a\"b'c\x7f HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert server.get("/v1/models").status == 200
    wait_until(lambda: '"status":200,"method":"GET","route":"/v1/models"' in server.log(),
               "the lines", context=server.log)
    lines = [json.loads(line) for line in server.log().splitlines() if '"request"' in line]
    paths = [(line["status"], line["path"]) for line in lines if "path" in line]
    assert paths[:2] == [(404, "/metrics/vllm"), (405, "/v1/models")], paths
    assert paths[2] == (404, "/" + "x" * 155 + "..."), paths
    assert [line["route"] for line in lines if "path" in line][:3] == ["other"] * 3
    assert "s3cret" not in server.log()
    assert "path" not in lines[-1] and lines[-1]["route"] == "/v1/models"


def slow_lines(server):
    return [line for line in server.log().splitlines() if "slow_request is" in line]


def test_a_slow_request_is_logged_with_its_stages(start, tmp_path):
    """Every moment of the request is in one stage, so their sum is the whole."""
    file = tmp_path / "inferd.conf"
    file.write_text("slow_request = 1h\n")
    server = start(DEMO, "--config", file, "--log-format", "text")
    body = {"prompt": "Once upon a time", "max_tokens": 8, "ignore_eos": True}
    assert server.post("/v1/completions", body).status == 200
    assert not slow_lines(server)
    assert "changed: slow_request;" in reload_text(server, "slow_request = 0.000001\n", file)
    count = server.tokens("Once upon a time")
    for stream in (False, True):
        headers = {"X-Request-Id": f"slow-{stream}"}
        if stream:
            assert len(Stream(server, body, headers).chunks()) == 8
        else:
            assert server.post("/v1/completions", body, headers=headers).status == 200
        wait_until(lambda: any(headers["X-Request-Id"] in line for line in slow_lines(server)),
                   "the line", context=server.log)
        line = next(line for line in slow_lines(server) if headers["X-Request-Id"] in line)
        assert line.startswith("warn: ") and "POST /v1/completions, status 200, read " in line
        assert line.endswith(f"; {len(count)} prompt tokens, 8 generated"), line
        stages = dict(re.findall(r", (\w+) (\d+\.\d+) s", line))
        assert list(stages) == ["read", "prepare", "queue", "prefill", "decode", "write"], line
        whole = float(re.search(r"took (\d+\.\d+) s", line)[1])
        assert abs(sum(map(float, stages.values())) - whole) < 0.004, line


# surroundings

def test_closed_standard_streams(start, tmp_path):
    """Started with 0, 1 and 2 closed (cron, some supervisors): no line lands on a socket."""
    log = tmp_path / "log"
    for flags in ((), ("--log-file", log)):
        server = start(DEMO, *flags, shell='exec "$@" 0<&- 1>&- 2>&-')
        assert server.choice("Once", max_tokens=2)["text"]
        if flags:  # a request may be answered before the line is written
            wait_until(lambda: "ready in" in log.read_text(), "the line of the start")
        assert server.stop() == 0


@pytest.mark.parametrize("where", ["tcp", "unix"])
def test_few_descriptors(inferd, tmp_path, where):
    """With too few descriptors it says so and ends with an exit status, never by a signal."""
    shell = 'export ASAN_OPTIONS="$ASAN_OPTIONS:detect_leaks=0"; ulimit -n %d; exec "$@"'
    for limit in (6, 23, 127, 128):  # a search for leaks needs some too
        server = Server(inferd, DEMO, wait=False, shell=shell % limit,
                        uds=tmp_path / "s.sock" if where == "unix" else None)
        wait_until(lambda: not server.alive() or "ready in" in server.log(), "a start or an end")
        assert server.alive() == (limit >= 128), (limit, server.log())
        status = server.stop()
        assert status == (0 if limit >= 128 else 78), (limit, status, server.log())
        if limit < 128:
            assert f"open files are limited to {limit} " in server.log(), server.log()


def test_log_file_at_its_limit(start, tmp_path):
    """`ulimit -f`: lines are lost, the daemon is not."""
    server = start(DEMO, "--log-file", tmp_path / "log", shell='ulimit -f 0; exec "$@"')
    assert server.choice("Once", max_tokens=2)["text"]


# drain

def streams_of(server, count, length):
    streams = [Background(server, {"prompt": f"Once upon a time {i}", "max_tokens": length,
                                   "ignore_eos": True}) for i in range(count)]
    for stream in streams:
        assert stream.started.wait(60 * PATIENCE) and stream.failure is None, stream.failure
    return streams


def slow_server(start, tmp_path):
    return start(dummy_model(tmp_path / "slow"), "--load-format", "dummy", "--max-num-seqs", "16")


def test_drain(start, tmp_path):
    """SIGTERM: what runs finishes whole, kept connections get 503, exit 0."""
    server = slow_server(start, tmp_path)
    kept = server.connection()
    assert server.get("/livez", connection=kept).status == 200
    length = 600
    streams = streams_of(server, 12, length)
    server.process.send_signal(signal.SIGTERM)

    def draining():
        answer = server.get("/readyz", connection=kept)
        if answer.status == 503:
            assert answer.json["status"] == "draining"
        return answer.status == 503

    begin = time.monotonic()
    try:
        wait_until(draining, "readiness to be off")
        answer = server.post("/v1/completions", {"prompt": "a"}, connection=server.connection())
        assert (answer.status, answer.error["code"]) == (503, "draining")
        assert "retry-after" in answer.headers
    except (ConnectionError, OSError):
        pass  # the listener may be closed already: a refused connection is an answer too
    for stream in streams:
        assert stream.join().failure is None, (stream.failure, server.log())
        assert len(stream.chunks_seen) == length and stream.finish_reasons() == ["length"]
    assert server.wait_exit(30) == 0, server.log()
    assert time.monotonic() - begin < 60 * PATIENCE


def test_a_leaving_server_admits_requests_until_the_delay_ends(start):
    """SIGTERM with --drain-delay: readiness is off at once, for routers; clients see nothing but
    a request to close their connections. The second SIGTERM ends the delay."""
    server = start(DEMO, "--drain-delay", "10min")
    kept = server.connection()
    assert server.get("/readyz", connection=kept).status == 200
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: server.get("/readyz").status == 503, "readiness to be off")
    assert server.get("/readyz").json["status"] == server.get("/health").json["status"] == "leaving"
    assert server.get("/livez").status == 200
    for connection in (kept, server.connection()):
        answer = server.post("/v1/completions", {"prompt": "a", "max_tokens": 2},
                             connection=connection)
        assert answer.status == 200 and answer.headers["connection"] == "close"
    assert b'state="leaving"} 1' in server.get("/metrics").body
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_exit(15) == 0, server.log()
    assert "drain delay" not in server.log()


def test_the_delay_ends_by_itself(start):
    server = start(DEMO, "--drain-delay", "200ms")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_exit(30) == 0, server.log()
    assert "drain delay: draining" in server.log()


def unread(server, connection):
    """Bytes of an IPv4 connection that the server has not taken from the kernel, or accepted."""
    ends = [f":{port:04X}" for port in (server.port, connection.getsockname()[1])]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues = line.split()[:5]
        if local.endswith(ends[0]) and remote.endswith(ends[1]):
            return int(queues.split(":")[1], 16)
    return None


def test_kept_connection_gets_503_in_a_drain(start, tmp_path):
    """A request that arrives on a live connection after SIGTERM is refused with a reason."""
    server = slow_server(start, tmp_path)
    streams = streams_of(server, 4, 1500)
    raw = server.socket()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    raw.sendall(head)  # half a request: the connection is live, not idle
    wait_until(lambda: unread(server, raw) == 0, "the server to read it")
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "drain" in server.log(), "the drain to be logged")
    raw.sendall(b"Content-Length: 15\r\n\r\n" + b'{"prompt": "a"}')
    received = raw.recv(65536)
    assert statuses(received)[:1] == [503] and b'"draining"' in received, received
    raw.close()
    for stream in streams:
        assert stream.join().failure is None
    assert server.wait_exit(30) == 0


def test_second_sigterm_aborts(start, tmp_path):
    server = slow_server(start, tmp_path)
    streams = streams_of(server, 8, 7000)
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "drain" in server.log(), "the drain to begin")
    assert server.alive()
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_exit(15) == 0, server.log()
    for stream in streams:
        stream.join()
        assert len(stream.chunks_seen) < 7000


def test_drain_timeout(start, tmp_path):
    """What has not finished in time is cut, in-stream, and the exit is still clean."""
    server = start(dummy_model(tmp_path / "slow"), "--load-format", "dummy",
                   "--drain-timeout", "1s")
    streams = streams_of(server, 4, 7000)
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_exit(20) == 0, server.log()
    for stream in streams:
        assert stream.join().failure is None, "an error event and [DONE] come before the end"
        assert 0 < len(stream.chunks_seen) < 7000
        error = stream.chunks_seen[-1]["error"]
        assert error["code"] == "draining" and error["message"], error


def test_sigterm_does_not_wait_for_a_model(inferd, tmp_path):
    """What is still loading has no request to finish: the end comes at once, and is a clean one."""
    model = dummy_model(tmp_path / "large", hidden_size=2048, intermediate_size=8192,
                        num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8)
    path = tmp_path / "s.sock"
    server = Server(inferd, model, "--load-format", "dummy", uds=path, wait=False)
    wait_until(lambda: "kv cache" in server.log(), "the load to begin")
    assert server.get("/readyz").json["status"] == "loading"
    assert server.stop() == 0, server.log()
    assert "stopped" in server.log() and "grammars" not in server.log(), "it loaded to the end"
    assert not path.exists()


def test_sigint_drains_too(start):
    server = start(DEMO)
    server.process.send_signal(signal.SIGINT)
    assert server.wait_exit(15) == 0


def test_sigkill_then_start_again(start, inferd, tmp_path):
    """Nothing is left that stops the next start, not even a stale socket file."""
    path = tmp_path / "s.sock"
    server = Server(inferd, DEMO, uds=path)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    again = start(DEMO, uds=path)
    assert again.get("/readyz").status == 200


def test_idle_server_sleeps(start):
    """No wake-ups to speak of when nothing is asked: once what the start left to do in the
    background is done, two idle seconds cost a sliver of CPU time."""
    server = start(DEMO)
    assert server.choice("a", max_tokens=2)

    def ticks():
        fields = open(f"/proc/{server.process.pid}/stat", encoding="ascii").read().split()
        return int(fields[13]) + int(fields[14])

    def sleeps():
        before = ticks()
        time.sleep(2)
        return ticks() - before <= 0.1 * os.sysconf("SC_CLK_TCK") * SLOWNESS

    wait_until(sleeps, "two idle seconds", 30)


def test_a_request_that_was_read_is_answered_after_sigterm(start):
    """By 200 or 503."""
    server = start(DEMO)
    raw = server.socket()
    body = {"prompt": "a", "max_tokens": 4}
    raw.sendall(http_post("/v1/completions", body, "Connection: close"))
    wait_until(lambda: unread(server, raw) == 0, "the server to accept and read it")
    server.process.send_signal(signal.SIGTERM)
    assert statuses(raw.recv(65536)) in ([200], [503])
    raw.close()
    assert server.wait_exit(15) == 0
