"""Transcripts by the SDK of OpenAI, of tiny random models that hear in chats and are made to write
down speech: what /v1/audio/transcriptions makes of a form is what a chat of the same words says.
tests/parity/parity_heard.py compares them with transformers'."""

import io
import json

import openai
import pytest

import hearing
import listening
from harness import PATIENCE, Server, wait_until

SEED = 12  # of a Qwen3-ASR that writes tags
A, B = hearing.wav(1.5, 1), hearing.wav(0.7, 2)


def serving(inferd, directory, kind):
    server = Server(inferd, listening.make(directory, SEED, kind=kind), "--served-model-name",
                    "ear", "--max-model-len", 192)
    yield server
    wait_until(lambda: server.metric("inferd_request_memory_bytes") == 0, "the ledger to be empty")
    assert server.stop() == 0, server.log()


@pytest.fixture(scope="module")
def qwen(inferd, tmp_path_factory):
    yield from serving(inferd, tmp_path_factory.mktemp("qwen") / "model", "qwen3_asr")


@pytest.fixture(scope="module")
def glm(inferd, tmp_path_factory):
    yield from serving(inferd, tmp_path_factory.mktemp("glm") / "model", "glmasr")


def ask(server, file=A, **fields):
    with openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                       timeout=60 * PATIENCE, max_retries=0) as client:
        made = client.audio.transcriptions.create(
            model="ear", file=("a.wav", io.BytesIO(file)), **{"temperature": 0, **fields})
        return list(made) if fields.get("stream") else made


def refused(server, param, words, **fields):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(server, **fields)
    assert caught.value.body["param"] == param, caught.value.body
    assert words in caught.value.body["message"], caught.value.body


def say(server, *messages, **fields):
    """What a chat of these says."""
    answer = server.post("/v1/chat/completions", {
        "messages": list(messages), "temperature": 0, "skip_special_tokens": True, **fields})
    assert answer.status == 200, answer
    return answer.json["choices"][0]["message"]["content"]


def sound(file, *texts):
    return {"role": "user", "content": [
        listening.part(file), *({"type": "text", "text": text} for text in texts)]}


def transcript(said):
    return said.split(listening.TAG, 1)[-1].strip()


def test_json_and_text(qwen):
    for file in (A, B):
        said = say(qwen, sound(file))
        answer = ask(qwen, file)
        assert answer.text == transcript(said)
        assert answer.usage.type == "duration" and answer.usage.seconds == (2 if file is A else 1)
        assert ask(qwen, file, response_format="text") == answer.text + "\n"


def test_some_sound_is_written_behind_a_tag(qwen):
    """Else the tests above would prove nothing."""
    said = [say(qwen, sound(hearing.wav(0.5 + i / 10, i))) for i in range(8)]
    assert any(listening.TAG in text for text in said)


def test_a_language_begins_the_answer(qwen):
    """It is said in the place of the model, and the tag behind it is no longer sought."""
    begun = {"role": "assistant", "content": f"language German{listening.TAG}"}
    said = say(qwen, sound(A), begun, add_generation_prompt=False, continue_final_message=True)
    for name in ("de", "German", "GERMAN"):
        assert ask(qwen, language=name).text == said.strip()


def test_a_prompt_is_what_the_system_says(qwen):
    said = say(qwen, {"role": "system", "content": 'names: "Ada"\n'}, sound(A))
    assert ask(qwen, prompt='names: "Ada"\n').text == transcript(said)


def test_glm_is_asked_in_words(glm):
    said = say(glm, sound(A, "Please transcribe this audio into text"))
    assert ask(glm).text == said.strip()
    assert ask(glm, prompt="in capitals").text == say(glm, sound(A, "in capitals")).strip()
    refused(glm, "language", "takes no 'language'", language="en")


@pytest.mark.parametrize("file", [A, B, hearing.wav(0.9, 5), hearing.wav(1.1, 6)])
def test_a_stream_says_the_same(qwen, file):
    events = ask(qwen, file, stream=True)
    assert [event.type for event in events[:-1]] == ["transcript.text.delta"] * (len(events) - 1)
    assert events[-1].type == "transcript.text.done"
    whole = "".join(event.delta for event in events[:-1])
    assert whole.strip() == events[-1].text == ask(qwen, file).text
    assert whole == whole.lstrip()
    begun = ask(qwen, file, stream=True, language="en")[:-1]
    assert len(begun) > 1, "nothing is held back"


def test_what_is_refused(qwen):
    for shape in ("srt", "vtt", "verbose_json"):
        refused(qwen, "response_format", "tells no times", response_format=shape)
    refused(qwen, "language", "no language of the served model", language="xx")
    refused(qwen, "file", "no sound", file=b"RIFF" * 9)
    refused(qwen, "file", "no samples", file=A[:44])
    with pytest.raises(openai.BadRequestError) as caught:
        with openai.OpenAI(base_url=f"http://{qwen.host}:{qwen.port}/v1", api_key="none",
                           max_retries=0) as client:
            client.audio.translations.create(model="ear", file=("a.wav", io.BytesIO(A)))
    assert "does not translate" in caught.value.body["message"]
    with pytest.raises(openai.NotFoundError):
        with openai.OpenAI(base_url=f"http://{qwen.host}:{qwen.port}/v1", api_key="none",
                           max_retries=0) as client:
            client.audio.transcriptions.create(model="nobody", file=("a.wav", io.BytesIO(A)))


def test_a_sound_that_is_longer_than_the_context(qwen):
    refused(qwen, "file", "", file=hearing.wav(20, 3))


def test_seconds_and_counts(qwen):
    before = qwen.metric("inferd_audio_seconds_total")
    ask(qwen, A)
    assert qwen.metric("inferd_audio_seconds_total") == pytest.approx(before + 1.5)


def test_a_model_that_hears_and_is_made_for_talk_writes_nothing_down(start, tmp_path):
    server = start(listening.make(tmp_path / "model"), "--served-model-name", "ear")
    with pytest.raises(openai.BadRequestError) as caught:
        ask(server)
    assert "/v1/chat/completions" in json.dumps(caught.value.body)
