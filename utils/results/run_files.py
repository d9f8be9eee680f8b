"""The files of a run of detect.py.

Before: `models/inference/pipeline.py`. After: the run's folder.
"""

from __future__ import annotations

from pathlib import Path

import cv2

from utils.cli.detect_config import DetectConfig
from utils.drawing.annotate import draw_boxes
from utils.files.atomic import atomic_file
from utils.results.result import Result


class RunFiles:
    """Stands in for the files part."""

    def __init__(self, folder: Path, config: DetectConfig, class_names: tuple[str, ...]) -> None:
        self.folder = folder

    def __enter__(self) -> RunFiles:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def add(self, result: Result) -> None:
        labels = [
            f"{name} {score:.2f}"
            for name, score in zip(result.names, result.scores.tolist(), strict=True)
        ]
        drawn = draw_boxes(result.image, result.boxes_xyxy, result.class_index, labels)
        _, encoded = cv2.imencode(".jpg", cv2.cvtColor(drawn, cv2.COLOR_RGB2BGR))
        with atomic_file(self.folder / f"{Path(result.frame.source).stem}.jpg") as file:
            file.write(encoded.tobytes())


def summary(result: Result) -> str:
    return f"{len(result.scores)} found"
