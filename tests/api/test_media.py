"""Pictures by https URLs (--allowed-media-hosts): the answers are those of the same files in the
request, and what no server may be made to fetch is refused by name. The crowds stand in
tests/hostile/test_pictures.py."""

import json
import struct
import threading
import time
import zlib

import openai
import pytest

import seeing
from harness import PATIENCE, Server, wait_until
from media_host import MediaHost, trusted
from test_pictures import A, B, ask, part, post

FILE_MAX = 20_000_000


@pytest.fixture(scope="module", name="host")
def start_host(tmp_path_factory):
    host = MediaHost(tmp_path_factory.mktemp("host"))
    host.pages.update({"/a.png": A, "/b.png": B, "/silent": host.silent, "/slow": host.slow,
                       "/endless": host.endless, "/headers": host.headers})
    yield host
    host.close()


@pytest.fixture(scope="module", name="model")
def make_model(tmp_path_factory):
    return seeing.make(tmp_path_factory.mktemp("seeing") / "model", "qwen3_vl")


@pytest.fixture(scope="module", name="fetcher")
def start_fetcher(inferd, host, model):
    with trusted(host):
        server = Server(inferd, model, "--served-model-name", "seer", "--allowed-media-hosts",
                        f"{host.entry},localhost:{host.port},pictures.invalid")
    yield server
    assert server.stop() == 0, server.log()


@pytest.fixture(name="server")
def check_server(fetcher):
    yield fetcher
    assert fetcher.alive(), fetcher.log()
    wait_until(fetcher.idle, "the server to be idle again", context=fetcher.usage)
    wait_until(lambda: fetcher.metric("inferd_request_memory_bytes") == 0, "an empty ledger")


def link(url, **fields):
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def user(*parts):
    return {"role": "user", "content": [{"type": "text", "text": p} if isinstance(p, str) else p
                                        for p in parts]}


def post_body(*parts):
    return json.dumps({"messages": [user(*parts)], "max_tokens": 1})


def refused(server, url, *words):
    made = post(server, user("see", link(url)))
    assert made.status == 400, made
    assert made.error["param"] == "messages[0].content[1]", made.error
    for word in ("messages[0].content[1]", *words):
        assert word in made.error["message"], made.error
    return made.error["message"]


# ---- the same answers ----

def test_the_answer_is_that_of_the_file(server, host):
    far = [user("compare", link(host.url("/a.png")), part(A), link(host.url("/b.png")), "?")]
    near = [user("compare", part(A), part(A), part(B), "?")]
    made, cached = ask(server, *far)
    assert cached == 0
    again, hit = ask(server, *near)
    assert made == again and hit > 0
    low = [user(link(host.url("/a.png"), detail="low"))]
    assert ask(server, *low)[0] == ask(server, user({"type": "image_url", "image_url": {
        "url": seeing.url(A), "detail": "low"}}))[0]


def test_every_api_takes_them(server, host):
    url = host.url("/a.png")
    chat = post(server, user(link(url), "what")).json
    whole = chat["usage"]["prompt_tokens"]
    with openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                       timeout=60 * PATIENCE, max_retries=0) as client:
        answer = client.responses.create(
            model="seer", temperature=0, max_output_tokens=8, extra_body={"ignore_eos": True},
            input=[{"role": "user", "content": [
                {"type": "input_image", "image_url": url, "detail": "auto"},
                {"type": "input_text", "text": "what"}]}])
    assert answer.output_text == chat["choices"][0]["message"]["content"]
    assert answer.usage.input_tokens == whole
    blocks = [{"type": "image", "source": {"type": "url", "url": url}},
              {"type": "text", "text": "what"}]
    made = server.post("/v1/messages", {"model": "seer", "max_tokens": 8, "temperature": 0,
                                        "messages": [{"role": "user", "content": blocks}]})
    used = made.json["usage"]
    assert used["input_tokens"] + used["cache_read_input_tokens"] == whole, made
    for path, body in (
            ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": blocks}]}),
            ("/v1/responses/input_tokens", {"input": [{"role": "user", "content": [
                {"type": "input_image", "image_url": url},
                {"type": "input_text", "text": "what"}]}]})):
        made = server.post(path, {"model": "seer", **body})
        assert made.status == 200 and made.json["input_tokens"] == whole, made
    made = server.post("/tokenize", {"messages": [user(link(url), "what")]})
    assert made.status == 200 and made.json["count"] == whole, made


def test_errors_have_the_places_of_their_api(server, host):
    url = host.url("/none")
    made = server.post("/v1/responses", {"model": "seer", "input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": url}]}]})
    assert made.status == 400 and "404" in made.error["message"], made
    assert made.error["param"].startswith("input[0]"), made
    made = server.post("/v1/messages", {"model": "seer", "max_tokens": 1, "messages": [
        {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": url}}]}]})
    assert made.status == 400 and "404" in made.json["error"]["message"], made
    made = server.post("/tokenize", {"messages": [user(link(url), "what")]})
    assert made.status == 400 and made.error["param"] == "messages[0].content[0]", made


def test_in_a_history_what_may_be_fetched_stays(server, host):
    """Others become a text, as everywhere; of the question they are refused."""
    def talk(url):
        return [user("first", link(url)), {"role": "assistant", "content": "well"}, user("then")]
    made = post(server, *talk(host.url("/a.png")))
    assert made.status == 200 and "x-inferd-mended" not in made.headers, made.headers
    assert ask(server, *talk(host.url("/a.png")))[0] == ask(server, *talk(seeing.url(A)))[0]
    made = post(server, *talk("https://elsewhere.invalid/a.png"))
    assert made.status == 200 and "image_left_out" in made.headers["x-inferd-mended"], made


# ---- what is refused ----

def test_nothing_is_fetched_unless_a_host_is_allowed(start, host, model):
    blind = start(model)
    before = list(host.seen)
    refused(blind, host.url("/a.png"), "--allowed-media-hosts")
    assert host.seen == before


@pytest.mark.parametrize("url, words", [
    ("http://127.0.0.1:{port}/a.png", "https"), ("ftp://127.0.0.1/a.png", "https"),
    ("file:///etc/passwd", "https"), ("https://127.0.0.1/a.png", "127.0.0.1:443"),
    ("https://[::1]:{port}/a.png", "[::1]:{port}"), ("https://169.254.169.254/x", "169.254"),
    ("https://127.0.0.2:{port}/a.png", "127.0.0.2"),
    ("https://a:b@127.0.0.1:{port}/a.png", "user"),
    ("https://127.0.0.1:{port}@169.254.169.254/", "user"),
    ("https://pictures.invalid.evil.invalid/", "evil"),
    ("https://127.0.0.1:{port}/" + "a" * 8200, "8192")])
def test_other_urls_are_refused(server, host, url, words):
    before = list(host.seen)
    refused(server, url.format(port=host.port), words.format(port=host.port))
    assert host.seen == before


def test_a_name_must_lead_to_a_public_address(server, host):
    """localhost is listed, and so is 127.0.0.1: that does not open the one by the other."""
    before = list(host.seen)
    refused(server, host.url("/a.png", "localhost"), "localhost", "no public address")
    assert host.seen == before
    assert ask(server, user(link(f"https://2130706433:{host.port}/a.png")))
    refused(server, "https://pictures.invalid/a.png", "pictures.invalid:443", "cannot be asked")


def test_redirects(server, host):
    def to(where):
        return 302, {"Location": where}, b"elsewhere"
    for i in range(5):
        host.pages[f"/to{i}"] = to(f"/to{i - 1}" if i else "/a.png")
    host.pages.update({
        "/round": to("/round"), "/open": to("http://127.0.0.1:1/a.png"),
        "/named": to(host.url("/a.png", "localhost")), "/other": to("https://127.0.0.2/a.png"),
        "/link-local": to("https://169.254.169.254/latest/meta-data"),
        "/file": to("file:///etc/passwd"), "/user": to(f"https://a@{host.entry}/a.png"),
        "/lost": (302, {}, b"")})
    plain = ask(server, user(part(A)))[0]
    for path in ("/to0", "/to2"):
        assert ask(server, user(link(host.url(path))))[0] == plain
    refused(server, host.url("/to3"), "redirects more than 3 times")
    refused(server, host.url("/round"), "redirects more than 3 times")
    refused(server, host.url("/named"), "no public address")
    for path, words in (("/open", "https"), ("/other", "127.0.0.2:443"), ("/file", "https"),
                        ("/link-local", "169.254.169.254:443"), ("/user", "user"),
                        ("/lost", "302")):
        refused(server, host.url(path), words)


def test_answers_that_are_no_pictures(server, host):
    host.pages.update({
        "/teapot": (418, {"Content-Type": "image/png"}, A), "/part": (206, {}, A),
        "/svg": (200, {"Content-Type": "image/png"}, b"<svg/>"), "/nothing": b"",
        "/named.svg": (200, {"Content-Type": "image/svg+xml"}, A),
        "/short": (200, {"Content-Length": str(len(A) + 1)}, A)})
    for path, words in (("/none", "404"), ("/teapot", "418"), ("/part", "206"), ("/svg", ""),
                        ("/nothing", ""), ("/short", "cannot be asked"),
                        ("/headers", "too many headers")):
        refused(server, host.url(path), words)
    assert ask(server, user(link(host.url("/named.svg"))))[0] == ask(server, user(part(A)))[0]


def test_a_certificate_must_be_that_of_the_host(start, host, tmp_path, model):
    other = MediaHost(tmp_path)  # whose certificate is signed by itself
    other.pages["/a.png"] = A
    with trusted(host):
        server = start(model, "--allowed-media-hosts", other.entry)
    refused(server, other.url("/a.png"), "cannot be asked", "certificate")
    assert not other.seen
    other.close()


def padded(file, size):
    """A PNG of so many bytes: a chunk that nothing reads stands before its end."""
    data = bytes(size - len(file) - 12)
    chunk = b"tEXt" + data
    return (file[:-12] + struct.pack(">I", len(data)) + chunk
            + struct.pack(">I", zlib.crc32(chunk)) + file[-12:])


def test_a_file_has_a_size(server, host):
    for more in (-1, 0):
        host.pages["/large"] = padded(A, FILE_MAX + more)
        assert ask(server, user(link(host.url("/large"))))[0] == ask(server, user(part(A)))[0]
    host.pages["/large"] = padded(A, FILE_MAX + 1)
    refused(server, host.url("/large"), "20000000 bytes", host.entry)
    refused(server, host.url("/endless"), "20000000 bytes", host.entry)


def test_memory_has_a_limit(start, host, model):
    host.pages["/some"] = padded(A, 3_000_000)
    with trusted(host):
        server = start(model, "--allowed-media-hosts", host.entry, "--max-request-memory", "2MiB",
                       "--max-body-bytes", "1MiB")
    made = post(server, user(link(host.url("/some"))))
    assert made.status == 503, made
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "an empty ledger")
    assert ask(server, user(link(host.url("/a.png"))))


@pytest.mark.parametrize("path", ["/silent", "/slow"])
def test_a_host_has_a_time(server, host, path):
    begun = time.monotonic()
    refused(server, host.url(path), "within 5000 ms", host.entry)
    assert time.monotonic() - begun >= 4.9


def test_nobody_fetches_for_a_client_that_left(server, host):
    gone = threading.Event()

    def watch(handler):
        handler.connection.settimeout(30)
        handler.rfile.read(1)  # until the other side closes
        gone.set()

    host.pages["/watch"] = watch
    connection = server.connection()
    connection.connect()
    body = post_body(link(host.url("/watch")))
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    wait_until(lambda: "/watch" in host.seen, "the picture to be asked for")
    connection.close()
    assert gone.wait(4 * PATIENCE), "the transfer goes on"


def test_an_end_does_not_wait_for_a_host(inferd, host, model):
    with trusted(host):
        server = Server(inferd, model, "--allowed-media-hosts", host.entry,
                        "--drain-timeout", "0.5s")
    before = len(host.seen)
    connection = server.connection()
    connection.request("POST", "/v1/chat/completions", post_body(link(host.url("/silent"))),
                       {"Content-Type": "application/json"})
    wait_until(lambda: len(host.seen) > before, "the picture to be asked for")
    assert server.stop() == 0, server.log()
    connection.close()


@pytest.mark.parametrize("entry", ["https://a.example", "a.example/b", "*", "*.example",
                                   "a.example:0", "a.example:65536", "::1", "[::1", "[]"])
def test_entries_that_could_never_match_are_refused(inferd, model, entry):
    server = Server(inferd, model, "--allowed-media-hosts", entry, wait=False)
    assert server.wait_exit(60) != 0
    assert "allowed_media_hosts" in server.log() and entry in server.log(), server.log()
