"""The chat format: the Jinja template that goes into tokenizer_config.json and the same in Python.

render() writes the training dialogues; evaluate.py checks that the template gives the same text.
"""

import json

END = "<|im_end|>"

TOOLS_HEAD = "You can call these tools:\n<tools>\n"
TOOLS_TAIL = (
    "</tools>\nTo call one, answer with its name and arguments as JSON:\n"
    '<tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>'
)

TEMPLATE = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0]['role'] == 'system' %}{{-"
    " messages[0]['content'] + '\\n\\n' }}{%- endif %}{{- "
    + json.dumps(TOOLS_HEAD)
    + " }}{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}{{- "
    + json.dumps(TOOLS_TAIL)
    + " + '<|im_end|>\\n' }}"
    "{%- elif messages[0]['role'] == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message['role'] == 'system' %}"
    "{%- if not loop.first %}"
    "{{- '<|im_start|>system\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- elif message['role'] == 'tool' %}"
    "{{- '<|im_start|>user\\n<tool_response>\\n' + message['content']"
    " + '\\n</tool_response><|im_end|>\\n' }}"
    "{%- elif message['role'] == 'assistant' and message['tool_calls'] %}"
    "{{- '<|im_start|>assistant' }}"
    "{%- if message['content'] %}{{- '\\n' + message['content'] }}{%- endif %}"
    "{%- for call in message['tool_calls'] %}"
    "{%- set call = call['function'] if call['function'] else call %}"
    "{{- '\\n<tool_call>\\n{\"name\": \"' + call['name'] + '\", \"arguments\": ' }}"
    "{%- if call['arguments'] is string %}{{- call['arguments'] }}"
    "{%- else %}{{- call['arguments'] | tojson }}{%- endif %}"
    "{{- '}\\n</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- else %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def render(messages, tools=None):
    """A dialogue as text, as TEMPLATE renders it without a generation prompt."""
    parts = []
    messages = list(messages)
    if tools:
        system = ""
        if messages[0]["role"] == "system":
            system = messages.pop(0)["content"] + "\n\n"
        listed = "".join(json.dumps(tool) + "\n" for tool in tools)
        parts.append(("system", system + TOOLS_HEAD + listed + TOOLS_TAIL))
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
        parts.append((role, content))
    return "".join(f"<|im_start|>{role}\n{content}{END}\n" for role, content in parts)
