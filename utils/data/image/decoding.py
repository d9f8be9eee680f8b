"""Image files -> pixels; and the file that a process was reading when it crashed."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import NamedTuple, TypeVar

import cv2
import numpy as np
from PIL import Image

from duet.utils.data.image.header import (
    EXCHANGES_SIDES,
    JPEG_END,
    UPRIGHT,
    BrokenImageError,
    ImageHeader,
    open_image,
    read_header,
    with_end,
)
from duet.utils.data.image.letterbox import Letterbox, reduced_size
from duet.utils.errors import BrokenSourceError
from duet.utils.geometry.boxes import Polygons, join_polygons

# A progressive JPEG has 10 scans or so. Each takes a few bytes and, here, 1.2 ns a pixel.
MIN_SCANS, MAX_SCANNED_PIXELS = 20, 4_000_000_000
_AS_STORED = cv2.IMREAD_IGNORE_ORIENTATION
REDUCTIONS = {
    1: cv2.IMREAD_COLOR | _AS_STORED,
    2: cv2.IMREAD_REDUCED_COLOR_2 | _AS_STORED,
    4: cv2.IMREAD_REDUCED_COLOR_4 | _AS_STORED,
    8: cv2.IMREAD_REDUCED_COLOR_8 | _AS_STORED,
}
_MIRRORS_X, _MIRRORS_Y = (2, 3, 6, 7), (3, 4, 7, 8)
# A matrix (a, b, c, d) takes the point (x, y), y downward, to (a x + c y, b x + d y).
_OF_MATRIX = {
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}
Read = TypeVar("Read")
_WHITE = 255
_ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
_DEEP_MODE = "I;16"
_ROWS = 64  # at a time, for the memory that 16 bits take


class OtherSizeError(BrokenSourceError):
    """The size (height, width) of an image where another is expected."""

    def __init__(self, size: tuple[int, int]):
        super().__init__(size)
        self.size = size


def choose_reduction(size: tuple[int, int], long_side: int) -> int:
    """Return the largest of 1, 2, 4 and 8 that keeps the long side at `long_side` or more."""
    return max(
        reduction for reduction in REDUCTIONS if reduction * long_side <= max(long_side, *size)
    )


def decode_bytes(content: np.ndarray, size: tuple[int, int], reduction: int = 1) -> np.ndarray:
    """Decode an image file, (H, W, 3) uint8 BGR: a JPEG by OpenCV, others by Pillow.

    Args:
        content: (N,) uint8, of the whole file.
        size: (height, width) that the file must have; no other is decoded.
        reduction: 1, 2, 4 or 8 times smaller by averaging; fast for JPEGs.

    Raises:
        OtherSizeError: the header states another size.
        BrokenImageError: it cannot be decoded, or not to the size that its header states.
    """
    header = read_header(io.BytesIO(content.data))
    if header.size != size:
        raise OtherSizeError(header.size)
    if header.may_repeat_scans:
        _check_scans(content, size)
    # In a rotated image, the decoder's averaging blocks may not start at the top left.
    decoded_smaller = header.kind == "JPEG" and header.orientation == UPRIGHT
    try:
        image = _decode(content, header, reduction if decoded_smaller else 1)
        if header.orientation != UPRIGHT:
            image = turned_upright(image, header.orientation)
        if not decoded_smaller:
            image = average_squares(image, reduction)
    except Exception as error:  # Pillow promises no list of what a damaged image raises
        raise BrokenImageError("damaged after its header") from error
    if image.shape[:2] != reduced_size(size, reduction):
        raise BrokenImageError("damaged after its header")
    return image


def _check_scans(content: np.ndarray, size: tuple[int, int]) -> None:
    """Raise BrokenImageError for a JPEG that goes over its pixels more often than any encoder."""
    num_scans = content.tobytes().count(b"\xff\xda")
    if num_scans > max(MIN_SCANS, MAX_SCANNED_PIXELS // (size[0] * size[1])):
        raise BrokenImageError(f"{num_scans} scans over {size[1]}x{size[0]} px")


def _decode(content: np.ndarray, header: ImageHeader, reduction: int) -> np.ndarray:
    """Return the image as it is stored, by Pillow perhaps upright; ValueError if it is damaged."""
    if header.kind != "JPEG":  # OpenCV takes half of its time for those
        image = open_image(header.kind, io.BytesIO(content.data))
        image.load()  # here: its mode may change
        return as_bgr(image)
    if content[-2:].tobytes() != JPEG_END:
        content = np.frombuffer(with_end(content.tobytes()), np.uint8)
    found = cv2.imdecode(content, REDUCTIONS[reduction])
    if found is None:
        raise ValueError("not decoded")
    return found


def average_squares(image: np.ndarray, reduction: int) -> np.ndarray:
    """Average over squares of pixels; the last row and column are repeated to fill the squares."""
    if reduction == 1:
        return image
    bottom, right = -image.shape[0] % reduction, -image.shape[1] % reduction
    image = cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_REPLICATE)
    size_wh = image.shape[1] // reduction, image.shape[0] // reduction
    return cv2.resize(image, size_wh, interpolation=cv2.INTER_AREA)


def as_bgr(image: Image.Image) -> np.ndarray:
    """Return a Pillow image as (H, W, 3) uint8 BGR, over white; any exception if it is damaged."""
    if image.mode.startswith(_DEEP_MODE):
        return cv2.cvtColor(_to_eight_bits(np.asarray(image)), cv2.COLOR_GRAY2BGR)
    # A key for transparency is kept as text in a palette or beside the pixels.
    if image.mode not in _ALPHA_MODES and "transparency" not in image.info:
        return cv2.cvtColor(np.asarray(image.convert("RGB")), cv2.COLOR_RGB2BGR)
    pixels = np.asarray(image if image.mode == "RGBA" else image.convert("RGBA"))
    return over_white(cv2.cvtColor(pixels, cv2.COLOR_RGBA2BGR), pixels[..., 3])


def _to_eight_bits(image: np.ndarray) -> np.ndarray:
    """Return the 8 highest used bits of a uint16 image, uint8.

    An image of 10, 12 or 14 bits is often stored in 16 and would be black: the least even number
    of bits from 8 up that holds the largest value counts.
    """
    used = max(8, int(image.max()).bit_length())
    eight = np.empty(image.shape, np.uint8)
    return np.right_shift(image, used + used % 2 - 8, out=eight, casting="unsafe")


def over_white(colours: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return colours (H, W, 3) uint8 over white, as much as alpha (H, W) uint8 lets through.

    If alpha is 0 everywhere, it is ignored: the colours are returned as they are.
    """
    lowest, highest = int(alpha.min()), int(alpha.max())
    if lowest == _WHITE or highest == 0:
        return colours
    mixed = np.empty_like(colours)
    for first in range(0, len(alpha), _ROWS):
        rows = slice(first, first + _ROWS)
        opacity = alpha[rows, :, None].astype(np.uint16)
        sums = colours[rows] * opacity + (_WHITE * (_WHITE - opacity) + _WHITE // 2)
        mixed[rows] = sums // _WHITE
    return mixed


def turned_upright(image: np.ndarray, orientation: int) -> np.ndarray:
    """Return an image (H, W, 3) turned upright from an EXIF orientation; 1 leaves it as it is."""
    if orientation in EXCHANGES_SIDES:
        image = cv2.transpose(image)
    mirrors_x, mirrors_y = orientation in _MIRRORS_X, orientation in _MIRRORS_Y
    if mirrors_x or mirrors_y:
        image = cv2.flip(image, 0 if not mirrors_x else -1 if mirrors_y else 1)
    return image


def orientation_of_matrix(matrix: Sequence[int]) -> int:
    """Return the EXIF orientation of a video's display matrix, nine numbers row by row.

    Other matrices than the eight, such as turns by 45 degrees, count as upright.
    Source: ISO/IEC 14496-12, "Track header box".
    """
    a, b, _, c, d, *_ = np.sign(matrix).tolist()
    return _OF_MATRIX.get((a, b, c, d), UPRIGHT)


def read_as(path: Path, read: Callable[[], Read]) -> Read:
    """Return `read()`, in a frame that bears the image's name.

    If the process crashes meanwhile, the stack that faulthandler prints names the image.
    """
    # Angle brackets keep tracebacks from reading the image as source code.
    code = _call.__code__.replace(co_filename=f"<image {path}>")
    found: Read = FunctionType(code, {})(read)
    return found


def _call(read: Callable[[], Read]) -> Read:
    return read()


class Objects(NamedTuple):
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64
    polygons: Polygons | None  # float64, of the M objects; None when all are boxes

    def select(self, rows: np.ndarray) -> Objects:
        """Return some of the objects, by index or by a (M,) bool."""
        polygons = None if self.polygons is None else self.polygons.select(rows)
        return Objects(self.class_index[rows], self.boxes_xyxy[rows], polygons)

    def placed(self, place: Letterbox) -> Objects:
        """Return the objects where their image lies in an input or on a canvas, not clipped."""
        polygons = self.polygons
        if polygons is not None:
            polygons = polygons.moved(place.scale[::-1], place.padding[::-1])
        return Objects(self.class_index, place.to_input(self.boxes_xyxy), polygons)

    def mirrored(self, axis: int, side: float) -> Objects:
        """Mirror x, axis 0, or y, axis 1, in an image whose width or height is `side`."""
        boxes = self.boxes_xyxy.copy()
        boxes[:, [axis, axis + 2]] = side - self.boxes_xyxy[:, [axis + 2, axis]]
        polygons = None if self.polygons is None else self.polygons.mirrored(axis, side)
        return Objects(self.class_index, boxes, polygons)


def join_objects(*parts: Objects) -> Objects:
    return Objects(
        np.concatenate([part.class_index for part in parts]),
        np.concatenate([part.boxes_xyxy for part in parts]),
        join_polygons([(part.polygons, len(part.class_index)) for part in parts]),
    )


class LabelledImage(NamedTuple):
    """An image and its boxes, both in the image's own pixels."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64
    polygons: Polygons | None = None  # float64, of the M objects, if any has one

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.image.shape[0], self.image.shape[1]

    @property
    def objects(self) -> Objects:
        return Objects(self.class_index, self.boxes_xyxy, self.polygons)


class SourceImage(NamedTuple):
    """An image that is decoded on request, with its boxes in its own pixels."""

    size: tuple[int, int]  # (height, width) of the file
    objects: Objects  # in pixels of the file
    decoded_size: tuple[int, int]  # (height, width) of what `decode` returns
    decode: Callable[[], np.ndarray]  # returns (H, W, 3) uint8
    reduction: int = 1  # of `decode_bytes`, before it was resized to `decoded_size`

    @property
    def pixel_size(self) -> tuple[float, float]:
        """(height, width) of a decoded pixel in pixels of the file.

        The last row and column may end beyond the file: `reduced_size` rounds up.
        """
        reduced = reduced_size(self.size, self.reduction)
        pairs = zip(reduced, self.decoded_size, strict=True)
        height, width = (side * self.reduction / decoded for side, decoded in pairs)
        return height, width
