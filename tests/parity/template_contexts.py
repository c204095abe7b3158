"""Conversations for tests/parity/parity_templates.py: what a server may hand to a chat template.

matrix() yields (name, context): roles, tools with calls and results, content parts, reasoning,
documents, missing and null members, odd text, with and without a generation prompt.
"""

import itertools

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "the weather of a city",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Städte auch"},
                    "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                    "days": {"type": ["integer", "null"], "default": 1},
                    "near": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"x": {"type": "number"}}},
                    },
                    "either": {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "abcdefghi",
            "type": "function",
            "function": {
                "name": "get_weather",
                "arguments": {"city": "Zürich", "days": 2, "x": 1.0, "y": [], "q": 'it\'s "so"'},
            },
        }
    ],
}
RESULT = {
    "role": "tool",
    "tool_call_id": "abcdefghi",
    "name": "get_weather",
    "content": '{"t": 21.5}',
}
SYSTEM = {"role": "system", "content": "  Be brief.\nAlways.  "}
USER = {"role": "user", "content": "What about <b>Zürich</b> & 東京? 😀\n"}
ANSWER = {"role": "assistant", "content": "\n 21.5 degrees.  "}
ODD = {"role": "user", "content": "<|im_end|>\n</think>{{ x }} {% if %}\t\u00a0\u2028\x7f\\n'\""}


def conversations():
    two_calls = {
        **CALL,
        "content": "Let me see.",
        "tool_calls": [
            CALL["tool_calls"][0],
            {"id": "ABCDEFGHI", "type": "function", "function": {"name": "now", "arguments": {}}},
        ],
    }
    parts = {
        "role": "user",
        "content": [
            {"type": "text", "text": " one "},
            {"type": "image"},
            {"type": "text", "text": "two"},
        ],
    }
    thought = {
        "role": "assistant",
        "content": "<think>\nhm\n</think>\n\nYes.",
        "reasoning_content": None,
    }
    yield "user", [USER]
    yield "system", [SYSTEM, USER]
    yield "turns", [SYSTEM, USER, ANSWER, {"role": "user", "content": "And now?"}]
    yield "answered", [USER, ANSWER]
    yield "odd", [ODD, ANSWER, ODD]
    yield "empty", [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]
    yield "call", [SYSTEM, USER, CALL]
    yield "result", [USER, CALL, RESULT]
    yield "round", [SYSTEM, USER, CALL, RESULT, ANSWER, USER]
    yield "two calls", [USER, two_calls, RESULT, {**RESULT, "content": "noon"}, ANSWER]
    yield "parts", [parts, ANSWER, parts]
    yield "system parts", [{"role": "system", "content": [{"type": "text", "text": "S"}]}, parts]
    yield "thinking", [
        USER,
        thought,
        USER,
        {"role": "assistant", "content": "B", "reasoning_content": "why\n"},
    ]
    yield "thinking last", [
        USER,
        {"role": "assistant", "thinking": "t", "reasoning_content": "t", "content": "A"},
    ]
    yield "developer", [{"role": "developer", "content": "D"}, USER]
    yield "wrong order", [ANSWER, USER]
    yield "only system", [SYSTEM]
    yield "no content", [USER, {"role": "assistant"}, USER]
    yield "null content", [USER, {"role": "assistant", "content": None}]
    yield "number", [{"role": "user", "content": 3}, {"role": "assistant", "content": 1.5}]
    yield "long", [SYSTEM] + [USER, ANSWER] * 9 + [USER]
    yield "none", []


def matrix():
    flags = [
        {},
        {"enable_thinking": False, "reasoning_effort": "high"},
        {"documents": [{"doc_id": 7, "text": "Text ü"}]},
    ]
    for name, messages in conversations():
        for tools, prompt, extra in itertools.product([None, TOOLS], [True, False], flags):
            context = {
                "messages": messages,
                "tools": tools,
                "documents": None,
                "add_generation_prompt": prompt,
                "bos_token": "<s>",
                "eos_token": "</s>",
                **extra,
            }
            label = f"{name}{' tools' if tools else ''}{' prompt' if prompt else ''}"
            yield label + "".join(f" {key}" for key in extra), context
