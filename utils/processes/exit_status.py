"""How a process ends, and how a cluster gets its exit code: launchers turn every code into 1."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

from duet.backend.processes import this_process
from duet.utils.errors import UserError
from duet.utils.processes.interrupt import EXIT_INTERRUPTED
from duet.utils.text import printable

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_SUSPENDED = 75  # EX_TEMPFAIL of sysexits.h: it can go on later
EXIT_NO_READER = 128 + signal.SIGPIPE  # as shells say of a program in front of `| head`

STATUS_FILE = "DUET_STATUS_FILE"  # names the file that gets the exit code of the job
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK
ORDERLY_ENDS = (EXIT_SUSPENDED, EXIT_INTERRUPTED)
AGREED_ENDS = (EXIT_DONE, EXIT_SUSPENDED)  # of one rank, while others may still be at work


def say(text: str) -> None:
    """Write one whole line to standard error, also while the main thread is stuck in a write."""
    os.write(2, f"\nerror: {printable(text)}\n".encode())


def end_process(code: int) -> NoReturn:
    """End now, with all threads and without cleaning up.

    An exception in one OneFlow process would leave the others waiting forever.
    """
    os._exit(note_status(code))


def require_status_file() -> None:
    """Raise UserError if STATUS_FILE is set to a path where no file can be written."""
    path = Path(os.environ.get(STATUS_FILE, os.devnull))
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        del os.environ[STATUS_FILE]  # this end is not written to it either
        text = "no file can be written there; name a file, or unset it"
        raise UserError(f"{STATUS_FILE}={path}: {text}")


def note_status(code: int) -> int:
    """Write the job's exit code to STATUS_FILE, if that is set; return the code of this process.

    Rank 0's code replaces those of others. With the file, the launcher gets 0 for an orderly end:
    it would report any other code as a failure.
    """
    path = os.environ.get(STATUS_FILE)
    if path is None:
        return code
    if this_process().is_main or not Path(path).exists():
        try:
            # O_NONBLOCK: a pipe would wait for a reader.
            with open(os.open(path, FLAGS, 0o666), "w") as file:
                file.write(str(code))
        except OSError as error:
            say(f"{STATUS_FILE}={path}: exit code {code} cannot be written: {error.strerror}")
            return code
    return 0 if code in ORDERLY_ENDS else code
