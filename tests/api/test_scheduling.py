"""What one request may do to the others: long prompts, full queues, clients that vanish.

These use random-weight models whose size is chosen so that a step takes milliseconds, long enough
to act between two steps; expectations are counts of steps, never seconds."""

import json
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import PATIENCE, Background, Stream, dummy_model, http_post, wait_until

WORDS = "one two three four five six seven eight nine ten"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return dummy_model(tmp_path_factory.mktemp("model") / "dummy")


def dummy(start, model, *flags, **options):
    return start(model, "--load-format", "dummy", "--seed", "7", "--served-model-name", "dummy",
                 *flags, **options)


def long_prompt(server, length):
    ids = server.tokens(WORDS, add_special_tokens=False)
    return (ids * (length // len(ids) + 1))[:length]


def steps_and_tokens(server):
    """Steps that have run and tokens that they made, of one page of metrics."""
    names = ("inferd_iteration_tokens_count", "inferd_generation_tokens_total")
    page = server.metrics(*names)
    return [sum(value for (name, _), value in page.items() if name == each) for each in names]


def test_long_prompt_does_not_stop_the_streams(start, model):
    """4,000 tokens in chunks of 256 beside 16 decoding streams: while the prompt is computed, every
    stream gets a token with every chunk. The server stands still when the prompt is through, so
    that what the clients have by then is what it had sent."""
    server = dummy(start, model, "--max-num-batched-tokens", "256", "--max-num-seqs", "32")
    streams = [Background(server, {"prompt": f"stream {i}", "max_tokens": 2000, "seed": i,
                                   "ignore_eos": True}) for i in range(16)]
    for stream in streams:
        assert stream.started.wait(60 * PATIENCE) and stream.failure is None, stream.failure
    prompt, chunks = long_prompt(server, 4000), -(-4000 // (256 - 16))
    steps, tokens = steps_and_tokens(server)
    before = [len(s.times) for s in streams]
    timed = Stream(server, {"prompt": prompt, "max_tokens": 1})
    assert next(timed.events())
    server.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: min(len(s.times) - n for s, n in zip(streams, before)) >= chunks - 2,
               f"{chunks - 2} tokens of each stream", 60,
               lambda: [len(s.times) - n for s, n in zip(streams, before)])
    server.process.send_signal(signal.SIGCONT)
    now_steps, now_tokens = steps_and_tokens(server)
    assert now_steps - steps >= chunks
    # A stream gets at most one token in a step: so many are one for each in all but a few steps.
    assert now_tokens - tokens >= 16 * (now_steps - steps - 2), (now_steps - steps,
                                                                 now_tokens - tokens)
    for stream in streams:
        stream.stream.close()
        stream.join()


def test_killed_client_in_mid_prefill(start, slow_model):
    """A non-stream client dies by SIGKILL while its prompt is computed: noticed, blocks free."""
    server = dummy(start, slow_model, "--max-num-batched-tokens", "32")
    body = json.dumps({"prompt": long_prompt(server, 8000), "max_tokens": 100, "ignore_eos": True})
    curl = subprocess.Popen(["curl", "-sS", f"http://{server.host}:{server.port}/v1/completions",
                             "-H", "Content-Type: application/json", "-d", "@-"],
                            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    curl.stdin.write(body.encode())
    curl.stdin.close()
    wait_until(lambda: server.metric("inferd_kv_blocks", state="used") > 4, "the prefill to run")
    generated = server.metric("inferd_generation_tokens_total")
    curl.kill()
    curl.wait()
    wait_until(server.idle, "the killed client's blocks to be free", context=server.usage)
    assert server.metric("inferd_aborted_total", cause="disconnect") == 1
    assert server.metric("inferd_generation_tokens_total") == generated


def test_killed_client_in_the_queue(start, slow_model):
    server = dummy(start, slow_model, "--max-num-seqs", "1")
    first = Stream(server, {"prompt": "a", "max_tokens": 8000, "ignore_eos": True})
    next(first.events())
    waiting = Background(server, {"prompt": "b", "max_tokens": 4})
    wait_until(lambda: server.metric("inferd_requests_waiting") == 1, "one to wait")
    raw = server.socket()
    body = json.dumps({"prompt": "c", "max_tokens": 4}).encode()
    raw.sendall(http_post("/v1/completions", body))
    wait_until(lambda: server.metric("inferd_requests_waiting") == 2, "two to wait")
    raw.close()
    wait_until(lambda: server.metric("inferd_requests_waiting") == 1, "the dead one to leave")
    first.close()
    waiting.join()
    assert waiting.failure is None and waiting.finish_reasons()


def test_queue_full(start, slow_model):
    """One runs, two wait, the fourth is told to come back; all prompts of a request or none."""
    server = dummy(start, slow_model, "--max-num-seqs", "1", "--max-queue-requests", "2")
    running = Stream(server, {"prompt": "a", "max_tokens": 8000, "ignore_eos": True})
    next(running.events())
    waiting = [Background(server, {"prompt": "b", "max_tokens": 2}) for _ in range(2)]
    wait_until(lambda: server.metric("inferd_requests_waiting") == 2, "two to wait")
    for fields in ({}, {"stream": True}):
        answer = server.post("/v1/completions", {"prompt": "c", "max_tokens": 2, **fields})
        assert answer.status == 429, answer
        assert answer.error["code"] == "queue_full"
        assert answer.error["type"] == "rate_limit_error"
        assert 1 <= int(answer.headers["retry-after"]) <= 120
        assert int(answer.headers["retry-after-ms"]) > 0
    assert server.get("/livez").status == 200
    assert server.metric("inferd_rejected_total", reason="queue_full") == 2
    running.close()
    for stream in waiting:
        assert stream.join().failure is None
    answer = server.post("/v1/completions", {"prompt": ["d"] * 4, "max_tokens": 2})
    assert answer.status == 429, "four prompts cannot wait in a queue of two"
    assert server.choice("e", max_tokens=1)


def wait_for(server, count):
    def waiting():
        return server.metric("inferd_requests_waiting")
    wait_until(lambda: waiting() == count, f"{count} to wait", context=waiting)


def ask_as_a(server, prompts, answers):
    body = {"prompt": ["x"] * prompts, "max_tokens": 1}
    answers.append(server.post("/v1/completions", body, headers={"Authorization": "Bearer a"}))


def test_a_flood_of_one_key_refuses_no_other(start, slow_model):
    """Key a fills all 1,024 places of the queue, and again what is free. Requests of key b take
    places of a, whose newest requests get the 429, each with all its prompts."""
    server = dummy(start, slow_model, "--api-key", "a", "--api-key", "b", "--max-num-seqs", "32",
                   "--max-queue-requests", "1024", "--max-queue-time", "0", key="b")
    running = [Stream(server, {"prompt": "w", "n": 16, "max_tokens": 8000, "ignore_eos": True},
                      headers={"Authorization": f"Bearer {key}"}) for key in "ab"]
    for stream in running:  # each runs as many as its share is, so whatever comes now waits
        next(stream.events())
    answers, honest, flood = [], [], []
    for prompts, connections, full, then in ((128, 8, 1024, 916), (8, 12, 1012, 1024)):
        for _ in range(connections):
            flood.append(threading.Thread(target=ask_as_a, args=(server, prompts, answers)))
            flood[-1].start()
        wait_for(server, full)
        refused = []
        ask_as_a(server, 128, refused)
        assert refused[0].status == 429, "a has most of what waits"
        honest += [Background(server, {"prompt": "y", "max_tokens": 1}) for _ in range(20)]
        wait_for(server, then)
    for stream in running:
        stream.close()
    for request in honest:
        assert request.join().failure is None, request.failure
    for thread in flood:
        thread.join(120)
    made_room = [a for a in answers if a.status == 429]
    assert len(made_room) == 2 == server.metric("inferd_aborted_total", cause="queue_full")
    for answer in made_room:
        assert "made room" in answer.error["message"] and "retry-after" in answer.headers
    choices = [len(a.json["choices"]) for a in answers if a.status == 200]
    assert sorted(choices) == [8] * 11 + [128] * 7


def test_connections_share_the_queue_without_keys(start, slow_model):
    """On loopback a connection is a client: four prompts of one leave no place, until another
    connection asks for one."""
    server = dummy(start, slow_model, "--max-num-seqs", "1", "--max-queue-requests", "4")
    running = Stream(server, {"prompt": "a", "max_tokens": 8000, "ignore_eos": True})
    events = running.events()
    next(events)
    many = Background(server, {"prompt": ["b"] * 4, "max_tokens": 2})
    wait_until(lambda: server.metric("inferd_requests_waiting") == 4, "four to wait")
    one = Background(server, {"prompt": "c", "max_tokens": 2})
    many.join()
    assert "made room" in str(many.failure) and "queue_full" in str(many.failure), many.failure
    next(events)
    running.close()
    assert one.join().failure is None


def test_queue_time(start, slow_model):
    server = dummy(start, slow_model, "--max-num-seqs", "1", "--max-queue-time", "4s")
    for fields in ({}, {"stream": True}):
        running = Stream(server, {"prompt": "a", "max_tokens": 8000, "ignore_eos": True})
        events = running.events()
        next(events)
        answer = server.post("/v1/completions", {"prompt": "b", "max_tokens": 2, **fields})
        assert (answer.status, answer.error["code"]) == (429, "queue_timeout"), answer
        assert "retry-after" in answer.headers
        next(events)
        running.close()
        wait_until(server.idle, "the running one to leave", context=server.usage)


def test_small_pool_preempts_and_all_finish(start, model):
    """Eight growing sequences in a pool for about three: preempted by recompute, same tokens."""
    bodies = [{"prompt": f"number {i}", "max_tokens": 150, "ignore_eos": True, "temperature": 1,
               "seed": i} for i in range(8)]
    roomy = dummy(start, model)
    expected = [roomy.choice(**body)["text"] for body in bodies]
    server = dummy(start, model, "--num-blocks", "32")
    streams = [Background(server, body) for body in bodies]
    texts = [s.join().text() for s in streams]
    assert [s.failure for s in streams] == [None] * 8
    assert server.metric("inferd_preemptions_total") > 0
    assert texts == expected
    assert max(len(s.chunks_seen) for s in streams) == 150


def test_prompt_that_never_fits_is_refused(start, model):
    """The pool is smaller than the context: told so at the door, not stuck in the queue."""
    server = dummy(start, model, "--num-blocks", "16")
    length = server.max_model_len()
    body = {"prompt": long_prompt(server, length), "max_tokens": 1}
    answer = server.post("/v1/completions", body)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert server.choice("a", max_tokens=2, ignore_eos=True)["text"] is not None


def order_of(server, running, waiting):
    """The names of requests in the order of their ends. They come one by one while another runs,
    which is left when all wait."""
    with ThreadPoolExecutor(len(waiting)) as pool:
        asked = []
        for name, fields in waiting.items():
            asked.append(pool.submit(server.post, "/v1/completions",
                                     {"max_tokens": 8, "ignore_eos": True, **fields},
                                     headers={"X-Request-Id": name.replace(" ", "_")}))
            wait_until(lambda: server.metric("inferd_requests_waiting") == len(asked), "one more")
        running.close()
        assert [answer.result().status for answer in asked] == [200] * len(asked)
    names = {name.replace(" ", "_"): name for name in waiting}
    wait_until(lambda: len(server.ended(names)) == len(names), "their lines", context=server.log)
    return [names[name] for name in server.ended(names)]


@pytest.mark.parametrize("policy, expected", [("slo", ["short", "long"]),
                                              ("fair", ["long", "short"])])
def test_short_prompts_go_first_under_slo(start, slow_model, policy, expected):
    """While one request has the only place, a long prompt comes and then a short one."""
    server = dummy(start, slow_model, "--max-num-seqs", "1", "--scheduling-policy", policy,
                   "--no-enable-prefix-caching")
    # the order is made of costs that are learned from the first steps
    server.complete(long_prompt(server, 150), max_tokens=20, ignore_eos=True)
    running = Stream(server, {"prompt": "a", "max_tokens": 1000, "ignore_eos": True})
    next(running.events())
    assert order_of(server, running, {"long": {"prompt": long_prompt(server, 300)},
                                      "short": {"prompt": long_prompt(server, 4)}}) == expected


def test_priority(start, slow_model):
    """Under the priority policy the lower number runs first, whatever came first."""
    server = dummy(start, slow_model, "--max-num-seqs", "1", "--scheduling-policy", "priority")
    running = Stream(server, {"prompt": "a", "max_tokens": 1000, "ignore_eos": True,
                              "priority": -5})
    next(running.events())
    assert order_of(server, running, {f"of {priority}": {"prompt": "b", "priority": priority}
                                      for priority in (5, 0, -3)}) == ["of -3", "of 0", "of 5"]


def test_answers_do_not_depend_on_settings(start, model):
    """Bit for bit: chunk size, block size, threads, prefix cache, chunked or not."""
    bodies = [{"prompt": f"{WORDS} " * (3 + 7 * i), "max_tokens": 30, "temperature": 1, "seed": i,
               "logprobs": 3, "ignore_eos": True} for i in range(6)]
    settings = [(), ("--max-num-batched-tokens", "64"), ("--threads", "1"), ("--threads", "2"),
                ("--threads", "3"), ("--block-size", "32"),
                ("--no-enable-prefix-caching",), ("--max-num-seqs", "2")]
    answers = []
    for flags in settings:
        server = dummy(start, model, *flags)
        streams = [Background(server, body) for body in bodies]
        for stream in streams:
            assert stream.join().failure is None, stream.failure
        answers.append([[c["choices"] for c in s.chunks_seen] for s in streams])
        server.stop()
    for flags, answer in zip(settings[1:], answers[1:]):
        assert answer == answers[0], flags
