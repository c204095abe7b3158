#!/usr/bin/env python3
"""Writes tests/vectors/picture_files.jsonl: small files of pictures, and what Pillow reads in them.

    scripts/vectors/picture_files.py [OUT]        needs Pillow and numpy

A line has the file in base64, the size of the upright picture, and the CRC of its RGB bytes: those
of the first frame, turned as EXIF says, transparency laid on white. Files that are `refused` are
cut off or damaged.
"""

import base64
import io
import json
import struct
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

WIDTH, HEIGHT = 23, 17
RANDOM = np.random.default_rng(35)


def smooth(channels):
    """Colours that a codec can keep, and some noise."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    planes = [(x * (5 + c) + y * (9 - c)) % 256 for c in range(channels)]
    noise = RANDOM.integers(0, 20, (HEIGHT, WIDTH, channels))
    return np.clip(np.stack(planes, -1) + noise, 0, 255).astype(np.uint8)


def save(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def exif(orientation):
    data = Image.Exif()
    data[274] = orientation
    return data.tobytes()


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width, height, depth, colour, lines, interlaced=0, extra=b""):
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def adam7(pixels):
    lines = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4),
                           (1, 0, 2, 2), (0, 1, 1, 2)):
        part = pixels[y0::dy, x0::dx]
        if part.size:
            lines += b"".join(b"\0" + row.tobytes() for row in part)
    return png(WIDTH, HEIGHT, 8, 2, lines, interlaced=1)


def pngs():
    rgb, rgba = Image.fromarray(smooth(3)), Image.fromarray(smooth(4), "RGBA")
    yield "png-rgb", save(rgb, "PNG")
    yield "png-rgba", save(rgba, "PNG")
    yield "png-grey", save(rgb.convert("L"), "PNG")
    yield "png-grey-alpha", save(rgba.convert("LA"), "PNG")
    yield "png-bit", save(rgb.convert("1"), "PNG")
    for colours in (2, 4, 16, 200):
        yield f"png-palette-{colours}", save(rgb.quantize(colours), "PNG")
    yield "png-palette-clear", save(rgb.quantize(16), "PNG", transparency=3)
    yield "png-palette-alphas", save(rgb.quantize(16), "PNG", transparency=bytes(range(0, 160, 10)))
    grey = np.arange(WIDTH * HEIGHT, dtype=">u2").reshape(HEIGHT, WIDTH) * 3
    yield "png-grey-16", png(WIDTH, HEIGHT, 16, 0, b"".join(b"\0" + g.tobytes() for g in grey))
    wide = RANDOM.integers(0, 65536, (HEIGHT, WIDTH, 4)).astype(">u2")
    yield "png-rgba-16", png(WIDTH, HEIGHT, 16, 6, b"".join(b"\0" + g.tobytes() for g in wide))
    yield "png-rgb-16", png(WIDTH, HEIGHT, 16, 2,
                            b"".join(b"\0" + g.tobytes() for g in wide[..., :3]))
    yield "png-grey-alpha-16", png(WIDTH, HEIGHT, 16, 4,
                                   b"".join(b"\0" + g.tobytes() for g in wide[..., :2]))
    for depth in (2, 4):
        row = RANDOM.integers(0, 256, (HEIGHT, (WIDTH * depth + 7) // 8)).astype(np.uint8)
        yield f"png-grey-{depth}", png(WIDTH, HEIGHT, depth, 0,
                                       b"".join(b"\0" + g.tobytes() for g in row))
    yield "png-adam7", adam7(smooth(3))
    yield "png-turned", save(rgb, "PNG", exif=exif(6))
    yield "png-gamma", png(WIDTH, HEIGHT, 8, 2, b"".join(b"\0" + g.tobytes() for g in smooth(3)),
                           extra=chunk(b"gAMA", struct.pack(">I", 100000)))
    yield "png-1x1", save(Image.new("RGB", (1, 1), (9, 8, 7)), "PNG")


def jpegs():
    rgb = Image.fromarray(smooth(3))
    for subsampling in (0, 1, 2):
        yield f"jpeg-{subsampling}", save(rgb, "JPEG", subsampling=subsampling, quality=90)
    yield "jpeg-progressive", save(rgb, "JPEG", progressive=True)
    yield "jpeg-grey", save(rgb.convert("L"), "JPEG")
    yield "jpeg-cmyk", save(Image.fromarray(smooth(4), "CMYK"), "JPEG", quality=95)
    yield "jpeg-1x1", save(Image.new("RGB", (1, 1), (9, 8, 7)), "JPEG")
    for orientation in range(1, 9):
        yield f"jpeg-turned-{orientation}", save(rgb, "JPEG", exif=exif(orientation))


def webps():
    rgb, rgba = Image.fromarray(smooth(3)), Image.fromarray(smooth(4), "RGBA")
    yield "webp", save(rgb, "WEBP", quality=80)
    yield "webp-lossless", save(rgb, "WEBP", lossless=True)
    yield "webp-alpha", save(rgba, "WEBP", lossless=True, exact=True)
    yield "webp-lossy-alpha", save(rgba, "WEBP", quality=80)
    yield "webp-turned", save(rgb, "WEBP", lossless=True, exif=exif(8))
    yield "webp-frames", save(rgba, "WEBP", save_all=True, lossless=True,
                              append_images=[rgb.convert("RGBA")], duration=100)


def gifs():
    rgb = Image.fromarray(smooth(3))
    for colours in (2, 3, 16, 256):
        yield f"gif-{colours}", save(rgb.quantize(colours), "GIF")
    yield "gif-interlaced", save(rgb.quantize(64), "GIF", interlace=1)
    yield "gif-clear", save(rgb.quantize(16), "GIF", transparency=5)
    yield "gif-frames", save(rgb.quantize(16), "GIF", save_all=True,
                             append_images=[rgb.quantize(4)], duration=50)
    noise = Image.fromarray(RANDOM.integers(0, 256, (90, 120)).astype(np.uint8))
    yield "gif-long", save(noise, "GIF")  # the dictionary fills
    flat = bytearray(save(rgb.quantize(16), "GIF"))
    flat[6:10] = struct.pack("<HH", WIDTH + 5, HEIGHT + 3)
    yield "gif-screen", bytes(flat)
    clear = bytearray(save(rgb.quantize(16), "GIF", transparency=5))
    clear[6:10] = struct.pack("<HH", WIDTH + 5, HEIGHT + 3)
    yield "gif-screen-clear", bytes(clear)


def bmps():
    rgb = Image.fromarray(smooth(3))
    for mode in ("RGB", "L", "P"):
        yield f"bmp-{mode}", save(rgb.convert(mode), "BMP")
    yield "bmp-few", save(rgb.quantize(100), "BMP")
    down = bytearray(save(rgb, "BMP"))
    down[22:26] = struct.pack("<i", -HEIGHT)
    yield "bmp-top-down", bytes(down)
    pixels = np.dstack([smooth(3), np.full((HEIGHT, WIDTH), 7, np.uint8)])
    plain = struct.pack("<2sIHHI", b"BM", 54 + pixels.nbytes, 0, 0, 54) + struct.pack(
        "<IiiHHIIiiII", 40, WIDTH, HEIGHT, 1, 32, 0, 0, 0, 0, 0, 0)
    yield "bmp-32", plain + pixels.tobytes()
    masks = struct.pack("<2sIHHI", b"BM", 122 + pixels.nbytes, 0, 0, 122) + struct.pack(
        "<IiiHHIIiiII4I52x", 108, WIDTH, HEIGHT, 1, 32, 3, 0, 0, 0, 0, 0, 0xFF0000, 0xFF00, 0xFF,
        0xFF000000)
    yield "bmp-alpha", masks + pixels.tobytes()


def damaged():
    whole = dict([*pngs(), *jpegs(), *webps(), *gifs(), *bmps()])
    for name in ("png-rgb", "png-adam7", "jpeg-0", "jpeg-progressive", "webp", "webp-lossless",
                 "gif-16", "bmp-RGB", "bmp-P"):
        for part in (2, 10):
            yield f"{name}-cut-{part}", whole[name][:-max(len(whole[name]) // part, 24)]
    broken = bytearray(whole["png-rgb"])
    broken[60] ^= 1  # the sum of its chunk does not fit
    yield "png-sum", bytes(broken)
    yield "svg", b"<svg xmlns='http://www.w3.org/2000/svg' width='8' height='8'/>" * 2
    yield "png-bomb", png(30000, 30000, 8, 0, b"")
    yield "png-none", png(0, 5, 8, 0, b"")
    packed = bytearray(whole["bmp-P"])
    packed[30] = 1  # run lengths
    yield "bmp-packed", bytes(packed)
    yield "empty", b""


def truth(data):
    image = Image.open(io.BytesIO(data))
    image.load()
    image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGB", image.size, (255, 255, 255))
        white.paste(image, mask=image.getchannel("A"))
        return white
    return image.convert("RGB")


def main():
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "tests/vectors/picture_files.jsonl")
    warnings.simplefilter("ignore")
    lines = []
    for name, data in [*pngs(), *jpegs(), *webps(), *gifs(), *bmps()]:
        image = truth(data)
        lines.append({"name": name, "file": base64.b64encode(data).decode(), "width": image.width,
                      "height": image.height, "crc": zlib.crc32(image.tobytes())})
    for name, data in damaged():
        lines.append({"name": name, "file": base64.b64encode(data).decode(), "refused": True})
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), "ascii")


if __name__ == "__main__":
    main()
