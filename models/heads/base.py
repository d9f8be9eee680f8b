"""The interface of a task: what a head is to everything outside its folder.

A head is the last layer of the graph. It names its losses and figures, so that whoever trains,
reports or resumes goes by these names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from duet.backend import dist, nn, ops
from duet.backend.contract import Tensor
from duet.backend.processes import this_process
from duet.models.blocks.registry import LayerPlan, LayerRequest
from duet.utils.data.image.letterbox import Letterbox
from duet.utils.data.loading.batch import Targets
from duet.utils.detections import GroundTruth, SuppressionSettings
from duet.utils.strengths import LossGains
from duet.utils.tasks.table import Task


class LossSettings(NamedTuple):
    """What a loss is made for, and how it weighs its parts.

    Attributes:
        gains: of the hyper-parameters, not yet scaled to the model.
        image_size: long side of the images, pixels.
        fused_on: a device on which fused operations are to be used if they prove right there.
        label_smoothing: of the class targets, 0 to 1.
        autobalance: weigh the parts of a loss by how large they are.
    """

    gains: LossGains
    image_size: int
    fused_on: str | None = None
    label_smoothing: float = 0.0
    autobalance: bool = False


class LossTerms(NamedTuple):
    """The losses of a batch, 0-d each.

    On several ranks each has its part: the ranks' means add up to those of the whole batch, and
    the mean of the gradients of their totals is the gradient of the whole batch's total.
    """

    by_name: dict[str, Tensor]  # means over the batch, in the order of `Head.loss_names`
    # What is differentiated: their sum, times the batch size if the task accumulates batches.
    total: Tensor


@dataclass
class WholeBatch:
    """A rank's part of a batch, for a loss that gets it piece by piece.

    Attributes:
        num_images, targets: of all pieces.
        done: images of the pieces before.
        over_ranks: counts over all ranks, which the loss gathers once per batch.
    """

    num_images: int
    targets: Targets
    done: int = 0
    over_ranks: Tensor | None = None


class BatchParts(NamedTuple):
    """The fractions of the batch in a rank or a piece: factors of its means, on the device.

    A mean over its rows times its fraction of all rows, summed over ranks and pieces, is the mean
    over all rows; the mean of the means is not.
    """

    images: Tensor  # 0-d: fraction of the batch's images
    positives: Tensor  # (L,): fraction of each level's positives; 0 of none
    total: Tensor  # 0-d: images of the batch times ranks: gradients are averaged over the ranks


def batch_parts(
    own: Sequence[int], all_pieces: Sequence[int], whole: WholeBatch | None, dtype: str, device: str
) -> BatchParts | None:
    """Return the fractions in this rank's piece; None if it is the whole batch.

    Every rank calls it for every batch.

    Args:
        own: number of images of the piece, then of its positives at each level.
        all_pieces: the same of all pieces of this rank.
        dtype: of the losses.
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


class Loss(Protocol):
    """The loss of a batch; one without a state or a fast path inherits the rest."""

    @property
    def means(self) -> Mapping[str, str]:
        """How it computes, "plain" or "fast", by name: for work.json."""
        return {}

    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the cost of what the head returned: in its dtype, in float32 of half precision.

        With `whole`, raw and targets are a piece of a batch: the terms of all pieces add up to
        those of the batch, and so do the gradients of their totals.
        """

    def compiled(self, compile_: Callable[[Callable[..., Any], int], Callable[..., Any]]) -> Loss:
        """Return the same loss with its part on the device compiled, to rounding.

        Args:
            compile_: `autograd.compiled`: takes a function and how many shapes it may have. Of what
                it returns, only numbers (0-d) outlive the pass.
        """

    def end_batch(self) -> None:
        """Learn from the batch of the last call; every rank calls it, after training batches."""
        return None

    def state(self) -> dict[str, Tensor]:
        """Return what it has learnt, by name; `restore` takes it as lists of numbers."""
        return {}

    def restore(self, state: Mapping[str, Sequence[float]]) -> None:
        """Go on from a `state()`; ValueError for that of another loss."""
        if state:
            raise ValueError(
                f"it has a state of the loss that this head does not have: {', '.join(state)}"
            )


class PassImages(NamedTuple):
    """The images of the next training pass, for which a head may draw random numbers."""

    seed: int  # of the run
    batch_number: int  # from the start of training
    batch_size: int  # images of the whole batch, over all ranks
    places: np.ndarray  # (B,) int64, of the images of the pass in that batch


class Pass(NamedTuple):
    """How a model sees an image once, with test-time augmentation."""

    scale: float
    mirrored: bool
    unused: Callable[[Sequence[int]], int] | None = None  # picks the stride of the map without rows


class Sink(Protocol):
    """Takes what is found in each image of a set."""

    def add(self, image_id: int, found: Any, truth: GroundTruth) -> None:
        """Take what `Head.finish` returned for an image, and its labels in pixels."""


class Evaluator(Sink, Protocol):
    """Scores a set of images, one at a time."""

    def result(self) -> Any:
        """Return the figures of all images, as `Head.figures` reads them."""


class Head(nn.Module, ABC):
    """The last layer of a model and the task that it stands for.

    A subclass registers itself under its name in model YAMLs (`models/blocks/registry.py`), whose
    first argument is the number of classes.

    Attributes:
        task: the half of the task that needs no framework.
        loss_names: the losses in their order, each with its short name: NAME_loss in results.csv.
        figure_names: the figures of a validation in their order, as results.csv has them behind
            metrics/, each with its name in tables.
        target_fields: the fields of `Targets` that the loss reads.
        nothing_found: what `finish` returns of an image in which nothing is found.
        passes: how a model sees an image with --augment; none if it cannot.
        joins_models: rows of `decode_above` of several models may be put one behind the other.
        image_mean, image_std: of red, green and blue in [0, 1]: the detector subtracts the one and
            divides by the other; None to take images as they are.
        strides: pixels per cell of each map that it takes.
        draws_biases: `initial_biases` are added to drawn numbers; else they take their place.
        dropout: the probability, below 1, with which a training pass leaves a number out; only a
            task with the flag uses it.
    """

    task: ClassVar[Task]
    loss_names: ClassVar[Mapping[str, str]]
    figure_names: ClassVar[Mapping[str, str]]
    target_fields: ClassVar[tuple[str, ...]]
    nothing_found: Any
    passes: ClassVar[Sequence[Pass]] = ()
    joins_models: ClassVar[bool] = False
    image_mean: ClassVar[tuple[float, float, float] | None] = None
    image_std: ClassVar[tuple[float, float, float] | None] = None
    draws_biases: ClassVar[bool] = True
    num_classes: int
    strides: tuple[int, ...]
    dropout: float = 0.0

    @classmethod
    def row_names(cls) -> Mapping[str, str]:
        """Return the figures that an epoch's row on screen has, each with its name there.

        With the losses they fit into 80 columns (`utils/report/console.py`).
        """
        return cls.figure_names

    @classmethod
    def yaml_values(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values that YAML args of the head may name; UserError for a wrong one."""
        return {}

    @classmethod
    @abstractmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Return the plan of the layer; UserError for args that it does not take."""

    @abstractmethod
    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """Return raw outputs of feature maps (B, C_i, H_i, W_i)."""

    def initial_biases(self) -> Mapping[str, np.ndarray]:
        """Return biases to begin with, by parameter names in the head; see `draws_biases`."""
        return {}

    def draw(self, images: PassImages) -> None:
        """Draw the random numbers of the next training pass."""

    @abstractmethod
    def make_loss(self, settings: LossSettings) -> Loss:
        """Return the loss of a training."""

    @abstractmethod
    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Return all predictions of each image, (B, N, ...), on the device."""

    @abstractmethod
    def decode_above(self, raw: Sequence[Tensor], confidence_threshold: float) -> list[Any]:
        """Return the candidates of each image, on the host, in the form that `finish` takes."""

    def join_passes(self, raw: Sequence[Any], width: int, confidence_threshold: float) -> list[Any]:
        """Return the candidates of each image from the raw outputs of all `passes`.

        Args:
            width: of the images, pixels.
        """
        raise NotImplementedError

    def of_best_class(self, decoded: Any) -> Any:
        """Return candidates as a model of one class has them: with the score of the best class."""
        raise NotImplementedError

    @abstractmethod
    def finish_images(
        self, decoded: Sequence[Any], places: Sequence[Letterbox], settings: SuppressionSettings
    ) -> list[Any]:
        """Return what is found in each image, in its own pixels: a NamedTuple of arrays and
        `utils/ragged.py::Ragged`, all with a row for each thing found.

        It must not touch the device, where reading a result waits for all queued work.

        Args:
            decoded: candidates, as of `decode_above`.
        """

    def finish(self, decoded: Any, letterbox: Letterbox, settings: SuppressionSettings) -> Any:
        """Return what is found in one image, as `finish_images`."""
        (found,) = self.finish_images([decoded], [letterbox], settings)
        return found

    @abstractmethod
    def make_evaluator(self, class_names: Sequence[str]) -> Evaluator:
        """Return an evaluator that has seen no image yet."""

    @classmethod
    def figures(cls, result: Any) -> dict[str, float]:
        """Return the figures of an evaluator's result by the names of `figure_names`."""
        return dict(zip(cls.figure_names, result.means, strict=True))

    @classmethod
    def fitness(cls, result: Any) -> float:
        """Return the figure that decides which weights are best: the highest."""
        figures = cls.figures(result)
        return sum(weight * figures[name] for name, weight in cls.task.fitness.items())

    @staticmethod
    def class_scores(result: Any) -> tuple[float, ...]:
        """Return how well each class is found, (C,) from 0 to 1; () of a task without classes."""
        return ()
