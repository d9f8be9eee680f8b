"""The result for one image, for models of any task."""

import csv
import io
import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from duet.utils.data.image.image_file import encode_image, save_image
from duet.utils.detect.media.source import Frame
from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_text_file
from duet.utils.optional import import_optional
from duet.utils.text import csv_cell, printable

Records = dict[str, list[Any]]  # JSON values by what they say of each detection


@dataclass(frozen=True, eq=False, repr=False)
class ImageResult(Sequence[Any]):
    """The result for one image: a sequence of plain values, highest score first."""

    frame: Frame
    found: Any  # returned by `Head.finish`
    class_names: tuple[str, ...]  # of every class that the model knows
    # (K,) int64, -1: none; None: not tracked
    track_ids: np.ndarray | None = None
    heatmap: np.ndarray | None = None  # (H, W) float32 in [0, 1]; None without visualize

    @property
    def image(self) -> np.ndarray:
        """(H, W, 3) uint8 RGB, as it was read."""
        return self.frame.image

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of the image, pixels."""
        return self.image.shape[0], self.image.shape[1]

    @property
    @abstractmethod
    def scores(self) -> np.ndarray:
        """(K,) float32 in (0, 1]."""

    @property
    @abstractmethod
    def class_index(self) -> np.ndarray:
        """(K,) int64."""

    @cached_property
    def names(self) -> list[str]:
        return [self.class_names[index] for index in self.class_index.tolist()]

    @property
    def counted(self) -> Sequence[str]:
        """The class names that the last lines of a run count."""
        return self.names

    @abstractmethod
    def plot(
        self, line_width: int | None = None, labels: bool = True, scores: bool = True
    ) -> np.ndarray:
        """Return a copy of the image, (H, W, 3) uint8 RGB, with the result drawn.

        Args:
            line_width: pixels; None to derive it from the image size.
            labels: write class and track number on each box, such as "7 person 0.87".
            scores: include scores in the labels.
        """

    def plot_heatmap(self) -> np.ndarray:
        """Return the image with its heat map over it, (H, W, 3) uint8 RGB.

        Raises:
            UserError: it was made without visualize.
        """
        if self.heatmap is None:
            raise UserError("plot_heatmap(): call the detector with visualize=True")
        colours = cv2.applyColorMap((self.heatmap * 255).astype(np.uint8), cv2.COLORMAP_TURBO)
        return cv2.addWeighted(self.image, 0.5, colours[..., ::-1], 0.5, 0)

    def _repr_png_(self) -> bytes:
        return encode_image(".png", self.plot())

    @abstractmethod
    def crop(self) -> list[np.ndarray]:
        """Return the content of each box, with a margin, (h, w, 3) uint8 RGB; else UserError."""

    @abstractmethod
    def words(self) -> str:
        """Return a summary in one line, such as "2 persons, 1 bus"."""

    def summary(self, input_size: tuple[int, int] | None = None) -> str:
        """Return the input's (or the image's) size and a summary, "224x320 1 person, 3 chairs"."""
        height, width = input_size or self.size
        return f"{height}x{width} {printable(self.words())}"

    @abstractmethod
    def text_lines(self, scores: bool = False) -> list[str]:
        """Return the lines of a label file of the public YOLOv5; [] for no file."""

    @abstractmethod
    def records(self) -> Records:
        """Return the result as plain values by kind."""

    def drawable_records(self) -> Records:
        return self.records()

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with a row per item; UserError without pandas.

        Columns: xmin, ymin, xmax, ymax in pixels if it has boxes, confidence, class, name.
        """
        pandas = import_optional("pandas", "to_pandas")
        return pandas.DataFrame(
            {
                **self._box_columns(),
                "confidence": self.scores.astype(np.float64),
                "class": self.class_index,
                "name": pandas.Series(self.names, dtype=object),
            }
        )

    def _box_columns(self) -> dict[str, np.ndarray]:
        return {}

    def table_lines(self, image_name: str) -> str:
        """Return the CSV lines of the public YOLOv5: image, class, score, track; lowest first."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for name, score, *last in reversed(self._table_rows()):
            writer.writerow([csv_cell(image_name), csv_cell(name), f"{score:.2f}", *last])
        return text.getvalue()

    def _table_rows(self) -> list[Sequence[Any]]:
        return list(zip(self.names, self.scores.tolist(), strict=True))

    def save(self, path: Path | str, **options: Any) -> None:
        """Write the image drawn by `plot` with these options; UserError for a wrong suffix."""
        save_image(Path(path), self.plot(**options))

    def save_txt(self, path: Path | str, scores: bool = False) -> None:
        with atomic_text_file(Path(path), synced=False) as file:
            file.writelines(f"{line}\n" for line in self.text_lines(scores))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values; bytes of names that are not UTF-8 are escaped."""
        height, width = self.size
        return {
            "source": as_utf8(str(self.frame.source)),
            "frame": self.frame.number,
            "seconds": self.frame.seconds,
            "height": height,
            "width": width,
            **self.records(),
        }

    def to_json(self) -> str:
        return json_line(self.to_dict())

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        return list(self)[index]

    def __repr__(self) -> str:
        height, width = self.size
        name = type(self).__name__
        return printable(f"{name}({self.frame.source}, {width}x{height} px: {self.words()})")


def json_line(value: object) -> str:
    """Return a printable line of JSON, in ASCII if it has unprintable characters."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else json.dumps(value, allow_nan=False)


def as_utf8(text: str) -> str:
    """Escape bytes of a text that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
