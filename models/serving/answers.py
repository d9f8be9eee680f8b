"""What was found in an image -> the body of an answer: JSON, or the image with it drawn.

Before: `worker.py`. After: the front process sends it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from utils.results.image_file import encode_image, suffix_that_holds
from utils.results.image_result import ImageResult
from utils.serve.messages import MEDIA_TYPES

SUFFIXES = {"jpeg": ".jpg", "png": ".png"}
KINDS = {suffix: kind for kind, suffix in SUFFIXES.items()}


def picture_of(result: ImageResult, answer: str) -> tuple[bytes, str]:
    """Return the image with what was found drawn on it, as a file, and its media type.

    answer: "jpeg", which becomes "png" if an image is too large for it, or "png".
    """
    suffix = suffix_that_holds(SUFFIXES[answer], result.image)
    return encode_image(suffix, result.plot()), MEDIA_TYPES[KINDS[suffix]]


def json_of(
    result: ImageResult,
    model: str,
    milliseconds: Mapping[str, float],
    network_boxes: np.ndarray | None = None,
) -> bytes:
    """Return what was found as JSON in UTF-8.

    Args:
        model: its name.
        network_boxes: (K, 4) of what was found, told as `network_xyxy`; None: they are not asked
            for.
    """
    records = result.drawable_records()
    if network_boxes is not None:
        for record, box in zip(records["detections"], network_boxes.tolist(), strict=True):
            record["network_xyxy"] = box
    height, width = result.size
    answer = {
        "model": model,
        "image": {"width": width, "height": height},
        **records,
        "milliseconds": milliseconds,
    }
    return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()
