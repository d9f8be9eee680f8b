"""Start several processes for one command, and return their exit code.

They receive its stop requests. No framework is imported.
"""

import logging
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from duet.backend import select
from duet.backend.checks import CPU
from duet.backend.cores import DIVIDED, usable_cores
from duet.backend.processes import LAUNCHERS, MEETING_FOLDER, backend_of_launcher, this_process
from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_text_file
from duet.utils.processes.exit_status import (
    AGREED_ENDS,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    STATUS_FILE,
    say,
)
from duet.utils.processes.start import EXIT_USER_ERROR, program_words
from duet.utils.processes.suspend import FILE_VARIABLE, StopRequests
from duet.utils.system.children import (
    INTERRUPTS,
    KILL,
    SUSPENDING,
    ask_for_signal_when_parent_ends,
    blocked,
    child_options,
    interrupt,
)
from duet.utils.system.machine import POLL_SECONDS, ending_children
from duet.utils.system.private_network import enter, private_network
from duet.utils.text import count

LINGER_SECONDS = 5  # wait for the others after one was interrupted
EXPOSED = (
    "the ranks will listen on all interfaces: %s always does, and the system does not allow a "
    "private network; keep their ports behind a firewall"
)
Rank = subprocess.Popen[bytes]

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
    if (nproc and nproc != started) or wanted > started:
        flag = f"--nproc {nproc}" if nproc else f"--device {device}"
        raise UserError(
            f"{flag} asks for {_processes(wanted)}, but a launcher started {_processes(started)}; "
            "set the number only in the launcher, or do not use a launcher"
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


def run_ranks(
    command: Sequence[str],
    backend: str,
    environment: Mapping[str, str],
    stop: StopRequests | None = None,
) -> int:
    """Run a command as several ranks on this machine; return the job's exit code.

    Their ports are unreachable from other machines. No process outlives this call.

    Args:
        command: command run by each rank.
        backend: its backend.
        environment: for all ranks; WORLD_SIZE is their number.
        stop: requests forwarded to the ranks, which collect them too; None for commands that
            cannot suspend.
    """
    for number in INTERRUPTS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)  # a second Ctrl-C raises too
    ranks: list[Rank] = []
    deferred = {*INTERRUPTS, *(SUSPENDING if stop is not None else ())}
    with tempfile.TemporaryDirectory(prefix="duet-") as folder, ending_children():
        message = Path(folder, "suspend")
        shared = {**os.environ, **_local_variables(backend), **environment}
        shared |= {MEETING_FOLDER: folder, FILE_VARIABLE: str(message)}
        shared.pop(STATUS_FILE, None)  # written by this process
        try:
            with blocked(deferred), _network(backend) as prepare:
                for place in map(str, range(int(environment["WORLD_SIZE"]))):
                    ranks.append(_start(place, command, shared, prepare))
            _wait(ranks, stop, message)
        except KeyboardInterrupt:
            _interrupt(ranks)  # a second Ctrl-C ends this wait and thereby the ranks
            return EXIT_INTERRUPTED
    return job_code([rank.returncode for rank in ranks])


def job_code(codes: Sequence[int | None]) -> int:
    """Return the exit code of a job: that of the first rank that failed with a reason.

    Args:
        codes: exit codes in rank order; negative for a signal, None for a rank still running.
    """
    if EXIT_INTERRUPTED in codes:
        return EXIT_INTERRUPTED
    if all(code == EXIT_DONE for code in codes):
        return EXIT_DONE
    return next((code for code in codes if code is not None and code > 0), EXIT_FAILED)


def _local_variables(backend: str) -> dict[str, str]:
    """Return the variables that restrict a framework's sockets to the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    values = {"port": port, "loopback": _loopback_interface()}
    return {name: text.format(**values) for name, text in LAUNCHERS[backend].local.items()}


def _loopback_interface() -> str:
    found = psutil.net_if_addrs().items()
    names = [name for name, all_ in found if any(one.address == "127.0.0.1" for one in all_)]
    return names[0] if names else "lo"


@contextmanager
def _network(backend: str) -> Iterator[Callable[[], None]]:
    """Yield the preparation of a rank, with a private network for frameworks that need it."""
    namespaces: Sequence[int] = ()
    parent = os.getpid()
    with ExitStack() as stack:
        if LAUNCHERS[backend].needs_network:
            try:
                namespaces = stack.enter_context(private_network())
            except (OSError, subprocess.SubprocessError):
                log.warning(EXPOSED, backend)
        yield lambda: _prepare(namespaces, parent)


def _prepare(namespaces: Sequence[int], parent: int) -> None:
    enter(namespaces)  # first, because it resets the next request
    ask_for_signal_when_parent_ends(KILL)  # until `joined`: nothing is to be saved
    if os.getppid() != parent:  # it ended before the request
        os._exit(EXIT_FAILED)


def _start(
    place: str, command: Sequence[str], shared: Mapping[str, str], prepare: Callable[[], None]
) -> Rank:
    own = {"RANK": place, "LOCAL_RANK": place, "LOCAL_WORLD_SIZE": shared["WORLD_SIZE"]}
    return subprocess.Popen(
        command,
        env={**shared, **own},
        **child_options(prepare),  # Ctrl-C is handled here
    )


def _wait(ranks: Sequence[Rank], stop: StopRequests | None, message: Path) -> None:
    """Wait until all ranks have ended or one has failed, which is reported; then end the others.

    Stop requests are forwarded in the file `message`.
    """
    deadline = math.inf
    while _are_alive(ranks) and time.monotonic() < deadline:
        if stop is not None and not message.exists() and (cause := stop.cause()):
            with atomic_text_file(message) as file:
                file.write(cause)
        codes = [rank.returncode for rank in ranks]
        if EXIT_INTERRUPTED in codes:  # Ctrl-C reaches all ranks, and rank 0 reports it
            deadline = min(deadline, time.monotonic() + LINGER_SECONDS)
        if _report_failed(codes):
            break
        time.sleep(POLL_SECONDS)
    for rank in ranks:
        rank.kill()  # no effect if it has ended
        rank.wait()


def _report_failed(codes: Sequence[int | None]) -> bool:
    """Return whether a rank has failed; report it unless it has printed a user error."""
    orderly = (None, *AGREED_ENDS, EXIT_INTERRUPTED)
    failed = [(place, code) for place, code in enumerate(codes) if code not in orderly]
    for place, code in failed:
        if code < 0:
            say(f"rank {place} was killed by {signal.Signals(-code).name}; ending the job")
        elif code != EXIT_USER_ERROR:
            say(f"rank {place} ended with exit code {code}; ending the job")
    return bool(failed)


def _interrupt(ranks: Sequence[Rank]) -> None:
    """Forward Ctrl-C and wait for the ranks, which may save their state."""
    for rank in ranks:
        interrupt(rank)
    while _are_alive(ranks):
        time.sleep(POLL_SECONDS)


def _are_alive(ranks: Sequence[Rank]) -> bool:
    """Return whether any rank is running; update the exit codes of the others."""
    return any([rank.poll() is None for rank in ranks])
