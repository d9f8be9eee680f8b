"""Images of one class each: random crops for training, centre crops for validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from utils.data.augment.class_sample import (
    ClassAugmentation,
    augment_class,
    draw_class_augmentation,
    fill,
    shortest_side,
)
from utils.data.augment.strengths import AugmentConfig
from utils.data.image.centre_crop import centre_region, crop, crop_placement
from utils.data.image.decoding import REDUCTIONS, LabelledImage, SourceImage
from utils.data.image.letterbox import Letterbox
from utils.data.loading.batch import Targets


@dataclass(frozen=True)
class ClassItems:
    """Squares of --img pixels; the targets are one box each, which fills the image."""

    has_rectangles = False

    def reduction(self, size: tuple[int, int], image_size: int) -> int:
        """Return how many times smaller an image may be decoded: no crop has to be enlarged."""
        side = shortest_side(size)
        return max((x for x in REDUCTIONS if x * image_size <= side), default=1)

    def draw(
        self, strengths: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
    ) -> ClassAugmentation:
        return draw_class_augmentation(strengths, generator, index)

    def make(
        self,
        drawn: ClassAugmentation,
        sources: Sequence[SourceImage],
        image_size: int,
        output_size: tuple[int, int],
    ) -> LabelledImage:
        return augment_class(drawn, sources[0], output_size)

    def place(
        self,
        size: tuple[int, int],
        image_size: int,
        input_size: tuple[int, int],
        is_fixed: bool = False,
    ) -> Letterbox:
        """Return how the middle of an image fills the input, as if there were no more of it."""
        output_size = input_size if is_fixed else (image_size, image_size)
        return crop_placement(centre_region(size, output_size), output_size)

    def resize(self, image: np.ndarray, placement: Letterbox) -> np.ndarray:
        output_size = placement.resized_size
        region = centre_region((image.shape[0], image.shape[1]), output_size)
        return crop(image, region, output_size)

    def fit(self, item: LabelledImage, placement: Letterbox) -> LabelledImage:
        return fill(item.image, item.class_index)

    def targets(self, item: LabelledImage) -> Targets:
        number = len(item.class_index)
        boxes = np.tile(np.array([0.5, 0.5, 1, 1], np.float32), (number, 1))
        return Targets(np.zeros(number, np.int64), item.class_index, boxes)


CLASSES = ClassItems()
