"""An audit of two small images with a finding of each kind, and names that are no plain text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from tests.tiny_weights import noise
from utils.data.audit.findings import KINDS, NOTHING, Findings
from utils.data.audit.page import Audit
from utils.data.sources.samples import Sample
from utils.detections import Detections, GroundTruth

HOSTILE = '<b>dog\x1b[2J, "x"'
CLASS_NAMES = ("cat", HOSTILE)
HEIGHT, WIDTH = 80, 120
LABELS_CXCYWH = np.array([[0.25, 0.5, 0.25, 0.5], [0.75, 0.25, 0.5, 0.25]], np.float32)
LABELS_XYXY = [[15, 20, 45, 60], [60, 10, 120, 30]]
SEEN_XYXY = [[10, 20, 30, 50], [15, 20, 45, 60], [64, 10, 120, 60]]


def detections(*rows: tuple[float, int, Sequence[float]]) -> Detections:
    """Return detections of (score, class, xyxy) each."""
    return Detections(
        np.array([box for *_, box in rows], np.float32).reshape(-1, 4),
        np.array([score for score, *_ in rows], np.float32),
        np.array([kind for _, kind, _ in rows], np.int64),
    )


def labels(*rows: tuple[int, Sequence[float]]) -> GroundTruth:
    """Return labels of (class, xyxy) each."""
    return GroundTruth(
        np.array([kind for kind, _ in rows], np.int64),
        np.array([box for _, box in rows], np.float64).reshape(-1, 4),
    )


def write_samples(folder: Path) -> list[Sample]:
    """Write two images with two labels each, one of each class."""
    samples = []
    for number, name in enumerate(("a, b.png", "<i>ü.png")):
        path = folder / name
        path.write_bytes(cv2.imencode(".png", noise(HEIGHT, WIDTH, number))[1].tobytes())
        samples.append(Sample(path, HEIGHT, WIDTH, np.array([0, 1]), LABELS_CXCYWH))
    return samples


def small_findings() -> Findings:
    """Return a finding of each kind, in the order of KINDS."""
    seen = np.full((4, 4), np.nan)
    seen[[0, 2, 3]] = SEEN_XYXY
    return Findings(
        image_index=np.array([0, 1, 0, 1]),
        kind=np.arange(len(KINDS)),
        scores=np.array([0.75, 0.5, 0.625, 0.25]),
        label_index=np.array([NOTHING, 1, 0, 1]),
        class_index=np.array([0, NOTHING, 1, 1]),
        confidence=np.array([0.75, np.nan, 0.875, 0.5]),
        boxes_xyxy=seen,
    )


def small_audit(folder: Path) -> Audit:
    """Write the images; return all that a page tells of them."""
    return Audit(
        "<u>data", "val", ("best.pt",), {"mAP50": 0.5}, write_samples(folder), CLASS_NAMES,
        small_findings(),
    )  # fmt: skip
