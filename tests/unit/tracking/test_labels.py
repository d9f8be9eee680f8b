"""The id of an object in its drawn label."""

from __future__ import annotations

import numpy as np
import pytest

from utils.detections import Detections
from utils.media.frame import Frame
from utils.results import result
from utils.results.result import Result

FOUND = Detections(
    np.array([[2, 2, 30, 30], [40, 2, 60, 30]], np.float32),
    np.array([0.871, 0.5], np.float32),
    np.array([0, 1]),
)


def labels_of(monkeypatch: pytest.MonkeyPatch, ids: list[int] | None, **options: bool) -> list[str]:
    """What is written on the boxes."""
    texts: list[str] = []
    monkeypatch.setattr(result, "draw_boxes", lambda *given: texts.extend(given[3]))
    track_ids = None if ids is None else np.array(ids)
    frame = Frame(np.zeros((64, 64, 3), np.uint8), "video", 0, 0.0)
    Result(frame, FOUND, ("person", "tie"), track_ids).plot(**options)
    return texts


def test_a_label_begins_with_the_id(monkeypatch):
    assert labels_of(monkeypatch, [7, 12]) == ["7 person 0.87", "12 tie 0.50"]
    assert labels_of(monkeypatch, [7, 12], scores=False) == ["7 person", "12 tie"]


def test_what_has_no_id_has_none_in_its_label(monkeypatch):
    assert labels_of(monkeypatch, [7, -1]) == ["7 person 0.87", "tie 0.50"]
    assert labels_of(monkeypatch, None) == ["person 0.87", "tie 0.50"]
    assert labels_of(monkeypatch, [7, 12], labels=False) == ["", ""]
