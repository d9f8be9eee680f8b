"""The result of each task, by its name."""

from __future__ import annotations

from utils.detect.results.class_result import ClassResult
from utils.detect.results.image_result import ImageResult
from utils.detect.results.result import MaskResult, Result

RESULTS: dict[str, type[ImageResult]] = {
    "detect": Result,
    "detect-anchor-free": Result,
    "segment": MaskResult,
    "classify": ClassResult,
}
