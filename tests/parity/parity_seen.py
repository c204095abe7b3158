#!/usr/bin/env python3
"""Compares a server's answers about pictures with transformers', over HTTP.

    tests/parity/parity_seen.py --build build [--seed N] [--count 1] [--kind qwen3_vl,qwen3_5]

A tiny random model of each kind is served, and loaded by transformers with its own processor, which
makes the ids and the pixels of the same conversations of the same files: no picture, one, several
side by side, one in the middle of a conversation, the same twice, one in the result of a tool. The
prompt must have the ids of transformers, and the greedy answer its tokens, up to a place where the
two best are within the bound; log-probabilities must be within the bounds of parity_vision.py. Each
conversation is asked alone, again (from the cache), all at once, of a server whose steps take 32
tokens at most (of Gemma 4 78), and, where these say the same, as /v1/responses and /v1/messages:
the same bits, or the same text. One conversation is asked with an adapter that PEFT made, with
beams, and for the log-probabilities of its prompt. A text that spells the marks of pictures is
text. An adapter that changes the tower must be refused by name.

Ends with `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import concurrent.futures
import io
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import torch  # noqa: E402
import transformers  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from PIL import Image  # noqa: E402

import parity_vision  # noqa: E402
import seeing  # noqa: E402
import vision_families  # noqa: E402
from parity_embeddings import serve  # noqa: E402
from parity_served import post  # noqa: E402

STEPS, BEAMS = 12, 3
FEW = ["--max-num-batched-tokens", 32, "--max-num-seqs", 8]
LEAST_OF_GEMMA4 = 70 + 8  # the least picture, whole, beside a token of each sequence


def words(rng):
    return "".join(rng.choice("abcdefgh .") for _ in range(rng.randint(1, 30)))


def conversations(rng, least=1):
    """(name, messages); a picture is its file."""
    def drawn():
        longest = max(rng.choice([9, 40, 150]), least)
        return seeing.png(rng.randint(least, longest), rng.randint(1, longest), rng.random())

    one, two, three = (drawn() for _ in range(3))
    yield "text", [("user", [words(rng)])]
    yield "one", [("user", [one, words(rng)])]
    yield "several", [("user", [words(rng), one, two, words(rng), three])]
    yield "middle", [("user", [words(rng)]), ("assistant", [words(rng)]),
                     ("user", [two, words(rng)]), ("assistant", [words(rng)]),
                     ("user", [words(rng)])]
    yield "twice", [("user", [one, words(rng), one, words(rng)])]
    yield "tool", [("user", [words(rng)]), ("call", []), ("tool", [three, words(rng)])]


def as_chat(messages):
    for role, parts in messages:
        if role == "call":
            yield {"role": "assistant", "content": "", "tool_calls": [
                {"id": "call_1", "type": "function",
                 "function": {"name": "look", "arguments": "{}"}}]}
            continue
        content = [{"type": "text", "text": part} if isinstance(part, str) else
                   {"type": "image_url", "image_url": {"url": seeing.url(part)}}
                   for part in parts]
        yield {"role": role, "content": content,
               **({"tool_call_id": "call_1"} if role == "tool" else {})}


def as_transformers(messages):
    for role, parts in messages:
        yield {"role": "assistant" if role == "call" else role, "content": [
            {"type": "text", "text": part} if isinstance(part, str) else
            {"type": "image", "image": Image.open(io.BytesIO(part)).convert("RGB")}
            for part in parts]}


def as_items(messages):
    return [{"role": role, "content": [
        {"type": "output_text" if role == "assistant" else "input_text", "text": part}
        if isinstance(part, str) else {"type": "input_image", "image_url": seeing.url(part)}
        for part in parts]} for role, parts in messages]


def as_blocks(messages):
    return [{"role": role, "content": [
        {"type": "text", "text": part} if isinstance(part, str) else
        {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                     "data": seeing.url(part).split(",")[1]}}
        for part in parts]} for role, parts in messages]


def chat(port, messages, **fields):
    status, answer = post(port, "/v1/chat/completions", {
        "messages": list(as_chat(messages)), "max_tokens": STEPS, "temperature": 0,
        "logprobs": True, "return_token_ids": True, "ignore_eos": True, **fields})
    assert status == 200, answer
    return answer, answer["choices"][0]


def ask(port, messages, **fields):
    answer, choice = chat(port, messages, **fields)
    return (answer["prompt_token_ids"], choice["token_ids"],
            [entry["logprob"] for entry in choice["logprobs"]["content"]],
            choice["message"]["content"], answer["usage"]["prompt_tokens_details"])


def ask_others(port, messages):
    """(text, tokens of the prompt) of the other two dialects."""
    _, made = post(port, "/v1/responses", {"input": as_items(messages), "temperature": 0,
                                           "max_output_tokens": STEPS, "ignore_eos": True})
    yield made["output"][-1]["content"][0]["text"], made["usage"]["input_tokens"]
    _, made = post(port, "/v1/messages", {"messages": as_blocks(messages), "temperature": 0,
                                          "max_tokens": STEPS, "ignore_eos": True, "model": "any"})
    yield (made["content"][0]["text"], made["usage"]["input_tokens"]
           + made["usage"].get("cache_read_input_tokens", 0))


def ask_all(port, asked):
    alone = [ask(port, messages) for _, messages in asked]
    again = [ask(port, messages) for _, messages in asked]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda one: ask(port, one[1]), asked))
    others = [list(ask_others(port, messages)) if name != "tool" else []
              for name, messages in asked]
    return alone, again, together, others


def ask_more(port, messages):
    scored, _ = chat(port, messages, prompt_logprobs=0, max_tokens=1)
    _, beams = chat(port, messages, use_beam_search=True, best_of=BEAMS, logprobs=False)
    return beams["token_ids"], [next(iter(entry.values()))["logprob"]
                                for entry in scored["prompt_logprobs"][1:]]


def read(processor, messages):
    """What transformers makes of them: ids and pixels."""
    more = {}
    if isinstance(processor, transformers.Gemma3Processor):  # it cuts when the call says so
        more = {name: getattr(processor.image_processor, name) for name in (
            "do_pan_and_scan", "pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops",
            "pan_and_scan_min_ratio_to_activate")}
    return processor.apply_chat_template(list(as_transformers(messages)), tokenize=True,
                                         return_dict=True, return_tensors="pt",
                                         add_generation_prompt=True, processor_kwargs=more)


def pixels(made):
    return {key: made[key] for key in ("pixel_values", "image_grid_thw", "image_sizes",
                                          "image_position_ids", "batch_num_images")
            if key in made}


def problems(model, processor, messages, ours):
    """What is wrong with an answer, and the largest difference beside its bound."""
    made = read(processor, messages)
    prompt, ids, said = ours[:3]
    count = (ids + [seeing.PAD]).index(seeing.PAD)  # drawn, it is no picture; there it has no rows
    whole, ids = len(ids) == STEPS, ids[:count]
    expected = made["input_ids"][0].tolist()
    if prompt != expected:
        return f"the prompt has {len(prompt)} ids, of transformers {len(expected)}", 0
    inputs = pixels(made)
    rows, _ = parity_vision.whole(model, expected + ids, inputs)
    bounds = parity_vision.bounds_of(model, expected + ids, inputs, rows)[len(prompt) - 1:-1]
    exact = torch.log_softmax(rows.double(), -1)[len(prompt) - 1:-1]
    worst = 0
    for i, token in enumerate(ids):
        best = exact[i].topk(2)
        apart = abs(exact[i, token].item() - said[i])
        worst = max(worst, apart / bounds[i].item())
        if apart > bounds[i]:
            return f"log-probability {i} differs by {apart:.2g}, allowed {bounds[i]:.2g}", worst
        if token != best.indices[0] and best.values[0] - best.values[1] > 2 * bounds[i]:
            return f"token {i} is {token}, of transformers {best.indices[0]}", worst
    return "" if whole else "the answer is cut", worst


def adapt(model, folder, targets):
    """An adapter in a folder of its own; the model has it afterwards, under PEFT's names."""
    torch.manual_seed(1)
    made = get_peft_model(model, LoraConfig(r=4, target_modules=targets, init_lora_weights=False))
    made.save_pretrained(folder)
    return made


def more_problems(model, processor, messages, beams, scores):
    """The same for beams, and for the scores of a prompt; None where a beam has drawn a picture's
    id, of which transformers makes a picture without rows, and Gemma 4's that of padding."""
    made = read(processor, messages)
    ids, inputs = made["input_ids"][0].tolist(), pixels(made)
    rows, _ = parity_vision.whole(model, ids, inputs)
    bounds = parity_vision.bounds_of(model, ids, inputs, rows)[:-1]
    exact = torch.log_softmax(rows.double(), -1)[:-1].gather(1, torch.tensor(ids[1:])[:, None])
    apart = (exact[:, 0] - torch.tensor(scores)).abs()
    why = f"scores of the prompt differ by {apart.max():.2g}" if (apart > bounds).any() else ""
    with torch.no_grad():
        types = parity_vision.types_of(model, made["input_ids"])
        best = model.generate(input_ids=made["input_ids"], **types, **inputs, do_sample=False,
                              num_beams=BEAMS, max_new_tokens=STEPS, eos_token_id=None,
                              pad_token_id=256)
    best = best[0, len(ids):].tolist()
    if best != beams and seeing.PAD in best + beams:
        return None
    return why if best == beams else f"beams have {beams}, of transformers {best}"


def ask_spelled(port, picture):
    """Lengths of prompts with a picture and a text that spells marks, and with another text."""
    marks = "".join(dict.fromkeys(["<|image_pad|>", *sum(vision_families.MARKS.values(), ())]))
    return [len(ask(port, [("user", [words, picture])])[0])
            for words in (marks, "x" * len(marks))]


def judge(score, what, why):
    score[bool(why)] += 1
    print(f"{'FAIL' if why else 'ok  '} {what}{': ' if why else ''}{why}", flush=True)


def compare_adapters(build, directory, messages, model, processor):
    """Yields what is compared, and why not."""
    folder = directory.parent
    adapted = adapt(model, folder / "adapted",
                    r".*(language|text)_model.*\.(q_proj|v_proj|o_proj)")
    flags = ["--enable-lora", "--lora-modules", f"adapted={folder / 'adapted'}"]
    answer = serve(build, directory, flags, lambda *asked: ask(*asked, model="adapted"), messages)
    yield "with an adapter", problems(adapted.base_model.model, processor, messages, answer)[0]
    model = adapted.unload()
    adapt(model, folder / "tower", r".*(visual|vision).*(qkv|proj)").unload()
    made = subprocess.run([f"{build}/inferd", "check", directory, "--enable-lora",
                           "--lora-modules", f"tower={folder / 'tower'}"], capture_output=True,
                          text=True)
    refused = made.returncode != 0 and "vis" in (made.stdout + made.stderr).split("tensor")[-1]
    yield "an adapter of the tower is refused", "" if refused else made.stdout + made.stderr


def compare(build, kind, seed, score):
    rng = random.Random(f"{kind} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        directory, processor = Path(folder) / kind, None
        served = directory
        if kind in vision_families.MARKS:
            processor, served = vision_families.make(directory, kind, seed)
        else:
            seeing.make(directory, kind, seed)
        model = transformers.AutoModelForImageTextToText.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager").eval()
        processor = processor or transformers.AutoProcessor.from_pretrained(directory)
        # transformers' Mistral 3 fails where all pictures together are one token
        asked = list(conversations(rng, 13 if kind == "mistral3" else 1))
        flags = ["--served-model-name", "any"]
        alone, again, together, others = serve(build, served, flags, ask_all, asked)
        fewest = ["--max-num-batched-tokens", LEAST_OF_GEMMA4] if kind == "gemma4" else []
        few = serve(build, served, flags + FEW + fewest, ask_all, asked)
        for i, (name, messages) in enumerate(asked):
            length = len(alone[i][0])
            why, worst = problems(model, processor, messages, alone[i])
            cached = again[i][4]["cached_tokens"]
            if not why and any(made[i][:3] != alone[i][:3]
                               for made in (again, together, *few[:3])):
                why = "other bits from the cache, beside others or in small steps"
            if not why and any(other != (alone[i][3], length) for other in others[i]):
                why = f"{others[i]} of other dialects, of chat {alone[i][3]!r}, {length}"
            if not why and cached < length // 16 * 16 - 16:
                why = f"{cached} tokens of {length} were cached"
            judge(score, f"{kind} seed {seed} {name}: {length} tokens, {cached} cached again, "
                         f"{worst:.2f} of the bound", why)
        lengths = serve(build, served, flags, ask_spelled, asked[1][1][0][1][0])
        judge(score, f"{kind} seed {seed} a text that spells marks is text",
              "" if lengths[0] == lengths[1] else f"prompts of {lengths} tokens")
        for name, messages in (asked[2], asked[1], asked[4], asked[0]):
            why = more_problems(model, processor, messages,
                                *serve(build, served, flags, ask_more, messages))
            if why is not None:
                break
        judge(score, f"{kind} seed {seed} beams and scores of a prompt: {name}",
              "every beam draws a picture's id" if why is None else why)
        if "qwen3_5" in kind or kind not in (*seeing.KINDS, "smolvlm", "gemma3"):
            return  # layers with a state have no place for adapters; the others are not asked yet
        for what, why in compare_adapters(build, directory, asked[2][1], model, processor):
            judge(score, f"{kind} seed {seed} {what}", why)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kind", default=",".join((*seeing.KINDS, *vision_families.MARKS)))
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"seed {options.seed}")
    score = [0, 0]
    for seed in range(options.seed, options.seed + options.count):
        for kind in options.kind.split(","):
            compare(options.build, kind, seed, score)
    print(f"{score[0]} passed, {score[1]} failed")
    sys.exit(score[1] > 0)


if __name__ == "__main__":
    main()
