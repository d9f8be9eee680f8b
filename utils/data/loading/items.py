"""How a sample becomes an image and targets of a batch: the part of loading that a task decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from utils.boxes import xyxy_to_cxcywh
from utils.data.augment.sample import Augmentation, augment, draw_augmentation
from utils.data.augment.strengths import AugmentConfig
from utils.data.image.decoding import (
    LabelledImage,
    SourceImage,
    choose_reduction,
    letterbox_labelled,
)
from utils.data.image.letterbox import Letterbox, fit_long_side, fitting_long_side, resize
from utils.data.loading.batch import Targets


class Drawn(Protocol):
    """All that is random about one training item."""

    @property
    def samples(self) -> tuple[int, ...]:
        """The samples that it shows, in the order in which `Items.make` takes them."""


class Items(Protocol):
    """Makes the items of a task; a frozen dataclass, which is sent to workers."""

    @property
    def has_rectangles(self) -> bool:
        """Whether images keep their shape: a batch of a validation may be a rectangle."""

    def reduction(self, size: tuple[int, int], image_size: int) -> int:
        """Return how many times smaller an image may be decoded for training: 1, 2, 4 or 8."""

    def draw(
        self, strengths: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
    ) -> Any:
        """Return the draws of sample `index`, a `Drawn`; the same number for any strengths."""

    def make(
        self,
        drawn: Any,
        sources: Sequence[SourceImage],
        image_size: int,
        output_size: tuple[int, int],
    ) -> LabelledImage:
        """Return the training image of a draw, of output_size; `sources` are its samples."""

    def place(
        self,
        size: tuple[int, int],
        image_size: int,
        input_size: tuple[int, int],
        is_fixed: bool = False,
    ) -> Letterbox:
        """Return where an image of a validation lies in the network's input.

        Args:
            size: (height, width) of the image.
            image_size: that of --img.
            input_size: (height, width) of the batch.
            is_fixed: the network takes no other size than input_size.
        """

    def resize(self, image: np.ndarray, placement: Letterbox) -> np.ndarray:
        """Return a decoded image of a validation at `placement.resized_size`; caches keep that."""

    def fit(self, item: LabelledImage, placement: Letterbox) -> LabelledImage:
        """Put a resized image, with labels in pixels of the file, into the network's input."""

    def targets(self, item: LabelledImage) -> Targets:
        """Return the targets of an image as those of a batch of one."""


@dataclass(frozen=True)
class BoxItems:
    """Images with boxes: mosaics and other augmentations; letterboxed in a validation."""

    has_rectangles = True

    def reduction(self, size: tuple[int, int], image_size: int) -> int:
        return choose_reduction(size, image_size)

    def draw(
        self, strengths: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
    ) -> Augmentation:
        return draw_augmentation(strengths, generator, index, num_samples)

    def make(
        self,
        drawn: Augmentation,
        sources: Sequence[SourceImage],
        image_size: int,
        output_size: tuple[int, int],
    ) -> LabelledImage:
        return augment(drawn, sources, image_size, output_size)

    def place(
        self,
        size: tuple[int, int],
        image_size: int,
        input_size: tuple[int, int],
        is_fixed: bool = False,
    ) -> Letterbox:
        long_side = fitting_long_side(size, input_size) if is_fixed else image_size
        return fit_long_side(size, long_side, input_size)

    def resize(self, image: np.ndarray, placement: Letterbox) -> np.ndarray:
        return resize(image, placement.resized_size)

    def fit(self, item: LabelledImage, placement: Letterbox) -> LabelledImage:
        return letterbox_labelled(item, placement)

    def targets(self, item: LabelledImage) -> Targets:
        height, width = item.size
        boxes = xyxy_to_cxcywh(item.boxes_xyxy) / [width, height, width, height]
        image_index = np.zeros(len(item.class_index), np.int64)
        return Targets(image_index, item.class_index, boxes.astype(np.float32))


BOXES = BoxItems()
