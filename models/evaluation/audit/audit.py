"""The main function of `duet audit`: compare a model's detections with the labels."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet import backend
from duet.backend.checks import CPU
from duet.models.evaluation.audit.audit_config import AuditConfig
from duet.models.evaluation.audit.findings import KINDS, LEAST_SCORE, NOTHING, WORTH, Auditor
from duet.models.evaluation.audit.report import WORDS, Audit, audit_page, summary, write_table
from duet.models.evaluation.evaluate import Evaluation
from duet.models.inference.classes import classes_in_model
from duet.models.inference.predictor import (
    Weights,
    class_names_of,
    input_size,
    make_predictor,
)
from duet.utils.data.loading.batches import ValRecipe
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.dataset_yaml import DatasetSpec
from duet.utils.data.sources.samples import Sample, ground_truth
from duet.utils.errors import UserError, brief
from duet.utils.evaluation.nms import SuppressionSettings
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.run_folder import create_run_folder
from duet.utils.geometry.detections import Detections, GroundTruth
from duet.utils.processes.cores import loader_workers
from duet.utils.text import count, say

# Very low scores count as evidence too, and boxes count for each of their classes.
EVIDENCE = SuppressionSettings(LEAST_SCORE, max_detections=1000, multi_label=True)

log = logging.getLogger("audit")


class _Audited(NamedTuple):
    """Sink that passes each evaluated image to the auditor with the dataset's class numbers."""

    auditor: Auditor
    samples: Sequence[Sample]
    in_dataset: np.ndarray

    def add(self, image_id: int, found: Detections, truth: GroundTruth) -> None:
        """Take an image with the model's classes; labels come from the sample."""
        sample = self.samples[image_id]
        labels, size = ground_truth(sample), (sample.height, sample.width)
        class_index = self.in_dataset[found.class_index]
        known = found._replace(class_index=class_index).take(np.flatnonzero(class_index != NOTHING))
        self.auditor.add(image_id, known, labels, size)


def run_audit(
    config: AuditConfig,
    dataset: DatasetSpec,
    samples: Sequence[Sample],
    weights: Sequence[Weights],
) -> None:
    """Detect in all images, compare with their labels, and write audit.html and audit.csv."""
    device = backend.device.resolve(config.device)
    model = make_predictor(weights, device, config.augment, config.half)
    task = model.head.task
    if "audit" in task.refused:
        raise UserError(task.refused["audit"])
    if dataset.is_of_folders:
        raise UserError(
            f"--data {config.data}: images in folders named for their classes have no boxes to "
            "audit; give a dataset with boxes"
        )
    size = input_size(config.image_size, model, weights)
    in_dataset, in_model = share_classes(
        config, dataset.class_names, weights[0].class_names, model.head.num_classes
    )
    lowest = WORTH if config.lowest_score is None else dict.fromkeys(KINDS, config.lowest_score)
    auditor = Auditor(lowest, in_model != NOTHING)

    def labels_of(place: int) -> GroundTruth:
        truth = task.items.load().ground_truth(samples[place])
        class_index = in_model[truth.class_index]
        return truth._replace(class_index=class_index).take(np.flatnonzero(class_index != NOTHING))

    workers = loader_workers(config.workers, config.device)
    with ValLoader(samples, ValRecipe(size, config.batch_size, model.stride), workers) as loader:
        if device == CPU:
            model.require_memory(loader.largest_shape, trains=False)
        names = class_names_of(weights[0], model.head.num_classes)
        sinks = [_Audited(auditor, samples, in_dataset)]
        validation = Evaluation(
            model, samples, names, device, EVIDENCE, sinks=sinks, objects_of=labels_of
        ).run(loader)
    metrics = model.head.metrics(validation.result)
    named = {name: metrics[key] for key, name in model.head.metric_names.items()}
    files = tuple(Path(path).name for path in config.weights)
    class_names, findings = dataset.class_names, auditor.result()
    audit = Audit(dataset.name, config.task, files, named, samples, class_names, findings)
    folder = create_run_folder(config.project, config.name, config.exist_ok)
    write_table(folder / "audit.csv", audit)
    with atomic_text_file(folder / "audit.html") as file:
        file.write(audit_page(audit, config.top))
    for kind in KINDS:
        say(f"{WORDS[kind][0]}: {len(audit.of_kind(kind)):,}")
    say(summary(audit), f"page: {folder / 'audit.html'}, all findings: {folder / 'audit.csv'}")


def share_classes(
    config: AuditConfig, class_names: Sequence[str], known: Sequence[str], num_known: int
) -> tuple[np.ndarray, np.ndarray]:
    """Map the model's class numbers to the dataset's, and vice versa; NOTHING if unmatched.

    Classes are matched by name, or by number if the weights have no names.

    Args:
        class_names: the dataset's classes.
        known: the weights' first class names, of `num_known` classes; () if they have none.

    Raises:
        UserError: no class matches, or the weights have no names and a different number of classes.
    """
    data, weights = f"--data {config.data}", f"--weights {config.weights[0]}"
    in_model = classes_in_model(class_names, known, num_known)
    (shared,) = np.nonzero(in_model != NOTHING)
    if not known and not len(shared):
        raise UserError(
            f"{data} has {count(len(class_names), 'class', 'classes')}, {weights} has {num_known} "
            "without names; the numbers must be equal, or the weights ones with names"
        )
    if not len(shared):
        raise UserError(
            f"{data} has the classes {brief(list(class_names))}, {weights} {brief(list(known))}: "
            "no name matches; rename the dataset's classes, or use other weights"
        )
    in_dataset = np.full(num_known, NOTHING)
    in_dataset[in_model[shared]] = shared
    if unknown := [name for name, index in zip(class_names, in_model, strict=True) if index < 0]:
        number = count(len(unknown), "class", "classes")
        text = "%s: not trained for %s of the dataset; their labels are not audited: %s"
        log.warning(text, weights, number, brief(unknown))
    return in_dataset, in_model
