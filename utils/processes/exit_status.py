"""How a process ends: its exit code, with its launcher, or in a call that blocks all threads.

A status file passes exit codes to clusters: launchers turn every code into 1.
"""

import contextlib
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psutil

from duet.backend.processes import this_process
from duet.utils.errors import UserError
from duet.utils.processes.start import EXIT_INTERRUPTED, handling
from duet.utils.system import files
from duet.utils.text import STDERR, printable

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_SUSPENDED = 75  # EX_TEMPFAIL in sysexits.h: can be resumed later

STATUS_FILE = "DUET_STATUS_FILE"  # path of the file for the job's exit code
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | files.NO_WAIT
ORDERLY_ENDS = (EXIT_SUSPENDED, EXIT_INTERRUPTED)
AGREED_ENDS = (EXIT_DONE, EXIT_SUSPENDED)  # endings that all ranks share, at different times
PARENT_POLL_SECONDS = 0.5
ORPHAN_SECONDS = 30  # as long as torchrun waits after SIGTERM


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


def end_as_orphan() -> None:
    """End this process when its parent ends: SIGTERM at once, exit after ORPHAN_SECONDS.

    In between, a process that handles SIGTERM has time to save its state. The parent is polled:
    some launchers start ranks in threads that end.
    """
    threading.Thread(target=_end_after, args=(os.getppid(),), daemon=True, name="orphan").start()


def _end_after(parent: int) -> None:
    # Windows keeps the number of a parent that has ended.
    while os.getppid() == parent and (os.name != "nt" or psutil.pid_exists(parent)):
        time.sleep(PARENT_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def ending_in_any_call(seconds: float) -> Iterator[None]:
    """End this process on SIGTERM or Ctrl-C in the block, or after a time limit.

    Ranks wait for each other in calls that block all Python threads, such as `import oneflow`.
    There is nothing to save at that point.
    """
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ending = {signal.SIGTERM} if ignored else {signal.SIGTERM, signal.SIGINT}
    faulthandler.dump_traceback_later(seconds, exit=True, file=STDERR)
    try:
        with handling(dict.fromkeys(ending, signal.SIG_DFL)):
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()
