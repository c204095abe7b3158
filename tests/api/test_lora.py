"""Low-rank adapters: named as a model, mixed with the base in one batch, loaded and unloaded."""

import json
import random
import re
import signal
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from harness import DEMO, ROOT, Stream, dummy_model, wait_until

PROMPT = "Once upon a time there was a small machine that counted everything it saw, and then"
BODY = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "ignore_eos": True,
        "return_token_ids": True}
FLAGS = ("--load-format", "dummy", "--seed", 7, "--served-model-name", "base", "--enable-lora",
         "--max-model-len", 512)
ADMIN = ("--admin-key", "root")


def add_random(header, data, rng, name, shape):
    numbers = rng.normal(0, 0.5, shape).astype("<f4").tobytes()
    header[name] = {"dtype": "F32", "shape": shape,
                    "data_offsets": [len(data), len(data) + len(numbers)]}
    return data + numbers


def write_adapter(directory, model, seed, rank=4, module="q_proj", config=None, tensors=None,
                  within="model.layers", more=()):
    """A random adapter of one module in every layer, and of tensors by shape, as PEFT saves it.
    `more`: further dimensions of A."""
    sizes = json.loads((model / "config.json").read_text())
    rng = np.random.default_rng(seed)
    rows = sizes["num_attention_heads"] * sizes["head_dim"]
    header, data = {}, b""
    for layer in range(sizes["num_hidden_layers"]):
        name = f"base_model.model.{within}.{layer}.self_attn.{module}.lora_"
        for letter, shape in (("A", [*more, rank, sizes["hidden_size"]]), ("B", [rows, rank])):
            data = add_random(header, data, rng, f"{name}{letter}.weight", shape)
    for name, shape in (tensors or {}).items():
        data = add_random(header, data, rng, f"base_model.model.{name}", shape)
    text = json.dumps(header).encode()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "adapter_model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + data)
    (directory / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "bias": "none",
         "target_modules": [module], **(config or {})}))
    return directory


def ids(server, model, **more):
    answer = server.post("/v1/completions", {**BODY, "model": model, **more})
    assert answer.status == 200, answer
    assert answer.json["model"] == model
    return answer.json["choices"][0]["token_ids"]


def test_adapters_of_the_configuration(start, tmp_path):
    model = dummy_model(tmp_path / "model")
    first = write_adapter(tmp_path / "first", model, 1)
    second = write_adapter(tmp_path / "second", model, 2, rank=16, module="o_proj")
    server = start(model, *FLAGS, "--lora-modules", f"one={first},two={second}")
    cards = {card["id"]: card for card in server.get("/v1/models").json["data"]}
    assert list(cards) == ["base", "one", "two"]
    assert cards["one"]["parent"] == "base" and cards["base"]["parent"] is None
    assert server.get("/v1/models/two").json["root"] == str(second)

    alone = {name: ids(server, name) for name in ("base", "one", "two")}
    assert len({tuple(tokens) for tokens in alone.values()}) == 3, "an adapter changes nothing"
    both = server.post("/v1/completions", {**BODY, "model": "base:two"}).json
    assert both["model"] == "two" and both["choices"][0]["token_ids"] == alone["two"]
    for name in ("base:", "base:three", "one:two", ":two", "two:"):
        assert server.post("/v1/completions", {**BODY, "model": name}).status == 404, name
    # The same tokens in one batch with the others, and from the prefix cache.
    names = [name for name in alone for _ in range(4)]
    random.Random(3).shuffle(names)
    with ThreadPoolExecutor(len(names)) as pool:
        for name, tokens in zip(names, pool.map(lambda name: ids(server, name), names)):
            assert tokens == alone[name], name
    # What one of them cached is not another's.
    salted = {"cache_salt": "fresh"}
    for name in alone:
        answer = server.post("/v1/completions", {**BODY, "model": name, **salted})
        assert answer.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, name
    assert server.post("/v1/completions", {**BODY, "model": "three"}).status == 404
    lines = [line for line in server.log().splitlines() if '"model":"two"' in line]
    assert lines and all('"status":200' in line for line in lines), "the log names the adapter"


def test_the_metrics_name_the_adapters_in_use(start, tmp_path):
    model = dummy_model(tmp_path / "model")
    modules = ",".join(f"{name}={write_adapter(tmp_path / name, model, seed)}"
                       for seed, name in enumerate(("one", "two", "three")))
    server = start(model, *FLAGS, "--lora-modules", modules, "--max-num-seqs", 1)

    def in_use():
        """(running, waiting), time of the last change: the same under both names."""
        found = {name: (dict(labels), value) for (name, labels), value in server.metrics().items()
                 if name in ("inferd_lora_requests_info", "vllm:lora_requests_info")}
        labels, changed = found["vllm:lora_requests_info"]
        own, own_changed = found["inferd_lora_requests_info"]
        assert changed == own_changed and labels["max_lora"] == own["max_lora"] == "3"
        names = ("running_lora_adapters", "waiting_lora_adapters")
        assert [own[name] for name in names] == [labels[name] for name in names]
        return tuple(labels[name] for name in names), changed

    assert in_use()[0] == ("", "")
    before = int(time.time())
    connections = []
    for name in ("one", "two", "one", "one", "two"):
        connections.append(server.connection())
        connections[-1].request("POST", "/v1/completions", json.dumps(
            {**BODY, "model": name, "max_tokens": 400}), {"Content-Type": "application/json"})
    wait_until(lambda: in_use()[0] in (("one", "one,two"), ("two", "one,two"), ("two", "one"),
                                       ("one", "two"), ("one", "one"), ("two", "two")),
               "one runs", context=in_use)
    assert before <= in_use()[1] <= time.time()
    for connection in connections:
        connection.close()
    wait_until(lambda: in_use()[0] == ("", ""), "nothing in use", context=in_use)


def test_adapters_at_run_time(start, tmp_path):
    model = dummy_model(tmp_path / "model")
    first = write_adapter(tmp_path / "first", model, 1)
    second = write_adapter(tmp_path / "second", model, 2)
    server = start(model, *FLAGS, "--allow-runtime-lora", *ADMIN, key="root")
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    base = ids(server, "base")
    assert server.post("/v1/completions", {**BODY, "model": "one"}).status == 404
    answer = server.post(load, {"lora_name": "one", "lora_path": str(first)})
    assert answer.status == 200 and b"'one' added" in answer.body, answer
    tokens = ids(server, "one")
    assert tokens != base and ids(server, "base") == base
    assert server.post(load, {"lora_name": "one", "lora_path": str(first)}).status == 400
    taken = server.post(load, {"lora_name": "two", "lora_path": str(second)})
    assert taken.status == 400 and "--max-loras" in taken.error["message"]
    assert server.post(unload, {"lora_name": "one"}).status == 200
    assert server.post(unload, {"lora_name": "one"}).status == 404
    assert server.post("/v1/completions", {**BODY, "model": "one"}).status == 404
    # The slot again, under the same name: other numbers, and nothing cached of the old ones.
    # A field that the table of the route does not know is named, as on every other route.
    answer = server.post(load, {"lora_name": "one", "lora_path": str(second), "lora_int_id": 1})
    assert answer.status == 200
    assert answer.headers["x-inferd-ignored-params"] == "lora_int_id"
    assert ids(server, "one") != tokens and ids(server, "base") == base


def test_a_reload_takes_over_the_list_of_adapters(start, tmp_path):
    model = dummy_model(tmp_path / "model")
    one, two = (write_adapter(tmp_path / name, model, seed) for seed, name in ((1, "one"),
                                                                              (2, "two")))
    big = write_adapter(tmp_path / "big", model, 1, rank=32)
    file = tmp_path / "inferd.conf"
    file.write_text(f"lora_modules = a={one}\n")
    server = start(model, *FLAGS, "--max-loras", 2, "--config", file)

    def reload_list(*modules):
        file.write_text(f"lora_modules = {','.join(modules)}\n")
        count = server.metric("inferd_reloads_total")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: server.metric("inferd_reloads_total") == count + 1, "the reload",
                   context=server.log)

    def served(*names):
        wait_until(lambda: [card["id"] for card in server.get("/v1/models").json["data"]]
                   == ["base", *names], f"{names}", context=server.log)

    first = ids(server, "a")
    reload_list(f"a={one}", f"b={two}")
    served("a", "b")
    second = ids(server, "b")
    assert ids(server, "a") == first != second
    reload_list(f"b={two}")
    served("b")
    reload_list(f"b={one}")  # the same name from elsewhere
    wait_until(lambda: "adapter b unloaded" in server.log() and
               server.log().count("adapter b loaded") == 2, "the other one", context=server.log)
    assert ids(server, "b") == first
    # What cannot be loaded is named with its reason, and the others stay.
    reload_list(f"b={one}", f"c={big}", f"d={tmp_path}/nowhere")
    for words in ("adapter c is not loaded: ", "rank 32, supported: 1..16",
                  "adapter d is not loaded: "):
        wait_until(lambda: words in server.log(), words, context=server.log)
    served("b")
    reload_list(f"b={one}", f"c={two}", f"d={two}")
    wait_until(lambda: "adapter d is not loaded: All 2 slots" in server.log(), "the reason",
               context=server.log)
    served("b", "c")
    count = server.metric("inferd_reloads_total", result="rejected")
    file.write_text("lora_modules = b\n")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.metric("inferd_reloads_total", result="rejected") == count + 1,
               "the refusal", context=server.log)
    assert ids(server, "c") == second


# The tensors are of q_proj in every layer, and PEFT would leave some of them out.
NO_TARGET = [{"target_modules": ["k_proj"]}, {"target_modules": "k_proj"},
             {"target_modules": ["roj"]}, {"exclude_modules": ["q_proj"]},
             {"exclude_modules": r".*\.0\..*"}, {"layers_to_transform": 1},
             {"layers_to_transform": [0], "layers_pattern": "blocks"},
             {"target_modules": ".*k_proj"}, {"target_modules": "self_attn.q_proj"}]
ODD = [({"use_banana": True}, '"use_banana" is true'), ({"use_RSLora": 1}, '"use_RSLora" is 1'),
       ({"target_modules": None}, '"target_modules" is null'),
       ({"target_modules": []}, '"target_modules" is an array'),
       ({"target_modules": "(q_proj"}, "(q_proj"), ({"target_modules": r"\Qq\E"}, "?Qq?E"),
       ({"target_modules": [7]}, '"target_modules" is an array'),
       ({"target_modules": ".*q_proj", "layers_to_transform": [0]}, "layers_to_transform"),
       ({"layers_pattern": "layers"}, "layers_pattern"),
       ({"rank_pattern": {"q_proj": 0}}, "rank_pattern"),
       ({"rank_pattern": ["q_proj"]}, "rank_pattern"),
       ({"alpha_pattern": {"q_proj": "x"}}, "alpha_pattern"),
       ({"alpha_pattern": {"(?R)": 3}}, "(?R)"),
       ({"alora_invocation_tokens": [], "task_type": "CAUSAL_LM"}, "alora_invocation_tokens"),
       ({"alora_invocation_tokens": [1, -1], "task_type": "CAUSAL_LM"}, "alora_invocation_tokens"),
       ({"alora_invocation_tokens": "<x>", "task_type": "CAUSAL_LM"}, "alora_invocation_tokens"),
       ({"alora_invocation_tokens": [1]}, "task_type"),
       ({"init_lora_weights": "pissa_niter_4"}, "pissa_niter_4"),
       ({"init_lora_weights": "olora"}, "init_lora_weights")]


def test_every_key_is_known_or_refused(start, tmp_path):
    """The list is that of PEFT's fields (tests/parity/parity_adapters.py)."""
    model = dummy_model(tmp_path / "model")
    server = start(model, *FLAGS, "--allow-runtime-lora", *ADMIN, key="root")
    text = (ROOT / "engine/model/adapter/adapter_keys.def").read_text()
    keys = dict(re.findall(r"^ADAPTER_KEY\((\w+), KEY_(\w+)\)", text, re.M))
    assert len(keys) > 35 and set(keys.values()) == {"READ", "HARMLESS", "REFUSED"}
    keys["peft_of_next_year"] = "REFUSED"
    nothing = ({}, [], "", None, False)
    empty = {f"{key}_{i}": value for key in keys for i, value in enumerate(nothing)}
    empty.update({key: {} for key, use in keys.items() if use == "REFUSED"})
    plain = write_adapter(tmp_path / "plain", model, 1, config=empty)
    for key, use in keys.items():
        config = {key: "most" if key == "bias" else {"x": [1]}}
        adapter = write_adapter(tmp_path / key, model, 1, config=config)
        answer = server.post("/v1/load_lora_adapter", {"lora_name": key, "lora_path": str(adapter)})
        if use == "HARMLESS":
            assert answer.status == 200, (key, answer)
            tokens = ids(server, key)
            assert server.post("/v1/unload_lora_adapter", {"lora_name": key}).status == 200
            keys[key] = tokens
        else:
            assert answer.status == 400 and f'"{key}"' in answer.error["message"], (key, answer)
    answer = server.post("/v1/load_lora_adapter", {"lora_name": "p", "lora_path": str(plain)})
    assert answer.status == 200, answer
    tokens = ids(server, "p")
    assert tokens != ids(server, "base")
    assert all(of == tokens for of in keys.values() if isinstance(of, list))


def test_a_scale_of_its_own_for_some_modules(start, tmp_path):
    """alpha_pattern and rank_pattern as PEFT matches them: the first that fits, at a dot."""
    model = dummy_model(tmp_path / "model")
    same = [{"lora_alpha": 2}, {"lora_alpha": 5, "alpha_pattern": {"q_proj": 2}},
            {"alpha_pattern": {"roj": 9, "nothing": 9, ".*attn.q_proj": 2, "q_proj": 9}},
            {"alpha_pattern": {"self_attn.q_proj|k_proj": 2}, "lora_alpha": 7},
            {"rank_pattern": {"q_proj": 4}, "r": 9, "lora_alpha": 2},
            {"rank_pattern": {"(q|k)_proj": 4}, "r": 1, "lora_alpha": 9,
             "alpha_pattern": {r"layers\.\d+\..*": 2}},
            {"lora_alpha": 1, "use_rslora": True}]
    named = [f"a{i}={write_adapter(tmp_path / str(i), model, 1, config=config)}"
             for i, config in enumerate(same)]
    other = write_adapter(tmp_path / "other", model, 1, config={"alpha_pattern": {"roj": 2}})
    server = start(model, *FLAGS, "--lora-modules", ",".join([*named, f"other={other}"]))
    first = ids(server, "a0")
    assert [ids(server, f"a{i}") for i in range(len(same))] == [first] * len(same)
    assert ids(server, "other") != first != ids(server, "base")


CALL = [300, 42]  # invocation tokens


def test_an_adapter_that_begins_with_its_invocation(start, tmp_path):
    """aLoRA: what stands before the last invocation is the base's, also in the prefix cache."""
    model = dummy_model(tmp_path / "model")
    config = {"alora_invocation_tokens": CALL, "task_type": "CAUSAL_LM"}
    called = write_adapter(tmp_path / "called", model, 1, config=config)
    other = write_adapter(tmp_path / "other", model, 2, config=config)
    always = write_adapter(tmp_path / "always", model, 1)
    server = start(model, *FLAGS, "--block-size", 16, "--allow-runtime-lora", *ADMIN, "--max-loras",
                   3, "--lora-modules", f"called={called},always={always}", key="root")
    assert server.post("/v1/load_lora_adapter",
                       {"lora_name": "other", "lora_path": str(other)}).status == 200
    rng = random.Random(5)
    before = [rng.randrange(3, 200) for _ in range(70)]

    def ask(name, prompt, **more):
        answer = server.post("/v1/completions", {**BODY, "model": name, "prompt": prompt, **more})
        assert answer.status == 200, answer
        choice = answer.json["choices"][0]
        details = answer.json["usage"]["prompt_tokens_details"] or {}
        return choice, details.get("cached_tokens", 0)

    def scores(name, prompt):
        rows = ask(name, prompt, prompt_logprobs=0)[0]["prompt_logprobs"][1:]
        return [row[str(token)]["logprob"] for row, token in zip(rows, prompt[1:])]

    for at in (0, 1, 15, 16, 17, 63, 64, 70):  # the first token sees itself alone, whatever its q
        # The row at position p scores the token behind it.
        prompt = before[:at] + CALL + before[at:]
        base, mine, all_of_it = (scores(name, prompt) for name in ("base", "called", "always"))
        assert mine[:at] == base[:at], at
        assert mine[at:] != base[at:] and (at <= 1) == (mine == all_of_it), at
        twice = CALL + prompt
        assert scores("called", twice)[:at + 2] == scores("base", twice)[:at + 2], at
    none = before + CALL[:1]  # not in the prompt: never active, whatever is generated
    assert ask("called", none)[0]["token_ids"] == ask("base", none)[0]["token_ids"]

    # Blocks before the invocation are shared by all; the others by nobody, nor by another place.
    prompt = before[:40] + CALL + before[40:]
    fresh = {name: ask(name, prompt, cache_salt=name)[0]["token_ids"]
             for name in ("base", "called", "other", "always")}
    assert len({tuple(tokens) for tokens in fresh.values()}) == 4
    for name, cached in (("base", 0), ("called", 32), ("other", 32), ("always", 0), ("called", 71),
                         ("base", 71), ("other", 71)):
        choice, found = ask(name, prompt, cache_salt="s")
        assert found == cached and choice["token_ids"] == fresh[name], name
    straddles = before[:10] + CALL + before[10:31] + CALL[:1]  # the second call ends a block later
    for tail in (CALL[1:], [7]):
        long = straddles[:31] + CALL[:1] + tail + before[:9]
        alone = ask("called", long, cache_salt=f"alone {tail}")[0]["token_ids"]
        assert ask("called", long, cache_salt="both")[0]["token_ids"] == alone
    # In one batch with others the same.
    names = [name for name in fresh for _ in range(3)]
    with ThreadPoolExecutor(len(names)) as pool:
        for name, (choice, _) in zip(names, pool.map(lambda name: ask(name, prompt), names)):
            assert choice["token_ids"] == fresh[name], name


def kinds(model, folder):
    """(adapter, what is wrong with it or None) of the embedding, the head, lengths and biases."""
    sizes = json.loads((model / "config.json").read_text())
    layers, hidden, vocab = (sizes[key] for key in ("num_hidden_layers", "hidden_size",
                                                    "vocab_size"))
    rows = sizes["num_attention_heads"] * sizes["head_dim"]
    q = [f"model.layers.{i}.self_attn.q_proj." for i in range(layers)]
    lengths = {name + "lora_magnitude_vector": [rows] for name in q}
    tables = {"model.embed_tokens.lora_embedding_A": [4, vocab],
              "model.embed_tokens.lora_embedding_B": [hidden, 4],
              "lm_head.lora_A.weight": [4, hidden], "lm_head.lora_B.weight": [vocab, 4]}
    whole = {"model.embed_tokens.weight": [vocab, hidden], "lm_head.weight": [vocab, hidden]}
    names = ["q_proj", "embed_tokens", "lm_head"]
    call = {"alora_invocation_tokens": [7], "task_type": "CAUSAL_LM"}
    saved = {"modules_to_save": ["embed_tokens", "lm_head"]}
    made = [
        ("lengths", lengths, {"use_dora": True}, None),
        ("tables", tables, {"target_modules": names}, None),
        ("whole", whole, saved, None),
        ("head", {"lm_head.weight": [vocab, hidden]}, {"modules_to_save": ["lm_head"]}, None),
        ("biases", {name + "lora_B.bias": [rows] for name in q}, {"lora_bias": True}, None),
        ("no lengths", {}, {"use_dora": True}, "no lora_magnitude_vector, but use_dora is true"),
        ("other lengths", {**lengths, q[0] + "lora_magnitude_vector": [rows + 1]},
         {"use_dora": True}, f"[{rows + 1}], expected F32, F16 or BF16 [{rows}]"),
        ("unsaid lengths", lengths, {}, f"{layers} tensors belong to nothing"),
        ("both", lengths, {"use_dora": True, **call}, '"alora_invocation_tokens"'),
        ("biased lengths", lengths, {"use_dora": True, "lora_bias": True}, '"lora_bias"'),
        ("no biases", {}, {"lora_bias": True}, "no lora_B.bias, but lora_bias is true"),
        ("small", {**whole, "lm_head.weight": [vocab - 1, hidden]}, saved, "lm_head.weight"),
        ("unsaid", whole, {}, "embed_tokens.weight is not the model's own"),
        ("called", whole, {**saved, **call}, "alora_invocation_tokens"),
        ("called tables", tables, {"target_modules": names, **call},
         "PEFT takes no alora_invocation_tokens for an embedding"),
        ("norm", {"model.norm.weight": [hidden]}, {"modules_to_save": ["model.norm"]},
         "model.norm.weight is not the model's own"),
        ("half", {"lm_head.lora_A.weight": [4, hidden]}, {"target_modules": names},
         "lm_head.lora_A.weight has no lora_B beside it"),
        ("an expression", {}, {"modules_to_save": ["lm_.*"]}, '"modules_to_save"'),
    ]
    return [(write_adapter(folder / name, model, 1, config=config, tensors=tensors), wrong)
            for name, tensors, config, wrong in made]


def test_embeddings_heads_lengths_and_biases(start, tmp_path):
    """The numbers are parity_adapters.py's; here: slots, company, the cache, refusals."""
    model = dummy_model(tmp_path / "model")
    adapters = kinds(model, tmp_path)
    good = [path for path, wrong in adapters if wrong is None]
    plain = write_adapter(tmp_path / "plain", model, 1)
    server = start(model, *FLAGS, "--allow-runtime-lora", *ADMIN, "--max-loras", len(good) + 1,
                   "--lora-modules", ",".join(f"{p.name}={p}" for p in [*good, plain]), key="root")
    names = ["base", *(path.name for path in good), "plain"]
    alone = {name: ids(server, name) for name in names}
    assert len({tuple(tokens) for tokens in alone.values()}) == len(names)
    crowd = names * 3
    with ThreadPoolExecutor(len(crowd)) as pool:
        for name, tokens in zip(crowd, pool.map(lambda name: ids(server, name), crowd)):
            assert tokens == alone[name], name

    def post(route, name, path=None):
        body = {"lora_name": name, **({"lora_path": str(path)} if path else {})}
        return server.post(f"/v1/{route}_lora_adapter", body)

    for old, new in zip(good, [plain, *good]):  # nothing of the one before stays in its slot
        assert post("unload", old.name).status == 200
        assert post("load", f"{new.name} again", new).status == 200
        assert ids(server, f"{new.name} again") == alone[new.name], new
        assert post("unload", f"{new.name} again").status == 200
        assert post("load", old.name, old).status == 200
        assert ids(server, old.name) == alone[old.name], old
    assert post("unload", "plain").status == 200
    for path, wrong in adapters:
        answer = post("load", "x", path)
        if wrong is None:
            assert answer.status == 200 and post("unload", "x").status == 200, answer
            continue
        assert answer.status == 400 and wrong in answer.error["message"], (path, answer)
    assert ids(server, "base") == alone["base"]


def test_adapters_that_are_refused(start, tmp_path):
    model = dummy_model(tmp_path / "model")
    server = start(model, *FLAGS, "--allow-runtime-lora", "--max-lora-rank", 8, *ADMIN,
                   key="root")
    cases = [
        (tmp_path / "nowhere", "adapter_config.json"),
        (write_adapter(tmp_path / "big", model, 1, rank=9), "rank 9, supported: 1..8"),
        (write_adapter(tmp_path / "dora", model, 1, config={"use_dora": True}), "use_dora"),
        (write_adapter(tmp_path / "bias", model, 1, config={"bias": "most"}), "bias"),
        (write_adapter(tmp_path / "both", model, 1, config={"modules_to_save": ["lm_head"]}),
         "modules_to_save has lm_head.weight, but the file has no tensor of it"),
        (write_adapter(tmp_path / "kind", model, 1, config={"peft_type": "IA3"}), "peft_type"),
        (write_adapter(tmp_path / "other", model, 1, module="x_proj"), "x_proj"),
        (write_adapter(tmp_path / "wide", model, 1, module="k_proj"), "k_proj.lora_B"),
        # PEFT finds nothing of these in a model with a head, and computes as without them.
        (write_adapter(tmp_path / "headless", model, 1, within="layers"), "belong to nothing"),
        (write_adapter(tmp_path / "larger", model, 1, within="model.language_model.layers"),
         "belong to nothing"),
        (write_adapter(tmp_path / "deep", model, 1, more=[1]), "of rank 3 [1, 4], expected"),
        (write_adapter(tmp_path / "rank", model, 1, config={"r": 5}),
         "rank 4, but adapter_config.json gives it 5"),
        *((write_adapter(tmp_path / f"target{i}", model, 1, config=config),
           "is of no module that adapter_config.json has as a target")
          for i, config in enumerate(NO_TARGET)),
        *((write_adapter(tmp_path / f"odd{i}", model, 1, config=config), part)
          for i, (config, part) in enumerate(ODD)),
    ]
    for path, part in cases:
        answer = server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": str(path)})
        assert answer.status == 400 and part in answer.error["message"], answer
        assert answer.error["param"] == "lora_path"
    for body in ({}, {"lora_name": "x"}, {"lora_name": 7, "lora_path": "y"},
                 {"lora_name": "", "lora_path": "y"}, {"lora_name": "base", "lora_path": "y"}, []):
        assert server.post("/v1/load_lora_adapter", body).status == 400, body
    inplace = {"lora_name": "x", "lora_path": "y", "load_inplace": True}
    answer = server.post("/v1/load_lora_adapter", inplace)
    assert answer.status == 400 and answer.error["code"] == "unsupported_parameter"
    assert [c["id"] for c in server.get("/v1/models").json["data"]] == ["base"]


def test_adapters_need_an_admin_key(start, server, tmp_path):
    """Over TCP an admin key; without one a UNIX socket. A client key is not enough."""
    model = dummy_model(tmp_path / "model")
    body = {"lora_name": "one", "lora_path": str(write_adapter(tmp_path / "one", model, 1))}
    paths = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter",
             "/unload_lora_adapter")
    keyed = start(model, *FLAGS, "--allow-runtime-lora", *ADMIN, "--api-key", "client",
                  key="client")
    for path in paths:
        answer = keyed.post(path, body)
        assert answer.status == 403 and answer.error["code"] == "admin_key_required", answer
        assert answer.error["type"] == "permission_error"
        answer = server.post(path, body)
        assert answer.status == 403 and answer.error["code"] == "admin_key_required", answer
        assert "--admin-key" in answer.error["message"] and "--uds" in answer.error["message"]
    root = {"Authorization": "Bearer root"}
    assert keyed.post(paths[0], body, headers=root).status == 200
    assert keyed.post(paths[0], body, headers={"Authorization": "Bearer x"}).status == 401
    assert len(ids(keyed, "one")) == 24, "clients use what the operator has loaded"
    assert keyed.post(paths[1], body, headers=root).status == 200

    local = start(model, *FLAGS, "--allow-runtime-lora", uds=tmp_path / "s.sock")
    assert "every user who can open the UNIX socket can load adapters" in local.log()
    assert local.post(paths[0], body).status == 200
    assert local.post(paths[1], body).status == 200
    assert "no client can load adapters" in start(model, *FLAGS, "--allow-runtime-lora").log()


def test_adapters_are_off_unless_asked_for(start):
    server = start(DEMO, *ADMIN, key="root")
    answer = server.post("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "y"})
    assert answer.status == 400 and "--enable-lora" in answer.error["message"]


def test_the_adapters_in_use_are_a_metric(start, tmp_path):
    """Under both names; routers that know vLLM send a request where its adapter is already."""
    model = dummy_model(tmp_path / "model")
    first = write_adapter(tmp_path / "first", model, 1)
    server = start(model, *FLAGS, "--lora-modules", f"one={first}", "--max-loras", 2,
                   "--max-model-len", 8192)
    stream = Stream(server, {**BODY, "model": "one", "max_tokens": 8000})
    events = stream.events()
    next(events)
    for name in ("inferd_lora_requests_info", "vllm:lora_requests_info"):
        labels = [dict(of) for sample, of in server.metrics() if sample == name]
        assert [(of["running_lora_adapters"], of["max_lora"]) for of in labels] == [("one", "2")]
    stream.close()


def test_bodies_of_adapters_are_small(start):
    """They are parsed on the loop thread: 64 KiB, whatever other routes take."""
    server = start(DEMO, *FLAGS, "--allow-runtime-lora", *ADMIN, key="root")
    for path in ("/v1/load_lora_adapter", "/unload_lora_adapter"):
        body = {"lora_name": "x", "lora_path": ""}
        body["lora_path"] = "y" * ((64 << 10) - len(json.dumps(body)))
        answer = server.post(path, json.dumps(body))
        assert answer.status in (400, 404) and answer.error["param"] in ("lora_path", "lora_name")
        answer = server.post(path, json.dumps(body) + " ")
        assert answer.status == 413 and "65536" in answer.error["message"], answer
    prompt = json.dumps({"prompt": [1], "max_tokens": 1}) + " " * (64 << 10)
    assert server.post("/v1/completions", prompt).status == 200


def test_invocations_and_patterns_have_the_numbers_of_peft(start):
    """What peft#2609 and axolotl#3673 had on the disk, each with relatives
    (scripts/vectors/adapters.py); positions before the invocation are the base's to the bit."""
    vectors = ROOT / "tests/vectors/adapters"
    facts = json.loads((vectors / "expected.json").read_text())
    names = sorted({row["adapter"] for row in facts["rows"]} - {"base"})
    assert sum(name.startswith("invoked") for name in names) >= 6
    assert sum(name.startswith("patterns") for name in names) >= 6
    server = start(vectors, "--load-format", "dummy", "--seed", facts["seed"], "--enable-lora",
                   "--skip-tokenizer-init", "--served-model-name", "base",
                   "--lora-modules", ",".join(f"{name}={vectors / name}" for name in names))
    told = {}
    for row in facts["rows"]:
        body = {"model": row["adapter"], "prompt": row["prompt"], "max_tokens": 1,
                "prompt_logprobs": 0}
        answer = server.post("/v1/completions", body)
        assert answer.status == 200, answer
        rows = answer.json["choices"][0]["prompt_logprobs"][1:]
        found = [of[str(token)]["logprob"] for of, token in zip(rows, row["prompt"][1:])]
        worst = max(abs(a - b) for a, b in zip(found, row["scores"], strict=True))
        assert worst <= 1e-5 * facts["largest"], (row["adapter"], row["prompt"], worst)
        told[row["adapter"], tuple(row["prompt"])] = found
    of = {name: [prompt for adapter, prompt in told if adapter == name] for name in names}
    for name in names:
        same = [told[name, prompt] == told["base", prompt] for prompt in of[name]]
        assert any(same) <= name.startswith("invoked") and not all(same), (name, same)
    own = (5, 99, 1000, 77, 3000, 42)
    prompt = next(prompt for prompt in of["invoked"] if prompt[:6] == own)
    mine, base = told["invoked", prompt], told["base", prompt]
    assert mine[:4] == base[:4] and all(a != b for a, b in zip(mine[4:], base[4:]))
