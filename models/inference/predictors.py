"""Predictors: a model, and wrappers for half precision, augmentation and ensembles.

`predictor.py` chooses among them.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from duet import backend
from duet.backend import amp, nn, ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.models.detector import Detector, gains_from_channels_last, images_to_tensor
from duet.models.heads.base import Candidates, Head, Pass
from duet.utils.errors import UserError
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.text import count

HALF = "float16"
Raw = Any  # what a predictor returns for its own `decode_above`
FILL = 0.447  # padding of scaled images, as in the evaluation of the public weights


class Predictor(Protocol):
    """Interface of a model for inference; `Detector` implements it."""

    @property
    def head(self) -> Head:
        """The head, which defines the task and finishes predictions."""

    @property
    def stride(self) -> int:
        """Image sides must be a multiple of this many pixels."""

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """(height, width) required for every image; None: any multiples of the stride."""

    @property
    def takes_arrays(self) -> bool:
        """Whether images are passed as NumPy arrays: the network does not run in the backend."""

    def __call__(self, *inputs: Any) -> Raw:
        """Queue the forward pass for (B, 3, H, W) in [0, 1]; return input for `decode_above`.

        If `takes_arrays`, the input is an array (B, 3, H, W) uint8.
        """

    def decode_above(self, raw: Raw, settings: SuppressionSettings) -> list[np.ndarray]:
        """Return each image's candidates; see `Head.decode_above`."""

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError if images (B, 3, H, W) need too much memory; see `Detector`."""


def network_input(
    predictor: Predictor, images: np.ndarray, device: str, channels_last: bool | None = None
) -> Any:
    """Convert images (B, 3, H, W) uint8 to a predictor's input; see `images_to_tensor`."""
    if predictor.takes_arrays:
        return images
    return images_to_tensor(images, device, channels_last=channels_last)


class PredictorAround:
    def __init__(self, model: Predictor) -> None:
        self.model, self.head, self.stride = model, model.head, model.stride
        self.fixed_size, self.takes_arrays = model.fixed_size, model.takes_arrays

    def __call__(self, images: Any) -> Raw:
        return self.model(images)

    def decode_above(self, raw: Raw, settings: SuppressionSettings) -> list[Candidates]:
        return self.model.decode_above(raw, settings)

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        self.model.require_memory(shape, trains)


class HalfPrecision(PredictorAround):
    """Model with convolutions in half precision and float32 outputs.

    Boxes are thus decoded in float32, as NMS requires.
    """

    def __init__(
        self, model: Detector, device: str, dtype: str = HALF, channels_last: bool | None = None
    ) -> None:
        """Copy a model with float32 weights; dtype is one of `amp.supported`.

        channels_last: layout of the maps; None for the faster one on the device.
        """
        copied = nn.frozen_copy(model)
        super().__init__(copied)
        self.device, self.dtype = device, dtype
        gains = gains_from_channels_last(device, dtype)
        self.channels_last = gains if channels_last is None else channels_last
        amp.cast_for_good(copied, dtype)
        if self.channels_last:
            nn.lay_channels_last(copied)

    def __call__(self, images: Tensor) -> tuple[Tensor, ...]:
        if self.channels_last:
            images = ops.channels_last(images)
        with amp.autocast(self.device, self.dtype):
            raw = self.model(images)
        return tuple(ops.cast(level, "float32") for level in raw)


def in_precision(model: Detector, device: str, dtype: str, channels_last: bool) -> Predictor:
    """Wrap a float32 model to compute in a dtype; "float32" returns it unchanged."""
    return model if dtype == "float32" else HalfPrecision(model, device, dtype, channels_last)


def why_not_half(device: str) -> str:
    """Return why --half falls back to float32 on a device; "" if it does not."""
    if device == CPU:
        return "using float32 on a CPU"
    if HALF not in amp.supported(device):
        return f"using float32: the {backend.use()} backend has no half precision here"
    return ""


class OneClass(PredictorAround):
    """Model whose classes are merged into one, for val.py --single-cls.

    The head can finish rows with any number of classes.
    """

    def decode_above(self, raw: Raw, settings: SuppressionSettings) -> list[Candidates]:
        images = super().decode_above(raw, settings)
        return [self.head.of_best_class(rows) for rows in images]


class Augmented(PredictorAround):
    """Model with test-time augmentation: several scaled and mirrored views per image.

    The head defines the views and combines their results.
    """

    def __init__(self, model: Predictor) -> None:
        """Raise UserError for exported files and tasks without augmented passes."""
        super().__init__(model)
        if self.takes_arrays:
            raise UserError(
                "--augment: not supported for exported files; omit it, or use the weights that the "
                "file was exported from"
            )
        if not self.head.passes:
            raise UserError(
                f"--augment: not supported for the task {self.head.task.name}: results in several "
                "image sizes cannot be combined; omit it"
            )

    def __call__(self, images: Tensor) -> tuple[tuple[Raw, ...], int]:
        """Return the maps of each pass, and the width of the images."""
        maps = tuple(self.model(view(images, one, self.stride)) for one in self.head.passes)
        return maps, images.shape[3]

    def decode_above(
        self, raw: tuple[tuple[Raw, ...], int], settings: SuppressionSettings
    ) -> list[Candidates]:
        return self.head.join_passes(*raw, settings)


def view(images: Tensor, one: Pass, stride: int) -> Tensor:
    """Return the view of images (B, 3, H, W) for a pass, with sides divisible by the stride.

    Images are mirrored before padding, so that padding is always on the right.
    """
    if one.mirrored:
        images = ops.flip_columns(images)
    if one.scale == 1:
        return images
    sides = [side * one.scale for side in images.shape[2:]]
    scaled = ops.resize_bilinear(images, *(int(side) for side in sides))
    height, width = (math.ceil(side / stride) * stride for side in sides)
    return ops.pad_to(scaled, height, width, FILL)


class Ensemble:
    """Models with the same task and number of classes, of any sizes and strides.

    All predict on the same images, and NMS selects among all boxes.

    Attributes:
        head: the first member's head, which finishes all predictions.
    """

    def __init__(self, members: Sequence[Predictor], names: Sequence[str]) -> None:
        """Combine members; names are their weights files, for messages.

        Raises:
            UserError: tasks or numbers of classes differ, or rows cannot be combined.
        """
        self.members, self.names = tuple(members), tuple(names)
        self.head = members[0].head
        self.stride = math.lcm(*(member.stride for member in members))
        self.takes_arrays = all(member.takes_arrays for member in members)
        self.fixed_size: tuple[int, int] | None = None
        for member, name in zip(members, names, strict=True):
            self._join(member, name)

    def _join(self, member: Predictor, name: str) -> None:
        first, head, size = self.head, member.head, member.fixed_size
        joins = member is self.members[0] or head.joins_models and first.joins_models
        if not joins:
            raise UserError(
                f"--weights {name} (task {head.task.name}) cannot be combined with "
                f"{self.names[0]} (task {first.task.name}); give one file, or several detection "
                "models"
            )
        if head.num_classes != first.num_classes:
            raise UserError(
                f"--weights {name} has {count(head.num_classes, 'class', 'classes')}, "
                f"{self.names[0]} has {first.num_classes}; combined weights need the same number"
            )
        if size is None:
            return
        if size != (self.fixed_size or size) or any(side % self.stride for side in size):
            raise UserError(
                f"--weights {name} accepts only images of {size[0]} x {size[1]} px, which does not "
                f"match {self.names[0]}; combined files need a common size; export.py --dynamic "
                "allows any"
            )
        self.fixed_size = size

    def __call__(self, images: Any) -> list[Raw]:
        return [member(images) for member in self.members]

    def decode_above(self, raw: Sequence[Raw], settings: SuppressionSettings) -> list[np.ndarray]:
        rows = [
            member.decode_above(predicted, settings)
            for member, predicted in zip(self.members, raw, strict=True)
        ]
        return [np.concatenate(image) for image in zip(*rows, strict=True)]

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        for member in self.members:
            member.require_memory(shape, trains)
