"""The work of `python -m utils.data.audit`: weights and samples -> what a model says of the labels.

Before: the command read flags and data and chose the framework. After: `utils/data/audit` judges
and writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import backend
from backend.checks import CPU
from models.detector import require_image_size
from models.evaluation import evaluate
from models.inference.predictor import class_names_of, make_predictor
from models.inference.protocol import Predictor
from utils.cli.audit_config import AuditConfig
from utils.data.audit.classes import SharedClasses, share_classes
from utils.data.audit.findings import KINDS, LEAST_SCORE, NOTHING, Auditor
from utils.data.audit.page import WORDS, Audit, audit_page, summary
from utils.data.audit.table import write_table
from utils.data.audit.worth import lowest_scores
from utils.data.loading.loader import ValLoader
from utils.data.loading.reading import ground_truth
from utils.data.sources.dataset_yaml import DatasetSpec
from utils.data.sources.samples import Sample
from utils.detections import Detections, GroundTruth
from utils.evaluation.nms import SuppressionSettings
from utils.files.atomic import atomic_text_file
from utils.processes.cores import loader_workers
from utils.screen.text import say
from utils.state.checkpoint import Checkpoint
from utils.state.folder import create_run_folder

# What lies far below any confidence counts as evidence too; a box counts for each of its classes.
EVIDENCE = SuppressionSettings(LEAST_SCORE, max_detections=1000, multi_label=True)


class _Audited(NamedTuple):
    """Hands on each image that is evaluated with the classes of the dataset."""

    auditor: Auditor
    samples: Sequence[Sample]
    classes: SharedClasses

    def add(self, image_id: int, found: Detections, truth: GroundTruth) -> None:
        """Take an image, with the classes of the model; its labels are those of the sample."""
        sample = self.samples[image_id]
        labels, size = ground_truth(sample), (sample.height, sample.width)
        self.auditor.add(image_id, self.classes.of_dataset(found), labels, size)


def run_audit(
    config: AuditConfig,
    dataset: DatasetSpec,
    samples: Sequence[Sample],
    weights: Sequence[Checkpoint],
) -> None:
    """Detect in all images, compare with their labels, and write audit.html and audit.csv."""
    device = backend.device.resolve(config.device)
    model = make_predictor(weights, device, config.augment, config.half)
    model.head.task.check_audit()
    require_image_size(config.image_size, model.stride, trains=False)
    classes = share_classes(
        config.data, dataset.class_names, config.weights[0], weights[0].header.class_names,
        model.head.num_classes,
    )  # fmt: skip
    auditor = Auditor(lowest_scores(config.lowest_score), classes.in_model != NOTHING)
    model_names = class_names_of(weights[0], model.head.num_classes)
    figures = detect_all(
        config, model, device, samples, model_names, _Audited(auditor, samples, classes)
    )
    names = tuple(Path(path).name for path in config.weights)
    audit = Audit(
        dataset.name, config.task, names, figures, samples, dataset.class_names, auditor.result()
    )
    write_audit(config, audit)


def detect_all(
    config: AuditConfig,
    model: Predictor,
    device: str,
    samples: Sequence[Sample],
    model_names: Sequence[str],
    audited: _Audited,
) -> dict[str, float]:
    """Detect in every image; return how well the labels are found, by the names of the figures."""
    workers = loader_workers(config.workers, config.device)
    truth = model.head.task.ground_truth
    with ValLoader(samples, config.image_size, config.batch_size, workers, model.stride) as loader:
        if device == CPU:
            model.require_memory(loader.largest_shape, trains=False)
        validation = evaluate(
            model, loader, samples, model_names, device, EVIDENCE, sinks=[audited],
            objects_of=lambda place: audited.classes.of_model(truth(samples[place])),
        )  # fmt: skip
    figures = model.head.figures(validation.result)
    return {name: figures[key] for key, name in model.head.figure_names.items()}


def write_audit(config: AuditConfig, audit: Audit) -> None:
    """Write the page and the table into a new folder; print how many findings there are."""
    folder = create_run_folder(config.project, config.name, config.exist_ok)
    write_table(folder / "audit.csv", audit.findings, audit.samples, audit.class_names)
    with atomic_text_file(folder / "audit.html") as file:
        file.write(audit_page(audit, config.top))
    for kind in KINDS:
        say(f"{WORDS[kind].title}: {len(audit.findings.of_kind(kind).kind):,}")
    say(summary(audit.findings, audit.samples), f"results in {folder}")
