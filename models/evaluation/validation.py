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
from duet.models.heads.base import Sink
from duet.models.inference.classes import ScoredClasses, scored_classes
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictor import (
    Weights,
    class_names_of,
    input_size,
    log_once,
    make_predictor,
    suppression_settings,
)
from duet.models.inference.predictors import OneClass, Predictor
from duet.utils.cli.run_config import known_classes
from duet.utils.cli.val_config import ValConfig
from duet.utils.data.loading.items import items_of
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.coco_annotations import CocoAnnotations, read_coco_annotations
from duet.utils.data.sources.label_file import label_lines
from duet.utils.data.sources.needed_labels import check_labels_to_score
from duet.utils.data.sources.samples import Sample, SampleTable
from duet.utils.data.sources.splits import only_classes
from duet.utils.errors import UserError
from duet.utils.evaluation.coco.per_image import FILE, write_per_image
from duet.utils.evaluation.coco.results_file import CocoResults
from duet.utils.evaluation.legacy import LegacyEvaluator, legacy_masks
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.run_folder import create_run_folder
from duet.utils.geometry.detections import Detections, GroundTruth, Segmentations
from duet.utils.processes import watchdog
from duet.utils.processes.cores import loader_workers
from duet.utils.processes.world import World
from duet.utils.report.console import legacy_table
from duet.utils.report.task_reports import REPORTS
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
    model = make_predictor(weights, device, config.augment, config.half, fold=False)
    if config.single_class:
        model = OneClass(model)
    task = model.head.task
    classes = classes_for(config, class_names, weights[0], model.head.num_classes)
    kept = known_classes("--classes", config.classes, classes.names)
    config = dataclasses.replace(config, classes=kept)
    samples = samples_for(config, model, samples, classes, is_of_folders)
    size = input_size(config.image_size, model, weights)
    log.info(backend.device.describe(device))
    files = VAL_FILES.get(task.name)
    coco_results = CocoResults(classes.names, samples) if config.save_json else None
    legacy = files.legacy(classes.names) if files and config.legacy_metric else None
    labels = LabelFiles(samples, config.save_conf) if config.save_txt else None
    objects_of = None
    annotations = find_annotations(config, files, samples, class_names, own_annotations, is_main)
    class_names = classes.names
    if annotations is not None:
        objects_of = partial(annotated_objects, annotations, classes.in_model, config.classes)
        if coco_results is not None:
            coco_results.image_ids = list(annotations.image_ids)
            coco_results.category_ids = classes.of_model(annotations.category_ids)
    sinks: list[Sink] = [x for x in (coco_results, labels, legacy) if x is not None]
    begin = time.perf_counter()
    found = sinks, objects_of
    result = _validate(config, model, size, samples, class_names, device, world, *found).result
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
    if per_image := REPORTS[task.name].per_image:
        names = [path.rpartition("/")[2] for path in samples.paths]
        write_per_image(folder / FILE, per_image(result), names, class_names)
    if coco_results is not None:
        coco_results.write(folder / "predictions.json")
    if labels is not None:
        labels.write(folder / "labels")
    say(f"results in {folder}", *samples.remarks.summary())
    return Validated(folder, model.head.metrics(result), result)


class ValFiles(NamedTuple):
    """A task's functions for val.py-only flags; `Task.refused_by_val` rejects them for others.

    Attributes:
        annotations: reads the samples' objects from a COCO file, for --annotations; UserError for
            an invalid file.
        legacy: creates the evaluator of YOLOv5's own metrics, for --legacy-metric.
    """

    annotations: Callable[[Path, Sequence[Sample], Sequence[str]], CocoAnnotations]
    legacy: Callable[[Sequence[str]], Any]


def _mask_annotations(
    path: Path, samples: Sequence[Sample], class_names: Sequence[str]
) -> CocoAnnotations:
    found = read_coco_annotations(path, samples, class_names, masks=True)
    num_objects = sum(len(objects.class_index) for objects in found.objects)
    if num_objects and not any(map(any, found.segmentations or ())):
        raise UserError(
            f"--annotations {path}: none of its {count(num_objects, 'object')} has a "
            "segmentation, which masks require; use a file with segmentations, or omit the flag"
        )
    return found


VAL_FILES: dict[str, ValFiles] = {
    "detect": ValFiles(read_coco_annotations, LegacyEvaluator),
    "detect-anchor-free": ValFiles(read_coco_annotations, LegacyEvaluator),
    "segment": ValFiles(_mask_annotations, legacy_masks),
}


class LabelFiles:
    """Label files, collected image by image and written together.

    samples: the images' samples; scores: whether to write scores.
    """

    def __init__(self, samples: Sequence[Sample], scores: bool) -> None:
        self._samples, self._scores = samples, scores
        self._lines: dict[int, list[str]] = {}

    def add(
        self, image_id: int, found: Detections | Segmentations, ground_truth: GroundTruth
    ) -> None:
        """Add the detections of the image at a sample index, in its pixels."""
        sample = self._samples[image_id]
        self._lines[image_id] = label_lines(found, (sample.height, sample.width), self._scores)

    def write(self, folder: Path) -> None:
        """Create the folder and write a file per image with detections.

        If several images have the same name, the second becomes NAME-2.txt.
        """
        folder.mkdir(exist_ok=True)
        taken: set[str] = set()
        for index, sample in enumerate(self._samples):
            name, number = sample.image_path.stem, 1
            while name in taken:
                number += 1
                name = f"{sample.image_path.stem}-{number}"
            taken.add(name)
            path = folder / f"{name}.txt"
            lines = self._lines.get(index)
            if not lines:  # remove the file of an earlier run
                path.unlink(missing_ok=True)
                continue
            with atomic_text_file(path) as file:
                file.writelines(f"{line}\n" for line in lines)


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
        check_labels_to_score(task.name, table, config.data, weights, is_of_folders)
    return only_classes(table, config.classes)


def _validate(
    config: ValConfig,
    model: Predictor,
    size: int,
    samples: Sequence[Sample],
    class_names: Sequence[str],
    device: str,
    world: World,
    sinks: Sequence[Sink],
    objects_of: Callable[[int], GroundTruth] | None,
) -> Validation:
    """Validate on whole images or, with --tile, on tiles of full-size images."""
    suppression = suppression_settings(config, multi_label=True)
    with watchdog.phase("validation"):
        if config.tile:
            if device == CPU:
                model.require_memory((config.batch_size, 3, size, size), trains=False)
            detector = ImageDetector(model, device, size, suppression, config.tiling)
            return evaluate_tiled(detector, samples, class_names, world, sinks, objects_of)
        workers = loader_workers(config.workers, config.device)
        with ValLoader(
            samples, size, config.batch_size, workers, model.stride, not config.square, cache="",
            world=world, fixed_size=model.fixed_size, items=items_of(model.head.task.name),
        ) as loader:  # fmt: skip
            loader.lend_to(device)
            if device == CPU:
                model.require_memory(loader.largest_shape, trains=False)
            return evaluate(
                model, loader, samples, class_names, device, suppression, sinks=sinks,
                objects_of=objects_of,
            )  # fmt: skip
