"""A batch: images as one array, targets as one table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from duet.utils.data.image.letterbox import Letterbox


class TargetMasks(NamedTuple):
    """The pixels of T objects: object t has `maps[map_index[t]] == value[t]`.

    In a map of a whole image, an object hides those below it; in its own map, nothing is hidden.
    """

    maps: np.ndarray  # (N, h, w) uint8 or int64: the images, reduced; 0 is background
    map_index: np.ndarray  # (T,) int64, ascending
    value: np.ndarray  # (T,) int64, from 1 up


class Targets(NamedTuple):
    image_index: np.ndarray  # (T,) int64, position in the batch, ascending
    class_index: np.ndarray  # (T,) int64
    boxes_cxcywh_norm: np.ndarray  # (T, 4) float32, fractions of the batch's images
    masks: TargetMasks | None = None  # None for tasks without masks

    def take(self, rows: np.ndarray | slice) -> Targets:
        """Return some of the objects, in their order; their masks lie in the same maps."""
        masks = self.masks
        if masks is not None:
            masks = TargetMasks(masks.maps, masks.map_index[rows], masks.value[rows])
        fields = self.image_index[rows], self.class_index[rows], self.boxes_cxcywh_norm[rows]
        return Targets(*fields, masks)

    def between(self, start: int, end: int) -> Targets:
        """Return the targets of images [start, end), renumbered from 0."""
        first, last = np.searchsorted(self.image_index, [start, end]).tolist()
        kept = self.take(slice(first, last))
        masks = kept.masks
        if masks is not None and first < last:
            low, high = int(masks.map_index[0]), int(masks.map_index[-1]) + 1
            masks = TargetMasks(masks.maps[low:high], masks.map_index - low, masks.value)
        return kept._replace(image_index=kept.image_index - start, masks=masks)

    def arrays(self) -> list[np.ndarray]:
        own = [self.image_index, self.class_index, self.boxes_cxcywh_norm]
        return own if self.masks is None else [*own, *self.masks]


def join_targets(parts: Sequence[Targets], num_images: Iterable[int] | None = None) -> Targets:
    """Join the targets of parts of a batch.

    num_images: of each part; None for parts of one image.
    """
    empty = np.zeros(0, np.int64)
    firsts = itertools.accumulate(num_images or itertools.repeat(1), initial=0)
    moved = [part.image_index + first for part, first in zip(parts, firsts, strict=False)]
    image_index = np.concatenate([empty, *moved])
    class_index = np.concatenate([empty, *(part.class_index for part in parts)])
    boxes = np.concatenate(
        [np.zeros((0, 4), np.float32), *(part.boxes_cxcywh_norm for part in parts)]
    )
    masks = [part.masks for part in parts if part.masks is not None]
    if not masks:
        return Targets(image_index, class_index, boxes)
    offsets = np.cumsum([0, *(len(mask.maps) for mask in masks)])[:-1]
    map_index = [m.map_index + offset for m, offset in zip(masks, offsets.tolist(), strict=True)]
    maps = np.concatenate([mask.maps for mask in masks])
    joined = TargetMasks(
        maps, np.concatenate(map_index), np.concatenate([mask.value for mask in masks])
    )
    return Targets(image_index, class_index, boxes, joined)


class Finishing(NamedTuple):
    """Changes that B images still need and their targets do not."""

    hsv_gains: np.ndarray  # (B, 3) float64; all 1: the image keeps its colours
    flips: np.ndarray  # (B, 2) bool: up and down, left and right


class Batch(NamedTuple):
    """A rank's shard of a batch, as a loader yields it; it may be empty."""

    images: np.ndarray  # (B, 3, H, W) uint8, RGB; a lent one changes: see `WorkerPool.lend_to`
    targets: Targets
    sample_indices: np.ndarray  # (B,) int64, the samples that the images show
    letterboxes: tuple[Letterbox, ...]  # how to map boxes back; empty in training
    global_indices: np.ndarray  # int64, the sample indices of the whole batch, over all ranks
    finishing: Finishing | None = None  # None: the images are finished

    def pieces(self, size: int) -> Iterator[Batch]:
        """Split the batch into the fewest equal pieces of at most `size` images; 0: one piece."""
        images = len(self.images)
        number = -(-images // size) if size else 1
        if number <= 1:
            yield self
            return
        bounds = [images * index // number for index in range(number + 1)]
        for start, end in itertools.pairwise(bounds):
            targets, finishing = self.targets.between(start, end), self.finishing
            if finishing is not None:
                finishing = Finishing(*(numbers[start:end] for numbers in finishing))
            yield self._replace(images=self.images[start:end], targets=targets, finishing=finishing)
