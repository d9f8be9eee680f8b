"""The interface of a task: what a head is to everything outside its folder.

A head is the last layer of the graph. It names its losses and figures, so that whoever trains,
reports or resumes goes by these names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from backend import dist, nn, ops
from backend.contract import Tensor
from backend.processes import this_process
from models.blocks.registry import LayerPlan, LayerRequest
from utils.cli.hyperparameters import Hyperparameters
from utils.cli.recipe_config import RecipeConfig
from utils.data.image.letterbox import Letterbox
from utils.data.loading.batch import Targets
from utils.data.sources.samples import Sample
from utils.detections import GroundTruth
from utils.errors import UserError
from utils.evaluation.nms import SuppressionSettings
from utils.tasks.task import Task
from utils.weights.transfer import ClassRows


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
        over_ranks: what the loss has learnt of the other ranks. It asks them once per batch, into
            however many pieces a rank cuts its part, and however often it begins anew.
    """

    num_images: int
    targets: Targets
    done: int = 0
    over_ranks: Tensor | None = None


def loss_dtype(raw: Tensor) -> str:
    """Return the dtype of a loss of raw maps: their own, float32 of half precision."""
    return "float64" if ops.dtype_of(raw) == "float64" else "float32"


class BatchParts(NamedTuple):
    """The fractions of the batch that a rank or a piece has: factors of its means, on the device.

    A mean over its rows times its fraction of all rows, summed over ranks and pieces, is the mean
    over all rows; the mean of the means is not.
    """

    images: Tensor  # 0-d: of the batch's images, those of the piece
    positives: Tensor  # (L,): of each level's positives, those of the piece; 0 of none
    total: Tensor  # 0-d: images of the batch times ranks: gradients are averaged over the ranks


def batch_parts(
    own: Sequence[int], all_pieces: Sequence[int], whole: WholeBatch | None, dtype: str, device: str
) -> BatchParts | None:
    """Return the fractions of this rank's piece; None if it is all of the batch.

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


class PassImages(NamedTuple):
    """The images of the next forward pass of a training, for what a head draws for them."""

    seed: int  # of the run
    batch_number: int  # from the start of training
    batch_size: int  # images of the whole batch, over all ranks
    places: np.ndarray  # (B,) int64, of the images of the pass in that batch


class Loss(Protocol):
    """The loss of a batch; one without a state or a fast path inherits what says so."""

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


class Sink(Protocol):
    """Takes what is found in each image of a set."""

    def add(self, image_id: int, found: Any, truth: GroundTruth) -> None:
        """Take what `Head.finish` returned for an image, and its labels in pixels."""


class Evaluator(Sink, Protocol):
    """Scores a set of images, one at a time."""

    def result(self) -> Any:
        """Return the figures of all images, as `Head.figures` reads them."""


class Pass(NamedTuple):
    """How a model sees an image once, with test-time augmentation."""

    scale: float
    mirrored: bool
    unused: Callable[[Sequence[int]], int] | None = None  # picks the stride of the map without rows


def used_levels(one: Pass, strides: Sequence[int]) -> list[int]:
    """Return the maps whose rows a pass gives: of a model with one stride, all."""
    unused = one.unused(strides) if one.unused else None
    used = [level for level, stride in enumerate(strides) if stride != unused]
    return used or list(range(len(strides)))


def brought_back(rows: np.ndarray, one: Pass, width: int) -> np.ndarray:
    """Return rows (K, 4 + ...) of a pass as if found in images of this width."""
    boxes_cxcywh = rows[:, :4] / np.float32(one.scale)
    if one.mirrored:
        boxes_cxcywh[:, 0] = width - boxes_cxcywh[:, 0]
    return np.concatenate([boxes_cxcywh, rows[:, 4:]], axis=1)


class Head(nn.Module, ABC):
    """The last layer of a model and the task that it stands for.

    A subclass registers itself under its name in model YAMLs (`models/blocks/registry.py`), whose
    first argument is the number of classes. A method that raises NotImplementedError here is asked
    of no task that refuses its flag (`utils/tasks/task.py::Task.refused`).

    Attributes:
        task: the part of the task that needs no framework.
        loss_names: the losses in their order, each with its short name: NAME_loss in results.csv.
        figure_names: the figures of a validation in their order, as results.csv has them behind
            metrics/, each with its name in tables.
        target_fields: the fields of `Targets` that the loss reads.
        nothing_found: what `finish` returns of an image in which nothing is found.
        strides: pixels per cell of each map that it takes.
        passes: how a model sees an image with --augment; none if it cannot.
        joins_models: rows of `decode_above` of several models may be put one behind the other.
        image_mean, image_std: of red, green and blue in [0, 1]: the detector subtracts the one and
            divides by the other; None to take images as they are.
        exported_kinds: what exported files return (`utils/export/metadata.py`): without NMS, with
            --nms and with --efficient-nms, as far as the task does not refuse them; () for none.
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
    exported_kinds: ClassVar[tuple[str, ...]] = ()
    num_classes: int
    strides: tuple[int, ...]

    @classmethod
    def row_names(cls) -> Mapping[str, str]:
        """Return the figures that an epoch's row on screen has, each with its name there.

        With the losses they fit into 80 columns (`utils/report/console.py`).
        """
        return cls.figure_names

    @classmethod
    def yaml_values(cls, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the head's YAML args may name, checked; UserError for a wrong value."""
        return {}

    @classmethod
    def fitted(
        cls,
        document: Mapping[str, Any],
        strides: Sequence[int],
        sizes_wh: np.ndarray,
        hyp: Hyperparameters,
        config: RecipeConfig,
    ) -> Mapping[str, Any]:
        """Return a model document for a new training on labels, and log what was changed in it.

        Args:
            strides: of the maps that the head takes.
            sizes_wh: (N, 2) of the boxes of all labels, pixels.

        Raises:
            UserError: settings that do not go with what the document needs.
        """
        return document

    @classmethod
    @abstractmethod
    def plan(cls, request: LayerRequest) -> LayerPlan:
        """Return how the layer is made; UserError for args that it does not take."""

    @abstractmethod
    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """Return raw outputs of feature maps (B, C_i, H_i, W_i)."""

    def initial_biases(self) -> Mapping[str, np.ndarray]:
        """Return what is added to drawn parameters, by their names in the head."""
        return {}

    def drop(self, probability: float) -> None:
        """Leave numbers out of each training pass with a probability, from 0 to below 1."""
        raise NotImplementedError

    def draw(self, images: PassImages) -> None:
        """Draw what is random about the next pass of a training; nothing without `drop`."""

    @abstractmethod
    def make_loss(
        self,
        hyp: Hyperparameters,
        image_size: int,
        fused_on: str | None = None,
        label_smoothing: float = 0.0,
        autobalance: bool = False,
    ) -> Loss:
        """Return the loss for images of a size.

        Args:
            fused_on: a device on which fused operations are to be used if they prove right there.
            label_smoothing: of the class targets.
            autobalance: weigh the parts of a loss by how large they are.
        """

    @abstractmethod
    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Return all that is predicted for each image, (B, N, ...), on the device."""

    @abstractmethod
    def decode_above(self, raw: Sequence[Tensor], confidence_threshold: float) -> list[Any]:
        """Return of each image what may count as found, on the host, as `finish` takes it."""

    def of_best_class(self, decoded: Any) -> Any:
        """Return rows of `decode_above` as one of a single class has them: the best one's score."""
        raise NotImplementedError

    def join_passes(self, raw: Sequence[Any], width: int, confidence_threshold: float) -> list[Any]:
        """Return what `decode_above` does, of what the network returned in each of `passes`.

        Args:
            width: of the images, pixels.
        """
        raise NotImplementedError

    def class_rows(self) -> ClassRows:
        """Return which of its arrays have a row for each class."""
        raise NotImplementedError

    @abstractmethod
    def finish_images(
        self, decoded: Sequence[Any], places: Sequence[Letterbox], settings: SuppressionSettings
    ) -> list[Any]:
        """Return what is found in each image of `decode_above`, in the image's own pixels: a
        NamedTuple of arrays and `utils/ragged.py::Ragged`, all with a row for each thing found.

        Only on the host: whatever asks the framework for a result waits for all that is queued.
        """

    def finish(self, decoded: Any, letterbox: Letterbox, settings: SuppressionSettings) -> Any:
        """Return what is found in one image, as `finish_images`."""
        (found,) = self.finish_images([decoded], [letterbox], settings)
        return found

    def join(
        self, found: Sequence[Any], regions_xyxy: np.ndarray, settings: SuppressionSettings
    ) -> Any:
        """Return what is found in an image from what is found in overlapping views of it.

        Args:
            found: what `finish` returned of each view.
            regions_xyxy: (V, 4) where the views lie in the image; together they cover it.
        """
        raise NotImplementedError

    @classmethod
    def exported_kind(cls, nms: bool, efficient_nms: bool, letterbox: bool) -> str:
        """Return which of `exported_kinds` the flags ask for; UserError if the task refuses one."""
        flags = {"--nms": nms, "--efficient-nms": efficient_nms, "--letterbox": letterbox}
        for flag, given in flags.items():
            reason = cls.task.refused.get(flag[2:].replace("-", "_"))
            if given and reason:
                raise UserError(f"{flag}: {reason}; leave it out")
        if not cls.exported_kinds:
            raise UserError(f"models to {cls.task.name} cannot be exported")
        return cls.exported_kinds[nms + efficient_nms]

    def exported(self, raw: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return what an exported file without NMS returns of raw outputs, (B, ...) each."""
        raise NotImplementedError

    @classmethod
    def without_network(cls, num_classes: int) -> Head:
        """Return a head that finishes and scores what an exported file returned."""
        raise NotImplementedError

    def from_exported(
        self, kind: str, outputs: tuple[np.ndarray, ...], confidence_threshold: float
    ) -> Any:
        """Return of one image what `decode_above` does, of what a file returned for it.

        Args:
            kind: of `exported_kinds`.
            outputs: float32, without the batch.
        """
        raise NotImplementedError

    @abstractmethod
    def make_evaluator(self, class_names: Sequence[str]) -> Evaluator:
        """Return an evaluator that has seen no image yet."""

    @staticmethod
    @abstractmethod
    def figures(result: Any) -> dict[str, float]:
        """Return the figures of an evaluator's result by the names of `figure_names`."""

    @classmethod
    def fitness(cls, result: Any) -> float:
        """Return the figure that decides which weights are best: the highest."""
        figures = cls.figures(result)
        return sum(weight * figures[name] for name, weight in cls.task.fitness.items())

    @staticmethod
    def class_scores(result: Any) -> tuple[float, ...]:
        """Return how well each class is found, (C,) from 0 to 1; () of a task without classes."""
        return ()

    @staticmethod
    @abstractmethod
    def table(result: Any) -> str:
        """Return the figures as lines of text, over all classes and per class."""

    @staticmethod
    @abstractmethod
    def plot(result: Any, samples: Sequence[Sample], folder: Path) -> None:
        """Draw the result, of the images of these samples, into files of a folder."""
