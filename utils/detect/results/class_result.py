"""The result of a classifier for one image: how probable each class is.

But for `probabilities`, all of it is of the five most probable classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from duet.utils.colours import class_colour
from duet.utils.detect.results.image_result import ImageResult, as_utf8
from duet.utils.detections import Classification
from duet.utils.errors import UserError
from duet.utils.report.drawing import draw_lines, drawable_name
from duet.utils.text import printable

SHOWN_CLASSES = 5


class ClassScore(NamedTuple):
    """How probable one class is, as plain values."""

    score: float  # in [0, 1]
    class_index: int
    name: str


@dataclass(frozen=True, eq=False, repr=False)
class ClassResult(ImageResult):
    """The classes of one image, the most probable first; it yields five, each as a `ClassScore`."""

    found: Classification

    @property
    def probabilities(self) -> np.ndarray:
        """(C,) float32, sum 1: the probability of each class."""
        return self.found.scores[0]

    @cached_property
    def top5(self) -> np.ndarray:
        """The numbers of the five most probable classes, or of all that there are: (K,) int64.

        Of equal ones the lower number comes first. A class whose probability is no number, as
        float16 may give it, is not among them.
        """
        order = np.argsort(-self.probabilities, kind="stable")
        return order[np.isfinite(self.probabilities[order])][:SHOWN_CLASSES].astype(np.int64)

    @property
    def class_index(self) -> np.ndarray:
        return self.top5

    @property
    def scores(self) -> np.ndarray:
        return self.probabilities[self.top5]

    @property
    def counted(self) -> Sequence[str]:
        return self.names[:1]  # only the most probable class

    def plot(
        self, line_width: int | None = None, labels: bool = True, scores: bool = True
    ) -> np.ndarray:
        """Return a copy of the image, (H, W, 3) uint8 RGB, with lines as "0.87 dog" in its corner.

        line_width: has no effect here: no box is drawn.
        """
        if not labels:
            return self.image.copy()
        indices = self.top5.tolist()
        names = map(drawable_name, self.names, indices)
        lines = [
            f"{score:.2f} {name}" if scores else name
            for score, name in zip(self.scores.tolist(), names, strict=True)
        ]
        return draw_lines(self.image, lines, list(map(class_colour, indices)))

    def crop(self) -> list[np.ndarray]:
        raise UserError("crop(): the class is that of the whole image; use `image`")

    def words(self) -> str:
        """Return "dog 0.87, cat 0.10"."""
        return ", ".join(f"{found.name} {found.score:.2f}" for found in self) or "(no class)"

    def text_lines(self, scores: bool = False) -> list[str]:
        """Return "0.87 dog" for each class, the most probable first, as the public YOLOv5 does.

        scores: they are always there.
        """
        return [f"{found.score:.2f} {printable(found.name)}" for found in self]

    def _table_rows(self) -> list[Sequence[Any]]:
        # The most probable class comes first in the table, unlike the objects of a detector.
        return super()._table_rows()[::-1]

    def __len__(self) -> int:
        return len(self.top5)

    def __iter__(self) -> Iterator[ClassScore]:
        columns = (self.scores.tolist(), self.top5.tolist(), self.names)
        return (ClassScore(*row) for row in zip(*columns, strict=True))

    def records(self) -> dict[str, list[Any]]:
        return {"classes": [{**x._asdict(), "name": as_utf8(x.name)} for x in self]}
