"""What predicts: a model, or others around it: in half precision, augmented, several together.

`predictor.py` chooses among them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from duet import backend
from duet.backend import amp, ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.models.heads.base import Head, Pass
from duet.models.inputs import gains_from_channels_last, images_to_tensor
from duet.utils.errors import UserError
from duet.utils.text import count

HALF = "float16"
FILL = 0.447  # around a scaled image, as the public weights were measured with


class Predictor(Protocol):
    """A model, as code that only detects uses it; `Detector` is one."""

    @property
    def head(self) -> Head:
        """The head whose task it is, and which finishes what it predicts."""

    @property
    def stride(self) -> int:
        """Pixels that image sides must be a multiple of."""

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """(height, width) that every image must have; None: any multiples of the stride."""

    @property
    def takes_arrays(self) -> bool:
        """Whether images come as NumPy arrays: the network is in no tensors of the backend."""

    def __call__(self, *inputs: Any) -> Any:
        """Queue the work on one tensor (B, 3, H, W) in [0, 1]; return what `decode_above` takes.

        If `takes_arrays`, it is an array (B, 3, H, W) uint8.
        """

    def decode_above(self, raw: Any, confidence_threshold: float) -> list[np.ndarray]:
        """Return of each image the rows that may count as found, as `Head.decode_above` does."""

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError if images (B, 3, H, W) take too much, as `Detector.require_memory`."""


def network_input(
    predictor: Predictor, images: np.ndarray, device: str, channels_last: bool | None = None
) -> Any:
    """Return images (B, 3, H, W) uint8 as a predictor takes them; the rest as `images_to_tensor`"""
    if predictor.takes_arrays:
        return images
    return images_to_tensor(images, device, channels_last=channels_last)


class PredictorAround:
    """A predictor that does all as another one does; a subclass changes some of it."""

    def __init__(self, model: Predictor) -> None:
        self.model, self.head, self.stride = model, model.head, model.stride
        self.fixed_size, self.takes_arrays = model.fixed_size, model.takes_arrays

    def __call__(self, images: Any) -> Any:
        return self.model(images)

    def decode_above(self, raw: Any, confidence_threshold: float) -> list[Any]:
        """Return of each image the rows that may count as found."""
        return self.model.decode_above(raw, confidence_threshold)

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError if images (B, 3, H, W) take too much."""
        self.model.require_memory(shape, trains)


class HalfPrecision(PredictorAround):
    """One model whose convolutions compute in half precision; its maps come back in float32.

    So boxes are decoded in float32, as NMS needs them.
    """

    def __init__(
        self, model: Predictor, device: str, dtype: str = HALF, channels_last: bool | None = None
    ) -> None:
        """Take a model of float32 weights on a device, and a dtype of `amp.supported`.

        channels_last: whether maps have that layout; None for the one that the device gains from.
        """
        super().__init__(model)
        self.device, self.dtype = device, dtype
        gains = gains_from_channels_last(device, dtype)
        self.channels_last = gains if channels_last is None else channels_last

    def __call__(self, images: Tensor) -> tuple[Tensor, ...]:
        if self.channels_last:
            images = ops.channels_last(images)
        with amp.autocast(self.device, self.dtype):
            raw = self.model(images)
        return tuple(ops.cast(level, "float32") for level in raw)


def why_not_half(device: str) -> str:
    """Return why --half means float32 on a device; "" where it means half precision."""
    if device == CPU:
        return "a CPU detects in float32"
    if HALF not in amp.supported(device):
        return f"the {backend.use()} backend detects in float32"
    return ""


class OneClass(PredictorAround):
    """A model whose classes are not told apart, as val.py --single-cls scores it.

    All that it finds counts as one class; its head finishes rows of any number of classes.
    """

    def decode_above(self, raw: Any, confidence_threshold: float) -> list[Any]:
        """Return rows with only the class score of the best class."""
        images = super().decode_above(raw, confidence_threshold)
        return [self.head.of_best_class(rows) for rows in images]


class Augmented(PredictorAround):
    """One model that sees each image several times, in other sizes and mirrored.

    How often, and what is made of it, its head says.
    """

    def __init__(self, model: Predictor) -> None:
        """Raise UserError for an exported file, and for a task without several passes."""
        super().__init__(model)
        if self.takes_arrays:
            raise UserError(
                "--augment: an exported file returns no single maps to choose from; leave it out, "
                "or give the weights that it was exported from"
            )
        if not self.head.passes:
            raise UserError(
                f"--augment: models to {self.head.task.name} cannot join what they find in "
                "several sizes of an image; leave it out"
            )

    def __call__(self, images: Tensor) -> tuple[Any, int]:
        """Return the maps of each pass, and the width of the images."""
        maps = tuple(self.model(view(images, one, self.stride)) for one in self.head.passes)
        return maps, images.shape[3]

    def decode_above(self, raw: tuple[Any, int], confidence_threshold: float) -> list[Any]:
        """Return of each image what its head makes of all passes."""
        return self.head.join_passes(*raw, confidence_threshold)


def view(images: Tensor, one: Pass, stride: int) -> Tensor:
    """Return images (B, 3, H, W) as a pass sees them, sides multiples of the stride.

    They are mirrored before they are padded on the right, so that padding is on the right of all.
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
    """Models of one task and equally many classes, of any sizes and strides.

    All predict in the same images, and NMS chooses among all their boxes.

    Attributes:
        head: of the first member; it finishes what all of them predict.
    """

    def __init__(self, members: Sequence[Predictor], names: Sequence[str]) -> None:
        """Join members; names are their weights, for messages.

        Raises:
            UserError: they differ in task or number of classes, or their rows cannot be joined.
        """
        self.members, self.names = tuple(members), tuple(names)
        self.head = members[0].head
        self.stride = math.lcm(*(member.stride for member in members))
        self.takes_arrays = all(member.takes_arrays for member in members)
        self.fixed_size: tuple[int, int] | None = None
        for member, name in zip(members, names, strict=True):
            self._join(member, name)

    def _join(self, member: Predictor, name: str) -> None:
        """Raise UserError for a member that cannot detect with the ones before it."""
        first, head, size = self.head, member.head, member.fixed_size
        joins = member is self.members[0] or head.joins_models and first.joins_models
        if not joins:
            raise UserError(
                f"--weights {name}: models to {head.task.name} cannot detect together with "
                f"{self.names[0]}, which is to {first.task.name}; give one file, or several of a "
                "task whose boxes can be put together"
            )
        if head.num_classes != first.num_classes:
            raise UserError(
                f"--weights {name}: {count(head.num_classes, 'class', 'classes')}, {self.names[0]} "
                f"has {first.num_classes}; weights that detect together need the same number"
            )
        if size is None:
            return
        if size != (self.fixed_size or size) or any(side % self.stride for side in size):
            raise UserError(
                f"--weights {name}: it takes only images of {size[0]} x {size[1]} px, which do not "
                f"fit {self.names[0]} and the others; files that detect together need one size; "
                "export.py --dynamic leaves it free"
            )
        self.fixed_size = size

    def __call__(self, images: Any) -> list[Any]:
        return [member(images) for member in self.members]

    def decode_above(self, raw: Sequence[Any], confidence_threshold: float) -> list[np.ndarray]:
        """Return of each image the rows of all members, in their order."""
        rows = [
            member.decode_above(predicted, confidence_threshold)
            for member, predicted in zip(self.members, raw, strict=True)
        ]
        return [np.concatenate(image) for image in zip(*rows, strict=True)]

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError if images (B, 3, H, W) take too much."""
        for member in self.members:
            member.require_memory(shape, trains)
