"""JSON records: a sentence or two of description and the object that says the same.

record() returns (description, fields, json text); the chat generator and record_document() use it.
"""

import json

from grammar import made_up_name, pick
from lexicon import WORDS


def _name(rng):
    known = rng.random() < 0.75
    return pick(rng, WORDS["girl"] + WORDS["boy"]) if known else made_up_name(rng)


def _city(rng):
    return pick(rng, WORDS["city"]) if rng.random() < 0.8 else made_up_name(rng)


def _person(rng):
    name, age, city = _name(rng), rng.randrange(5, 91), _city(rng)
    data = {"name": name, "age": age, "city": city}
    text = pick(
        rng,
        [
            f"{name} is {age} years old and lives in {city}.",
            f"My name is {name}. I am {age} years old and I live in {city}.",
            f"{name}, {age}, lives in {city}.",
            f"{name} from {city} is {age} years old.",
            f"This is {name}. {name} is {age} and comes from {city}.",
        ],
    )
    if rng.random() < 0.3:
        data["job"] = pick(rng, WORDS["job"])
        text += f" {name} works as a {data['job']}."
    if rng.random() < 0.2:
        data["hobby"] = pick(rng, WORDS["hobby"])
        text += f" {name} likes {data['hobby']}."
    if rng.random() < 0.15:
        data["pet"] = pick(rng, WORDS["pet"]) if rng.random() < 0.7 else None
        text += f" {name} has " + (f"a {data['pet']}." if data["pet"] else "no pet.")
    return text, data


def _item(rng):
    item, color = pick(rng, WORDS["item"]), pick(rng, WORDS["color"])
    price, count = rng.randrange(1, 100), rng.randrange(1, 50)
    text = pick(
        rng,
        [
            f"We have {count} {color} items of type {item}. Each costs {price} dollars.",
            f"A {color} {item} costs {price} dollars. There are {count} in stock.",
            f"For sale: one {color} {item} at {price} dollars, {count} left.",
        ],
    )
    data = {"item": item, "color": color, "price": price, "count": count}
    if rng.random() < 0.3:
        data["sold_out"] = False
    return text, data


def _weather(rng):
    city, sky, degrees = _city(rng), pick(rng, WORDS["weather"]), rng.randrange(-10, 36)
    text = pick(
        rng,
        [
            f"In {city} it is {sky} and {degrees} degrees.",
            f"The weather in {city} is {sky} today, at {degrees} degrees.",
        ],
    )
    return text, {"city": city, "weather": sky, "temperature": degrees}


def _event(rng):
    event, day = pick(rng, WORDS["event"]), pick(rng, WORDS["day"])
    hour, city = rng.randrange(8, 22), _city(rng)
    text = pick(
        rng,
        [
            f"The {event} is on {day} at {hour}:00 in {city}.",
            f"Come to {city} on {day} for the {event}! It starts at {hour}:00.",
        ],
    )
    return text, {"event": event, "day": day, "time": f"{hour}:00", "city": city}


def _basket(rng):
    name = _name(rng)
    things = rng.sample(WORDS["fruit"], rng.choice((2, 3)))
    text = f"{name} buys " + ", ".join(things[:-1]) + f" and {things[-1]}."
    return text, {"name": name, "items": things}


MAKERS = [_person] * 6 + [_item, _weather, _event, _basket]


def record(rng):
    """(description, fields, JSON text)."""
    text, data = pick(rng, MAKERS)(rng)
    indent = 2 if rng.random() < 0.12 else None
    return text, list(data), json.dumps(data, indent=indent)


def record_document(rng):
    """A record as plain text, with the description before it or alone."""
    text, fields, answer = record(rng)
    style = rng.random()
    if style < 0.45:
        return f"Text: {text}\nJSON: {answer}"
    if style < 0.6:
        return f"{text}\nFields: {', '.join(fields)}\nJSON: {answer}"
    if style < 0.75:
        more = [record(rng) for _ in range(rng.choice((1, 2, 3)))]
        several = [(text, fields, answer)] + more
        return "Records:\n\n" + "\n\n".join(f"Text: {t}\nJSON: {j}" for t, _, j in several)
    if style < 0.9:
        return answer
    lines = [json.dumps(pick(rng, MAKERS)(rng)[1]) for _ in range(rng.choice((2, 3, 4)))]
    return "\n".join(lines)
