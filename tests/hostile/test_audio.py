"""Sounds that try to hurt: damaged files of every format, lengths that lie, files that decode to
hours, forms without an end, and a process of decoders that dies."""

import base64
import json
import math
import os
import random
import signal
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

import hearing
from conftest import ATTACKER, HONEST
from harness import ROOT, SLOWNESS, Server, wait_until
from test_boundaries import steps_of_chats
from test_pictures import keeper_of

ROWS = {row["name"]: row for name in ("files", "mp4") for row in map(json.loads, open(
    ROOT / f"tests/vectors/sound_{name}.jsonl", encoding="ascii"))}
FILES = [base64.b64decode(row["file"]) for row in ROWS.values() if "level" in row]
MUTATIONS = 400


@pytest.fixture(scope="module")
def ear(request, keys, tmp_path_factory):
    model = hearing.make(tmp_path_factory.mktemp("ear") / "model", encoder_layers=1,
                         decoder_layers=1, d_model=16, encoder_attention_heads=1,
                         decoder_attention_heads=1, max_target_positions=64)
    server = Server(request.config.getoption("--inferd"), model, "--api-key-file", keys,
                    "--metrics-auth", "off", "--max-audio-seconds", 60, key=HONEST)
    yield server
    assert server.stop() == 0, server.log()


def form(file, **fields):
    parts = [f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
             for name, value in {"temperature": 0.00001, **fields}.items()]
    head = '--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    return "".join(parts).encode() + head.encode() + file + b"\r\n--b--\r\n"


FORM = "multipart/form-data; boundary=b"


def send(server, body, key=ATTACKER, name="nobody", kind=FORM):
    return server.request("POST", "/v1/audio/transcriptions", body, {
        "Authorization": f"Bearer {key}", "Content-Type": kind, "X-Request-Id": name})


def honest(server):
    answer = send(server, form(hearing.wav(0.5)), HONEST)
    assert answer.status == 200, answer
    return answer.json["text"]


def audio_of(seconds, seed):
    """8 bits at 8,000 a second: silence, and tones of drawn heights, half a minute each."""
    rng, parts = random.Random(seed), []
    for _ in range(0, seconds, 30):
        period = rng.randrange(4, 90)
        wave = bytes(int(128 + 90 * math.sin(2 * math.pi * i / period)) for i in range(period))
        parts.append(((bytes([128]) if rng.randrange(3) == 0 else wave) * 240000)[:240000])
    return hearing.wav_of(b"".join(parts)[:8000 * seconds], 8000, 1, 8)


class Listens(threading.Thread):
    """A streamed transcript of the attacker's."""

    def __init__(self, server, file):
        super().__init__(daemon=True)
        self.events, self.failure = [], None
        self.connection = server.connection(300)
        self.begun = threading.Event()
        self.body = form(file, stream="true")
        self.start()

    def run(self):
        try:
            self.connection.request("POST", "/v1/audio/transcriptions", self.body, {
                "Authorization": f"Bearer {ATTACKER}",
                "Content-Type": "multipart/form-data; boundary=b"})
            answer = self.connection.getresponse()
            assert answer.status == 200, answer.read()
            for line in answer:
                if line.startswith(b"data: {"):
                    self.events.append(json.loads(line[6:]))
                    self.begun.set()
        except (OSError, AssertionError, AttributeError, ValueError) as failure:
            self.failure = failure
        self.begun.set()


def settled(server):
    wait_until(lambda: server.idle() and server.metric("inferd_request_memory_bytes") == 0,
               "nothing to be left", context=server.usage)


def mutated(rng):
    made = bytearray(rng.choice(FILES))
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(made))
        kind = rng.randrange(5)
        if kind == 0:
            made[at] = rng.randrange(256)
        elif kind == 1:
            del made[at:at + rng.randrange(64)]
        elif kind == 2:
            made[at:at] = rng.choice(FILES)[:rng.randrange(200)]
        elif kind == 3:
            made[at:at + 4] = struct.pack("<I", rng.choice([0, 1, 0xFFFFFFFF, 0x7FFFFFFF]))
        else:
            del made[max(at, 1):]
        if not made:
            made = bytearray(b"R")
    return bytes(made)


def test_damaged_files_are_read_or_refused(ear):
    rng, expected = random.Random(36), honest(ear)
    statuses = {}
    for _ in range(MUTATIONS):
        answer = send(ear, form(mutated(rng)))
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        assert answer.status in (200, 400), answer
    assert statuses.get(400, 0) > MUTATIONS // 10, statuses
    assert honest(ear) == expected
    settled(ear)


def test_lengths_that_lie_are_read_as_what_there_is(ear):
    """Sizes in headers that are 0, larger than the file, or as large as can be."""
    file = bytearray(hearing.wav(0.5))
    for place in (4, 16, 40):
        for size in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
            lie = file[:]
            lie[place:place + 4] = struct.pack("<I", size)
            assert send(ear, form(bytes(lie))).status in (200, 400)
    for rate, channels, bits in ((0, 1, 16), (1, 1, 16), (0xFFFFFFFF, 1, 16), (16000, 0, 16),
                                 (16000, 65535, 16), (16000, 1, 0), (16000, 1, 255)):
        lie = file[:]
        lie[22:28] = struct.pack("<HI", channels, rate)
        lie[34:36] = struct.pack("<H", bits)
        answer = send(ear, form(bytes(lie)))
        assert answer.status == 400, answer
        assert answer.json["error"]["param"] == "file"
    settled(ear)


def table_of(name, entries, told=None, head=b""):
    body = bytes(4) + head + struct.pack(">I", len(entries) if told is None else told)
    body += b"".join(entries)
    return struct.pack(">I", 8 + len(body)) + name + body


def with_tables(file, **tables):
    """An MP4 with other tables, whose boxes around them have the sizes that follow."""
    out, at = b"", 0
    while at < len(file):
        size, name = struct.unpack(">I4s", file[at:at + 8])
        box, at = file[at + 8:at + size], at + size
        if name in (b"moov", b"trak", b"mdia", b"minf", b"stbl"):
            box = with_tables(box, **tables)
        if name.decode("latin-1") in tables:
            out += tables[name.decode("latin-1")]
        else:
            out += struct.pack(">I4s", len(box) + 8, name) + box
    return out


def test_tables_of_mp4_that_lie_cost_their_bytes(ear):
    """Cut anywhere; tables longer than their box, places outside of the file, and a frame that
    millions of entries name."""
    expected = honest(ear)
    file = base64.b64decode(ROWS["mp4-16000-1"]["file"])
    assert send(ear, form(file)).status == 200 and with_tables(file) == file
    for length in range(1, len(file), 1 + len(file) // 20):
        assert send(ear, form(file[:length])).status in (200, 400)
    one, many = struct.pack(">I", 48), [struct.pack(">I", 48)] * 500000
    run = [struct.pack(">III", 1, 1, 1)]
    for tables in ({"stsz": table_of(b"stsz", [], 2 ** 32 - 1, struct.pack(">I", 1))},
                   {"stsz": table_of(b"stsz", [bytes(4)] * 500000, 2 ** 32 - 1, bytes(4))},
                   {"stsz": table_of(b"stsz", many, None, bytes(4)), "stsc": table_of(b"stsc", run),
                    "stco": table_of(b"stco", many)},
                   {"stsc": table_of(b"stsc", [struct.pack(">III", 1, 2 ** 32 - 1, 1)])},
                   {"stsc": table_of(b"stsc", [struct.pack(">III", 1, 0, 1)] * 1000)},
                   {"stsc": table_of(b"stsc", run, 2 ** 32 - 1)},
                   {"stco": table_of(b"stco", [struct.pack(">I", 2 ** 32 - 1)])},
                   {"stco": table_of(b"co64", [struct.pack(">Q", 2 ** 64 - 1)])},
                   {"stco": table_of(b"stco", [one], 2 ** 32 - 1)},
                   {"stco": b""}, {"stsz": b""}, {"stsc": b""}, {"stsd": b""}, {"mdhd": b""},
                   {"moov": b"\0\0\0\1moov" + struct.pack(">Q", 2 ** 64 - 1)}):
        answer = send(ear, form(with_tables(file, **tables)))
        assert answer.status in (200, 400), answer
        assert "its decoder failed" not in answer.body.decode("latin-1"), answer
    assert honest(ear) == expected
    settled(ear)


def test_a_file_that_becomes_hours_is_refused_by_its_seconds(ear):
    """61 s at the least rate in few bytes; the limit is 60."""
    for seconds, status in ((60, 200), (61, 400)):
        answer = send(ear, form(hearing.wav_of(bytes([128]) * 8000 * seconds, 8000, 1, 8)))
        assert answer.status == status, answer
    assert "60 s" in answer.json["error"]["message"]
    settled(ear)


def test_forms_without_an_end_do_not_stay(ear):
    head = (b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
            + ATTACKER.encode() + b"\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            b"Content-Length: 1000000\r\n\r\n")
    sockets = []
    for _ in range(20):
        one = socket.create_connection(("127.0.0.1", ear.port))
        one.sendall(head + b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + bytes(
            5000))
        sockets.append(one)
    assert honest(ear)
    for one in sockets:
        one.close()
    settled(ear)


@pytest.mark.parametrize("body", [
    b"", b"--b", b"--b--", b"--b\r\n\r\n--b--\r\n", b"--b\r\n" * 2000,
    form(b"") + b"more", b"--b\r\nContent-Disposition: form-data\r\n\r\na\r\n--b--\r\n",
    b"".join(b'--b\r\nContent-Disposition: form-data; name="f%d"\r\n\r\n\r\n' % i
             for i in range(17)) + b"--b--\r\n",
    b'--b\r\nContent-Disposition: form-data; name="' + b"n" * 300 + b'"\r\n\r\n\r\n--b--\r\n',
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a\0b"\r\n\r\n\r\n--b--\r\n'])
def test_odd_forms_are_refused(ear, body):
    answer = send(ear, body)
    assert answer.status == 400, answer
    settled(ear)


def part(name, value, *more, file=None):
    named = f'; filename="{file}"' if file else ""
    head = (f'--b\r\nContent-Disposition: form-data; name="{name}"{named}\r\n'
            + "".join(f"{line}\r\n" for line in more))
    return head.encode() + b"\r\n" + value + b"\r\n"


SOUND = hearing.wav(0.5)
FILE, COLD, END = part("file", SOUND, file="a"), part("temperature", b"0.00001"), b"--b--\r\n"


@pytest.mark.parametrize("kind", [
    "multipart/form-data", "multipart/form-data; boundary=", 'multipart/form-data; boundary=""',
    "multipart/form-data; boundary=" + "b" * 71, 'multipart/form-data; boundary="b',
    "multipart/form-data; charset=utf-8", "multipart/form-data; boundary=bb",
    "multipart/mixed; boundary=b", "multipart/form-datab; boundary=b", "application/json",
    "application/x-www-form-urlencoded", ""])
def test_types_without_the_boundary_of_the_body_are_refused(ear, kind):
    assert send(ear, COLD + FILE + END).status == 200
    answer = send(ear, COLD + FILE + END, kind=kind)
    assert answer.status in (400, 415), answer
    settled(ear)


def test_heads_of_parts_have_a_bound(ear):
    """4,096 bytes with the empty line behind them; one more is refused, and so is a head without an
    end in a body of a MiB."""
    rest = len(part("file", b"", "Content-Type: ", file="a")) - len(b"--b\r\n\r\n")
    for more, status in ((-1, 200), (0, 200), (1, 400)):
        kind = "Content-Type: " + "a" * (4096 - rest + more)
        answer = send(ear, COLD + part("file", SOUND, kind, file="a") + END)
        assert answer.status == status, (more, answer)
    assert "4,096" in answer.json["error"]["message"]
    for head in (b"a" * 1000000, b"Content-Type: a\r\n" * 60000, b"\r" * 1000000):
        assert send(ear, b"--b\r\n" + head).status == 400
    settled(ear)


NESTED = b'--c\r\nContent-Disposition: file; filename="a"\r\n\r\n' + SOUND + b"\r\n--c--\r\n"


@pytest.mark.parametrize("body, words", [
    (COLD + FILE + FILE + END, "twice"),
    (COLD + FILE + part("file", b"text") + END, "twice"),
    (COLD + FILE + part("file2", SOUND, file="b") + END, "no other is read"),
    (COLD + FILE + part("file[]", SOUND, file="b") + END, "no other is read"),
    (COLD + part("file", SOUND) + END, "file"),
    (COLD + part("file", NESTED, "Content-Type: multipart/mixed; boundary=c", file="a") + END,
     "no sound"),
    (COLD + part("file", SOUND, "Content-Transfer-Encoding: base64", file="a") + END,
     "only Content-Disposition"),
    (COLD + part("file", SOUND + b"\r\n--bcd", file="a") + END, "boundary"),
    (b"preamble\r\n" + COLD + FILE + END, "begins with no boundary"),
    (COLD + FILE + END + b"epilogue", "last boundary"),
    ((COLD + FILE + END).replace(b"\r\n", b"\n"), "boundary"),
    (COLD + FILE + b"--b", "end"), (COLD + FILE, "end"), (COLD + FILE[:-2], "end"),
    (COLD + FILE[:300], "end"), (COLD + FILE.replace(b"file\"", b"file", 1) + END, "name"),
    (COLD + FILE.replace(b"form-data", b"attachment", 1) + END, "form-data"),
    (COLD + FILE.replace(b'name="file"', b'name="file"; name="model"', 1) + END, ""),
    (COLD + FILE.replace(b"\r\n\r\n", b"\r\nContent-Disposition: form-data; name=b\r\n\r\n", 1)
     + END, "one name")])
def test_forms_of_odd_parts_are_refused_by_name(ear, body, words):
    answer = send(ear, body)
    assert answer.status == 400 or not words and answer.status == 200, answer
    assert answer.status == 200 or words in answer.json["error"]["message"], answer
    settled(ear)


def raw(server, length, body, shut=False):
    """What comes back of a body that says another length than it has."""
    head = (f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ATTACKER}"
            f"\r\nContent-Type: {FORM}\r\nContent-Length: {length}\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as one:
        one.sendall(head + body)
        if shut:
            one.shutdown(socket.SHUT_WR)
        return one.recv(65536)


def test_lengths_of_bodies_that_lie_cost_their_connection(ear):
    body, expected = COLD + FILE + END, honest(ear)
    for less in (1, 8, len(END), len(FILE), len(body) - 1):
        assert raw(ear, len(body) - less, body).startswith(b"HTTP/1.1 400"), less
    for more in (1, 100, 100000):
        assert b" 200 " not in raw(ear, len(body) + more, body, shut=True)[:16], more
    assert raw(ear, 2 ** 63, body).split(b" ")[1] in (b"400", b"413")
    assert raw(ear, -1, body).split(b" ")[1] == b"400"
    assert raw(ear, len(body), body).startswith(b"HTTP/1.1 200")
    assert honest(ear) == expected
    settled(ear)


def test_a_client_that_leaves_costs_no_window(ear):
    expected = honest(ear)
    body = form(hearing.wav_of(bytes(16000 * 2 * 55)))
    head = (f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {ATTACKER}"
            "\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: "
            f"{len(body)}\r\n\r\n").encode()
    for delay in (0, 0.01, 0.05, 0.2):
        with socket.create_connection(("127.0.0.1", ear.port)) as one:
            one.sendall(head + body)
            time.sleep(delay)
    assert honest(ear) == expected
    settled(ear)


def test_a_keeper_that_dies_is_named(request, tmp_path):
    server = Server(request.config.getoption("--inferd"), hearing.make(tmp_path / "m",
                    encoder_layers=1, decoder_layers=1, d_model=16, encoder_attention_heads=1,
                    decoder_attention_heads=1))
    assert send(server, form(hearing.wav(0.5))).status == 200
    keeper = keeper_of(server)
    assert Path(f"/proc/{keeper}/comm").read_text().strip() == "inferd-sounds"
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{keeper}").exists()
               or "Z" in Path(f"/proc/{keeper}/stat").read_text().rsplit(")", 1)[1],
               "the keeper to be gone")
    answer = send(server, form(hearing.wav(0.5)))
    assert answer.status == 503 and "is gone" in answer.json["error"]["message"], answer
    assert server.stop() == 0, server.log()


# Two hours, or less with a sanitizer. Steps that the engine plans between the arrival of another
# client's file and its first token: while the encoder reads it, those of the long file go on. The
# encoder works in slices of time, so where all is slower there are as many more of them.
HOURS, AT_ONCE, STEPS_MOST = 2 * 3600 if SLOWNESS == 1 else 3600, 16, 40 * SLOWNESS


@pytest.fixture(scope="module")
def journal(tmp_path_factory):
    return tmp_path_factory.mktemp("journal") / "steps"


@pytest.fixture(scope="module")
def hall(request, keys, tmp_path_factory, journal):
    """It takes two hours of sound, and has more seats than a file has windows at once."""
    model = hearing.make(tmp_path_factory.mktemp("hall") / "model", talks=True, encoder_layers=1,
                         decoder_layers=1, d_model=16, encoder_attention_heads=1,
                         decoder_attention_heads=1, decoder_ffn_dim=16)
    server = Server(request.config.getoption("--inferd"), model, "--api-key-file", keys,
                    "--metrics-auth", "off", "--max-audio-bytes", "60MiB", "--max-request-memory",
                    "2GiB", "--max-num-seqs", 32, "--journal", journal, key=HONEST)
    yield server
    assert server.stop() == 0, server.log()


def runs(server):
    return server.metric("inferd_encoder_runs_total")


def at_once(server):
    return server.metric("inferd_requests_running") + server.metric("inferd_requests_waiting")


def test_two_hours_keep_nobody_waiting(inferd, hall, journal):
    """Beside a file of two hours that is streamed: another client's files begin within few steps,
    and the long one never has more than its windows at once in the engine."""
    expected = [send(hall, form(hearing.wav(0.5, i)), HONEST).json["text"] for i in range(5)]
    windows = hall.metric("inferd_audio_windows_total")
    file = audio_of(HOURS, 1)
    begun = runs(hall)
    crowd = Listens(hall, file)
    assert crowd.begun.wait(300) and crowd.failure is None, crowd.failure
    windows = hall.metric("inferd_audio_windows_total") - windows
    assert HOURS / 30 <= windows <= HOURS / 29 + 1
    assert runs(hall) - begun < windows, "text comes before all of the file was heard"
    for i, text in enumerate(expected):
        answer = send(hall, form(hearing.wav(0.5, i)), HONEST, f"honest-{i}")
        assert answer.status == 200 and answer.json["text"] == text, answer
        assert at_once(hall) <= AT_ONCE
    assert crowd.is_alive(), "it was there all the time"
    passed = steps_of_chats(inferd, journal, [f"honest-{i}" for i in range(5)])
    assert all(in_engine <= STEPS_MOST for _, in_engine in passed.values()), passed
    crowd.join(600)
    assert crowd.failure is None, crowd.failure
    assert crowd.events[-1]["type"] == "transcript.text.done"
    assert crowd.events[-1]["usage"]["seconds"] == HOURS
    assert "".join(e["delta"] for e in crowd.events[:-1]).strip() == crowd.events[-1]["text"]
    whole = send(hall, form(file, response_format="verbose_json"))
    assert whole.status == 200, whole
    assert whole.json["duration"] == HOURS
    seeks = sorted({segment["seek"] for segment in whole.json["segments"]})
    assert [segment["seek"] for segment in whole.json["segments"]] == sorted(
        segment["seek"] for segment in whole.json["segments"]) and len(seeks) > windows / 2
    settled(hall)


def test_who_leaves_takes_two_hours_along(hall):
    before = runs(hall)
    crowd = Listens(hall, audio_of(HOURS, 2))
    assert crowd.begun.wait(300) and crowd.failure is None, crowd.failure
    crowd.connection.sock.shutdown(socket.SHUT_RDWR)
    settled(hall)
    assert runs(hall) - before < HOURS / 30, "windows that nobody waits for are not heard"
    crowd.join(60)
