"""What the store has of one key, and another key that knows every id of it.

An attacker guesses, lists, chains, resumes and references what an honest client has: answers that
have ended and that run, conversations and their items, files, batches, usage. What it gets for an
id of the honest one is what it gets for an id that nobody has, to the byte; nothing of it is
changed; and the same holds right after a kill -9."""

import hashlib
import itertools
import json

import pytest
from conftest import ATTACKER, HONEST
from harness import wait_until

SECRET = "meet-me-at-the-old-mill"
LINES = "/v1/completions"
SHORT = {"max_output_tokens": 4}
LONG = {"max_output_tokens": 20000, "ignore_eos": True, "background": True}
ENDED = ("completed", "incomplete", "failed", "cancelled")
WAYS = ("", "/", "/input_items", "/cancel", "/items", "/content", "?stream=true",
        "?stream=true&starting_after=0", "/input_items?after=x&order=asc", "?include=x")
ROOTS = ("/v1/responses", "/v1/conversations", "/v1/files", "/v1/batches", "/v1/models")


class Client:
    """One key: its requests, whose bodies are JSON."""

    def __init__(self, server, key):
        self.server, self.headers = server, {"Authorization": f"Bearer {key}"}

    def call(self, method, path, body=None, **headers):
        return self.server.request(method, path, body, headers=self.headers | headers)

    def make(self, path, body):
        answer = self.call("POST", path, body)
        assert answer.status == 200, (path, answer)
        return answer.json

    def upload(self, lines):
        data = "".join(json.dumps(line) + "\n" for line in lines)
        form = ('--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
                '--x\r\nContent-Disposition: form-data; name="file"; '
                f'filename="{SECRET}"\r\n\r\n{data}\r\n--x--\r\n')
        answer = self.call("POST", "/v1/files", form,
                           **{"Content-Type": "multipart/form-data; boundary=x"})
        assert answer.status == 200, answer
        return answer.json["id"]

    def batch(self, file, endpoint=LINES):
        return self.make("/v1/batches", {"input_file_id": file, "endpoint": endpoint,
                                         "completion_window": "24h",
                                         "metadata": {"why": SECRET}})["id"]

    def state(self, path):
        return self.call("GET", path).json["status"]


def line(name, url=LINES, **body):
    return {"custom_id": f"{SECRET}-{name}", "method": "POST", "url": url, "body": body}


class Belongings:
    """What the honest client has: ids of what has ended, and of what runs."""

    def __init__(self, honest):
        ask = {"input": SECRET, "metadata": {"why": SECRET}, "instructions": SECRET} | SHORT
        first = honest.make("/v1/responses", ask)["id"]
        late = honest.make("/v1/responses", ask | {"background": True})["id"]
        streamed = self.stream(honest, ask | {"background": True})
        talk = honest.make("/v1/conversations", {"metadata": {"why": SECRET}, "items": [
            {"role": "user", "content": SECRET}]})["id"]
        honest.make("/v1/responses", ask | {"conversation": talk})
        lines = [line("good", prompt=SECRET, max_tokens=4), line("bad", prompt=SECRET, n=-1)]
        file = honest.upload(lines)
        batch = honest.batch(file)
        wait_until(lambda: honest.state(f"/v1/batches/{batch}") == "completed", "the batch", 60)
        for one in (late, streamed):
            wait_until(lambda key=one: honest.state(f"/v1/responses/{key}") in ENDED, "it", 60)
        done = honest.call("GET", f"/v1/batches/{batch}").json
        items = honest.call("GET", f"/v1/conversations/{talk}/items").json["data"]
        asked = honest.call("GET", f"/v1/responses/{first}/input_items").json["data"]
        self.ended = [f"/v1/responses/{one}" for one in (first, late, streamed)] + [
            f"/v1/conversations/{talk}", f"/v1/conversations/{talk}/items",
            f"/v1/responses/{first}/input_items", f"/v1/responses/{streamed}?stream=true",
            f"/v1/batches/{batch}"] + [
            f"/v1/files/{one}{more}" for more in ("", "/content")
            for one in (file, done["output_file_id"], done["error_file_id"])]
        self.talk = talk
        self.runs = [honest.make("/v1/responses", ask | LONG)["id"],
                     self.stream(honest, ask | LONG)]
        self.batch = honest.batch(honest.upload(
            [line(f"{i}", prompt=SECRET, max_tokens=20000, ignore_eos=True) for i in range(4)]))
        self.responses = [first, late, streamed, *self.runs]
        self.files = [file, done["output_file_id"], done["error_file_id"]]
        self.ids = self.responses + self.files + [talk, batch, self.batch] + [
            one["id"] for one in items[:2] + asked[:1]]

    @staticmethod
    def stream(honest, body):
        answer = honest.call("POST", "/v1/responses", body | {"stream": True, **SHORT}
                             if "ignore_eos" not in body else body)
        assert answer.status == 200, answer
        text = answer.body.decode()
        return json.loads(text)["id"] if text[0] == "{" else json.loads(
            text.split("data: ")[1].split("\n")[0])["response"]["id"]

    def seen(self, honest):
        """All of what has ended, as the honest client finds it."""
        return [honest.call("GET", path).body for path in self.ended]


def nobodys(key):
    """An id of the same form that was never given."""
    head, tail = key[:-12], key[-12:]
    return head + "".join("A" if one != "A" else "B" for one in tail)


@pytest.fixture
def places(start, tmp_path):
    """A server with a store, and how to kill it and start it again."""
    flags = ("--store", tmp_path / "answers.db", "--max-model-len", 32768)
    server = start(*flags)

    def again():
        nonlocal server
        server.process.kill()
        server.process.wait()
        server = start(*flags)
        return server

    yield server, again
    assert server.stop() == 0, server.log()


def tries():
    """(what, call of an id) of everything that takes an id."""
    for method, root, way in itertools.product(("GET", "POST", "DELETE"), ROOTS, WAYS):
        body = {} if method == "POST" else None
        yield f"{method} {root}/ID{way}", lambda client, key, m=method, r=root, w=way, b=body: (
            client.call(m, f"{r}/{key}{w}", b))
    for root in ROOTS[:4]:
        yield f"list {root}", lambda client, key, r=root: client.call(
            "GET", f"{r}?after={key}&limit=100&order=asc")
    ask = {"input": "what was said?"} | SHORT
    for name, fields in [
            ("previous", lambda key: {"previous_response_id": key}),
            ("conversation", lambda key: {"conversation": key}),
            ("conversation object", lambda key: {"conversation": {"id": key}}),
            ("reference", lambda key: {"input": [{"type": "item_reference", "id": key}]}),
            ("file", lambda key: {"input": [{"role": "user", "content": [
                {"type": "input_file", "file_id": key}]}]}),
            ("late", lambda key: {"previous_response_id": key, "background": True}),
            ("stream", lambda key: {"previous_response_id": key, "stream": True})]:
        for path in ("/v1/responses", "/v1/responses/input_tokens"):
            yield f"{path} {name}", lambda client, key, p=path, f=fields: client.call(
                "POST", p, ask | f(key))
    yield "a batch", lambda client, key: client.call(
        "POST", "/v1/batches", {"input_file_id": key, "endpoint": LINES,
                                "completion_window": "24h"})
    yield "an item", lambda client, key: client.call(
        "POST", f"/v1/conversations/{key}/items", {"items": [{"role": "user", "content": "x"}]})


def attack(attacker, owned, ids):
    """Every try with every id has the answer of an id that is nobody's."""
    own = attacker.make("/v1/conversations", {})["id"]
    for key in ids:
        for what, call in tries():
            got, expected = call(attacker, key), call(attacker, nobodys(key))
            assert got.status == expected.status and got.status != 500, (what, key, got, expected)
            assert SECRET.encode() not in got.body, (what, got)
            assert (got.body.replace(key.encode(), b"ID")
                    == expected.body.replace(nobodys(key).encode(), b"ID")), (what, got, expected)
        for where, item in ((own, key), (owned.talk, key), (key, owned.ids[-1])):
            for method in ("GET", "DELETE"):
                got = attacker.call(method, f"/v1/conversations/{where}/items/{item}")
                assert got.status == 404 and SECRET.encode() not in got.body, got
    for root in ("/v1/files", "/v1/batches"):
        assert attacker.call("GET", root).json["data"] == []


def lines_that_chain(attacker, owned):
    """A batch of the attacker whose lines name what is not its own."""
    ask = {"input": "what was said?"} | SHORT
    file = attacker.upload(
        [line(f"p{i}", "/v1/responses", **ask, previous_response_id=key)
         for i, key in enumerate(owned.responses)]
        + [line("talk", "/v1/responses", **ask, conversation=owned.talk)])
    batch = attacker.batch(file, "/v1/responses")
    wait_until(lambda: attacker.state(f"/v1/batches/{batch}") == "completed", "the lines", 60)
    done = attacker.call("GET", f"/v1/batches/{batch}").json
    assert done["output_file_id"] is None and done["request_counts"]["failed"] == len(
        owned.responses) + 1
    for one in (file, done["error_file_id"]):
        assert attacker.call("DELETE", f"/v1/files/{one}").status == 200
    return done


def test_whoever_knows_all_ids_has_nothing_of_them(places):
    server, again = places
    honest, attacker = Client(server, HONEST), Client(server, ATTACKER)
    owned = Belongings(honest)
    seen = owned.seen(honest)
    assert all(SECRET.encode() in body for body in seen[:4]), seen
    for killed in (False, True):
        if killed:
            honest.server = attacker.server = again()
        attack(attacker, owned, owned.runs + [owned.talk, owned.batch] if killed else owned.ids)
        assert owned.seen(honest) == seen
        for one in owned.runs:
            assert honest.state(f"/v1/responses/{one}") in ("queued", "in_progress")
        assert honest.state(f"/v1/batches/{owned.batch}") == "in_progress"
    for one in owned.runs:
        assert honest.call("POST", f"/v1/responses/{one}/cancel", {}).status == 200
    assert honest.call("POST", f"/v1/batches/{owned.batch}/cancel", {}).status == 200
    lines_that_chain(attacker, owned)
    assert owned.seen(honest) == seen
    whose = hashlib.sha256(HONEST.encode()).hexdigest()
    for query in ("", "&api_key_ids=" + whose[:8], "&api_key_ids=" + whose[:16],
                  "&api_key_ids=" + whose, "&api_key_ids=honest", "&api_key_ids=*"):
        used = attacker.call("GET", f"/v1/usage?group_by=api_key_id,model{query}")
        names = {row["api_key_name"] for day in used.json["data"] for row in day["results"]}
        assert names <= {"attacker"} and whose[:8].encode() not in used.body, used


def test_no_key_and_no_form_of_a_key_is_another(places):
    server, _ = places
    kept = Client(server, HONEST).make("/v1/responses", {"input": SECRET} | SHORT)["id"]
    path = f"/v1/responses/{kept}"
    for header in (None, "Bearer", "Bearer ", f"Bearer {HONEST[:-1]}", f"Bearer {HONEST}x",
                   f"Bearer {HONEST.upper()}", f"Bearer {ATTACKER},{HONEST}", f"Basic {HONEST}",
                   f"Bearer {ATTACKER} {HONEST}", HONEST):
        answer = server.request("GET", path, headers={"Authorization": header})
        assert answer.status in (400, 401) and SECRET.encode() not in answer.body, (header, answer)
    assert Client(server, HONEST).call("GET", path).status == 200


def test_what_another_key_has_computed_is_not_told(places):
    """Neither by tokens from the cache, nor by the ids that are drawn."""
    server, _ = places
    honest, attacker = Client(server, HONEST), Client(server, ATTACKER)
    ask = {"input": f"{SECRET} " * 40} | SHORT
    first = honest.make("/v1/responses", ask)
    twice = honest.make("/v1/responses", ask)
    theirs = attacker.make("/v1/responses", ask)
    assert twice["usage"]["input_tokens_details"]["cached_tokens"] > 0
    assert theirs["usage"]["input_tokens_details"]["cached_tokens"] == 0
    chosen = {"X-Request-Id": first["id"].removeprefix("resp_")}
    taken = attacker.call("POST", "/v1/responses", ask, **chosen).json["id"]
    assert taken != first["id"]
    assert honest.call("GET", f"/v1/responses/{first['id']}").json == first
