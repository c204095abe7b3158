"""Requests and settings of every kind, drawn from a seed, for test_mix.py.

A body has several features at a time: choices, beams, constraints, stops, bans, biases, scores,
adapters, salts. Prompts begin with few documents, repeat themselves, and may be text. What is drawn
is seeded, so an answer is a function of the body."""

WORDS = ("hello", "world", "the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "one",
         "two", "three", "four", "five", "six", "seven", "today", "cat", "sat", "on", "mat")
SCHEMA = {"type": "object", "required": ["name", "tags"], "additionalProperties": False,
          "properties": {"name": {"enum": ["Ann", "Anna", "Bob"]},
                         "tags": {"type": "array", "minItems": 2, "maxItems": 4,
                                  "items": {"const": {"kind": "constant", "of": [1, 2]}}}}}
CONSTRAINTS = (
    {"structured_outputs": {"regex": "(?:left|right|leftover)(?: and (?:left|right)){2,9}"}},
    {"structured_outputs": {"regex": "[ab]{40}"}},
    {"structured_outputs": {"regex": "(?:[0-9]{4}-){1,9}end|the quick brown fox jumps"}},
    {"structured_outputs": {"choice": ["the first of two answers", "the first one", "fox"]}},
    {"structured_outputs": {"json": SCHEMA}},
    {"response_format": {"type": "json_object"}},
    {"structured_outputs": {"grammar": 'root ::= item (", " item){2,9} "."\n'
                                       'item ::= "one" | "two" | "(" item ")"'}},
    {"structured_outputs": {"grammar": 'start: "hello" (" world" | " fox")+ NUMBER\n'
                                       'NUMBER: /[0-9]{1,5}/'}},
)


def documents(rng):
    """Beginnings of prompts: of some blocks each, not always whole ones."""
    return [[rng.randrange(2, 346) for _ in range(rng.choice((16, 33, 48, 100, 150)))]
            for _ in range(4)]


def prompt(rng, docs):
    kind = rng.random()
    if kind < 0.15:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 40)))
    ids = list(rng.choice(docs)) if kind < 0.7 else []
    if ids and rng.random() < 0.4:
        ids = ids[:rng.randrange(1, len(ids) + 1)]
    if rng.random() < 0.4:
        ids += [rng.randrange(2, 346) for _ in range(rng.randrange(1, 6))] * rng.randrange(2, 12)
    else:
        ids += [rng.randrange(2, 346) for _ in range(rng.randrange(1, 50))]
    return ids


def shape(rng, found):
    """How many choices, and of what kind."""
    kind = rng.random()
    if kind < 0.12:
        width = rng.randrange(1, 6)
        found.update(use_beam_search=True, best_of=width, n=rng.randrange(1, width + 1),
                     length_penalty=rng.choice((0.5, 1, 2)),
                     early_stopping=rng.choice((True, False, "never")), temperature=0)
    elif kind < 0.24:
        found.update(n=rng.randrange(2, 6))
    elif kind < 0.32:
        found.update(best_of=rng.randrange(3, 6), n=rng.randrange(1, 3))


def draw(rng, found):
    """How a token is drawn."""
    if rng.random() < 0.55:
        found["temperature"] = 0
    else:
        found["temperature"] = rng.choice((0.1, 0.5, 0.8, 1, 1.4))
        for name, values in (("top_p", (0.3, 0.9)), ("top_k", (1, 5, 40)), ("min_p", (0.05, 0.3))):
            if rng.random() < 0.3:
                found[name] = rng.choice(values)
    for name, values in (("repetition_penalty", (0.8, 1.3)), ("frequency_penalty", (-1, 0.5)),
                         ("presence_penalty", (-0.5, 1))):
        if rng.random() < 0.12:
            found[name] = rng.choice(values)
    if rng.random() < 0.15:
        found["logit_bias"] = {str(rng.randrange(2, 346)): rng.choice((-100, -3, 4, 30))
                               for _ in range(4)}
    if rng.random() < 0.1:
        found["bad_words"] = rng.sample(WORDS, 3)
    if rng.random() < 0.1:
        found["allowed_token_ids"] = rng.sample(range(384), rng.choice((1, 8, 300)))


def ends(rng, found):
    """Where an answer ends."""
    found["max_tokens"] = rng.choice((1, 2, 7, 20, 40, 60))
    found["ignore_eos"] = rng.random() < 0.6
    if rng.random() < 0.25:
        found["stop"] = rng.sample(["a", "e", " ", "th", "the", "on", "wo", "1", "\"", "é"], 3)
    if rng.random() < 0.15:
        found["stop_token_ids"] = rng.sample(range(384), 20)
    if rng.random() < 0.15:
        found["min_tokens"] = rng.randrange(0, found["max_tokens"] + 1)
    if rng.random() < 0.2:
        found["include_stop_str_in_output"] = True
    if rng.random() < 0.1:
        found["skip_special_tokens"] = False


def shown(rng, found):
    """What the answer has beside its text."""
    found["return_token_ids"] = True
    if rng.random() < 0.5:
        found["logprobs"] = rng.choice((0, 1, 5, 5, 30, 200, -1))
        if rng.random() < 0.2:
            found["logprob_token_ids"] = rng.sample(range(346), 5)
    if rng.random() < 0.15:
        found["prompt_logprobs"] = rng.choice((0, 2, 200))
    if rng.random() < 0.1:
        found["echo"] = True
        if rng.random() < 0.3:
            found["max_tokens"] = 0
            found.pop("min_tokens", None)


def body(rng, docs, models):
    """One request of /v1/completions."""
    found = {"prompt": prompt(rng, docs), "seed": rng.randrange(1000),
             "model": rng.choice(models)}
    if rng.random() < 0.08:
        found["prompt"] = [p if isinstance(p, list) else [5, 6, 7]
                           for p in (prompt(rng, docs) for _ in range(3))]
    draw(rng, found)
    ends(rng, found)
    shown(rng, found)
    shape(rng, found)
    if rng.random() < 0.25:
        found.update(rng.choice(CONSTRAINTS))
    if rng.random() < 0.2:
        found["cache_salt"] = rng.choice("ab")
    if rng.random() < 0.3:
        found["priority"] = rng.randrange(3)
    return found


def tools(rng, found, wrap):
    """Functions that the model may, or must, call."""
    parameters = {"type": "object", "required": ["city", "often"], "additionalProperties": False,
                  "properties": {"city": {"enum": ["Rome", "Roma"]}, "often": {"type": "boolean"}}}
    found["tools"] = [wrap(name, parameters) for name in ("look", "look_up")]
    found["tool_choice"] = rng.choice(("auto", "required"))


def conversation(rng):
    return [{"role": role, "content": " ".join(rng.choice(WORDS) for _ in range(rng.randrange(9)))}
            for role in rng.choice((["user"], ["system", "user"], ["user", "assistant", "user"]))]


def chat(rng, models):
    """One request of /v1/chat/completions."""
    found = {"messages": conversation(rng), "seed": rng.randrange(1000),
             "model": rng.choice(models)}
    draw(rng, found)
    ends(rng, found)
    if rng.random() < 0.3:
        found.update(logprobs=True, top_logprobs=2)
    if rng.random() < 0.3:
        found["n"] = 3
    if rng.random() < 0.5:
        tools(rng, found, lambda name, parameters: {
            "type": "function", "function": {"name": name, "parameters": parameters}})
    elif rng.random() < 0.4:
        found.update(rng.choice(CONSTRAINTS))
    return found


def messages(rng, models):
    """One request of /v1/messages, which has no seed."""
    found = {"messages": [{"role": "user", "content": rng.choice(WORDS)}], "temperature": 0,
             "model": rng.choice(models), "max_tokens": rng.choice((1, 20, 60))}
    if rng.random() < 0.4:
        found["stop_sequences"] = ["a", "1", "the"]
    if rng.random() < 0.6:
        tools(rng, found, lambda name, schema: {"name": name, "input_schema": schema})
        found["tool_choice"] = {"type": rng.choice(("auto", "any"))}
    return found


def response(rng, models):
    """One request of /v1/responses."""
    found = {"input": conversation(rng), "temperature": 0, "model": rng.choice(models),
             "max_output_tokens": rng.choice((1, 20, 60))}
    if rng.random() < 0.5:
        tools(rng, found, lambda name, parameters: {
            "type": "function", "name": name, "strict": True, "parameters": parameters})
    elif rng.random() < 0.5:
        found["text"] = {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA,
                                    "strict": True}}
    return found


def request(rng, docs, models):
    """A path and a body for it."""
    kind = rng.random()
    if kind < 0.1:
        return "/v1/chat/completions", chat(rng, models)
    if kind < 0.15:
        return "/v1/messages", messages(rng, models)
    if kind < 0.2:
        return "/v1/responses", response(rng, models)
    return "/v1/completions", body(rng, docs, models)


def settings(rng):
    """Flags that change when a token comes, and never which."""
    found = ["--max-num-seqs", rng.choice((5, 8, 16, 64)), "--threads", rng.choice((1, 2, 3)),
             "--max-num-batched-tokens", rng.choice((64, 80, 256, 512)),
             "--mask-threads", rng.choice((0, 2)), "--block-size", rng.choice((8, 16)),
             "--scheduling-policy", rng.choice(("fcfs", "priority", "fair", "slo")),
             "--max-queue-time", 0, "--max-step-ms", rng.choice((0, 1, 60)),
             "--max-skips", rng.choice((0, 4)), "--max-preemptions", rng.choice((0, 1, 3))]
    for flags in (["--no-enable-prefix-caching"], ["--prefix-share", "global"],
                  ["--no-short-prompts-pass"], ["--no-fair-share"], ["--send-thread", "on"],
                  ["--stream-interval", 3], ["--long-prefill-token-threshold", 24]):
        if rng.random() < 0.2:
            found += flags
    return found
