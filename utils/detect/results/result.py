"""The result of each task: boxes, boxes with masks, or the classes of an image."""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from duet.utils.colours import class_colour
from duet.utils.data.masks.runs import mask_of_runs, outline_of_runs, to_text
from duet.utils.data.sources.label_file import label_lines
from duet.utils.detect.results.image_result import ImageResult, Records, as_utf8
from duet.utils.errors import UserError
from duet.utils.geometry.boxes import clip_boxes, cxcywh_to_xyxy, xyxy_to_cxcywh
from duet.utils.geometry.detections import Classification, Detections, Ragged, Segmentations
from duet.utils.report.drawing import draw_boxes, draw_lines, draw_masks, drawable_name
from duet.utils.text import printable

CROP_GAIN, CROP_PIXELS = 1.02, 10  # enlargement of a box's sides
CORNERS = ("xmin", "ymin", "xmax", "ymax")
SHOWN_CLASSES = 5
IRREGULAR = {"knife": "knives", "mouse": "mice", "sheep": "sheep"}  # plurals of COCO's classes
VOWELS = tuple("aeiou")


class Detection(NamedTuple):
    box_xyxy: tuple[float, float, float, float]  # pixels of the image
    score: float  # in (0, 1]
    class_index: int
    name: str  # class name
    track_id: int | None = None  # the same for one object in all frames; None: not tracked


@dataclass(frozen=True, eq=False, repr=False)
class Result(ImageResult):
    """The boxes of one image, highest score first; it yields each as a `Detection`."""

    found: Detections | Segmentations  # in pixels of the frame

    def __post_init__(self) -> None:
        """Drop boxes that are not finite, which float16 may produce."""
        rows = np.flatnonzero(np.isfinite(self.found.boxes_xyxy).all(axis=1))
        if len(rows) < len(self.found.scores):
            object.__setattr__(self, "found", self.found.take(rows))
            if self.track_ids is not None:
                object.__setattr__(self, "track_ids", self.track_ids[rows])

    @property
    def detections(self) -> Detections | Segmentations:
        return self.found

    @property
    def boxes_xyxy(self) -> np.ndarray:
        """(K, 4) float32, pixels of the image."""
        return self.found.boxes_xyxy

    @property
    def scores(self) -> np.ndarray:
        return self.found.scores

    @property
    def class_index(self) -> np.ndarray:
        return self.found.class_index

    def plot(
        self, line_width: int | None = None, labels: bool = True, scores: bool = True
    ) -> np.ndarray:
        texts = self._labels(scores) if labels else [""] * len(self.scores)
        return draw_boxes(self._canvas(), self.boxes_xyxy, self.class_index, texts, line_width)

    def _canvas(self) -> np.ndarray:
        return self.image

    def _labels(self, scores: bool) -> list[str]:
        """Return a label per detection: track number, name and score, such as "7 person 0.87"."""
        columns = [list(map(drawable_name, self.names, self.class_index.tolist()))]
        if self.track_ids is not None:
            columns.insert(0, [str(number) if number > 0 else "" for number in self.track_ids])
        if scores:
            columns.append([f"{score:.2f}" for score in self.scores.tolist()])
        return [" ".join(filter(None, words)) for words in zip(*columns, strict=True)]

    def crop(self) -> list[np.ndarray]:
        return [crop_box(self.image, box) for box in self.boxes_xyxy]

    def words(self) -> str:
        numbers, counts = np.unique(self.class_index, return_counts=True)
        names = [self.class_names[index] for index in numbers.tolist()]
        found = [
            f"{number} {name if number == 1 else _plural(name)}"
            for name, number in zip(names, counts.tolist(), strict=True)
        ]
        return ", ".join(found) or "(no detections)"

    def text_lines(self, scores: bool = False) -> list[str]:
        return label_lines(self.found, self.size, scores, self.track_ids)

    def _table_rows(self) -> list[Sequence[Any]]:
        rows = super()._table_rows()
        if self.track_ids is None:
            return rows
        return [(*row, number) for row, number in zip(rows, self.track_ids.tolist(), strict=True)]

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[Detection]:
        boxes = map(tuple, self.boxes_xyxy.tolist())
        ids = [None] * len(self) if self.track_ids is None else self.track_ids.tolist()
        columns = (self.scores.tolist(), self.class_index.tolist(), self.names, ids)
        return (Detection(*row) for row in zip(boxes, *columns, strict=True))

    def records(self) -> Records:
        return {"detections": [self._record(found) for found in self]}

    def _record(self, found: Detection) -> dict[str, Any]:
        record = {**found._asdict(), "box_xyxy": list(found.box_xyxy), "name": as_utf8(found.name)}
        if self.track_ids is None:
            del record["track_id"]
        return record

    def _box_columns(self) -> dict[str, np.ndarray]:
        return dict(zip(CORNERS, self.boxes_xyxy.astype(np.float64).T, strict=True))


def _plural(name: str) -> str:
    if not name[-1:].isascii():
        return name
    for ending, plural in IRREGULAR.items():
        if name.endswith(ending):
            return name.removesuffix(ending) + plural
    if name.endswith("y") and name[-2:-1] not in VOWELS:
        return f"{name[:-1]}ies"
    if name.endswith(("ss", "us", "sh", "ch", "x")):
        return f"{name}es"
    return name if name.endswith("s") else f"{name}s"


def crop_box(image: np.ndarray, box_xyxy: np.ndarray) -> np.ndarray:
    """Copy the part of an image (H, W, 3) in a box (4,), pixels, with YOLOv5's margin."""
    box_cxcywh = xyxy_to_cxcywh(np.asarray(box_xyxy, np.float64))
    box_cxcywh[2:] = box_cxcywh[2:] * CROP_GAIN + CROP_PIXELS
    size = image.shape[0], image.shape[1]
    left, top, right, bottom = clip_boxes(cxcywh_to_xyxy(box_cxcywh), size).astype(int).tolist()
    return image[top:bottom, left:right].copy()


class Masks:
    """The masks of an image, a sequence of (H, W) bool; `np.asarray` gives (K, H, W) bool."""

    def __init__(self, runs: Ragged, size: tuple[int, int]) -> None:
        self._rows, self._size = runs.rows(), size

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> np.ndarray:
        return mask_of_runs(self._rows[operator.index(index)], self._size)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        masks = np.empty((len(self), *self._size), dtype or bool)
        for index, row in enumerate(self._rows):
            masks[index] = mask_of_runs(row, self._size)
        return masks


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

        Of several pieces, the one with the most points; (0, 2) for an empty mask.
        """
        return [outline_of_runs(runs, self.size) for runs in self.found.masks.rows()]

    def _canvas(self) -> np.ndarray:
        canvas = self.image.copy()
        draw_masks(canvas, self.found.masks, self.class_index)
        return canvas

    def records(self) -> Records:
        found = super().records()
        for record, runs in zip(found["detections"], self.found.masks.rows(), strict=True):
            # COCO's compressed run lengths
            record["segmentation"] = {"size": list(self.size), "counts": to_text(runs)}
        return found

    def drawable_records(self) -> Records:
        """Return `records`, each with its outline: [x, y] of each point, pixels of the image."""
        found = self.records()
        for record, outline in zip(found["detections"], self.outlines, strict=True):
            record["outline"] = outline.tolist()
        return found


class ClassScore(NamedTuple):
    score: float  # in [0, 1]
    class_index: int
    name: str


@dataclass(frozen=True, eq=False, repr=False)
class ClassResult(ImageResult):
    """The classes of one image, most probable first; it yields five, each as a `ClassScore`.

    Everything except `probabilities` covers only the top five classes.
    """

    found: Classification

    @property
    def probabilities(self) -> np.ndarray:
        """(C,) float32, sum 1: the probability of each class."""
        return self.found.scores[0]

    @cached_property
    def top5(self) -> np.ndarray:
        """The five most probable classes, or all if fewer, (K,) int64; finite scores only."""
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
        """Return a copy of the image, (H, W, 3) uint8 RGB, with lines such as "0.87 dog"."""
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
        return ", ".join(f"{found.name} {found.score:.2f}" for found in self) or "(no class)"

    def text_lines(self, scores: bool = False) -> list[str]:
        """Return "0.87 dog" for each class, most probable first, as the public YOLOv5 does."""
        return [f"{found.score:.2f} {printable(found.name)}" for found in self]

    def _table_rows(self) -> list[Sequence[Any]]:
        # The most probable class comes first in the table, unlike the objects of a detector.
        return super()._table_rows()[::-1]

    def __len__(self) -> int:
        return len(self.top5)

    def __iter__(self) -> Iterator[ClassScore]:
        columns = (self.scores.tolist(), self.top5.tolist(), self.names)
        return (ClassScore(*row) for row in zip(*columns, strict=True))

    def records(self) -> Records:
        return {"classes": [{**x._asdict(), "name": as_utf8(x.name)} for x in self]}
