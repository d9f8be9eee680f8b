"""The interface between a task's head and the rest of the project.

A head is the last layer of the graph. It names its losses and metrics; training, reporting and
resuming use these names.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from duet.backend import dist, nn, ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.backend.processes import this_process
from duet.models.blocks.registry import LayerPlan, LayerRequest
from duet.utils.data.image.letterbox import Letterbox
from duet.utils.data.loading.batch import Targets
from duet.utils.geometry.detections import Found, GroundTruth, SuppressionSettings
from duet.utils.strengths import LossGains
from duet.utils.tasks import ClassRows, Task


class LossSettings(NamedTuple):
    """Settings of a loss.

    Attributes:
        gains: gains from the hyper-parameters, before scaling to the model.
        image_size: long side of the images, pixels.
        fused: use the fused operations of the backend.
        label_smoothing: smoothing of class targets, 0 to 1.
    """

    gains: LossGains
    image_size: int
    fused: bool = False
    label_smoothing: float = 0.0


class LossTerms(NamedTuple):
    """The losses of a batch, 0-d each.

    On several ranks, each has its part: the ranks' means add up to the batch's means, and the mean
    of the gradients of their totals is the gradient of the batch's total.
    """

    by_name: dict[str, Tensor]  # means over the batch, in `Head.loss_names` order
    # The value to differentiate: their sum, times the batch size if the task accumulates batches.
    total: Tensor


@dataclass
class WholeBatch:
    """A rank's part of a batch, for computing the loss in pieces.

    Attributes:
        num_images, targets: over all pieces.
        done: images in earlier pieces.
        over_ranks: counts over all ranks, gathered once per batch by the loss.
    """

    num_images: int
    targets: Targets
    done: int = 0
    over_ranks: Tensor | None = None


class BatchParts(NamedTuple):
    """Fractions of the batch in a rank or piece: factors for its means, on the device.

    Means over rows, each times its fraction of all rows, sum over ranks and pieces to the mean over
    all rows; the mean of means does not.
    """

    images: Tensor  # 0-d: fraction of the batch's images
    positives: Tensor  # (L,): fraction of each level's positives; 0 if there are none
    total: Tensor  # 0-d: batch images times ranks, because gradients are averaged over ranks


def batch_parts(
    own: Sequence[int], all_pieces: Sequence[int], whole: WholeBatch | None, dtype: str, device: str
) -> BatchParts | None:
    """Return the fractions for this rank's piece; None if it is the whole batch.

    Call it on every rank for every batch.

    Args:
        own: number of images in the piece, then of positives per level.
        all_pieces: the same for all pieces of this rank.
        dtype: dtype of the losses.
    """
    if this_process().world_size == 1 and own[0] == all_pieces[0]:
        return None
    sums = whole.over_ranks if whole is not None else None
    if sums is None:
        sums = ops.tensor(np.array(all_pieces, dtype), device)
        dist.sum_(sums)
        if whole is not None:
            whole.over_ranks = sums
    parts = ops.tensor(np.array(own, dtype), device) / ops.clamp(sums, low=1.0)
    return BatchParts(parts[0], parts[1:], sums[0] * float(this_process().world_size))


def loss_dtype(raw: Tensor) -> str:
    """Return the loss dtype for raw maps: their own, or float32 for half precision."""
    return "float64" if ops.dtype_of(raw) == "float64" else "float32"


# What `finish` needs of one image: rows (K, ...), `MaskRows`, or the scores of all classes.
Candidates = Any
# Shapes of a compiled loss. Heads with boxes have one per batch size and `padded_size`, such as
# 1,024 and 4,096 rows per level for full batches and for the smaller last one.
MOST_SHAPES = 4


class Loss(ABC):
    """The loss of a batch; the part that can be compiled is `on_device`, called by `_computed`."""

    on_device: Callable[..., Any]
    _compiled: Callable[..., Any] | None = None

    @property
    def implementations(self) -> Mapping[str, str]:
        """Implementations in use, "plain" or "fast", by name; for work.json."""
        return {}

    def pads(self, raw: Sequence[Tensor]) -> bool:
        """Return whether sizes that follow targets are padded, because GPUs and compilers keep
        memory and graphs for each shape. Without images there are no cells for padding rows.
        """
        return bool(raw[0].shape[0]) and bool(self._compiled or ops.device_of(raw[0]) != CPU)

    @abstractmethod
    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the loss of raw maps in their dtype, or float32 for half precision.

        With `whole`, raw and targets are a piece of a batch: the pieces' terms, and the gradients
        of their totals, add up to those of the batch.
        """

    def compiled(self, compile_: Callable[[Callable[..., Any], int], Callable[..., Any]]) -> Loss:
        """Return a copy with `on_device` compiled; values differ only by rounding.

        Args:
            compile_: `autograd.compiled`, taking a function and the number of shapes. Only 0-d
                results outlive the pass.
        """
        loss = copy.copy(self)
        loss._compiled = compile_(self.on_device, MOST_SHAPES)
        return loss

    def _computed(self, num_images: int, *inputs: object) -> Any:
        """Return the result of `on_device`, by its compiled form unless there are no images."""
        return (self._compiled if num_images and self._compiled else self.on_device)(*inputs)


class PassImages(NamedTuple):
    """The images of the next training pass, for heads that draw random numbers."""

    seed: int  # the run's seed
    batch_number: int  # from the start of training
    batch_size: int  # images in the whole batch, over all ranks
    places: np.ndarray  # (B,) int64, positions of the pass's images in that batch


class Pass(NamedTuple):
    """One view of test-time augmentation."""

    scale: float
    mirrored: bool
    unused: Callable[[Sequence[int]], int] | None = None  # picks the stride of the map to skip


class Result(Protocol):
    """Metrics over a set of images; each task's has more than the means."""

    @property
    def means(self) -> tuple[float, ...]:
        """Means over the classes, in the order of `Head.metric_names`."""


class Sink(Protocol):
    """Receives the detections of each image of a set."""

    def add(self, image_id: int, found: Any, truth: GroundTruth) -> None:
        """Receive the result of `Head.finish` for an image, and its labels in pixels."""


class Evaluator(Sink, Protocol):
    """Scores a set of images, added one at a time."""

    def result(self) -> Result:
        """Return the metrics over all images, as read by `Head.metrics`."""


class Head(nn.Module, ABC):
    """The last layer of a model, which defines its task.

    Subclasses register under their name in model YAMLs (`models/blocks/registry.py`); their first
    YAML argument is the number of classes. Heads of objects also have `of_best_class`.

    Attributes:
        task: the framework-independent part of the task.
        loss_names: losses in order, with their short names: NAME_loss in results.csv.
        metric_names: validation metrics in order, named as in results.csv after metrics/, with
            their names in tables.
        nothing_found: result of `finish` for an image without detections.
        passes: views for --augment; empty if unsupported, else the head has `join_passes`.
        joins_models: whether `decode_above` rows of several models can be concatenated.
        image_mean, image_std: mean and deviation of red, green and blue in [0, 1] for normalizing
            images; None for no normalization.
        strides: pixels per cell of each input map.
        draws_biases: `initial_biases` are added to drawn biases instead of replacing them.
        dropout: dropout probability, below 1; used only by tasks with the flag.
    """

    task: ClassVar[Task]
    loss_names: ClassVar[Mapping[str, str]]
    metric_names: ClassVar[Mapping[str, str]]
    nothing_found: Found
    passes: ClassVar[Sequence[Pass]] = ()
    joins_models: ClassVar[bool] = False
    image_mean: ClassVar[tuple[float, float, float] | None] = None
    image_std: ClassVar[tuple[float, float, float] | None] = None
    draws_biases: ClassVar[bool] = True
    num_classes: int
    strides: tuple[int, ...]
    dropout: float = 0.0

    @classmethod
    def short_losses(cls, losses: np.ndarray) -> dict[str, float]:
        """Return losses in the order of `loss_names`, by their short names."""
        return dict(zip(cls.loss_names.values(), losses.tolist(), strict=True))

    @classmethod
    def row_names(cls) -> Mapping[str, str]:
        """Return the metrics shown in an epoch's row on screen, with their names there.

        Together with the losses they must fit into 80 columns (`utils/report/console.py`).
        """
        return cls.metric_names

    @classmethod
    def yaml_values(cls, document: Mapping[str, object]) -> Mapping[str, object]:
        """Return values that the head's YAML args may name; UserError for an invalid one."""
        return {}

    @classmethod
    @abstractmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Return the layer's plan; UserError for invalid args."""

    @abstractmethod
    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """Map feature maps (B, C_i, H_i, W_i) to raw outputs."""

    def initial_biases(self) -> Mapping[str, np.ndarray]:
        """Return initial biases by parameter name in the head; see `draws_biases`."""
        return {}

    @abstractmethod
    def class_rows(self) -> ClassRows:
        """Return which arrays have a row per class, for --remap-classes."""

    def draw(self, images: PassImages) -> None:
        """Draw the random numbers of the next training pass."""

    @abstractmethod
    def make_loss(self, settings: LossSettings) -> Loss:
        """Return the training loss."""

    @abstractmethod
    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Return all predictions, (B, N, ...), on the device."""

    @abstractmethod
    def decode_above(
        self, raw: Sequence[Tensor], settings: SuppressionSettings
    ) -> list[Candidates]:
        """Return each image's candidates on the host, as input for `finish`."""

    @abstractmethod
    def finish_images(
        self,
        decoded: Sequence[Candidates],
        places: Sequence[Letterbox],
        settings: SuppressionSettings,
    ) -> Sequence[Found]:
        """Return each image's detections in its own pixels: a NamedTuple of arrays and
        `utils/geometry/detections.py::Ragged`, with one row per detection.

        It must not touch the device, where reading a result waits for all queued work.

        Args:
            decoded: candidates from `decode_above`.
        """

    def finish(
        self, decoded: Candidates, letterbox: Letterbox, settings: SuppressionSettings
    ) -> Found:
        """Return one image's detections, as `finish_images`."""
        (found,) = self.finish_images([decoded], [letterbox], settings)
        return found

    @abstractmethod
    def make_evaluator(self, class_names: Sequence[str]) -> Evaluator:
        """Return a new evaluator."""

    @classmethod
    def metrics(cls, result: Result) -> dict[str, float]:
        """Return the metrics in an evaluator's result, named as in `metric_names`."""
        return dict(zip(cls.metric_names, result.means, strict=True))

    @classmethod
    def fitness(cls, result: Result) -> float:
        """Return the fitness that selects the best weights; higher is better."""
        metrics = cls.metrics(result)
        return sum(weight * metrics[name] for name, weight in cls.task.fitness.items())

    @staticmethod
    def class_scores(result: Any) -> tuple[float, ...]:
        """Return a score per class, (C,) from 0 to 1; () for tasks without classes."""
        return ()
