"""Start several processes for one command.

No framework is imported.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping

from duet.backend import select
from duet.backend.checks import CPU
from duet.backend.cores import DIVIDED, usable_cores
from duet.backend.processes import backend_of_launcher, this_process
from duet.utils.errors import UserError
from duet.utils.processes.local_ranks import run_ranks
from duet.utils.processes.start import program_words
from duet.utils.processes.suspend import StopRequests
from duet.utils.text import count

log = logging.getLogger("launch")


def launch(
    backend: str | None,
    device: str,
    nproc: int,
    check: Callable[[int], None],
    stop: StopRequests | None = None,
) -> None:
    """Return in worker processes; if several are requested, start them and exit with their status.

    Args:
        backend, device, nproc: the flags of these names.
        check: raises UserError for flags that do not fit the number of processes.
        stop: forwarded to the processes; None for commands that cannot suspend, which SIGTERM
            interrupts.

    Raises:
        UserError: a flag does not work with several processes.
        SystemExit: the processes started here have ended.
    """
    wanted = wanted_processes(device, nproc)
    started = this_process().world_size
    # A cluster, such as a Kubernetes job, may set a launcher's variables itself.
    if started > 1 or backend_of_launcher() is not None:
        _check_launched(device, nproc, wanted, started)
        wanted = started
    check(wanted)
    if wanted == started:
        return
    name = select.choose(backend)
    if not select.FRAMEWORKS[name].trains:
        raise UserError(
            f"{_processes(wanted)} need a backend that supports training, unlike {name!r}; use one "
            "process, or --backend torch"
        )
    per_device = "" if device in ("", CPU) else ", one per device, in place of DataParallel"
    log.info("starting %s%s", _processes(wanted), per_device)
    if stop is None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    command = [sys.executable, "-u", *program_words(), *sys.argv[1:]]
    sys.exit(run_ranks(command, name, rank_variables(wanted), stop))


def wanted_processes(device: str, nproc: int) -> int:
    """Return the requested number of processes: --nproc, else one per --device."""
    devices = device.split(",")
    if len(set(devices)) < len(devices) or (len(devices) > 1 and CPU in devices):
        raise UserError(
            f"--device {device}: use different GPUs, such as 0,1; for several processes on the "
            "CPU, use --nproc 2 --device cpu"
        )
    nproc = nproc or len(devices)
    if device not in ("", CPU) and nproc != len(devices):
        raise UserError(
            f"--nproc {nproc} with --device {device}: {_processes(nproc)} need "
            f"{count(nproc, 'device')}, not {len(devices)}; omit --nproc for one process per "
            "device"
        )
    return nproc


def _check_launched(device: str, nproc: int, wanted: int, started: int) -> None:
    """Raise UserError if flags conflict with the number of processes started by a launcher."""
    if nproc and nproc != started:
        raise UserError(
            f"--nproc {nproc}, but a launcher started {_processes(started)}; set the number only "
            "in the launcher"
        )
    if wanted > started:
        raise UserError(
            f"--device {device} names {count(wanted, 'device')}, but a launcher started "
            f"{_processes(started)}; start one per device, or do not use a launcher"
        )


def _processes(number: int) -> str:
    return count(number, "process", "processes")


def rank_variables(number: int) -> Mapping[str, str]:
    """Return the environment for a number of ranks, dividing the cores unless the user did."""
    ranks = {"WORLD_SIZE": str(number)}
    if asked := os.environ.get("OMP_NUM_THREADS"):
        return {**ranks, "OMP_NUM_THREADS": asked}
    threads = max(1, usable_cores() // number)
    return {**ranks, "OMP_NUM_THREADS": str(threads), DIVIDED: "1"}
