"""The anthropic SDK in its own normal flow against /v1/messages."""

import base64

import anthropic
import pytest

import seeing
from harness import Server

WEATHER = {"name": "get_weather", "description": "Weather of a city",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}},
                            "required": ["city"]}}
COLD = {"temperature": 0}  # the SDK has no parameter for it


@pytest.fixture
def client(demo):
    with anthropic.Anthropic(base_url=f"http://{demo.host}:{demo.port}", api_key="none",
                             max_retries=0) as sdk:
        yield sdk


def user(text):
    return {"role": "user", "content": text}


def test_an_answer_and_its_stream_are_equal(client):
    request = {"model": "demo", "max_tokens": 64, "messages": [user("What is 2 plus 3?")],
               "extra_body": COLD}
    answer = client.messages.create(**request)
    assert answer.content[0].text == "2 plus 3 is 5." and answer.stop_reason == "end_turn"
    with client.messages.stream(**request) as stream:
        pieces = list(stream.text_stream)
        streamed = stream.get_final_message()
    assert "".join(pieces) == answer.content[0].text and len(pieces) > 1
    assert streamed.content[0].text == answer.content[0].text
    assert streamed.usage.output_tokens == answer.usage.output_tokens


def test_a_tool_round_trip_reuses_the_prompt(client):
    history = [user("What is the weather in Paris?")]
    with client.messages.stream(model="demo", max_tokens=200, tools=[WEATHER], messages=history,
                                extra_body=COLD) as stream:
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use"
    call = next(block for block in first.content if block.type == "tool_use")
    assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
    history += [{"role": "assistant", "content": first.content},
                user([{"type": "tool_result", "tool_use_id": call.id, "content": "Sunny."}])]
    counted = client.messages.count_tokens(model="demo", tools=[WEATHER], messages=history)
    second = client.messages.create(model="demo", max_tokens=40, tools=[WEATHER],
                                    messages=history, extra_body=COLD)
    usage, before = second.usage, first.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == counted.input_tokens
    # All of the first prompt but the last block, which is not full.
    prompt = before.input_tokens + before.cache_read_input_tokens
    assert usage.cache_read_input_tokens >= 0.9 * prompt
    assert second.stop_reason in ("end_turn", "max_tokens")


def test_a_list_of_one_text_is_the_same_prompt_as_the_text(client):
    counted = [client.messages.count_tokens(model="demo", messages=[user(content)]).input_tokens
               for content in ("a b c", [{"type": "text", "text": "a b c"}])]
    assert counted[0] == counted[1]


def test_errors_are_those_of_the_sdk(client):
    with pytest.raises(anthropic.NotFoundError) as missing:
        client.messages.create(model="nope", max_tokens=3, messages=[user("a")])
    assert missing.value.body["error"]["type"] == "not_found_error"
    assert missing.value.request_id == missing.value.body["request_id"]
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 2048 "):
        client.messages.create(model="demo", max_tokens=3, messages=[user("a b " * 2000)])


def test_a_picture_of_the_user_and_one_of_a_tool(inferd, tmp_path):
    server = Server(inferd, seeing.make(tmp_path / "model"), "--served-model-name", "seer",
                    "--tool-call-parser", "hermes")
    picture = {"type": "image", "source": {
        "type": "base64", "media_type": "image/png",
        "data": base64.b64encode(seeing.png(60, 40)).decode()}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    history = [user([picture, {"type": "text", "text": "what"}]),
               {"role": "assistant", "content": [call]},
               user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": [picture]}])]
    with anthropic.Anthropic(base_url=f"http://{server.host}:{server.port}", api_key="none",
                             max_retries=0) as sdk:
        for messages, pictures in ((history[:1], 1), (history, 2)):
            counted = sdk.messages.count_tokens(model="seer", messages=messages).input_tokens
            answer = sdk.messages.create(model="seer", max_tokens=8, messages=messages)
            usage = answer.usage
            assert usage.input_tokens + usage.cache_read_input_tokens == counted
            assert pictures * 40 < counted < (pictures + 1) * 40 + 60
    assert server.stop() == 0, server.log()
