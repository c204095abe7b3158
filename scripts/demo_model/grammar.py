"""A tiny template language for the text generator: choices, slots and sentence polish.

`[red|green|blue]` picks one branch (branches may nest, an empty branch is allowed), `{key}` is
filled from the story's own values, or else with a random word of that list in words.txt.
`{a:key}` puts "a" or "an" before the value and `{^key}` writes it with a capital. A `~` after a
quotation mark keeps the next word small, for a sentence that goes on. Everything is drawn from the
random.Random that the caller hands in, so that a seed decides the whole corpus.
"""

import re

import lexicon

_SLOT = re.compile(r"\{(\^?)(a:)?(\w+)\}")
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SENTENCE = re.compile(r"(^|\n|[.!?] |^\"|[\n ]\")([a-z])")


def article(noun):
    """ "a" or "an" and the noun, by the sound its spelling suggests."""
    sounds_like_consonant = noun.lower().startswith(("uni", "use", "one", "eu"))
    vowel = noun[:1].lower() in "aeiou" and not sounds_like_consonant
    return ("an " if vowel else "a ") + noun


def capital(text):
    """The text with its first letter in upper case and the rest untouched."""
    return text[:1].upper() + text[1:]


def polish(text):
    """Capitals where a sentence or a quotation begins, and no doubled blanks."""
    text = re.sub(r" {2,}", " ", text).strip()
    text = re.sub(r" ([.,!?;])", r"\1", text)
    text = _SENTENCE.sub(lambda m: m.group(1) + m.group(2).upper(), text)
    return text.replace("~", "")


def pick(rng, choices):
    """One of a sequence; a string stands for itself."""
    return choices if isinstance(choices, str) else choices[rng.randrange(len(choices))]


def expand(rng, template, values=None):
    """The template with its choices made and its slots filled."""
    values = values or {}

    def choose(match):
        return pick(rng, match.group(1).split("|"))

    def fill(match):
        upper, with_article, key = match.groups()
        value = values[key] if key in values else pick(rng, lexicon.WORDS[key])
        value = str(value)
        value = article(value) if with_article else value
        return capital(value) if upper else value

    while True:
        text = _CHOICE.sub(choose, template)
        if text == template:
            break
        template = text
    return _SLOT.sub(fill, text)


def write(rng, template, values=None):
    """expand() and polish() in one."""
    return polish(expand(rng, template, values))


def made_up_name(rng):
    """A name that is in no list, so that the model learns to copy what it has never seen."""
    syllables = lexicon.SYLLABLES
    name = "".join(pick(rng, syllables) for _ in range(rng.choice((2, 2, 2, 3, 3))))
    return name.capitalize()


def person(rng, prefix="", female=None):
    """Values for one character: name and pronouns, their keys led by the prefix."""
    female = rng.random() < 0.5 if female is None else female
    names = lexicon.WORDS["girl" if female else "boy"]
    name = made_up_name(rng) if rng.random() < 0.2 else pick(rng, names)
    words = ("she", "her", "her", "herself") if female else ("he", "him", "his", "himself")
    keys = ("he", "him", "his", "self")
    values = {prefix + key: word for key, word in zip(keys, words)}
    values[prefix + "name"] = name
    return values
