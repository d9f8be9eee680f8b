"""Top-1 and top-5 accuracy over all images and per class, and the confusion matrix."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from duet.utils.evaluation.coco.confusion import Confusion, confusion_of
from duet.utils.geometry.detections import Classification, GroundTruth
from duet.utils.text import printable

TOP = 5


@dataclass(frozen=True, eq=False)
class ClassificationResult:
    """Classification metrics; NaN without images."""

    class_names: tuple[str, ...]
    num_images: np.ndarray  # (C,) int64
    top1: float  # fraction of the images whose class has the highest score
    top5: float  # or one of the five highest
    class_top1: np.ndarray  # (C,) float64
    class_top5: np.ndarray  # (C,) float64
    confusion: Confusion  # without background

    @property
    def means(self) -> tuple[float, float]:
        return self.top1, self.top5


class ClassificationEvaluator:
    """Scores images added one at a time, in any order.

    Among equal scores the lower class comes first. Non-finite scores count as wrong.
    """

    def __init__(self, class_names: Sequence[str]) -> None:
        self.class_names = tuple(class_names)
        self._seen: list[tuple[int, int, int]] = []  # true class, predicted class, rank of the true

    def add(self, image_id: int, found: Classification, truth: GroundTruth) -> None:
        """Add the scores of an image; images without a class are ignored."""
        (scores,) = found.scores
        for true in truth.class_index.tolist():
            self._seen.append((true, int(np.argmax(scores)), rank_of(scores, true)))

    def result(self) -> ClassificationResult:
        true, predicted, ranks = np.array(self._seen, np.int64).reshape(-1, 3).T
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
            confusion=confusion_of(number, predicted, true),
        )


def rank_of(scores: np.ndarray, true: int) -> int:
    """Return the rank of a class among (C,) scores; last if a score is not finite."""
    if not np.isfinite(scores).all():
        return max(len(scores), TOP)
    better = int(np.sum(scores > scores[true]))
    return better + int(np.sum(scores[:true] == scores[true]))


def _part(right: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Return right / number, NaN if number is 0."""
    with np.errstate(invalid="ignore"):
        return np.divide(right, number)


def accuracy_table(result: ClassificationResult) -> str:
    lines = [f"{'class':>20}{'images':>8}{'top1':>9}{'top5':>9}"]
    rows = [("all", result.num_images.sum(), result.top1, result.top5)]
    of_classes = (result.num_images, result.class_top1, result.class_top5)
    rows += [row for row in zip(result.class_names, *of_classes, strict=True) if row[1]]
    for name, images, top1, top5 in rows:
        lines.append(f"{printable(name):>20}{images:8d}{top1:9.4f}{top5:9.4f}")
    return "\n".join(lines)
