"""Builds what a training needs on the chosen framework, and runs it to its end.

Before: `train.py` read flags and data and chose the framework. After: `loop.py` trains.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial

import backend
from backend.checks import CPU
from models.training.autoanchor import fit_to_labels
from models.training.checkpointing import rebuild_model, restore
from models.training.loop import train
from models.training.outputs import (
    columns_of,
    conclude_run,
    describe_run,
    tell_beginning,
    write_work,
)
from models.training.replay import replay
from models.training.start import build_model
from models.training.state import TrainState, build_state
from models.training.statistics import recommend
from models.training.threads import choose_step_threads
from utils.data.loading.loader import TrainLoader, ValLoader
from utils.processes import watchdog
from utils.processes.cores import loader_workers
from utils.processes.host_memory import keep_freed_images, keep_freed_memory
from utils.state.checkpoint import Checkpoint
from utils.state.job import Job
from utils.state.resume import load_state
from utils.state.run import begin_run


def run_job(job: Job, train_loader: TrainLoader) -> None:
    """Train a new run, or the rest of one; with --replay run the one batch that it names."""
    config = job.config
    checkpoint = load_state(job.point.path) if job.point is not None else None
    with watchdog.phase("building the model"):
        state = build(job, checkpoint, len(train_loader))
        train_loader.align(state.model.stride)
        train_loader.build_in(partial(backend.device.host_bytes, device=state.device))
        if state.device == CPU:
            state.model.require_memory(largest_input(state, train_loader), trains=True)
    if config.replay:
        assert job.start is not None  # --replay needs --weights
        return replay(config, state, job.start, train_loader)
    columns = columns_of(state.model.head)
    place = (job.point, job.stop, job.data, job.world, job.lock)
    run = begin_run(config, job.hyp, job.class_names, columns, *place)
    describe_run(run, state, job.train_samples, job.val_samples)
    recommend(config.precise_bn, len(train_loader))
    if checkpoint is not None:
        restore(run, state, checkpoint)
        del checkpoint  # its arrays
    with val_loader(job, state.model.stride) as loader, closing(run.loggers):
        loader.build_in(partial(backend.device.host_bytes, device=state.device))
        tell_beginning(run, state)
        best = train(run, state, train_loader, loader, job.val_samples)
        conclude_run(run, state, best, job.val_samples)
    cached = {"training": train_loader.cached, "validation": loader.cached}
    write_work(run, state, train_loader.num_images, len(job.val_samples), cached)


def build(job: Job, checkpoint: Checkpoint | None, batches: int) -> TrainState:
    """Build the model and what a step reads and changes, for so many batches per epoch."""
    device = backend.device.resolve(job.config.device)
    if device == CPU:
        keep_freed_memory()
    else:  # without workers the images are decoded here
        keep_freed_images()
    if checkpoint is None:
        # The weights of --replay have been fitted already.
        fit = None if job.config.replay else partial(fit_to_labels, job=job)
        model = build_model(job.config, job.start, job.class_names, fit)
    else:
        model = rebuild_model(checkpoint)
    choose_step_threads(job.config, model.spec, device, job.world.process.world_size)
    return build_state(job.config, job.hyp, model, batches, device)


def largest_input(state: TrainState, loader: TrainLoader) -> tuple[int, ...]:
    """Return the largest shape (B, 3, H, W) that the network meets in training."""
    images, *size = loader.largest_shape
    shape = min(images, state.micro_batch or images), *size
    return state.multi_scale.largest(shape) if state.multi_scale else shape


def val_loader(job: Job, stride: int) -> ValLoader:
    """Make the loader of the validations: rectangular batches, twice as large as in training."""
    size, batch = job.config.image_size, 2 * job.config.batch_size
    workers = loader_workers(job.config.workers, job.config.device)
    return ValLoader(
        job.val_samples,
        size,
        batch,
        workers,
        stride,
        True,
        job.config.cache,
        job.world,
        items=job.items,
    )
