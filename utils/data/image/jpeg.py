"""What the header of a JPEG says, and a JPEG that ends after some of its rows.

Before: `image_bytes.read_image_bytes`. After: `images.decode`.

The entropy-coded data takes most of a decoder's time and can only be read from its start. The
height in the header is what makes a decoder go on: with a lower one it stops early.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

_BASELINE, _EXTENDED, _SCAN, _EXIF, _RESTARTS = 0xC0, 0xC1, 0xDA, 0xE1, 0xDD
_END_MARK = b"\xff\xd9"
_EXIF_ORIENTATION = 0x0112
_LARGEST_BLOCK = 32  # rows of a minimum coded unit, at the most
_HEADER_BYTES = 2**18  # colour profiles and previews included; a longer header is not looked into


class JpegHeader(NamedTuple):
    """What decides how a JPEG can be decoded."""

    is_upright: bool  # a decoder does not turn or mirror it
    height_position: int | None  # of the height's two bytes, if rows can be left out
    scan_position: int  # where the header ends, or was left


def read_header(content: np.ndarray) -> JpegHeader | None:
    """The header of a file's bytes (N,) uint8; None if they are no JPEG."""
    header = content[:_HEADER_BYTES].tobytes()
    if header[:3] != b"\xff\xd8\xff":
        return None
    is_upright, num_components, position = True, 0, 2
    height_position: int | None = None
    while position + 10 < len(header) and header[position] == 0xFF:
        marker = header[position + 1]
        length = int.from_bytes(header[position + 2 : position + 4], "big")
        if marker in (_BASELINE, _EXTENDED):
            height_position, num_components = position + 5, header[position + 9]
        elif marker == _EXIF and header[position + 4 : position + 10] == b"Exif\0\0":
            # Of several, OpenCV follows the first: with any that turns, nothing is left out.
            orientation = _orientation(header[position + 10 : position + 2 + length])
            is_upright = is_upright and orientation == 1
        elif marker == _RESTARTS:  # a decoder that stops early warns of the marks it did not expect
            return JpegHeader(is_upright, None, position)
        elif marker == _SCAN:  # else one scan of several, whose rows lie far apart
            whole = is_upright and header[position + 4] == num_components
            return JpegHeader(is_upright, height_position if whole else None, position)
        position += 2 + length
    return JpegHeader(is_upright=False, height_position=None, scan_position=position)


def _orientation(tiff: bytes) -> int:
    """EXIF's orientation, 1 if it has none."""
    order: Literal["little", "big"] = "little" if tiff[:2] == b"II" else "big"
    start = int.from_bytes(tiff[4:8], order)
    for number in range(int.from_bytes(tiff[start : start + 2], order)):
        entry = tiff[start + 2 + 12 * number :][:12]
        if int.from_bytes(entry[:2], order) == _EXIF_ORIENTATION:
            return int.from_bytes(entry[8:10], order)
    return 1


def shorten(content: np.ndarray, header: JpegHeader, rows: int) -> np.ndarray:
    """The JPEG with only its first rows, if it can be; these equal those of the whole.

    Args:
        content: (N,) uint8, left as it is.
        header: of the content.
        rows: how many are needed; some more will be decoded.

    Returns:
        A changed copy, or `content` where no row is left out.
    """
    position = header.height_position
    if position is None:
        return content
    height = int(content[position]) << 8 | int(content[position + 1])
    # One block more: the last rows of a block are interpolated with the next one's colours.
    kept = (rows // _LARGEST_BLOCK + 2) * _LARGEST_BLOCK
    if kept >= height:
        return content
    # Without the end mark: a decoder that meets it warns of the data it did not read.
    end = content.tobytes().find(_END_MARK, header.scan_position)
    shortened = content[: end if end >= 0 else len(content)].copy()
    shortened[position : position + 2] = kept >> 8, kept & 255
    return shortened
