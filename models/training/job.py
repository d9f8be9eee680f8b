"""Builds what a training needs on the chosen framework, and runs it to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import backend
from backend.checks import CPU
from backend.processes import this_process
from models.training.checkpointing import rebuild_model, restore
from models.training.execution import choose_step_threads
from models.training.loop import train
from models.training.outputs import (
    columns_of,
    conclude_run,
    describe_run,
    log_start,
    write_work,
)
from models.training.start import build_model, fit_to_labels
from models.training.state import TrainState, build_state
from models.training.statistics import recommend
from utils.cli.train_config import TrainConfig
from utils.data.loading.loader import TrainLoader, ValLoader
from utils.errors import UserError
from utils.processes import watchdog
from utils.processes.cores import loader_workers
from utils.processes.host_memory import keep_freed_images, keep_freed_memory
from utils.state.resume import load_state
from utils.state.run import Job, begin_run
from utils.text import count
from utils.weights.checkpoint import Checkpoint


def run_job(job: Job, train_loader: TrainLoader) -> None:
    """Train a new run, or the rest of one."""
    config = job.config
    checkpoint = load_state(job.point.path) if job.point is not None else None
    with watchdog.phase("building the model"):
        state = build(job, checkpoint, len(train_loader))
        train_loader.align(state.model.stride)
        train_loader.build_in(partial(backend.device.host_bytes, device=state.device))
        if state.device == CPU:
            images, *size = train_loader.largest_shape
            shape = min(images, state.micro_batch or images), *size
            shape = state.multi_scale.largest(shape) if state.multi_scale else shape
            state.model.require_memory(shape, trains=True)
    run = begin_run(job, columns_of(state.model.head))
    describe_run(run, state, job.train_samples, job.val_samples)
    recommend(config.precise_bn, len(train_loader))
    if checkpoint is not None:
        restore(run, state, checkpoint)
        del checkpoint  # its arrays
    with val_loader(job, state.model.stride) as loader, closing(run.loggers):
        loader.build_in(partial(backend.device.host_bytes, device=state.device))
        log_start(run, state)
        with naming_memory_flags(config):
            best = train(run, state, train_loader, loader, job.val_samples)
        conclude_run(run, state, best, job.val_samples)
    cached = {"training": train_loader.cached, "validation": loader.cached}
    write_work(run, state, train_loader.num_images, len(job.val_samples), cached)


@contextmanager
def naming_memory_flags(config: TrainConfig) -> Iterator[None]:
    """Turn the error of memory that ran out into a UserError that names the flags against it."""
    try:
        yield
    except Exception as error:
        if not backend.device.is_out_of_memory(error):
            raise
        at_a_time = config.micro_batch or -(-config.batch_size // this_process().world_size)
        raise UserError(
            f"out of memory with {count(at_a_time, 'image')} at a time (--batch-size "
            f"{config.batch_size}, --micro-batch {config.micro_batch}) and --img "
            f"{config.image_size}; go on with --resume and --micro-batch {max(at_a_time // 2, 1)}, "
            "or start anew with a smaller --batch-size, --img or model"
        ) from error


def build(job: Job, checkpoint: Checkpoint | None, batches: int) -> TrainState:
    """Build the model and what a step reads and changes, for so many batches per epoch."""
    device = backend.device.resolve(job.config.device)
    if device == CPU:
        keep_freed_memory()
    else:  # without workers the images are decoded here
        keep_freed_images()
    if checkpoint is None:
        fit = partial(fit_to_labels, job=job)
        model = build_model(job.config, job.start, job.class_names, fit)
    else:
        model = rebuild_model(checkpoint)
    choose_step_threads(job.config, model.spec, device, job.world.process.world_size)
    return build_state(job.config, job.hyp, model, batches, device)


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
