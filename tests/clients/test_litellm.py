"""LiteLLM through its openai and hosted_vllm providers; its own classes of errors."""

import asyncio
import gc
import json

import litellm
import pytest

ASK = [{"role": "user", "content": "What is 2 plus 3?"}]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"], "additionalProperties": False}}}


@pytest.fixture(autouse=True)
def no_stream_is_left():
    """LiteLLM drops streams before their end. One that is collected while httpcore holds the lock
    of its pool waits for that lock for ever, so they are collected here."""
    yield
    gc.collect()


@pytest.fixture(params=["openai", "hosted_vllm"])
def options(request, url):
    litellm.telemetry = False
    return {"model": f"{request.param}/demo", "api_base": url, "api_key": "none", "temperature": 0,
            "num_retries": 0}


def test_completion(options):
    answer = litellm.completion(messages=ASK, **options)
    assert answer.choices[0].message.content == "2 plus 3 is 5."
    assert answer.usage.total_tokens > 0
    again = asyncio.run(litellm.acompletion(messages=ASK, **options))
    assert again.choices[0].message.content == "2 plus 3 is 5."


def test_stream(options):
    chunks = list(litellm.completion(messages=ASK, stream=True,
                                     stream_options={"include_usage": True}, **options))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "2 plus 3 is 5."
    whole = litellm.stream_chunk_builder(chunks, messages=ASK)
    assert whole.choices[0].message.content == "2 plus 3 is 5."


@pytest.mark.parametrize("stream", [False, True])
def test_tools(options, stream):
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = litellm.completion(messages=messages, tools=[WEATHER], tool_choice="required",
                                stream=stream, max_tokens=100, **options)
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    call = answer.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments).keys() == {"city"}
    assert answer.choices[0].finish_reason == "tool_calls"


def test_text_completion(options):
    answer = litellm.text_completion(prompt="Once upon a time", max_tokens=6, **options)
    assert answer.choices[0].text


def test_errors_have_their_classes(options):
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(messages=[{"role": "user", "content": "word " * 3000}], **options)
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(messages=ASK, **{**options, "model": options["model"] + "nope"})
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(messages=ASK, **{**options, "temperature": 9})
