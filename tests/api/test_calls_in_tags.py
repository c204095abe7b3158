"""Calls whose arguments are tags: the demo model behind a template of Qwen3-Coder's format."""

import json
from pathlib import Path
from typing import Literal, Optional

import openai
import pytest
from pydantic import BaseModel, Field

from harness import DEMO, PATIENCE
from test_chat import chat, join, stream, user

TEMPLATE = Path(__file__).parents[1] / "fixtures/templates/qwen3_coder.jinja"
FORECAST = {"type": "function", "function": {
    "name": "forecast", "description": "Weather of the next days",
    "parameters": {"type": "object", "additionalProperties": False,
                   "required": ["city", "days", "at"],
                   "properties": {
                       "city": {"type": "string", "maxLength": 12},
                       "days": {"type": "integer", "minimum": 1, "maximum": 9},
                       "at": {"type": "object", "required": ["hours"],
                              "additionalProperties": False,
                              "properties": {"hours": {"type": "array", "maxItems": 3,
                                                       "items": {"type": "boolean"}}}},
                       "note": {"type": ["string", "null"], "maxLength": 5}}}}}
TIME = {"type": "function", "function": {"name": "get_time"}}


class Forecast(BaseModel):
    """Weather of the next days"""
    city: str = Field(max_length=12)
    days: int
    unit: Literal["c", "f"]
    rain: Optional[bool]


@pytest.fixture
def server(start):
    return start(DEMO, "--chat-template", str(TEMPLATE), "--served-model-name", "demo",
                 "--max-model-len", 2048)


def check_arguments(call):
    arguments = json.loads(call["arguments"])
    if call["name"] == "get_time":
        assert arguments == {}
        return
    assert list(arguments) in (["city", "days", "at"], ["city", "days", "at", "note"])
    assert isinstance(arguments["city"], str) and len(arguments["city"]) <= 12
    assert type(arguments["days"]) is int and 1 <= arguments["days"] <= 9
    assert list(arguments["at"]) == ["hours"] and len(arguments["at"]["hours"]) <= 3
    assert all(type(hour) is bool for hour in arguments["at"]["hours"])
    note = arguments.get("note")
    assert note is None or isinstance(note, str) and len(note) <= 5


def test_forced_calls_follow_their_schema(server):
    for seed in range(5):
        fields = {"tools": [FORECAST, TIME], "tool_choice": "required", "temperature": 1.5,
                  "seed": seed, "max_tokens": 1200}
        answer = chat(server, "Once upon a time", **fields)["choices"][0]
        calls = [call["function"] for call in answer["message"]["tool_calls"]]
        cut = answer["finish_reason"] == "length"  # up to 16 calls: the last may lack parameters
        assert cut or answer["finish_reason"] == "tool_calls"
        assert answer["message"]["content"] is None
        for call in calls[:-1] if cut else calls:
            check_arguments(call)
        messages, reasons = join(stream(server, "Once upon a time", **fields))
        assert messages[0]["tool_calls"] == calls and reasons[0] == answer["finish_reason"]
    follow_up = [*user("Hi"), answer["message"],
                 *({"role": "tool", "tool_call_id": call["id"], "content": "sunny"}
                   for call in answer["message"]["tool_calls"])]
    chat(server, follow_up, tools=[FORECAST, TIME], max_tokens=5)


def test_a_named_call(server):
    choice = {"type": "function", "function": {"name": "get_time"}}
    answer = chat(server, "Hi", tools=[FORECAST, TIME], tool_choice=choice)["choices"][0]
    assert [call["function"] for call in answer["message"]["tool_calls"]] == [
        {"name": "get_time", "arguments": "{}"}]
    assert "tool calls qwen3_coder" in server.log(), "found in the template"


def test_openai_helpers(server):
    asked = {"model": "demo", "messages": user("Hi"), "seed": 1, "max_tokens": 600,
             "tools": [openai.pydantic_function_tool(Forecast)], "tool_choice": "required",
             "parallel_tool_calls": False}
    with openai.OpenAI(base_url=f"http://{server.host}:{server.port}/v1", api_key="none",
                       timeout=60 * PATIENCE, max_retries=0) as client:
        calls = client.chat.completions.parse(**asked).choices[0].message.tool_calls
        assert len(calls) == 1 and isinstance(calls[0].function.parsed_arguments, Forecast)
        with client.chat.completions.stream(**asked) as events:
            pieces = [event.arguments_delta for event in events
                      if event.type == "tool_calls.function.arguments.delta"]
            call = events.get_final_completion().choices[0].message.tool_calls[0]
    assert "".join(pieces) == call.function.arguments == calls[0].function.arguments
    assert isinstance(call.function.parsed_arguments, Forecast)
