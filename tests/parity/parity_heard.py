#!/usr/bin/env python3
"""Compares a server's answers about sounds with transformers', over HTTP.

    tests/parity/parity_heard.py --build build [--seed N] [--count 1] [--kind qwen2_audio,...]

A tiny random model of each kind (tests/listening.py) is served, and loaded by transformers with its
own extractor, which makes the features of the same conversations of the same samples: no sound,
one, several in a conversation, the same twice, the shortest that has a token, one of 30 s, an odd
number of positions; of several windows, where the kind has such, one of them without a token. The
processors of the kinds but Qwen2-Audio's take one sound in a text, or need what is not drawn: in
their place stand the words of their code, for Voxtral 375 tokens a window, else what _process_audio
of the class says of each sound. The prompt must have the ids of transformers, and the greedy answer
its tokens, up to a place where the two best are within the bound; log-probabilities must be within
1e-4. Each conversation is asked alone, again (from the cache), all at once, and of a server whose
steps take 32 tokens at most: the same bits; and, of Qwen3-ASR, of the same files as Qwen has them.
One is asked with beams, and for the log-probabilities of its prompt. A text that spells the marks
of sounds is text.

Of Qwen3-ASR and GLM-ASR also /v1/audio/transcriptions, beside what apply_transcription_request of
the processor asks, generate says until the context is full, and the processor makes of it, but for
its repair of repetitions: the text, in which broken characters side by side count as one, as they
are others where they are read piece by piece. Behind a language of the form a tag is text here.

Ends with `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import concurrent.futures
import functools
import json
import random
import re
import struct
import sys
import tempfile
import types
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import hearing  # noqa: E402
import listening  # noqa: E402
import parity_speech  # noqa: E402
from parity_embeddings import serve  # noqa: E402
from parity_served import post  # noqa: E402

STEPS, BEAMS, BOUND, CONTEXT = 12, 3, 1e-4, 200
FEW = ["--max-num-batched-tokens", 32, "--max-num-seqs", 8]


def words(rng):
    return "".join(rng.choice("abcdefgh .") for _ in range(rng.randint(1, 30)))


def conversations(rng, kind):
    """(name, messages); a sound is its samples of 16 bits."""
    def drawn(count=None):
        count = count or rng.randint(3000, 60000)
        return hearing.samples(count / hearing.RATE, rng.random())[:count]

    one, two, three = drawn(), drawn(), drawn()
    yield "text", [("user", [words(rng)])]
    yield "one", [("user", [one, words(rng)])]
    yield "several", [("user", [words(rng), one, two, words(rng), three])]
    yield "middle", [("user", [words(rng)]), ("assistant", [words(rng)]),
                     ("user", [two, words(rng)]), ("assistant", [words(rng)]),
                     ("user", [words(rng)])]
    yield "twice", [("user", [one, words(rng), one, words(rng)])]
    yield "shortest", [("user", [drawn({"glmasr": 961}.get(kind, 321)), words(rng)])]
    odd = 320 * (2 * rng.randint(5, 60) + 1)
    yield "odd", [("user", [drawn(odd), words(rng)]), ("assistant", [words(rng)]),
                  ("user", [drawn(odd + 1), words(rng)])]
    yield "whole", [("user", [drawn(480000), words(rng)])]
    if kind in ("voxtral", "audioflamingo3", "glmasr"):
        yield "windows", [("user", [drawn(rng.randint(480001, 1500000)), words(rng), one])]
        yield "two windows and a row", [("user", [words(rng), drawn(960100), words(rng)])]
    if kind in listening.CHUNKED:  # windows of 112 s, which must not be seen
        yield "windows", [("user", [drawn(rng.randint(1792001, 1900000)), words(rng), one])]


def wav(samples):
    return hearing.wav_of(struct.pack(f"<{len(samples)}h", *samples))


def as_chat(messages):
    for role, parts in messages:
        yield {"role": role, "content": [{"type": "text", "text": part} if isinstance(part, str)
                                         else listening.part(wav(part)) for part in parts]}


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
            answer["usage"]["prompt_tokens_details"])


def ask_all(port, asked):
    alone = [ask(port, messages) for _, messages in asked]
    again = [ask(port, messages) for _, messages in asked]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda one: ask(port, one[1]), asked))
    return alone, again, together


def ask_more(port, messages):
    scored, _ = chat(port, messages, prompt_logprobs=0, max_tokens=1)
    _, beams = chat(port, messages, use_beam_search=True, best_of=BEAMS, logprobs=False)
    return beams["token_ids"], [next(iter(entry.values()))["logprob"]
                                for entry in scored["prompt_logprobs"][1:]]


def ask_spelled(port, kind, sound):
    """Lengths of prompts with a sound and a text that spells marks, and with another text."""
    marks = "".join(listening.KINDS[kind])
    return [len(ask(port, [("user", [words, sound])])[0]) for words in (marks, "x" * len(marks))]


NAMES = {"qwen2_audio": "Qwen2Audio", "voxtral": "Voxtral", "audioflamingo3": "AudioFlamingo3",
         "glmasr": "GlmAsr", "qwen3_asr": "Qwen3ASR",
         "qwen3_omni_moe_thinker": "Qwen3OmniMoeThinker"}


def transcripts(port, asked):
    """The texts of forms: (sound, fields)."""
    return [json.loads(parity_speech.post(port, "transcriptions", {"temperature": 0, **fields},
                                          wav(sound)))["text"] for sound, fields in asked]


def mended(text):
    return re.sub("\ufffd+", "\ufffd", text).strip("\ufffd \n")


class Reference:
    def __init__(self, directory, kind):
        self.kind = kind
        cls = getattr(transformers, f"{NAMES[kind]}ForConditionalGeneration")
        self.model = cls.from_pretrained(directory, dtype=torch.float32,
                                         attn_implementation="eager").eval()
        extractor = "Qwen3ASR" if kind == "qwen3_asr" else "Whisper"
        self.extractor = getattr(transformers,
                                 f"{extractor}FeatureExtractor").from_pretrained(directory)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        self.processor = None
        if kind == "qwen2_audio":
            self.processor = transformers.Qwen2AudioProcessor(
                self.extractor, self.tokenizer, chat_template=listening.TEMPLATE)

    def put(self, text, counts):
        """Ids of a text whose marks of sounds are so many tokens each."""
        ids, at, mark = [], 0, listening.KINDS[self.kind][-1]
        for count in counts:
            place = text.index(mark, at)
            ids += self.tokenizer(text[at:place], add_special_tokens=False).input_ids
            ids += [listening.PAD] * count
            at = place + len(mark)
        return ids + self.tokenizer(text[at:], add_special_tokens=False).input_ids

    def read_voxtral(self, text, sounds):
        """By the words of VoxtralProcessor: windows of 30 s."""
        features = []
        for sound in sounds:
            made = self.extractor(sound, sampling_rate=16000, padding=True, truncation=False,
                                  pad_to_multiple_of=480000, return_tensors="pt").input_features
            features.append(made.reshape(self.extractor.feature_size, -1, 3000).transpose(0, 1))
        ids = self.put(text, [375 * len(windows) for windows in features])
        return {"input_ids": torch.tensor([ids]),
                **({"input_features": torch.cat(features)} if features else {})}

    def read_each(self, text, sounds):
        """Sound by sound as the processor of the kind does it."""
        omni = self.kind == "qwen3_omni_moe_thinker"
        cls = getattr(transformers, f"{NAMES[self.kind]}Processor".replace("MoeThinker", "Moe"))
        mask = "feature_attention_mask" if omni else "input_features_mask"
        asked = types.SimpleNamespace(
            feature_extractor=self.extractor, max_audio_len=600, n_window=50,
            replace_audio_token=lambda *ignored, **named: "",
            _get_audio_token_length=lambda *lengths: cls._get_audio_token_length(None, *lengths))
        tensors = {"return_tensors": "pt"} if omni else {}
        features, masks, counts = [], [], []
        for sound in sounds:
            # pylint: disable-next=protected-access
            made, _ = cls._process_audio(asked, [sound], **cls.audio_kwargs, **tensors)
            features += made["input_features"].mT
            masks += made[mask]
            counts.append(int(made["num_audio_tokens"][0]))
        ids = torch.tensor([self.put(text, counts)])
        if not sounds:
            return {"input_ids": ids}
        pad = functools.partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
        return {"input_ids": ids, "input_features": pad(features).mT, mask: pad(masks)}

    def read(self, messages):
        """What transformers makes of them: ids and features."""
        shown = [{"role": role, "content": [{"type": "text", "text": part}
                                            if isinstance(part, str) else {"type": "audio"}
                                            for part in parts]} for role, parts in messages]
        text = self.tokenizer.apply_chat_template(shown, add_generation_prompt=True,
                                                  tokenize=False)
        sounds = [np.array(part, np.float32) / 32768 for _, parts in messages for part in parts
                  if not isinstance(part, str)]
        if self.processor is not None:
            return self.processor(text=text, audio=sounds or None, sampling_rate=16000,
                                  return_tensors="pt")
        return (self.read_voxtral if self.kind == "voxtral" else self.read_each)(text, sounds)

    @staticmethod
    def features(made):
        names = ("input_features", "feature_attention_mask", "input_features_mask")
        return {key: made[key] for key in names if key in made}

    def scores(self, ids, made):
        ids = torch.tensor([ids])
        with torch.no_grad():
            rows = self.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False,
                              **self.features(made)).logits[0]
        return torch.log_softmax(rows.double(), -1)

    def problems(self, messages, ours):
        """What is wrong with an answer, and the largest difference."""
        made = self.read(messages)
        prompt, ids, said, details = ours
        ids = ids[:(ids + [listening.PAD]).index(listening.PAD)]  # drawn, it is no sound
        expected = made["input_ids"][0].tolist()
        if prompt != expected:
            return f"the prompt has {len(prompt)} ids, of transformers {len(expected)}", 0
        if details["audio_tokens"] != expected.count(listening.PAD):
            return f"{details} of {expected.count(listening.PAD)} tokens of sounds", 0
        exact = self.scores(expected + ids, made)[len(prompt) - 1:-1]
        worst = 0
        for i, token in enumerate(ids):
            best = exact[i].topk(2)
            apart = abs(exact[i, token].item() - said[i])
            worst = max(worst, apart)
            if apart > BOUND:
                return f"log-probability {i} differs by {apart:.2g}", worst
            if token != best.indices[0] and best.values[0] - best.values[1] > 2 * BOUND:
                return f"token {i} is {token}, of transformers {best.indices[0]}", worst
        return "" if len(ids) == STEPS else f"the answer has {len(ids)} tokens", worst

    def transcript(self, sound, language=None, prompt=None):
        """By the processor's own words."""
        for name, mark in zip(("audio_bos_token", "audio_eos_token", "audio_token"),
                              listening.KINDS[self.kind][3:]):
            setattr(self.tokenizer, name, mark)
        processor = getattr(transformers, f"{NAMES[self.kind]}Processor")(
            self.extractor, self.tokenizer, chat_template=self.tokenizer.chat_template)
        fields = {"language": language} if language else {}
        made = processor.apply_transcription_request(
            np.array(sound, np.float32) / 32768, prompt=prompt, **fields)
        length = made["input_ids"].shape[1]
        with torch.no_grad():
            ids = self.model.generate(
                **{key: made[key] for key in ("input_ids", *self.features(made))},
                attention_mask=torch.ones_like(made["input_ids"]), do_sample=False,
                max_new_tokens=CONTEXT - length, eos_token_id=258, pad_token_id=256)[0, length:]
        if self.kind != "qwen3_asr" or language:
            return processor.decode(ids, skip_special_tokens=True)
        with unittest.mock.patch("transformers.models.qwen3_asr.processing_qwen3_asr."
                                 "_detect_and_fix_repetitions", lambda text: text):
            return processor.decode(ids, return_format="transcription_only")

    def more_problems(self, messages, beams, scores):
        """The same for beams, and for the scores of a prompt; None where a beam draws the id of a
        sound."""
        made = self.read(messages)
        ids = made["input_ids"][0].tolist()
        exact = self.scores(ids, made)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        apart = (exact - torch.tensor(scores)).abs().max()
        with torch.no_grad():
            best = self.model.generate(
                input_ids=made["input_ids"], attention_mask=torch.ones_like(made["input_ids"]),
                **self.features(made), do_sample=False, num_beams=BEAMS, max_new_tokens=STEPS,
                eos_token_id=None, pad_token_id=256)[0, len(ids):].tolist()
        if best != beams and listening.PAD in best + beams:
            return None
        if best != beams:
            return f"beams have {beams}, of transformers {best}"
        return f"scores of the prompt differ by {apart:.2g}" if apart > BOUND else ""


def judge(score, what, why):
    score[bool(why)] += 1
    print(f"{'FAIL' if why else 'ok  '} {what}{': ' if why else ''}{why}", flush=True)


def compare_transcripts(build, directory, reference, rng, score):
    def sound():
        return hearing.samples(rng.uniform(0.2, 4), rng.random())

    asked = [(sound(), {}), (sound(), {"prompt": words(rng).strip() or "a"}), (sound(), {})]
    if reference.kind == "qwen3_asr":
        asked += [(sound(), {"language": "de"}), (sound(), {"language": "yue", "prompt": "x y"})]
    made = serve(build, directory, ["--max-model-len", CONTEXT], transcripts, asked)
    for (samples, fields), ours in zip(asked, made):
        theirs = reference.transcript(samples, **fields)
        judge(score, f"{reference.kind} transcript of {len(samples) / 16000:.2f} s {fields}: "
                     f"{len(mended(ours))} characters",
              "" if mended(ours) == mended(theirs) else f"{ours!r} for {theirs!r}")


def compare(build, kind, seed, score):
    rng = random.Random(f"{kind} {seed}")
    heads = rng.choice([2, 3])
    encoder = {"encoder_layers": rng.randint(1, 3), "encoder_attention_heads": heads,
               "d_model": 16 * heads, "encoder_ffn_dim": 8 * rng.randint(4, 12),
               "num_mel_bins": rng.choice([80, 128])}
    with tempfile.TemporaryDirectory() as folder:
        directory = listening.make(Path(folder) / "model", seed, encoder=encoder, kind=kind)
        reference, asked = Reference(directory, kind), list(conversations(rng, kind))
        alone, again, together = serve(build, directory, [], ask_all, asked)
        few = serve(build, directory, FEW, ask_all, asked)
        if kind == "qwen3_asr":
            own = listening.respell(directory, Path(folder) / "own")
            few += serve(build, own, [], ask_all, asked)
        for i, (name, messages) in enumerate(asked):
            length = len(alone[i][0])
            why, worst = reference.problems(messages, alone[i])
            cached = again[i][3]["cached_tokens"]
            if not why and any(made[i][:3] != alone[i][:3] for made in (again, together, *few)):
                why = "other bits from the cache, beside others or in small steps"
            if not why and cached < length // 16 * 16 - 16:
                why = f"{cached} tokens of {length} were cached"
            judge(score, f"{kind} seed {seed} {name}: {length} tokens, {cached} cached again, "
                         f"{worst:.2g} apart", why)
        lengths = serve(build, directory, [], lambda port, sound: ask_spelled(port, kind, sound),
                        asked[1][1][0][1][0])
        judge(score, f"{kind} seed {seed} a text that spells marks is text",
              "" if lengths[0] == lengths[1] else f"prompts of {lengths} tokens")
        # Of several sounds transformers gives a beam others: it repeats each one for all beams.
        for name, messages in (asked[1], asked[5], asked[7], asked[0]):
            why = reference.more_problems(messages,
                                          *serve(build, directory, [], ask_more, messages))
            if why is not None:
                break
        if kind in ("qwen3_asr", "glmasr"):
            compare_transcripts(build, directory, reference, rng, score)
        judge(score, f"{kind} seed {seed} beams and scores of a prompt: {name}",
              "every beam draws a sound's id" if why is None else why)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kind", default=",".join(listening.KINDS))
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
