"""Measures the exported model with transformers and prints one table.

    python evaluate.py --model models/demo [--count 200] [--show]

Prompts come from the generator under a seed that training does not use. Sums are drawn from all
pairs up to 100, most of which the training text holds, and once only from those it leaves out.
--show prints samples to read instead.
"""

import argparse
import json
import random

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import chat
import facts
import records
from chatml import render
from grammar import made_up_name, pick
from lexicon import WORDS
from tools import tool_turn

STORY_STARTS = [
    "Once upon a time",
    "One day",
    "There was once a little robot",
    "Long ago, in a village by the sea,",
    "Lily was a curious girl who",
]
HAND_WRITTEN = [
    ("Hello!", "hel"),
    ("Who are you?", "small demo model"),
    ("What is your name?", "demo model"),
    ("Hi, who are you", "small demo model"),
    ("What can you do?", "stories"),
    ("What is the capital of France?", "Paris"),
    ("what's the capital of japan", "Tokyo"),
    ("What color is the sky?", "blue"),
    ("What is the opposite of hot?", "cold"),
    ("What day comes after Monday?", "Tuesday"),
    ("Count from 1 to 5.", "1, 2, 3, 4, 5"),
    ("How many days are there in a week?", "7"),
    ("What is 2+2?", "4"),
    ("12 + 30", "42"),
    ("How do you spell cat?", "C-A-T"),
    ("Thank you!", "welcome"),
    ("Tell me a joke.", "?"),
    ("Name three colors.", ","),
    ("What sound does a dog make?", "woof"),
    ("Bye", "bye"),
    ("What do bees make?", "honey"),
    ("How are you today?", "fine|well"),
]


class Model:
    """The exported model with batched greedy and sampled completion."""

    def __init__(self, path):
        self.tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
        self.net = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        self.ends = self.net.generation_config.eos_token_id

    def complete(self, prompts, tokens, sample=False):
        """[(text without special tokens, whether it stopped by itself)] in the prompts' order."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        out = [None] * len(prompts)
        for start in range(0, len(order), 50):
            chosen = order[start : start + 50]
            batch = self.tokenizer(
                [prompts[i] for i in chosen], return_tensors="pt", padding=True
            )
            options = (
                {"do_sample": True}
                if sample
                else {"do_sample": False, "temperature": None, "top_p": None}
            )
            with torch.inference_mode():
                ids = self.net.generate(**batch, max_new_tokens=tokens, **options)
            width = batch["input_ids"].shape[1]
            for i, row in zip(chosen, ids):
                row = row[width:].tolist()
                stopped = any(end in row for end in self.ends)
                out[i] = (self.tokenizer.decode(row, skip_special_tokens=True).strip(), stopped)
        return out

    def answer(self, dialogues, tokens, tools=None, sample=False):
        """complete() of dialogues, each a list of messages."""
        tools = tools or [None] * len(dialogues)
        prompts = [
            self.tokenizer.apply_chat_template(
                messages, tools=given, tokenize=False, add_generation_prompt=True
            )
            for messages, given in zip(dialogues, tools)
        ]
        return self.complete(prompts, tokens, sample)


def user(text):
    """A dialogue of one user message."""
    return [{"role": "user", "content": text}]


def share(flags):
    """A share in percent, with the count it is of."""
    flags = list(flags)
    return f"{sum(flags) / len(flags):.1%} of {len(flags)}"


def last_word(text):
    """The last word of a sentence without its mark."""
    return text.rstrip(".").split(" ")[-1]


def arithmetic(model, rng, count):
    """Greedy answers to sums as plain text and in chat."""
    pairs = [(rng.randrange(101), rng.randrange(101)) for _ in range(count)]
    plain = model.complete([f"Q: what is {a} + {b}? A:" for a, b in pairs], 8)
    yield "a + b, 0 to 100, plain text", share(
        t == str(a + b) for (a, b), (t, _) in zip(pairs, plain)
    )
    told = model.answer([user(f"What is {a} + {b}?") for a, b in pairs], 24)
    yield "a + b, 0 to 100, chat", share(
        last_word(t) == str(a + b) for (a, b), (t, _) in zip(pairs, told)
    )
    unseen = [(a, b) for a in range(101) for b in range(101) if facts.held_out(a, b)]
    unseen = rng.sample(unseen, min(count, len(unseen)))
    told = model.answer([user(f"What is {a} + {b}?") for a, b in unseen], 24)
    yield "a + b kept out of the text, chat", share(
        last_word(t) == str(a + b) for (a, b), (t, _) in zip(unseen, told)
    )
    pairs = [(max(p), min(p)) for p in pairs]
    told = model.answer([user(f"What is {a} - {b}?") for a, b in pairs], 24)
    yield "a - b, 0 to 100, chat", share(
        last_word(t) == str(a - b) for (a, b), (t, _) in zip(pairs, told)
    )
    pairs = [(a, b) for a in range(13) for b in range(13)]
    told = model.answer([user(f"What is {a} * {b}?") for a, b in pairs], 24)
    yield "a * b, 0 to 12, chat", share(
        last_word(t) == str(a * b) for (a, b), (t, _) in zip(pairs, told)
    )
    problems = [facts.word_problem(rng) for _ in range(count // 2)]
    told = model.answer([user(q) for q, _, _ in problems], 40)
    yield "sums in a sentence, chat", share(t == a for (_, a, _), (t, _) in zip(problems, told))


def stories(model, rng, count):
    """Sampled stories: do they end, are they different, are they about what was asked for."""
    starts = [pick(rng, STORY_STARTS) for _ in range(count)]
    told = model.complete(starts, 600, sample=True)
    yield "stories that end by themselves", share(stopped for _, stopped in told)
    yield "stories that end in a full sentence", share(
        t.endswith((".", "!", "?", '"')) for t, _ in told
    )
    yield "different stories", share(
        text not in [t for t, _ in told[:i]] for i, (text, _) in enumerate(told)
    )
    heroes = [(pick(rng, WORDS["animal"]), made_up_name(rng)) for _ in range(count)]
    asked = model.answer(
        [user(f"Tell me a story about a {kind} named {name}.") for kind, name in heroes],
        600,
        sample=True,
    )
    yield "stories about the hero asked for", share(
        name in text and kind in text for (kind, name), (text, _) in zip(heroes, asked)
    )
    yield "told stories that end by themselves", share(stopped for _, stopped in asked)


def as_json(text):
    """The value of a JSON text, or None."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def json_records(model, rng, count):
    """Descriptions turned into JSON, in chat and as plain text; records made up by the model."""
    wanted = [records.record(rng) for _ in range(count)]
    told = model.answer(
        [user(f"Write this as JSON with the fields {', '.join(f)}: {t}") for t, f, _ in wanted],
        120,
    )
    yield "JSON in chat: valid", share(as_json(t) is not None for t, _ in told)
    yield "JSON in chat: every field right", share(
        as_json(t) == json.loads(j) for (_, _, j), (t, _) in zip(wanted, told)
    )
    plain = model.complete([f"Text: {t}\nJSON:" for t, _, _ in wanted], 120)
    yield "JSON as plain text: valid, by the first line", share(
        as_json(t.split("\n\n")[0]) is not None for t, _ in plain
    )
    made = model.answer(
        [user("Make up a person as JSON with name, age, city.")] * 50, 60, sample=True
    )
    yield "made-up persons: valid with the keys", share(
        list(as_json(t) or {}) == ["name", "age", "city"] for t, _ in made
    )


def dialogues(model, rng, count):
    """Facts, memory across turns, tools, and prompts written by hand."""
    pairs = [facts.fact(rng) for _ in range(count)]
    told = model.answer([user(q) for q, _ in pairs], 80)
    yield "facts answered word for word", share(t == a for (_, a), (t, _) in zip(pairs, told))
    yield "chat answers that end by themselves", share(stopped for _, stopped in told)
    names = [made_up_name(rng) for _ in range(count // 2)]
    told = model.answer(
        [
            [
                *user(f"My name is {n}."),
                {"role": "assistant", "content": f"Nice to meet you, {n}!"},
                *user("What is my name?"),
            ]
            for n in names
        ],
        24,
    )
    yield "a new name remembered", share(n in t for n, (t, _) in zip(names, told))
    turns = [tool_turn(rng) for _ in range(count // 2)]
    told = model.answer([m[:1] for _, m in turns], 100, tools=[t for t, _ in turns])
    yield "tool calls right", share(t == m[1]["content"] for (_, m), (t, _) in zip(turns, told))
    told = model.answer([user(q) for q, _ in HAND_WRITTEN], 80)
    yield "hand-written chat prompts", share(
        any(w.lower() in t.lower() for w in want.split("|"))
        for (_, want), (t, _) in zip(HAND_WRITTEN, told)
    )


def long_prompts(model, rng):
    """A question after a long dialogue: does the model still answer at far positions?"""
    for length in (2000, 4000, 7500):
        flags = []
        for _ in range(8):
            text = ""
            while len(model.tokenizer(text).input_ids) < length:
                text += chat.dialogue(rng, turns=4)
            a, b = rng.randrange(50), rng.randrange(50)
            text += render(user(f"What is {a} + {b}?")) + "<|im_start|>assistant\n"
            ((told, _),) = model.complete([text], 24)
            flags.append(last_word(told) == str(a + b))
        yield f"a sum after {length} tokens of dialogue", share(flags)


def template(model, rng, count):
    """The Jinja template must write what the training text was written with."""
    flags = []
    for _ in range(count):
        tools, messages = tool_turn(rng)
        tools = tools if rng.random() < 0.5 else None
        if rng.random() < 0.5:
            messages = [{"role": "system", "content": "Be kind."}] + messages
        made = model.tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
        flags.append(made == render(messages, tools))
    yield "chat template as in training", share(flags)


def show(model):
    """Samples to read."""
    for text, _ in model.complete(STORY_STARTS, 500, sample=True):
        print(text, "\n-----")
    asked = [q for q, _ in HAND_WRITTEN] + [
        "Tell me a story about a dragon.",
        "What is the capital of Zorbia?",
        "Write a poem.",
        "How do I bake bread?",
        "Tell me a story about a spaceship and a cat.",
    ]
    for question, (told, stopped) in zip(
        asked, model.answer([user(q) for q in asked], 400, sample=True)
    ):
        print(f"> {question}\n{told} [{'stopped' if stopped else 'cut'}]")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--seed", type=int, default=1000)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    model = Model(args.model)
    if args.show:
        show(model)
        return
    print("| what | result |\n|---|---|")
    for rows in (
        template(model, rng, args.count),
        arithmetic(model, rng, args.count),
        stories(model, rng, args.count // 2),
        json_records(model, rng, args.count),
        dialogues(model, rng, args.count),
        long_prompts(model, rng),
    ):
        for what, result in rows:
            print(f"| {what} | {result} |", flush=True)


if __name__ == "__main__":
    main()
