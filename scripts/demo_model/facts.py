"""Small true facts and small arithmetic, each as a question with its answer.

fact() and sum_() return (question, answer) pairs; chat.py wraps them in turns, and
fact_document() / sum_document() write them as plain text.
"""

import pathlib

from grammar import article, capital, pick
from lexicon import WORDS, read_lists

HERE = pathlib.Path(__file__).parent


def _table(entries):
    """(left, right) pairs of the `left = right` entries."""
    return [tuple(entry.split(" = ")) for entry in entries]


_TABLES = {key: _table(entries) for key, entries in read_lists(HERE / "facts.txt").items()}
CAPITALS, COLORS, OPPOSITES = (_TABLES[key] for key in ("capitals", "colors", "opposites"))
SOUNDS, BABIES, LEGS = (_TABLES[key] for key in ("sounds", "babies", "legs"))
SIDES, RHYMES, PLURALS = (_TABLES[key] for key in ("sides", "rhymes", "plurals"))
GENERAL = _table((HERE / "questions.txt").read_text(encoding="utf-8").splitlines()[1:])
CYCLES = [("day", WORDS["day"]), ("month", WORDS["month"])]
NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty"
).split()


def _lookup(rng, table, questions, answers):
    left, right = pick(rng, table)
    values = {
        "l": left,
        "r": right,
        "L": capital(left),
        "R": capital(right),
        "al": article(left),
        "ar": article(right),
        "AL": capital(article(left)),
    }
    return pick(rng, questions).format(**values), pick(rng, answers).format(**values)


def _capital_city(rng):
    return _lookup(
        rng,
        CAPITALS,
        [
            "What is the capital of {l}?",
            "What is the capital of {l}?",
            "Capital of {l}?",
            "Which city is the capital of {l}?",
            "Tell me the capital of {l}.",
        ],
        ["The capital of {l} is {r}."],
    )


def _country(rng):
    return _lookup(
        rng,
        CAPITALS,
        ["{r} is the capital of which country?", "Which country has the capital {r}?"],
        ["{r} is the capital of {l}."],
    )


def _color(rng):
    return _lookup(
        rng, COLORS, ["What color is {l}?", "Which color does {l} have?"], ["{L} is {r}."]
    )


def _opposite(rng):
    left, right = pick(rng, OPPOSITES)
    if rng.random() < 0.3 and left not in ("new", "light"):
        left, right = right, left
        left, right = {"old": ("old", "young"), "light": ("light", "dark")}.get(
            left, (left, right)
        )
    question = pick(
        rng,
        [
            "What is the opposite of {l}?",
            'What is the opposite of "{l}"?',
            "Opposite of {l}?",
            "Give me the opposite of {l}.",
        ],
    )
    return question.format(l=left), f"The opposite of {left} is {right}."


def _sound(rng):
    return _lookup(
        rng, SOUNDS, ["What does {al} say?", "What sound does {al} make?"], ["{AL} says {r}."]
    )


def _baby(rng):
    return _lookup(
        rng,
        BABIES,
        ["What is a baby {l} called?", "What do you call a baby {l}?"],
        ["A baby {l} is called {ar}."],
    )


def _legs(rng):
    return _lookup(rng, LEGS, ["How many legs does {al} have?"], ["{AL} has {r} legs."])


def _sides(rng):
    return _lookup(rng, SIDES, ["How many sides does {al} have?"], ["{AL} has {r} sides."])


def _rhyme(rng):
    return _lookup(
        rng,
        RHYMES,
        ["What rhymes with {l}?", "Give me a word that rhymes with {l}."],
        ["{R} rhymes with {l}."],
    )


def _plural(rng):
    return _lookup(rng, PLURALS, ["What is the plural of {l}?"], ["The plural of {l} is {r}."])


def _general(rng):
    question, answer = pick(rng, GENERAL)
    mark = "." if question.startswith("Name") else "?"
    return question + mark, answer


def _cycle(rng):
    what, items = pick(rng, CYCLES)
    at = rng.randrange(len(items))
    if rng.random() < 0.5:
        return (
            f"What {what} comes after {items[at]}?",
            f"{items[(at + 1) % len(items)]} comes after {items[at]}.",
        )
    return (
        f"What {what} comes before {items[at]}?",
        f"{items[at - 1]} comes before {items[at]}.",
    )


def _count(rng):
    start = rng.choice((1, 1, 1, rng.randrange(2, 30)))
    end = start + rng.randrange(2, 12)
    numbers = list(range(start, end + 1))
    if rng.random() < 0.2:
        numbers.reverse()
    question = pick(
        rng,
        [
            "Count from {a} to {b}.",
            "Please count from {a} to {b}.",
            "Can you count from {a} to {b}?",
        ],
    )
    return (question.format(a=numbers[0], b=numbers[-1]), ", ".join(map(str, numbers)) + ".")


def _spell(rng):
    word = pick(
        rng, WORDS[pick(rng, ["animal", "color", "fruit", "girl", "boy", "city", "item"])]
    )
    question = pick(rng, ["How do you spell {w}?", "Spell the word {w}.", 'Spell "{w}".'])
    return question.format(w=word), "-".join(word.upper()) + "."


def _letter(rng):
    word = pick(rng, WORDS[pick(rng, ["animal", "color", "city", "item"])])
    if rng.random() < 0.5:
        return (
            f"What is the first letter of {word}?",
            f"The first letter of {word} is {word[0].upper()}.",
        )
    return (
        f"What is the last letter of {word}?",
        f"The last letter of {word} is {word[-1].upper()}.",
    )


def _number_word(rng):
    at = rng.randrange(len(NUMBERS))
    if rng.random() < 0.5:
        return f"How do you write {at} as a word?", f"{at} is written {NUMBERS[at]}."
    return f"What number comes after {at}?", f"The number after {at} is {at + 1}."


def _compare(rng):
    a, b = rng.sample(range(rng.choice((10, 20, 100)) + 1), 2)
    if rng.random() < 0.5:
        return f"Which is bigger, {a} or {b}?", f"{max(a, b)} is bigger than {min(a, b)}."
    return f"Which is smaller, {a} or {b}?", f"{min(a, b)} is smaller than {max(a, b)}."


def _where(rng):
    return _lookup(
        rng, CAPITALS, ["Where is {r}?", "In which country is {r}?"], ["{r} is a city in {l}."]
    )


FACTS = (
    [_compare, _where, _capital_city] * 6
    + [
        _country,
        _color,
        _color,
        _opposite,
        _opposite,
        _opposite,
        _sound,
        _baby,
        _legs,
        _sides,
        _rhyme,
        _plural,
        _cycle,
        _cycle,
        _count,
        _count,
        _spell,
        _spell,
        _letter,
        _number_word,
    ]
    + [_general] * 4
)


def fact(rng):
    """One (question, answer) pair."""
    return pick(rng, FACTS)(rng)


def held_out(a, b):
    """Whether a + b is kept out of the training text, for evaluate.py to ask."""
    return (31 * a + 17 * b) % 20 == 0 and a + b > 20


def operands(rng):
    """(a, sign, b, result), most often a sum of numbers up to 100."""
    roll = rng.random()
    if roll < 0.60:
        limit = rng.choice((10, 20, 100, 100, 100, 100))
        while True:
            a, b = rng.randrange(limit + 1), rng.randrange(limit + 1)
            if not held_out(a, b):
                return a, "+", b, a + b
    if roll < 0.82:
        a = rng.randrange(rng.choice((10, 20, 100, 100)) + 1)
        b = rng.randrange(a + 1)
        return a, "-", b, a - b
    if roll < 0.96:
        a, b = rng.randrange(13), rng.randrange(13)
        return a, "*", b, a * b
    a, b = rng.randrange(11), rng.randrange(1, 11)
    return a * b, "/", b, a


SPOKEN = {
    "+": ["+", "+", "plus"],
    "-": ["-", "-", "minus"],
    "*": ["*", "x", "times"],
    "/": ["/", "divided by"],
}


def sum_(rng):
    """One (question, answer) pair of arithmetic, and the bare result."""
    a, sign, b, result = operands(rng)
    said = f"{a} {pick(rng, SPOKEN[sign])} {b}"
    if rng.random() < 0.1:
        said = (
            said.replace(" ", "") if len(said.split()) == 3 and not said[2:-2].isalpha() else said
        )
    question = pick(
        rng,
        [
            "What is {s}?",
            "what is {s}?",
            "What is {s}?",
            "{s} = ?",
            "{s}?",
            "{s}",
            "How much is {s}?",
            "Can you tell me what {s} is?",
            "Calculate {s}.",
            "What's {s}?",
            "{s} =",
        ],
    ).format(s=said)
    answer = pick(rng, ["{a} {o} {b} = {r}", "{a} {o} {b} is {r}.", "{r}", "{a} {o} {b} is {r}."])
    spoken = said.split()[1] if " " in said and len(said.split()) == 3 else sign
    return question, answer.format(a=a, o=spoken, b=b, r=result), str(result)


def word_problem(rng):
    """A sum in a sentence: (question, answer, result)."""
    name = pick(rng, WORDS["girl"] + WORDS["boy"])
    fruit = pick(rng, WORDS["fruit"])
    a, b = rng.randrange(2, 21), rng.randrange(2, 21)
    if rng.random() < 0.6 and not held_out(a, b):
        verb = pick(rng, ["gets", "finds", "buys", "picks"])
        return (
            f"{name} has {a} {fruit} and {verb} {b} more. How many {fruit} does {name} have?",
            f"{name} has {a} + {b} = {a + b} {fruit}.",
            str(a + b),
        )
    a, b = max(a, b), min(a, b)
    verb = pick(rng, ["eats", "loses", "sells", "gives away"])
    return (
        f"{name} has {a} {fruit} and {verb} {b}. How many {fruit} are left?",
        f"{name} has {a} - {b} = {a - b} {fruit} left.",
        str(a - b),
    )


def _titled(rng, lines):
    """The lines as one text; several get a title, so that one question has one answer and ends."""
    titles = ["Exercises", "Questions and answers", "Quiz", "Some questions"]
    title = [pick(rng, titles) + ":"] if len(lines) > 1 else []
    return "\n".join(title + lines)


def sum_document(rng):
    """Arithmetic as plain text: one question or a few."""
    style = rng.random()
    lines = []
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4, 6))):
        a, sign, b, result = operands(rng)
        if style < 0.65:
            joint = " " if style < 0.35 else "\n"
            what = pick(rng, ["What is", "what is"]) if style < 0.6 else "what is"
            lines.append(f"Q: {what} {a} {sign} {b}?{joint}A: {result}")
        elif style < 0.85:
            lines.append(f"{a} {sign} {b} = {result}")
        elif style < 0.92:
            lines.append(f"{a}{sign}{b}={result}")
        else:
            question, answer, _ = word_problem(rng)
            lines.append(f"Q: {question}\nA: {answer}")
    return _titled(rng, lines)


def fact_document(rng):
    """Facts as plain text: questions with answers, or bare sentences."""
    style = rng.random()
    count = rng.choice((1, 1, 2, 3, 5))
    pairs = [fact(rng) for _ in range(count)]
    if style < 0.5:
        return _titled(rng, [f"Q: {q} A: {a}" for q, a in pairs])
    if style < 0.7:
        return _titled(rng, [f"Question: {q}\nAnswer: {a}" for q, a in pairs])
    makers = [_capital_city] * 4 + [
        _where,
        _color,
        _opposite,
        _sound,
        _legs,
        _baby,
        _cycle,
        _general,
    ]
    return " ".join(pick(rng, makers)(rng)[1] for _ in range(count))
