"""The part of a task that needs no framework.

Its other half is a head (`models/heads/base.py`), which names its task. No other code depends on
which task it serves: it calls the task, or the head.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from utils.cli.flags import flags_of
from utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    Hyperparameters,
    read_hyperparameters,
)
from utils.cli.run_config import CommandConfig
from utils.cli.train_config import TrainConfig
from utils.cli.val_config import ValConfig
from utils.data.image.view import View, whole_view
from utils.data.loading.items import BoxItems
from utils.data.loading.reading import ground_truth
from utils.data.sources.coco_annotations import CocoAnnotations
from utils.data.sources.samples import Sample, SampleTable
from utils.detections import GroundTruth
from utils.errors import DatasetError, UserError
from utils.evaluation.coco.results_file import CocoResults
from utils.model_yamls import block_of, read_model, scale_depth, scale_width, shipped_model

SIZES = "nsmlx"  # of the public detectors
NO_AUDIT = "an audit asks a model for the objects of images; give weights of a detector"


def with_levels(document: Mapping[str, Any], block: str, args: Sequence[Any]) -> Mapping[str, Any]:
    """Return a document whose last layer is a head of boxes.

    Args:
        document: of a model whose head takes several maps; or of a part of a public detector,
            whose other layers are then those of the public one.

    Raises:
        UserError: it is neither.
    """
    if "anchors" not in document:
        document = _public_detector(document)
    *layers, last = document["head"]
    return {**document, "head": [*layers, [last[0], 1, block, list(args)]]}


def _public_detector(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the public detector whose first layers are those of a document, except its last."""
    layers = _scaled_layers(part)[:-1]
    taken = ("anchors", "backbone", "head", "depth_multiple", "width_multiple")
    for size in SIZES:
        _, public = read_model(str(shipped_model(f"yolov5{size}")))
        if _scaled_layers(public)[: len(layers)] == layers:
            return {**part, **{name: public[name] for name in taken}}
    raise UserError(
        "--task: the model has no anchors, as a classifier, and its layers are those of no public "
        "detector; give the model to train with --cfg, as --cfg yolov5n.yaml"
    )


def _scaled_layers(document: Mapping[str, Any]) -> list[list[Any]]:
    """Return the lines of all layers with the multiples worked in; public classifiers, which come
    without a YAML, have no others.
    """
    depth, width = document["depth_multiple"], document["width_multiple"]
    lines = []
    for source, number, block, args in [*document["backbone"], *document["head"]]:
        channels = [scale_width(x, width) if type(x) is int else x for x in args[:1]]
        lines.append([source, scale_depth(number, depth), block, [*channels, *args[1:]]])
    return lines


class LegacyMetric(NamedTuple):
    """The figures that YOLOv5 prints: what measures them, and what shows them as text."""

    evaluator: Any
    table: Callable[[Any], str]


class Task:
    """What a model is trained for.

    Attributes:
        name: as --task has it.
        head: the name of its head in model YAMLs.
        model: the model YAML of a training that names none, from the project's folder.
        own_flags: fields of `TrainConfig` that only this task uses.
        defaults: fields of `TrainConfig` whose default is another one for this task.
        accumulates: add up the gradients of small batches, to those of 64 images per update.
        head_args: the args of its head in a model YAML that is made for it.
        refused: fields of any configuration that mean nothing to it, and the uses "audit" and
            "hub" if it does not serve them, each with the reason.
        refused_by_val: the same of val.py alone.
        unused: hyper-parameters that change nothing in its trainings, and are not searched.
        val_items: make the images of a validation without a loss.
        fitness: the weights of the figures, by the names that `Head.figures` has, whose sum
            decides which weights, and which hyper-parameters, are best.
    """

    name: ClassVar[str]
    head: ClassVar[str]
    model: ClassVar[str]
    own_flags: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[Mapping[str, Any]] = {}
    accumulates: ClassVar[bool] = True
    head_args: ClassVar[tuple[Any, ...]]
    refused: ClassVar[Mapping[str, str]] = {"audit": NO_AUDIT}
    refused_by_val: ClassVar[Mapping[str, str]] = {
        "annotations": "models of this task find no objects",
        "save_json": "COCO has no form for models of this task",
        "legacy_metric": "models of this task are measured in one way",
        "save_txt": "models of this task make no label files",
    }
    unused: ClassVar[tuple[str, ...]] = ("randaugment",)
    val_items: ClassVar[BoxItems]
    fitness: ClassVar[Mapping[str, float]] = {}

    def about(self, document: Mapping[str, Any]) -> list[str]:
        """Return the description of a model that is not checked yet, one line per subject."""
        return []

    def completed(self, values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
        """Return values of flags, with the task's defaults for those that were not given."""
        own = {name: value for name, value in self.defaults.items() if name not in given}
        return {**values, **own}

    def check(self, config: CommandConfig) -> None:
        """Raise UserError for a flag of train.py, val.py or detect.py that means nothing to it."""
        by_val = self.refused_by_val if isinstance(config, ValConfig) else {}
        flags, usual = flags_of(config), config.usual()
        for name, reason in {**self.refused, **by_val}.items():
            if name in usual and getattr(config, name) != usual[name]:
                raise UserError(f"{flags[name].names[0]}: {reason}; leave it out")

    def require(self, use: str) -> None:
        """Raise UserError if the task refuses what no flag asks for: "audit" or "hub"."""
        if use in self.refused:
            raise UserError(self.refused[use])

    def adopted(self, document: Mapping[str, Any], cutoff: int = 0) -> Mapping[str, Any]:
        """Return a model document with the task's head: the one given, if it has it.

        Args:
            document: of a model of any task, checked by `models/graph.py`.
            cutoff: of --cutoff.

        Raises:
            UserError: the layers of that model do not suffice.
        """
        if block_of(document) == self.head and not cutoff:
            return document
        return self.made_of(document, cutoff)

    def made_of(self, document: Mapping[str, Any], cutoff: int) -> Mapping[str, Any]:
        """Return a model document with the task's head in place of another; else as `adopted`."""
        return with_levels(document, self.head, self.head_args)

    def check_samples(self, samples: SampleTable, name: str, is_of_folders: bool = False) -> None:
        """Raise DatasetError for samples whose labels are not those of the task.

        Args:
            name: of the dataset.
            is_of_folders: its images are labelled by the folders in which they lie.
        """

    def check_to_score(
        self, samples: SampleTable, name: str, weights: str, is_of_folders: bool = False
    ) -> None:
        """Raise DatasetError as `check_samples`, where weights of the task are to be scored."""
        try:
            self.check_samples(samples, name, is_of_folders)
        except DatasetError as error:
            raise DatasetError(
                f"--weights {weights}: the model is to {self.name}; --data {error}"
            ) from error

    def without_effect(self, hyp: Hyperparameters) -> list[str]:
        """Return the names of `unused` hyper-parameters that somebody set: those of other values
        than in the file that the task has where none is given.
        """
        usual = read_hyperparameters(self.defaults.get("hyp", DEFAULT_HYPERPARAMETERS))
        return [name for name in self.unused if getattr(hyp, name) != getattr(usual, name)]

    def items(self, config: TrainConfig) -> BoxItems:
        """Return what makes the images and targets of a training and of its validations."""
        return self.val_items

    def view(
        self,
        image: np.ndarray,
        image_size: int,
        stride: int,
        fixed_size: tuple[int, int] | None = None,
    ) -> View:
        """Return an image (H, W, 3) uint8 RGB of no dataset as the network takes it.

        Args:
            image_size: that of --img.
            stride: the network takes sides that are multiples of it.
            fixed_size: (height, width), the only size that the network takes, if it takes one.
        """
        return whole_view(image, image_size, stride, fixed_size)

    def input_size(self, trained: object) -> int:
        """Return the long side of images for the network where --img is left out.

        trained: that of the training, as the weights tell it, unchecked; None if they do not.
        """
        return CommandConfig.image_size

    def ground_truth(self, sample: Sample) -> GroundTruth:
        """Return a sample's labels as the evaluator takes them, in pixels of its image."""
        return ground_truth(sample)

    def annotations(
        self, path: Path, samples: Sequence[Sample], class_names: Sequence[str]
    ) -> CocoAnnotations:
        """Return the objects of the samples in COCO's file, for --annotations.

        Raises:
            UserError: the file is not as it should be.
        """
        raise NotImplementedError

    def coco_results(self, class_names: Sequence[str], samples: Sequence[Sample]) -> CocoResults:
        """Return what writes predictions.json, for --save-json."""
        raise NotImplementedError

    def legacy_metric(self, class_names: Sequence[str]) -> LegacyMetric:
        """Return what measures YOLOv5's own figures, for --legacy-metric."""
        raise NotImplementedError
