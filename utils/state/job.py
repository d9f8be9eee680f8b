"""The framework-independent input of a training: settings, data, weights or a state."""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from duet.utils.cli.hyperparameters import Hyperparameters
from duet.utils.cli.task_flags import find_task, without_effect
from duet.utils.cli.train_config import TrainConfig
from duet.utils.data.augment.copy_paste import why_nothing_is_pasted
from duet.utils.data.loading.batches import TrainRecipe, ValRecipe
from duet.utils.data.loading.items import BOXES, BoxItems
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.remarks import require_most
from duet.utils.data.sources.samples import Sample, SampleTable, table_of
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import DatasetError, UserError
from duet.utils.files.json_files import Document
from duet.utils.files.model_yamls import read_model
from duet.utils.files.run_folder import RunLock
from duet.utils.processes.cores import loader_workers
from duet.utils.processes.suspend import StopRequests
from duet.utils.processes.world import ALONE, World
from duet.utils.state.resume import ResumePoint
from duet.utils.tasks import Task
from duet.utils.text import count, printable
from duet.utils.weights.checkpoint import Checkpoint, Header
from duet.utils.weights.load import load_weights, stored_model

log = logging.getLogger("train")


@dataclass(frozen=True)
class TrainData:
    class_names: tuple[str, ...]
    train: Sequence[Sample]
    val: Sequence[Sample]
    items: BoxItems = BOXES  # depends on the task

    @cached_property
    def digests(self) -> Document:
        return {"train": describe_samples(self.train), "val": describe_samples(self.val)}


@dataclass(frozen=True)
class Session:
    """This process: stop requests, lock, and the other processes of the run."""

    stop: StopRequests = field(default_factory=StopRequests)
    lock: RunLock = field(default_factory=RunLock)  # for the run's folder, taken by rank 0
    world: World = ALONE


@dataclass(frozen=True)
class Job:
    """A new training, from the weights `start` if given, or one resumed from `point`."""

    config: TrainConfig
    hyp: Hyperparameters
    data: TrainData
    session: Session = field(default_factory=Session)
    start: Checkpoint | None = None
    point: ResumePoint | None = None


def check_inputs(config: TrainConfig) -> None:
    """Raise UserError for unreadable data, model or weights before a search starts."""
    load_dataset(config.data, single_class=config.single_class, train_part=config.train_part)
    if config.cfg:
        read_model(config.cfg)
    if config.weights:
        stored_model(config.weights)


def read_job(
    config: TrainConfig, hyp: Hyperparameters, point: ResumePoint | None, session: Session
) -> Job:
    """Read the weights and the data of a new training, or the data of one to resume.

    UserError: they cannot be read, do not fit, or have changed since the run began.
    """
    start = load_weights(config.weights) if config.weights and point is None else None
    given = (config.task, config.cfg) if point is None else ("", "")  # --cfg may be gone
    source = start or point
    task = find_task(*given, source.header.model if source else {})
    data = read_data(config, task, session.world)
    for name in without_effect(task, hyp):
        log.info("%s has no effect on the task %s", name, task.name)
    if point is not None:
        require_equal_data(point.header, data)
    return Job(config, hyp, data, session, start, point)


def read_data(config: TrainConfig, task: Task, world: World = ALONE) -> TrainData:
    """Read the splits of --data for a task; DatasetError for labels of another task."""
    try:
        dataset = load_dataset(
            config.data, single_class=config.single_class, train_part=config.train_part
        )
    except DatasetError as error:
        if not config.resume:
            raise
        raise DatasetError(f"{error}; if it was moved, resume with --data and its place") from error
    train = load_split(dataset, "train", world, config.max_pixels, config.fraction)
    val = load_split(dataset, "val", world, config.max_pixels)
    if not config.allow_missing:
        require_most([train.remarks, val.remarks], config.data)
    note_shared(train, val, world.process.is_main)
    for samples in (train, val):
        task.check_labels(table_of(samples), dataset.name, dataset.is_of_folders)
    items = task.items.load().with_masks(config.mask_ratio, not config.no_overlap)
    return TrainData(dataset.class_names, train, val, items)


def note_shared(train: SampleTable, val: SampleTable, is_main: bool) -> None:
    """Note, and log, the images that are both for training and for validation."""
    shared = sorted(set(train.paths) & set(val.paths))
    if shared:
        val.remarks.add("in_both", shared[0], len(shared))
    if shared and is_main:
        number = count(len(shared), "image")
        log.warning(
            "val: %s are also in train, such as %s: the model learns them, so their figures say "
            "nothing about new images; --split 0.8 draws a val for a dataset without one",
            number, printable(shared[0]),
        )  # fmt: skip


def train_recipe(config: TrainConfig, hyp: Hyperparameters, items: BoxItems) -> TrainRecipe:
    return TrainRecipe(
        config.image_size,
        config.batch_size,
        config.augmentation(hyp),
        config.seed,
        config.rect,
        config.image_weights,
        items,
        config.mosaic_epochs,
    )


def train_loader(job: Job) -> TrainLoader:
    """Create the training loader; log settings without effect on its batches."""
    config, samples = job.config, job.data.train
    recipe = train_recipe(config, job.hyp, job.data.items)
    augment = config.augmentation(job.hyp)
    for name in augment.without_effect():
        log.info("%s has no effect: it applies only to mosaics, which are off (mosaic: 0)", name)
    has_mosaics = recipe.augment.mosaic > 0
    if augment.mosaic and not has_mosaics:
        log.info("--rect: images keep their shape; mosaics are disabled")
    has_polygons = table_of(samples).polygons_norm is not None
    if reason := why_nothing_is_pasted(augment.copy_paste, has_mosaics, has_polygons):
        log.warning("copy_paste %g: nothing is pasted: %s", augment.copy_paste, reason)
    workers = loader_workers(config.workers, config.device)
    return TrainLoader(samples, recipe, workers, config.cache, job.session.world)


def val_loader(job: Job, stride: int) -> ValLoader:
    """Create the validation loader: rectangular batches, twice as large as in training."""
    config, data = job.config, job.data
    workers = loader_workers(config.workers, config.device)
    recipe = ValRecipe(config.image_size, 2 * config.batch_size, stride, items=data.items)
    return ValLoader(data.val, recipe, workers, config.cache, job.session.world)


def describe_samples(samples: Sequence[Sample]) -> Document:
    """Count and hash samples: names, sizes and labels in order, without folders.

    Polygons have a separate hash, "" without any, which keeps that of the boxes compatible.
    """
    table = table_of(samples)
    digest, outlines = hashlib.sha256(), hashlib.sha256()
    # Arrays and slices only: creating a sample per image would take ten times as long.
    classes = table.class_index.view(np.uint8).data
    boxes = table.boxes_cxcywh_norm.reshape(-1).view(np.uint8).data
    bounds = pairwise(table.starts.tolist())
    for number, (size, path, (first, end)) in enumerate(
        zip(table.sizes.tolist(), table.paths, bounds, strict=True)
    ):
        name = path.rpartition("/")[2]
        line = f"{name} {size[0]} {size[1]}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))  # names may not be UTF-8
        digest.update(classes[8 * first : 8 * end])  # int64
        digest.update(boxes[16 * first : 16 * end])  # four float32
        if table.polygons_norm is None:
            continue
        if (polygons := table.polygons_norm.range(first, end)) is not None:
            outlines.update(f"{number}\n".encode())
            outlines.update(polygons.starts.tobytes() + polygons.points_xy.tobytes())
    return {
        "images": len(table),
        "sha256": digest.hexdigest(),
        "polygons": "" if table.polygons_norm is None else outlines.hexdigest(),
    }


def require_equal_data(header: Header, data: TrainData) -> None:
    """Raise UserError if classes, images or labels have changed since the run began."""
    if data.class_names != header.class_names:
        raise UserError("--resume: the classes of --data have changed since the run began")
    for split, stored in header.progress["data"].items():
        found = data.digests[split]
        if found != stored:
            raise UserError(
                f"--resume: images or labels of --data, split {split}, have changed since the run "
                f"began ({count(found['images'], 'image')} now, {stored['images']} then); restore "
                "them, or start a new run from its weights"
            )
