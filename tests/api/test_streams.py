"""Streaming: the frames, and that the chunks add up to the plain answer."""

import json
import shutil
import subprocess

import pytest

from harness import Background, Stream, wait_until

P = "Once upon a time"


def join(chunks, index=0):
    return "".join(c["choices"][0]["text"] for c in chunks
                   if c["choices"] and c["choices"][0]["index"] == index)


def test_frames(server):
    stream = Stream(server, {"prompt": P, "max_tokens": 12, "ignore_eos": True},
                    {"X-Request-Id": "frames"})
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["cache-control"] == "no-cache"
    assert stream.headers["x-accel-buffering"] == "no"
    chunks = stream.chunks()
    assert stream.done and len(chunks) == 12
    for chunk in chunks:
        assert {"id", "object", "created", "model", "choices"} <= set(chunk)
        assert "usage" not in chunk
        assert chunk["id"] == "cmpl-frames" and chunk["object"] == "text_completion"
        choice = chunk["choices"][0]
        assert {"index", "text", "logprobs", "finish_reason", "stop_reason"} <= set(choice)
    reasons = [c["choices"][0]["finish_reason"] for c in chunks]
    assert reasons == [None] * 11 + ["length"]


FIELDS = [
    {"temperature": 0},
    {"temperature": 1.2, "seed": 3, "logprobs": 2},
    {"temperature": 0, "stop": [" the", "."], "max_tokens": 60},
    {"temperature": 1.9, "seed": 8, "ignore_eos": True, "max_tokens": 80},
    {"temperature": 0, "echo": True, "logprobs": 1, "max_tokens": 10},
    {"temperature": 0, "max_tokens": 300},
    {"temperature": 0, "return_token_ids": True, "stream_interval": 4},
    {"temperature": 2, "seed": 1, "top_k": 0, "skip_special_tokens": False, "ignore_eos": True,
     "max_tokens": 60},
]


@pytest.mark.parametrize("fields", FIELDS, ids=range(len(FIELDS)))
def test_stream_equals_plain(server, fields):
    """Concatenated text, logprobs and ids of the chunks, byte for byte."""
    body = {"prompt": P, "max_tokens": 30, **fields}
    plain = server.choice(**body)
    chunks = Stream(server, body).chunks()
    assert join(chunks) == plain["text"]
    last = [c["choices"][0] for c in chunks if c["choices"][0]["finish_reason"]]
    assert len(last) == 1
    assert last[0]["finish_reason"] == plain["finish_reason"]
    assert last[0]["stop_reason"] == plain["stop_reason"]
    if plain["logprobs"]:
        joined = {key: [] for key in plain["logprobs"]}
        for chunk in chunks:
            for key, values in (chunk["choices"][0]["logprobs"] or {}).items():
                joined[key] += values
        assert joined == plain["logprobs"]
    if fields.get("return_token_ids"):
        ids = [i for c in chunks for i in c["choices"][0]["token_ids"] or []]
        assert ids == plain["token_ids"]
        assert chunks[0]["choices"][0]["prompt_token_ids"] == plain["prompt_token_ids"]


def test_usage_chunk(server):
    body = {"prompt": P, "max_tokens": 8, "ignore_eos": True}
    chunks = Stream(server, {**body, "stream_options": {"include_usage": True}}).chunks()
    assert [c["usage"] for c in chunks[:-1]] == [None] * 8
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 8
    assert chunks[-1]["system_fingerprint"].startswith("inferd-")
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = Stream(server, {**body, "stream_options": options}).chunks()
    assert [c["usage"]["completion_tokens"] for c in chunks] == [*range(1, 9), 8]
    none = {"include_usage": False, "continuous_usage_stats": True}
    assert not any("usage" in c for c in Stream(server, {**body, "stream_options": none}).chunks())
    cached = {c["usage"]["prompt_tokens_details"]["cached_tokens"] for c in chunks}
    assert cached == {len(server.tokens(P)) - 1}, "true from the first frame on: the third request"
    assert {c["system_fingerprint"] for c in chunks} == {chunks[0]["system_fingerprint"]}


def test_stream_interval(server):
    body = {"prompt": P, "max_tokens": 30, "ignore_eos": True, "temperature": 0}
    every = Stream(server, body).chunks()
    seldom = Stream(server, {**body, "stream_interval": 10}).chunks()
    assert len(every) == 30 and len(seldom) < 10
    assert join(every) == join(seldom)


def test_batch_stream(server):
    """Several prompts in one stream: one choice a chunk, each ends once, texts as if alone."""
    prompts = [P, "The dog", "A girl", "One day"]
    body = {"prompt": prompts, "max_tokens": 20, "temperature": 0}
    chunks = Stream(server, body).chunks()
    for index, prompt in enumerate(prompts):
        assert join(chunks, index) == server.choice(prompt, max_tokens=20, temperature=0)["text"]
        ends = [c for c in chunks if c["choices"][0]["index"] == index
                and c["choices"][0]["finish_reason"]]
        assert len(ends) == 1


def test_broken_characters_never_leave(server):
    """Sampled at a temperature where byte tokens appear: every chunk is whole UTF-8 by itself, and
    the joined text is the plain one."""
    for seed in range(5):
        body = {"prompt": "\u00e9\u4f60", "max_tokens": 60, "temperature": 2, "seed": seed,
                "ignore_eos": True}
        chunks = Stream(server, body).chunks()
        assert join(chunks) == server.choice(**body)["text"]


def test_error_before_the_stream_is_a_status(server):
    stream = Stream(server, {"prompt": P, "logprobs": 21})
    assert stream.status == 400
    assert json.loads(stream.response.read())["error"]["param"] == "logprobs"


def test_curl(server):
    """The line that `make run` prints, and its streaming form."""
    assert shutil.which("curl")
    url = f"http://{server.host}:{server.port}/v1/completions"
    command = ["curl", "-sS", url, "-H", "Content-Type: application/json", "-d",
               json.dumps({"prompt": P, "max_tokens": 16})]
    answer = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert answer["choices"][0]["text"]
    command = ["curl", "-N", "-sS", url, "-H", "Content-Type: application/json", "-d",
               json.dumps({"prompt": P, "max_tokens": 16, "stream": True, "ignore_eos": True})]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    assert out.endswith("data: [DONE]\n\n") and out.count("data: {") == 16


def test_sixty_four_streams(server):
    """All finish, with the text each has alone."""
    bodies = [{"prompt": f"{P} there was a {w}", "max_tokens": 40, "ignore_eos": True,
               "temperature": 0.9, "seed": i}
              for i, w in enumerate(["cat", "dog", "king", "fish"] * 16)]
    streams = [Background(server, body) for body in bodies]
    for stream in streams:
        stream.join()
        assert stream.failure is None, stream.failure
        assert len(stream.chunks_seen) == 40 and stream.finish_reasons() == ["length"]
    for index in (0, 17, 63):
        assert streams[index].text() == server.choice(**bodies[index])["text"]


def test_killing_half_frees_their_blocks(server):
    """32 of 64 streams vanish mid-way; the other 32 finish whole."""
    length = 300
    aborted = server.metric("inferd_aborted_total", cause="disconnect")
    longest = server.max_model_len() - 256  # those that will vanish cannot be through before
    streams = [Stream(server, {"prompt": P, "max_tokens": length if i % 2 else longest,
                               "ignore_eos": True}) for i in range(64)]
    for stream in streams:
        assert stream.status == 200
        next(stream.events())
    assert server.metric("inferd_kv_blocks", state="used") >= 32
    for stream in streams[::2]:
        stream.close()
    wait_until(lambda: server.metric("inferd_aborted_total", cause="disconnect") >= aborted + 32,
               "32 requests to be aborted", context=server.usage)
    for stream in streams[1::2]:
        assert len(stream.chunks()) == length - 1
    wait_until(server.idle, "0 blocks used", context=server.usage)


def test_prompt_larger_than_a_buffer(server):
    """A stream whose first chunk echoes a long prompt."""
    prompt = "The cat sat on the mat. " * (server.max_model_len() // 16)
    chunks = Stream(server, {"prompt": prompt, "max_tokens": 3, "echo": True,
                             "ignore_eos": True}).chunks()
    assert join(chunks).startswith(prompt) and len(chunks) == 3
