"""The arguments of a call from another program -> the settings that detect.py's flags make."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from utils.cli.detection_config import require_known
from utils.detect.config import DetectConfig
from utils.errors import UserError, brief


def call_config(
    num_classes: int,
    size: int | None = None,
    conf: float = DetectConfig.confidence_threshold,
    iou: float = DetectConfig.iou_threshold,
    max_det: int = DetectConfig.max_detections,
    classes: Iterable[int] | None = None,
    agnostic: bool = False,
    augment: bool = False,
    tile: int = DetectConfig.tile,
    overlap: float | None = DetectConfig.overlap,
    batch: int = DetectConfig.batch_size,
    track: bool = False,
) -> DetectConfig:
    """Return settings; UserError names an argument, or its flag, with a wrong value.

    Args:
        num_classes: how many the model knows.
        size: None for that of the model's task.
    """
    return DetectConfig(
        weights=("given",),
        image_size=DetectConfig.image_size if size is None else whole("size", size),
        is_size_given=size is not None,
        confidence_threshold=_number("conf", conf),
        iou_threshold=_number("iou", iou),
        max_detections=whole("max_det", max_det),
        classes=None if classes is None else _known(classes, num_classes),
        class_agnostic=bool(agnostic),
        augment=bool(augment),
        tile=whole("tile", tile),
        overlap=None if overlap is None else _number("overlap", overlap),
        batch_size=whole("batch", batch),
        track=track,
    )


def _known(classes: Any, num_classes: int) -> tuple[int, ...]:
    """Return class numbers; UserError for one that the model does not know."""
    if not isinstance(classes, Iterable):
        raise UserError(f"classes {brief(classes)}; a list of class numbers is needed")
    numbers = tuple(whole("classes", number) for number in classes)
    require_known("classes", numbers, num_classes)
    return numbers


def whole(name: str, value: Any) -> int:
    """Return a whole number; UserError names the argument if it is not one."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise UserError(f"{name} {brief(value)}; a whole number is needed")
    return int(value)


def _number(name: str, value: Any) -> float:
    try:
        return float(value if isinstance(value, Real) else "")
    except (ValueError, OverflowError):
        raise UserError(f"{name} {brief(value)}; a number is needed") from None
