"""Augmentation strengths and loss gains, as set by hyper-parameters."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from duet.utils.errors import UserError

FEW_IMAGES = 2000  # for training; with more, the public recipe is as good as --hyp small
NOMINAL_CLASSES, NOMINAL_LEVELS, NOMINAL_IMAGE_SIZE = 80, 3, 640
_UPPER_LIMITS = {"degrees": 180.0, "shear": 80.0, "perspective": 0.001}  # all others: 1


@dataclass(frozen=True)
class AugmentConfig:
    """Augmentation strengths by their public names; the defaults have no effect."""

    hsv_h: float = 0.0  # hue factor, 1 +- this; likewise saturation and value
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
    copy_paste: float = 0.0  # fraction of a mosaic's objects with polygons that are pasted again
    mixup: float = 0.0  # fraction of mosaics mixed with another one
    transforms: float = 0.0  # probability of each of --albumentations

    def __post_init__(self) -> None:
        for name in STRENGTHS:
            value, limit = getattr(self, name), _UPPER_LIMITS.get(name, 1.0)
            if not 0 <= value <= limit:
                raise UserError(f"{name}: {value}; accepted: a number from 0 to {limit:g}")

    def without_effect(self) -> tuple[str, ...]:
        """Return the strengths above 0 that need mosaics, if there are no mosaics."""
        return ("mixup",) if self.mixup and not self.mosaic else ()


STRENGTHS = tuple(
    field.name for field in dataclasses.fields(AugmentConfig) if field.name != "transforms"
)


@dataclass(frozen=True)
class LossGains:
    """The weights of the loss terms, for one number of levels and classes and one image size."""

    box: float
    objectness: float
    classification: float
    objectness_positive: float
    classification_positive: float
    max_side_ratio: float
    focal_gamma: float
    distribution: float = 1.5
    class_weights: tuple[float, ...] = ()  # (C,); none: all 1

    def scaled(self, num_levels: int, num_classes: int, image_size: int) -> LossGains:
        """Scale the hyper-parameters' gains, which are for 3 levels, 80 classes and 640 px."""
        levels = NOMINAL_LEVELS / num_levels
        return dataclasses.replace(
            self,
            box=self.box * levels,
            objectness=self.objectness * (image_size / NOMINAL_IMAGE_SIZE) ** 2 * levels,
            classification=self.classification * num_classes / NOMINAL_CLASSES * levels,
        )
