"""Train a model; the framework-dependent part is `models/training/loop.py`.

python train.py --data mydata.yaml --weights yolov5n.pt --img 640 --epochs 100
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before imports that may be slow or missing

import logging
from collections.abc import Sequence
from typing import Any

from duet import backend
from duet.backend.devices import check_device
from duet.backend.select import choose
from duet.utils.cli.hyperparameters import Hyperparameters, read_hyperparameters
from duet.utils.cli.task_flags import complete_flags, task_of_flags
from duet.utils.cli.train_config import AUTO_BATCH, TrainConfig, read_train_flags
from duet.utils.files.run_folder import RunLock
from duet.utils.optional import require_wing
from duet.utils.processes.command import run_command
from duet.utils.processes.launch import launch
from duet.utils.processes.ranks import joined
from duet.utils.processes.suspend import StopRequests, listening
from duet.utils.processes.world import ALONE, World
from duet.utils.report.events import check_loggers
from duet.utils.state import job as jobs
from duet.utils.state import resume

WINGS = ("duet.utils.evolution.search",)  # modules with an `evolve` function for --evolve

log = logging.getLogger("train")


def main(arguments: Sequence[str] | None = None) -> Any:
    """Train with flags, by default from sys.argv; return `Trained` from `outputs.py`."""
    values, given = read_train_flags(arguments)
    with listening(values["suspend_file"], values["time_limit"]) as stop:
        point = resume.find_resume_point(values, given)
        if point is None:
            config = complete_flags(values, given)
            check_loggers(config.loggers)
            hyp = read_hyperparameters(config.hyp, config.override)
        else:
            config, hyp = resume.resumed_config(values, given, point.header)
            if point.is_finished:
                return log.info("%s is already finished", point.folder)
        check_device(config.device, choose(config.backend, trains=True))
        if config.evolve:
            task = task_of_flags(vars(config))
            jobs.check_inputs(config)
            return require_wing(WINGS, "--evolve").evolve(task, config, hyp, stop)
        launch(config.backend, config.device, config.nproc, config.check_processes, stop)
        with joined(config.backend, config.device, config.timeout, config.bind_numa) as world:
            stop.take_signals()  # to join others, the framework was imported
            stop.agree = world.any
            resume.require_same_point(point, world)
            return run(config, hyp, point, stop, world)


def run(
    config: TrainConfig,
    hyp: Hyperparameters,
    point: resume.ResumePoint | None,
    stop: StopRequests,
    world: World = ALONE,
) -> Any:
    """Read the data, import the framework, and train, holding the lock of the run's folder."""
    with RunLock() as lock:
        if point is not None and world.process.is_main:
            lock.take(point.folder)
        job = jobs.read_job(config, hyp, point, jobs.Session(stop, lock, world))
        if point is None and config.amp == "bf16":
            import_framework(config.backend, stop)
            from duet.models.training.start import with_precision

            job = with_precision(job)
        if config.batch_size == AUTO_BATCH:
            import_framework(config.backend, stop)
            from duet.models.training.batch_size import with_batch_size

            job = with_batch_size(job)
        with jobs.train_loader(job) as loader:
            loader.start()  # workers start while the framework is imported
            import_framework(config.backend, stop)
            from duet.models.training.loop import run_job

            return run_job(job, loader)


def import_framework(name: str | None, stop: StopRequests) -> None:
    backend.use(name)
    stop.take_signals()  # a framework may have installed its own handlers


if __name__ == "__main__":
    run_command(main, several=True)
