"""Top-1 and top-5 accuracy, of all images and of each class, and which classes are confused."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from utils.detections import Classification, GroundTruth
from utils.evaluation.confusion import Confusion
from utils.screen.text import printable

TOP = 5
MAX_MISTAKES = 16  # that are kept for a plot


class Mistake(NamedTuple):
    """An image that is classified wrongly; the more confident mistake compares as greater."""

    score: float  # of the class that it is taken for
    image_id: int
    predicted: int
    true: int


@dataclass(frozen=True, eq=False)
class ClassificationResult:
    """The figures of all images; NaN if there is no image."""

    class_names: tuple[str, ...]
    num_images: np.ndarray  # (C,) int64
    top1: float  # part of the images whose class has the highest score
    top5: float  # or one of the five highest
    class_top1: np.ndarray  # (C,) float64
    class_top5: np.ndarray  # (C,) float64
    confusion: Confusion  # of the images; none is background
    mistakes: tuple[Mistake, ...]  # the surest ones, surest first


class ClassificationEvaluator:
    """Scores a set of images, one at a time, in any order.

    Of equal scores the lower class comes first. Scores that are not finite find nothing.
    """

    def __init__(self, class_names: Sequence[str]) -> None:
        self.class_names = tuple(class_names)
        self._true: list[int] = []
        self._predicted: list[int] = []
        self._ranks: list[int] = []
        self._mistakes: list[tuple[float, int, Mistake]] = []  # a heap, the least sure first

    def add(self, image_id: int, found: Classification, truth: GroundTruth) -> None:
        """Take the scores of an image; one without a class does not count."""
        (scores,) = found.scores
        for true in truth.class_index.tolist():
            predicted = int(np.argmax(scores))
            self._true.append(true)
            self._predicted.append(predicted)
            self._ranks.append(rank_of(scores, true))
            if predicted != true:
                mistake = Mistake(float(scores[predicted]), image_id, predicted, true)
                self._keep(mistake)

    def _keep(self, mistake: Mistake) -> None:
        """Keep the most confident mistakes; of equally confident ones, the first images."""
        if np.isfinite(mistake.score):
            heapq.heappush(self._mistakes, (mistake.score, -mistake.image_id, mistake))
        if len(self._mistakes) > MAX_MISTAKES:
            heapq.heappop(self._mistakes)

    def result(self) -> ClassificationResult:
        """Return the figures of all images so far."""
        true, ranks = np.array(self._true, np.int64), np.array(self._ranks, np.int64)
        number = len(self.class_names)
        counts = np.bincount(true, minlength=number)
        first, among = (np.bincount(true[ranks < top], minlength=number) for top in (1, TOP))
        return ClassificationResult(
            class_names=self.class_names,
            num_images=counts,
            top1=float(_part(first.sum(), counts.sum())),
            top5=float(_part(among.sum(), counts.sum())),
            class_top1=_part(first, counts),
            class_top5=_part(among, counts),
            confusion=self._confusion(true),
            mistakes=self._worst(),
        )

    def _confusion(self, true: np.ndarray) -> Confusion:
        number = len(self.class_names)
        pairs, counts = np.unique(
            np.array(self._predicted, np.int64) * (number + 1) + true, return_counts=True
        )
        predicted, of_true = np.divmod(pairs, number + 1)
        return Confusion(number, predicted, of_true, counts)

    def _worst(self) -> tuple[Mistake, ...]:
        return tuple(mistake for _, _, mistake in sorted(self._mistakes, reverse=True))


def rank_of(scores: np.ndarray, true: int) -> int:
    """Return how many of (C,) scores come before that of a class; all if one is not finite."""
    if not np.isfinite(scores).all():
        return max(len(scores), TOP)
    better = int(np.sum(scores > scores[true]))
    return better + int(np.sum(scores[:true] == scores[true]))


def _part(right: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return right / number, NaN if number is 0."""
    with np.errstate(invalid="ignore"):
        return np.divide(right, number)


def accuracy_table(result: ClassificationResult) -> str:
    """Return top-1 and top-5 accuracy over all images, and of each class that has any."""
    lines = [f"{'class':>20}{'images':>8}{'top1':>9}{'top5':>9}"]
    rows = [("all", int(result.num_images.sum()), result.top1, result.top5)]
    for index, name in enumerate(result.class_names):
        images = int(result.num_images[index])
        if images:
            rows.append((name, images, result.class_top1[index], result.class_top5[index]))
    for name, images, top1, top5 in rows:
        lines.append(f"{printable(name):>20}{images:8d}{top1:9.4f}{top5:9.4f}")
    return "\n".join(lines)
