"""The real `openai` SDK in chats: plain, streamed, its stream helper, .parse(), tools, async."""

import asyncio
import json
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from harness import PATIENCE

ASK = [{"role": "user", "content": "What is 2 plus 3?"}]
PARIS = [{"role": "user", "content": "What is the weather in Paris?"}]
PERSON = [{"role": "user", "content": "Make up a person."}]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"], "additionalProperties": False}}}


class Person(BaseModel):
    name: str
    age: int
    mood: Literal["happy", "sad"]


class GetWeather(BaseModel):
    """Weather of a city"""
    city: str
    unit: Literal["c", "f"]


def options(server):
    return {"base_url": f"http://{server.host}:{server.port}/v1", "api_key": "none",
            "timeout": 60 * PATIENCE, "max_retries": 0}


@pytest.fixture
def client(server):
    with openai.OpenAI(**options(server)) as made:
        yield made


def test_chat(client):
    answer = client.chat.completions.create(model="demo", messages=ASK, temperature=0)
    assert answer.object == "chat.completion"
    message = answer.choices[0].message
    assert (message.role, message.content, message.refusal) == ("assistant", "2 plus 3 is 5.", None)
    assert message.tool_calls is None and answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens > answer.usage.completion_tokens > 0


def test_chat_stream(client):
    chunks = list(client.chat.completions.create(
        model="demo", messages=ASK, temperature=0, stream=True,
        stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "2 plus 3 is 5."
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0


def test_stream_helper(client):
    with client.chat.completions.stream(model="demo", messages=ASK, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert text == final.choices[0].message.content == "2 plus 3 is 5."


def test_logprobs(client):
    choice = client.chat.completions.create(model="demo", messages=ASK, temperature=0,
                                            logprobs=True, top_logprobs=3, max_tokens=4).choices[0]
    assert len(choice.logprobs.content) == 4
    assert all(len(entry.top_logprobs) == 3 for entry in choice.logprobs.content)


def test_parse_with_pydantic(client):
    for seed in range(3):
        answer = client.chat.completions.parse(model="demo", messages=PERSON, seed=seed,
                                               response_format=Person, max_tokens=300)
        person = answer.choices[0].message.parsed
        assert isinstance(person, Person) and person.mood in ("happy", "sad")


def test_streamed_parse(client):
    with client.chat.completions.stream(model="demo", messages=PERSON, temperature=0,
                                        response_format=Person, max_tokens=300) as stream:
        for event in stream:
            assert event.type != "error"
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Person)


def test_parse_that_is_cut(client):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="demo", messages=PERSON, response_format=Person,
                                      max_tokens=3)


def test_a_tool_and_its_result(client):
    answer = client.chat.completions.create(model="demo", messages=PARIS, temperature=0,
                                            tools=[WEATHER])
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls" and message.content is None
    call = message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    again = client.chat.completions.create(
        model="demo", temperature=0, tools=[WEATHER],
        messages=[*PARIS, message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}])
    assert again.choices[0].message.content


def test_parsed_tools(client):
    answer = client.chat.completions.parse(
        model="demo", messages=PARIS, tools=[openai.pydantic_function_tool(GetWeather)],
        tool_choice="required", parallel_tool_calls=False, seed=1, max_tokens=200)
    calls = answer.choices[0].message.tool_calls
    assert len(calls) == 1 and isinstance(calls[0].function.parsed_arguments, GetWeather)


def test_streamed_tools(client):
    with client.chat.completions.stream(
            model="demo", messages=PARIS, tools=[openai.pydantic_function_tool(GetWeather)],
            tool_choice="required", parallel_tool_calls=False, seed=1, max_tokens=200) as stream:
        pieces = [event.arguments_delta for event in stream
                  if event.type == "tool_calls.function.arguments.delta"]
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert "".join(pieces) == call.function.arguments
    assert isinstance(call.function.parsed_arguments, GetWeather)


def test_errors(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="demo", messages=[])
    assert caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="demo", messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}])
    assert caught.value.code == "unsupported_content_part"


def test_async_chats_at_once(server):
    async def one(client, index):
        fields = {"model": "demo", "messages": [{"role": "user", "content": f"Story {index}"}],
                  "max_tokens": 16, "seed": index}
        if index % 2:
            return (await client.chat.completions.create(**fields)).choices[0].message.content
        text = ""
        async for chunk in await client.chat.completions.create(**fields, stream=True):
            text += chunk.choices[0].delta.content or ""
        return text

    async def all_of_them():
        async with openai.AsyncOpenAI(**options(server)) as client:
            together = await asyncio.gather(*(one(client, i) for i in range(32)))
            alone = [await one(client, i) for i in (0, 15, 31)]
            return together, alone

    together, alone = asyncio.run(all_of_them())
    assert [together[i] for i in (0, 15, 31)] == alone


def test_async_stream_helper(server):
    async def run():
        async with openai.AsyncOpenAI(**options(server)) as client:
            async with client.chat.completions.stream(model="demo", messages=ASK,
                                                      temperature=0) as stream:
                return (await stream.get_final_completion()).choices[0].message.content

    assert asyncio.run(run()) == "2 plus 3 is 5."
