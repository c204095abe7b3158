"""/v1/responses with the OpenAI SDK and its Agents SDK, each in its own normal flow."""

import asyncio
import json

import agents
import openai
import pytest
from pydantic import BaseModel

WEATHER = {"type": "function", "name": "get_weather", "description": "Weather of a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                          "required": ["city"], "additionalProperties": False}}
SUM = {"model": "demo", "input": "What is 2 plus 3?", "temperature": 0, "max_output_tokens": 64}


@pytest.fixture
def base_url(server):
    return f"http://{server.host}:{server.port}/v1"


@pytest.fixture
def client(base_url):
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as sdk:
        yield sdk


def test_an_answer_and_its_stream_are_equal(client):
    answer = client.responses.create(**SUM)
    assert answer.output_text == "2 plus 3 is 5." and answer.status == "completed"
    with client.responses.stream(**SUM) as stream:
        events = list(stream)
        streamed = stream.get_final_response()
    assert [event.sequence_number for event in events[:1]] == [0]
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert streamed.output_text == answer.output_text
    assert streamed.usage.output_tokens == answer.usage.output_tokens


def test_a_stream_that_repeats_much_of_its_request(client, server):
    """The first events repeat a format of 60 kB each: they are printed while they are sent, and
    the tokens that come meanwhile follow them, in order."""
    text = {"format": {"type": "json_schema", "name": "sum", "description": "d" * 60000,
                       "schema": {"type": "object", "properties": {"sum": {"enum": [5]}},
                                  "required": ["sum"], "additionalProperties": False}}}
    with client.responses.stream(**SUM, text=text) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[0].response.text.format.description == text["format"]["description"]
    done = events[-1].response
    assert done.text.format.description == text["format"]["description"]
    assert done.output_text == "".join(event.delta for event in events
                                       if event.type == "response.output_text.delta")
    assert json.loads(done.output_text) == {"sum": 5}
    assert server.metric("inferd_reply_turn_bytes_max", scope="one") <= 256 << 10


def test_a_tool_round_trip(client):
    history = [{"role": "user", "content": "What is the weather in Paris?"}]
    with client.responses.stream(model="demo", input=history, tools=[WEATHER],
                                 temperature=0) as stream:
        for _ in stream:
            pass
        first = stream.get_final_response()
    call = first.output[-1]
    assert (call.type, call.name, call.arguments) == ("function_call", "get_weather",
                                                      '{"city": "Paris"}')
    history += [item.model_dump(exclude_none=True) for item in first.output]
    history += [{"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}]
    second = client.responses.create(model="demo", input=history, tools=[WEATHER], temperature=0,
                                     max_output_tokens=40)
    assert second.output_text
    # The history is the same prompt again, so what the first answer computed is reused.
    assert second.usage.input_tokens_details.cached_tokens >= 0.9 * first.usage.input_tokens


def test_a_schema_is_parsed(client):
    class Person(BaseModel):
        name: str
        age: int

    answer = client.responses.parse(model="demo", input="Make up a person.", text_format=Person,
                                    temperature=0)
    assert isinstance(answer.output_parsed, Person)


def test_what_needs_a_store_is_refused_by_name(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="demo", input="x", previous_response_id="resp_1")
    assert refused.value.param == "previous_response_id"
    assert refused.value.code == "unsupported_parameter"


def test_the_agents_sdk_in_its_default_mode(base_url):
    """It speaks /v1/responses unless told otherwise."""
    asked = []

    @agents.function_tool(strict_mode=False)
    def get_weather(city: str) -> str:
        """Weather of a city"""
        asked.append(city)
        return "Sunny."

    async def run():
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none") as sdk:
            agents.set_tracing_disabled(True)
            agents.set_default_openai_client(sdk, use_for_tracing=False)
            agent = agents.Agent(name="weather", model="demo", tools=[get_weather],
                                 model_settings=agents.ModelSettings(temperature=0,
                                                                     max_tokens=200))
            return await agents.Runner.run(agent, "What is the weather in Paris?", max_turns=3)

    result = asyncio.run(run())
    assert asked == ["Paris"] and result.final_output
