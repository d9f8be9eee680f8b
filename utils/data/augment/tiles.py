"""The images of a training sample on their canvas, which is never drawn: each image goes straight
into the training image, through the composed transform.

Only the part of an image that the training image shows is read; a hidden image is not decoded.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import cv2
import numpy as np

from duet.utils.data.augment.geometry import (
    determinant,
    invert,
    multiply,
    warp_corners,
    warp_polygons,
)
from duet.utils.data.image.decoding import Objects, SourceImage, join_objects
from duet.utils.data.image.letterbox import FILL, Letterbox, fit_long_side

NUM_TILES = 4
_MARGIN = 2  # pixels around the part of an image that is seen: bilinear weights reach one
_PHASES, _STEP = 32, 1 / 32
_SMALLEST_SCALE = 1 / 64  # below it, far more pixels precede the view than the image has
_ROUNDING = 1e-6  # far above float64's here, far below a visible part of a pixel


class Canvas(NamedTuple):
    """A square of this side with the places of its images; what lies outside it is not seen."""

    side: int
    tiles: tuple[Letterbox, ...]


def single_canvas(size: tuple[int, int], image_size: int) -> Canvas:
    """Place one image of (height, width) in the middle of a canvas, as large as fits."""
    return Canvas(image_size, (fit_long_side(size, image_size, (image_size, image_size)),))


def mosaic_canvas(
    sizes: Sequence[tuple[int, int]], centre_xy: tuple[int, int], image_size: int
) -> Canvas:
    """Place four images, each with its long side at `image_size`, around a common corner.

    Args:
        sizes: (height, width) of top left, top right, bottom left, bottom right.
        centre_xy: this point on the canvas, pixels.
        image_size: half the side of the canvas.
    """
    side, tiles = 2 * image_size, []
    for position, size in enumerate(sizes):
        tile = fit_long_side(size, image_size, (side, side))
        height, width = tile.resized_size
        left = centre_xy[0] - (width if position in (0, 2) else 0)
        top = centre_xy[1] - (height if position < 2 else 0)
        tiles.append(replace(tile, padding=(top, left)))
    return Canvas(side, tuple(tiles))


def objects_on_canvas(canvas: Canvas, sources: Sequence[SourceImage]) -> Objects:
    """Return the objects of all images of a canvas, cut at its edges."""
    placed = zip(canvas.tiles, sources, strict=True)
    objects = join_objects(*(source.objects.placed(tile) for tile, source in placed))
    if len(canvas.tiles) == 1:  # it lies on its canvas as a whole
        return objects
    boxes, polygons = objects.boxes_xyxy.clip(0, canvas.side), objects.polygons
    if polygons is not None:
        had_points = polygons.num_points > 0
        polygons = warp_polygons(polygons, np.eye(3), (canvas.side, canvas.side))
        # A corner of the box may lie on the canvas, but not the object.
        boxes[had_points & (polygons.num_points == 0)] = 0
    return Objects(objects.class_index, boxes, polygons)


class _Window(NamedTuple):
    """A rectangle of whole pixels, half open; empty when no side is positive."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def is_empty(self) -> bool:
        return self.top >= self.bottom or self.left >= self.right

    def of(self, image: np.ndarray) -> np.ndarray:
        return image[self.top : self.bottom, self.left : self.right]


def draw_tiles(
    canvas: Canvas, sources: Sequence[SourceImage], warp: np.ndarray, output_size: tuple[int, int]
) -> np.ndarray:
    """Return a canvas as seen through a warp (3, 3), (height, width) uint8; grey outside of images.

    Hidden sources are not decoded.
    """
    output = np.full((*output_size, 3), FILL, np.uint8)
    for tile, source in zip(canvas.tiles, sources, strict=True):
        visible = _clip_edges(tile, canvas.side)
        window = _seen_in(output_size, visible, warp)
        if not window.is_empty:
            _draw(output, window, source, visible, _source_to_canvas(tile, source), warp)
    return output


def _clip_edges(tile: Letterbox, side: int) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom of a tile's part on its canvas, canvas pixels."""
    (height, width), (top, left) = tile.resized_size, tile.padding
    return max(left, 0), max(top, 0), min(left + width, side), min(top + height, side)


def _seen_in(
    output_size: tuple[int, int], visible: tuple[int, int, int, int], warp: np.ndarray
) -> _Window:
    """Return the output pixels with centres in a part of the canvas, or a box around them.

    It is exact without rotation and shear: adjacent parts neither overlap nor leave a gap.
    """
    height, width = output_size
    # The centre of pixel 0 has the coordinate 0, its left edge -0.5.
    left, top, right, bottom = visible
    bounds = warp_corners((left - 0.5, top - 0.5, right - 0.5, bottom - 0.5), warp)
    if bounds is None:  # a corner is behind the viewer: no box bounds the visible part
        return _Window(0, height, 0, width)
    left, top, right, bottom = (math.ceil(edge) for edge in bounds)
    return _Window(max(top, 0), min(bottom, height), max(left, 0), min(right, width))


def _source_to_canvas(tile: Letterbox, source: SourceImage) -> np.ndarray:
    """Return (3, 3) from pixel centres of the decoded image to the canvas's."""
    pairs = zip(source.pixel_size, tile.scale, strict=True)
    scale_y, scale_x = (side * factor for side, factor in pairs)
    top, left = tile.padding
    offset_x, offset_y = scale_x / 2 - 0.5 + left, scale_y / 2 - 0.5 + top
    return np.array([[scale_x, 0, offset_x], [0, scale_y, offset_y], [0, 0, 1]])


def _draw(
    output: np.ndarray,
    window: _Window,
    source: SourceImage,
    visible: tuple[int, int, int, int],
    to_canvas: np.ndarray,
    warp: np.ndarray,
) -> None:
    matrix = multiply(warp, to_canvas)
    factor = _shrink_factor(matrix, source.decoded_size)
    seen = _canvas_part(source.decoded_size, visible, to_canvas)
    if _is_affine(matrix):  # else what lies far away on the canvas may be near in the output
        seen = _needed_part(seen, window, matrix, margin=_MARGIN * factor)
    if seen.is_empty:  # thinner than a pixel
        return
    part = seen.of(source.decode())
    if factor > 1:
        part = _shrink(part, factor)
    centre = (factor - 1) / 2  # position of the part's first pixel in the image
    matrix = multiply(matrix, _scale_and_shift(factor, seen.left + centre, seen.top + centre))
    matrix = multiply(_scale_and_shift(1, -window.left, -window.top), matrix)
    into = window.of(output)  # a view, written in place
    if not _resize_into(into, part, matrix):
        _warp_into(into, part, matrix)


def _resize_into(into: np.ndarray, part: np.ndarray, matrix: np.ndarray) -> bool:
    """Scale a part of an image into all of a view of the output, in half the time of a warp.

    `cv2.resize` aligns the edges of its first source and output pixels. So it starts some pixels
    before the view, where edges align within a 32nd of a pixel, the step of `cv2.warpAffine`.
    Return False if they align nowhere, or the matrix does more than scale and shift.
    """
    (scale_x, shear_x, shift_x), (shear_y, scale_y, shift_y), _ = matrix.tolist()
    if shear_x or shear_y or not _is_affine(matrix) or min(scale_x, scale_y) < _SMALLEST_SCALE:
        return False
    columns = _start(scale_x, shift_x, into.shape[1])
    rows = _start(scale_y, shift_y, into.shape[0])
    if columns is None or rows is None:
        return False
    (skipped_x, left, right), (skipped_y, top, bottom) = columns, rows
    height, width = part.shape[:2]
    # What the view does not show is not in the part; outermost pixels are repeated instead.
    part = part[min(max(top, 0), height - 1) : max(bottom, 1)]
    part = part[:, min(max(left, 0), width - 1) : max(right, 1)]
    missing = max(-top, 0), max(bottom - height, 0), max(-left, 0), max(right - width, 0)
    part = cv2.copyMakeBorder(part, *missing, cv2.BORDER_REPLICATE)
    resized = cv2.resize(part, None, fx=scale_x, fy=scale_y, interpolation=cv2.INTER_LINEAR)
    into[:] = resized[skipped_y:, skipped_x:][: into.shape[0], : into.shape[1]]
    return True


def _start(scale: float, shift: float, length: int) -> tuple[int, int, int] | None:
    """Return how many pixels before a view to start, and the source pixels [first, end)."""
    skipped = np.arange(_PHASES)
    first = (-skipped - shift - 0.5) / scale + 0.5
    error = np.abs(first - np.rint(first)) * scale
    best = int(error.argmin())
    if error[best] > _STEP:
        return None
    begin = round(float(first[best]))
    return best, begin, begin + math.ceil((best + length) / scale) + 2


def _warp_into(into: np.ndarray, part: np.ndarray, matrix: np.ndarray) -> None:
    """Warp a part of an image into a view of the output; other pixels stay as they are."""
    # Border pixels are repeated for half a pixel beyond their edges: OpenCV goes on after the last
    # centre, and begins at the first.
    part = cv2.copyMakeBorder(part, 1, 0, 1, 0, cv2.BORDER_REPLICATE)
    matrix = multiply(matrix, _scale_and_shift(1, -1, -1))
    size_wh = into.shape[1], into.shape[0]
    if _is_affine(matrix):
        cv2.warpAffine(part, matrix[:2], size_wh, into, borderMode=cv2.BORDER_TRANSPARENT)
    else:
        cv2.warpPerspective(part, matrix, size_wh, into, borderMode=cv2.BORDER_TRANSPARENT)


def _is_affine(matrix: np.ndarray) -> bool:
    return matrix[2].tolist() == [0, 0, 1]


def _scale_and_shift(scale: float, x: float, y: float) -> np.ndarray:
    return np.array([[scale, 0, x], [0, scale, y], [0, 0, 1]], np.float64)


def _canvas_part(
    size: tuple[int, int], visible: tuple[int, int, int, int], to_canvas: np.ndarray
) -> _Window:
    """Return the pixels of a decoded image that the canvas does not cut off."""
    (scale_x, _, offset_x), (_, scale_y, offset_y), _ = to_canvas.tolist()
    left, right = ((edge - 0.5 - offset_x) / scale_x + 0.5 for edge in visible[0::2])
    top, bottom = ((edge - 0.5 - offset_y) / scale_y + 0.5 for edge in visible[1::2])
    return _Window(
        max(math.floor(top + _ROUNDING), 0),
        min(math.ceil(bottom - _ROUNDING), size[0]),
        max(math.floor(left + _ROUNDING), 0),
        min(math.ceil(right - _ROUNDING), size[1]),
    )


def _needed_part(part: _Window, window: _Window, matrix: np.ndarray, margin: int) -> _Window:
    """Return the pixels of a part that an affine matrix brings into a window of the output."""
    corners = window.left, window.top, window.right - 1, window.bottom - 1
    bounds = warp_corners(corners, invert(matrix))
    assert bounds is not None  # affine
    left, top, right, bottom = bounds
    return _Window(
        max(math.floor(top) - margin, part.top),
        min(math.ceil(bottom) + 1 + margin, part.bottom),
        max(math.floor(left) - margin, part.left),
        min(math.ceil(right) + 1 + margin, part.right),
    )


def _shrink_factor(matrix: np.ndarray, size: tuple[int, int]) -> int:
    """Return the largest of 1, 2, 4, ... that leaves the image no smaller than it is drawn."""
    divisor = abs(matrix[2, 0] * size[1] / 2 + matrix[2, 1] * size[0] / 2 + matrix[2, 2])
    area = abs(determinant(matrix)) / max(divisor, _ROUNDING) ** 3  # area of a pixel at the centre
    factor = 1
    while area * (2 * factor) ** 2 <= 1 + _ROUNDING and 2 * factor <= min(size):
        factor *= 2
    return factor


def _shrink(part: np.ndarray, factor: int) -> np.ndarray:
    """Average over factor x factor pixels; the rest at the right and below is dropped."""
    height, width = (max(side // factor, 1) for side in part.shape[:2])
    whole = part[: height * factor, : width * factor]
    return cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA)
