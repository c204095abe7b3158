#!/usr/bin/env python3
"""Compares transcripts of a server with transformers', over HTTP.

    tests/parity/parity_speech.py --build build [--seed N] [--count 2]

Tiny random Whisper models (tests/hearing.py) of drawn sizes are served, and loaded by transformers,
whose extractor, model and rules of generate() see the same sounds: silence, noise, tones of 0.2 s
to 30 s. Greedy (a temperature below 1e-5, so that nothing is tried again). The ids of each segment,
its times and the language must be those of transformers, without times the text; with a prompt, for
translations and for models of one language too. So must the words and their times (what
generate(return_token_timestamps) and the pipeline do, part by part). All sounds at once must say
the same as alone.

Random models write until their context is full. That of the first model, whose cases are most, has
64 to 128 tokens; the others have the 448 of all that are published.

Ends with `N passed, N failed`; exit 1 when something failed.
"""

import argparse
import concurrent.futures
import json
import random
import struct
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/vectors"), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.models.whisper.tokenization_whisper import (  # noqa: E402
    _combine_tokens_into_words)
from transformers.generation.logits_process import (  # noqa: E402
    SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor)

import hearing  # noqa: E402
from parity_embeddings import serve  # noqa: E402

GREEDY = "0.000001"
PATIENCE_S = 600
torch.set_num_threads(1)  # the models are so small that a second one would only be waited for


def form(fields, file):
    lines = []
    for name, value in fields.items():
        lines.append(f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n')
    head = '--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    return "".join(lines).encode() + head.encode() + file + b"\r\n--b--\r\n"


def post(port, route, fields, file):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/audio/{route}", form(fields, file),
        {"Content-Type": "multipart/form-data; boundary=b"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def sounds(rng):
    yield "silence", [0] * 8000
    yield "noise", [rng.randrange(-9000, 9000) for _ in range(40000)]
    yield "short", hearing.samples(0.2, rng.random())
    yield "tones", hearing.samples(rng.uniform(1, 9), rng.random())
    yield "whole", hearing.samples(30, rng.random())


def segments_of(ids, duration):
    """(begin, end, ids) of text between stamps, by the words of engine/audio."""
    out, begin, text = [], 0.0, []
    for token in ids:
        if token < hearing.FIRST_STAMP:
            text.append(token)
            continue
        at = min((token - hearing.FIRST_STAMP) / 50, duration)
        if text:
            out.append((begin, at, text))
            text = []
        begin = at
    if text:
        out.append((begin, duration, text))
    return out


class Reference:
    def __init__(self, directory):
        self.model = transformers.WhisperForConditionalGeneration.from_pretrained(
            directory, attn_implementation="eager").eval()
        self.extractor = transformers.WhisperFeatureExtractor.from_pretrained(directory)
        self.tokenizer = transformers.WhisperTokenizerFast.from_pretrained(directory)
        self.english = not self.model.generation_config.is_multilingual
        config = self.model.config
        self.context = config.max_target_positions
        self.heads = getattr(self.model.generation_config, "alignment_heads", None)
        if not self.heads or any(layer >= config.decoder_layers for layer, _ in self.heads):
            self.heads = [[layer, head]  # as openai-whisper has it
                          for layer in range(config.decoder_layers // 2, config.decoder_layers)
                          for head in range(config.decoder_attention_heads)]

    def prompt(self, stamps, language, task, prompt):
        ids = [hearing.IDS["<|startofprev|>"], 32, *prompt.encode()] if prompt else []
        ids.append(hearing.IDS["<|startoftranscript|>"])
        if not self.english:
            ids += [hearing.IDS[f"<|{language}|>"], hearing.IDS[f"<|{task}|>"]]
        return ids if stamps else [*ids, hearing.IDS["<|notimestamps|>"]]

    def words(self, samples, ids, language, prompt):
        """[(word, begin, end)] of a window whose tokens are `ids`, with stamps."""
        audio = np.array(samples, np.float32) / 32768
        features = self.extractor(audio, sampling_rate=16000, return_tensors="pt").input_features
        start = self.prompt(True, language, "transcribe", prompt)
        # The last one that generate() draws is not read by it.
        read = start + ids[:self.context - 1 - len(start)]
        out = self.model(features, decoder_input_ids=torch.tensor([read]), output_attentions=True)
        made = transformers.utils.ModelOutput(cross_attentions=[out.cross_attentions],
                                              sequences=torch.tensor([read]))
        # pylint: disable-next=protected-access
        times = self.model._extract_token_timestamps(
            made, self.heads, num_frames=len(samples) // 160,
            num_input_ids=len(start))[0].tolist()[len(start) - 1:]
        found, first = [], 0
        for i in range(len(ids) + 1):
            if i < len(ids) and ids[i] < hearing.FIRST_STAMP:
                continue
            texts, _, places = _combine_tokens_into_words(self.tokenizer, ids[first:i],
                                                          NAMES[language])
            for text, place in zip(texts, places):
                begin, end = times[first + place[0]], times[first + place[-1] + 1]
                if text.strip():
                    found.append((text.strip(), max(begin, 0), max(end, 0)))
            first = i + 1
        last = len(samples) / 16000
        return [(text, round(min(begin, last), 2), round(min(end, last), 2))
                for text, begin, end in found]

    def generate(self, samples, stamps, language, task, prompt):
        """The ids of one window, by the parts of generate(), which itself goes on behind its end;
        and the language that is detected."""
        config = self.model.generation_config
        audio = np.array(samples, np.float32) / 32768
        features = self.extractor(audio, sampling_rate=16000, return_tensors="pt").input_features
        found = None if self.english else int(self.model.detect_language(features)[0])
        if language is None:
            language = hearing.LANGUAGES[found - hearing.IDS["<|en|>"]]
        ids = self.prompt(stamps, language, task, prompt)
        begin = len(ids)
        rules = [SuppressTokensAtBeginLogitsProcessor(config.begin_suppress_tokens, begin),
                 SuppressTokensLogitsProcessor(config.suppress_tokens)]
        if stamps:
            rules.append(WhisperTimeStampLogitsProcessor(config, begin))
        encoded, cache, new = self.model.model.encoder(features), None, ids
        while len(ids) < self.context and ids[-1] != 256:
            out = self.model(encoder_outputs=encoded, decoder_input_ids=torch.tensor([new]),
                             past_key_values=cache, use_cache=True)
            scores, cache = out.logits[:, -1].float(), out.past_key_values
            for rule in rules:
                scores = rule(torch.tensor([ids]), scores)
            new = [int(scores[0].argmax())]
            ids = ids + new
        return [i for i in ids[begin:] if i != 256], found


NAMES = {"en": "english", "de": "german", "fr": "french"}


class Comparison:
    """What a server says of sounds, and what transformers says."""

    def __init__(self, port, reference, what):
        self.port, self.reference, self.what = port, reference, what
        self.passed = self.failed = 0

    def check(self, what, ours, theirs):
        self.passed += ours == theirs
        self.failed += ours != theirs
        if ours != theirs:
            print(f"{self.what} {what}:\n  ours   {ours}\n  theirs {theirs}")

    def ask(self, case, route="transcriptions", **fields):
        _, samples, language, prompt = case
        file = hearing.wav_of(struct.pack(f"<{len(samples)}h", *samples))
        fields = {"temperature": GREEDY, **fields}
        if language:
            fields["language"] = language
        if prompt:
            fields["prompt"] = prompt
        return post(self.port, route, fields, file)

    def verbose(self, case, route="transcriptions"):
        return self.ask(case, route, response_format="verbose_json")

    def same(self, case, one):
        name, samples, language, prompt = case
        what = f"{name} {language} {prompt!r}"
        answer = json.loads(one)
        with torch.no_grad():
            ids, found = self.reference.generate(samples, True, language, "transcribe", prompt)
            plain, _ = self.reference.generate(samples, False, language, "transcribe", prompt)
        self.check(f"{what}: segments", shown(answer["segments"]),
                   rounded(segments_of(ids, len(samples) / 16000)))
        if language is None:
            code = hearing.LANGUAGES[found - hearing.IDS["<|en|>"]]
            self.check(f"{what}: language", answer["language"], NAMES[code])
        if language is not None:
            self.same_words(case, ids, what)
        text = bytes(i for i in plain if i < 256).decode(errors="replace")
        self.check(f"{what}: text", json.loads(self.ask(case))["text"], text.strip(" \n\t\r"))

    def same_words(self, case, ids, what):
        _, samples, language, prompt = case
        with torch.no_grad():
            theirs = self.reference.words(samples, ids, language, prompt)
        ours = json.loads(self.ask(case, response_format="verbose_json",
                                   **{"timestamp_granularities[]": "word"}))["words"]
        self.check(f"{what}: words", [(w["word"].strip(), round(w["start"], 2), round(w["end"], 2))
                                      for w in ours if w["word"].strip()], theirs)

    def compare(self, cases):
        alone = [self.verbose(case) for case in cases]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            together = list(pool.map(self.verbose, cases))
        self.check("all at once", together, alone)
        for case, one in zip(cases, alone):
            self.same(case, one)
        name, samples, language, prompt = cases[-1]
        if self.reference.english:
            return
        with torch.no_grad():
            ids, _ = self.reference.generate(samples, True, language, "translate", prompt)
        answer = json.loads(self.verbose(cases[-1], "translations"))
        self.check(f"{name}: translation", shown(answer["segments"]),
                   rounded(segments_of(ids, len(samples) / 16000)))


def shown(segments):
    return [(round(s["start"], 3), round(s["end"], 3), s["tokens"]) for s in segments]


def rounded(segments):
    return [(round(begin, 3), round(end, 3), ids) for begin, end, ids in segments]


def draw_sizes(rng, number):
    heads = rng.choice([1, 2, 4])
    width = heads * rng.choice([16, 32])
    return {"d_model": width, "encoder_attention_heads": heads, "decoder_attention_heads": heads,
            "num_mel_bins": rng.choice([80, 128]), "encoder_layers": rng.randint(1, 3),
            "decoder_layers": rng.randint(1, 3), "encoder_ffn_dim": 4 * width,
            "decoder_ffn_dim": 4 * width,
            "max_target_positions": 448 if number % 3 else rng.randint(64, 128)}


def draw_cases(rng, english):
    for name, samples in sounds(rng):
        for language in ["en"] if english else [None, rng.choice(["de", "fr"])]:
            for prompt in ("", "Wie am Anfang"):
                yield name, samples, language, prompt


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--count", type=int, default=2)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)
    passed = failed = 0
    for number in range(options.count):
        english, sizes = number % 2 == 1, draw_sizes(rng, number)
        with tempfile.TemporaryDirectory() as folder:
            # Every third model has a list that is not its own, every other one has none.
            heads = [None, [], [[0, 0], [9, 1]]][number % 3]
            hearing.make(folder, rng.randrange(1 << 30), english, heads=heads, **sizes)
            reference, cases = Reference(folder), list(draw_cases(rng, english))

            def compare(port, asked, reference=reference, what=f"model {number} {sizes}"):
                comparison = Comparison(port, reference, what)
                comparison.compare(asked)
                return comparison

            made = serve(options.build, folder, [], compare, cases)
            passed, failed = passed + made.passed, failed + made.failed
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
