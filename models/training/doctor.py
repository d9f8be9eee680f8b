"""`duet doctor`: what this system runs; `duet doctor --data D`: the bottleneck of a training.

It takes train.py's flags and measures separately the loader, with several numbers of workers and
with `--cache ram`, and the training step.
"""

import importlib.metadata
import itertools
import platform
import sys
import time
from collections.abc import Iterator, Sequence

from duet import backend
from duet.backend.checks import CPU
from duet.backend.devices import check_device, sees_driver
from duet.backend.select import choose
from duet.backend.system import cores_of
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.task_flags import complete_flags
from duet.utils.cli.train_config import AUTO_BATCH, read_train_flags
from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.errors import UserError
from duet.utils.optional import EXTRAS, install_command
from duet.utils.processes.command import run_command
from duet.utils.processes.cores import loader_workers
from duet.utils.state.job import Job, Session, read_job, train_recipe
from duet.utils.text import say

SECONDS = 4.0  # per measurement, after warm-up
CACHED_SAMPLES = 256  # enough for a measurement; filling a cache takes a pass over its images
ENOUGH = 1.1  # loader speed relative to the model's at which the model never waits


def main() -> None:
    if not sys.argv[1:]:
        say(*system_table())
        return say("to find the bottleneck of a training, add its flags, such as --data shapes")
    about = "Find the bottleneck of a training with these flags."
    config = complete_flags(*read_train_flags(None, "duet doctor", about))
    say(*system_table())
    if config.nproc > 1:
        raise UserError(
            f"--nproc {config.nproc}: doctor measures a single process; omit --nproc and use "
            f"--batch-size {config.batch_size // config.nproc}, the images per process"
        )
    if config.batch_size == AUTO_BATCH:
        raise UserError(
            "--batch-size -1: doctor needs a fixed number of images; accepted: 1 or more"
        )
    check_device(config.device, choose(config.backend))
    hyp = read_hyperparameters(config.hyp, config.override)
    job = read_job(config, hyp, None, Session())
    samples, recipe = job.data.train, train_recipe(config, hyp, job.data.items)
    backend.use(config.backend)
    say(backend.device.describe(backend.device.resolve(config.device)))
    with TrainLoader(samples, recipe) as loader:
        model_speed = images_per_second(training_steps(job, loader), warm_up=2)
    say(f"model: {model_speed:.1f} images/s in training steps of {config.batch_size}")
    speeds = []
    for workers, cache in choices(config.workers, config.device, config.cache):
        flags = f"--workers {workers}" + (f" --cache {cache}" if cache else "")
        shown = samples[:CACHED_SAMPLES] if cache else samples
        with TrainLoader(shown, recipe, workers, cache) as loader:
            epochs = (loader.epoch(number) for number in itertools.count())
            # Workers start during the warm-up; a cache takes a pass and most of another to fill.
            warm_up = 2 * len(loader) if cache else 4 * max(1, workers)
            speed = images_per_second(itertools.chain.from_iterable(epochs), warm_up)
        per_worker = f"{speed / max(1, workers):.1f} per worker"
        say(f"loader: {speed:.1f} images/s with {flags}, {per_worker}")
        speeds.append((flags, speed))
    on_cpu = backend.device.resolve(config.device) == CPU
    say(*verdict(config.image_size, model_speed, speeds, on_cpu).splitlines())


def system_table() -> list[str]:
    """Return what this system runs, what is replaced by what, and what is missing."""
    on_linux = sys.platform == "linux"
    rows = {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": platform.python_version(),
        "torch": version_of("torch", "pip install 'duet-detect[torch]'"),
        "oneflow": version_of("oneflow", "for Linux, in an environment of its own"),
        "GPU driver": "found" if sees_driver() else "none of NVIDIA or AMD",
        "GPUs together": "NCCL" if on_linux else "gloo: NCCL is for Linux",
        "several machines": "run" if on_linux else "do not run: for Linux",
        "limit of memory": "by the system" if on_linux else "by watching what a process holds",
        **{package: version_of(package, install_command(package)) for package in EXTRAS},
    }
    return [f"{name:<20}{text}" for name, text in rows.items()]


def version_of(package: str, remedy: str) -> str:
    """Return the version of a package, or that it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"missing: {remedy}"


def choices(asked: int | None, device: str, cache: str) -> list[tuple[int, str]]:
    """Return (workers, cache) combinations to measure; the flags' own choice comes first."""
    cores = len(cores_of())
    chosen = loader_workers(asked, device)
    counts = list(dict.fromkeys((chosen, 1, cores)))
    return [(count, cache) for count in counts] + ([] if cache else [(chosen, "ram")])


def training_steps(job: Job, loader: TrainLoader) -> Iterator[Batch]:
    """Train on the first batch forever; yield it whenever the device is done."""
    from duet.models.training.start import build
    from duet.models.training.step import train_step
    from duet.models.training.step_watch import StageTimer

    state = build(job, len(loader))
    loader.align(state.model.stride)
    batch = next(loader.epoch(0))
    while True:
        train_step(state, batch, StageTimer(state.device))
        backend.device.synchronize(state.device)
        yield batch


def images_per_second(batches: Iterator[Batch], warm_up: int) -> float:
    """Return the throughput of batches in images per second."""
    for _ in range(warm_up):
        next(batches)
    start, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < SECONDS or count == 0:
        count += len(next(batches).sample_indices)
    return count / elapsed


def verdict(
    image_size: int, model_speed: float, speeds: Sequence[tuple[str, float]], on_cpu: bool
) -> str:
    """Return the bottleneck, and the flags to change.

    speeds: loader speed by flags, the user's flags first.
    """
    loader_speed, (flags, fastest) = speeds[0][1], max(speeds, key=lambda found: found[1])
    compared = f"{loader_speed / model_speed:.2f} times the model's speed"
    if loader_speed >= ENOUGH * model_speed:
        text = (
            f"bottleneck: the model. The loader runs at {compared}. To speed up an epoch, use "
            f"--img below {image_size}, a smaller --cfg, "
            + ("or a GPU as --device" if on_cpu else "or a larger --batch-size")
        )
    elif fastest > ENOUGH * loader_speed:
        text = f"bottleneck: the loader, at {compared}; {flags} gives {fastest:.1f} images/s"
    else:
        text = (
            f"bottleneck: the loader, at {compared}, and no flag made it faster: use --img below "
            f"{image_size}, or a machine with more cores"
        )
    if on_cpu:  # each measurement used all cores
        share = 100 * model_speed / (model_speed + loader_speed)
        text += f"\non a CPU both share the cores; the loader uses about {share:.0f} %"
    return text


if __name__ == "__main__":
    run_command(main)
