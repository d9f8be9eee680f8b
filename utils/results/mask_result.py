"""Objects that were found in one image, each with its pixels."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from utils.detections import Segmentations
from utils.drawing.annotate import draw_masks
from utils.masks.runs import mask_of_runs, outline_of_runs, to_text
from utils.ragged import Ragged
from utils.results.result import Result
from utils.results.text_lines import outline_lines


class Masks:
    """The masks of an image, unpacked one at a time: a sequence of (H, W) bool.

    `np.asarray` makes one array of them, (K, H, W) bool.
    """

    def __init__(self, runs: Ragged, size: tuple[int, int]) -> None:
        self._runs, self._size = runs, size

    def __len__(self) -> int:
        return self._runs.num_rows

    def __getitem__(self, index: int) -> np.ndarray:
        rows = self._runs.rows()
        return mask_of_runs(rows[operator.index(index)], self._size)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (mask_of_runs(row, self._size) for row in self._runs.rows())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        masks = np.empty((len(self), *self._size), bool)
        for index, mask in enumerate(self):
            masks[index] = mask
        return masks if dtype is None else masks.astype(dtype, copy=False)


@dataclass(frozen=True, eq=False, repr=False)
class MaskResult(Result):
    """The objects of one image, highest score first; it yields each as a `Detection`."""

    found: Segmentations

    @property
    def masks(self) -> Masks:
        """The pixels of each object, in the image's own resolution."""
        return Masks(self.found.masks, self.size)

    @property
    def outlines(self) -> list[np.ndarray]:
        """The outline of each object, (N, 2) float32 x and y in pixels of the image.

        It is that of the piece with the most points; (0, 2) of a mask without pixels.
        """
        return [outline_of_runs(runs, self.size) for runs in self.found.masks.rows()]

    def _canvas(self) -> np.ndarray:
        canvas = self.image.copy()
        draw_masks(canvas, self.found.masks, self.class_index)
        return canvas

    def text_lines(self, scores: bool = False) -> list[str]:
        return outline_lines(self.found, self.size, self.track_ids, scores)

    def records(self) -> dict[str, list[Any]]:
        # Masks are COCO's compressed run lengths.
        (name, records), *_ = super().records().items()
        masks = [
            {"size": list(self.size), "counts": to_text(runs)} for runs in self.found.masks.rows()
        ]
        rows = zip(records, masks, strict=True)
        return {name: [{**record, "segmentation": mask} for record, mask in rows]}

    def drawable_records(self) -> dict[str, list[Any]]:
        """Return `records`, each with its outline: [x, y] of each point, pixels of the image."""
        (name, records), *_ = self.records().items()
        pairs = zip(records, self.outlines, strict=True)
        return {name: [{**record, "outline": outline.tolist()} for record, outline in pairs]}

    def to_supervision(self) -> Any:
        return self._supervision(np.asarray(self.masks))
