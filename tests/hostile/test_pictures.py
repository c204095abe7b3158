"""Pictures that try to hurt: many and slow ones beside text, files made to break a decoder, and a
process of decoders that stops or dies. Bounds are counts, so they hold for any speed."""

import json
import os
import random
import signal
import struct
import threading
import zlib
from pathlib import Path

import pytest

import seeing
from conftest import ATTACKER, HONEST
from harness import Server, wait_until
from media_host import MediaHost, trusted

PICTURES = 16


@pytest.fixture(scope="module")
def seer(request, keys, tmp_path_factory):
    """Its tower has few weights, and pictures of up to 10,000 patches."""
    model = seeing.make(tmp_path_factory.mktemp("seeing") / "model", pixels=(64, 160000),
                        text={"max_position_embeddings": 16384})
    host = MediaHost(tmp_path_factory.mktemp("host"))
    host.pages["/a.png"] = seeing.png(30, 20)
    with trusted(host):
        server = Server(request.config.getoption("--inferd"), model, "--api-key-file", keys,
                        "--metrics-auth", "off", "--max-model-len", 16384, "--served-model-name",
                        "seer", "--allowed-media-hosts", host.entry, key=HONEST)
    server.media = host
    yield server
    assert server.stop() == 0, server.log()
    host.close()


def attack(server, *files, **fields):
    content = [{"type": "image_url", "image_url": {"url": seeing.url(file)}} for file in files]
    return server.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": content}], "max_tokens": 1, **fields},
        headers={"Authorization": f"Bearer {ATTACKER}"})


def honest(server):
    answer = server.post("/v1/completions", {"prompt": "words", "max_tokens": 4, "temperature": 0,
                                             "ignore_eos": True})
    assert answer.status == 200, answer
    return answer.json["choices"][0]["text"]


def settled(server):
    wait_until(lambda: server.idle() and server.metric("inferd_request_memory_bytes") == 0,
               "nothing to be left", context=server.usage)


def keeper_of(server):
    """The process that forks decoders."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stat = path.read_text()
        except OSError:
            continue
        if int(stat.rsplit(")", 1)[1].split()[1]) == server.process.pid:
            return int(path.parent.name)
    raise AssertionError("there is no process for pictures")


def test_text_does_not_wait_for_the_pictures_of_others(seer):
    """Four requests of 16 large pictures; answers to others come before the first are through."""
    expected = honest(seer)
    files = [seeing.png(200, 200, i) for i in range(4)]
    crowd = []
    for i in range(4):
        connection = seer.connection()
        content = [{"type": "image_url", "image_url": {"url": seeing.url(
            file[:-12] + struct.pack(">I4sI", 0, b"tEXt", zlib.crc32(b"tEXt")) * (i * 4 + j)
            + file[-12:])}} for j in range(4) for file in files]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json",
                            "Authorization": f"Bearer {ATTACKER}"})
        crowd.append(connection)
    wait_until(lambda: seer.metric("inferd_images_total") >= 1, "the tower to begin")
    for _ in range(5):
        assert honest(seer) == expected
    assert seer.metric("inferd_images_total") < 4 * PICTURES
    for connection in crowd:
        connection.close()
    settled(seer)
    assert seer.metric("inferd_images_total") < 4 * PICTURES


def test_a_small_picture_does_not_wait_for_the_huge_one_of_another(seer):
    """The tower goes on with the large one behind the answer about the small one."""
    done = []
    huge = threading.Thread(target=lambda: done.append(attack(seer, seeing.png(399, 397, 7))))
    begun, seconds = seer.metric("inferd_images_total"), []

    def spent():
        return seer.metric("inferd_image_seconds_total")

    before = spent()
    huge.start()
    wait_until(lambda: seer.metric("inferd_images_total") > begun, "the tower to begin")
    for i in range(3):
        small = seer.post("/v1/chat/completions", {"max_tokens": 1, "messages": [{
            "role": "user", "content": [{"type": "image_url", "image_url": {
                "url": seeing.url(seeing.png(24, 24, i))}}]}]})
        assert small.status == 200, small
        seconds.append(spent() - before)
        assert not done
    huge.join()
    assert done[0].status == 200, done
    assert spent() - before > 1.5 * seconds[-1], seconds


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width, height, data):
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data)
            + chunk(b"IEND", b""))


def test_bombs_and_damaged_files_cost_their_own_request(seer):
    expected, draw = honest(seer), random.Random(35)
    zeros = zlib.compress(bytes(50 * 1000 * 1000), 9)
    for file in (png_of(30000, 30000, zeros), png_of(6000, 6600, zeros), png_of(64, 64, zeros),
                 png_of(0, 5, zeros), png_of(1, 16000, b"")):
        answer = attack(seer, file)
        assert answer.status in (200, 400), answer
    whole = seeing.png(30, 20)
    for _ in range(60):
        file = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            file[draw.randrange(8, len(file))] = draw.randrange(256)
        answer = attack(seer, bytes(file[:draw.randrange(8, len(file) + 1)]))
        assert answer.status in (200, 400), answer
        assert answer.status == 200 or answer.error["param"] == "messages[0].content[0]"
    assert attack(seer, whole).status == 200 and honest(seer) == expected
    settled(seer)


FRAMES = 1_000_000
FIRST = b"\x2c" + struct.pack("<4HB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\0"


def gif_of(frame, count):
    """A canvas of 40 x 30, a frame of one pixel, and so many further ones."""
    head = b"GIF89a" + struct.pack("<2H3B", 40, 30, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return head + FIRST + frame * count + b";"


def test_files_of_many_frames_and_pixels_cost_their_bytes(seer):
    """Frames, whole and without data, behind the one that is read; sizes that stop at the header;
    and a text that draws. All at once, from a client, while another one gets its answers."""
    expected, answers = honest(seer), {}
    many, bare = gif_of(FIRST, FRAMES), gif_of(FIRST[:11] + b"\0", FRAMES)
    seer.media.pages["/frames.gif"] = many
    svg = (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="1000000" '
           b'height="1000000"><image href="file:///etc/passwd"/></svg>')
    files = {"bare": bare, "large": png_of(10000, 10000, zlib.compress(b"")),
             "all": png_of(10000, 10000, zlib.compress(bytes(10000 * 30001), 9)), "svg": svg}
    wanted = {"bare": 200, "large": 400, "all": 400, "svg": 400, "far": 200}
    far = [{"type": "image_url", "image_url": {"url": seer.media.url("/frames.gif")}}]

    def send(name):
        answers[name] = attack(seer, files[name]) if name != "far" else seer.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": far}],
                                     "max_tokens": 1},
            headers={"Authorization": f"Bearer {ATTACKER}"})
    crowd = [threading.Thread(target=send, args=(name,)) for name in wanted]
    for one in crowd:
        one.start()
    for _ in range(5):
        assert honest(seer) == expected
    for one in crowd:
        one.join()
    assert {name: answer.status for name, answer in answers.items()} == wanted, answers
    for name in ("large", "all"):
        assert "10000 x 10000" in answers[name].error["message"], answers[name]
    settled(seer)
    peak = Path(f"/proc/{seer.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
    if os.environ.get("INFERD_TEST_FLAVOUR", "plain") == "plain":
        assert int(peak) < 600 * 1024, f"{peak} KiB at most"


def test_a_slow_host_holds_up_its_own_client_alone(seer):
    """More requests than there are threads and transfers of a client, at pages that never come."""
    host, expected, crowd = seer.media, honest(seer), []
    host.pages.update({f"/silent{i}": host.silent for i in range(12)})
    for i in range(12):
        connection = seer.connection()
        body = {"max_tokens": 1, "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": host.url(f"/silent{i}")}}] * 8}]}
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json",
                            "Authorization": f"Bearer {ATTACKER}"})
        crowd.append(connection)
    wait_until(lambda: sum("/silent" in path for path in host.seen) >= 4, "the crowd's transfers")
    for _ in range(3):
        assert honest(seer) == expected
        answer = seer.post("/v1/chat/completions", {"max_tokens": 1, "messages": [{
            "role": "user", "content": [{"type": "image_url",
                                         "image_url": {"url": host.url("/a.png")}}]}]})
        assert answer.status == 200, answer
        assert sum("/silent" in path for path in host.seen) == 4, "more at once than 4 of a client"
    for connection in crowd:
        connection.close()
    settled(seer)


def test_decoders_that_hang_or_die_stop_pictures_alone(seer):
    keeper, answers = keeper_of(seer), []
    os.kill(keeper, signal.SIGSTOP)
    waits = threading.Thread(target=lambda: answers.append(attack(seer, seeing.png(31, 20))))
    waits.start()
    for _ in range(3):
        honest(seer)
    assert not answers
    os.kill(keeper, signal.SIGCONT)
    waits.join()
    assert answers[0].status == 200, answers
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: ") Z" in Path(f"/proc/{keeper}/stat").read_text(), "its end")
    answer = attack(seer, seeing.png(32, 20))
    assert answer.status == 503 and "reads pictures" in answer.error["message"], answer
    honest(seer)
    settled(seer)
