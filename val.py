"""Validate a detector: a split of a dataset -> P, R, mAP50 and mAP50-95, per class and over all.

Reads as: flags -> dataset -> weights -> raw maps -> boxes -> suppression -> COCO's metric.
`train.py` calls `evaluate` after each epoch.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import backend
from backend import autograd, ops
from backend.contract import Tensor
from models.images import images_to_tensor
from utils.boxes import cxcywh_to_xyxy, letterbox_to_image
from utils.cli.command import run_command
from utils.cli.config import ValConfig, parse_val_flags
from utils.data.loading.loader import Batch, Targets, ValLoader
from utils.data.sources.coco_annotations import read_coco_annotations
from utils.data.sources.dataset import DatasetSpec, list_images, load_dataset
from utils.data.sources.labels import Sample
from utils.data.sources.scan_shares import scan_shared
from utils.errors import UserError
from utils.evaluation.coco.metric import (
    DetectionEvaluator,
    DetectionSink,
    EvaluationResult,
    GroundTruth,
)
from utils.evaluation.coco.results_file import CocoResults
from utils.evaluation.legacy.metric import LegacyEvaluator
from utils.evaluation.nms import SuppressionSettings, non_max_suppression
from utils.evaluation.progress import (
    NOTHING_DONE,
    Collector,
    EvaluationProgress,
    EvaluationSuspended,
    FoundImage,
)
from utils.processes import watchdog
from utils.processes.cores import core_share
from utils.processes.numa.binding import bind_numa
from utils.processes.ranks import Ranks, joined
from utils.processes.share import WHOLE, AllGather, Share, gather_alone
from utils.report.console import create_run_folder, legacy_table, metrics_table, progress_bar
from utils.state.checkpoint import Checkpoint, load_weights, model_document

if TYPE_CHECKING:
    from models.detector import Detector
    from models.heads.base import Loss

DEFAULT_SUPPRESSION = SuppressionSettings()

log = logging.getLogger("val")


class Validation(NamedTuple):
    """What `evaluate` measures."""

    result: EvaluationResult
    losses: np.ndarray  # (3,) float64: mean box, objectness, classification; zeros without a loss


def main() -> None:
    config = parse_val_flags()
    if config.bind_numa:
        log.info(bind_numa(config.device))
    with joined(config) as ranks:
        run_validation(config, ranks)


def run_validation(config: ValConfig, ranks: Ranks) -> None:
    """Build the parts, evaluate, and show what was found."""
    share, all_gather = ranks
    dataset = load_dataset(config.data, splits=(config.task,))
    samples = load_split(dataset, config.task, share, all_gather)
    samples = only_classes(samples, config.classes, len(dataset.class_names))
    checkpoint = load_weights(config.weights)
    backend.use(config.backend)
    device = backend.device.resolve(config.device)
    model = load_detector(checkpoint, device)
    if len(dataset.class_names) != model.spec.num_classes:
        raise UserError(
            f"--data {config.data} has {len(dataset.class_names)} classes, "
            f"--weights {config.weights} {model.spec.num_classes}; they must be equal"
        )
    if share.rank == 0 and dataset.class_names != checkpoint.header.class_names:
        trained = ", ".join(checkpoint.header.class_names)
        log.warning("the weights were trained for classes of other names: %s", trained)
    log.info(backend.device.describe(device))
    coco_results = CocoResults(dataset.class_names, [sample.image_path for sample in samples])
    objects = None
    if config.annotations is not None:
        annotations = read_coco_annotations(config.annotations, samples, dataset.class_names)
        objects = [of_classes(image, config.classes) for image in annotations.objects]
        coco_results.image_ids = list(annotations.image_ids)
        coco_results.category_ids = annotations.category_ids
    legacy = LegacyEvaluator(dataset.class_names)
    asked = ((coco_results, config.save_json), (legacy, config.legacy_metric))
    sinks: list[DetectionSink] = [sink for sink, wanted in asked if wanted]
    with (
        ValLoader(
            samples,
            config.image_size,
            config.batch_size,
            loader_workers(config.workers),
            model.stride,
            rectangular=not config.square,
            share=share,
        ) as loader,
        watchdog.phase("validation"),
    ):
        validation = evaluate(
            model,
            loader,
            samples,
            dataset.class_names,
            device,
            suppression_settings(config),
            sinks=sinks,
            objects=objects,
            all_gather=all_gather,
        )
    if share.rank == 0:
        print(metrics_table(validation.result))
        if config.legacy_metric:
            print(legacy_table(legacy.result()))
        write_results(config, validation.result, coco_results)


def evaluate(
    model: Detector,
    loader: ValLoader,
    samples: Sequence[Sample],
    class_names: Sequence[str],
    device: str,
    suppression: SuppressionSettings = DEFAULT_SUPPRESSION,
    loss: Loss | None = None,
    sinks: Sequence[DetectionSink] = (),
    objects: Sequence[GroundTruth] | None = None,
    channels_last: bool | None = None,
    all_gather: AllGather = gather_alone,
    progress: EvaluationProgress = NOTHING_DONE,
    should_stop: Callable[[], bool] | None = None,
) -> Validation:
    """Detect in every image of the loader and compare with its labels.

    Each rank detects in its share of every batch; all of them return what a single process does.

    Args:
        model: in evaluation mode.
        samples: those that the loader was made from.
        suppression: which predictions become detections.
        loss: adds the mean losses of the batches, as in training; the sum of what it returns on
            all ranks is a batch's.
        sinks: receive what the evaluator receives, each image under its place in samples, on the
            first rank alone.
        objects: of each sample, in pixels of its image, in place of its labels.
        channels_last: layout of the feature maps; None for the one that the device gains from.
        all_gather: over the ranks among which the loader's batches are shared.
        progress: what an earlier call had found when it was suspended; it goes on behind that.
        should_stop: asked after every batch, on all ranks, which must agree on the answer.

    Raises:
        EvaluationSuspended: on all ranks, with what they found; should_stop wanted it.
    """
    evaluator = DetectionEvaluator(class_names)
    if objects is None:
        objects = [ground_truth(sample) for sample in samples]
    sinks = (evaluator, *sinks) if loader.share.rank == 0 else (evaluator,)
    receive = partial(_hand_over, sinks, objects)
    collector = Collector(progress, loader.share, all_gather, receive)
    finish = partial(_add_detections, collector, suppression)
    finish_last: Callable[[], None] = _nothing
    raw: tuple[Tensor, ...] = ()
    first = progress.num_batches
    with progress_bar(len(loader), "validating", first) as bar, autograd.no_grad():
        for batch_index, batch in enumerate(loader.batches(first), first):
            # Without an image, a rank still takes part in the loss, which asks all of them.
            if len(batch.images) or loss is not None:
                raw = model(images_to_tensor(batch.images, device, channels_last=channels_last))
            # The framework has queued its work, but for PyTorch on a CPU, and does it meanwhile.
            finish_last()
            collector.end_batch(_read_losses(loss, raw, batch.targets))
            predictions: Sequence[np.ndarray] = ()
            if len(batch.images):
                predictions = model.decode_above(raw, suppression.confidence_threshold)
            finish_last = partial(finish, batch_index, batch, predictions)
            bar.update()
            watchdog.progress()
            if should_stop is not None and should_stop():
                finish_last()
                raise EvaluationSuspended(collector.progress())
        finish_last()
    losses = collector.finish()  # the evaluator has all images only then
    return Validation(evaluator.result(), losses)


def _nothing() -> None:
    """What there is to finish before the first batch."""


def _read_losses(loss: Loss | None, raw: Sequence[Tensor], targets: Targets) -> np.ndarray:
    """(3,) float64: box, objectness, classification; zeros without a loss."""
    if loss is None:
        return np.zeros(3)
    return np.array([float(ops.to_numpy(term)) for term in loss(raw, targets).by_name.values()])


def _hand_over(
    sinks: Sequence[DetectionSink], objects: Sequence[GroundTruth], image: FoundImage
) -> None:
    for sink in sinks:
        sink.add(image.image_index, image.detections, objects[image.image_index])


def _add_detections(
    collector: Collector,
    suppression: SuppressionSettings,
    batch_index: int,
    batch: Batch,
    predictions: Sequence[np.ndarray],
) -> None:
    """Suppress, map back to the original images and collect, image by image.

    On the host alone: whatever asks the framework for a result waits for all that it has queued.
    """
    for index, decoded, letterbox in zip(
        batch.sample_indices.tolist(), predictions, batch.letterboxes, strict=True
    ):
        found = non_max_suppression(decoded, multi_label=True, **vars(suppression))
        found = found._replace(boxes_xyxy=letterbox_to_image(found.boxes_xyxy, letterbox))
        collector.add_image(FoundImage(batch_index, index, found))


def load_split(
    dataset: DatasetSpec, split: str, share: Share = WHOLE, all_gather: AllGather = gather_alone
) -> list[Sample]:
    """The usable samples of a split; what is left out is listed and counted on screen.

    Each rank reads its share, and all of them return the same; the first one speaks for all.
    """
    paths = list_images(getattr(dataset, split))
    with watchdog.phase(f"reading the labels of {split}"):
        report = scan_shared(paths, len(dataset.class_names), share, all_gather)
    if share.rank != 0:
        return report.samples
    for problem in report.problems:
        log.warning("%s", problem)
    if report.problems:
        log.warning(
            "%s: %d of %d images usable, %d problems listed above",
            split,
            len(report.samples),
            len(paths),
            len(report.problems),
        )
    return report.samples


def only_classes(
    samples: list[Sample], classes: Sequence[int] | None, num_classes: int
) -> list[Sample]:
    """The samples with the labels of these classes, all when None; UserError for an unknown one."""
    if classes is None:
        return samples
    unknown = [number for number in classes if not 0 <= number < num_classes]
    if unknown:
        raise UserError(f"--classes {unknown[0]}: the dataset's classes are 0 to {num_classes - 1}")
    chosen = [np.isin(sample.class_index, classes) for sample in samples]
    return [
        dataclasses.replace(
            sample,
            class_index=sample.class_index[rows],
            boxes_cxcywh_norm=sample.boxes_cxcywh_norm[rows],
        )
        for sample, rows in zip(samples, chosen, strict=True)
    ]


def suppression_settings(config: ValConfig) -> SuppressionSettings:
    """The flags that shape what is detected."""
    names = [field.name for field in dataclasses.fields(SuppressionSettings)]
    return SuppressionSettings(**{name: getattr(config, name) for name in names})


def ground_truth(sample: Sample) -> GroundTruth:
    """A sample's labels in pixels of its image."""
    size = np.array([sample.width, sample.height, sample.width, sample.height], np.float64)
    return GroundTruth(sample.class_index, cxcywh_to_xyxy(sample.boxes_cxcywh_norm * size))


def of_classes(objects: GroundTruth, classes: Sequence[int] | None) -> GroundTruth:
    """The objects of these classes, all when None."""
    if classes is None:
        return objects
    rows = np.isin(objects.class_index, classes)
    given = {name: field for name, field in objects._asdict().items() if field is not None}
    return objects._replace(**{name: field[rows] for name, field in given.items()})


def load_detector(checkpoint: Checkpoint, device: str) -> Detector:
    """The averaged weights of a checkpoint, in evaluation mode on a device.

    Raises:
        UserError: weights without a model, or one that this project cannot build as it was.
    """
    from models.detector import Detector
    from models.graph import parse_model

    document = model_document(checkpoint)
    try:
        model = Detector(parse_model(document))
        backend.nn.load_state_arrays(model, checkpoint.ema)
    except ValueError as error:
        raise UserError(f"--weights: their model cannot be built here: {error}") from error
    strides = checkpoint.header.settings.get("strides") or model.head.strides
    if tuple(strides) != model.head.strides:
        raise UserError(f"--weights: strides {strides}, here {list(model.head.strides)}")
    return backend.nn.frozen_copy(backend.nn.place(model, device, "float32"))


def loader_workers(asked: int) -> int:
    """Loader processes: as many as asked for, at most one for each core of this rank's share."""
    return min(asked, core_share())


def write_results(config: ValConfig, result: EvaluationResult, coco_results: CocoResults) -> None:
    """The precision-recall plot and, where asked for, predictions.json, into a folder."""
    from utils.report.plots import plot_precision_recall

    folder = create_run_folder(config.project, config.name, config.exist_ok)
    plot_precision_recall(result, folder / "PR_curve.png")
    if config.save_json:
        coco_results.write(folder / "predictions.json")
    print(f"results in {folder}")


if __name__ == "__main__":
    run_command(main, several=True)
