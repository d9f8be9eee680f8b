"""Answers of a server of models, for tests of its page."""

from __future__ import annotations

import cv2
import numpy as np

from tests.serve_stand_in import Told, as_json
from utils.screen.text import printable

HOSTILE = "<img src=x onerror=document.title='hit'>\u202e\"'&amp;"
SHOWN = printable(HOSTILE)
NAMES = ["person", "bus", HOSTILE, "étoile", "三角"]
MODELS = [
    {"name": "day", "task": "detect", "class_names": NAMES, "runs_in": "ONNX Runtime"},
    {"name": HOSTILE, "task": "segment", "class_names": NAMES, "runs_in": "PyTorch"},
    {"name": "kinds", "task": "classify", "class_names": NAMES, "runs_in": "PyTorch"},
]


def detection(box, score, index=0, **more):
    return {
        "box_xyxy": box, "score": score, "class_index": index, "name": NAMES[index],
        "network_xyxy": box, **more,
    }  # fmt: skip


FOUND = [
    detection([10, 20, 110, 170], 0.9),
    detection([130, 30, 190, 90], 0.8, 1),
    detection([120, 100, 180, 160], 0.6, 2),
    detection([20, 150, 60, 190], 0.4, 4),
    detection([11, 21, 111, 171], 0.3),  # the first one again
]


def answering(detections, width=200, height=200, **more):
    """Return what answers with these detections, best first, and a grey image for an image."""
    size = {"width": width, "height": height}
    milliseconds = {"wait": 0.1, "decode": 1.5, "network": 20.25, "finish": 0.5, "total": 22.35}

    def answer(asked):
        if asked.accept != "application/json":
            _, content = cv2.imencode(".png", np.full((height, width, 3), (10, 200, 30), np.uint8))
            return Told(content.tobytes(), media_type="image/png")
        found = {"detections": detections, **more}
        return as_json({"model": "day", "image": size, **found, "milliseconds": milliseconds})

    return answer


def write_image(path, height=200, width=200):
    cv2.imwrite(str(path), np.full((height, width, 3), 90, np.uint8))
    return path
