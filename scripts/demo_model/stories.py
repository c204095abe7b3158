"""Short stories: draws a cast and a plot from plots.py and writes the text and its possible titles.

story() returns a Story: what the chat generator needs to phrase a request that the text answers.
"""

from dataclasses import dataclass

import plots
from grammar import capital, expand, made_up_name, person, pick, polish, write
from lexicon import GENDER, WORDS


@dataclass
class Story:
    """A finished story: its text, a title, and phrases for what it is about."""

    text: str
    title: str
    topics: list


def _kind(rng):
    """What a hero is: an animal, a child, someone with a trade, or a creature of tales."""
    roll = rng.random()
    if roll < 0.42:
        kind = pick(rng, WORDS["animal"])
        little = rng.random() < 0.5
        return kind, (pick(rng, WORDS["little"]) + " " + kind if little else kind)
    if roll < 0.60:
        kind = pick(rng, WORDS["child"])
        return kind, pick(rng, WORDS["little"]) + " " + kind
    kind = pick(rng, WORDS["worker" if roll < 0.78 else "wonder"])
    return kind, kind


def _cast(rng, fixed):
    """All values of one story's slots."""
    kind, who = _kind(rng)
    values = person(rng, female=GENDER.get(kind))
    values["kind"], values["who"] = kind, who
    values["fkind"] = pick(rng, WORDS["animal"] + WORDS["wonder"])
    for key, word in person(rng, "f", female=GENDER.get(values["fkind"])).items():
        values[key] = word
    values["friend"] = values.pop("fname")
    if values["friend"] == values["name"]:
        values["friend"] = made_up_name(rng)
    values["the_helper"] = "the " + pick(rng, WORDS["helper"])
    for key in (
        "thing",
        "place",
        "animal",
        "item",
        "food",
        "weather",
        "color",
        "day",
        "skill",
        "home",
        "trait",
        "where",
        "sound",
        "season",
        "machine",
        "event",
        "plant",
        "fear",
        "treasure",
    ):
        values[key] = pick(rng, WORDS[key])
    for key in ("place", "day", "where", "sound", "season"):
        others = [word for word in WORDS[key] if word != values[key]]
        values[key + "2"], values[key + "3"] = rng.sample(others, 2)
    values["where_noun"] = pick(
        rng,
        ["the barn", "the kitchen", "the old tree", "the roof", "the big cupboard", "the garden"],
    )
    values.update(fixed)
    return values


def story(rng, **fixed):
    """One story, drawn afresh; fixed gives slots that the caller has decided."""
    plot = pick(rng, plots.PLOTS)
    values = _cast(rng, fixed)
    values["lesson"] = pick(rng, plot["lesson"] if "lesson" not in fixed else [fixed["lesson"]])
    likes = [like for like in plots.LIKES if "friend" not in like or not plot["strangers"]]
    opening = pick(rng, plots.OPENINGS) + " " + pick(rng, likes)
    beats = [opening] + [pick(rng, beat) for beat in plot["beats"]]
    beats.append(pick(rng, plots.ENDINGS))
    sentences = [capital(expand(rng, beat, values)) for beat in beats]
    if rng.random() < 0.4:
        text = polish(" ".join(sentences))
    else:
        cut = rng.choice((2, 3, 4))
        paragraphs = [" ".join(sentences[:cut]), " ".join(sentences[cut:])]
        text = "\n\n".join(polish(p) for p in paragraphs)
    topics = [expand(rng, about, values) for about in plot["about"]]
    topics += [
        expand(rng, about, values)
        for about in (
            "{a:who} named {name}",
            "{a:who}",
            "{a:kind}",
            "{a:kind} called {name}",
            "{name} and {friend}",
            "{a:kind} and {a:fkind}",
            "{name} the {kind}",
            "{a:kind} and {a:fkind} named {friend}",
            "{friend} the {fkind}",
        )
    ]
    title = capital(
        expand(
            rng, pick(rng, plot["about"] + ["{name} and {friend}", "{name} the {kind}"]), values
        )
    )
    return Story(text, title, topics)


def story_document(rng):
    """A story as a document of its own, now and then under its title."""
    told = story(rng)
    roll = rng.random()
    if roll < 0.12:
        return f"Title: {told.title}\n\n{told.text}"
    if roll < 0.20:
        return f"# {told.title}\n\n{told.text}"
    if roll < 0.26:
        return f"A story about {pick(rng, told.topics)}:\n\n{told.text}"
    return told.text


POEM_LINES = [
    [
        ("the {a1} is sleeping in the sun", "and dreaming of a morning run"),
        ("the {a1} has found a little hat", "and gives it to the {color} cat"),
        ("a {weather} wind blows through the tree", "and sings a song for you and me"),
        ("the moon looks down upon the hill", "and all the {place} is very still"),
        ("the river runs, the river sings", "and {name} dreams of silver wings"),
    ],
    [
        ("the stars are bright, the night is deep", "and {name} slowly falls asleep"),
        ("the rain goes drip, the rain goes drop", "we dance until the clouds will stop"),
        ("{name} has a {thing} that is new", "and {he} will share it all with you"),
        ("so take my hand and come along", "the day is short, the road is long"),
        ("the {season} day is nearly done", "good night, good night, you golden sun"),
    ],
]


def poem(rng, **fixed):
    """Four or more rhymed lines."""
    values = person(rng)
    values.update({"a1": pick(rng, WORDS["animal"])})
    values.update(fixed)
    couplets = rng.sample(POEM_LINES[0], rng.choice((1, 2))) + rng.sample(POEM_LINES[1], 1)
    lines = []
    for first, second in couplets:
        lines += [write(rng, first, values) + ",", write(rng, second, values) + "."]
    return "\n".join(lines)
