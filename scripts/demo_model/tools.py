"""Tools for the tool-call dialogues: schemas, requests that need them, calls and results.

tool_turn() returns the schemas to list and the messages of one call, in the Hermes manner: the
assistant writes <tool_call>{...}</tool_call>, a tool message answers, the assistant sums it up.
"""

import json

from grammar import made_up_name, pick
from lexicon import WORDS


def _schema(name, description, **parameters):
    """An OpenAI tool object; parameters maps a name to its JSON type."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(parameters),
            },
        },
    }


def _city(rng):
    return pick(rng, WORDS["city"]) if rng.random() < 0.7 else made_up_name(rng)


def _weather(rng):
    city, sky, degrees = _city(rng), pick(rng, WORDS["weather"]), rng.randrange(-5, 36)
    return (
        pick(
            rng,
            [
                f"What is the weather in {city}?",
                f"How is the weather in {city} today?",
                f"Weather in {city}?",
                f"Is it warm in {city}?",
            ],
        ),
        {"city": city},
        {"weather": sky, "temperature": degrees},
        f"In {city} it is {sky} and {degrees} degrees.",
    )


def _time(rng):
    city, clock = _city(rng), f"{rng.randrange(24)}:{rng.randrange(60):02d}"
    return (
        pick(rng, [f"What time is it in {city}?", f"Tell me the time in {city}."]),
        {"city": city},
        {"time": clock},
        f"It is {clock} in {city}.",
    )


def _timer(rng):
    minutes = rng.randrange(2, 61)
    return (
        pick(
            rng, [f"Set a timer for {minutes} minutes.", f"Please wake me in {minutes} minutes."]
        ),
        {"minutes": minutes},
        {"ok": True},
        f"The timer is set for {minutes} minutes.",
    )


def _add(rng):
    a, b = rng.randrange(100, 1000), rng.randrange(100, 1000)
    return (
        pick(rng, [f"What is {a} + {b}?", f"Add {a} and {b}."]),
        {"a": a, "b": b},
        {"result": a + b},
        f"{a} + {b} = {a + b}",
    )


def _message(rng):
    name, word = pick(rng, WORDS["girl"] + WORDS["boy"]), pick(
        rng,
        [
            "I am late",
            "see you soon",
            "happy birthday",
            "the cake is ready",
            "call me",
            "good night",
        ],
    )
    return (
        f"Send a message to {name}: {word}",
        {"to": name, "text": word},
        {"sent": True},
        f"I sent your message to {name}.",
    )


def _light(rng):
    color, room = pick(rng, WORDS["color"]), pick(
        rng, ["kitchen", "bedroom", "garden", "bathroom"]
    )
    return (
        f"Make the light in the {room} {color}.",
        {"room": room, "color": color},
        {"ok": True},
        f"The light in the {room} is {color} now.",
    )


TOOLS = [
    (_schema("get_weather", "Get the weather of a city", city="string"), _weather),
    (_schema("get_time", "Get the local time of a city", city="string"), _time),
    (_schema("set_timer", "Set a timer", minutes="integer"), _timer),
    (_schema("add", "Add two numbers", a="integer", b="integer"), _add),
    (_schema("send_message", "Send a message", to="string", text="string"), _message),
    (_schema("set_light", "Change the light of a room", room="string", color="string"), _light),
]


def call_text(name, arguments):
    """The assistant's text of one call."""
    call = {"name": name, "arguments": arguments}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def tool_turn(rng):
    """(schemas, messages, schemas' names): one to three tools and a request for one of them."""
    chosen = rng.sample(TOOLS, rng.choice((1, 1, 2, 3)))
    schema, maker = pick(rng, chosen)
    question, arguments, result, summary = maker(rng)
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": call_text(schema["function"]["name"], arguments)},
    ]
    if rng.random() < 0.6:
        messages += [
            {"role": "tool", "content": json.dumps(result)},
            {"role": "assistant", "content": summary},
        ]
    return [tool for tool, _ in chosen], messages
