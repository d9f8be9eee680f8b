"""Train a detector: flags -> data -> framework -> `models/training/job.py` -> weights, results.

python train.py --data mydata.yaml --weights yolov5n.pt --img 640 --epochs 100
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import logging

import backend
from backend.devices import check_device
from backend.select import choose
from utils.cli.hyperparameters import Hyperparameters, read_hyperparameters
from utils.cli.train_config import AUTO_BATCH, TrainConfig, read_train_flags
from utils.data.augment.copy_paste import why_nothing_is_pasted
from utils.data.augment.transforms import require_transforms
from utils.data.loading.loader import MOSAIC_WINDOW, TrainLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.samples import table_of
from utils.data.sources.splits import load_split
from utils.evolution.search import evolve
from utils.processes.command import run_command
from utils.processes.cores import bind_numa, loader_workers
from utils.processes.launch import launch
from utils.processes.ranks import joined
from utils.processes.suspend import StopRequests, listening
from utils.processes.world import ALONE, World
from utils.report.events import check_loggers
from utils.state.folder import RunLock
from utils.state.resume import (
    ResumePoint,
    find_resume_point,
    require_same_point,
    resumed_config,
)
from utils.state.run import Job, require_equal_data, train_recipe
from utils.tasks.table import check_flags, find_task, task_of_flags, task_of_model
from utils.text import count
from utils.weights.load import load_weights

log = logging.getLogger("train")


def main() -> None:
    values, given = read_train_flags()
    with listening(values["suspend_file"], values["time_limit"]) as stop:
        point = find_resume_point(values, given)
        if point is None:
            task = task_of_flags(values)
            config = TrainConfig(**task.completed(values, given))
            check_loggers(config.loggers)
            check_device(config.device, choose(config.backend))
            check_flags(task, config)
            hyp = read_hyperparameters(config.hyp, config.override)
        else:
            config, hyp = resumed_config(values, given, point.header)
            if point.is_finished:
                return log.info("%s is finished, nothing is left to do", point.folder)
        choose(config.backend, trains=True)
        # A rectangle of this shape stands for all of --rect.
        height = config.image_size // 2 if config.rect else config.image_size
        require_transforms(config.albumentations, (height, config.image_size))
        if config.evolve:
            return evolve(config, hyp, stop)
        launch(config.backend, config.device, config.nproc, config.check_processes, stop)
        if config.bind_numa:
            log.info(bind_numa(config.device))
        with joined(config.backend, config.device, config.timeout) as world:
            stop.take_signals()  # a framework may have installed its own handlers
            stop.agree = world.any
            require_same_point(point, world)
            run(config, hyp, point, stop, world)


def run(
    config: TrainConfig,
    hyp: Hyperparameters,
    point: ResumePoint | None,
    stop: StopRequests,
    world: World = ALONE,
) -> None:
    """Read the data, import the framework, and train; no other process may write the run."""
    with RunLock() as lock:
        if point is not None and world.process.is_main:
            lock.take(point.folder)
        start = load_weights(config.weights) if config.weights and point is None else None
        if point is not None:  # the state has the model: a file of --cfg may be gone
            task = task_of_model(point.header.model)
        else:
            task = find_task(config.task, config.cfg, start.header.model if start else {})
        dataset = load_dataset(
            config.data, single_class=config.single_class, train_part=config.train_part
        )
        train = load_split(dataset, "train", world, config.max_pixels, config.fraction)
        val = load_split(dataset, "val", world, config.max_pixels)
        for samples in (train, val):
            task.check_samples(table_of(samples), dataset.name, dataset.is_of_folders)
        names, items = dataset.class_names, task.items(config)
        for name in task.without_effect(hyp):
            log.info("%s has no effect on the task %s", name, task.name)
        job = Job(config, hyp, names, train, val, start, point, stop, lock, world, items)
        if point is not None:
            require_equal_data(point.header, job.class_names, job.data)
        if config.batch_size == AUTO_BATCH:
            backend.use(config.backend)
            stop.take_signals()
            from models.training.batch_size import with_batch_size

            job = with_batch_size(job)
        with train_loader(job) as loader:
            loader.start()  # its processes start up while the framework is imported
            backend.use(config.backend)
            stop.take_signals()
            from models.training.job import run_job

            run_job(job, loader)


def train_loader(job: Job) -> TrainLoader:
    """Make the loader of a training."""
    config = job.config
    workers = loader_workers(config.workers, config.device)
    recipe = train_recipe(config, job.hyp, job.items)
    augment = recipe.augment
    idle_window = [MOSAIC_WINDOW] if config.mosaic_window and not augment.mosaic else []
    for name in (*augment.without_effect(), *idle_window):
        log.info("%s has no effect: it changes only mosaics, and there are none (mosaic: 0)", name)
    if config.rect and augment.mosaic:
        log.info("--rect: images keep their shape, there are no mosaics")
    has_mosaics = augment.mosaic > 0 and not config.rect
    has_polygons = table_of(job.train_samples).polygons_norm is not None
    if reason := why_nothing_is_pasted(augment.copy_paste, has_mosaics, has_polygons):
        log.warning("copy_paste %g: nothing is pasted: %s", augment.copy_paste, reason)
    loader = TrainLoader(job.train_samples, recipe, workers, config.cache, job.world)
    if config.repeat_factor:
        log.info("--repeat-factor: an epoch shows %s", count(loader.num_images, "image"))
    return loader


if __name__ == "__main__":
    run_command(main, several=True)
