"""The result of each task, by its name."""

from __future__ import annotations

from duet.utils.detect.results.class_result import ClassResult
from duet.utils.detect.results.image_result import ImageResult
from duet.utils.detect.results.result import MaskResult, Result

RESULTS: dict[str, type[ImageResult]] = {
    "detect": Result,
    "detect-anchor-free": Result,
    "segment": MaskResult,
    "classify": ClassResult,
}
