"""Lines that the examples of docs/examples/export print, held against what detect.py finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import detect


class Found(NamedTuple):
    """An object: x1, y1, x2, y2 in pixels of the picture."""

    label: str
    score: float
    box_xyxy: tuple[float, ...]


def parse_lines(text: str) -> list[Found]:
    """Read lines of `label score x1 y1 x2 y2`; a label may have spaces."""
    found = []
    for line in text.splitlines():
        label, *numbers = line.rsplit(" ", 5)
        score, *box = map(float, numbers)
        found.append(Found(label, score, tuple(box)))
    return found


def found_by_detect(
    weights: Path, folder: Path, project: Path, size: int
) -> dict[str, list[Found]]:
    """What detect.py finds in the pictures of a folder, by the stem of their names."""
    flags = ("--img", size, "--device", "cpu", "--nosave", "--save-json", "--project", project)
    words = ["detect.py", "--weights", weights, "--source", folder / "*.png", *flags]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", list(map(str, words)))
        detect.main()
    (file,) = project.glob("*/detections.json")
    return {
        image["name"]: [
            Found(each["name"], each["score"], tuple(each["box_xyxy"]))
            for each in image["detections"]
        ]
        for image in json.loads(file.read_text(encoding="utf-8"))["images"]
    }


def assert_same(
    found: list[Found], expected: list[Found], score: float = 1e-3, iou: float = 0.99
) -> None:
    """As many, the best first, of the same classes, with scores and boxes that agree."""
    assert [each.score for each in found] == sorted((e.score for e in found), reverse=True)
    assert sorted(each.label for each in found) == sorted(each.label for each in expected)
    left = list(found)
    for one in expected:
        same = max(left, key=lambda other: (other.label == one.label, iou_of(one, other)))
        left.remove(same)
        assert same.label == one.label
        assert iou_of(one, same) > iou, (one, same)
        assert abs(one.score - same.score) < score, (one, same)


def iou_of(one: Found, other: Found) -> float:
    a, b = np.array(one.box_xyxy), np.array(other.box_xyxy)
    common = np.prod(np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None))
    return float(common / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common))
