"""Build a training on the chosen framework and run it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from functools import partial

from duet import backend
from duet.backend.checks import CPU
from duet.models.evaluation.evaluate import DEFAULT_SUPPRESSION
from duet.models.training.checkpointing import rebuild_model, restore
from duet.models.training.loop import train
from duet.models.training.outputs import (
    Trained,
    columns_of,
    conclude_run,
    describe_run,
    trained,
    write_work,
)
from duet.models.training.start import build, images_at_a_time
from duet.utils.cli.train_config import TrainConfig
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.errors import UserError, WorkerError
from duet.utils.processes import watchdog
from duet.utils.state.job import Job, val_loader
from duet.utils.state.resume import load_state
from duet.utils.state.run import begin_run
from duet.utils.text import count


def run_job(job: Job, train_loader: TrainLoader) -> Trained:
    """Train a new run or resume one; return its result."""
    config, ranks = job.config, job.session.world.process.world_size
    checkpoint = load_state(job.point.path) if job.point is not None else None
    with watchdog.phase("building the model"):
        model = rebuild_model(checkpoint) if checkpoint is not None else None
        state = build(job, len(train_loader), model)
        train_loader.align(state.model.stride)
        train_loader.build_in(partial(backend.device.host_bytes, device=state.device))
        if state.device == CPU:
            images, *size = train_loader.largest_shape
            shape = min(images, state.micro_batch or images), *size
            shape = state.multi_scale.largest(shape) if state.multi_scale else shape
            state.model.require_memory(shape, trains=True)
    run = begin_run(job, columns_of(state.model.head))
    describe_run(run, state)
    if checkpoint is not None:
        restore(run, state, checkpoint)
        del checkpoint  # free its arrays
    with val_loader(job, state.model.stride) as loader, closing(run.loggers):
        loader.build_in(partial(backend.device.host_bytes, device=state.device))
        run.log_start(state.epoch, resumed=state.batch_number > 0)
        try:
            best = train(run, state, train_loader, loader)
        except WorkerError:  # its message about a dead worker mentions memory too
            raise
        except Exception as error:
            if backend.device.is_out_of_memory(error):
                raise out_of_memory(config, ranks) from error
            raise
        conclude_run(run, state, best)
    cached = {"training": train_loader.cached, "validation": loader.cached}
    loader_work = {"train_images": len(job.data.train), "cached": cached}
    write_work(run, state, loader_work, asdict(DEFAULT_SUPPRESSION))
    return trained(run, state, best)


def out_of_memory(config: TrainConfig, ranks: int) -> UserError:
    """Return an out-of-memory error that suggests flags."""
    at_a_time = images_at_a_time(config.batch_size, config.micro_batch, ranks)
    return UserError(
        f"out of memory with {count(at_a_time, 'image')} per pass (--batch-size "
        f"{config.batch_size}, --micro-batch {config.micro_batch}) and --img {config.image_size}; "
        f"continue with --resume and --micro-batch {max(at_a_time // 2, 1)}, or start again with "
        "a smaller --batch-size, --img or model"
    )
