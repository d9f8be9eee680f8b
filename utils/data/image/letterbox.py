"""Put an image, or a part of it, into the network's input: its place, its boxes and its pixels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from duet.utils.geometry.boxes import clip_boxes


@dataclass(frozen=True)
class Letterbox:
    """The place of an image in a network input; all sizes are (height, width) in pixels."""

    original_size: tuple[int, int]
    resized_size: tuple[int, int]
    padding: tuple[int, int]  # (top, left); an odd remainder goes to the bottom and right
    input_size: tuple[int, int]

    @property
    def scale(self) -> tuple[float, float]:
        """(vertical, horizontal) factor from original to input pixels, exact after rounding."""
        height, width = self.original_size
        return self.resized_size[0] / height, self.resized_size[1] / width

    def to_input(self, boxes_xyxy: np.ndarray) -> np.ndarray:
        """Map (M, 4) boxes from original pixels to input pixels, in the dtype given."""
        scale, offset = self._scale_and_offset(boxes_xyxy.dtype)
        return boxes_xyxy * scale + offset

    def to_original(self, boxes_xyxy: np.ndarray) -> np.ndarray:
        """Map (M, 4) boxes from input pixels to original pixels, clipped, in the dtype given."""
        scale, offset = self._scale_and_offset(boxes_xyxy.dtype)
        return clip_boxes((boxes_xyxy - offset) / scale, self.original_size)

    def _scale_and_offset(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        (scale_y, scale_x), (top, left) = self.scale, self.padding
        scale = np.array([scale_x, scale_y, scale_x, scale_y], dtype)
        return scale, np.array([left, top, left, top], dtype)


def fit_long_side(
    original_size: tuple[int, int], long_side: int, input_size: tuple[int, int]
) -> Letterbox:
    """Centre an image of a dataset in an input that holds it.

    Its long side becomes `long_side`, the other side is rounded up, as in the public YOLOv5's
    training and validation: 349 x 640 becomes 175 x 320.
    """
    longest = max(original_size)
    height, width = (-(-side * long_side // longest) for side in original_size)
    return _centre(original_size, (height, width), input_size)


def fitting_long_side(original_size: tuple[int, int], input_size: tuple[int, int]) -> int:
    """Return the largest long side with which `fit_long_side` puts an image into an input."""
    longest = max(original_size)
    pairs = zip(input_size, original_size, strict=True)
    return max(1, min(longest * inside // side for inside, side in pairs))


def fit_letterbox(original_size: tuple[int, int], input_size: tuple[int, int]) -> Letterbox:
    """Letterbox an image for inference: centred and scaled to fit.

    Sides are rounded to the nearest pixel, as in the public YOLOv5's detection.
    """
    scale = min(input_size[0] / original_size[0], input_size[1] / original_size[1])
    height, width = (max(1, round(side * scale)) for side in original_size)
    return _centre(original_size, (height, width), input_size)


def _centre(
    original_size: tuple[int, int], resized_size: tuple[int, int], input_size: tuple[int, int]
) -> Letterbox:
    top, left = ((whole - side) // 2 for whole, side in zip(input_size, resized_size, strict=True))
    return Letterbox(original_size, resized_size, (top, left), input_size)


def reduced_size(size: tuple[int, int], reduction: int) -> tuple[int, int]:
    """Return (height, width) of an image decoded at a fraction of its size: rounded up."""
    return -(-size[0] // reduction), -(-size[1] // reduction)


Resizing = Callable[[np.ndarray, tuple[int, int]], np.ndarray]  # such as `resize`
FILL = 114  # the grey of the public recipe; trained weights expect it around the image


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an image to (height, width): area averages when it shrinks, else bilinear.

    Bilinear reads four pixels and so aliases below half size; the average does not.
    """
    shrinks = size[0] < image.shape[0] or size[1] < image.shape[1]
    return _resize(image, size, cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)


def resize_linear(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an image to (height, width), bilinearly: the public YOLOv5 does so for detection."""
    return _resize(image, size, cv2.INTER_LINEAR)


def _resize(image: np.ndarray, size: tuple[int, int], interpolation: int) -> np.ndarray:
    if image.shape[:2] == size:
        return image
    return cv2.resize(image, (size[1], size[0]), interpolation=interpolation)


def letterbox(
    image: np.ndarray,
    placement: Letterbox,
    resizing: Resizing = resize,
) -> np.ndarray:
    """Resize and pad an image (H, W, 3) uint8 to `placement.input_size` with grey."""
    canvas = np.full((*placement.input_size, 3), FILL, np.uint8)
    (height, width), (top, left) = placement.resized_size, placement.padding
    canvas[top : top + height, left : left + width] = resizing(image, placement.resized_size)
    return canvas


class Region(NamedTuple):
    """A part of an image, in its pixels."""

    top: int
    left: int
    height: int
    width: int

    def placement(self, output_size: tuple[int, int]) -> Letterbox:
        """Return how this part alone fills an input."""
        return Letterbox((self.height, self.width), output_size, (0, 0), output_size)


def centre_region(size: tuple[int, ...], output_size: tuple[int, int]) -> Region:
    """Return the largest region of the output's aspect ratio in the middle of an image."""
    scale = min(side / wanted for side, wanted in zip(size, output_size, strict=True))
    height, width = (
        min(max(round(wanted * scale), 1), side)
        for side, wanted in zip(size, output_size, strict=True)
    )
    return Region((size[0] - height) // 2, (size[1] - width) // 2, height, width)


def crop(image: np.ndarray, region: Region, output_size: tuple[int, int]) -> np.ndarray:
    """Return a part of an image (H, W, 3) uint8 resized to (height, width).

    Bilinear, even when it shrinks: trained weights of the public YOLOv5 expect it.
    """
    top, left, height, width = region
    part = image[top : top + height, left : left + width]
    return np.ascontiguousarray(resize_linear(part, output_size))


class View(NamedTuple):
    """A part of an image, or all of it."""

    part: np.ndarray  # (h, w, 3) uint8 RGB, as in the image, or already as the network takes it
    placement: Letterbox  # of the part in the network's input
    offset: tuple[int, int] = (0, 0)  # (top, left) of the part in the image

    @property
    def pixels(self) -> np.ndarray:
        """(h, w, 3) uint8 RGB of `placement.input_size`.

        Tiles are resized on request: the many tiles of an image need no memory.
        """
        if self.part.shape[:2] == self.placement.input_size:
            return self.part
        return letterbox(self.part, self.placement, resize_linear)

    @property
    def region_xyxy(self) -> tuple[int, int, int, int]:
        """The part's left, top, right and bottom in the image, pixels."""
        (top, left), (height, width) = self.offset, self.placement.original_size
        return left, top, left + width, top + height


def whole_view(
    image: np.ndarray,
    long_side: int,
    stride: int,
    fixed_size: tuple[int, int] | None = None,
) -> View:
    """Return an image (H, W, 3) with its long side resized to long_side, and the least padding."""
    placement = place(image.shape[:2], long_side, stride, fixed_size)
    return View(letterbox(image, placement, resize_linear), placement)


def centre_view(
    image: np.ndarray,
    image_size: int,
    stride: int,
    fixed_size: tuple[int, int] | None = None,
) -> View:
    """Return the middle of an image: a square of image_size, or fixed_size."""
    output_size = fixed_size or (image_size, image_size)
    region = centre_region(image.shape[:2], output_size)
    pixels = crop(image, region, output_size)
    return View(pixels, region.placement(output_size), (region.top, region.left))


# As `whole_view` and `centre_view`: an image (H, W, 3) uint8 RGB of no dataset, the size of --img,
# the stride whose multiples the network takes, and the only size that it takes, if it takes one.
Viewing = Callable[[np.ndarray, int, int, tuple[int, int] | None], View]


def place(
    size: tuple[int, ...],
    long_side: int,
    stride: int,
    fixed_size: tuple[int, int] | None = None,
) -> Letterbox:
    """Return where a part (height, width) of an image lies in the input.

    Its long side becomes long_side; each side is padded to the next multiple of stride. In a fixed
    size it is as large as fits.
    """
    height, width = size
    if fixed_size is not None:
        return fit_letterbox((height, width), fixed_size)
    fitted = fit_letterbox((height, width), (long_side, long_side)).resized_size
    bottom, right = (-(-side // stride) * stride for side in fitted)
    return _centre((height, width), fitted, (bottom, right))
