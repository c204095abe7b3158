"""pydantic-ai over both of OpenAI's APIs: an agent with a tool, and structured output."""

import asyncio

import pytest
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from shapes import Person


@pytest.fixture(params=[OpenAIChatModel, OpenAIResponsesModel], ids=["chat", "responses"])
def model(request, url):
    return request.param("demo", provider=OpenAIProvider(base_url=url, api_key="none"),
                         settings={"temperature": 0, "max_tokens": 400})


@pytest.mark.parametrize("form", [ToolOutput, NativeOutput])
def test_structured_output(model, form):
    agent = Agent(model, output_type=form(Person), retries=0)
    answer = agent.run_sync("Make up a person.").output
    assert isinstance(answer, Person)

    async def stream():
        async with agent.run_stream("Make up a person.") as run:
            return await run.get_output()

    assert asyncio.run(stream()) == answer


def test_an_agent_with_a_tool(model):
    asked = []
    agent = Agent(model, retries=0)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Weather of a city"""
        asked.append(city)
        return "Sunny."

    run = agent.run_sync("What is the weather in Paris?")
    assert asked == ["Paris"] and run.output
    assert (run.usage.requests, run.usage.tool_calls) == (2, 1)
