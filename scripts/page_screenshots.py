#!/usr/bin/env python3
"""Makes the pictures of the web page in docs/images: six states at two widths.

    make && build/venv/bin/python scripts/page_screenshots.py [--build build] [--out docs/images]

Needs what the tests of the page need, and the font Inter (fonts-inter): the page asks for the font
of the system, which on a server is one for terminals. Pictures are cut down to 64 colours. Look at
them before they are committed.
"""

import argparse
import json
import os
import struct
import sys
import tempfile
import threading
import zlib
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("page", "api", "clients")]

from browser import Browser  # noqa: E402  pylint: disable=wrong-import-position
from harness import DEMO, Server  # noqa: E402  pylint: disable=wrong-import-position
from scripted import scripted_model  # noqa: E402  pylint: disable=wrong-import-position

SIZES = {"wide": (1180, 740), "phone": (390, 760)}
COLOURS = 64
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><include>/etc/fonts/fonts.conf</include>
<match target="pattern"><test qual="any" name="family"><string>sans-serif</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
<match target="pattern"><test qual="any" name="family"><string>DejaVu Sans</string></test>
<edit name="family" mode="assign" binding="strong"><string>Inter</string></edit></match>
</fontconfig>"""
THOUGHT = "The question is about today's weather, which I cannot know.\nThere is a tool for it."
CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
RAIN = "It is 14 degrees and raining in Paris. Take an umbrella."
ANSWERS = [("messages[-1]['role'] == 'tool'", RAIN),
           ("tools", f"<think>\n{THOUGHT}\n</think>\n\n<tool_call>\n{CALL}\n</tool_call>")]
ENDED = "document.body.dataset.running === 'no' && !!document.querySelector('.again')"


def unfilter(raw, stride):
    """The rows of a PNG of three or four bytes a pixel (https://www.w3.org/TR/png/#9Filters)."""
    bpp, (row_bytes, height) = stride
    before = bytearray(row_bytes)
    for y in range(height):
        kind, row = raw[y * (row_bytes + 1)], bytearray(raw[y * (row_bytes + 1) + 1:
                                                            (y + 1) * (row_bytes + 1)])
        for x in range(row_bytes):
            left = row[x - bpp] if x >= bpp else 0
            up, corner = before[x], before[x - bpp] if x >= bpp else 0
            if kind == 1:
                row[x] = (row[x] + left) & 255
            elif kind == 2:
                row[x] = (row[x] + up) & 255
            elif kind == 3:
                row[x] = (row[x] + (left + up) // 2) & 255
            elif kind == 4:
                guess = left + up - corner
                away = [abs(guess - near) for near in (left, up, corner)]
                row[x] = (row[x] + (left, up, corner)[away.index(min(away))]) & 255
        yield row
        before = row


def chunk(kind, data):
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def smaller(png):
    """The same picture with a palette of its most frequent colours."""
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", png[at + 8:at + 18])
        elif kind == b"IDAT":
            data += png[at + 8:at + 8 + size]
        at += size + 12
    bpp = {2: 3, 6: 4}[colour]
    rows = [[tuple(row[x:x + 3]) for x in range(0, len(row), bpp)]
            for row in unfilter(zlib.decompress(data), (bpp, (width * bpp, height)))]
    counts = Counter(pixel for row in rows for pixel in row)
    # Frequent colours that are far enough from each other; then all others go to the nearest.
    palette = []
    for apart in (18, 8, 0):
        for pixel, _ in counts.most_common():
            if len(palette) == COLOURS:
                break
            if all(distance(pixel, other) > apart for other in palette):
                palette.append(pixel)
    nearest = {pixel: min((distance(near, pixel), i) for i, near in enumerate(palette))[1]
               for pixel in counts}
    packed = b"".join(b"\0" + bytes(nearest[pixel] for pixel in row) for row in rows)
    return (png[:8] + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
            + chunk(b"PLTE", b"".join(map(bytes, palette)))
            + chunk(b"IDAT", zlib.compress(packed, 9)) + chunk(b"IEND", b""))


def distance(left, right):
    return max(abs(a - b) for a, b in zip(left, right))


class Loading(BaseHTTPRequestHandler):
    """A server whose model is still being read: the page of the real one, and this one's state."""

    page = {}

    def do_GET(self):  # pylint: disable=invalid-name
        if self.path == "/":
            status, kind, body = 200, "text/html; charset=utf-8", self.page["body"]
        elif self.path == "/metrics":
            status, kind, body = 200, "text/plain", b"inferd_requests_running 0\n"
        else:
            status, kind = 503, "application/json"
            body = json.dumps({"status": "loading", "progress": 0.43, "eta_s": 21}).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def chat(page):
    page.js("document.getElementById('f-seed').value = 5")
    page.click("#chips button:nth-child(1)")
    page.wait(ENDED)
    page.type("#chat-input", "What is 2 plus 3?")
    page.press("Enter")
    page.wait("document.querySelectorAll('.turn').length === 4 && " + ENDED)


def tools(page):
    page.click("#chips button:nth-child(4)")
    page.wait(ENDED)
    page.click(".reasoning summary")
    page.type(".call input", "14 degrees, rain")
    page.press("Enter")
    page.wait("document.querySelectorAll('.turn.assistant').length === 2 && " + ENDED)
    page.js("scrollTo(0, 0)")


def completion(page):
    page.js("for (const [id, value] of [['seed', 7], ['temperature', 1]])"
            " document.getElementById('f-' + id).value = value")
    page.click("#tab-completion")
    page.click("#text-send")
    page.wait("document.querySelectorAll('[data-at]').length > 90 && "
              "document.body.dataset.running === 'no'")
    page.hover("[data-at='{}']".format(page.js(  # a surprising one
        "[...document.querySelectorAll('[data-at]')].find((token) => token.dataset.at > 25 &&"
        " token.style.getPropertyValue('--p') < 0.3).dataset.at")))


def key(page):
    page.wait_text("#key-said", "You didn't provide")
    page.type("#key", "not this one")
    page.press("Enter")
    page.wait_text("#key-said", "Incorrect")


def loading(page):
    page.wait_text("#status", "loading")
    page.wait("document.getElementById('load-bar').value > 0.4")


def schema(page):
    page.click("#chips button:nth-child(3)")
    page.wait(ENDED)
    page.js("document.getElementById('side').scrollTo(0, 1e6)")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default=ROOT / "docs/images", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    program = f"{options.build}/inferd"
    with tempfile.TemporaryDirectory() as directory:
        fonts = Path(directory) / "fonts.conf"
        fonts.write_text(FONTS)
        os.environ["FONTCONFIG_FILE"] = str(fonts)
        demo = Server(program, DEMO, "--served-model-name", "demo")
        keyed = Server(program, DEMO, "--served-model-name", "demo", "--api-key", "secret")
        model = scripted_model(Path(directory) / "model", ANSWERS)
        scripted = Server(program, model, "--reasoning-parser", "qwen3", "--served-model-name",
                          "demo", "--max-model-len", 8192)
        Loading.page["body"] = demo.get("/").body
        slow = ThreadingHTTPServer(("127.0.0.1", 0), Loading)
        threading.Thread(target=slow.serve_forever, daemon=True).start()
        states = [("chat", chat, demo.port, False), ("tools", tools, scripted.port, True),
                  ("completion", completion, demo.port, False), ("key", key, keyed.port, True),
                  ("loading", loading, slow.server_port, False),
                  ("schema", schema, demo.port, True)]
        browser = Browser()
        try:
            for name, act, port, dark in states:
                for size, (width, height) in SIZES.items():
                    page = browser.page(width, height, dark)
                    page.open(f"http://127.0.0.1:{port}/")
                    if name not in ("key", "loading"):
                        page.wait_text("#status", "ready")
                        page.wait("document.title.includes('demo')")
                    act(page)
                    if name not in ("key", "loading"):
                        page.wait("document.getElementById('s-rate').textContent !== '–'")
                    picture = smaller(page.screenshot())
                    (options.out / f"page-{name}-{size}.png").write_bytes(picture)
                    print(f"page-{name}-{size}.png: {len(picture)} bytes", flush=True)
                    page.close()
        finally:
            browser.close()
            for server in (demo, keyed, scripted):
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
