"""Image files of every kind that people have, each with what is to be seen in it; packed ones.

Record files are made byte by byte and not by the code under test, whole and broken.
"""

import io
import struct
import zlib
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
    deep = GRAY.astype("<u2")
    gif = indexed.quantize(64)
    gif_colours = np.asarray(gif.convert("RGB"))
    losses = {"PNG": 0, "BMP": 0, "TIFF": 0, "JPEG": 12, "WEBP": 22, "AVIF": 20}
    kinds = {
        f"{form} RGB": Kind(encoded(PHOTO, form), PHOTO, loss) for form, loss in losses.items()
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
        "TIFF pages": Kind(encoded(PHOTO, "TIFF", **with_another()), PHOTO, 0),
        "PNG animation": Kind(encoded(PHOTO, "PNG", **with_another()), PHOTO, 0),
        "GIF animation": Kind(encoded(gif, "GIF", **with_another()), gif_colours, 0),
        "WEBP animation": Kind(encoded(PHOTO, "WEBP", lossless=True, **with_another()), PHOTO, 0),
        "AVIF animation": Kind(encoded(PHOTO, "AVIF", quality=100, **with_another()), PHOTO, 12),
        "PNG 16 bits": Kind(encoded(deep * 257, "PNG"), gray, 1),
        "PNG 12 of 16 bits": Kind(encoded(deep * 16, "PNG"), gray, 0),
        "PNG 10 of 16 bits": Kind(encoded(deep * 4, "PNG"), gray, 0),
        "PNG 8 of 16 bits": Kind(encoded(deep, "PNG"), gray, 0),
        "TIFF 16 bits": Kind(encoded(deep * 257, "TIFF"), gray, 1),
        "TIFF 12 of 16 bits": Kind(encoded(deep * 16, "TIFF"), gray, 0),
    }


KINDS = make_kinds()


def record_file(records: Sequence[bytes]) -> bytes:
    """Return a whole file of these records."""
    offset, offsets = 12 + 12 * len(records), []
    for record in records:
        offsets.append(offset)
        offset += len(record)
    return header([zlib.crc32(record) for record in records], offsets) + b"".join(records)


def header(checksums: Sequence[int], offsets: Sequence[int], number: int | None = None) -> bytes:
    """Return a header with a right checksum, whatever the header says."""
    body = struct.pack("<q", len(checksums) if number is None else number)
    body += struct.pack(f"<{len(checksums)}I", *checksums)
    body += struct.pack(f"<{len(offsets)}q", *offsets)
    return struct.pack("<I", zlib.crc32(body)) + body


def records_of(content: bytes) -> list[bytes]:
    """Return the records of a whole file, as a reader without our code finds them."""
    (number,) = struct.unpack_from("<q", content, 4)
    offsets = struct.unpack_from(f"<{number}q", content, 12 + 4 * number)
    bounds = [*offsets, len(content)]
    return [content[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]


def index_entry(
    name: bytes, size: tuple[int, int] = (32, 48), labels: bytes = b"", num_labels: int = 0
) -> bytes:
    """Return an entry of an index; num_labels replaces the number of bytes of labels."""
    return struct.pack("<IIiH", *size, num_labels or len(labels), len(name)) + name + labels


def index_record(entries: Sequence[bytes], version: int = 1, number: int | None = None) -> bytes:
    """Return an index with these entries."""
    count = len(entries) if number is None else number
    return b"duet-img" + struct.pack("<II", version, count) + b"".join(entries)


def image_file(*entries: bytes, **changes: int) -> bytes:
    """Return a whole file of a few bytes for each entry, with their index."""
    images = [b"image %d" % number for number in range(len(entries))]
    return record_file([*images, index_record(entries, **changes)])
