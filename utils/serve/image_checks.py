"""The checks of an image before it is decoded: its kind and its number of pixels.

Before: `uploads.py`. After: the model's worker, which decodes it.
"""

from __future__ import annotations

import io

from utils.data.image.header import BrokenImageError, check_size, read_header
from utils.data.image.kinds import KINDS, START_BYTES, recognise
from utils.serve.failures import RequestError

ACCEPTED = f"accepted: {', '.join(KINDS)}"


def is_quick(image: bytes) -> bool:
    """Whether `checked_size` reads a few hundred bytes, as of nearly all images.

    A PNG may hold compressed text, and the header of other kinds lies anywhere.
    """
    return recognise(image[:START_BYTES]) == "JPEG"


def checked_size(image: bytes, max_pixels: int) -> tuple[int, int]:
    """Return (height, width) of an image file by its header, whatever the client calls it.

    Raises:
        RequestError: 415 for what is no image, 413 for one of too many pixels, 422 for one that is
            broken or too small.
    """
    try:
        header = read_header(io.BytesIO(image))
    except BrokenImageError as error:
        if recognise(image[:START_BYTES]):
            raise bad_image(str(error)) from error
        text = str(error) if "accepted" in str(error) else f"the body is {error}; {ACCEPTED}"
        raise RequestError(415, "unsupported_media_type", text) from error
    height, width = header.size
    try:
        check_size(header.size, max_pixels)
    except BrokenImageError as error:
        if height * width > max_pixels:
            raise RequestError(413, "too_many_pixels", str(error)) from error
        raise bad_image(str(error)) from error
    return height, width


def bad_image(message: str) -> RequestError:
    """Return the error for an image that cannot be used."""
    return RequestError(422, "bad_image", message)
