"""How strongly training samples are changed: hyper-parameters, checked.

Before: `utils/cli/hyperparameters.py`. After: `sample.py`, which draws within them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from utils.errors import UserError

_UPPER_LIMITS = {"degrees": 180.0, "shear": 80.0, "perspective": 0.001}  # all others: 1


@dataclass(frozen=True)
class AugmentConfig:
    """Strengths by their public names; the defaults change nothing."""

    hsv_h: float = 0.0  # hue factor is 1 +- this; likewise saturation and value
    hsv_s: float = 0.0
    hsv_v: float = 0.0
    degrees: float = 0.0  # rotation, +- degrees
    translate: float = 0.0  # +- fraction of the image
    scale: float = 0.0  # zoom, 1 +- this
    shear: float = 0.0  # +- degrees
    perspective: float = 0.0  # +- change of the perspective divisor per pixel
    flipud: float = 0.0  # probability
    fliplr: float = 0.0  # probability
    mosaic: float = 0.0  # probability
    copy_paste: float = 0.0  # part of a mosaic's objects that is pasted a second time

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            limit = _UPPER_LIMITS.get(name, 1.0)
            if not 0 <= value <= limit:
                raise UserError(f"{name}: {value}; a number from 0 to {limit:g} is needed")
