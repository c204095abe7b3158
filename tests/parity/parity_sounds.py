#!/usr/bin/env python3
"""Compares MP4 files with AAC with FFmpeg: drawn sounds, rates, channels, bit rates and layouts.

    PYTHON tests/parity/parity_sounds.py [--build build] [--random 200] [--seed N]

PYTHON has numpy and PyAV, as build/peers-speech/venv (tests/bench/bench_speech --prepare) has.
FFmpeg encodes a file and decodes it again; its samples go into a WAV of floats, which is mixed and
resampled as the MP4 is. The two must begin together, end within a frame of AAC of each other, and
differ by 1e-6 at most where both are. Ends with `N of N sounds are alike`.
"""

import argparse
import io
import random
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import av
import numpy as np

FRAME, FURTHEST, RATE = 1024, 1e-6, 16000
RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 96000)


def drawn_sound(draw, rate, channels):
    """(channels, samples): tones, noise, silence and clicks, in pieces."""
    count = draw.choice([1023, 1024, 1025, 2049, int(rate * draw.uniform(0.1, 3))])
    rng, at = np.random.default_rng(draw.randrange(1 << 32)), np.arange(count) / rate
    made = np.zeros((channels, count))
    for row in made:
        for _ in range(draw.randrange(4)):
            row += draw.uniform(0, 0.3) * np.sin(2 * np.pi * draw.uniform(50, rate / 2.2) * at)
        row += draw.choice([0, 0.001, 0.1]) * rng.normal(size=count)
        row[:draw.randrange(count)] *= draw.choice([0, 1, 1])
        row[draw.randrange(count)] += draw.choice([0, 0.5])
    return np.clip(made, -1, 1).astype(np.float32)


def encoded(draw, sound, rate, layout, path):
    way = draw.choice([{}, {"movflags": "faststart"}, {"use_editlist": "0"}])
    with av.open(str(path), "w", format="mp4", options=way) as file:
        stream = file.add_stream("aac", rate=rate, layout=layout)
        stream.bit_rate = draw.choice([16000, 64000, 128000, 320000])
        stream.options = {"aac_pns": "0"}  # a decoder draws that noise by itself
        frame = av.AudioFrame.from_ndarray(sound, "fltp", layout)
        frame.sample_rate, frame.pts = rate, 0
        for one in (frame, None):
            for packet in stream.encode(one):
                file.mux(packet)
    return path.read_bytes(), way


def wav_of(samples, rate):
    """A WAV of floats of (channels, samples)."""
    data = samples.T.astype("<f4").tobytes()
    by = 4 * len(samples)
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 3,
                       len(samples), rate, rate * by, by, 32, b"data", len(data))
    return head + data


class Driver:
    """What inferd hears of some bytes: samples, or the words of a refusal."""

    def __init__(self, build, folder):
        self.process = subprocess.Popen([f"{build}/sound_driver"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.file = Path(folder) / "sound"

    def heard(self, data):
        self.file.write_bytes(data)
        self.process.stdin.write(f"{self.file}\n".encode())
        self.process.stdin.flush()
        line = self.process.stdout.readline().decode().strip()
        if not line.isdigit():
            return line
        return np.frombuffer(self.process.stdout.read(4 * int(line)), "<f4")


def difference(driver, draw):
    """(words of what is not alike or "", the largest difference)."""
    rate = draw.choice(RATES)
    layout = draw.choice(["mono", "stereo", "stereo", "5.1"])
    sound = drawn_sound(draw, rate, {"mono": 1, "stereo": 2, "5.1": 6}[layout])
    data, way = encoded(draw, sound, rate, layout, driver.file)
    with av.open(io.BytesIO(data)) as file:
        theirs = np.concatenate([frame.to_ndarray() for frame in file.decode(audio=0)], 1)
    name = f"{sound.shape[1]} samples of {rate} Hz, {layout}, {way}"
    ours, theirs = driver.heard(data), driver.heard(wav_of(theirs, rate))
    if isinstance(ours, str) or isinstance(theirs, str):
        return f"{name}: {ours if isinstance(ours, str) else theirs}", 0
    both = max(min(len(ours), len(theirs)) - FRAME // 4, 0)  # a resampler hears the end
    # libfaad has no samples for the first frame, which is heard where there is no edit list.
    first = 2 * FRAME * RATE // rate if "use_editlist" in way else 0
    furthest = float(np.abs(ours[first:both] - theirs[first:both]).max(initial=0))
    if abs(len(ours) - len(theirs)) > FRAME * RATE / rate + 1:
        return f"{name}: {len(ours)} samples, not about {len(theirs)}", furthest
    return f"{name}: differs by {furthest:.2g}" if furthest > FURTHEST else "", furthest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    draw, alike, furthest = random.Random(options.seed), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(options.build, folder)
        for _ in range(options.random):
            words, by = difference(driver, draw)
            furthest = max(furthest, by)
            alike += not words
            if words:
                print(words)
    print(f"{alike} of {options.random} sounds are alike; the furthest samples differ by "
          f"{furthest:.2g}")
    sys.exit(alike != options.random)


if __name__ == "__main__":
    main()
