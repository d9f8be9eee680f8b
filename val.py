"""Validate a detector: a split of a dataset -> P, R, mAP50 and mAP50-95, per class and over all.

Reads as: flags -> dataset -> weights -> raw maps -> boxes -> suppression -> COCO's metric.
`train.py` calls `evaluate` after each epoch.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import backend
from backend import autograd, ops
from utils.boxes import cxcywh_to_xyxy, letterbox_to_image
from utils.checkpoint import Checkpoint, load_checkpoint
from utils.command import run_command
from utils.config import ValConfig, parse_val_flags
from utils.data.labels import Sample, scan_samples
from utils.data.loader import Batch, ValLoader
from utils.data.sources import DatasetSpec, list_images, load_dataset
from utils.errors import UserError
from utils.images import images_to_tensor
from utils.metrics import DetectionEvaluator, EvaluationResult, GroundTruth
from utils.nms import non_max_suppression
from utils.report import create_run_folder, metrics_table, progress_bar

if TYPE_CHECKING:
    from models.detector import Detector
    from models.heads.anchor.loss import DetectionLoss

log = logging.getLogger("val")


class Validation(NamedTuple):
    """What `evaluate` measures."""

    result: EvaluationResult
    losses: np.ndarray  # (3,) float64: mean box, objectness, classification; zeros without a loss


def main() -> None:
    config = parse_val_flags()
    dataset = load_dataset(config.data, splits=(config.task,))
    samples = load_split(dataset, config.task)
    checkpoint = load_checkpoint(config.weights)
    backend.use(config.backend)
    device = backend.device.resolve(config.device)
    model = load_detector(checkpoint, device)
    if len(dataset.class_names) != model.spec.num_classes:
        raise UserError(
            f"--data {config.data} has {len(dataset.class_names)} classes, "
            f"--weights {config.weights} {model.spec.num_classes}; they must be equal"
        )
    if dataset.class_names != checkpoint.header.class_names:
        trained = ", ".join(checkpoint.header.class_names)
        log.warning("the weights were trained for classes of other names: %s", trained)
    log.info(backend.device.describe(device))
    with ValLoader(
        samples, config.image_size, config.batch_size, loader_workers(config.workers), model.stride
    ) as loader:
        validation = evaluate(
            model,
            loader,
            samples,
            dataset.class_names,
            device,
            config.confidence_threshold,
            config.iou_threshold,
        )
    print(metrics_table(validation.result))
    write_results(config, validation.result)


def evaluate(
    model: Detector,
    loader: ValLoader,
    samples: Sequence[Sample],
    class_names: Sequence[str],
    device: str,
    confidence_threshold: float = 0.001,
    iou_threshold: float = 0.6,
    loss: DetectionLoss | None = None,
) -> Validation:
    """Detect in every image of the loader and compare with its labels.

    Args:
        model: in evaluation mode.
        samples: those that the loader was made from.
        loss: adds the mean losses of the batches, as in training.
    """
    evaluator = DetectionEvaluator(class_names)
    losses = np.zeros(3)
    with progress_bar(len(loader), "validating") as progress:
        for batch in loader:
            with autograd.no_grad():
                raw = model(images_to_tensor(batch.images, device))
                decoded = ops.to_numpy(model.decode(raw))
                if loss is not None:
                    terms = loss(raw, batch.targets)
                    losses += [float(ops.to_numpy(term)) for term in terms[:3]]
            _add_detections(evaluator, batch, samples, decoded, confidence_threshold, iou_threshold)
            progress.update()
    return Validation(evaluator.result(), losses / len(loader))


def _add_detections(
    evaluator: DetectionEvaluator,
    batch: Batch,
    samples: Sequence[Sample],
    decoded: np.ndarray,
    confidence_threshold: float,
    iou_threshold: float,
) -> None:
    """Suppress, map back to the original images and hand over, image by image."""
    for index, predictions, letterbox in zip(
        batch.sample_indices.tolist(), decoded, batch.letterboxes, strict=True
    ):
        found = non_max_suppression(
            predictions, confidence_threshold, iou_threshold, multi_label=True
        )
        found = found._replace(boxes_xyxy=letterbox_to_image(found.boxes_xyxy, letterbox))
        evaluator.add(index, found, ground_truth(samples[index]))


def load_split(dataset: DatasetSpec, split: str) -> list[Sample]:
    """The usable samples of a split; what is left out is listed and counted on screen."""
    paths = list_images(getattr(dataset, split))
    report = scan_samples(paths, len(dataset.class_names))
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


def ground_truth(sample: Sample) -> GroundTruth:
    """A sample's labels in pixels of its image."""
    size = np.array([sample.width, sample.height, sample.width, sample.height], np.float64)
    return GroundTruth(sample.class_index, cxcywh_to_xyxy(sample.boxes_cxcywh_norm * size))


def load_detector(checkpoint: Checkpoint, device: str) -> Detector:
    """The averaged weights of a checkpoint, in evaluation mode on a device."""
    from models.detector import Detector
    from models.graph import parse_model

    try:
        model = Detector(parse_model(checkpoint.header.model))
        backend.nn.load_state_arrays(model, checkpoint.ema)
    except ValueError as error:  # a damaged file; ours would fit its own header
        raise UserError(f"the weights do not fit the model stored with them: {error}") from error
    return backend.nn.frozen_copy(backend.nn.place(model, device, "float32"))


def loader_workers(asked: int) -> int:
    """Loader processes: as many as asked for, at most one a core."""
    return min(asked, os.cpu_count() or 1)


def write_results(config: ValConfig, result: EvaluationResult) -> None:
    """The precision-recall plot, into a folder of its own."""
    from utils.plots import plot_precision_recall

    folder = create_run_folder(config.project, config.name, config.exist_ok)
    plot_precision_recall(result, folder / "PR_curve.png")
    print(f"results in {folder}")


if __name__ == "__main__":
    run_command(main)
