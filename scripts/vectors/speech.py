#!/usr/bin/env python3
"""Writes what transformers says of speech, and files of sound, to tests/vectors:

    scripts/vectors/speech.py [mel | rules | align | files | mp4 | model | lengths]...
                    needs transformers, soundfile, and av for mp4

mel.jsonl           a signal (tests/engine/audio/signals.h draws the same), and some values of the
                    spectrogram that WhisperFeatureExtractor makes of it, computed in double
mel_sounds.jsonl    the same without silence behind the signal, as Qwen3ASRFeatureExtractor has it,
                    which computes in fp32 and must be near
speech_rules.jsonl  logits, the output so far, and which ids WhisperTimeStampLogitsProcessor and
                    SuppressTokensAtBeginLogitsProcessor leave
speech_align.jsonl  drawn weights of cross attention, and the rows of the encoder at which
                    transformers lets tokens begin
speech/whisper      a tiny model, and the segments that transformers makes of a drawn sound
sound_files.jsonl   a file in base64 with a tone of 0.25 s, its rate and channels, and the level of
                    the tone; or that it is `refused`, and by which words
sound_mp4.jsonl     the same of MP4 files of FFmpeg, by PyAV, and what it hears in those of 16 kHz:
                    how many samples, and some of them
sound_lengths.jsonl samples of a sound, and the positions and tokens that Qwen2AudioProcessor makes
                    of it
"""

import base64
import io
import json
import os
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parents[2] / "tests/vectors"
RATE, WINDOW = 16000, 480000


def write(name, rows):
    with open(OUT / name, "w", encoding="ascii") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    print(f"{name}: {len(rows)} lines")


# ---- mel ----

def noise(count, seed):
    """A generator of 32 bits, its 24 highest as [-1, 1)."""
    out, state = np.empty(count, np.float32), seed
    for i in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = (state >> 8) / (1 << 23) - 1
    return out


def signal(kind, count, number, level):
    at = np.arange(count)
    if kind == "tone":
        return (level * np.sin(2 * np.pi * number * at / RATE)).astype(np.float32)
    if kind == "noise":
        return (np.float32(level) * noise(count, number)).astype(np.float32)
    out = np.zeros(count, np.float32)
    if kind == "impulse":
        out[number] = level
    return out


SIGNALS = [("silence", 16000, 0, 0), ("silence", 0, 0, 0), ("tone", 16000, 440, 0.5),
           ("tone", WINDOW, 3999, 1), ("tone", WINDOW - 1, 80, 0.001),
           ("tone", WINDOW + 1, 7900, 0.9), ("noise", WINDOW, 7, 1), ("noise", 1, 3, 1),
           ("noise", WINDOW - 1, 11, 0.01), ("noise", WINDOW + 1, 13, 30000),
           ("impulse", 1000, 0, 1), ("impulse", 1000, 999, 1), ("impulse", WINDOW, WINDOW - 1, 1),
           ("impulse", 401, 200, 65536), ("noise", 200, 17, 0.5), ("noise", 16001, 19, 0.1)]


def mel():
    from transformers import WhisperFeatureExtractor
    random, rows = np.random.default_rng(36), []
    for bands in (80, 128):
        extractor = WhisperFeatureExtractor(feature_size=bands)
        for kind, count, number, level in SIGNALS:
            samples = np.zeros(WINDOW, np.float32)
            drawn = signal(kind, count, number, level)[:WINDOW]
            samples[:len(drawn)] = drawn
            # pylint: disable-next=protected-access
            whole = extractor._np_extract_fbank_features(samples[None].astype(np.float64), "cpu")[0]
            near = [0, 1, 2, count // 160, count // 160 + 1, 2998, 2999]
            places = [(min(row, 2999), band) for row in near for band in (0, 5, bands - 1)]
            places += [(int(random.integers(3000)), int(random.integers(bands))) for _ in range(40)]
            rows.append({"bands": bands, "kind": kind, "count": count, "number": number,
                         "level": level, "sum": float(whole.sum()),
                         "values": [[r, b, round(float(whole[b, r]), 7)] for r, b in places]})
    write("mel.jsonl", rows)
    mel_sounds(random)


SOUNDS = [("silence", 8000, 0, 0), ("tone", 8159, 440, 0.5), ("tone", 8160, 3999, 1),
          ("noise", 8001, 7, 1), ("noise", 12345, 11, 0.01), ("impulse", 16000, 15999, 1),
          ("impulse", 16079, 15980, 0.5), ("noise", 48000, 13, 30000), ("noise", 201, 3, 0.5),
          ("noise", 480, 4, 0.5), ("noise", 1599, 5, 0.5)]


def mel_sounds(random):
    from transformers import Qwen3ASRFeatureExtractor, WhisperFeatureExtractor
    rows = []
    for i, (kind, count, number, level) in enumerate(SOUNDS):
        bands = (128, 80)[i % 2]
        samples = signal(kind, count, number, level)
        extractor = WhisperFeatureExtractor(feature_size=bands)
        # pylint: disable-next=protected-access
        whole = extractor._np_extract_fbank_features(samples[None].astype(np.float64), "cpu")[0]
        own = Qwen3ASRFeatureExtractor(feature_size=bands, min_length=0)(
            samples, sampling_rate=RATE, padding=True, n_window=0).input_features[0].numpy()
        assert whole.shape == own.shape == (bands, count // 160)
        assert np.abs(whole - own).max() < 1e-3, np.abs(whole - own).max()
        last = count // 160 - 1
        places = [(max(row, 0), band) for row in (0, last - 2, last - 1, last)
                  for band in (0, 5, bands - 1)]
        places += [(int(random.integers(last + 1)), int(random.integers(bands)))
                   for _ in range(30)]
        rows.append({"bands": bands, "kind": kind, "count": count, "number": number,
                     "level": level, "sum": float(whole.sum()),
                     "values": [[r, b, round(float(whole[b, r]), 7)] for r, b in places]})
    write("mel_sounds.jsonl", rows)


# ---- rules ----

def rules():
    import torch
    from transformers import GenerationConfig
    from transformers.generation.logits_process import (SuppressTokensAtBeginLogitsProcessor,
                                                        WhisperTimeStampLogitsProcessor)
    random, rows = np.random.default_rng(37), []
    vocab, eos, no_stamps = 40, 20, 23
    first = no_stamps + 1
    for case in range(400):
        config = GenerationConfig(eos_token_id=eos)
        config.no_timestamps_token_id = no_stamps
        initial = [None, 0, 1, 5, 100][case % 5]
        config.max_initial_timestamp_index = initial
        begin = [int(i) for i in random.integers(0, vocab, case % 3)]
        history = [int(i) for i in random.integers(0, vocab, int(random.integers(0, 6)))]
        if case % 2:
            history = [int(random.integers(first, vocab)) if random.random() < 0.6 else i
                       for i in history]
        logits = np.round(random.normal(0, 3, vocab), 3)
        for i in random.integers(0, vocab, case % 7):
            logits[i] = -np.inf
        prompt = [1, 2, 3]
        ids = torch.tensor([prompt + history])
        scores = torch.tensor(logits[None], dtype=torch.float32)
        if begin:
            scores = SuppressTokensAtBeginLogitsProcessor(begin, len(prompt))(ids, scores)
        scores = WhisperTimeStampLogitsProcessor(config, len(prompt))(ids, scores)[0].numpy()
        rows.append({"eos": eos, "no_stamps": no_stamps, "begin": begin, "history": history,
                     "initial": -1 if initial is None else initial,
                     "logits": [-1e9 if np.isinf(x) else float(x) for x in logits],
                     "left": [int(i) for i in np.flatnonzero(~np.isinf(scores))]})
    write("speech_rules.jsonl", rows)


# ---- align ----

def align():
    import torch
    from transformers.models.whisper.generation_whisper import (_dynamic_time_warping,
                                                                _median_filter)
    random, rows = np.random.default_rng(38), []
    for case in range(100):
        heads, count = int(random.integers(1, 4)), int(random.integers(1 + case % 4, 11))
        columns, width = int(random.integers(1, 40)), [7, 1, 3, 5][case % 4]
        weights = random.dirichlet(np.full(columns, 0.3), (heads, count)).round(4)
        if case % 5 == 0:  # a column that no token sees is no number there
            weights[:, :, int(random.integers(columns))] = 0
        drawn = torch.tensor(weights[None], dtype=torch.float32)
        deviation = torch.std(drawn, dim=-2, keepdim=True, unbiased=False)
        made = (drawn - torch.mean(drawn, dim=-2, keepdim=True)) / deviation
        made = _median_filter(made, width).mean(dim=1)[0]
        texts, times = _dynamic_time_warping(-made.double().numpy())
        first = [int(times[texts == i].min()) for i in range(count)]
        rows.append({"width": width, "weights": weights.tolist(), "rows": first})
    write("speech_align.jsonl", rows)


# ---- model ----

def model():
    """speech/whisper: a tiny model, and what transformers writes down of a drawn sound."""
    root = OUT.parents[1]
    sys.path[:0] = [str(root / "tests"), str(root / "tests/parity")]
    import hearing
    import parity_speech
    import torch
    folder = hearing.make(OUT / "speech/whisper", 4, d_model=16, encoder_attention_heads=1,
                          decoder_attention_heads=1, encoder_layers=1, decoder_layers=1,
                          encoder_ffn_dim=32, decoder_ffn_dim=32)
    reference, samples = parity_speech.Reference(folder), hearing.samples(2, 5)
    with torch.no_grad():
        ids, _ = reference.generate(samples, True, "de", "transcribe", "")
    segments = parity_speech.rounded(parity_speech.segments_of(ids, 2))
    (folder / "expected.json").write_text(json.dumps(
        {"seconds": 2, "seed": 5, "language": "de", "segments": segments}))


# ---- files ----

def encode(samples, rate, kind, subtype):
    import soundfile
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format=kind, subtype=subtype)
    return out.getvalue()


def tone(rate, channels, hz=1000, level=0.5):
    at = np.arange(rate // 4)
    one = level * np.sin(2 * np.pi * hz * at / rate)
    return np.stack([one] * channels, -1) if channels > 1 else one


def files():
    rows = []
    kinds = [("WAV", s) for s in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW",
                                  "ALAW")]
    kinds += [("WAVEX", "PCM_16"), ("FLAC", "PCM_16"), ("FLAC", "PCM_24"), ("FLAC", "PCM_S8"),
              ("MP3", "MPEG_LAYER_III"), ("OGG", "VORBIS"), ("OGG", "OPUS")]
    for kind, subtype in kinds:
        common = subtype in ("PCM_16", "MPEG_LAYER_III", "VORBIS", "OPUS") and kind != "WAVEX"
        for rate, channels in ((16000, 1), (44100, 2), (8000, 1), (48000, 2), (22050, 1)):
            if subtype == "OPUS" and rate in (44100, 22050) or not common and rate != 16000:
                continue
            data = encode(tone(rate, channels), rate, kind, subtype)
            rows.append({"name": f"{kind}-{subtype}-{rate}-{channels}".lower(), "rate": rate,
                         "channels": channels, "level": 0.5,
                         "file": base64.b64encode(data).decode()})
    left = tone(16000, 2)
    left[:, 1] = 0
    rows.append({"name": "one-side", "rate": 16000, "channels": 2, "level": 0.25,
                 "file": base64.b64encode(encode(left, 16000, "WAV", "PCM_16")).decode()})

    def refuse(name, words, data):
        rows.append({"name": name, "refused": words, "file": base64.b64encode(data).decode()})

    wav = encode(tone(16000, 1), 16000, "WAV", "PCM_16")
    header = bytearray(wav[:44])
    refuse("empty", "no sound", b"")
    refuse("text", "no sound", b"hello")
    refuse("webm", "WebM", b"\x1A\x45\xDF\xA3" + bytes(64))
    refuse("aiff", "AIFF", encode(tone(16000, 1), 16000, "AIFF", "PCM_16"))
    refuse("adpcm", "codec", encode(tone(16000, 1), 16000, "WAV", "IMA_ADPCM"))
    refuse("slow", "7999", encode(tone(7999, 1), 7999, "WAV", "PCM_16"))
    refuse("fast", "192001", encode(tone(192001, 1)[:100], 192001, "WAV", "PCM_16"))
    refuse("nine-channels", "9 channels", encode(tone(16000, 9), 16000, "WAV", "PCM_16"))
    refuse("header-alone", "no samples", bytes(header))
    refuse("not-a-number", "no numbers",
           encode(np.full(99, np.nan, np.float32), 16000, "WAV", "FLOAT"))
    refuse("too-large", "too large", encode(np.full(99, 65537.0), 16000, "WAV", "FLOAT"))
    header[22:24] = struct.pack("<H", 0)
    refuse("no-channels", "", bytes(header) + wav[44:])
    write("sound_files.jsonl", rows)


def encode_mp4(samples, rate, codec="aac", **options):
    import av
    out = Path(tempfile.gettempdir()) / f"sound-{os.getpid()}.mp4"  # FFmpeg opens it a second time
    with av.open(str(out), "w", format="mp4", options=options) as file:
        values = samples.reshape(len(samples), -1).T
        layout = "mono" if len(values) == 1 else "stereo"
        stream = file.add_stream(codec, rate=rate, layout=layout)
        if codec == "aac":
            stream.options = {"aac_pns": "0"}  # noise of a decoder's own
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(values, np.float32), "fltp", layout)
        frame.sample_rate, frame.pts = rate, 0
        for made in (frame, None):
            for packet in stream.encode(made):
                file.mux(packet)
    data = out.read_bytes()
    out.unlink()
    return data


def heard_by_ffmpeg(data):
    """The mean of the channels."""
    import av
    with av.open(io.BytesIO(data)) as file:
        return np.concatenate([frame.to_ndarray().mean(0) for frame in file.decode(audio=0)])


def level_of(samples, rate):
    """Of a tone of 1 kHz, a twentieth of a second behind the beginning."""
    part = samples[rate // 20:rate // 20 + rate // 10]
    turns = np.exp(-2j * np.pi * 1000 / rate * np.arange(len(part)))
    return round(float(2 * abs((part * turns).mean())), 3)


def mp4():
    rows, random = [], np.random.default_rng(39)

    def add(name, data, **more):
        rows.append({"name": name, **more, "file": base64.b64encode(data).decode()})

    for rate, channels in ((16000, 1), (16000, 2), (44100, 2), (8000, 1), (48000, 2), (22050, 1)):
        for way in ({}, {"movflags": "faststart"}, {"use_editlist": "0"}):
            sound = tone(rate, channels) + random.normal(0, 0.02, tone(rate, channels).shape)
            data = encode_mp4(sound, rate, **way)
            heard = heard_by_ffmpeg(data)
            # libfaad has no samples for the first frame, which is heard without an edit list.
            first = 1024 if "use_editlist" in way else 0
            heard[:first] = 0
            # It makes two channels of one, for those of which a stereo may be made.
            more = {"rate": rate, "channels": 2, "level": level_of(heard, rate)}
            if rate == RATE:
                more |= {"count": len(heard), "first": first,
                         "heard": [round(float(x), 6) for x in heard[first::37]]}
            add("-".join(["mp4", str(rate), str(channels), *way]), data, **more)
    made = encode_mp4(tone(RATE, 1), RATE)
    add("mp4-without-moov", made[:made.index(b"moov") - 4], refused="moov")
    add("mp4-empty", b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(64), refused="moov")
    add("mp4-alac", encode_mp4(tone(RATE, 1), RATE, "alac"), refused="AAC")
    add("mp4-mp3", encode_mp4(tone(RATE, 1), RATE, "libmp3lame"), refused="AAC")
    add("mp4-opus", encode_mp4(tone(RATE, 1), RATE, "libopus"), refused="AAC")
    add("mp4-fragments", encode_mp4(tone(RATE, 1), RATE, movflags="frag_keyframe+empty_moov"),
        refused="fragments")
    write("sound_mp4.jsonl", rows)


# ---- lengths ----

def lengths():
    from types import SimpleNamespace
    from transformers import Qwen2AudioProcessor, WhisperFeatureExtractor
    extractor, rows = WhisperFeatureExtractor(feature_size=128), []
    asked = SimpleNamespace(feature_extractor=extractor,
                            replace_audio_token=lambda *ignored, **named: "")
    random = np.random.default_rng(38)
    counts = (160, 320, 480, 640, 800, 960, 1280, 48000, WINDOW - 320, WINDOW)
    near = [count + by for count in counts for by in (-1, 0, 1)
            if count + by <= WINDOW]
    for count in [1, *near, *random.integers(1000, WINDOW, 30).tolist()]:
        # pylint: disable-next=protected-access
        made, _ = Qwen2AudioProcessor._process_audio(asked, [np.zeros(count, np.float32)],
                                                     sampling_rate=RATE)
        frames = int(made["feature_attention_mask"][0].sum())
        rows.append({"samples": count, "positions": (frames - 1) // 2 + 1,
                     "tokens": made["num_audio_tokens"][0]})
    write("sound_lengths.jsonl", rows)


def main():
    known = {"mel": mel, "rules": rules, "align": align, "files": files, "mp4": mp4,
             "model": model, "lengths": lengths}
    for name in sys.argv[1:] or known:
        known[name]()


if __name__ == "__main__":
    main()
