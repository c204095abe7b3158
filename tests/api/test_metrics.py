"""/metrics: a page that Prometheus' own parser reads, whose numbers are those of the requests."""

import json
import re
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import DEMO, ROOT, Stream, samples, wait_until

GAUGES = ["inferd_requests_running", "inferd_requests_waiting", "inferd_kv_cache_usage_ratio",
          "inferd_kv_blocks", "inferd_engine_state", "inferd_connections", "inferd_build_info",
          "inferd_cache_config_info", "inferd_waiting_tokens", "inferd_last_step_age_seconds",
          "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
          "vllm:cache_config_info"]
COUNTERS = ["inferd_prompt_tokens", "inferd_generation_tokens", "inferd_requests",
            "inferd_sequences_finished", "inferd_aborted", "inferd_rejected",
            "inferd_http_requests", "inferd_log_dropped",
            "inferd_preemptions", "inferd_prefix_cache_queries",
            "inferd_prefix_cache_hits", "inferd_grammar_cache_hits", "inferd_grammar_masks",
            "inferd_grammar_cache_misses", "vllm:prompt_tokens", "vllm:generation_tokens",
            "vllm:request_success", "vllm:num_preemptions", "vllm:prefix_cache_queries",
            "vllm:prefix_cache_hits"]
HISTOGRAMS = ["inferd_time_to_first_token_seconds", "inferd_inter_token_latency_seconds",
              "inferd_e2e_request_latency_seconds", "inferd_queue_time_seconds",
              "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds",
              "vllm:e2e_request_latency_seconds"]


def families(server):
    page = server.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    return {f.name: f for f in text_string_to_metric_families(page.body.decode())}


def test_these_tests_read_a_page_as_prometheus_does(server):
    server.choice("Once", max_tokens=3)
    page = server.get("/metrics").body.decode()
    page += 'odd{of="a\\"}{,b=\\\\",to="\\\\n\\n",no=""} +Inf\nodd{of="{} 1"} 1.5e-7\nodd 3\n'
    theirs = {(sample.name, tuple(sorted(sample.labels.items()))): repr(float(sample.value))
              for family in text_string_to_metric_families(page) for sample in family.samples}
    ours = dict(samples(page))
    assert {key: repr(value) for key, value in ours.items()} == theirs
    assert len(theirs) > 500 and ours["odd", ()] == 3
    assert dict(samples(page, ("odd",))) == {key: value for key, value in ours.items()
                                             if key[0] == "odd"}


@pytest.mark.parametrize("kind,names", [("gauge", GAUGES), ("counter", COUNTERS),
                                        ("histogram", HISTOGRAMS)])
def test_families(server, kind, names):
    server.choice("Once", max_tokens=3)
    found = families(server)
    missing = [n for n in names if n not in found]
    assert not missing
    wrong = [n for n in names if found[n].type != kind]
    assert not wrong
    assert all(found[n].documentation for n in names)


def test_costs_of_a_step_are_learned(server):
    server.choice("Once", max_tokens=20, ignore_eos=True)
    samples = families(server)["inferd_step_cost_seconds"].samples
    costs = {s.labels["part"]: s.value for s in samples}
    assert set(costs) == {"step", "row", "token", "key", "pair"}
    assert sum(costs.values()) > 0 and min(costs.values()) >= 0, costs


def test_histograms_are_cumulative(server):
    server.choice("Once", max_tokens=3)
    for family in families(server).values():
        if family.type != "histogram":
            continue
        series = {}
        for sample in family.samples:
            labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            series.setdefault(labels, []).append(sample)
        for samples in series.values():
            buckets = [s.value for s in samples if s.name.endswith("_bucket")]
            count = [s.value for s in samples if s.name.endswith("_count")]
            assert buckets == sorted(buckets), family.name
            assert buckets[-1] == count[0], family.name


def test_no_series_twice(server):
    lines = [line.rsplit(" ", 1)[0] for line in server.get("/metrics").body.decode().splitlines()
             if line and not line.startswith("#")]
    assert len(lines) == len(set(lines))


def test_numbers_are_those_of_the_requests(start):
    server = start(DEMO)
    prompt = server.tokens("Once upon a time there was a fox")
    for _ in range(3):
        server.complete(prompt, max_tokens=7, ignore_eos=True)
    server.complete([prompt, prompt], max_tokens=5, ignore_eos=True)
    Stream(server, {"prompt": prompt, "max_tokens": 4, "ignore_eos": True}).chunks()
    server.post("/v1/completions", {})
    wait_until(server.idle, "idle", context=server.usage)
    metric = server.metric
    assert metric("inferd_prompt_tokens_total") == 6 * len(prompt)
    assert metric("inferd_generation_tokens_total") == 3 * 7 + 2 * 5 + 4
    assert metric("vllm:generation_tokens_total") == 3 * 7 + 2 * 5 + 4
    assert metric("inferd_sequences_finished_total", finished_reason="length") == 6
    assert metric("inferd_requests_total") == 5
    assert metric("inferd_rejected_total") == 1
    assert metric("inferd_time_to_first_token_seconds_count") == 6
    assert metric("inferd_inter_token_latency_seconds_count") == 3 * 6 + 2 * 4 + 3
    assert metric("inferd_http_requests_total", route="/v1/completions", code="200") == 5
    assert metric("inferd_http_requests_total", route="/v1/completions", code="400") == 1


@pytest.mark.parametrize("route,body", [("/v1/completions", {"prompt": "Once"}), (
    "/v1/chat/completions", {"messages": [{"role": "user", "content": "Once"}]})])
def test_every_generation_request_is_ended_or_rejected(start, route, body):
    server = start(DEMO, "--api-key", "k", "--max-body-bytes", 2000, key="k")
    assert server.post(route, {**body, "max_tokens": 2, "n": 2}).status == 200
    refused = [({"Authorization": "Bearer x"}, body, 401, "auth"),
               ({"Content-Type": "text/plain"}, body, 415, "invalid"),
               ({}, {**body, "user": "u" * 3000}, 413, "too_large"),
               ({}, {}, 400, "invalid"),
               ({}, {**body, "mirostat": 2}, 400, "unsupported")]
    for headers, sent, status, _ in refused:
        assert server.post(route, sent, headers=headers).status == status
    expected = Counter(reason for *_, reason in refused)
    wait_until(lambda: server.metric("inferd_rejected_total") == len(refused), "the last count",
               context=lambda: server.get("/metrics").body.decode())
    for reason, count in expected.items():
        assert server.metric("inferd_rejected_total", reason=reason) == count, reason
    assert server.metric("inferd_requests_total") == 1
    assert server.metric("inferd_requests_total", route=route) == 1
    assert server.metric("inferd_http_requests_total", route=route) == len(refused) + 1
    assert server.metric("inferd_sequences_finished_total") == 2
    assert server.metric("vllm:request_success_total") == 2
    assert server.metric("inferd_e2e_request_latency_seconds_count") == 2
    keyless = start(DEMO)
    assert keyless.post(route, body, headers={"Host": "evil.example"}).status == 403
    wait_until(lambda: keyless.metric("inferd_rejected_total", reason="host") == 1, "the count")


def buckets(server, name):
    """{upper bound: steps at most that large}, sum and count of a histogram."""
    samples = families(server)[name].samples
    last = {s.name: s.value for s in samples}
    return ({float(s.labels["le"]): s.value for s in samples if s.name == f"{name}_bucket"},
            last[f"{name}_sum"], last[f"{name}_count"])


@pytest.mark.parametrize("name", ["vllm:iteration_tokens_total", "inferd_iteration_tokens"])
def test_steps_are_counted_by_their_tokens(start, name):
    server = start(DEMO)
    prompts, generated = ["Once", "A longer text, of some more tokens " * 2], 7
    lengths = [len(server.tokens(prompt)) for prompt in prompts]
    for prompt in prompts:
        server.complete(prompt, max_tokens=generated, ignore_eos=True)
    counts, total, steps = buckets(server, name)
    assert list(counts) == [1, *(2 ** k for k in range(3, 15)), float("inf")]
    assert (total, steps) == (sum(lengths) + 2 * generated, 2 * generated) \
        or name == "inferd_iteration_tokens"
    sizes = [1] * (2 * (generated - 1)) + [length + (name[0] == "v") for length in lengths]
    if name == "inferd_iteration_tokens":  # what was computed: the last token never is
        assert (total, steps) == (sum(sizes), len(sizes))
    assert counts == {bound: sum(size <= bound for size in sizes) for bound in counts}


def test_who_waits_for_a_limit_of_its_key_is_deferred(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-narrow narrow max_running=1\nsk-wide wide\n")
    keys.chmod(0o600)
    server = start(DEMO, "--api-key-file", keys, "--max-num-seqs", 2)
    body = json.dumps({"prompt": "Once", "max_tokens": 1500, "ignore_eos": True})

    def send(key):
        connection = server.connection()
        connection.request("POST", "/v1/completions", body, {
            "Content-Type": "application/json", "Authorization": f"Bearer {key}"})
        return connection

    def waiting():
        """(capacity, deferred, running), of one scrape; both sets of names agree."""
        metrics = {(name, dict(labels).get("reason")): value
                   for (name, labels), value in server.metrics().items()}
        own, vllm = ([metrics[name, reason] for reason in ("capacity", "deferred")] for name in
                     ("inferd_requests_waiting_by_reason", "vllm:num_requests_waiting_by_reason"))
        assert own == vllm and sum(own) == metrics["inferd_requests_waiting", None]
        return *own, metrics["inferd_requests_running", None]

    open_ones = [send("sk-narrow") for _ in range(8)]
    seen = []
    wait_until(lambda: seen.append(waiting()) or seen[-1][1] > 1, "deferred ones",
               context=server.usage)
    assert all(running <= 1 for _, deferred, running in seen if deferred), seen
    open_ones += [send("sk-wide") for _ in range(8)]
    wait_until(lambda: min(waiting()) >= 1, "both reasons", context=server.usage)
    for connection in open_ones:
        connection.close()
    wait_until(server.idle, "idle", context=server.usage)
    assert waiting() == (0, 0, 0)


def test_tokens_of_a_key_are_counted_as_they_come(start, slow_model, tmp_path):
    """While a stream runs, so that its key has a rate, and each of them once."""
    keys = tmp_path / "keys"
    keys.write_text("sk-one one\n")
    keys.chmod(0o600)
    server = start(slow_model, "--load-format", "dummy", "--api-key-file", keys, key="sk-one")

    def used():
        return [server.metric(f"inferd_key_{kind}_tokens_total", key="one")
                for kind in ("prompt", "generation")]

    prompt = server.tokens("Once upon a time")
    stream = Stream(server, {"prompt": prompt, "max_tokens": 8000, "ignore_eos": True})
    next(stream.events())
    before = used()
    assert before[0] == len(prompt) and 0 < before[1] < 8000, "it has not ended"
    stream.close()
    wait_until(server.idle, "idle", context=server.usage)
    assert used() == [len(prompt), server.metric("inferd_generation_tokens_total")]
    for body in ({"n": 3, "max_tokens": 5}, {"use_beam_search": True, "n": 2, "max_tokens": 5}):
        before = used()
        answer = server.post("/v1/completions", {"prompt": prompt, "ignore_eos": True, **body})
        told = answer.json["usage"]
        assert used() == [before[0] + len(prompt), before[1] + told["completion_tokens"]], body


def test_block_states_add_up(server):
    stream = Stream(server, {"prompt": "Once", "max_tokens": 200, "ignore_eos": True})
    events = stream.events()
    next(events)
    total = None
    for _ in range(20):
        metrics = server.metrics()
        blocks = {dict(k[1])["state"]: v for k, v in metrics.items() if k[0] == "inferd_kv_blocks"}
        assert set(blocks) == {"free", "cached", "used"}
        total = total or sum(blocks.values())
        assert sum(blocks.values()) == total
        next(events, None)
    stream.close()


def test_usage_is_zero_when_idle_although_blocks_are_cached(server):
    server.complete("A long enough prompt to fill a few blocks of the cache. " * 8, max_tokens=2)
    wait_until(server.idle, "idle", context=server.usage)
    assert server.metric("inferd_kv_blocks", state="cached") > 0
    assert server.metric("inferd_kv_cache_usage_ratio") == 0
    assert server.metric("vllm:kv_cache_usage_perc") == 0


def test_no_client_string_becomes_a_label(server):
    server.post("/v1/completions", {"prompt": "a", "model": "evil-name-1"})
    server.get("/evil-path-2")
    server.request("EVILMETHOD", "/v1/models")
    page = server.get("/metrics").body
    assert b"evil-name-1" not in page and b"evil-path-2" not in page and b"EVILMETHOD" not in page


def test_counters_never_fall(server):
    def counters():
        return {(f.name, s.name, tuple(sorted(s.labels.items()))): s.value
                for f in families(server).values() if f.type in ("counter", "histogram")
                for s in f.samples if not s.name.endswith("_sum")}

    before = counters()
    server.choice("Once", max_tokens=3)
    after = counters()
    assert all(after[key] >= value for key, value in before.items())
    assert after != before


def test_a_constraint_that_comes_again_is_compiled_once(server):
    def count(name):
        return families(server)[name].samples[0].value

    names = ["inferd_grammar_cache_hits", "inferd_grammar_cache_misses", "inferd_grammar_masks"]
    schema = {"type": "array", "items": {"enum": ["metrics", "cache"]}, "maxItems": 3}
    before = [count(name) for name in names]
    for _ in range(3):
        server.choice("Once", max_tokens=3, structured_outputs={"json": schema})
    hits, misses, masks = (count(name) - was for name, was in zip(names, before))
    assert (hits, misses) == (2, 1)
    assert masks >= 3


def documented():
    """name -> (type, labels) by docs/metrics.md; labels are None where it does not say them."""
    found = {}
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `"):
            continue
        labels = set(re.findall(r"`(\w+)`", cells[2])) if len(cells) == 5 else None
        found[cells[0].strip("`")] = (cells[1], labels)
        if len(cells) == 5 and cells[3]:
            found[cells[3].strip("`")] = (cells[1], None)
    return found


def test_the_reference_is_the_page(server):
    server.choice("Once", max_tokens=3)
    page = server.get("/metrics").body.decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE))
    reference = documented()
    assert types == {name: reference[name][0] for name in types}
    of_swapping = {"inferd_requests_swapped", "vllm:num_requests_swapped",
                   "vllm:cpu_cache_usage_perc"}
    of_keys = {f"inferd_key_{what}_total" for what in
               ("requests", "prompt_tokens", "generation_tokens", "refused")}
    of_drafts = {"inferd_spec_decode_accepted_tokens_per_pos_total",
                 "vllm:spec_decode_num_accepted_tokens_per_pos_total",
                 "inferd_spec_decode_info", "inferd_spec_decode_withheld_total"}
    of_adapters = {"inferd_lora_requests_info", "vllm:lora_requests_info"}
    of_events = {"inferd_kv_event_batches_total", "inferd_kv_events_dropped_total"}
    of_traces = {"inferd_traces_total"}
    of_store = {name for name in reference
                if name.startswith(("inferd_store_", "inferd_background_", "inferd_batch",
                                    "inferd_journal_"))}
    of_models = {name for name in reference if name.startswith("inferd_model_")} - set(types)
    assert len(of_models) == 7
    of_sight = {"inferd_images_total", "inferd_image_seconds_total",
                "inferd_sounds_total", "inferd_sound_tower_seconds_total",
                "inferd_encoder_runs_total", "inferd_encoder_seconds_total"}
    of_floors = {name for name in reference if "_cache_floor_" in name}
    of_tls = {name for name in reference if name.startswith("inferd_tls_")}
    of_ranks = {name for name in reference if name.startswith(("inferd_rank", "inferd_replica"))}
    assert (set(reference) - set(types) ==
            of_swapping | of_keys | of_drafts | of_adapters | of_events | of_traces | of_tls |
            of_floors | of_ranks | of_store | of_sight | of_models)
    seen = {}
    for name, labels in re.findall(r"^([\w:]+)(?:\{(.*)\})? \S+$", page, re.MULTILINE):
        family = name if name in types else re.sub(r"_(bucket|sum|count)$", "", name)
        seen.setdefault(family, set()).update(re.findall(r'(?:^|,)(\w+)="', labels))
    for family, labels in seen.items():
        if reference[family][1] is not None:
            assert labels - {"model", "le"} == reference[family][1], family
