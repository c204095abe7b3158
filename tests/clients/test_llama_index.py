"""LlamaIndex's OpenAILike, by its default the completions route, and as a chat model."""

import asyncio

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

ASK = "What is 2 plus 3?"


def make(url, **options):
    return OpenAILike(model="demo", api_base=url, api_key="none", temperature=0, max_tokens=200,
                      context_window=2048, max_retries=0, **options)


@pytest.fixture
def chat(url):
    return make(url, is_chat_model=True, is_function_calling_model=True)


def test_the_completions_route_is_its_default(url):
    model = OpenAILike(model="demo", api_base=url, api_key="none", max_tokens=8, temperature=0)
    answer = model.complete("Once upon a time")
    assert answer.text
    assert list(model.stream_complete("Once upon a time"))[-1].text == answer.text


def test_chat(chat):
    answer = chat.chat([ChatMessage(role="system", content="Be brief."),
                        ChatMessage(role="user", content=ASK)])
    assert answer.message.content
    plain = chat.complete(ASK).text
    assert plain == "2 plus 3 is 5."
    streamed = list(chat.stream_chat([ChatMessage(role="user", content=ASK)]))
    assert streamed[-1].message.content == plain
    assert asyncio.run(chat.acomplete(ASK)).text == plain


def test_tools(chat):
    def get_weather(city: str) -> str:
        """Weather of a city"""
        return f"sunny in {city}"

    tool = FunctionTool.from_defaults(fn=get_weather)
    answer = chat.chat_with_tools([tool], user_msg="What is the weather in Paris?",
                                  tool_required=True)
    calls = chat.get_tool_calls_from_response(answer)
    assert calls[0].tool_name == "get_weather" and isinstance(calls[0].tool_kwargs["city"], str)
