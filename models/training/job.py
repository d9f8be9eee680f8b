"""Builds what a training needs on the chosen framework, and runs it to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial

import backend
from backend.checks import CPU
from models.blocks.registry import count_gflops
from models.evaluation.evaluate import DEFAULT_SUPPRESSION
from models.graph import plan_layers
from models.training.checkpointing import rebuild_model, restore
from models.training.execution import choose_step_threads
from models.training.loop import train
from models.training.outputs import columns_of, conclude_run, describe_run, write_work
from models.training.start import build_model, fit_to_labels
from models.training.state import TrainState, build_state
from models.training.statistics import recommend
from utils.cli.train_config import TrainConfig
from utils.data.loading.loader import TrainLoader
from utils.errors import UserError
from utils.processes import watchdog
from utils.processes.host_memory import keep_freed_images, keep_freed_memory
from utils.state.job import Job, val_loader
from utils.state.resume import load_state
from utils.state.run import begin_run
from utils.text import count
from utils.weights.checkpoint import Checkpoint


def run_job(job: Job, train_loader: TrainLoader) -> None:
    """Train a new run, or the rest of one."""
    config, ranks = job.config, job.session.world.process.world_size
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
    describe_run(run, state)
    recommend(config.precise_bn, len(train_loader))
    if checkpoint is not None:
        restore(run, state, checkpoint)
        del checkpoint  # its arrays
    with val_loader(job, state.model.stride) as loader, closing(run.loggers):
        loader.build_in(partial(backend.device.host_bytes, device=state.device))
        run.log_start(state.epoch, resumed=state.batch_number > 0)
        with naming_memory_flags(config, images_at_a_time(config, ranks)):
            best = train(run, state, train_loader, loader)
        conclude_run(run, state, best)
    cached = {"training": train_loader.cached, "validation": loader.cached}
    suppression = asdict(DEFAULT_SUPPRESSION)
    write_work(run, state, train_loader.num_images, cached, suppression)


@contextmanager
def naming_memory_flags(config: TrainConfig, at_a_time: int) -> Iterator[None]:
    """Turn the error of memory that ran out into a UserError that names the flags against it."""
    try:
        yield
    except Exception as error:
        if not backend.device.is_out_of_memory(error):
            raise
        raise UserError(
            f"out of memory with {count(at_a_time, 'image')} at a time (--batch-size "
            f"{config.batch_size}, --micro-batch {config.micro_batch}) and --img "
            f"{config.image_size}; go on with --resume and --micro-batch {max(at_a_time // 2, 1)}, "
            "or start anew with a smaller --batch-size, --img or model"
        ) from error


def images_at_a_time(config: TrainConfig, ranks: int) -> int:
    """Return how many images a process computes at a time."""
    images = -(-config.batch_size // ranks)
    return min(images, config.micro_batch or images)


def build(job: Job, checkpoint: Checkpoint | None, batches: int) -> TrainState:
    """Build the model and what a step reads and changes, for so many batches per epoch."""
    config = job.config
    device = backend.device.resolve(config.device)
    if device == CPU:
        keep_freed_memory()
    else:  # without workers the images are decoded here
        keep_freed_images()
    if checkpoint is None:
        fit = partial(fit_to_labels, job=job)
        model = build_model(config, job.start, job.data.class_names, fit)
    else:
        model = rebuild_model(checkpoint)
    images = images_at_a_time(config, job.session.world.process.world_size)
    gflops = count_gflops(plan_layers(model.spec), config.image_size)
    choose_step_threads(images * gflops, device)
    return build_state(config, job.hyp, model, batches, device)
