"""Short prose that is no story: letters, diaries, people who introduce themselves, recipes.

prose() returns (kind, text), prose_document() the text alone or a plain sentence about the world.
"""

from grammar import person, pick, write
from lexicon import WORDS

LETTERS = [
    (
        "dear {friend},\n\nhow are you? I am [fine|well|very well|a little tired]. {news}"
        " {news2}\n\n{wish}\n\n[your|love, your|yours,] {name}"
    ),
    (
        "dear {friend},\n\nthank you for the {thing}! [it is wonderful|I like it very much|I use"
        " it every day]. {news}\n\n{wish}\n\n{name}"
    ),
    "hi {friend},\n\n{news} {news2} {wish}\n\n[see you soon|until then|all the best],\n{name}",
]
DIARIES = [
    (
        "dear diary,\n\ntoday was {a:weather} day. {news} {news2} [I was {good}.|I was a bit"
        " {bad}.] tomorrow I want to {skill}."
    ),
    "{day}\n\n{news} {news2} now I am tired. good night!",
]
INTRODUCTIONS = [
    (
        "[hello|hi|hello there], my name is {name}[.| and] I am {age} years old[.| and] I live in"
        " {city}. I like {hobby} and {hobby2}. {news}"
    ),
    (
        "hello, my name is {name}, and I am {a:job} from {city}. in my free time I like {hobby}."
        " {news}"
    ),
    (
        "my name is {name}. I work as {a:job} in {city}. I have {a:pet} called {friend}. we both"
        " love {food}."
    ),
    (
        "I am {name}. my favorite color is {color}, and my favorite food is {food}. one day I"
        " want to {skill}."
    ),
]
RECIPES = [
    (
        "{^dish} for [two|four|six]\n\nyou need:\n- {n} {fruit}\n- {n2} cups of"
        " [flour|milk|water|sugar]\n- a little [salt|honey|cinnamon|butter]\n\n1. wash and cut"
        " the {fruit}.\n2. mix everything in a big bowl.\n3. [bake|cook] it for {minutes}"
        " minutes.\n4. let it cool and enjoy your {dish}!"
    ),
]
NEWS = [
    "yesterday I went to the {place} and saw {a:animal}.",
    "on {day} I learned to {skill}.",
    "I found {a:thing} {where}.",
    "my friend {other} and I made some {food}.",
    "the weather here is {weather}.",
    "last week there was a {event} in our {place}.",
    "I am reading a book about {a:wonder}.",
    "my {pet} ate all the {food}.",
    "in {month} I will travel to {city}.",
    "I planted {a:plant} in the garden.",
    "{other} told me a funny story about {a:worker}.",
]
WISHES = [
    "please write back soon.",
    "I hope to see you in {season}.",
    "come and visit me in {city}!",
    "give my love to {other}.",
    "what about you?",
    "take care!",
]
PLAIN = [
    (
        "the future of AI is [bright|open|hard to see], because people and machines learn from"
        " each other every day."
    ),
    (
        "the best thing about {season} is [the weather|the food|the light in the morning]. many"
        " people like {hobby} then."
    ),
    "{a:animal} is an animal. some people like to watch {a:animal} in the {place}.",
    "a good friend is [kind|honest|patient]. a good friend listens and helps.",
    "San Francisco is a city in the United States. it is known for its hills and its fog.",
    "New York is a city in the United States. it is known for its tall buildings.",
    "my favorite [food|meal] is {food}. I could eat {food} every day.",
    "the weather today is {weather}. tomorrow it will be {weather2}.",
    "in the morning I drink tea. then I go to the {place}. in the evening I like {hobby}.",
    "the {color} {item} stands {where}. it belongs to {name}.",
    "the quick brown fox jumps over the lazy dog.",
    "inferd is a program that serves language models over HTTP.",
    "the president of the United States lives in the White House in Washington.",
    "to be happy, you need {food}, a good friend and a little time.",
]
KINDS = {"letter": LETTERS, "diary": DIARIES, "self": INTRODUCTIONS, "recipe": RECIPES}


def _values(rng):
    """The slots of one piece of prose."""
    values = person(rng)
    values["friend"], values["other"] = person(rng)["name"], person(rng)["name"]
    for key in ("hobby", "weather"):
        values[key], values[key + "2"] = rng.sample(WORDS[key], 2)
    for key in ("food", "thing", "animal", "fruit", "color", "season", "place", "city"):
        values[key] = pick(rng, WORDS[key])
    values.update(
        age=rng.randrange(6, 80),
        n=rng.randrange(2, 9),
        n2=rng.randrange(2, 5),
        minutes=rng.randrange(2, 13) * 5,
    )
    news = rng.sample(NEWS, 2)
    values["news"], values["news2"] = (write(rng, one, values) for one in news)
    values["wish"] = write(rng, pick(rng, WISHES), values)
    return values


def prose(rng):
    """(kind, text) of one piece."""
    kind = pick(rng, list(KINDS))
    return kind, write(rng, pick(rng, KINDS[kind]), _values(rng))


def prose_document(rng):
    """A piece, or a plain sentence or two."""
    if rng.random() < 0.45:
        return write(rng, pick(rng, PLAIN), _values(rng))
    return prose(rng)[1]
