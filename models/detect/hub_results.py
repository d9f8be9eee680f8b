"""Detection results with the attribute names of the public YOLOv5."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageShow

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.utils.detect.config import DetectConfig
from duet.utils.detect.results.result import CORNERS, Result
from duet.utils.detect.results.run_files import RunFiles
from duet.utils.errors import UserError
from duet.utils.files.run_folder import create_run_folder
from duet.utils.geometry.boxes import xyxy_to_cxcywh
from duet.utils.text import say

SAVE_DIR = "runs/detect/exp"
CENTRE_AND_SIZE = ("xcenter", "ycenter", "width", "height")


class Tables(NamedTuple):
    """One `pandas.DataFrame` per image, for each box format."""

    xyxy: list[Any]
    xyxyn: list[Any]
    xywh: list[Any]
    xywhn: list[Any]


class HubResults:
    """Results of a call.

    Attributes:
        xyxy: per image a CPU tensor (K, 6) float32: left, top, right, bottom in pixels, score,
            class number; highest score first.
        xywh: the same, with centre and size.
        xyxyn, xywhn: the same, as fractions of the image's width and height.
        pred: `xyxy`.
        ims: the images, (H, W, 3) uint8 RGB; with detections drawn after `render`.
        files: their file names, as used by `save`.
        names: class names by number.
        n: number of images.
        t: milliseconds per image for pre-processing, inference and post-processing.
        s: shape of the network input.
    """

    def __init__(
        self, results: Sequence[Result], milliseconds: Sequence[float], shape: Sequence[int]
    ) -> None:
        self._results = list(results)
        self.ims = [result.image for result in results]
        self.files = [str(result.frame.source) for result in results]
        self.names = dict(enumerate(results[0].class_names)) if results else {}
        self.n = len(results)
        self.t = tuple(milliseconds)
        self.s = tuple(shape)
        self.xyxy, self.xyxyn, self.xywh, self.xywhn = (
            [_tensor(result, kind) for result in results] for kind in Tables._fields
        )
        self.pred = self.xyxy

    @property
    def imgs(self) -> list[np.ndarray]:
        """`ims`, by its name until 2022."""
        return self.ims

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[HubResults]:
        return iter(self.tolist())

    def _lines(self) -> list[str]:
        numbered = enumerate(self._results, 1)
        return [f"image {number}/{self.n}: {result.summary()}" for number, result in numbered]

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def print(self) -> None:
        """Print a line per image and the times."""
        before, network, after = self.t
        speed = f"{before:.1f} ms pre-process, {network:.1f} ms inference, {after:.1f} ms NMS"
        say(*self._lines(), f"Speed: {speed} per image at shape {self.s}")

    def render(self, labels: bool = True) -> list[np.ndarray]:
        """Draw the detections into `ims`; return them, (H, W, 3) uint8 RGB.

        Args:
            labels: show class and score on each box.
        """
        self.ims = [result.plot(labels=labels) for result in self._results]
        return self.ims

    def show(self, labels: bool = True) -> None:
        """Show the drawn images in the viewer that Pillow finds.

        Raises:
            UserError: no viewer was found.
        """
        for name, image in zip(self.files, self.render(labels), strict=True):
            if not ImageShow.show(Image.fromarray(image), title=name):
                raise UserError("show(): no image viewer found; use save() to write the images")

    def save(
        self, labels: bool = True, save_dir: str | Path = SAVE_DIR, exist_ok: bool = False
    ) -> None:
        """Write the drawn images to a new folder and print its path.

        Args:
            save_dir: folder; a number is appended if it exists, unless exist_ok.

        Raises:
            UserError: the folder is not writable.
        """
        self._write(save_dir, exist_ok, hide_labels=not labels, hide_conf=not labels)

    def crop(
        self, save: bool = True, save_dir: str | Path = SAVE_DIR, exist_ok: bool = False
    ) -> list[dict[str, Any]]:
        """Return the crop of each box, image by image, lowest score first.

        Args:
            save: also write crops/CLASS/NAME.jpg, to a folder created as by `save`.

        Returns:
            Dicts with box (left, top, right, bottom in pixels), conf, cls, label such as
            "bus 0.51", and im, (h, w, 3) uint8 RGB.
        """
        if save:
            self._write(save_dir, exist_ok, nosave=True, save_crop=True)
        return [
            {
                "box": list(found.box_xyxy),
                "conf": found.score,
                "cls": float(found.class_index),
                "label": f"{found.name} {found.score:.2f}",
                "im": image,
            }
            for result in self._results
            for found, image in reversed(list(zip(result, result.crop(), strict=True)))
        ]

    def _write(self, save_dir: str | Path, exist_ok: bool, **flags: Any) -> None:
        path = Path(save_dir)
        folder = create_run_folder(path.parent, path.name, exist_ok)
        config = DetectConfig(weights=("given",), **flags)
        try:
            with RunFiles(folder, config, list(self.names.values())) as files:
                for result in self._results:
                    files.add(result)
        except OSError as error:
            raise UserError(f"{error.filename or folder}: {error.strerror or error}") from error
        say(f"results in {folder}")

    def tolist(self) -> list[HubResults]:
        """Return one `HubResults` per image."""
        return [HubResults([result], self.t, self.s) for result in self._results]

    def pandas(self) -> Tables:
        """Return tables, for use as `results.pandas().xyxy[0]`; UserError without pandas."""
        return Tables(*([_table(one, kind) for one in self._results] for kind in Tables._fields))


def _boxes(result: Result, kind: str) -> np.ndarray:
    """Return boxes (K, 4) in the format named by a field of `Tables`."""
    boxes = result.boxes_xyxy
    if kind.startswith("xywh"):
        boxes = xyxy_to_cxcywh(boxes)
    if not kind.endswith("n"):
        return boxes
    height, width = result.image.shape[:2]
    return boxes / np.array([width, height, width, height], np.float32)


def _table(result: Result, kind: str) -> Any:
    """Return a table of detections with boxes in the format named by a field."""
    table = result.to_pandas()
    table[list(CORNERS)] = _boxes(result, kind).astype(np.float64)
    if kind.startswith("xywh"):
        return table.rename(columns=dict(zip(CORNERS, CENTRE_AND_SIZE, strict=True)))
    return table


def _tensor(result: Result, kind: str) -> Tensor:
    """Return boxes with scores and class numbers, (K, 6) float32."""
    columns = (_boxes(result, kind), result.scores[:, None], result.class_index[:, None])
    return ops.tensor(np.concatenate(columns, axis=1).astype(np.float32))
