"""Sounds in requests of chat to a tiny random model that hears: the same bits however they are
computed, and what is refused. tests/parity/parity_heard.py compares the answers with
transformers'."""

import base64
import concurrent.futures
import random

import openai
import pytest

import hearing
import listening
import seeing
from harness import PATIENCE, Server, Stream, run, wait_until
from media_host import MediaHost, trusted

BLOCK = 16
A, B, C = hearing.wav(1.5, 1), hearing.wav(0.7, 2), hearing.wav(1.5, 3)
TOKENS = 37  # of A: 150 rows of the spectrogram, 75 positions


def user(*parts):
    return {"role": "user", "content": [{"type": "text", "text": part} if isinstance(part, str)
                                        else part if isinstance(part, dict)
                                        else listening.part(part) for part in parts]}


def post(server, *messages, **fields):
    return server.post("/v1/chat/completions", {
        "messages": list(messages), "max_tokens": 8, "temperature": 0, "logprobs": True,
        "return_token_ids": True, "ignore_eos": True, **fields})


def ask(server, *messages, **fields):
    """([(ids, log-probabilities) of each choice], cached tokens)"""
    answer = post(server, *messages, **fields)
    assert answer.status == 200, answer
    made = answer.json
    return [(choice["token_ids"], [e["logprob"] for e in choice["logprobs"]["content"]])
            for choice in made["choices"]], made["usage"]["prompt_tokens_details"]["cached_tokens"]


LONG = [user("first", A), {"role": "assistant", "content": "a bird"}, user("then", B, C, "?")]
QUESTIONS = [LONG, [user(A, "what is this")], [user("compare", C, B)], [user("only words")],
             [user(B, B)]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return listening.make(tmp_path_factory.mktemp("listening") / "model")


@pytest.fixture(scope="module")
def listener(inferd, model):
    server = Server(inferd, model, "--served-model-name", "listener")
    yield server
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "the ledger to be empty")
    assert server.stop() == 0, server.log()


@pytest.fixture
def server(listener):
    yield listener
    assert listener.alive(), listener.log()
    wait_until(listener.idle, "the server to be idle again", context=listener.usage)


# ---- the same bits ----

def test_bits_do_not_depend_on_steps_others_and_blocks(start, model):
    """Prompts in steps of few tokens, all at once, in so few blocks that choices are preempted."""
    plain = start(model, "--no-enable-prefix-caching")
    alone = [ask(plain, *question)[0] for question in QUESTIONS]
    assert len({str(answer) for answer in alone}) == len(alone)
    longest = post(plain, *LONG).json["usage"]["prompt_tokens"]
    blocks = (longest + 150) // BLOCK + 4
    few = start(model, "--max-num-batched-tokens", 24, "--max-num-seqs", 4,
                "--num-blocks", blocks, "--max-model-len", (blocks - 2) * BLOCK)
    for turn in range(20):  # until some were preempted: a slow machine may compute one at a time
        with concurrent.futures.ThreadPoolExecutor(len(QUESTIONS)) as pool:
            made = list(pool.map(lambda q: ask(few, *q, max_tokens=140, n=3,
                                               cache_salt=str(turn))[0], QUESTIONS))
        for got, expected in zip(made, alone):
            assert [(ids[:8], scores[:8]) for ids, scores in got] == expected * 3
        if few.metric("inferd_preemptions_total") > 0:
            break
    assert few.metric("inferd_preemptions_total") > 0
    assert few.metric("inferd_sounds_total") >= 3
    assert few.metric("inferd_sound_tower_seconds_total") > 0


def test_choices_and_beams(server):
    alone, _ = ask(server, *LONG)
    drawn, _ = ask(server, *LONG, n=3, temperature=0.8, seed=5)
    assert drawn == ask(server, *LONG, n=3, temperature=0.8, seed=5, cache_salt="other")[0]
    assert ask(server, *LONG, n=2)[0] == alone * 2
    assert ask(server, *LONG, use_beam_search=True, n=1)[0] == alone


def test_the_second_question_about_a_sound_is_a_hit(server):
    first, _ = ask(server, user(B, "what is this"), cache_salt="second")
    heard = server.metric("inferd_sounds_total")
    made = post(server, user(B, "what is that"), cache_salt="second").json
    tokens = made["usage"]["prompt_tokens"]
    assert made["usage"]["prompt_tokens_details"]["cached_tokens"] > tokens - 40 > BLOCK
    assert server.metric("inferd_sounds_total") == heard, "its rows were kept"
    assert ask(server, user(B, "what is this"), cache_salt="second")[0] == first


def test_sounds_of_the_same_length_share_nothing(server):
    """A and C have the same ids."""
    a, _ = ask(server, user(A, "what"), cache_salt="lengths")
    before = post(server, user("what"), cache_salt="lengths").json["usage"]["prompt_tokens"]
    c, cached = ask(server, user(C, "what"), cache_salt="lengths")
    assert a != c and cached < before


def test_a_file_of_another_kind_with_the_same_samples(server):
    """16 and 24 bits of the same values: other keys, the same rows, the same bits."""
    values = hearing.samples(0.5, 4)
    short = hearing.wav_of(b"".join(value.to_bytes(2, "little", signed=True) for value in values))
    long = hearing.wav_of(b"".join((value << 8).to_bytes(3, "little", signed=True)
                                   for value in values), bits=24)
    assert ask(server, user(short, "a"))[0] == ask(server, user(long, "a"))[0]


# ---- sounds of several windows ----

def test_a_long_sound_is_windows(start, tmp_path):
    """Of Voxtral: 375 tokens for each 30 s that are begun, together in the place of one sound."""
    model = listening.make(tmp_path / "voxtral", kind="voxtral")
    server = start(model)
    long = hearing.wav_of(bytes(random.Random(1).randbytes(2 * 480001)))
    made = post(server, user(long, B, "what")).json
    assert made["usage"]["prompt_tokens_details"]["audio_tokens"] == 3 * 375
    assert made["prompt_token_ids"].count(listening.PAD) == 3 * 375
    first, _ = ask(server, user(long, B, "what"), cache_salt="cold")
    few = start(model, "--max-num-batched-tokens", 64, "--max-num-seqs", 4)
    assert ask(few, user(long, B, "what"))[0] == first
    heard = server.metric("inferd_sounds_total")
    again, cached = ask(server, user(long, "who"), cache_salt="cold")
    assert cached > 700 and server.metric("inferd_sounds_total") == heard
    assert again == ask(few, user(long, "who"))[0]
    short = start(model, "--max-audio-seconds", 20)
    assert "20 s" in place(short, hearing.wav_of(b"\1\0" * 320001))["message"]


def test_windows_with_spectrograms_of_their_own(start, tmp_path):
    """Of Audio Flamingo 3 and GLM-ASR: tokens end with the sound; the last window may have none."""
    for kind, each, tokens in (("audioflamingo3", 750, 37), ("glmasr", 375, 18)):
        server = start(listening.make(tmp_path / kind, kind=kind))
        long = random.Random(2).randbytes(2 * 480000)
        made = post(server, user(hearing.wav_of(long), "what")).json["usage"]
        assert made["prompt_tokens_details"]["audio_tokens"] == each
        made = post(server, user(hearing.wav_of(long + bytes(320)), "what")).json["usage"]
        assert made["prompt_tokens_details"]["audio_tokens"] == each, "a row is no token"
        both = user(hearing.wav_of(long + A[44:]), "what")
        made = post(server, both).json["usage"]
        assert made["prompt_tokens_details"]["audio_tokens"] == each + tokens
        few = start(tmp_path / kind, "--max-num-batched-tokens", 64, "--max-num-seqs", 4)
        assert ask(few, both)[0] == ask(server, both, cache_salt="cold")[0]


def test_a_sound_is_heard_by_chunks(start, tmp_path):
    """Of Qwen3-ASR: 13 tokens a second, in windows of 112 s that nothing shows."""
    model = listening.make(tmp_path / "qwen3_asr", kind="qwen3_asr")
    server, few = start(model), start(model, "--max-num-batched-tokens", 64, "--max-num-seqs", 4)
    for samples, tokens in ((1, 7), (8000, 7), (16000, 13), (16160, 14), (112 * 16000, 1456),
                            (113 * 16000 + 1600, 1456 + 13 + 2)):
        sound = hearing.wav_of(random.Random(samples).randbytes(2 * samples))
        made = post(server, user("who", sound, "what")).json["usage"]
        assert made["prompt_tokens_details"]["audio_tokens"] == tokens, samples
        assert (ask(few, user("who", sound, "what"))[0]
                == ask(server, user("who", sound, "what"), cache_salt="cold")[0])
    own = listening.respell(model, tmp_path / "own")
    assert ask(start(own), user(A, "what"))[0] == ask(server, user(A, "what"))[0]


# ---- dialects ----

def test_usage_and_counts(server):
    made = post(server, user(A, "what", B)).json["usage"]
    assert made["prompt_tokens_details"]["audio_tokens"] == TOKENS + 17
    counted = server.post("/tokenize", {"messages": [user(A, "what", B)]}).json
    assert counted["count"] == made["prompt_tokens"]
    assert counted["tokens"].count(listening.PAD) == TOKENS + 17
    text = post(server, user("what")).json["usage"]
    assert text["prompt_tokens_details"]["audio_tokens"] == 0


def test_openai_sdk(server):
    with openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                       timeout=60 * PATIENCE, max_retries=0) as client:
        chat = client.chat.completions.create(
            model="listener", messages=[user(A, "what")], temperature=0, max_tokens=8,
            extra_body={"ignore_eos": True})
    assert chat.usage.prompt_tokens_details.audio_tokens == TOKENS
    assert chat.choices[0].message.content == (
        post(server, user(A, "what")).json["choices"][0]["message"]["content"])


def test_a_url_as_vllm_takes_it(server):
    named = {"type": "audio_url", "audio_url": {"url": listening.url(A)}}
    bare = {"type": "audio_url", "audio_url": listening.url(A)}
    expected = ask(server, user(A, "what"))[0]
    assert ask(server, user(named, "what"))[0] == ask(server, user(bare, "what"))[0] == expected


def test_a_stream(server):
    stream = Stream(server, {"messages": [user(A, "what")], "max_tokens": 8, "temperature": 0,
                             "ignore_eos": True, "stream_options": {"include_usage": True}},
                    path="/v1/chat/completions")
    chunks = list(stream.chunks())
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    assert text == post(server, user(A, "what")).json["choices"][0]["message"]["content"]
    assert chunks[-1]["usage"]["prompt_tokens_details"]["audio_tokens"] == TOKENS


def test_prompt_logprobs_behind_a_sound(server):
    made = post(server, user(A, "what"), prompt_logprobs=0, max_tokens=1).json
    positions = made["prompt_logprobs"]
    assert len(positions) == made["usage"]["prompt_tokens"] and positions[0] is None


# ---- what is refused ----

def place(server, *parts, **fields):
    answer = post(server, user(*parts), **fields)
    assert answer.status == 400, answer
    return answer.error


@pytest.mark.parametrize("file, words", [
    (b"RIFF", "no sound"), (A[:60], "too short"), (b"", ""), (b"\0" * 4096, "no sound"),
    (b"\0\0\0\x20ftypM4A \0\0\0\0" + b"\0" * 100, "moov"), (A[:44], "no samples")],
    ids=["cut", "few samples", "empty", "zeros", "m4a", "no samples"])
def test_files_that_are_no_sounds(server, file, words):
    error = place(server, "a", A, file)
    assert error["param"].startswith("messages[0].content[2]"), error
    assert words in error["message"], error


def test_lengths(server):
    """The shortest and the longest sound, and one sample beside these."""
    for count, tokens in ((321, 1), (480000, 750)):
        made = post(server, user(hearing.wav_of(b"\1\0" * count), "a")).json["usage"]
        assert made["prompt_tokens_details"]["audio_tokens"] == tokens
    assert "too short" in place(server, hearing.wav_of(b"\1\0" * 320))["message"]
    assert "30 s" in place(server, hearing.wav_of(b"\1\0" * 480001))["message"]


def test_what_is_too_much(server, start, model):
    error = place(server, *[B] * 17)
    assert error["param"] == "messages[0].content[16]" and "--limit-audio" in error["message"]
    small = start(model, "--max-audio-bytes", 4096, "--limit-audio", 1)
    assert "4096" in place(small, A)["message"]
    assert ask(small, user(hearing.wav(0.1), "a"))
    assert place(small, B, B)["param"] == "messages[0].content[1]"


@pytest.mark.parametrize("part, where", [
    ({"type": "input_audio"}, "input_audio"),
    ({"type": "input_audio", "input_audio": "UklGRg=="}, "input_audio"),
    ({"type": "input_audio", "input_audio": {}}, "input_audio.data"),
    ({"type": "input_audio", "input_audio": {"data": 5}}, "input_audio.data"),
    ({"type": "input_audio", "input_audio": {"data": ""}}, "input_audio.data"),
    ({"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": 5}},
     "input_audio.format"),
    ({"type": "input_audio", "input_audio": {"data": "UklG*g=="}}, ""),
    ({"type": "audio_url"}, "audio_url"),
    ({"type": "audio_url", "audio_url": {}}, "audio_url.url"),
    ({"type": "audio_url", "audio_url": "https://example.com/a.wav"}, ""),
    ({"type": "audio_url", "audio_url": "file:///etc/passwd"}, ""),
    ({"type": "audio_url", "audio_url": "data:audio/wav,abc"}, "")])
def test_parts_that_are_no_sounds(server, part, where):
    error = place(server, part)
    expected = "messages[0].content[0]" + ("." + where if where else "")
    assert error["param"] == expected, error


def test_where_sounds_do_not_stand(server):
    """One of the assistant is left out of a history, and named."""
    answer = post(server, {"role": "assistant", "content": [listening.part(A)]}, user("a"))
    assert answer.status == 200
    assert answer.json["usage"]["prompt_tokens_details"]["audio_tokens"] == 0
    picture = {"type": "image_url", "image_url": {"url": seeing.url(seeing.png(8, 8))}}
    assert "input_audio" in place(server, picture)["message"]
    assert place(server, A, truncate_prompt_tokens=5)["param"] == "truncate_prompt_tokens"


def test_mutated_files_cost_their_own_request(server):
    """A byte or a piece of a file is changed: an answer or a 400 by name, and the server lives."""
    rng, statuses = random.Random(7), set()
    expected = ask(server, user(B, "a"))[0]
    for _ in range(40):
        file = bytearray(B)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(60)
            file[at] = rng.randrange(256)
        if rng.random() < 0.3:
            del file[rng.randrange(len(file)):]
        answer = post(server, user(bytes(file), "a"), max_tokens=1)
        assert answer.status == 200 or answer.error["param"] == "messages[0].content[0]", answer
        statuses.add(answer.status)
    assert statuses == {200, 400}
    assert ask(server, user(B, "a"))[0] == expected


def test_text_that_spells_a_placeholder_is_text(server):
    made = server.post("/tokenize", {"messages": [user("<|AUDIO|>", A)]}).json["tokens"]
    assert made.count(listening.PAD) == TOKENS
    ask(server, user("<|AUDIO|><|audio_bos|>", A))


@pytest.mark.parametrize("flags, why", [
    (("--limit-audio", 0), "turned off"), (("--data-parallel-size", 2), "replicas"),
    (("--load-format", "dummy"), "dummy")], ids=["off", "replicas", "dummy"])
def test_where_no_sounds_are_heard_the_log_says_why(start, model, flags, why):
    deaf = start(model, *flags)
    assert "no sounds: " in deaf.log() and why in deaf.log()
    answer = post(deaf, user(A, "what"))
    assert (answer.status, answer.error["code"]) == (400, "unsupported_content_part"), answer
    assert ask(deaf, user("words"))


def test_check_says_what_the_model_hears(inferd, model):
    said = run(inferd, "check", model)
    assert said.returncode == 0, said.stderr
    assert "sounds    one of 30 s is 750 tokens" in said.stdout, said.stdout


@pytest.mark.parametrize("change, words", [
    ({"sampling_rate": 8000}, "sampling_rate"), ({"chunk_length": 20}, "chunk_length"),
    ({"feature_size": 80}, "feature_size"),
    ({"feature_extractor_type": "ClapFeatureExtractor"}, "feature_extractor_type")])
def test_other_extractors_leave_the_text(start, tmp_path, change, words):
    directory = listening.make(tmp_path / "model")
    path = directory / "preprocessor_config.json"
    said = path.read_text()
    for key, value in change.items():
        old = next(line for line in said.replace("{", "").replace("}", "").split(", ")
                   if key in line)
        said = said.replace(old, f'"{key}": "{value}"' if isinstance(value, str)
                            else f'"{key}": {value}')
    path.write_text(said)
    deaf = start(directory)
    assert "no sounds: " in deaf.log() and words in deaf.log()
    assert post(deaf, user(base64.b64decode("UklGRg=="))).status == 400
    assert ask(deaf, user("words"))


# ---- of other hosts ----

def link(url):
    return {"type": "audio_url", "audio_url": {"url": url}}


@pytest.fixture(scope="module", name="host")
def start_host(tmp_path_factory):
    host = MediaHost(tmp_path_factory.mktemp("host"))
    host.pages.update({"/a.wav": A, "/most.wav": hearing.wav_of(bytes(65536 - 44)),
                       "/more.wav": hearing.wav_of(bytes(65536 - 43))})
    yield host
    host.close()


@pytest.fixture(scope="module", name="fetcher")
def start_fetcher(inferd, host, model):
    with trusted(host):
        server = Server(inferd, model, "--allowed-media-hosts", host.entry, "--max-audio-bytes",
                        65536)
    yield server
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "the ledger to be empty")
    assert server.stop() == 0, server.log()


def test_a_sound_of_another_host_is_that_of_the_file(fetcher, host):
    near, cached = ask(fetcher, user("compare", B, A, "?"))
    assert cached == 0
    far, cached = ask(fetcher, user("compare", B, link(host.url("/a.wav")), "?"))
    assert far == near and cached > 0
    counted = fetcher.post("/tokenize", {"messages": [user(link(host.url("/a.wav")))]})
    assert counted.status == 200, counted
    talk = [{"role": "assistant", "content": "a bird"}, user("then")]
    answer = post(fetcher, user(link(host.url("/a.wav"))), *talk)
    assert answer.json["usage"]["prompt_tokens_details"]["audio_tokens"] == TOKENS
    answer = post(fetcher, user(link("https://elsewhere.invalid/a.wav")), *talk)
    assert answer.status == 200, answer
    assert answer.json["usage"]["prompt_tokens_details"]["audio_tokens"] == 0


def test_a_sound_of_another_host_has_bounds(fetcher, host):
    """At --max-audio-bytes and one more; hosts that are not listed, and what is no sound."""
    assert post(fetcher, user(link(host.url("/most.wav")))).status == 200
    error = place(fetcher, "a", link(host.url("/more.wav")))
    assert error["param"] == "messages[0].content[1]", error
    for word in (host.entry, "the sound's file", "more than 65536 bytes"):
        assert word in error["message"], error
    assert "404" in place(fetcher, link(host.url("/none")))["message"]
    before = list(host.seen)
    error = place(fetcher, link(host.url("/a.wav", "localhost")))
    assert "sounds of" in error["message"] and "--allowed-media-hosts" in error["message"], error
    part = listening.part(A)
    part["input_audio"]["data"] = host.url("/a.wav")
    assert "base64" in place(fetcher, part)["message"]
    assert host.seen == before


def test_no_sound_is_fetched_unless_a_host_is_allowed(server, host):
    before = list(host.seen)
    assert "--allowed-media-hosts" in place(server, link(host.url("/a.wav")))["message"]
    assert host.seen == before
