"""Random changes to an image of one class: every draw first, then a function of the draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from duet.utils.data.augment.sample import NUM_CUTOUT_DRAWS, Finish, finish
from duet.utils.data.image.decoding import LabelledImage, SourceImage
from duet.utils.data.image.letterbox import FILL, Region, centre_region, crop
from duet.utils.strengths import AugmentConfig

MIN_AREA = 0.08  # part of an image that a crop shows at least
MAX_ASPECT = 4 / 3  # of a crop, width to height or height to width
TRIES = 10  # crops are drawn until one fits into the image
DRAWS_A_TRY = 4  # area, aspect ratio, top, left
# RandAugment: operations on a whole image, drawn from fourteen, all of one strength.
# Source: Cubuk et al. 2019, arXiv:1909.13719; the largest changes are those of its appendix.
NUM_OPERATIONS = 2  # an image
DRAWS_AN_OPERATION = 2  # which one, and in which direction
NUM_DRAWS = NUM_OPERATIONS * DRAWS_AN_OPERATION
MAX_ANGLE, MAX_SHEAR, MAX_SHIFT = 30.0, 0.3, 0.45  # degrees; per pixel; of the side
MAX_BLEND = 0.9  # colours: 1 +- this
MAX_DROPPED_BITS = 4
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13


class Operation(NamedTuple):
    """One of `OPERATIONS`."""

    name: str
    strength: float  # from -1 to 1; the sign is the direction, where there are two


@dataclass(frozen=True, kw_only=True)
class ClassAugmentation(Finish):
    """Everything that is random about one training image of a class.

    Attributes:
        index: its sample.
        scale: up to this fraction of the image's area is cut off; 0: the middle is taken.
        tries: draws for the crop, (`TRIES`, `DRAWS_A_TRY`) from 0 to below 1.
        operations: RandAugment's operations.
    """

    index: int
    scale: float
    tries: tuple[tuple[float, ...], ...]
    operations: tuple[Operation, ...] = ()

    @property
    def samples(self) -> tuple[int, ...]:
        """Its only sample."""
        return (self.index,)


def draw_class_augmentation(
    config: AugmentConfig, generator: np.random.Generator, index: int
) -> ClassAugmentation:
    """Make the draws of sample `index`: the same ones in the same order for any `config`.

    A kind of draw that is added takes `named_generator`, as in `draw_augmentation`.
    """
    tries = generator.random((TRIES, DRAWS_A_TRY)).tolist()
    gains = 1 + (2 * generator.random(3) - 1) * [config.hsv_h, config.hsv_s, config.hsv_v]
    flip_up_down, flip_left_right = generator.random(2) < [config.flipud, config.fliplr]
    transforms_seed = int(generator.random() * 2**32)
    is_cut_out = generator.random() < config.cutout
    cutout = generator.random(NUM_CUTOUT_DRAWS).tolist()
    operations = draw_operations(config.randaugment, generator.random(NUM_DRAWS).tolist())
    hue, saturation, value = gains.tolist()
    return ClassAugmentation(
        hsv_gains=(hue, saturation, value),
        flip_up_down=bool(flip_up_down),
        flip_left_right=bool(flip_left_right),
        cutout=tuple(cutout) if is_cut_out else (),
        transforms=config.transforms,
        transforms_seed=transforms_seed if config.transforms else 0,
        index=index,
        scale=config.scale,
        tries=tuple(map(tuple, tries)),
        operations=operations,
    )


def augment_class(
    draw: ClassAugmentation, source: SourceImage, output_size: tuple[int, int]
) -> LabelledImage:
    """Return the training image of a draw, (height, width) in `output_size`, filled by its class.

    The source may be decoded at a fraction of its size.
    """
    image = source.decode()
    region = random_region(draw, source.decoded_size, output_size)
    image = apply(crop(image, region, output_size), draw.operations)
    # The label is unchanged: operations that move or hide objects only change pixels.
    nothing = np.zeros(0, np.int64), np.zeros((0, 4))
    return fill(finish(draw, LabelledImage(image, *nothing)).image, source.class_index)


def fill(image: np.ndarray, class_index: np.ndarray) -> LabelledImage:
    """Return an image with its classes (M,), each of which fills it."""
    height, width = image.shape[:2]
    boxes = np.tile(np.array([0.0, 0.0, width, height]), (len(class_index), 1))
    return LabelledImage(image, class_index, boxes)


def random_region(
    draw: ClassAugmentation, size: tuple[int, int], output_size: tuple[int, int]
) -> Region:
    """Return what a crop shows of an image of (height, width).

    Its area is uniform from 1 - `scale`, at least `MIN_AREA`, to 1, and the logarithm of its
    aspect ratio uniform up to `MAX_ASPECT` either way. Where none of the tries fits, and without
    `scale`, it is the middle.

    Source: Szegedy et al. 2014, arXiv:1409.4842, section 6.
    """
    smallest = max(1 - draw.scale, MIN_AREA)
    for area, aspect, top, left in draw.tries if draw.scale else ():
        pixels = size[0] * size[1] * (smallest + (1 - smallest) * area)
        ratio = math.exp((2 * aspect - 1) * math.log(MAX_ASPECT))
        height, width = round(math.sqrt(pixels / ratio)), round(math.sqrt(pixels * ratio))
        if 0 < height <= size[0] and 0 < width <= size[1]:
            rows, columns = size[0] - height + 1, size[1] - width + 1
            return Region(int(top * rows), int(left * columns), height, width)
    return centre_region(size, output_size)


def shortest_side(size: tuple[int, int]) -> float:
    """Return a bound of the sides of all crops of an image of (height, width), in pixels."""
    return min(*size, math.sqrt(MIN_AREA * size[0] * size[1] / MAX_ASPECT))


def draw_operations(strength: float, draws: Sequence[float]) -> tuple[Operation, ...]:
    """Return the operations of an image; none for strength 0.

    Args:
        strength: from 0 to 1.
        draws: `NUM_DRAWS`, from 0 to below 1.
    """
    if not strength:
        return ()
    names = list(OPERATIONS)
    pairs = np.reshape(draws, (-1, DRAWS_AN_OPERATION)).tolist()
    return tuple(
        Operation(names[int(which * len(names))], strength if direction < 0.5 else -strength)
        for which, direction in pairs
    )


def apply(image: np.ndarray, operations: Sequence[Operation]) -> np.ndarray:
    """Return an image (H, W, 3) uint8 BGR after these operations."""
    for name, strength in operations:
        image = OPERATIONS[name](image, strength)
    return image


def _stretched(image: np.ndarray, strength: float) -> np.ndarray:
    """Stretch each channel from its darkest to its lightest pixel over all shades."""
    return cv2.merge([_stretched_channel(channel) for channel in cv2.split(image)])


def _stretched_channel(channel: np.ndarray) -> np.ndarray:
    low, high = int(channel.min()), int(channel.max())
    if low == high:
        return channel
    stretched = (np.arange(256) - low) * 255 / (high - low)
    return cv2.LUT(channel, stretched.clip(0, 255).astype(np.uint8))


def _equalised(image: np.ndarray, strength: float) -> np.ndarray:
    return cv2.merge([cv2.equalizeHist(channel) for channel in cv2.split(image)])


def _solarised(image: np.ndarray, strength: float) -> np.ndarray:
    """Invert all shades from a threshold up."""
    shades = np.arange(256)
    inverted = np.where(shades >= 256 * (1 - abs(strength)), 255 - shades, shades)
    return cv2.LUT(image, inverted.astype(np.uint8))


def _posterised(image: np.ndarray, strength: float) -> np.ndarray:
    """Leave the high bits of each shade."""
    dropped = round(MAX_DROPPED_BITS * abs(strength))
    return cv2.LUT(image, (np.arange(256) >> dropped << dropped).astype(np.uint8))


def _blended(image: np.ndarray, other: np.ndarray, strength: float) -> np.ndarray:
    """Move an image away from another one, or towards it."""
    gain = 1 + MAX_BLEND * strength
    return cv2.addWeighted(image, gain, other, 1 - gain, 0)


def _coloured(image: np.ndarray, strength: float) -> np.ndarray:
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    return _blended(image, cv2.merge([grey] * 3), strength)


def _contrasted(image: np.ndarray, strength: float) -> np.ndarray:
    mean = round(cv2.mean(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))[0])
    return _blended(image, np.full_like(image, mean), strength)


def _brightened(image: np.ndarray, strength: float) -> np.ndarray:
    return _blended(image, np.zeros_like(image), strength)


def _sharpened(image: np.ndarray, strength: float) -> np.ndarray:
    return _blended(image, cv2.filter2D(image, -1, _SMOOTH), strength)


def _rotated(image: np.ndarray, strength: float) -> np.ndarray:
    cosine, sine = (f(math.radians(MAX_ANGLE * strength)) for f in (math.cos, math.sin))
    return _warped(image, [[cosine, sine], [-sine, cosine]])


def _sheared(image: np.ndarray, along_x: float, along_y: float) -> np.ndarray:
    return _warped(image, [[1, MAX_SHEAR * along_x], [MAX_SHEAR * along_y, 1]])


def _shifted(image: np.ndarray, right: float, down: float) -> np.ndarray:
    height, width = image.shape[:2]
    shift_xy = MAX_SHIFT * right * width, MAX_SHIFT * down * height
    return _warped(image, [[1, 0], [0, 1]], shift_xy)


def _warped(
    image: np.ndarray, matrix: Sequence[Sequence[float]], shift_xy: tuple[float, float] = (0, 0)
) -> np.ndarray:
    """Warp an image about its middle, then shift it by pixels."""
    height, width = image.shape[:2]
    turned = np.array(matrix, np.float64)
    middle = np.array([width - 1, height - 1]) / 2
    affine = np.column_stack([turned, middle - turned @ middle + shift_xy])
    return cv2.warpAffine(image, affine, (width, height), borderValue=(FILL, FILL, FILL))


OPERATIONS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "identity": lambda image, strength: image,
    "auto contrast": _stretched,
    "equalize": _equalised,
    "solarize": _solarised,
    "posterize": _posterised,
    "colour": _coloured,
    "contrast": _contrasted,
    "brightness": _brightened,
    "sharpness": _sharpened,
    "rotate": _rotated,
    "shear x": lambda image, strength: _sheared(image, strength, 0),
    "shear y": lambda image, strength: _sheared(image, 0, strength),
    "translate x": lambda image, strength: _shifted(image, strength, 0),
    "translate y": lambda image, strength: _shifted(image, 0, strength),
}
