"""Kinds of images that OpenCV does not decode and Pillow does: GIF and AVIF.

Before: an open file. After: `image_file.py`. `utils/data/image/header.py` reads all other kinds.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
from PIL import Image
from PIL.AvifImagePlugin import AvifImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile

from utils.data.image.header import BoundedReads, BrokenImageError, exif_orientation
from utils.media.orientation import turned_upright

# Their classes by name, not Image.open, which would try any kind it knows.
_CLASSES: dict[str, type[ImageFile]] = {"GIF": GifImageFile, "AVIF": AvifImageFile}
_START_BYTES = 16


def read_pillow_size(file: BinaryIO) -> tuple[int, int] | None:
    """Return (height, width) in pixels of an image of these kinds as stored, None for all else.

    The file is then at its start again, if the answer is None.

    Raises:
        BrokenImageError: the header is broken.
        OSError: the file cannot be read.
    """
    kind = _recognise(file)
    if kind is None:
        return None
    try:
        image = _CLASSES[kind](BoundedReads(file))  # type: ignore[arg-type]  # it reads and seeks
    except (BrokenImageError, OSError):
        raise
    except Exception as error:  # Pillow promises no list of what a broken header raises
        raise BrokenImageError(f"broken {kind} header: {str(error):.200}") from error
    return image.height, image.width


def decode_with_pillow(file: BinaryIO) -> np.ndarray:
    """Return the first frame of an image of these kinds, (H, W, 3) uint8 RGB, upright.

    Raises:
        BrokenImageError: it is damaged.
    """
    try:
        image = _CLASSES[_recognise(file) or ""](file)  # type: ignore[arg-type]  # as above
        return turned_upright(np.array(image.convert("RGB")), exif_orientation(image))
    except Exception as error:  # as above
        raise BrokenImageError("damaged behind its header") from error


def _recognise(file: BinaryIO) -> str | None:
    start = file.read(_START_BYTES)
    file.seek(0)
    return next((kind for kind in _CLASSES if _starts_as(kind, start)), None)


def _starts_as(kind: str, start: bytes) -> bool:
    _, accepts = Image.OPEN[kind]
    return accepts is not None and accepts(start) is True
