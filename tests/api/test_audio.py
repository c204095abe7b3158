"""Transcripts by the SDK of OpenAI, of tiny random Whisper models: forms, formats, streams, and
refusals. tests/parity/parity_speech.py compares them with transformers'."""

import base64
import concurrent.futures
import contextlib
import io
import json
import re
import time

import openai
import pytest

import hearing
from harness import DEMO, ROOT, Server, wait_until

GREEDY, GREEDY_TEXT = 0.000001, b"0.000001"
SHORT, LONG = hearing.wav(2.5, 1), hearing.wav(70, 2, 8000)


@pytest.fixture(scope="module")
def ear(inferd, tmp_path_factory):
    server = Server(inferd, hearing.make(tmp_path_factory.mktemp("ear"), talks=True),
                    "--served-model-name", "ear")
    yield server
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "the ledger to be empty")
    assert server.stop() == 0, server.log()


@contextlib.contextmanager
def serving(inferd, model, *options):
    made = Server(inferd, model, *options)
    try:
        yield made
    finally:
        assert made.stop() == 0, made.log()


@pytest.fixture
def server(ear):
    yield ear
    assert ear.alive(), ear.log()
    wait_until(ear.idle, "the server to be idle again", context=ear.usage)


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none",
                         max_retries=0)


def ask(client, file=SHORT, **fields):
    return client.audio.transcriptions.create(
        model="ear", file=("a.wav", io.BytesIO(file)), **{"temperature": GREEDY, **fields})


def refused(client, param, words, **fields):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert caught.value.body["param"] == param, caught.value.body
    assert words in caught.value.body["message"], caught.value.body


def test_json_has_the_text_and_the_seconds(client):
    answer = ask(client)
    assert answer.text == answer.text.strip()
    assert answer.usage.type == "duration" and answer.usage.seconds == 3
    assert ask(client).text == answer.text
    assert ask(client, response_format="text") == answer.text + "\n"


def test_segments_have_times_in_every_format(client):
    verbose = ask(client, response_format="verbose_json", timestamp_granularities=["segment"])
    assert verbose.task == "transcribe" and verbose.duration == 2.5
    assert verbose.language in ("english", "german", "french")
    assert verbose.segments
    for before, segment in zip([None, *verbose.segments], verbose.segments):
        assert 0 <= segment.start <= segment.end <= 2.5
        assert before is None or before.end <= segment.start
        assert all(token < hearing.FIRST_STAMP for token in segment.tokens)
        assert segment.avg_logprob <= 0 and 0 <= segment.no_speech_prob <= 1
        assert segment.temperature == pytest.approx(GREEDY)
    srt, vtt = (ask(client, response_format=kind) for kind in ("srt", "vtt"))
    assert vtt.startswith("WEBVTT\n\n")
    number, times = srt.split("\n")[:2]
    assert number == "1" and re.fullmatch(
        r"\d\d:\d\d:\d\d,\d{3} --> \d\d:\d\d:\d\d,\d{3}", times)
    assert len(re.findall(r" --> ", srt)) == len(verbose.segments)
    assert re.sub(r"(\d),(\d{3})", r"\1.\2", times) in vtt


def test_the_committed_model_writes_what_transformers_writes(inferd):
    """tests/vectors/speech/whisper, by scripts/vectors/speech.py."""
    folder = ROOT / "tests/vectors/speech/whisper"
    expected = json.loads((folder / "expected.json").read_text())
    with serving(inferd, folder) as other:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{other.port}/v1", api_key="none")
        answer = client.audio.transcriptions.create(
            model="", file=("a.wav", hearing.wav(expected["seconds"], expected["seed"])),
            language=expected["language"], response_format="verbose_json", temperature=GREEDY)
    assert [[round(s.start, 3), round(s.end, 3), s.tokens] for s in answer.segments] == expected[
        "segments"]


def letters(text):
    """Those of ASCII: broken characters are others where they are read piece by piece."""
    return "".join(c for c in text if c.isascii() and c.isalnum())


def words_of(client, file, kinds=("word",), **fields):
    return ask(client, file, response_format="verbose_json", timestamp_granularities=list(kinds),
               **fields)


def test_a_new_sound_is_read_at_once(inferd, tmp_path):
    """An engine that has nothing to do sleeps for a second. The plan that let in a request whose
    sound was to be read had nothing else, so each new sound took a second longer."""
    model = hearing.make(tmp_path / "model", encoder_layers=1, decoder_layers=1, d_model=16,
                         encoder_attention_heads=1, decoder_attention_heads=1,
                         max_target_positions=64)
    took = []
    with serving(inferd, model, "--served-model-name", "ear") as other:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{other.port}/v1", api_key="none")
        for i in range(5):
            begun = time.monotonic()
            ask(client, hearing.wav(0.5 + 0.1 * i, i))
            took.append(time.monotonic() - begun)
    assert min(took) < 0.9, took


def test_words_have_times(client):
    """tests/parity/parity_speech.py compares them with transformers'."""
    for file, seconds in ((SHORT, 2.5), (LONG, 70)):
        both = words_of(client, file, ("word", "segment"))
        assert both.words and both.segments
        assert letters("".join(w.word for w in both.words)) == letters(both.text)
        assert all(0 <= w.start <= w.end <= seconds and w.word.strip() == w.word
                   for w in both.words)
        assert [w.start for w in both.words] == sorted(w.start for w in both.words)
        assert len({w.start for w in both.words}) > 3
        alone = words_of(client, file)
        assert alone.words == both.words and alone.segments is None
        assert ask(client, file, response_format="verbose_json").words is None


def test_heads_that_no_file_names_are_those_of_the_last_half(inferd, tmp_path):
    """Distilled models keep the list of a larger one, whose layers they have not."""
    half = [[layer, head] for layer in (1, 2) for head in range(4)]  # of 3 layers: from 3 // 2 on
    told = []
    for name, heads in (("half", half), ("none", []), ("larger", [[0, 1], [3, 0]]),
                        ("first", [[0, 0]])):
        model = hearing.make(tmp_path / name / "ear", talks=True, heads=heads, decoder_layers=3)
        with serving(inferd, model) as other:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{other.port}/v1", api_key="none")
            told.append(words_of(client, SHORT).words)
    assert told[0] == told[1] == told[2] != told[3]


def test_more_heads_than_a_pass_keeps_give_the_same_words(inferd, tmp_path):
    """The mean over a list that stands there twice is that of one, and takes two passes."""
    once = [[layer, head] for layer in (0, 1) for head in range(4)]
    told = []
    for name, heads in (("once", once), ("twice", once * 2), ("one more", [*once, *once[:1]])):
        with serving(inferd, hearing.make(tmp_path / name / "ear", talks=True,
                                          heads=heads)) as other:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{other.port}/v1", api_key="none")
            before = other.metric("inferd_prompt_tokens_total")
            told.append((words_of(client, LONG).words,
                         other.metric("inferd_prompt_tokens_total") - before))
    assert told[0][0] == told[1][0] and len(told[2][0]) == len(told[0][0])
    assert told[0][1] < told[1][1] == told[2][1]


def test_words_are_those_of_the_last_try(client):
    tried = words_of(client, SHORT, ("word", "segment"), temperature=0)
    assert {round(segment.temperature, 1) for segment in tried.segments} == {1.0}
    assert tried.words and all(letters(w.word) in letters(tried.text) for w in tried.words)


def test_memory_of_words_is_taken_before_the_work(inferd, tmp_path):
    """14 MB for what 4 heads give in a window of 30 s, beside 1 MB of its spectrogram."""
    whole = hearing.wav(30, 4)
    model = hearing.make(tmp_path / "ear", talks=True)
    with serving(inferd, model, "--max-audio-seconds", 31, "--max-body-bytes", "2MiB",
                 "--max-request-memory", "14MiB") as small:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{small.port}/v1", api_key="none",
                               max_retries=0)
        assert ask(client, whole).text
        with pytest.raises(openai.InternalServerError) as caught:
            words_of(client, whole)
        assert caught.value.status_code == 503
        assert words_of(client, SHORT).words
        wait_until(lambda: small.metric("inferd_request_memory_bytes") == 0, "the ledger")


def test_a_client_that_leaves_takes_its_words_along(server, client):
    for wait in (0.02, 0.1, 0.3, 0.6):
        with contextlib.suppress(openai.APITimeoutError):
            words_of(client.with_options(timeout=wait, max_retries=0), LONG)
    wait_until(server.idle, "the server to be idle", context=server.usage)


def test_times_of_words_do_not_depend_on_who_else_speaks(client):
    files = [hearing.wav(1 + i / 2, i) for i in range(6)]
    alone = [words_of(client, file).words for file in files]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(lambda file: words_of(client, file).words, files * 2)) == alone * 2


def test_a_stream_says_what_the_answer_says(client):
    for file in (SHORT, LONG):
        whole = ask(client, file)
        events = list(ask(client, file, stream=True))
        assert [e.type for e in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1)
        assert events[-1].type == "transcript.text.done"
        assert events[-1].text == whole.text
        assert "".join(e.delta for e in events[:-1]).strip() == whole.text
        assert len(events) > 2


def test_a_long_file_is_heard_in_windows(client, server):
    before = server.metric("inferd_audio_windows_total")
    verbose = ask(client, LONG, response_format="verbose_json")
    assert server.metric("inferd_audio_windows_total") - before == 3
    assert verbose.duration == 70 and verbose.usage.seconds == 70
    seeks = sorted({segment.seek for segment in verbose.segments})
    assert seeks[0] == 0 and all(2900 <= b - a <= 3000 for a, b in zip(seeks, seeks[1:]))
    assert [s.id for s in verbose.segments] == list(range(len(verbose.segments)))


def test_a_long_file_needs_no_more_room_than_its_windows_at_once(client, inferd, tmp_path):
    """14 windows where 4 may wait, and 2 have seats."""
    file = hearing.wav_of(b"".join(bytes([128 + i, 128]) * 120000 for i in range(14)), 8000, 1, 8)
    expected = ask(client, file).text
    model = hearing.make(tmp_path / "ear", talks=True)
    with serving(inferd, model, "--max-queue-requests", 4, "--max-num-seqs", 2) as small:
        other = openai.OpenAI(base_url=f"http://127.0.0.1:{small.port}/v1", api_key="none",
                              max_retries=0)
        assert ask(other, file).text == expected
        assert "".join(e.delta for e in ask(other, file, stream=True)
                       if e.type == "transcript.text.delta").strip() == expected
        wait_until(small.idle, "the server to be idle", context=small.usage)


def test_many_at_once_say_what_each_says_alone(client):
    files = [hearing.wav(1 + i / 2, i) for i in range(6)]
    alone = [ask(client, file).text for file in files]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(lambda file: ask(client, file).text, files * 2)) == alone * 2


def test_channels_are_averaged_and_rates_do_not_matter(client):
    assert ask(client, hearing.wav(2.5, 1, channels=2)).text == ask(client).text
    assert ask(client, hearing.wav(2.5, 1, rate=48000)).usage.seconds == 3


def test_formats_are_those_of_the_files(client):
    rows = {}
    for name in ("files", "mp4"):
        with open(ROOT / f"tests/vectors/sound_{name}.jsonl", encoding="ascii") as vectors:
            rows |= {row["name"]: row for row in map(json.loads, vectors)}
    for name in ("wav-pcm_24-16000-1", "flac-pcm_16-44100-2", "mp3-mpeg_layer_iii-48000-2",
                 "ogg-opus-8000-1", "ogg-vorbis-22050-1", "mp4-44100-2",
                 "mp4-16000-1-movflags"):
        assert ask(client, base64.b64decode(rows[name]["file"])).usage.seconds == 1, name
    refused(client, "file", "AAC", file=base64.b64decode(rows["mp4-alac"]["file"]))


def test_languages_have_codes_and_names(client):
    texts = {ask(client, language=name, response_format="verbose_json").language
             for name in ("de", "German", "GERMAN")}
    assert texts == {"german"}
    refused(client, "language", "no language of the served model", language="ja")
    refused(client, "language", "no language of the served model", language="klingon")


def test_a_prompt_changes_the_text_and_may_be_long(client):
    texts = {ask(client, prompt=prompt).text for prompt in ("", "one", "two" * 1000)}
    assert len(texts) > 1


def test_translations_are_english(client):
    answer = client.audio.translations.create(
        model="ear", file=("a.wav", SHORT), response_format="verbose_json", temperature=GREEDY)
    assert answer.language == "english"
    assert client.audio.translations.create(model="ear", file=("a.wav", SHORT),
                                            temperature=GREEDY).text


def test_bad_windows_are_tried_again(client):
    """A random model is never sure: with temperature 0 the last try stays."""
    verbose = ask(client, response_format="verbose_json", temperature=0)
    tried = {round(segment.temperature, 1) for segment in verbose.segments}
    assert tried == {1.0}, tried
    assert ask(client, response_format="verbose_json", temperature=0.4).segments[
        0].temperature == pytest.approx(0.4)


@pytest.mark.parametrize("fields, param, words", [
    ({"response_format": "xml"}, "response_format", "verbose_json"),
    ({"response_format": "srt", "stream": True}, "stream", "json"),
    ({"timestamp_granularities": ["phrase"], "response_format": "verbose_json"},
     "timestamp_granularities[]", "word"),
    ({"timestamp_granularities": ["word"]}, "timestamp_granularities[]", "verbose_json"),
    ({"timestamp_granularities": ["segment"]}, "timestamp_granularities[]", "verbose_json"),
    ({"include": ["logprobs"]}, "include[]", "not supported"),
    ({"temperature": 1.5}, "temperature", "1.5"),
    ({"file": b"hello, this is a text"}, "file", "WAV, FLAC, MP3"),
    ({"file": b"\0\0\0\x20ftypM4A " + bytes(64)}, "file", "moov"),
    ({"file": hearing.wav(0.09)}, "file", "0.1 s"),
    ({"file": hearing.wav_of(b"")}, "file", "no samples"),
    ({"file": hearing.wav_of(bytes(40000), 7999)}, "file", "7999"),
])
def test_what_is_refused_is_named(client, fields, param, words):
    refused(client, param, words, **fields)


def test_forms_are_read_strictly(server):
    def post(body, kind="multipart/form-data; boundary=b"):
        return server.request("POST", "/v1/audio/transcriptions", body,
                              {"Content-Type": kind})

    def part(name, value, file=""):
        return (f'--b\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode()
                + value + b"\r\n")

    sound = part("file", SHORT, '; filename="a.wav"')
    assert post(part("model", b"ear") + sound + b"--b--\r\n").status == 200
    assert post(part("temperature", b"0.000001") + sound + b"--b--\r\n").status == 200
    for body, words in ((part("model", b"ear") + b"--b--\r\n", "'file'"),
                        (part("file", SHORT) + b"--b--\r\n", "file"),
                        (part("temperature", b"warm") + sound + b"--b--\r\n", "temperature"),
                        (part("model", b"nobody") + sound + b"--b--\r\n", "nobody"),
                        (sound + sound + b"--b--\r\n", "twice"),
                        (sound, "does not end")):
        answer = post(body)
        assert answer.status in (400, 404), answer
        assert words in answer.json["error"]["message"], answer
    assert post(b"{}", "application/json").status == 415


def test_routes_refuse_the_models_of_others(server, inferd):
    answer = server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
    assert answer.status == 400 and "transcriptions" in answer.json["error"]["message"]
    answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
    assert answer.status == 400 and "transcriptions" in answer.json["error"]["message"]
    with serving(inferd, DEMO) as other:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(openai.OpenAI(base_url=f"http://127.0.0.1:{other.port}/v1", api_key="none"))
        assert "does not hear" in caught.value.body["message"]


def test_limits_of_bytes_and_seconds_are_named(inferd, tmp_path):
    model = hearing.make(tmp_path / "ear", english=True)
    with serving(inferd, model, "--max-audio-bytes", len(SHORT), "--max-audio-seconds",
                 3) as limited:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{limited.port}/v1", api_key="none")
        assert ask(client).usage.seconds == 3
        refused(client, "file", "at most", file=SHORT + b"\0")
        refused(client, "file", "3 s", file=hearing.wav(3.01, rate=8000))
        assert ask(client, hearing.wav(3, rate=8000)).usage.seconds == 3
        refused(client, "language", "English alone", language="de")
        with pytest.raises(openai.APIStatusError) as caught:
            ask(client, SHORT + bytes(200 * 1024))
        assert caught.value.status_code == 413


def test_several_models_are_named_in_their_forms(inferd, tmp_path):
    """The parent looks for `model` behind and before a file of several of its steps."""
    for name, seed in (("ear", 1), ("other", 5)):
        hearing.make(tmp_path / "models" / name, seed, talks=True)
    with serving(inferd, DEMO, "--models-dir", tmp_path / "models", "--max-num-seqs", 4) as several:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{several.port}/v1", api_key="none",
                               max_retries=0)

        def heard(model, file=SHORT, **fields):
            return client.audio.transcriptions.create(
                model=model, file=("a.wav", io.BytesIO(file)), temperature=GREEDY, **fields)

        texts = {name: heard(name).text for name in ("ear", "other")}
        assert texts["ear"] != texts["other"]
        assert heard("ear", LONG).usage.seconds == 70
        events = list(heard("other", stream=True))
        assert events[-1].text == texts["other"]
        assert heard("ear", response_format="vtt").startswith("WEBVTT\n\n")
        assert client.audio.translations.create(
            model="ear", file=("a.wav", SHORT), temperature=GREEDY).text
        with pytest.raises(openai.NotFoundError) as caught:
            heard("nobody")
        assert "ear" in caught.value.body["message"]
        with pytest.raises(openai.BadRequestError) as caught:
            heard("demo")
        assert "does not hear" in caught.value.body["message"]

        def post(*parts):
            body = b"".join(f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
                            .encode() + value + b"\r\n" for name, more, value in parts)
            return several.request("POST", "/v1/audio/transcriptions", body + b"--b--\r\n",
                                   {"Content-Type": "multipart/form-data; boundary=b"})

        file = ("file", '; filename="a.wav"', LONG)
        greedy = ("temperature", "", GREEDY_TEXT)
        answers = [post(file, greedy, ("model", "", b"ear")),
                   post(("model", "", b"ear"), greedy, file)]
        assert answers[0].status == 200 and answers[0].json["text"] == answers[1].json["text"]
        assert post(file).error["param"] == "model"
        assert post(("model", "", b"ear"), ("model", "", b"ear"), file).status == 400
        assert several.request("POST", "/v1/audio/transcriptions", b"{}",
                               {"Content-Type": "application/json"}).status == 415
