"""The main function of val.py: build the model, evaluate it, and report its metrics."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duet import backend
from duet.backend.checks import CPU
from duet.models.evaluation.evaluate import Validation, evaluate, evaluate_tiled
from duet.models.evaluation.val_files import VAL_FILES, LabelFiles, ValFiles
from duet.models.heads.base import Sink
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictor import (
    Weights,
    make_predictor,
    suppression_settings,
    with_size,
)
from duet.models.inference.predictors import OneClass, Predictor
from duet.utils.cli.val_config import ValConfig
from duet.utils.data.loading.items import items_of
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.coco_annotations import CocoAnnotations
from duet.utils.data.sources.needed_labels import check_labels_to_score
from duet.utils.data.sources.samples import Sample, SampleTable, table_of
from duet.utils.data.sources.splits import only_classes
from duet.utils.detections import GroundTruth
from duet.utils.errors import UserError
from duet.utils.evaluation.coco.results_file import CocoResults
from duet.utils.processes import watchdog
from duet.utils.processes.cores import loader_workers
from duet.utils.processes.world import World
from duet.utils.report.console import legacy_table
from duet.utils.report.task_reports import REPORTS
from duet.utils.run_folder import create_run_folder
from duet.utils.text import count, printable, say

log = logging.getLogger("val")


@dataclasses.dataclass(frozen=True)
class Validated:
    """Result of a validation.

    Attributes:
        metrics: metrics over all classes, named as in results.csv without "metrics/".
        result: all metrics, also per class: `EvaluationResult` for boxes, or the task's own type.
    """

    folder: Path
    metrics: Mapping[str, float]
    result: Any


def run_validation(
    config: ValConfig,
    class_names: tuple[str, ...],
    samples: Sequence[Sample],
    weights: Sequence[Weights],
    world: World,
    own_annotations: Path | None = None,
    is_of_folders: bool = False,
) -> Validated | None:
    """Evaluate checkpoints' EMA weights as an ensemble; return the result on rank 0.

    Other ranks return None.

    Args:
        samples: samples of the split, with labels of all classes.
        own_annotations: the COCO file the labels come from, if any.
        is_of_folders: labels come from the images' folders.
    """
    device, is_main = backend.device.resolve(config.device), world.process.is_main
    work = _Work(config, class_names, device, world, is_of_folders)
    model = work.model(weights)
    task = model.head.task
    samples = work.samples_for(model, samples)
    config = with_size(config, model, weights)
    trained_names = weights[0].class_names
    if is_main and class_names != trained_names and not config.single_class:
        log.warning("the weights were trained on other classes: %s", ", ".join(trained_names))
    log.info(backend.device.describe(device))
    files = VAL_FILES.get(task.name)
    coco_results = CocoResults(class_names, samples) if config.save_json else None
    legacy = files.legacy(class_names) if files and config.legacy_metric else None
    labels = LabelFiles(samples, config.save_conf) if config.save_txt else None
    objects_of = None
    annotations = find_annotations(config, files, samples, class_names, own_annotations, is_main)
    if annotations is not None:
        objects_of = partial(annotated_objects, annotations, config.classes)
        if coco_results is not None:
            coco_results.image_ids = list(annotations.image_ids)
            coco_results.category_ids = annotations.category_ids
    sinks: list[Sink] = [x for x in (coco_results, labels, legacy) if x is not None]
    begin = time.perf_counter()
    result = work._replace(config=config).validate(model, samples, sinks, objects_of).result
    seconds = time.perf_counter() - begin
    if not is_main:
        return None
    say(*REPORTS[task.name].table(result).splitlines())
    images = count(len(samples), "image")
    say(f"{images} in {seconds:.1f} s, {len(samples) / seconds:.1f} images/s")
    if legacy is not None:
        say(*legacy_table(legacy.result()).splitlines())
    folder = create_run_folder(config.project, config.name, config.exist_ok)
    REPORTS[task.name].plot(result, samples, folder)
    if coco_results is not None:
        coco_results.write(folder / "predictions.json")
    if labels is not None:
        labels.write(folder / "labels")
    say(f"results in {folder}")
    return Validated(folder, model.head.metrics(result), result)


def find_annotations(
    config: ValConfig,
    files: ValFiles | None,
    samples: Sequence[Sample],
    class_names: Sequence[str],
    own_annotations: Path | None,
    is_main: bool,
) -> CocoAnnotations | None:
    """Return annotations to use instead of labels: from --annotations or the dataset's file."""
    if files is not None and config.annotations is not None:
        return files.annotations(config.annotations, samples, class_names)
    if files is None or own_annotations is None:
        return None
    try:
        annotations = files.annotations(own_annotations, samples, class_names)
    except UserError as error:  # good enough to train on, but not for COCO's metric
        if is_main:
            log.warning("crowds and areas of outlines are ignored: %s", printable(str(error)))
        return None
    log.info("crowds and areas are taken from %s", printable(str(own_annotations)))
    return annotations


def annotated_objects(
    annotations: CocoAnnotations, classes: Sequence[int] | None, image: int
) -> GroundTruth:
    """Return an image's objects of these classes; None for all."""
    objects = annotations.ground_truth(image)
    return objects if classes is None else objects.take(np.isin(objects.class_index, classes))


class _Work(NamedTuple):
    """Settings shared by the validations of a run."""

    config: ValConfig
    class_names: tuple[str, ...]
    device: str
    world: World
    is_of_folders: bool

    def model(self, weights: Sequence[Weights]) -> Predictor:
        """Return the models as one predictor, configured by the flags."""
        flags = self.config
        model = make_predictor(weights, self.device, flags.augment, flags.half, fold=False)
        return OneClass(model) if flags.single_class else model

    def samples_for(self, model: Predictor, samples: Sequence[Sample]) -> SampleTable:
        """Return samples filtered by --classes.

        Raises:
            UserError: flags or labels do not fit the model's task, or the numbers of classes of
                data and weights differ.
        """
        config, task, weights = self.config, model.head.task, " ".join(self.config.weights)
        config.refuse({**task.refused, **task.refused_by_val})
        table = table_of(samples)
        if config.annotations is None:
            check_labels_to_score(task.name, table, config.data, weights, self.is_of_folders)
        if not config.single_class and len(self.class_names) != model.head.num_classes:
            raise UserError(
                f"--data {config.data} has {count(len(self.class_names), 'class', 'classes')}, "
                f"--weights {weights} has {model.head.num_classes}; the numbers must be equal; use "
                "matching weights, or --single-cls to treat all classes as one"
            )
        return only_classes(table, config.classes, len(self.class_names))

    def validate(
        self,
        model: Predictor,
        samples: Sequence[Sample],
        sinks: Sequence[Sink] = (),
        objects_of: Callable[[int], GroundTruth] | None = None,
    ) -> Validation:
        """Validate on whole images or, with --tile, on tiles of full-size images."""
        config, device, size = self.config, self.device, self.config.image_size
        suppression = suppression_settings(config, multi_label=True)
        with watchdog.phase("validation"):
            if config.tile:
                if device == CPU:
                    model.require_memory((config.batch_size, 3, size, size), trains=False)
                detector = ImageDetector(model, device, size, suppression, config.tiling)
                found = sinks, objects_of
                return evaluate_tiled(detector, samples, self.class_names, self.world, *found)
            workers = loader_workers(config.workers, config.device)
            with ValLoader(
                samples, size, config.batch_size, workers, model.stride, not config.square,
                cache="", world=self.world, fixed_size=model.fixed_size,
                items=items_of(model.head.task.name),
            ) as loader:  # fmt: skip
                loader.build_in(partial(backend.device.host_bytes, device=device))
                if device == CPU:
                    model.require_memory(loader.largest_shape, trains=False)
                return evaluate(
                    model, loader, samples, self.class_names, device, suppression,
                    sinks=sinks, objects_of=objects_of,
                )  # fmt: skip
