"""Start the backend's own launcher when one command asks for several processes.

Before: `cli/train_config.py` parsed the flags. After: each started process reads the same command
line and checks it here. No framework is imported.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from backend import select
from backend.checks import CPU
from backend.cores import usable_cores
from backend.launchers import LAUNCHERS, backend_of_launcher
from backend.processes import this_process
from backend.words import count
from utils.cli.train_config import TrainConfig
from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.processes.exit_status import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED, STATUS_FILE
from utils.processes.numa.binding import torchrun_arguments
from utils.processes.process_family import (
    ORPHAN_SECONDS,
    POLL_SECONDS,
    adopt_orphans,
    ask_for_signal_when_parent_ends,
    descendants,
    kill_descendants,
    send,
    wait_for_descendants,
)
from utils.processes.suspend import FILE_VARIABLE, StopRequests, listening

log = logging.getLogger("launch")


def launch(config: TrainConfig) -> None:
    """Return in a process that trains; if several are asked for, start them and exit as they do.

    Raises:
        UserError: several processes cannot honour a flag.
        SystemExit: the processes that were started here have ended.
    """
    wanted = wanted_processes(config)
    started = this_process().world_size
    # A cluster may set a launcher's variables itself, as a Kubernetes job: it needs no launcher.
    if started > 1 or backend_of_launcher() is not None:
        _check_launched(config, wanted, started)
        wanted = started
    _check_flags(config, wanted)
    if wanted == started:
        return
    name = select.choose(config.backend)
    program = LAUNCHERS[name].command
    per_device = "" if config.device in ("", CPU) else ", one a device, in place of DataParallel"
    log.info("starting %s with %s%s", _processes(wanted), program, per_device)
    command = [sys.executable, *launcher_command(name, wanted)]
    if config.bind_numa and LAUNCHERS[name].binds_numa:
        command += torchrun_arguments(config.device, wanted)
    command += _without_nproc(sys.argv)
    sys.exit(run_launcher(command, thread_count(wanted)))


def wanted_processes(config: TrainConfig) -> int:
    """Return how many processes the flags ask for: --nproc, else one for each of --device."""
    devices = config.device.split(",")
    if len(set(devices)) < len(devices) or (len(devices) > 1 and CPU in devices):
        raise UserError(
            f"--device {config.device}: give different GPUs, such as 0,1; several processes on "
            "the CPU are --nproc 2 --device cpu"
        )
    nproc = config.nproc or len(devices)
    if config.device not in ("", CPU) and nproc != len(devices):
        raise UserError(
            f"--nproc {nproc} with --device {config.device}: {_processes(nproc)} need "
            f"{count(nproc, 'device')}, not {len(devices)}; leave --nproc out for a process "
            "a device"
        )
    return nproc


def _check_launched(config: TrainConfig, wanted: int, started: int) -> None:
    """Require that flags agree with the number of processes that a launcher started."""
    if config.nproc and config.nproc != started:
        raise UserError(
            f"--nproc {config.nproc}, but a launcher started {_processes(started)}; give the "
            "number to the launcher alone"
        )
    if wanted > started:
        raise UserError(
            f"--device {config.device} names {count(wanted, 'device')}, but a launcher started "
            f"{_processes(started)}; start one a device, or leave the launcher out"
        )


def _check_flags(config: TrainConfig, number: int) -> None:
    """Raise UserError for flags that this number of processes cannot honour."""
    if config.batch_size % number:
        lower = config.batch_size // number * number
        fitting = [str(size) for size in (lower, lower + number) if size]
        raise UserError(
            f"--batch-size {config.batch_size} is the number of images of all {_processes(number)} "
            f"together and must be divisible by it; use {' or '.join(fitting)}"
        )
    if config.compile and config.sync_bn and number > 1:
        raise UserError(
            "--compile with --sync-bn: BatchNorm over several processes is not compiled; leave "
            "one of them out"
        )
    if config.replay and number > 1:
        raise UserError(f"--replay runs in one process, not in {number}; name one device")


def _processes(number: int) -> str:
    return count(number, "process", "processes")


def launcher_command(name: str, number: int) -> list[str]:
    """Return Python's arguments to run a backend's launcher for processes on this machine."""
    launcher = LAUNCHERS[name]
    options = [option.format(port=_free_port()) for option in launcher.options]
    return ["-m", launcher.module, *options, "--nproc_per_node", str(number)]


def _without_nproc(arguments: Sequence[str]) -> list[str]:
    """Return the command line without --nproc; torchrun would take it as its own."""
    left_out = {i for i, word in enumerate(arguments) if word.partition("=")[0] == "--nproc"}
    left_out |= {i + 1 for i in left_out if arguments[i] == "--nproc"}
    return [word for i, word in enumerate(arguments) if i not in left_out]


def thread_count(number: int) -> Mapping[str, str]:
    """Return the environment that divides the cores among processes, unless the user did."""
    cores = max(1, usable_cores() // number)
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(cores)}


def run_launcher(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a launcher to its end; return the exit code of the job.

    SIGTERM and SIGUSR1 ask the ranks to suspend. However this ends, no process is left.
    """
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="duet-") as folder, listening("", None) as stop:
        message, status = Path(folder, "suspend"), Path(folder, "status")
        files = {FILE_VARIABLE: str(message), STATUS_FILE: str(status)}
        try:
            launcher = subprocess.Popen(
                command,
                env={**os.environ, **environment, **files},
                start_new_session=True,  # Ctrl-C is answered here
                preexec_fn=_prepare_launcher,
            )
            returned = _wait(launcher, stop, message)
        finally:
            kill_descendants()
        return _job_code(status, returned)


def _prepare_launcher() -> None:
    ask_for_signal_when_parent_ends()
    # For the ranks, which inherit it: `command.py` is ready for Ctrl-C, imports are not.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def _wait(launcher: subprocess.Popen[bytes], stop: StopRequests, message: Path) -> int:
    """Return the launcher's exit code after the ranks have ended too, or EXIT_INTERRUPTED.

    A request to stop is passed on in the file `message`.
    """
    try:
        while launcher.poll() is None:
            if not message.exists() and (cause := stop.cause()):
                with atomic_text_file(message) as file:
                    file.write(cause)
            time.sleep(POLL_SECONDS)
        wait_for_descendants(ORPHAN_SECONDS)
        return launcher.returncode
    except KeyboardInterrupt:
        # Not to the launcher: it would report a failure. A launcher without ranks is killed, and
        # so are ranks that save their state when Ctrl-C comes again.
        ranks = descendants(launcher.pid)
        send(ranks, signal.SIGINT)
        wait_for_descendants(math.inf if ranks else 0)
        launcher.poll()
        return EXIT_INTERRUPTED


def _job_code(status: Path, returned: int) -> int:
    """Return rank 0's exit code, unless that was 0 and another rank failed."""
    noted = int(status.read_text()) if status.exists() else EXIT_DONE
    if EXIT_INTERRUPTED in (noted, returned):
        return EXIT_INTERRUPTED
    return noted or (EXIT_FAILED if returned else EXIT_DONE)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
