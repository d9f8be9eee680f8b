"""Which hyper-parameters a search changes, and how far.

The ranges are those of the public YOLOv5's evolution, which leaves iou_t, perspective and fliplr
alone; it has no randaugment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

from utils.cli.hyperparameters import Hyperparameters


class Range(NamedTuple):
    """The lowest and the highest value of a hyper-parameter in a search."""

    low: float
    high: float
    logarithmic: bool = False


RANGES = {
    "lr0": Range(1e-5, 1e-1, True),
    "lrf": Range(0.01, 1, True),
    "momentum": Range(0.6, 0.98),
    "weight_decay": Range(0, 0.001),
    "warmup_epochs": Range(0, 5),
    "warmup_momentum": Range(0, 0.95),
    "warmup_bias_lr": Range(0, 0.2),
    "box": Range(0.02, 0.2, True),
    "cls": Range(0.2, 4, True),
    "cls_pw": Range(0.5, 2, True),
    "obj": Range(0.2, 4, True),
    "obj_pw": Range(0.5, 2, True),
    "anchor_t": Range(2, 8, True),
    "anchors": Range(2, 10),
    "fl_gamma": Range(0, 2),
    "hsv_h": Range(0, 0.1),
    "hsv_s": Range(0, 0.9),
    "hsv_v": Range(0, 0.9),
    "degrees": Range(0, 45),
    "translate": Range(0, 0.9),
    "scale": Range(0, 0.9),
    "shear": Range(0, 10),
    "flipud": Range(0, 1),
    "mosaic": Range(0, 1),
    "mixup": Range(0, 1),
    "copy_paste": Range(0, 1),
    "randaugment": Range(0, 1),
}


def searched_ranges(hyp: Hyperparameters, unused: Collection[str] = ()) -> dict[str, Range]:
    """Return the ranges of what a search changes, each wide enough for the value to begin with.

    What is 0 to begin with is off and stays so.

    Args:
        unused: what changes nothing; as `Task.unused`.
    """
    values = dataclasses.asdict(hyp)
    return {
        name: found._replace(low=min(found.low, values[name]), high=max(found.high, values[name]))
        for name, found in RANGES.items()
        if values[name] > 0 and name not in unused
    }
