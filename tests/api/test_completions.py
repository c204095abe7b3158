"""What the fields of /v1/completions do, on the demo model, greedy unless said otherwise."""

import json

import pytest

from harness import DEMO, dummy_model

P = "Once upon a time"


def greedy(server, prompt=P, **fields):
    return server.choice(prompt, **{"max_tokens": 24, "temperature": 0, "return_token_ids": True,
                                    **fields})


def test_shape(server):
    answer = server.post("/v1/completions", {"prompt": P, "max_tokens": 4}, headers={
        "X-Request-Id": "shape-1"})
    body = answer.json
    assert set(body) == {"id", "object", "created", "model", "choices", "service_tier",
                         "system_fingerprint", "usage", "kv_transfer_params"}
    assert body["id"] == "cmpl-shape-1" and body["object"] == "text_completion"
    assert body["model"] == "demo" and body["service_tier"] is None
    assert body["system_fingerprint"].startswith("inferd-")
    assert set(body["choices"][0]) == {"index", "text", "logprobs", "finish_reason", "stop_reason",
                                       "token_ids", "prompt_logprobs", "prompt_token_ids"}
    usage = body["usage"]
    assert usage["prompt_tokens"] == len(server.tokens(P))
    assert usage["completion_tokens"] == 4
    assert usage["total_tokens"] == usage["prompt_tokens"] + 4
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0
    assert answer.headers["openai-version"] == "2020-10-01"
    assert int(answer.headers["openai-processing-ms"]) >= 0
    assert answer.headers["content-type"] == "application/json"


def test_default_is_sixteen_tokens(server):
    body = server.complete(P, ignore_eos=True)
    assert body["usage"]["completion_tokens"] == 16
    assert body["choices"][0]["finish_reason"] == "length"


def test_max_completion_tokens_wins(server):
    body = server.complete(P, max_tokens=3, max_completion_tokens=5, ignore_eos=True)
    assert body["usage"]["completion_tokens"] == 5


def test_model_names(server):
    for name in ("demo", "alias/demo", "", None):
        assert server.complete(P, max_tokens=1, model=name)["model"] == "demo"


def test_demo_text_is_sensible(server):
    """The first thing a newcomer sees: words, an end, no broken characters."""
    choice = server.choice(P, max_tokens=200, temperature=0)
    words = choice["text"].split()
    assert len(words) >= 10 and "\ufffd" not in choice["text"]
    letters = sum(c.isalpha() or c.isspace() or c in ".,!?'\"-" for c in choice["text"])
    assert letters > 0.9 * len(choice["text"])
    assert choice["finish_reason"] == "stop"


def test_demo_answers_chat_turns(server):
    """ChatML by hand: it does most small sums, says who it is, and stops by itself."""
    def answer(question):
        turn = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        choice = server.choice(turn, max_tokens=60, temperature=0)
        assert choice["finish_reason"] == "stop", choice
        return choice["text"]

    pairs = [(1, 2), (7, 8), (12, 30), (45, 9), (50, 50), (23, 19), (60, 31), (14, 15), (5, 0)]
    right = [str(a + b) in answer(f"What is {a} + {b}?").split("is")[-1] for a, b in pairs]
    assert sum(right) >= 6, right
    assert "model" in answer("Who are you?")
    assert answer("Hello!")


def test_prompt_forms_agree(server):
    ids = server.tokens(P)
    single = greedy(server, P)
    assert greedy(server, ids)["token_ids"] == single["token_ids"]
    choices = server.complete([P, "The"], max_tokens=24, temperature=0)["choices"]
    assert [c["index"] for c in choices] == [0, 1]
    assert choices[0]["text"] == single["text"]
    choices = server.complete([ids, server.tokens("The")], max_tokens=24, temperature=0)["choices"]
    assert choices[0]["text"] == single["text"]
    assert choices[1]["text"] == greedy(server, "The")["text"]
    assert single["prompt_token_ids"] == ids


def test_batch_equals_single_requests(server):
    """Sampled, with a seed: 32 prompts in one request give what 32 requests give."""
    prompts = [f"The {w}" for w in "cat dog sun boy girl tree house bird".split()] * 4
    fields = {"max_tokens": 20, "temperature": 1.0, "seed": 11}
    together = server.complete(prompts, **fields)
    alone = [server.choice(p, **fields)["text"] for p in prompts]
    assert [c["text"] for c in together["choices"]] == alone
    assert together["usage"]["prompt_tokens"] == sum(len(server.tokens(p)) for p in prompts)


def test_seeds(server):
    def text(**fields):
        return server.choice(P, max_tokens=40, temperature=1.3, **fields)["text"]

    assert text(seed=5) == text(seed=5)
    assert len({text(seed=s) for s in range(6)}) > 1
    assert len({text() for _ in range(6)}) > 1
    assert len({text(seed=-1) for _ in range(6)}) > 1
    low, high = -(1 << 63), (1 << 63) - 1
    assert text(seed=low) == text(seed=low) and text(seed=high) == text(seed=high)
    assert text(seed=(1 << 53)) != text(seed=(1 << 53) + 1)  # a double cannot tell these apart


def test_greedy_ignores_the_other_sampling_fields(server):
    plain = greedy(server)["text"]
    assert greedy(server, top_p=0.1, top_k=1, min_p=0.9, seed=9)["text"] == plain
    assert greedy(server, temperature=0.000001)["text"] == plain


def test_top_k_one_is_greedy(server):
    assert greedy(server, temperature=1.5, top_k=1)["text"] == greedy(server)["text"]
    assert greedy(server, temperature=1.5, min_p=1.0)["text"] == greedy(server)["text"]
    assert greedy(server, temperature=1.5, top_p=1e-6)["text"] == greedy(server)["text"]


def test_length_and_ignore_eos(server):
    body = server.complete(P, max_tokens=250, ignore_eos=True, temperature=0)
    assert body["usage"]["completion_tokens"] == 250
    assert body["choices"][0]["finish_reason"] == "length"


def test_min_tokens(server):
    ended = server.complete(P, max_tokens=400, temperature=0)
    count = ended["usage"]["completion_tokens"]
    assert ended["choices"][0]["finish_reason"] == "stop" and count < 400
    longer = server.complete(P, max_tokens=count + 20, min_tokens=count + 5, temperature=0)
    assert longer["usage"]["completion_tokens"] >= count + 5
    assert longer["choices"][0]["text"].startswith(ended["choices"][0]["text"])


def test_stop_strings(server):
    """Stops inside one token, across tokens, at the first of several; never any byte of one."""
    full = greedy(server, ignore_eos=True, max_tokens=60)["text"]
    for begin in (3, 10, 17, 25):
        for length in (1, 4, 12):
            stop = full[begin:begin + length]
            at = full.find(stop)
            choice = greedy(server, ignore_eos=True, max_tokens=60, stop=[stop, "never seen"])
            assert choice["text"] == full[:at]
            assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
            kept = greedy(server, ignore_eos=True, max_tokens=60, stop=stop,
                          include_stop_str_in_output=True)
            assert kept["text"] == full[:at + length]
    assert greedy(server, ignore_eos=True, max_tokens=60, stop=["never seen"])["text"] == full


def test_stop_waits_for_min_tokens(server):
    full = greedy(server, ignore_eos=True, max_tokens=40)
    space = greedy(server, ignore_eos=True, max_tokens=40, min_tokens=20, stop=" ")
    assert len(space["token_ids"]) >= 20
    assert full["text"].startswith(space["text"])


def test_stop_token_ids(server):
    full = greedy(server, ignore_eos=True)
    target = full["token_ids"][5]
    at = full["token_ids"].index(target)
    choice = greedy(server, ignore_eos=True, stop_token_ids=[target])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", target)
    assert choice["token_ids"] == full["token_ids"][:at + 1]


def test_logit_bias_and_allowed_ids(server):
    target = server.tokens(" the", add_special_tokens=False)[0]
    choice = greedy(server, max_tokens=6, ignore_eos=True, logit_bias={str(target): 100})
    assert choice["token_ids"] == [target] * 6
    first = greedy(server)["token_ids"][0]
    choice = greedy(server, max_tokens=6, ignore_eos=True, logit_bias={str(first): -100})
    assert first not in choice["token_ids"][:1]
    allowed = server.tokens(" a the cat dog", add_special_tokens=False)
    choice = greedy(server, temperature=2, seed=1, ignore_eos=True, allowed_token_ids=allowed)
    assert set(choice["token_ids"]) <= set(allowed)


def test_bad_words(server):
    text = greedy(server, max_tokens=40, ignore_eos=True)["text"]
    words = sorted({w.strip(".,!?\"'") for w in text.split()} - {""}, key=len)[-3:]
    changed = greedy(server, max_tokens=40, ignore_eos=True, bad_words=words)["text"]
    assert changed != text
    assert not set(words) & {w.strip(".,!?\"'") for w in changed.split()}


def test_penalties(server):
    """A bigger penalty means fewer repeats among the sampled ids."""
    def repeats(**fields):
        ids = greedy(server, max_tokens=150, ignore_eos=True, **fields)["token_ids"]
        return len(ids) - len(set(ids))

    plain = repeats()
    assert repeats(frequency_penalty=2) < plain
    assert repeats(presence_penalty=2) < plain
    assert repeats(repetition_penalty=1.8) < plain
    assert repeats(frequency_penalty=-2) > plain


def test_repetition_penalty_counts_the_prompt(server):
    """The id that greedy would give is in the prompt, so a huge penalty takes another one."""
    ids = server.tokens(P) + greedy(server)["token_ids"][:8]
    first = greedy(server, ids)["token_ids"][0]
    ids = [first] + ids
    if greedy(server, ids)["token_ids"][0] == first:
        assert greedy(server, ids, repetition_penalty=10)["token_ids"][0] != first
    assert greedy(server, ids, presence_penalty=2)["token_ids"][0] == \
        greedy(server, ids)["token_ids"][0]  # the prompt does not count for this one


def test_truncate_prompt_tokens(server):
    ids = server.tokens("one two three four five six seven eight nine ten")
    body = server.complete(ids, max_tokens=1, truncate_prompt_tokens=5, return_token_ids=True)
    assert body["usage"]["prompt_tokens"] == 5
    assert body["choices"][0]["prompt_token_ids"] == ids[-5:], "the end of a prompt matters most"
    left = server.choice(ids, max_tokens=1, truncate_prompt_tokens=5, truncation_side="left",
                         return_token_ids=True)
    right = server.choice(ids, max_tokens=1, truncate_prompt_tokens=5, truncation_side="right",
                          return_token_ids=True)
    assert left["prompt_token_ids"] == ids[-5:]
    assert right["prompt_token_ids"] == ids[:5]
    length = server.max_model_len()
    many = (ids * length)[:length + 100]
    body = server.complete(many, max_tokens=10, truncate_prompt_tokens=-1, ignore_eos=True)
    assert body["usage"]["prompt_tokens"] == length - 10
    answer = server.post("/v1/completions", {"prompt": many, "max_tokens": 10,
                                             "truncate_prompt_tokens": length})
    assert answer.status == 400


def test_add_special_tokens(server):
    with_it = server.tokens(P, add_special_tokens=True)
    without = server.tokens(P, add_special_tokens=False)
    body = server.complete(P, max_tokens=1, add_special_tokens=False)
    assert body["usage"]["prompt_tokens"] == len(without)
    assert with_it[-len(without):] == without


def test_skip_special_tokens(server):
    """A special token is in the text only when asked for; the ids are the same."""
    card = server.choice("x", max_tokens=1, temperature=0, return_token_ids=True)
    assert card["token_ids"]
    special = special_id(server)
    forced = {"max_tokens": 2, "allowed_token_ids": [special], "ignore_eos": True}
    hidden = greedy(server, **forced)
    shown = greedy(server, skip_special_tokens=False, **forced)
    assert hidden["token_ids"] == shown["token_ids"] == [special] * 2
    assert hidden["text"] == "" and shown["text"] != ""


def special_id(server):
    """An id that the tokenizer marks as special: the end of a chat turn or the like."""
    from tokenizers import Tokenizer  # pylint: disable=import-outside-toplevel
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    added = tokenizer.get_added_tokens_decoder()
    specials = [i for i, token in sorted(added.items()) if token.special]
    assert specials
    return specials[-1]


def test_render(server):
    """What a request becomes is what runs: the ids that the same body returns with its answer."""
    body = {"model": "demo", "prompt": ["Once upon", "a time"], "max_tokens": 3, "stop": "x",
            "temperature": 0.5, "seed": 7, "return_token_ids": True, "cache_salt": "s",
            "truncate_prompt_tokens": 2}
    first, second = server.post("/v1/completions/render", body).json
    ran = server.post("/v1/completions", body).json["choices"]
    assert [first["token_ids"], second["token_ids"]] == [c["prompt_token_ids"] for c in ran]
    assert first["prompt"] == "Once upon" and second["prompt"] == "a time"
    assert first["request_id"].startswith("cmpl-") and first["request_id"] != second["request_id"]
    assert first["model"] == "demo" and first["features"] is None and first["cache_salt"] == "s"
    params = first["sampling_params"]
    assert (params["max_tokens"], params["temperature"], params["seed"]) == (3, 0.5, 7)
    assert (params["stop"], params["n"]) == (["x"], 1)
    ids = server.post("/v1/completions/render", {"prompt": [1, 333, 201]}).json[0]
    assert ids["prompt"] is None and ids["token_ids"] == [1, 333, 201]
    # refused as the real one is
    long = {"prompt": list(range(10, 2060))}
    refused = server.post("/v1/completions/render", long)
    assert refused.status == 400 and refused.error == server.post("/v1/completions", long).error


def test_logprobs_shape(server):
    for k in (0, 1, 5, 20):
        choice = greedy(server, max_tokens=12, ignore_eos=True, logprobs=k)
        logprobs = choice["logprobs"]
        assert set(logprobs) == {"text_offset", "token_logprobs", "tokens", "top_logprobs"}
        assert {len(v) for v in logprobs.values()} == {12}
        for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"],
                                     logprobs["top_logprobs"]):
            assert value <= 0 and top[token] == value
            assert len(top) <= k + 1 and max(top.values()) == value  # greedy takes the best
        assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
        assert "".join(logprobs["tokens"]) == choice["text"]
        offsets = logprobs["text_offset"] + [len(choice["text"])]
        for token, begin, end in zip(logprobs["tokens"], offsets, offsets[1:]):
            assert choice["text"][begin:end] == token
    assert greedy(server)["logprobs"] is None


def test_logprobs_are_raw(server):
    """Before bias, penalties and temperature."""
    plain = greedy(server, max_tokens=1, logprobs=20)["logprobs"]["top_logprobs"][0]
    biased = greedy(server, max_tokens=1, logprobs=20, temperature=1.7, seed=4, presence_penalty=1,
                    logit_bias={"7": 3})["logprobs"]["top_logprobs"][0]
    common = set(plain) & set(biased)
    assert len(common) >= 19 and all(plain[t] == biased[t] for t in common)


def test_logprob_token_ids(server):
    ids = [3, 4, 5]
    choice = greedy(server, max_tokens=2, logprobs=5, logprob_token_ids=ids,
                    return_tokens_as_token_ids=True)
    for sampled, top in zip(choice["token_ids"], choice["logprobs"]["top_logprobs"]):
        assert set(top) == {f"token_id:{i}" for i in [sampled, *ids]}, "exactly these"


def test_return_tokens_as_token_ids(server):
    choice = greedy(server, max_tokens=5, logprobs=2, return_tokens_as_token_ids=True)
    assert choice["logprobs"]["tokens"] == [f"token_id:{i}" for i in choice["token_ids"]]


def test_echo(server):
    plain = greedy(server)
    echoed = greedy(server, echo=True)
    assert echoed["text"] == P + plain["text"]
    assert echoed["token_ids"] == plain["token_ids"]
    ids = server.tokens(P, add_special_tokens=False)
    assert greedy(server, ids, echo=True)["text"].startswith(P)


def test_echo_of_ids_shows_special_tokens(server):
    text = "<|im_start|>user\nSay"
    ids = server.tokens(text)
    choice = greedy(server, ids, echo=True, logprobs=0, max_tokens=1)
    assert choice["text"].startswith(text)
    tokens, offsets = choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"]
    assert tokens[0] == "<|im_start|>" and offsets[:2] == [0, len(tokens[0])]


def test_echo_with_logprobs(server):
    ids = server.tokens(P)
    choice = greedy(server, echo=True, logprobs=2, max_tokens=6, ignore_eos=True)
    logprobs = choice["logprobs"]
    assert {len(v) for v in logprobs.values()} == {len(ids) + 6}
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert all(v <= 0 for v in logprobs["token_logprobs"][1:])
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
    assert logprobs["text_offset"][-6] == len(P)


def test_scoring_equals_generation(server):
    """echo with max_tokens 0: the scores of a text are, bit for bit, those it was generated with,
    though one ran as decode steps and the other as a prefill chunk."""
    made = greedy(server, max_tokens=20, ignore_eos=True, logprobs=3)
    whole = server.tokens(P) + made["token_ids"]
    scored = server.complete(whole, max_tokens=0, echo=True, logprobs=3)
    choice = scored["choices"][0]
    assert choice["finish_reason"] == "length"
    assert scored["usage"]["completion_tokens"] == 0
    assert scored["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert choice["logprobs"]["token_logprobs"][-20:] == made["logprobs"]["token_logprobs"]
    assert choice["logprobs"]["top_logprobs"][-20:] == made["logprobs"]["top_logprobs"]


def test_prompt_logprobs(server):
    ids = server.tokens(P)
    choice = server.choice(P, max_tokens=1, prompt_logprobs=3)
    entries = choice["prompt_logprobs"]
    assert len(entries) == len(ids) and entries[0] is None
    for token, entry in zip(ids[1:], entries[1:]):
        assert str(token) in entry and 3 <= len(entry) <= 4
        assert all(set(v) == {"logprob", "rank", "decoded_token"} for v in entry.values())
        ranks = sorted(v["rank"] for v in entry.values())
        assert ranks[:3] == [1, 2, 3]


def test_more_logprobs_than_by_default(start, server):
    """The first 20 are those of a server that finds no more, bit for bit."""
    wide = start(DEMO, "--max-logprobs", 128)
    asked = {"max_tokens": 2, "temperature": 0, "return_tokens_as_token_ids": True}
    few = server.choice(P, logprobs=20, prompt_logprobs=20, **asked)
    many = wide.choice(P, logprobs=128, prompt_logprobs=128, **asked)
    for some, more in zip(few["logprobs"]["top_logprobs"], many["logprobs"]["top_logprobs"]):
        best = sorted(more.items(), key=lambda entry: -entry[1])
        assert len(best) == 128 and dict(best[:20]) == some
    for some, more in zip(few["prompt_logprobs"][1:], many["prompt_logprobs"][1:]):
        assert {v["rank"] for v in more.values()} >= set(range(1, 129))
        assert {k: more[k] for k in some} == some
    for field in ("logprobs", "prompt_logprobs"):
        refused = wide.post("/v1/completions", {"prompt": P, field: 129})
        assert refused.status == 400 and refused.error["param"] == field


def test_cached_tokens(server):
    """The second of two equal prompts reuses its blocks; another salt or prompt does not."""
    prompt = server.tokens("A story about a rabbit that nobody has told before. " * 12)
    salt = {"cache_salt": "test_cached_tokens"}

    def cached(**fields):
        usage = server.complete(prompt, max_tokens=1, **fields)["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached(**salt) == 0
    again = cached(**salt)
    assert len(prompt) - 32 <= again <= len(prompt) - 1
    assert cached(cache_salt="another") == 0
    assert cached(**salt, prompt_logprobs=0) == 0


def test_cache_does_not_change_the_answer(server):
    prompt = server.tokens("The little boat sailed over the sea to find the king. " * 8)
    salt = {"cache_salt": "same-answer"}
    first = greedy(server, prompt, logprobs=5, **salt)
    second = greedy(server, prompt, logprobs=5, **salt)
    assert first == second


def test_extreme_values(server):
    """Corners of every range are accepted and give an answer."""
    corners = [{"temperature": 2, "top_p": 1}, {"temperature": 1e-30}, {"top_p": 1e-30},
               {"top_k": 1 << 31}, {"top_k": -1}, {"min_p": 1, "temperature": 2},
               {"repetition_penalty": 10}, {"repetition_penalty": 1e-3}, {"presence_penalty": -2},
               {"frequency_penalty": 2}, {"logit_bias": {str(i): -100 for i in range(1024)}},
               {"stop": [chr(97 + i) * 1024 for i in range(16)]}, {"max_tokens": 1.0},
               {"bad_words": [f"w{i}" for i in range(128)]}, {"priority": -(1 << 63)}]
    for fields in corners:
        choice = server.choice(P, **{"max_tokens": 4, "seed": 1, "temperature": 1, **fields})
        assert choice["finish_reason"] in ("stop", "length"), fields


ODD = ["\u00e9\u4f60\u597d \U0001f600\U0001f468\u200d\U0001f469", "\t\n  \n\n",
       "\u0301\u0301\u0301", "\ufeffbom", "a" * 400, " " * 200,
       "<|im_start|>user\nhi<|im_end|>\n", "\u202e\u0007x"]


@pytest.mark.parametrize("prompt", ODD, ids=range(len(ODD)))
def test_odd_prompts(server, prompt):
    choice = server.choice(prompt, max_tokens=5, temperature=1, seed=3, echo=True)
    assert choice["text"].startswith(prompt)


def test_the_middle_is_filled_in(start, tmp_path):
    """A vocabulary with the tokens of Qwen Coder; the weights do not matter for the layout."""
    model = dummy_model(tmp_path / "fim", hidden_size=64, intermediate_size=64, vocab_size=4100)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    names = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    for i, name in enumerate(names):
        tokenizer["added_tokens"].append({
            "id": 4096 + i, "content": name, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    own = start(model, "--load-format", "dummy")
    answer = own.complete("def f(x):\n  return ", suffix="\n\nf(1)", max_tokens=4, n=1,
                          return_token_ids=True, ignore_eos=True)
    plain = [own.tokens(text) for text in ("def f(x):\n  return ", "\n\nf(1)")]
    expected = [4096, *plain[0], 4097, *plain[1], 4098]
    assert answer["choices"][0]["prompt_token_ids"] == expected
    assert answer["usage"]["prompt_tokens"] == len(expected)
    assert not answer["choices"][0]["text"].startswith("def f(x)")


def test_models_that_cannot_fill_in(server):
    answer = server.post("/v1/completions", {"prompt": "a", "suffix": "b"})
    assert (answer.status, answer.error["param"]) == (400, "suffix")
    assert answer.error["code"] == "unsupported_parameter"
