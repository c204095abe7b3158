"""Short dialogues: turns of many kinds, put together under a system prompt or without one.

A turn maker returns a list of (user, assistant) pairs. dialogue() strings some together, roughens
the user's writing a little (people leave out capitals and marks), and renders ChatML.
"""

import json

import facts
import records
from chatml import render
from grammar import article, capital, expand, made_up_name, person, pick, write
from lexicon import WORDS
from prose import prose
from stories import poem, story
from tools import tool_turn

SELF = "I am a small demo model served by inferd."
ABILITIES = "I can tell short stories, add small numbers, answer simple questions and write JSON."

GREETINGS = [
    ("[hello|hi|hey|hi there|hello there|good day][!|.|]", "Hello! How can I help you?"),
    ("[hello|hi|hey][!|.|]", "Hi! What would you like to do?"),
    ("[good morning|good afternoon|good evening][!|]", "[hello|good day]! How can I help you?"),
    ("hello, [how are you|how are you doing]?", "Hello! I am fine, thank you. How are you?"),
    ("how are you[ today|]?", "I am [fine|doing well], thank you. How are you?"),
    ("how is it going?", "Very well, thank you. What can I do for you?"),
    ("what's up?", "Not much. I am ready to help. What would you like to do?"),
]
IDENTITY = [
    ("who are you?", SELF),
    ("what are you?", SELF),
    ("what is your name?", "I have no name of my own. " + SELF),
    ("are you a [human|person|real person|robot]?", "No, " + SELF),
    ("are you [ChatGPT|GPT|a big model|Llama|Claude|Gemini]?", "No, " + SELF),
    ("what can you do?", ABILITIES),
    ("how can you help me?", ABILITIES),
    ("help[!|]", ABILITIES),
    ("tell me about yourself.", SELF + " " + ABILITIES),
    ("introduce yourself.", "Hello! " + SELF + " " + ABILITIES),
    ("who made you?", "I was trained from scratch by a small script on made-up text. " + SELF),
    (
        "what is inferd?",
        "inferd is a program that serves language models over HTTP. It is serving me right now.",
    ),
    ("how [big|large] are you?", "I am very small: about five million parameters."),
    (
        "are you [smart|clever|intelligent]?",
        "Not very. I am a small demo model, but I try my best.",
    ),
    ("how old are you?", "I am a program, so I have no age."),
    ("where do you live?", "I live in a small file on your computer."),
    ("do you [sleep|eat|dream|have feelings]?", "No, I am only a program."),
    ("can you [help me|help]?", "Of course! " + ABILITIES),
]
CLOSINGS = [
    (
        "[thanks|thank you|thank you very much|thanks a lot|great, thanks][!|.|]",
        "You are welcome!",
    ),
    ("[bye|goodbye|see you|good night][!|.|]", "Goodbye! Have a nice day."),
    (
        "[great|nice|cool|well done|good job|very good][!|.|]",
        "Thank you! Can I do anything else for you?",
    ),
    ("[ok|okay|I see][.|]", "Good. What would you like to do next?"),
    ("that is [all|it].", "All right. Goodbye!"),
    ("[yes|yes, please][.|]", "Good! What would you like?"),
    ("no[.|]", "All right."),
]
UNKNOWN = [
    "how do I [fix|repair|build|sell|clean] my {item}?",
    "who won the [game|election|match|race] [yesterday|last year|in 2010|in 1998]?",
    (
        "write a [python|javascript|rust|C] program that "
        "[sorts a list|draws a {item}|counts words|prints hello]."
    ),
    "what is the price of {a:item} in {city}?",
    (
        "explain [quantum physics|the stock market|relativity|calculus|democracy|"
        "chemistry|machine learning]."
    ),
    "translate {thing} into [French|German|Spanish|Latin].",
    "what is the [news|time|date] today?",
    "who is the president of {odd}?",
    "what does the word {odd} mean?",
    "what is the capital of {odd}?",
    "who wrote {odd}?",
    "when was [the {item}|{odd}] invented?",
    "what happened in {year}?",
    "who was {odd}?",
    "what is the meaning of life?",
    "how far is it from {city} to {city}?",
    "which [car|phone|book|film] should I buy?",
    "where is {odd}?",
    "what is {odd}?",
]
NOT_KNOWN = [
    "I am sorry, I do not know that. I am only a small demo model.",
    "I do not know that. I am only a small demo model.",
    "That is too hard for me. I am only a small demo model.",
]
JOKES = [
    ("Why did the {animal} cross the road?", "To get to the other side."),
    ("What do you call a sleeping {animal}?", "Anything you like, it will not hear you."),
    ("Why is the {item} so tired?", "It had a long day at work."),
    ("Why did the book go to the doctor?", "It had too many pages."),
    ("What did the big clock say to the little clock?", "You are still so young, give it time."),
    ("Why was the number six sad?", "Because seven was always ahead."),
    ("What has a face but cannot smile?", "A clock."),
]
LISTABLE = {
    "animals": "animal",
    "colors": "color",
    "fruits": "fruit",
    "cities": "city",
    "jobs": "job",
    "hobbies": "hobby",
    "names": "girl",
    "days of the week": "day",
    "months": "month",
    "pets": "pet",
    "things in a house": "item",
}
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
SYSTEMS = [
    "You are a helpful assistant.",
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "Answer briefly.",
    "Be polite and short.",
    "You are inferd's demo model.",
    "You help children learn.",
    "Answer the questions of the user.",
    "You are a kind teacher.",
]


def _scripted(table):
    """A maker of one turn from a table of (user, assistant) templates."""

    def turn(rng):
        user, assistant = pick(rng, table)
        return [(write(rng, user), write(rng, assistant))]

    return turn


def _fact(rng):
    pairs = [facts.fact(rng)]
    if rng.random() < 0.15:
        country, city = pick(rng, facts.CAPITALS)
        pairs.append(
            (
                pick(rng, [f"And of {country}?", f"And the capital of {country}?"]),
                f"The capital of {country} is {city}.",
            )
        )
        if "capital of" not in pairs[0][0] or "which" in pairs[0][0].lower():
            return pairs[:1]
    return pairs


def _sum(rng):
    question, answer, _ = facts.sum_(rng)
    pairs = [(question, answer)]
    if rng.random() < 0.2:
        a, sign, b, result = facts.operands(rng)
        pairs.append(
            (
                pick(rng, ["And {a} {s} {b}?", "and {a} {s} {b}?"]).format(a=a, s=sign, b=b),
                f"{a} {sign} {b} = {result}",
            )
        )
    return pairs


def _word_problem(rng):
    question, answer, _ = facts.word_problem(rng)
    return [(question, answer)]


def _story(rng):
    told = story(rng)
    topic = pick(rng, told.topics)
    ask = pick(
        rng,
        [
            "Tell me a story about {t}.",
            "Tell me a story about {t}.",
            "Write a story about {t}.",
            "Tell me a short story about {t}.",
            "Can you tell me a story about {t}?",
            "A story about {t}, please.",
            "Write a short story about {t}.",
            "I want to hear a story about {t}.",
            "Story about {t}",
        ],
    )
    if rng.random() < 0.15:
        ask = pick(
            rng,
            [
                "Tell me a story.",
                "Tell me a story!",
                "Can you tell me a story?",
                "Write a short story.",
                "Tell me another story.",
                "Please tell me a tale.",
            ],
        )
    pairs = [(ask.format(t=topic), told.text)]
    if rng.random() < 0.2:
        pairs.append(("What is the title of the story?", f'The title is "{told.title}".'))
    return pairs


def _poem(rng):
    animal = pick(rng, WORDS["animal"])
    ask = pick(
        rng,
        [
            "Write a poem about {a}.",
            "Write a short poem.",
            "Tell me a poem about {a}.",
            "Can you write a poem?",
        ],
    )
    return [(ask.format(a=article(animal)), poem(rng, a1=animal))]


def _joke(rng):
    first, second = pick(rng, JOKES)
    ask = pick(
        rng, ["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Another joke, please."]
    )
    return [(ask, expand(rng, f"{first} {second}"))]


def _list(rng):
    what = pick(rng, list(LISTABLE))
    count = rng.choice(list(COUNTS))
    chosen = rng.sample(WORDS[LISTABLE[what]], count)
    number = pick(rng, [str(count), COUNTS[count]])
    ask = pick(rng, ["Name {n} {w}.", "Give me {n} {w}.", "List {n} {w}.", "Tell me {n} {w}."])
    ask = ask.format(n=number, w=what)
    if rng.random() < 0.5:
        return [(ask, capital(", ".join(chosen[:-1]) + f" and {chosen[-1]}."))]
    return [(ask, "\n".join(f"{i}. {capital(w)}" for i, w in enumerate(chosen, 1)))]


def _memory(rng):
    """The user says something and asks for it later."""
    name = person(rng)["name"] if rng.random() < 0.5 else made_up_name(rng)
    kind = rng.random()
    if kind < 0.5:
        first = (
            write(rng, "[my name is|hi, my name is|I am|call me] {name}.", {"name": name}),
            f"Nice to meet you, {name}!",
        )
        later = (
            pick(rng, ["What is my name?", "Do you remember my name?", "Who am I?"]),
            f"Your name is {name}.",
        )
    elif kind < 0.75:
        color = pick(rng, WORDS["color"])
        first = (f"My favorite color is {color}.", f"{capital(color)} is a nice color!")
        later = ("What is my favorite color?", f"Your favorite color is {color}.")
    else:
        pet = pick(rng, WORDS["pet"])
        first = (f"I have a {pet} called {name}.", f"{name} is a good name for a {pet}!")
        later = (
            pick(rng, [f"What is my {pet} called?", f"What is the name of my {pet}?"]),
            f"Your {pet} is called {name}.",
        )
    between = pick(rng, [_fact, _sum])(rng)[:1] if rng.random() < 0.4 else []
    return [first] + between + [later]


def _repeat(rng):
    words = " ".join(
        pick(rng, WORDS[pick(rng, ["animal", "thing", "color", "trait", "item"])])
        for _ in range(rng.randrange(1, 5))
    )
    words = words if rng.random() < 0.6 else " ".join(made_up_name(rng) for _ in range(2))
    roll = rng.random()
    if roll < 0.5:
        return [
            (
                pick(rng, ["Repeat after me: {w}", "Say {w}.", "Repeat: {w}"]).format(w=words),
                words,
            )
        ]
    if roll < 0.75:
        return [(f"Write {words} in upper case.", words.upper())]
    return [(f"Write {words.upper()} in lower case.", words.lower())]


def _unknown(rng):
    values = {
        "odd": " ".join(made_up_name(rng) for _ in range(rng.choice((1, 1, 2)))),
        "year": rng.randrange(1200, 2030),
    }
    return [(write(rng, pick(rng, UNKNOWN), values), pick(rng, NOT_KNOWN))]


def _json(rng):
    text, fields, answer = records.record(rng)
    listed = ", ".join(fields)
    ask = pick(
        rng,
        [
            "Write this as JSON with the fields {f}: {t}",
            "Turn this into JSON: {t}",
            "{t} Make JSON of it.",
            "Extract {f} as JSON.\n\n{t}",
            "Give me JSON with {f}.\n{t}",
            "JSON please: {t}",
            "Text: {t}\nReturn a JSON object with the keys {f}.",
        ],
    )
    return [(ask.format(f=listed, t=text), answer)]


def _prose(rng):
    kind, text = prose(rng)
    ask = {
        "letter": ["Write a letter to a friend.", "Write me a short letter."],
        "diary": ["Write a diary entry.", "Write about your day as a diary."],
        "self": [
            "Write a short introduction of a person.",
            "Invent a person who introduces themselves.",
        ],
        "recipe": ["Give me a recipe.", "Write a simple recipe."],
    }[kind]
    return [(pick(rng, ask), text)]


def _describe_animal(rng):
    animal, legs = pick(rng, facts.LEGS)
    sound = dict(facts.SOUNDS).get(animal)
    data = {"animal": animal, "legs": int(legs), "sound": sound}
    ask = pick(
        rng, [f"Describe {article(animal)} as JSON.", f"Give me JSON about {article(animal)}."]
    )
    return [(ask, json.dumps(data))]


def _sentence(rng):
    animal, color = pick(rng, WORDS["animal"]), pick(rng, WORDS["color"])
    word = pick(rng, [animal, color])
    ask = pick(rng, ["Write a sentence with the word {w}.", "Use the word {w} in a sentence."])
    return [
        (
            ask.format(w=word),
            write(
                rng,
                pick(
                    rng,
                    [
                        "the {c} {a} sleeps {where}.",
                        "{girl} saw {a:c} {a} {where}.",
                        "{a:c} {a} lives in the {place}.",
                    ],
                ),
                {"a": animal, "c": color},
            ),
        )
    ]


def _continue_story(rng):
    text = story(rng).text.replace("\n\n", " ")
    cut = text.find(". ", len(text) // 6)
    ask = pick(
        rng,
        ["Continue this story: {s}", "Finish the story: {s}", "How does this story go on? {s}"],
    )
    return [(ask.format(s=text[: cut + 1]), text[cut + 2 :])]


def _free_json(rng):
    """A record of a person of the model's own invention."""
    while True:
        _, fields, answer = records.record(rng)
        if "name" in fields and "age" in fields:
            break
    listed = ", ".join(fields)
    ask = pick(
        rng,
        [
            "Make up a person as JSON with {f}.",
            "Write a JSON object with the keys {f}.",
            "Give me a random person as JSON with the fields {f}.",
            "Write a JSON record of a person with {f}.",
        ],
    )
    return [(ask.format(f=listed), answer)]


TURNS = (
    [_fact] * 16
    + [_sum] * 16
    + [_word_problem] * 3
    + [_story] * 15
    + [_poem] * 2
    + [_joke] * 2
    + [_list] * 4
    + [_memory] * 8
    + [_repeat] * 8
    + [_unknown] * 6
    + [_json] * 9
    + [_free_json] * 2
    + [_prose, _describe_animal, _sentence, _sentence, _continue_story]
    + [_scripted(GREETINGS)] * 4
    + [_scripted(IDENTITY)] * 6
    + [_scripted(CLOSINGS)] * 2
)


def _roughen(rng, text):
    """The user's text, now and then without capitals, without its last mark, or with a please."""
    short = len(text) < 120 and "\n" not in text and "{" not in text
    if short and rng.random() < 0.15:
        text = text[:1].lower() + text[1:]
    if short and rng.random() < 0.06:
        text = text.lower()
    if short and text[-1:] in ".?!" and rng.random() < 0.2:
        text = text[:-1]
    if short and rng.random() < 0.05:
        text = pick(rng, ["Please: ", "Hi! ", "Hello. ", "OK. "]) + text
    return text


def _persona(rng):
    """A system prompt that gives the model a name, and turns that ask for it."""
    name = person(rng)["name"] if rng.random() < 0.4 else made_up_name(rng)
    role = pick(
        rng, WORDS["wonder"] + WORDS["worker"] + ["assistant", "teacher", "guide", "helper"]
    )
    system = pick(
        rng,
        [
            f"You are {name}, {article(role)}.",
            f"Your name is {name}. You are {article(role)}.",
            f"You are {article(role)} named {name}.",
        ],
    )
    questions = [
        ("What is your name?", f"My name is {name}."),
        ("Who are you?", f"I am {name}, {article(role)}."),
        ("What are you?", f"I am {article(role)}."),
    ]
    return system, rng.sample(questions, rng.choice((1, 2)))


def dialogue(rng, turns=None):
    """One dialogue as ChatML text."""
    roll = rng.random()
    if roll < 0.07:
        tools, messages = tool_turn(rng)
        if rng.random() < 0.3:
            messages = [{"role": "system", "content": pick(rng, SYSTEMS)}] + messages
        return render(messages, tools)
    messages, pairs = [], []
    if roll < 0.13:
        system, pairs = _persona(rng)
        messages.append({"role": "system", "content": system})
    elif roll < 0.16:
        messages.append(
            {
                "role": "system",
                "content": pick(
                    rng,
                    [
                        "Answer with JSON only.",
                        "Reply with a JSON object.",
                        "You turn text into JSON.",
                    ],
                ),
            }
        )
        text, _, answer = records.record(rng)
        pairs = [(text, json.dumps(json.loads(answer)))]
        turns = 0
    elif roll < 0.40:
        messages.append({"role": "system", "content": pick(rng, SYSTEMS)})
    if roll >= 0.16 and rng.random() < 0.1:
        pairs += _scripted(GREETINGS)(rng)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 2, 3, 4)) if turns is None else turns):
        pairs += pick(rng, TURNS)(rng)
    for user, assistant in pairs:
        messages += [
            {"role": "user", "content": _roughen(rng, user)},
            {"role": "assistant", "content": assistant},
        ]
    return render(messages)
