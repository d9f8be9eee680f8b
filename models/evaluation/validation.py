"""The main function of val.py: build the model, evaluate it, and report its metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from duet import backend
from duet.backend.checks import CPU
from duet.models.evaluation.evaluate import Evaluation, Validation
from duet.models.heads.base import Head, Result, Sink
from duet.models.inference.classes import ScoredClasses, scored_classes
from duet.models.inference.predictor import (
    Weights,
    class_names_of,
    input_size,
    log_once,
    make_predictor,
)
from duet.models.inference.predictors import OneClass, Predictor
from duet.utils.cli.run_config import known_classes
from duet.utils.cli.val_config import ValConfig
from duet.utils.data.loading.batches import ValRecipe
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.coco_annotations import CocoAnnotations, own_annotations
from duet.utils.data.sources.dataset_yaml import DatasetSpec
from duet.utils.data.sources.samples import Sample, SampleTable
from duet.utils.data.sources.splits import only_classes
from duet.utils.errors import UserError
from duet.utils.evaluation.coco.per_image import FILE, write_per_image
from duet.utils.evaluation.coco.results_file import CocoResults
from duet.utils.evaluation.label_files import LabelFiles
from duet.utils.files.run_folder import create_run_folder
from duet.utils.geometry.detections import GroundTruth
from duet.utils.processes import watchdog
from duet.utils.processes.cores import loader_workers
from duet.utils.processes.world import World
from duet.utils.report.console import legacy_table
from duet.utils.report.task_reports import TaskReport
from duet.utils.text import count, printable, say

log = logging.getLogger("val")


@dataclass(frozen=True)
class Validated:
    """Result of a validation.

    Attributes:
        metrics: metrics over all classes, named as in results.csv without "metrics/".
        result: all metrics, also per class: `EvaluationResult` for boxes, or the task's own type.
    """

    folder: Path
    metrics: Mapping[str, float]
    result: Result = field(repr=False)  # arrays of every image


def run_validation(
    config: ValConfig,
    dataset: DatasetSpec,
    samples: Sequence[Sample],
    weights: Sequence[Weights],
    world: World,
) -> Validated | None:
    """Evaluate checkpoints' EMA weights as an ensemble; return the result on rank 0.

    Other ranks return None.

    samples: samples of the split, with labels of all classes.
    """
    device, is_main = backend.device.resolve(config.device), world.process.is_main
    model = make_predictor(weights, device, config.augment, config.half, fold=False)
    if config.single_class:
        model = OneClass(model)
    task = model.head.task
    classes = classes_for(config, dataset.class_names, weights[0], model.head.num_classes)
    kept = known_classes("--classes", config.classes, classes.names)
    config = replace(config, classes=kept)
    table = samples_for(config, model, samples, classes, dataset.is_of_folders)
    size = input_size(config.image_size, model, weights)
    log.info(backend.device.describe(device))
    annotations = find_annotations(config, model.head, table, dataset, is_main)
    files = Files.of(config, model.head, table, classes, annotations)
    objects_of = None
    if annotations is not None:
        objects_of = partial(annotated_objects, annotations, classes.in_model, kept)
    suppression = config.suppression(multi_label=True)
    evaluation = Evaluation(
        model, table, classes.names, device, suppression, sinks=files.sinks, objects_of=objects_of
    )
    begin = time.perf_counter()
    with watchdog.phase("validation"):
        result = evaluate(config, evaluation, size, world).result
    seconds = time.perf_counter() - begin
    if not is_main:
        return None
    report: TaskReport = task.report.load()
    say(*report.table(result).splitlines())
    say(f"{count(len(table), 'image')} in {seconds:.1f} s, {len(table) / seconds:.1f} images/s")
    if files.legacy is not None:
        say(*legacy_table(files.legacy.result()).splitlines())
    folder = create_run_folder(config.project, config.name, config.exist_ok)
    report.plot(result, table, folder)
    if report.per_image is not None:
        names = [path.rpartition("/")[2] for path in table.paths]
        write_per_image(folder / FILE, report.per_image(result), names, classes.names)
    files.write(folder)
    say(f"results in {folder}", *table.remarks.summary())
    return Validated(folder, model.head.metrics(result), result)


def evaluate(config: ValConfig, evaluation: Evaluation, size: int, world: World) -> Validation:
    """Evaluate on whole images or, with --tile, on tiles of full-size images.

    size: long side of the network input.
    """
    model, device = evaluation.model, evaluation.device
    if config.tiling:
        if device == CPU:
            model.require_memory((config.batch_size, 3, size, size), trains=False)
        return evaluation.run_tiled(config.tiling, size, world)
    workers = loader_workers(config.workers, config.device)
    recipe = ValRecipe(
        size, config.batch_size, model.stride, not config.square, model.fixed_size,
        model.head.task.items.load(),
    )  # fmt: skip
    with ValLoader(evaluation.samples, recipe, workers, world=world) as loader:
        loader.lend_to(device)
        if device == CPU:
            model.require_memory(loader.largest_shape, trains=False)
        return evaluation.run(loader)


@dataclass(frozen=True)
class Files:
    """What val.py's flags ask for beside the metrics; None for what they do not."""

    coco_results: CocoResults | None
    labels: LabelFiles | None
    legacy: Any  # the evaluator of YOLOv5's own metrics

    @classmethod
    def of(
        cls,
        config: ValConfig,
        head: Head,
        samples: SampleTable,
        classes: ScoredClasses,
        annotations: CocoAnnotations | None,
    ) -> Files:
        coco_results = CocoResults(classes.names, samples) if config.save_json else None
        if coco_results is not None and annotations is not None:
            coco_results.image_ids = list(annotations.image_ids)
            coco_results.category_ids = classes.of_model(annotations.category_ids)
        labels = LabelFiles(samples, config.save_conf) if config.save_txt else None
        legacy = head.task.legacy.load()(classes.names) if config.legacy_metric else None
        return cls(coco_results, labels, legacy)

    @property
    def sinks(self) -> list[Sink]:
        return [x for x in (self.coco_results, self.labels, self.legacy) if x is not None]

    def write(self, folder: Path) -> None:
        if self.coco_results is not None:
            self.coco_results.write(folder / "predictions.json")
        if self.labels is not None:
            self.labels.write(folder / "labels")


def find_annotations(
    config: ValConfig, head: Head, samples: SampleTable, dataset: DatasetSpec, is_main: bool
) -> CocoAnnotations | None:
    """Return annotations to use instead of labels: from --annotations or the dataset's file."""
    own = own_annotations(dataset, config.split)
    if not head.task.annotations or config.annotations is own is None:
        return None
    read: Callable[..., CocoAnnotations] = head.task.annotations.load()
    if config.annotations is not None:
        return read(config.annotations, samples, dataset.class_names)
    try:
        annotations = read(own, samples, dataset.class_names)
    except UserError as error:  # good enough to train on, but not for COCO's metric
        if is_main:
            log.warning("crowds and areas of outlines are ignored: %s", printable(str(error)))
        return None
    log.info("crowds and areas are taken from %s", printable(str(own)))
    return annotations


def annotated_objects(
    annotations: CocoAnnotations, in_model: np.ndarray, classes: Sequence[int] | None, image: int
) -> GroundTruth:
    """Return an image's objects with the model's class numbers, of these classes or all (None)."""
    objects = annotations.ground_truth(image)
    objects = objects._replace(class_index=in_model[objects.class_index])
    return objects if classes is None else objects.take(np.isin(objects.class_index, classes))


def classes_for(
    config: ValConfig, class_names: Sequence[str], weights: Weights, num_classes: int
) -> ScoredClasses:
    """Return the classes to score, and log a line if they are not numbered as the dataset's are.

    Raises:
        UserError: the weights do not know a class of the dataset.
    """
    if config.single_class:
        return ScoredClasses(tuple(class_names), np.arange(len(class_names)))
    known = weights.class_names and class_names_of(weights, num_classes)
    data, file = f"--data {config.data}", f"--weights {' '.join(config.weights)}"
    classes = scored_classes(data, class_names, file, known, num_classes)
    if not classes.are_of_data:
        text = "classes are matched by name and have the numbers of the weights, which know %s"
        log_once(text, count(num_classes, "class", "classes"), level=logging.INFO)
    return classes


def samples_for(
    config: ValConfig,
    model: Predictor,
    samples: Sequence[Sample],
    classes: ScoredClasses,
    is_of_folders: bool,
) -> SampleTable:
    """Return samples with the numbers of `classes`, filtered by --classes.

    Raises:
        UserError: flags or labels do not fit the model's task.
    """
    task, weights = model.head.task, " ".join(config.weights)
    config.refuse({**task.refused, **task.refused_by_val})
    table = classes.renumbered(samples)
    if config.annotations is None:
        task.check_labels(table, config.data, is_of_folders, weights)
    return only_classes(table, config.classes)
