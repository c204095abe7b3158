"""Several choices of one prompt: n, best_of, beam search, plain and streamed, in both APIs."""

import pytest

from harness import DEMO, Stream

P = "Once upon a time"
CHAT = "/v1/chat/completions"


def texts(answer):
    assert [c["index"] for c in answer["choices"]] == list(range(len(answer["choices"])))
    return [c["text"] for c in answer["choices"]]


def mean(choice):
    values = choice["logprobs"]["token_logprobs"]
    return sum(values) / len(values)


def test_n_choices(server):
    answer = server.complete(P, n=4, max_tokens=12, seed=5, temperature=1)
    assert len(set(texts(answer))) > 1, "they differ"
    assert answer["usage"]["prompt_tokens"] == len(server.tokens(P))
    assert answer["usage"]["completion_tokens"] <= 4 * 12
    again = server.complete(P, n=4, max_tokens=12, seed=5, temperature=1)
    assert texts(again) == texts(answer)
    assert texts(server.complete(P, n=1, max_tokens=12, seed=5, temperature=1)) == texts(answer)[:1]


def test_greedy_choices_are_equal(server):
    assert len(set(texts(server.complete(P, n=3, max_tokens=8, temperature=0)))) == 1


def test_more_choices_than_places_run_one_after_the_other(start):
    server = start(DEMO, "--max-num-seqs", 2)
    body = {"prompt": P, "max_tokens": 4, "temperature": 1, "seed": 3, "ignore_eos": True}
    three = server.post("/v1/completions", {**body, "n": 3})
    assert three.status == 200 and three.json["usage"]["completion_tokens"] == 12, three
    wide = start(DEMO, "--max-num-seqs", 8).post("/v1/completions", {**body, "n": 3})
    assert texts(three.json) == texts(wide.json), "the places change no choice"
    assert server.post("/v1/completions", {**body, "n": 2, "best_of": 3}).status == 200


@pytest.mark.parametrize("fields,param", [
    ({"n": 3, "use_beam_search": True}, "n"),
    ({"n": 1, "best_of": 3, "use_beam_search": True}, "best_of")])
def test_more_beams_than_run_at_once(start, fields, param):
    """Refused by the field that the client sent, with both numbers."""
    server = start(DEMO, "--max-num-seqs", 2)
    answer = server.post("/v1/completions", {"prompt": P, "max_tokens": 2, **fields})
    assert answer.status == 400 and answer.error["param"] == param, answer
    assert answer.error["message"] == (
        f"{param} asks for 3 beams at once; this server runs at most 2.")


@pytest.mark.parametrize("n, flags", [(1, ()), (2, ()), (5, ()), (2, ("--max-model-len", 100))])
def test_chat_without_max_tokens_fills_the_cache_or_the_context(start, n, flags):
    """A choice alone has to fit: those that do not fit beside it run later."""
    server = start(DEMO, "--num-blocks", 20, "--block-size", 16, *flags)
    body = {"messages": [{"role": "user", "content": "Tell me of a river and a hill"}], "n": n,
            "ignore_eos": True}
    answer = server.post(CHAT, body)
    assert answer.status == 200, answer
    prompt = answer.json["usage"]["prompt_tokens"]
    each = min(19 * 16, server.max_model_len()) - prompt
    assert each > 0 and answer.json["usage"]["completion_tokens"] == n * each
    assert [c["finish_reason"] for c in answer.json["choices"]] == ["length"] * n
    more = server.post(CHAT, {**body, "max_tokens": each + 1})
    assert (more.status, more.error["code"]) == (400, "context_length_exceeded"), "that is the most"


def test_completions_without_max_tokens_get_what_the_cache_holds(start):
    server = start(DEMO, "--num-blocks", 4, "--block-size", 16)
    beams = {"n": 3, "use_beam_search": True, "temperature": 0, "ignore_eos": True}
    answer = server.complete(P, **beams)
    length = answer["usage"]["prompt_tokens"]
    assert 0 < length < 16 and answer["usage"]["completion_tokens"] == 3 * (16 - length)
    for n in 1, 4:  # choices need not fit beside each other
        assert server.complete(P, n=n, ignore_eos=True)["usage"]["completion_tokens"] == 16 * n
    answer = server.post("/v1/completions", {"prompt": P, **beams, "n": 4})
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")
    assert "this server has 3" in answer.error["message"]


def test_prompts_times_n(server):
    answer = server.complete([P, "The"], n=3, max_tokens=6, seed=1)
    alone = [server.complete(prompt, n=3, max_tokens=6, seed=1) for prompt in (P, "The")]
    assert texts(answer) == [text for one in alone for text in texts(one)]


def test_streamed_choices(server):
    fields = {"prompt": P, "n": 3, "max_tokens": 10, "seed": 7, "temperature": 1}
    stream = Stream(server, {**fields, "stream_options": {"include_usage": True}})
    parts, reasons, usage = {}, {}, None
    for chunk in stream.chunks():
        usage = chunk["usage"] or usage
        for choice in chunk["choices"]:
            assert choice["index"] not in reasons, "nothing follows the end of a choice"
            parts[choice["index"]] = parts.get(choice["index"], "") + choice["text"]
            if choice["finish_reason"]:
                reasons[choice["index"]] = choice["finish_reason"]
    plain = server.post("/v1/completions", fields).json
    assert [parts[i] for i in range(3)] == texts(plain)
    assert [reasons[i] for i in range(3)] == [c["finish_reason"] for c in plain["choices"]]
    assert usage["completion_tokens"] == plain["usage"]["completion_tokens"]


def test_echo_and_scores_of_every_choice(server):
    answer = server.complete(P, n=2, max_tokens=3, echo=True, logprobs=1, seed=2, temperature=1)
    prompt = len(server.tokens(P))
    for choice in answer["choices"]:
        assert choice["text"].startswith(P)
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert len(choice["logprobs"]["tokens"]) > prompt
    first, second = (c["logprobs"]["token_logprobs"][:prompt] for c in answer["choices"])
    assert first == second


def test_best_of_returns_the_best(server):
    fields = {"max_tokens": 8, "seed": 3, "temperature": 1.2, "logprobs": 0}
    everybody = server.complete(P, n=6, **fields)["choices"]
    best = server.complete(P, n=2, best_of=6, **fields)
    ranked = sorted(everybody, key=mean, reverse=True)
    assert texts(best) == [c["text"] for c in ranked[:2]]
    assert mean(best["choices"][0]) >= mean(best["choices"][1])
    total = sum(len(c["logprobs"]["tokens"]) for c in best["choices"])
    assert best["usage"]["completion_tokens"] == total, "returned choices only"


def test_beams(server):
    fields = {"max_tokens": 8, "logprobs": 0, "use_beam_search": True}
    greedy = server.complete(P, max_tokens=8, temperature=0, logprobs=0)["choices"][0]
    beams = server.complete(P, n=2, best_of=4, **fields)["choices"]
    assert len(beams) == 2 and beams[0]["text"] != beams[1]["text"]
    one = server.complete(P, n=1, best_of=1, **fields)["choices"][0]
    assert one["text"] == greedy["text"], "a beam of one is greedy"
    assert mean(beams[0]) >= mean(beams[1])


@pytest.mark.parametrize("fields, param", [
    ({"n": 2, "best_of": 1}, "best_of"), ({"best_of": 3, "stream": True}, "best_of"),
    ({"n": 129}, "n"), ({"use_beam_search": True, "n": 21}, "n"),
    ({"use_beam_search": True, "stream": True}, "stream"),
    ({"use_beam_search": True, "temperature": 0.5}, "temperature"),
    ({"use_beam_search": True, "guided_regex": "a"}, "use_beam_search"),
])
def test_what_is_refused(server, fields, param):
    answer = server.post("/v1/completions", {"prompt": P, **fields})
    assert (answer.status, answer.error["param"]) == (400, param)


def test_chat(server):
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "n": 3, "seed": 4,
            "max_tokens": 10, "temperature": 1}
    plain = server.post(CHAT, body).json
    said = [c["message"]["content"] for c in plain["choices"]]
    assert len(said) == 3 and len(set(said)) > 1
    parts = ["", "", ""]
    for chunk in Stream(server, body, path=CHAT).chunks():
        for choice in chunk["choices"]:
            parts[choice["index"]] += choice["delta"].get("content", "")
    assert parts == said
    best = server.post(CHAT, {**body, "n": 1, "best_of": 3}).json
    assert best["choices"][0]["message"]["content"] in said


def test_constrained_choices(server):
    answer = server.complete("A number: ", n=4, guided_regex="[0-9]{4}", max_tokens=20, seed=1,
                             temperature=2)
    assert all(len(text) == 4 and text.isdigit() for text in texts(answer))
    assert len(set(texts(answer))) > 1
    best = server.complete("A number: ", n=1, best_of=4, guided_regex="[0-9]{4}", max_tokens=20,
                           seed=1, temperature=2)
    assert texts(best)[0] in texts(answer)


def test_a_client_that_leaves_its_choices(server):
    stream = Stream(server, {"prompt": P, "n": 4, "max_tokens": 1500, "ignore_eos": True})
    for _ in zip(range(8), stream.events()):
        pass
    stream.close()  # the fixture waits until nothing of it is left in the engine
