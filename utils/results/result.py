"""What was found in one image.

Before: `models/inference/image_detector.py`. After: files, drawings, other programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from utils.detections import Detections
from utils.drawing.annotate import draw_boxes
from utils.files.atomic import atomic_text_file
from utils.media.frame import Frame
from utils.results.image_file import save_image
from utils.results.text_lines import label_lines


@dataclass(frozen=True)
class Result:
    """What was found in one image, highest score first."""

    frame: Frame
    detections: Detections  # in pixels of the frame
    class_names: tuple[str, ...]  # of every class that the model knows
    track_ids: np.ndarray | None = None  # (K,) int64, the same for one object in all frames

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
        """Return the image with boxes drawn on it, (H, W, 3) uint8 RGB."""
        texts = [
            " ".join([name] + [f"{score:.2f}"] * scores) * labels
            for name, score in zip(self.names, self.scores.tolist(), strict=True)
        ]
        return draw_boxes(self.image, self.boxes_xyxy, self.class_index, texts, line_width)

    def to_dict(self) -> dict[str, Any]:
        """Return what was found as plain values, which JSON can hold."""
        height, width = self.image.shape[:2]
        columns = [self.boxes_xyxy, self.scores, self.class_index, np.array(self.names, object)]
        keys = ["box_xyxy", "score", "class_index", "name"]
        if self.track_ids is not None:
            columns.append(self.track_ids)
            keys.append("track_id")
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return {
            "source": str(self.frame.source),
            "frame": self.frame.number,
            "seconds": self.frame.seconds,
            "height": height,
            "width": width,
            "detections": [dict(zip(keys, row, strict=True)) for row in rows],
        }

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

    def crop(self) -> list[np.ndarray]:
        """Return the part of the image in each box, (h, w, 3) uint8 RGB."""
        corners = np.round(self.boxes_xyxy).astype(int)
        return [
            self.image[max(0, top - 5) : bottom + 5, max(0, left - 5) : right + 5]
            for left, top, right, bottom in corners.tolist()
        ]
