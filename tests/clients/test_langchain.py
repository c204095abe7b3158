"""LangChain's ChatOpenAI: invoke, stream, batch, tools bound to a model, structured output."""

import asyncio

import pytest
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field

ASK = "What is 2 plus 3?"


@tool
def get_weather(city: str) -> str:
    """Weather of a city"""
    return f"sunny in {city}"


class Person(BaseModel):
    """A person"""
    name: str = Field(max_length=20)
    age: int


@pytest.fixture
def model(url):
    return ChatOpenAI(base_url=url, api_key="none", model="demo", temperature=0, max_retries=0,
                      stream_usage=True, max_tokens=200)


def test_invoke(model):
    answer = model.invoke([SystemMessage("Be brief."), HumanMessage(ASK)])
    assert answer.content and answer.usage_metadata["total_tokens"] > 0
    assert answer.response_metadata["finish_reason"] == "stop"


def test_stream(model):
    whole = None
    for chunk in model.stream(ASK):
        whole = chunk if whole is None else whole + chunk
    assert whole.content == model.invoke(ASK).content == "2 plus 3 is 5."
    assert whole.usage_metadata["output_tokens"] > 0


def test_batch(model):
    assert [a.content for a in model.batch([ASK, ASK])] == ["2 plus 3 is 5."] * 2
    assert asyncio.run(model.ainvoke(ASK)).content == "2 plus 3 is 5."


@pytest.mark.parametrize("stream", [False, True])
def test_tools(model, stream):
    bound = model.bind_tools([get_weather], tool_choice="required", parallel_tool_calls=False)
    question = [HumanMessage("What is the weather in Paris?")]
    if stream:
        answer = None
        for chunk in bound.stream(question):
            answer = chunk if answer is None else answer + chunk
    else:
        answer = bound.invoke(question)
    assert not answer.invalid_tool_calls and len(answer.tool_calls) == 1
    call = answer.tool_calls[0]
    assert call["name"] == "get_weather" and isinstance(call["args"]["city"], str) and call["id"]
    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage)
    assert model.bind_tools([get_weather]).invoke([*question, answer, result]) is not None


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(model, method):
    person = model.with_structured_output(Person, method=method).invoke("Make up a person.")
    assert isinstance(person, Person)


def test_completions(url):
    model = OpenAI(base_url=url, api_key="none", model="demo", max_tokens=8, temperature=0)
    assert model.invoke("Once upon a time")
    assert "".join(model.stream("Once upon a time")) == model.invoke("Once upon a time")
