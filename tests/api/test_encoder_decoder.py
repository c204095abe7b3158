"""Models of an encoder and a decoder: tiny random ones beside transformers (tests/vectors/crossed),
the same bits however they are computed, and what is refused."""

import concurrent.futures
import json
import shutil
import subprocess

import pytest

from harness import ROOT, Stream, wait_until

FOLDERS = sorted(p.parent for p in (ROOT / "tests/vectors/crossed").glob("*/expected.json"))
EXPECTED = {d.name: json.loads((d / "expected.json").read_text()) for d in FOLDERS}
T5, BART = ROOT / "tests/vectors/crossed/t5", ROOT / "tests/vectors/crossed/bart"
TOKENS = 24


def post(server, prompt, **fields):
    return server.post("/v1/completions", {
        "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "logprobs": 0,
        "return_token_ids": True, **fields})


def parts(choice):
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def ask(server, prompt, **fields):
    """(ids, log-probabilities) of the first choice."""
    answer = post(server, prompt, **fields)
    assert answer.status == 200, answer
    return parts(answer.json["choices"][0])


def certain(ids, gaps):
    """How many of the reference's greedy ids rounding cannot change."""
    unsure = [i for i, gap in enumerate(gaps) if gap < 1e-3]
    return unsure[0] if unsure else len(ids)


@pytest.mark.parametrize("case", FOLDERS, ids=lambda case: case.name)
def test_greedy_as_transformers(start, case):
    expected, server = EXPECTED[case.name], start(case)
    for text, source, right in zip(expected["texts"], expected["sources"], expected["greedy"],
                                   strict=True):
        answer = post(server, text)
        assert answer.status == 200, answer
        ids, logprobs = parts(answer.json["choices"][0])
        sure = certain(right["ids"], right["gaps"])
        assert sure > 0
        assert ids[:sure] == right["ids"][:sure]
        assert logprobs[:sure] == pytest.approx(right["logprobs"][:sure], abs=1e-4, rel=1e-4)
        if sure == len(right["ids"]):
            ended = right["ids"][-1] == source[-1]
            assert answer.json["choices"][0]["finish_reason"] == ("stop" if ended else "length")
            assert len(ids) == len(right["ids"])
        usage = answer.json["usage"]
        assert usage["prompt_tokens"] == len(source) + len(expected["start"])
        assert answer.json["choices"][0]["prompt_token_ids"] == source
        assert (ids, logprobs) == ask(server, source), "a prompt of ids is the same prompt"


@pytest.mark.parametrize("case", FOLDERS, ids=lambda case: case.name)
def test_beams_as_transformers(start, case):
    expected, server = EXPECTED[case.name], start(case)
    for search in expected["beams"]:
        settings, found = search["settings"], search["found"]
        answer = server.post("/v1/completions", {
            "prompt": expected["sources"][0], "max_tokens": TOKENS, "use_beam_search": True,
            "n": settings["num_beams"], "length_penalty": settings["length_penalty"],
            "early_stopping": settings["early_stopping"], "return_token_ids": True})
        assert answer.status == 200, answer
        ids = [choice["token_ids"] for choice in answer.json["choices"]]
        first = len(expected["start"])
        assert ids == [f["ids"][first:] for f in found], settings


def test_bits_do_not_depend_on_the_batch(start):
    prompts = [*EXPECTED["t5"]["texts"], "a " * 200, "b", "c d e f " * 30]
    server = start(T5, "--max-num-seqs", 8)
    alone = [ask(server, prompt, ignore_eos=True) for prompt in prompts]
    body = post(server, prompts * 2, ignore_eos=True).json["choices"]
    assert [parts(choice) for choice in body] == alone * 2
    other = start(T5, "--threads", 1, "--block-size", 4, "--no-enable-prefix-caching")
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda p: ask(other, p, ignore_eos=True), prompts)) == alone


def test_choices_and_requests_share_a_run_of_the_encoder(start):
    server = start(BART)
    source = EXPECTED["bart"]["sources"][0]
    first = ask(server, source)
    assert server.metric("inferd_encoder_runs_total") == 1
    answer = post(server, source, n=4)
    assert [parts(choice) for choice in answer.json["choices"]] == [first] * 4
    assert post(server, source, n=3, use_beam_search=True).status == 200
    assert server.metric("inferd_encoder_runs_total") == 1, "the same source again"
    ask(server, source[:-2] + source[-1:])
    assert server.metric("inferd_encoder_runs_total") == 2
    salted = ask(server, source, cache_salt="mine")
    assert salted == first
    assert server.metric("inferd_encoder_runs_total") == 3, "another cache domain"


def test_two_sources_and_one_long_decoder_prompt(start):
    """Blocks of the prefix cache hold what a decoder made behind one source."""
    server = start(BART, "--block-size", 4)
    plain = start(BART, "--block-size", 4, "--no-enable-prefix-caching")
    one, two, _ = EXPECTED["bart"]["sources"]
    prompt = EXPECTED["bart"]["greedy"][0]["ids"][:3] * 5

    def cached(source):
        answer = post(server, source, decoder_prompt=prompt).json
        return (parts(answer["choices"][0]),
                answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    right = [ask(plain, source, decoder_prompt=prompt) for source in (one, two)]
    assert right[0] != right[1]
    assert cached(one) == (right[0], 0)
    assert cached(two) == (right[1], 0), "another source has another domain"
    made, hits = cached(one)
    assert made == right[0] and hits >= 12


def test_preempted_requests_give_the_same_tokens(start):
    sources = [[5 + i, 40 + 3 * i, 9, 438] for i in range(6)]
    calm = start(T5, "--block-size", 4)
    right = [ask(calm, source, ignore_eos=True) for source in sources]
    tight = start(T5, "--block-size", 4, "--num-blocks", 14, "--max-model-len", 40,
                  "--max-num-seqs", 6)
    made = post(tight, sources, ignore_eos=True)
    assert [parts(choice) for choice in made.json["choices"]] == right
    assert tight.metric("inferd_preemptions_total") > 0


def test_more_sources_than_their_blocks_hold(start):
    """One of the longest sources fits beside nothing else: the others wait for its blocks."""
    server = start(BART, "--block-size", 16, "--num-blocks", 6, "--max-num-seqs", 4)
    sources = [[10 + i] * 90 for i in range(5)]
    alone = [ask(server, source, ignore_eos=True, max_tokens=8) for source in sources]
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        made = list(pool.map(lambda s: ask(server, s, ignore_eos=True, max_tokens=8), sources * 2))
    assert made == alone * 2


def test_a_client_that_leaves(start):
    server = start(BART)
    for source in ([7] * 96, [8] * 96):
        stream = Stream(server, {"prompt": source, "max_tokens": 90, "ignore_eos": True})
        stream.close()
    wait_until(server.idle, "the server to be idle", context=server.usage)
    assert ask(server, EXPECTED["bart"]["sources"][0])


def test_streams(start):
    server = start(T5)
    text = EXPECTED["t5"]["texts"][0]
    whole = post(server, text).json["choices"][0]["text"]
    stream = Stream(server, {"prompt": text, "max_tokens": TOKENS})
    made = "".join(chunk["choices"][0]["text"] for chunk in stream.chunks() if chunk["choices"])
    assert made == whole


@pytest.mark.parametrize("fields, param, says", [
    ({"prompt": [3] * 97}, "prompt", "encoder reads at most 96 tokens"),
    ({"prompt": "x", "echo": True}, "echo", "does not continue it"),
    ({"prompt": "x", "suffix": "y"}, "suffix", "not supported"),
    ({"prompt": "x", "prompt_logprobs": 1}, "prompt_logprobs", "does not continue it"),
    ({"prompt": "x", "target_lang": "deu_Latn"}, "target_lang", "marks no languages"),
    ({"prompt": "x", "source_lang": "deu_Latn"}, "source_lang", "marks no languages"),
    ({"prompt": "x", "decoder_prompt": 3}, "decoder_prompt", "a string or an array"),
    ({"prompt": "x", "decoder_prompt": [524]}, "decoder_prompt", "524"),
    ({"prompt": ""}, "prompt", "non-empty"),
])
def test_refused(start, fields, param, says):
    server = start(BART)
    answer = server.post("/v1/completions", fields)
    assert answer.status == 400, answer
    assert answer.error["param"] == param and says in answer.error["message"], answer


def test_a_source_as_long_as_the_encoder_reads(start):
    server = start(BART)
    assert len(ask(server, [3] * 96, max_tokens=3, ignore_eos=True)[0]) == 3
    answer = server.post("/v1/completions", {"prompt": [3], "max_tokens": 95})
    assert answer.status == 400 and "context length is 96" in answer.error["message"], answer
    assert server.post("/v1/completions", {"prompt": [3], "max_tokens": 94}).status == 200


def test_other_routes_and_other_models(start, server):
    served = start(T5)
    chat = served.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
    assert chat.error["code"] == "unsupported_endpoint"
    assert "/v1/completions" in chat.error["message"]
    for field in ("source_lang", "target_lang", "decoder_prompt"):
        answer = server.post("/v1/completions", {"prompt": "x", field: "y"})
        assert answer.status == 400 and answer.error["param"] == field, answer


EN, DE = 100, 101


def languages(folder, case, is_last, **config):
    """The model of a case, whose tokenizer puts a language around a text: before or behind it."""
    shutil.copytree(ROOT / "tests/vectors/crossed" / case, folder)
    made = json.loads((folder / "tokenizer.json").read_text())
    for name, index in ("en_XX", EN), ("de_DE", DE):
        made["model"]["vocab"][index][0] = name
        made["added_tokens"].append({**made["added_tokens"][0], "id": index, "content": name})
    made["added_tokens"].sort(key=lambda token: token["id"])
    post = made["post_processor"]
    language = {"SpecialToken": {"id": "en_XX", "type_id": 0}}
    text, stop = post["single"][1:]
    post["single"] = [text, stop, language] if is_last else [language, text, stop]
    post["special_tokens"]["en_XX"] = {"id": "en_XX", "ids": [EN], "tokens": ["en_XX"]}
    (folder / "tokenizer.json").write_text(json.dumps(made))
    for file in ("config.json", "generation_config.json"):
        values = json.loads((folder / file).read_text())
        for name, value in config.items():
            values[name] = value
            if value is None:
                values.pop(name)
        (folder / file).write_text(json.dumps(values))
    return folder


def test_languages_before_a_text(start, tmp_path):
    """As NLLB and M2M100 have it: the decoder is made to begin with the language."""
    server = start(languages(tmp_path / "model", "m2m100", False))
    plain = post(server, "Ja.").json["choices"][0]
    assert plain["prompt_token_ids"][0] == EN
    ids = [DE, *plain["prompt_token_ids"][1:]]
    answer = post(server, "Ja.", source_lang="de_DE").json["choices"][0]
    assert answer["prompt_token_ids"] == ids and parts(answer) == ask(server, ids)
    made = post(server, "Ja.", target_lang="de_DE")
    assert made.json["usage"]["prompt_tokens"] == len(ids) + 2
    assert parts(made.json["choices"][0]) == ask(server, "Ja.", decoder_prompt=[DE])
    for field in ("source_lang", "target_lang"):
        answer = post(server, "Ja.", **{field: "xx_YY"})
        assert answer.status == 400 and answer.error["param"] == field, answer
        assert "xx_YY" in answer.error["message"]


def test_languages_behind_a_text(start, tmp_path):
    """As mBART has it: the decoder starts with the language, which a request must name."""
    server = start(languages(tmp_path / "model", "mbart", True, decoder_start_token_id=None))
    answer = post(server, "Ja.")
    assert answer.status == 400 and answer.error["param"] == "target_lang", answer
    made = post(server, "Ja.", target_lang="de_DE")
    assert made.status == 200, made
    source = made.json["choices"][0]["prompt_token_ids"]
    assert source[-1] == EN and made.json["usage"]["prompt_tokens"] == len(source) + 1
    fixed = start(languages(tmp_path / "fixed", "mbart", True, decoder_start_token_id=DE))
    assert parts(made.json["choices"][0]) == ask(fixed, "Ja.")


def test_beams_of_the_files_are_the_default(start, tmp_path):
    """Unless the request says how tokens are chosen."""
    shutil.copytree(T5, tmp_path / "model")
    path = tmp_path / "model/generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_beams": 4,
                                "length_penalty": 2.0, "early_stopping": True}))
    server = start(tmp_path / "model")
    source, search = EXPECTED["t5"]["sources"][0], EXPECTED["t5"]["beams"][2]
    answer = server.post("/v1/completions", {"prompt": source, "max_tokens": TOKENS,
                                             "return_token_ids": True})
    assert answer.json["choices"][0]["token_ids"] == search["found"][0]["ids"][1:]
    assert ask(server, source) == ask(start(T5), source), "temperature 0 is greedy"
    stream = Stream(server, {"prompt": source, "max_tokens": 4})
    assert list(stream.chunks())


def test_ids_that_files_ban(start, tmp_path):
    """As Marian's files ban the padding; with a bias of the logits, and without one."""
    for case in "marian", "m2m100":
        first = EXPECTED[case]["greedy"][0]["ids"][0]
        shutil.copytree(ROOT / "tests/vectors/crossed" / case, tmp_path / case)
        path = tmp_path / case / "generation_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()),
                                    "bad_words_ids": [[first], [3, 4]]}))
        server = start(tmp_path / case)
        ids, logprobs = ask(server, EXPECTED[case]["sources"][0])
        assert first not in ids and all(-30 < value < 0 for value in logprobs)
        assert "bad_words_ids" in server.log()


@pytest.mark.parametrize("flags, says", [
    (("--data-parallel-size", 2), "data_parallel_size"),
    (("--enable-lora",), "enable_lora"),
    (("--num-speculative-tokens", 2), "num_speculative_tokens"),
    (("--swap-space", 1), "swap_space"),
    (("--task", "embed"), "task"),
])
def test_refused_at_start(inferd, flags, says):
    done = subprocess.run([inferd, "check", str(T5), *map(str, flags)], capture_output=True,
                          text=True)
    assert done.returncode != 0 and says in done.stdout + done.stderr, done


def test_check_says_what_it_is(inferd):
    done = subprocess.run([inferd, "check", str(BART)], capture_output=True, text=True)
    assert done.returncode == 0, done
    assert "encoder" in done.stdout and "/v1/completions" in done.stdout, done.stdout
