#!/usr/bin/env python3
"""An example: a chat with a tool, by the openai package. Start a server first (`make run`).

    pip install openai
    docs/examples/chat.py [http://127.0.0.1:8000]
"""

import json
import sys

from openai import APIStatusError, OpenAI

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city", "strict": True,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"], "additionalProperties": False}}}


def stream(client, model):
    """Prints an answer while it is generated."""
    chunks = client.chat.completions.create(
        model=model, temperature=0, stream=True,
        messages=[{"role": "user", "content": "What is 2 plus 3?"}])
    for chunk in chunks:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
    print()


def call_a_tool(client, model):
    """Lets the model call a function, and prints the call."""
    answer = client.chat.completions.create(
        model=model, temperature=0, tools=[WEATHER],
        messages=[{"role": "user", "content": "What is the weather in Paris?"}])
    for call in answer.choices[0].message.tool_calls or []:
        print(call.function.name, json.loads(call.function.arguments))


def read_an_error(client, model):
    """Prints the code of an error: docs/errors.md lists them."""
    try:
        client.completions.create(model=model, prompt="Once", temperature=3)
    except APIStatusError as error:
        print(error.status_code, error.body["code"], error.body["param"])


def main():
    server = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    with OpenAI(base_url=f"{server}/v1", api_key="none") as client:
        model = client.models.list().data[0].id
        stream(client, model)
        call_a_tool(client, model)
        read_an_error(client, model)


if __name__ == "__main__":
    main()
