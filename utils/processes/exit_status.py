"""Exit codes, and a status file that passes them to clusters: launchers turn every code into 1."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from duet.backend.processes import this_process
from duet.utils.errors import UserError
from duet.utils.processes.start import EXIT_INTERRUPTED
from duet.utils.system import files
from duet.utils.text import printable

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_SUSPENDED = 75  # EX_TEMPFAIL in sysexits.h: can be resumed later

STATUS_FILE = "DUET_STATUS_FILE"  # path of the file for the job's exit code
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | files.NO_WAIT
ORDERLY_ENDS = (EXIT_SUSPENDED, EXIT_INTERRUPTED)
AGREED_ENDS = (EXIT_DONE, EXIT_SUSPENDED)  # endings that all ranks share, at different times


def say(text: str) -> None:
    """Write an error line to stderr, even while the main thread is blocked in a write."""
    os.write(2, f"\nerror: {printable(text)}\n".encode())


def end_process(code: int) -> NoReturn:
    """End the process immediately, with all threads and without clean-up.

    An exception in one OneFlow process would otherwise leave the others waiting forever.
    """
    os._exit(note_status(code))


def require_status_file() -> None:
    """Raise UserError if STATUS_FILE is not writable."""
    path = Path(os.environ.get(STATUS_FILE, os.devnull))
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        del os.environ[STATUS_FILE]  # do not report this error to it
        text = "not writable; use the path of a file, or unset the variable"
        raise UserError(f"{STATUS_FILE}={path}: {text}")


def note_status(code: int) -> int:
    """Write the job's exit code to STATUS_FILE, if set; return the code for this process.

    Rank 0's code takes precedence. With the file, orderly endings return 0, because a launcher
    reports any other code as a failure.
    """
    path = os.environ.get(STATUS_FILE)
    if path is None:
        return code
    if this_process().is_main or not Path(path).exists():
        try:
            # A pipe would wait for a reader.
            with open(os.open(path, FLAGS, 0o666), "w", encoding="ascii") as file:
                file.write(str(code))
        except OSError as error:
            say(f"{STATUS_FILE}={path}: exit code {code} cannot be written: {error.strerror}")
            return code
    return 0 if code in ORDERLY_ENDS else code
