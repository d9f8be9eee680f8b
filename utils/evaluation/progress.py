"""What a validation has found so far, as arrays: to be put together from all ranks, or to be saved.

Before: `evaluation/nms.py`, image by image. After: `coco/metric.py`; or a checkpoint, from which it
goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from utils.detections import Detections
from utils.processes.world import World


class FoundImage(NamedTuple):
    """The detections of one image."""

    batch_index: int
    image_index: int  # its place among the samples
    detections: Detections  # in pixels of the image


class EvaluationProgress(NamedTuple):
    """All that is known after the first batches of a validation, N of them, over all ranks.

    All fields are arrays, so that `_asdict` is what to save and `EvaluationProgress(**saved)` what
    to go on with, on any number of ranks, with batches of the same size.
    """

    losses: np.ndarray  # (N, 3) float64: box, objectness, classification; zeros without a loss
    images: np.ndarray  # (K, 3) int64: batch, place among the samples, number of detections
    class_index: np.ndarray  # (D,) int64, image by image; likewise below
    scores: np.ndarray  # (D,) float32
    boxes_xyxy: np.ndarray  # (D, 4) float32, pixels of the image

    @property
    def num_batches(self) -> int:
        """How many batches are done."""
        return len(self.losses)

    def found(self) -> list[FoundImage]:
        """The images in the order of a single process."""
        detections = Detections(self.boxes_xyxy, self.scores, self.class_index)
        ends = np.cumsum(self.images[:, 2]).tolist()
        return [
            FoundImage(batch_index, image_index, detections.take(np.arange(end - count, end)))
            for (batch_index, image_index, count), end in zip(
                self.images.tolist(), ends, strict=True
            )
        ]


def make_progress(losses: np.ndarray, found: Iterable[FoundImage]) -> EvaluationProgress:
    """From the losses (N, 3) of N batches and their images, in the order of the batches."""
    found = list(found)
    rows = [(image.batch_index, image.image_index, len(image.detections.scores)) for image in found]
    nothing = Detections(
        np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64)
    )
    fields = zip(nothing, *(image.detections for image in found), strict=True)
    boxes_xyxy, scores, class_index = (np.concatenate(field) for field in fields)
    images = np.array(rows, np.int64).reshape(-1, 3)
    return EvaluationProgress(losses, images, class_index, scores, boxes_xyxy)


def read_progress(arrays: Mapping[str, np.ndarray], num_images: int) -> EvaluationProgress:
    """From its saved arrays, of a validation of so many images; ValueError if they do not fit."""
    if arrays.keys() != set(EvaluationProgress._fields):
        raise ValueError(f"of a validation it has {sorted(arrays)}")
    progress = EvaluationProgress(**arrays)
    for array, empty in zip(progress, NOTHING_DONE, strict=True):
        if array.dtype != empty.dtype or (array.ndim, *array.shape[1:]) != (
            empty.ndim, *empty.shape[1:],
        ):  # fmt: skip
            raise ValueError(f"of a validation it has an array {array.dtype} {array.shape}")
    batch_index, image_index, counts = progress.images.T
    detections = progress.class_index, progress.scores, progress.boxes_xyxy
    if not (
        ((batch_index >= 0) & (batch_index < progress.num_batches)).all()
        and ((image_index >= 0) & (image_index < num_images)).all()
        and len(np.unique(image_index)) == len(image_index) >= progress.num_batches
        and ((counts >= 0) & (counts <= len(progress.scores))).all()
        and {len(array) for array in detections} == {int(counts.sum())}
    ):
        raise ValueError("its validation in progress is none of these images")
    return progress


NOTHING_DONE = make_progress(np.zeros((0, 3)), [])


class Collector:
    """Takes what a rank finds in its shares, and hands every image on once, with those of all.

    Args:
        before: of an earlier part of the validation, over all ranks.
        world: the ranks.
        receive: takes the images: each when it was found with one rank, and all of them at the
            end, in the order of a single process, with several.
    """

    def __init__(
        self,
        before: EvaluationProgress,
        world: World,
        receive: Callable[[FoundImage], None],
    ):
        self._before, self._all_gather, self._receive = before, world.all_gather, receive
        self._alone = world.process.world_size == 1
        self._found: list[FoundImage] = []
        self._losses: list[np.ndarray] = []
        if self._alone:
            self._hand_on(before.found())

    def add_image(self, image: FoundImage) -> None:
        """Take an image of this rank's shard."""
        self._found.append(image)
        if self._alone:
            self._receive(image)

    def end_batch(self, losses: np.ndarray) -> None:
        """Take this rank's part of a batch's losses, (3,) float64; once for each batch."""
        self._losses.append(losses)

    def progress(self) -> EvaluationProgress:
        """What all ranks found; all of them call it, after the same number of batches."""
        return make_progress(*self._of_all())

    def finish(self) -> np.ndarray:
        """(3,) float64 mean losses of all batches; by then, all images are handed on."""
        losses, found = self._of_all()
        if not self._alone:
            self._hand_on(found)
        return losses.mean(axis=0)

    def _of_all(self) -> tuple[np.ndarray, list[FoundImage]]:
        """Losses (N, 3) of all batches, and all images in the order of a single process."""
        losses = np.concatenate([np.zeros((0, 3)), *(loss[None] for loss in self._losses)])
        found = self._found
        if not self._alone:
            mine = make_progress(losses, found)
            of_ranks = zip(*(self._all_gather(array) for array in mine), strict=True)
            ranks = [EvaluationProgress(*arrays) for arrays in of_ranks]
            losses = np.sum([rank.losses for rank in ranks], axis=0)
            found = [image for rank in ranks for image in rank.found()]
            found.sort(key=lambda image: image.batch_index)  # stable: of a batch, rank by rank
        return np.concatenate([self._before.losses, losses]), [*self._before.found(), *found]

    def _hand_on(self, images: Iterable[FoundImage]) -> None:
        for image in images:
            self._receive(image)


class EvaluationSuspended(Exception):
    """A validation that was asked to stop between two batches; `progress` is of all ranks."""

    def __init__(self, progress: EvaluationProgress):
        super().__init__(f"validation stopped after {progress.num_batches} batches")
        self.progress = progress
