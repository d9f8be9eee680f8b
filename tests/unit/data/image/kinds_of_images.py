"""Image files of every kind that people have, each with what is to be seen in it."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 26, 42
ROWS, COLUMNS = np.mgrid[:HEIGHT, :WIDTH]
# Smooth, with four different corners; gray from 0 to 252 in steps that 4 divides.
PHOTO = np.stack([ROWS * 9, COLUMNS * 6, 255 - ROWS * 4 - COLUMNS * 3], 2).astype(np.uint8)
GRAY = ((ROWS * WIDTH + COLUMNS) % 64 * 4).astype(np.uint8)
GRAY[0, 1] = 252
ALPHA = (COLUMNS * 6).astype(np.uint8)
ALPHA[:, -1] = 255


class Kind(NamedTuple):
    """A file, and what decoding it must give."""

    content: bytes
    seen: np.ndarray  # (H, W, 3) RGB, floats
    tolerance: float  # of one value: what the codec or rounding takes


def encoded(image: Image.Image | np.ndarray, form: str, **options: object) -> bytes:
    """Return an image as a file of this form."""
    file = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(file, form, **options)
    return file.getvalue()


def turned(form: str, orientation: int, image: np.ndarray = PHOTO, **options: object) -> bytes:
    """Return an image stored as it is, with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(image, form, exif=exif, **options)


def tiff(
    samples: np.ndarray | bytes,
    bits: int,
    photometric: int,
    extra_samples: int | None = None,
    order: str = "<",
    big: bool = False,
    tags: Sequence[tuple[int, int]] = (),
) -> bytes:
    """Return an uncompressed TIFF of one strip.

    Args:
        samples: (H, W), (H, W, C), or the bytes of gray rows.
        extra_samples: what the last channel is: 0 unspecified, 1 or 2 alpha.
        tags: more of them, or others, each with one 16-bit number.
    """
    channels = samples.shape[2] if isinstance(samples, np.ndarray) and samples.ndim == 3 else 1
    pixels = samples if isinstance(samples, bytes) else samples.tobytes()
    values = {256: WIDTH, 257: HEIGHT, 258: bits, 259: 1, 262: photometric, 277: channels}
    values |= {278: HEIGHT, **({} if extra_samples is None else {338: extra_samples}), **dict(tags)}
    count, length = ("Q", 20) if big else ("H", 12)
    start = 16 if big else 8
    num_tags = len(values) + 2
    after = start + struct.calcsize(order + count) + num_tags * length + (8 if big else 4)
    long = (16, "Q") if big else (4, "I")
    entries = []
    for tag, value in sorted({**values, 273: after + 8, 279: len(pixels)}.items()):
        if tag == 258 and channels > 1:
            number, form, content = (
                3,
                channels,
                struct.pack(order + "4H", *[bits] * 4)[: 2 * channels],
            )
            if len(content) > (8 if big else 4):
                content = struct.pack(order + long[1], after)
        elif tag in (273, 279):
            number, form, content = long[0], 1, struct.pack(order + long[1], value)
        else:
            number, form, content = 3, 1, struct.pack(order + "H", value)
        head = struct.pack(order + ("HHQ" if big else "HHI"), tag, number, form)
        entries.append(head + content.ljust(8 if big else 4, b"\0"))
    version = struct.pack(order + "HHHQ", 43, 8, 0, 16) if big else struct.pack(order + "HI", 42, 8)
    head = (b"II" if order == "<" else b"MM") + version
    directory = struct.pack(order + count, num_tags) + b"".join(entries) + bytes(8 if big else 4)
    return head + directory + struct.pack(order + "4H", *[bits] * 4) + pixels


def bmp_with_alpha(alpha: np.ndarray) -> bytes:
    """Return a BMP with a mask for alpha, as a header of version 4 has it."""
    pixels = np.dstack([PHOTO[..., ::-1], alpha])[::-1].tobytes()
    sizes = 108, WIDTH, HEIGHT, 1, 32, 3, len(pixels), 0, 0, 0, 0
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    header = struct.pack("<IiiHHIIiiII", *sizes) + masks + b"BGRs" + bytes(48)
    offset = 14 + len(header)
    return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + header + pixels


def cmyk_jpeg(ycck: bool = False, adobe: bool = True) -> tuple[bytes, np.ndarray]:
    """Return a JPEG of four inks as Adobe's programs write it, inverted, and what it shows."""
    inks, black = 255 - PHOTO, 40
    planes = inks
    if ycck:  # the inks are coded as if they were red, green and blue; Pillow inverts all
        planes = 255 - np.asarray(Image.fromarray(inks).convert("YCbCr"))
    image = np.dstack([planes, np.full((HEIGHT, WIDTH), black, np.uint8)])
    content = encoded(Image.fromarray(image, "CMYK"), "JPEG", quality=100, subsampling=0)
    marker = content.index(b"Adobe") - 4
    (length,) = struct.unpack_from(">H", content, marker + 2)
    if ycck:
        transform = marker + 15
        content = content[:transform] + b"\2" + content[transform + 1 :]
    if not adobe:
        content = content[:marker] + content[marker + 2 + length :]
    return content, PHOTO * ((255 - black) / 255)


def packed_12_bits(values: np.ndarray) -> bytes:
    """Return values (H, W) below 4096, two in three bytes."""
    first, second = values.reshape(-1, 2).astype(int).T
    parts = [first >> 4, (first & 15) << 4 | second >> 8, second & 255]
    return np.stack(parts, 1).astype(np.uint8).tobytes()


def over_white(colours: np.ndarray, alpha: np.ndarray = ALPHA) -> np.ndarray:
    opacity = alpha[..., None] / 255
    return as_colours(colours) * opacity + 255 * (1 - opacity)


def as_colours(image: np.ndarray) -> np.ndarray:
    return image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2)


def palette(image: np.ndarray) -> tuple[Image.Image, np.ndarray]:
    """Return an image with a palette, and its colours."""
    converted = Image.fromarray(image).convert("P")
    return converted, np.asarray(converted.convert("RGB"))


def keyed(image: Image.Image, value: object, form: str, seen: np.ndarray) -> Kind:
    """Return a file in which one value, that of the first pixel, stands for transparent."""
    transparent = (seen == seen[0, 0]).all(axis=2)
    shown = np.where(transparent[..., None], 255, seen)
    return Kind(encoded(image, form, transparency=value), shown, 0)


def with_another() -> dict[str, object]:
    """Return the options that add a second frame or page."""
    return {"save_all": True, "append_images": [Image.new("RGB", (WIDTH, HEIGHT), "red")]}


def make_kinds() -> dict[str, Kind]:
    indexed, indexed_colours = palette(PHOTO)
    first_index = indexed.getpixel((0, 0))
    first_rgb = tuple(PHOTO[0, 0].tolist())
    gray, black = as_colours(GRAY), GRAY > 120
    rgba, la = np.dstack([PHOTO, ALPHA]), np.dstack([GRAY, ALPHA])
    dimmed = np.dstack([np.rint(PHOTO * (ALPHA[..., None] / 255)).astype(np.uint8), ALPHA])
    deep, deep_colours = GRAY.astype("<u2"), PHOTO.astype("<u2")
    gif = indexed.quantize(64)
    gif_colours = np.asarray(gif.convert("RGB"))
    kinds = {
        f"{form} RGB": Kind(encoded(PHOTO, form), PHOTO, loss)
        for form, loss in {
            "PNG": 0,
            "BMP": 0,
            "TIFF": 0,
            "JPEG": 12,
            "WEBP": 22,
            "AVIF": 20,
        }.items()
    }
    kinds |= {
        f"{form} gray": Kind(encoded(GRAY, form), gray, 0) for form in ("PNG", "BMP", "TIFF", "GIF")
    }
    kinds |= {
        f"{form} one bit": Kind(encoded(Image.fromarray(black), form), as_colours(black * 255), 0)
        for form in ("PNG", "BMP", "TIFF", "GIF")
    }
    kinds |= {
        f"{form} palette": Kind(encoded(indexed, form), indexed_colours, 0)
        for form in ("PNG", "BMP", "TIFF", "GIF")
    }
    kinds |= {
        f"{form} alpha": Kind(encoded(rgba, form, **options), over_white(PHOTO), loss)
        for form, options, loss in (
            ("PNG", {}, 1), ("TIFF", {}, 1), ("AVIF", {"quality": 100}, 12),
            ("WEBP", {"lossless": True, "exact": True}, 1),
        )
    }  # fmt: skip
    return kinds | {
        "PNG gray alpha": Kind(encoded(la, "PNG"), over_white(GRAY), 1),
        "TIFF gray alpha": Kind(tiff(la, 8, 1, extra_samples=2), over_white(GRAY), 1),
        "TIFF straight alpha": Kind(tiff(rgba, 8, 2, extra_samples=2), over_white(PHOTO), 1),
        "TIFF premultiplied": Kind(tiff(dimmed, 8, 2, extra_samples=1), over_white(PHOTO), 2),
        "TIFF fourth band": Kind(tiff(rgba, 8, 2, extra_samples=0), PHOTO, 0),
        "BMP alpha": Kind(bmp_with_alpha(ALPHA), over_white(PHOTO), 1),
        "BMP empty alpha": Kind(bmp_with_alpha(ALPHA * 0), PHOTO, 0),
        "PNG empty alpha": Kind(encoded(np.dstack([PHOTO, ALPHA * 0]), "PNG"), PHOTO, 0),
        "PNG opaque alpha": Kind(encoded(np.dstack([PHOTO, ALPHA * 0 + 255]), "PNG"), PHOTO, 0),
        "PNG keyed palette": keyed(indexed, first_index, "PNG", indexed_colours),
        "PNG keyed gray": keyed(Image.fromarray(GRAY), int(GRAY[0, 0]), "PNG", gray),
        "PNG keyed RGB": keyed(Image.fromarray(PHOTO), first_rgb, "PNG", PHOTO),
        "GIF keyed": keyed(gif, gif.getpixel((0, 0)), "GIF", gif_colours),
        "JPEG gray": Kind(encoded(GRAY, "JPEG", quality=100), gray, 4),
        "JPEG CMYK": Kind(*cmyk_jpeg(), 4),
        "JPEG YCCK": Kind(*cmyk_jpeg(ycck=True), 8),
        "JPEG CMYK without a mark": Kind(*cmyk_jpeg(adobe=False), 4),
        "JPEG progressive": Kind(encoded(PHOTO, "JPEG", progressive=True), PHOTO, 12),
        "MPO": Kind(encoded(PHOTO, "MPO", **with_another()), PHOTO, 12),
        "TIFF CMYK": Kind(encoded(Image.fromarray(PHOTO).convert("CMYK"), "TIFF"), PHOTO, 1),
        "TIFF LZW": Kind(encoded(PHOTO, "TIFF", compression="tiff_lzw"), PHOTO, 0),
        "TIFF Deflate": Kind(encoded(PHOTO, "TIFF", compression="tiff_adobe_deflate"), PHOTO, 0),
        "TIFF Zstandard": Kind(encoded(PHOTO, "TIFF", compression="zstd"), PHOTO, 0),
        "TIFF JPEG": Kind(encoded(PHOTO, "TIFF", compression="jpeg"), PHOTO, 12),
        "TIFF white is 0": Kind(tiff(255 - GRAY, 8, 0), gray, 0),
        "TIFF big": Kind(tiff(PHOTO, 8, 2, big=True), PHOTO, 0),
        "TIFF big-endian": Kind(tiff(deep.astype(">u2") * 257, 16, 1, order=">"), gray, 1),
        "TIFF pages": Kind(encoded(PHOTO, "TIFF", **with_another()), PHOTO, 0),
        "PNG animation": Kind(encoded(PHOTO, "PNG", **with_another()), PHOTO, 0),
        "GIF animation": Kind(encoded(gif, "GIF", **with_another()), gif_colours, 0),
        "WEBP animation": Kind(encoded(PHOTO, "WEBP", lossless=True, **with_another()), PHOTO, 0),
        "AVIF animation": Kind(encoded(PHOTO, "AVIF", quality=100, **with_another()), PHOTO, 12),
        "PNG 16 bits": Kind(encoded(deep * 257, "PNG"), gray, 1),
        "PNG 12 of 16 bits": Kind(encoded(deep * 16, "PNG"), gray, 0),
        "PNG 10 of 16 bits": Kind(encoded(deep * 4, "PNG"), gray, 0),
        "PNG 8 of 16 bits": Kind(encoded(deep, "PNG"), gray, 0),
        "TIFF 16 bits": Kind(tiff(deep * 257, 16, 1), gray, 1),
        "TIFF 12 of 16 bits": Kind(tiff(deep * 16, 16, 1), gray, 0),
        "TIFF 12 bits": Kind(tiff(packed_12_bits(deep // 2 * 16), 12, 1), gray // 2, 0),
        "TIFF RGB 16 bits": Kind(tiff(deep_colours * 257, 16, 2), PHOTO, 1),
    }


KINDS = make_kinds()
