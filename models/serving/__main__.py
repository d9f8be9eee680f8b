"""`python -m models.serving DESCRIPTOR`: the worker of one model of `python -m utils.serve`.

The descriptor is an end of a socket pair, over which the front process sends settings, then
requests. The worker ends when the other end closes.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import signal
import socket
import sys
from pathlib import Path

import backend
from backend import select
from backend.checks import CPU
from models.serving.link import Link
from utils.errors import UserError
from utils.export.formats import is_exported
from utils.export.opening import format_to_run
from utils.processes.command import run_command
from utils.processes.exit_status import EXIT_DONE, end_process
from utils.processes.process_family import ask_for_signal_when_parent_ends
from utils.serve.messages import WorkerSettings


def main() -> None:
    outlive_signals()
    link = Link(socket.socket(fileno=int(sys.argv[1])))
    first = link.receive()
    if first is None:
        return
    settings = WorkerSettings(**first.header["settings"])
    try:
        backend.use(backend_of(settings))
        from models.serving.job import run_worker

        run_worker(settings, first.header["folder"], link)
    except (UserError, backend.BackendError, OSError) as error:
        link.send({"error": str(error)})
    end_process(EXIT_DONE)  # at once, whatever the threads do: nobody waits for their answers


def outlive_signals() -> None:
    """Leave the end to the front process: it answers what it accepted, then closes the link."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    ask_for_signal_when_parent_ends(signal.SIGKILL)


def backend_of(settings: WorkerSettings) -> str | None:
    """Return the backend of the flags; for a file that needs no framework, "onnx" if installed."""
    if settings.backend or settings.device not in ("", CPU) or not is_exported(settings.weights):
        return settings.backend
    if not format_to_run(Path(settings.weights), settings.runtime).side_by_side:
        return None
    try:
        return select.choose("onnx")
    except backend.BackendError:
        return None  # ONNX Runtime is there, and the package onnx is not


if __name__ == "__main__":
    run_command(main)
