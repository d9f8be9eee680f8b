"""The files of a run of detect.py.

Before: `models/inference/pipeline.py`. After: the run's folder.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import cv2

from utils.cli.detect_config import DetectConfig
from utils.files.atomic import atomic_file
from utils.media.frame import Frame
from utils.results.result import Result


class RunFiles:
    """Stands in for the files part."""

    def __init__(self, folder: Path, config: DetectConfig, class_names: tuple[str, ...]) -> None:
        self.folder = folder

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def reserve(self, frame: Frame, rate: Fraction | None = None) -> Path:
        number = "" if frame.number is None else f"_{frame.number}"
        return self.folder / f"{Path(frame.source).stem}{number}.jpg"

    def add(self, result: Result, place: Path | None = None) -> None:
        _, encoded = cv2.imencode(".jpg", cv2.cvtColor(result.plot(), cv2.COLOR_RGB2BGR))
        with atomic_file(place or self.reserve(result.frame)) as file:
            file.write(encoded.tobytes())
