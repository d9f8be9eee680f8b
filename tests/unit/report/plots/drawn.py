"""What the tests of plots share: fonts in place of the machine's, results, figures unsaved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from duet.utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from tests.coco_reference import detections, ground_truth

NAMES = ["cell", r"$\bad$ formula", "红细胞"]


def read_rgb(path: Path) -> np.ndarray:
    return cv2.imread(str(path))[:, :, ::-1].astype(int)


def result_of(class_names: list[str], objects: list[int] | None = None) -> EvaluationResult:
    """A result of images with one object each, found with score 0.5: one image a class, or so
    many as `objects` says of each.
    """
    box = [[0, 0, 9, 9]]
    evaluator = DetectionEvaluator(class_names)
    numbers = [1] * len(class_names) if objects is None else objects
    for place, index in enumerate(np.repeat(np.arange(len(class_names)), numbers)):
        evaluator.add(place, detections(box, [0.5], [index]), ground_truth([index], box))
    return evaluator.result()


def kept_figures(monkeypatch: Any, module: Any) -> dict[str, Any]:
    """Have a module keep its figures by file name in place of writing them."""
    kept: dict[str, Any] = {}
    monkeypatch.setattr(
        module, "save_figure", lambda figure, path, **_: kept.update({path.name: figure})
    )
    return kept


def texts_of(artists: Any) -> list[str]:
    return [text.get_text() for text in artists]
