"""Random changes to an image of one class: every draw first, then a function of the draws."""

import math
from dataclasses import dataclass

import numpy as np

from duet.utils.data.augment.sample import Finish, finish
from duet.utils.data.image.decoding import LabelledImage, SourceImage
from duet.utils.data.image.letterbox import Region, centre_region, crop
from duet.utils.strengths import AugmentConfig

MIN_AREA = 0.08  # least fraction of the image in a crop
MAX_ASPECT = 4 / 3  # of a crop, width to height or height to width
TRIES = 10  # crops are drawn until one fits into the image
DRAWS_A_TRY = 4  # area, aspect ratio, top, left


@dataclass(frozen=True, kw_only=True)
class ClassAugmentation(Finish):
    """Everything that is random about one training image of a class.

    Attributes:
        scale: largest fraction of the area cut off; 0 for a centre crop.
        tries: draws for the crop, (`TRIES`, `DRAWS_A_TRY`) from 0 to below 1.
    """

    index: int
    scale: float
    tries: tuple[tuple[float, ...], ...]

    @property
    def samples(self) -> tuple[int, ...]:
        return (self.index,)


def draw_class_augmentation(
    config: AugmentConfig, generator: np.random.Generator, index: int
) -> ClassAugmentation:
    """Draw everything random about sample `index`, in the same order for any `config`.

    New kinds of draws take their own stream, as in `draw_augmentation`.
    """
    tries = generator.random((TRIES, DRAWS_A_TRY)).tolist()
    gains = 1 + (2 * generator.random(3) - 1) * [config.hsv_h, config.hsv_s, config.hsv_v]
    flip_up_down, flip_left_right = generator.random(2) < [config.flipud, config.fliplr]
    transforms_seed = int(generator.random() * 2**32)
    hue, saturation, value = gains.tolist()
    return ClassAugmentation(
        hsv_gains=(hue, saturation, value),
        flip_up_down=bool(flip_up_down),
        flip_left_right=bool(flip_left_right),
        transforms=config.transforms,
        transforms_seed=transforms_seed if config.transforms else 0,
        index=index,
        scale=config.scale,
        tries=tuple(map(tuple, tries)),
    )


def augment_class(
    draw: ClassAugmentation, source: SourceImage, output_size: tuple[int, int]
) -> LabelledImage:
    """Return the training image of a draw, (height, width) in `output_size`, filled by its class.

    The source may be decoded at a fraction of its size.
    """
    image = source.decode()
    region = random_region(draw, source.decoded_size, output_size)
    image = crop(image, region, output_size)
    nothing = np.zeros(0, np.int64), np.zeros((0, 4))
    return fill(finish(draw, LabelledImage(image, *nothing)).image, source.objects.class_index)


def fill(image: np.ndarray, class_index: np.ndarray) -> LabelledImage:
    """Return an image with its classes (M,), each with a box around the whole image."""
    height, width = image.shape[:2]
    boxes = np.tile(np.array([0.0, 0.0, width, height]), (len(class_index), 1))
    return LabelledImage(image, class_index, boxes)


def random_region(
    draw: ClassAugmentation, size: tuple[int, int], output_size: tuple[int, int]
) -> Region:
    """Return the region of a random crop of an image (height, width).

    Its area is uniform from 1 - `scale`, at least `MIN_AREA`, to 1; the logarithm of its aspect
    ratio is uniform up to `MAX_ASPECT` either way. The centre if no try fits or `scale` is 0.

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
    """Return a lower bound of the sides of all crops of an image (height, width), pixels."""
    return min(*size, math.sqrt(MIN_AREA * size[0] * size[1] / MAX_ASPECT))
