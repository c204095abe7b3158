"""Ollama's own Python client and LangChain's ChatOllama against /api/."""

import json

import ollama
import pytest
from langchain_ollama import ChatOllama

ASK = [{"role": "user", "content": "What is 2 plus 3?"}]
COLD = {"temperature": 0, "num_predict": 64}
TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


@pytest.fixture
def client(demo):
    return ollama.Client(host=f"http://{demo.host}:{demo.port}")


def test_chat_and_generate(client):
    whole = client.chat(model="demo", messages=ASK, options=COLD)
    parts = list(client.chat(model="demo", messages=ASK, options=COLD, stream=True))
    assert whole.message.content == "2 plus 3 is 5." and whole.done_reason == "stop"
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert parts[-1].eval_count == whole.eval_count > 0 and len(parts) > 2
    answer = client.generate(model="demo", prompt=ASK[0]["content"], options=COLD)
    assert answer.response == whole.message.content


def test_a_round_trip_of_a_tool(client):
    history = [{"role": "user", "content": "What is the weather in Paris?"}]
    first = client.chat(model="demo", messages=history, tools=[TOOL], options=COLD)
    (call,) = first.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Paris"})
    history += [first.message, {"role": "tool", "content": "Sunny.", "tool_name": "get_weather"}]
    assert client.chat(model="demo", messages=history, tools=[TOOL], options=COLD).done


def test_a_schema(client):
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"],
              "additionalProperties": False}
    answer = client.chat(model="demo", messages=ASK, format=schema, options=COLD)
    assert json.loads(answer.message.content)["n"] in (1, 2)


def test_models(client):
    assert [model.model for model in client.list().models] == ["demo:latest"]
    assert client.ps().models[0].context_length == 2048
    assert "tools" in client.show("demo").capabilities
    assert client.pull("demo").status == "success"
    for forbidden in (lambda: client.delete("demo"), lambda: client.copy("demo", "other")):
        with pytest.raises(ollama.ResponseError, match="changes of models by clients"):
            forbidden()
    with pytest.raises(ollama.ResponseError, match="'nobody' not found"):
        client.chat(model="nobody", messages=ASK)


def test_langchain(demo):
    model = ChatOllama(base_url=f"http://{demo.host}:{demo.port}", model="demo", temperature=0)
    assert model.invoke("What is 2 plus 3?").content == "2 plus 3 is 5."
    assert "".join(part.content for part in model.stream("What is 2 plus 3?")) == "2 plus 3 is 5."
