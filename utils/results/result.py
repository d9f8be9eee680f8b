"""What was found in one image.

Before: `models/inference/image_detector.py`. After: files, drawings, other programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from utils.detections import Detections
from utils.drawing.annotate import draw_boxes
from utils.drawing.crop import crop_box
from utils.drawing.fonts import drawable_name
from utils.files.atomic import atomic_text_file
from utils.media.frame import Frame
from utils.results.image_file import save_image
from utils.results.other_programs import as_data_frame, as_supervision
from utils.results.text_lines import label_lines
from utils.results.words import count_by_class
from utils.screen.text import printable


class Detection(NamedTuple):
    """One thing that was found, as plain numbers."""

    box_xyxy: tuple[float, float, float, float]  # pixels of the image
    score: float  # in (0, 1]
    class_index: int
    name: str  # of its class
    track_id: int | None = None  # the same for one object in all frames; None: not tracked


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What was found in one image, highest score first.

    It has the length of its detections, and yields each as a `Detection`.
    """

    frame: Frame
    detections: Detections  # in pixels of the frame
    class_names: tuple[str, ...]  # of every class that the model knows
    track_ids: np.ndarray | None = None  # (K,) int64, one for an object in all frames; -1: none

    @property
    def image(self) -> np.ndarray:
        """(H, W, 3) uint8 RGB, as it was read."""
        return self.frame.image

    @property
    def boxes_xyxy(self) -> np.ndarray:
        """(K, 4) float32, pixels of the image."""
        return self.detections.boxes_xyxy

    @property
    def scores(self) -> np.ndarray:
        """(K,) float32 in (0, 1]."""
        return self.detections.scores

    @property
    def class_index(self) -> np.ndarray:
        """(K,) int64."""
        return self.detections.class_index

    @cached_property
    def names(self) -> list[str]:
        """The class name of each detection."""
        return [self.class_names[index] for index in self.class_index.tolist()]

    def plot(
        self, line_width: int | None = None, labels: bool = True, scores: bool = True
    ) -> np.ndarray:
        """Return a copy of the image, (H, W, 3) uint8 RGB, with boxes and labels drawn.

        Args:
            line_width: pixels; None for what suits the image.
            labels: write the class on each box, as "person 0.87", and a track's number before it.
            scores: write its score too.
        """
        texts = self._labels(scores) if labels else [""] * len(self.scores)
        return draw_boxes(self.image, self.boxes_xyxy, self.class_index, texts, line_width)

    def _labels(self, scores: bool) -> list[str]:
        """Return "7 person 0.87" for each detection, of that what there is and is asked for."""
        columns = [list(map(drawable_name, self.names, self.class_index.tolist()))]
        if self.track_ids is not None:
            columns.insert(0, [str(number) if number > 0 else "" for number in self.track_ids])
        if scores:
            columns.append([f"{score:.2f}" for score in self.scores.tolist()])
        return [" ".join(filter(None, words)) for words in zip(*columns, strict=True)]

    def crop(self, gain: float = 1.02, pad: float = 10, square: bool = False) -> list[np.ndarray]:
        """Return what each box shows, with a margin: (h, w, 3) uint8 RGB of its own size.

        Args:
            gain: by which the sides of a box are multiplied.
            pad: pixels that are added to each side afterwards, half of them at either end.
            square: make both sides of a box as long as its longer one before.
        """
        return [crop_box(self.image, box, gain, pad, square) for box in self.boxes_xyxy]

    def save(
        self,
        path: Path | str,
        line_width: int | None = None,
        labels: bool = True,
        scores: bool = True,
    ) -> None:
        """Write the image with boxes drawn on it, as `plot` draws them.

        Raises:
            UserError: the name ends in no kind of image that holds one of this size.
            OSError: the file cannot be written; the error names it.
        """
        save_image(Path(path), self.plot(line_width, labels, scores))

    def save_txt(self, path: Path | str, scores: bool = False) -> None:
        """Write a YOLO label a detection, lowest score first, as `label_lines` gives them.

        Raises:
            OSError: the file cannot be written; the error names it.
        """
        height, width = self.image.shape[:2]
        lines = label_lines(self.detections, (height, width), self.track_ids, scores)
        with atomic_text_file(Path(path)) as file:
            file.writelines(f"{line}\n" for line in lines)

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[Detection]:
        boxes = map(tuple, self.boxes_xyxy.tolist())
        ids = [None] * len(self) if self.track_ids is None else self.track_ids.tolist()
        columns = (self.scores.tolist(), self.class_index.tolist(), self.names, ids)
        return (Detection(*row) for row in zip(boxes, *columns, strict=True))

    def __repr__(self) -> str:
        height, width = self.image.shape[:2]
        found = count_by_class(self.class_index, self.class_names)
        return printable(f"Result({self.frame.source}, {width}x{height} px: {found})")

    def to_dict(self) -> dict[str, Any]:
        """Return what was found as plain values, which JSON can hold.

        Where a file name holds bytes that are no UTF-8, they are spelt out.
        """
        height, width = self.image.shape[:2]
        return {
            "source": _utf8(str(self.frame.source)),
            "frame": self.frame.number,
            "seconds": self.frame.seconds,
            "height": height,
            "width": width,
            "detections": [self._record(found) for found in self],
        }

    def _record(self, found: Detection) -> dict[str, Any]:
        record = {**found._asdict(), "box_xyxy": list(found.box_xyxy), "name": _utf8(found.name)}
        if self.track_ids is None:
            del record["track_id"]
        return record

    def to_json(self) -> str:
        """Return `to_dict` as JSON in one line, with characters of all languages as they are."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_supervision(self) -> Any:
        """Return `supervision.Detections`, with class names and track ids.

        Raises:
            UserError: that package is absent.
        """
        return as_supervision(self.detections, self.names, self.track_ids)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame`, a detection a row; UserError without that package.

        Columns: xmin, ymin, xmax, ymax in pixels, confidence, class, name.
        """
        return as_data_frame(self.boxes_xyxy, self.detections, self.names)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
