"""The work of val.py: weights and samples -> a model, its evaluation, and the figures shown."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import backend
from backend.checks import CPU
from backend.words import count
from models.evaluation import Validation, evaluate, evaluate_tiled
from models.heads.base import Head, Sink
from models.inference.exported import input_size, log_limits
from models.inference.image_detector import ImageDetector, Predictor
from models.inference.predictor import (
    make_predictor,
    suppression_settings,
    trained_names,
    with_size,
)
from models.inference.predictors import OneClass
from utils.cli.val_config import STUDY, ValConfig
from utils.data.loading.loader import ValLoader
from utils.data.sources.coco_annotations import CocoAnnotations
from utils.data.sources.samples import Sample, SampleTable, table_of
from utils.data.sources.splits import only_classes
from utils.detections import GroundTruth
from utils.errors import UserError
from utils.evaluation.coco.results_file import CocoResults
from utils.processes import watchdog
from utils.processes.cores import loader_workers
from utils.processes.world import World
from utils.report.plots.results import StudyRow, plot_study, study_sizes, write_study
from utils.results.text_lines import LabelFiles
from utils.screen.text import printable, say
from utils.state.folder import create_run_folder
from utils.tasks.task import Task
from utils.weights.detecting import Weights

log = logging.getLogger("val")


def run_validation(
    config: ValConfig,
    class_names: tuple[str, ...],
    samples: Sequence[Sample],
    weights: Sequence[Weights],
    world: World,
    own_annotations: Path | None = None,
    is_of_folders: bool = False,
) -> None:
    """Evaluate the EMA of checkpoints together and, on the first rank, show what was found.

    Args:
        samples: of the split, with labels of all classes.
        own_annotations: the COCO file that the labels are from, if they are from one.
        is_of_folders: the images are labelled by the folders in which they lie.
    """
    device = backend.device.resolve(config.device)
    if config.task == STUDY:
        return study(config, class_names, samples, weights, device, world, is_of_folders)
    model = scored_model(config, weights, device)
    task = model.head.task
    samples = samples_of(config, class_names, samples, model, is_of_folders)
    config = with_size(config, task, weights)
    config = dataclasses.replace(config, image_size=input_size(config, model))
    log_limits(config, weights)
    other_names = class_names != trained_names(weights[0]) and not config.single_class
    if world.process.is_main and other_names:
        trained = ", ".join(trained_names(weights[0]))
        log.warning("the weights were trained for classes with other names: %s", trained)
    log.info(backend.device.describe(device))
    coco_results = task.coco_results(class_names, samples) if config.save_json else None
    legacy = task.legacy_metric(class_names) if config.legacy_metric else None
    labels = task.label_files(samples, config.save_conf) if config.save_txt else None
    objects_of = None
    annotations = find_annotations(config, task, samples, class_names, own_annotations, world)
    if annotations is not None:
        objects_of = partial(annotated_objects, annotations, config.classes)
        if coco_results is not None:
            coco_results.image_ids = list(annotations.image_ids)
            coco_results.category_ids = annotations.category_ids
    sinks: list[Sink] = [sink for sink in (coco_results, labels) if sink is not None]
    sinks += [legacy.evaluator] if legacy is not None else []
    begin = time.perf_counter()
    with watchdog.phase("validation"):
        validate = validate_tiled if config.tile else validate_batches
        validation = validate(config, model, device, samples, class_names, world, sinks, objects_of)
    seconds = time.perf_counter() - begin
    if world.process.is_main:
        say(*model.head.table(validation.result).splitlines())
        rate = f"{len(samples) / seconds:.1f} images/s"
        say(f"{count(len(samples), 'image')} in {seconds:.1f} s, {rate}")
        if legacy is not None:
            say(*legacy.table(legacy.evaluator.result()).splitlines())
        write_results(config, model.head, validation.result, samples, coco_results, labels)


def samples_of(
    config: ValConfig,
    class_names: Sequence[str],
    samples: Sequence[Sample],
    model: Predictor,
    is_of_folders: bool,
) -> SampleTable:
    """Return samples with the labels of --classes.

    Raises:
        UserError: flags or labels are not of the model's task, or data and weights have not the
            same number of classes.
    """
    task, weights = model.head.task, " ".join(config.weights)
    task.check(config)
    table = table_of(samples)
    if config.annotations is None:
        task.check_to_score(table, config.data, weights, is_of_folders)
    if not config.single_class and len(class_names) != model.head.num_classes:
        raise UserError(
            f"--data {config.data} has {count(len(class_names), 'class', 'classes')}, "
            f"--weights {weights} {model.head.num_classes}; they must be equal, or taken for one "
            "with --single-cls"
        )
    return only_classes(table, config.classes, len(class_names))


def find_annotations(
    config: ValConfig,
    task: Task,
    samples: Sequence[Sample],
    class_names: Sequence[str],
    own_annotations: Path | None,
    world: World,
) -> CocoAnnotations | None:
    """Return what counts in place of the labels: of --annotations, or of the dataset's own file."""
    if config.annotations is not None:
        return task.annotations(config.annotations, samples, class_names)
    if own_annotations is None:
        return None
    try:
        annotations = task.annotations(own_annotations, samples, class_names)
    except UserError as error:  # good enough to train on, but not for COCO's metric
        if world.process.is_main:
            log.warning("crowds and areas of outlines do not count: %s", printable(str(error)))
        return None
    log.info("crowds and areas are those of %s", printable(str(own_annotations)))
    return annotations


def validate_batches(
    config: ValConfig,
    model: Predictor,
    device: str,
    samples: Sequence[Sample],
    class_names: Sequence[str],
    world: World,
    sinks: Sequence[Sink],
    objects_of: Callable[[int], GroundTruth] | None,
) -> Validation:
    """Validate with batches of whole images."""
    with val_loader(config, samples, model, world) as loader:
        loader.build_in(partial(backend.device.host_bytes, device=device))
        if device == CPU:
            model.require_memory(loader.largest_shape, trains=False)
        suppression = suppression_settings(config, multi_label=True)
        return evaluate(
            model, loader, samples, class_names, device, suppression,
            sinks=sinks, objects_of=objects_of,
        )  # fmt: skip


def validate_tiled(
    config: ValConfig,
    model: Predictor,
    device: str,
    samples: Sequence[Sample],
    class_names: Sequence[str],
    world: World,
    sinks: Sequence[Sink],
    objects_of: Callable[[int], GroundTruth] | None,
) -> Validation:
    """Validate with images at their own size, in batches of tiles."""
    if device == CPU:
        shape = config.batch_size, 3, config.image_size, config.image_size
        model.require_memory(shape, trains=False)
    suppression = suppression_settings(config, multi_label=True)
    detector = ImageDetector(model, device, config.image_size, suppression, config.tiling)
    return evaluate_tiled(detector, samples, class_names, world, sinks, objects_of)


def scored_model(config: ValConfig, weights: Sequence[Weights], device: str) -> Predictor:
    """Return the models together, as the flags score them."""
    model = make_predictor(weights, device, config.augment, config.half, fold=False)
    return OneClass(model) if config.single_class else model


def val_loader(
    config: ValConfig, samples: Sequence[Sample], model: Predictor, world: World
) -> ValLoader:
    """Make the loader of the samples; what it read is not kept, as there is one pass."""
    size, batch = config.image_size, config.batch_size
    workers = loader_workers(config.workers, config.device)
    rectangular, cache = not config.square, ""
    return ValLoader(
        samples,
        size,
        batch,
        workers,
        model.stride,
        rectangular,
        cache,
        world,
        model.fixed_size,
        model.head.task.val_items,
    )


def annotated_objects(
    annotations: CocoAnnotations, classes: Sequence[int] | None, image: int
) -> GroundTruth:
    """Return the objects of these classes in an image; all when None."""
    return of_classes(annotations.ground_truth(image), classes)


def of_classes(objects: GroundTruth, classes: Sequence[int] | None) -> GroundTruth:
    """Return the objects of these classes; all when None."""
    if classes is None:
        return objects
    return objects.take(np.isin(objects.class_index, classes))


def study(
    config: ValConfig,
    class_names: tuple[str, ...],
    samples: Sequence[Sample],
    weights: Sequence[Weights],
    device: str,
    world: World,
    is_of_folders: bool,
) -> None:
    """Validate each of the weights at each size; write figures and times as a table and a plot."""
    rows: list[StudyRow] = []
    is_main = world.process.is_main
    folder = create_run_folder(config.project, config.name, config.exist_ok) if is_main else None
    for path, checkpoint in zip(config.weights, weights, strict=True):
        model = scored_model(config, [checkpoint], device)
        chosen = samples_of(config, class_names, samples, model, is_of_folders)
        if model.fixed_size is not None:
            raise UserError(
                f"--task study: {path} takes images of one size; give weights, or a file of "
                "export.py --dynamic"
            )
        for size in study_sizes(model.stride):
            asked = dataclasses.replace(config, image_size=size)
            begin = time.perf_counter()
            with watchdog.phase("validation"):
                validation = validate_batches(
                    asked, model, device, chosen, class_names, world, (), None
                )
            milliseconds = 1000 * (time.perf_counter() - begin) / len(samples)
            figures = model.head.figures(validation.result)
            rows.append(StudyRow(path, size, figures, milliseconds))
            if folder is not None:
                say(rows[-1].line())
                write_study(rows, folder)  # the largest sizes may not fit into memory
    if folder is not None:
        plot_study(rows, folder)
        say(f"results in {folder}")


def write_results(
    config: ValConfig,
    head: Head,
    result: Any,
    samples: Sequence[Sample],
    coco_results: CocoResults | None,
    labels: LabelFiles | None,
) -> None:
    """Write the head's plots and, where asked for, predictions.json and labels, into a folder."""
    folder = create_run_folder(config.project, config.name, config.exist_ok)
    head.plot(result, samples, folder)
    if coco_results is not None:
        coco_results.write(folder / "predictions.json")
    if labels is not None:
        labels.write(folder / "labels")
    say(f"results in {folder}")
