"""Run a command: user errors become one message, every ending an exit code."""

import contextlib
import errno
import faulthandler
import gc
import logging
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import TracebackType

from duet.backend import BackendError
from duet.backend.processes import this_process
from duet.utils.errors import UserError, WorkerError, os_fault
from duet.utils.processes.exit_status import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_SUSPENDED,
    end_as_orphan,
    end_process,
    note_status,
    require_status_file,
)
from duet.utils.processes.start import EXIT_USER_ERROR, raise_at_interrupt
from duet.utils.processes.suspend import Suspended, ignore_requests
from duet.utils.progress import begin_lines
from duet.utils.system.children import EXIT_NO_READER, unblock
from duet.utils.text import STDERR, STDOUT, as_message, discard_unread, has_no_reader, say

CAUSE_SECONDS = 1  # lets the launcher end this process if another one's end is the cause
PATIENCE_SECONDS = 3  # longer than a launcher takes to end the others after rank 0


def run_command(main: Callable[[], None], several: bool = False) -> None:
    """Run a command's main; user errors end it with one message and exit code 2.

    A worker's failure ends it with one message and exit code 1, a suspended run with 75. Under a
    launcher rank 0 prints for all; other ranks print only what rank 0 does not know.

    Args:
        main: may return, raise or call `sys.exit`.
        several: whether it supports several processes under a launcher.
    """
    process = this_process()
    sys.excepthook = _print_defect
    faulthandler.enable(STDERR)  # prints the stack on a crash
    begin_lines(_rank_prefix(), logging.INFO if process.is_main else logging.WARNING)
    if process.world_size == 1:
        code = _run(main)
        note_status(code)
        ignore_requests()
        gc.freeze()  # at exit the collector would look through PyTorch's objects for 0.6 s
        if code != EXIT_DONE:
            sys.exit(code)
        return
    end_as_orphan()
    code = _run(main if several else _refuse_several)
    end_process(code)  # OneFlow's exit takes ten seconds, and longer after a rank has died


def _run(main: Callable[[], None]) -> int:
    """Return the exit code; unexpected exceptions of a single process propagate.

    Output that is no longer read, as in `| head`, ends the command silently. If main has ended by
    itself, its code is kept: a suspended run's makes a cluster start it again.
    """
    code = _answered(main)
    _flush()
    return code


def _flush() -> None:
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None if closed, as by `>&-`
        with _perhaps_unread():
            stream.flush()


@contextlib.contextmanager
def _perhaps_unread() -> Iterator[None]:
    """Ignore a closed reader, or terminal, of the output written in the block."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO and not isinstance(error, BrokenPipeError):
            raise
        discard_unread()


def _answered(main: Callable[[], None]) -> int:
    try:
        raise_at_interrupt()
        # `launch.py` starts ranks with SIGINT blocked.
        unblock([signal.SIGINT])
        require_status_file()
        main()
    except SystemExit as end:
        return _code_of(end)
    except (UserError, BackendError, OSError) as error:  # OSError: a full disk
        if isinstance(error, BrokenPipeError) and has_no_reader(STDOUT):
            return EXIT_NO_READER
        _wait_for_rank_0()
        _print_error(f"error: {os_fault(error) if isinstance(error, OSError) else error}")
        return EXIT_USER_ERROR
    except WorkerError as error:  # includes the worker's traceback unless it died
        _print_error(f"error: {error}")
        return EXIT_FAILED
    except Suspended as suspended:
        if this_process().is_main:
            with _perhaps_unread():
                say(str(suspended))
        return EXIT_INTERRUPTED if suspended.by_hand else EXIT_SUSPENDED
    except KeyboardInterrupt:
        ignore_requests()  # another Ctrl-C would print a traceback
        if this_process().is_main:
            _print_error("interrupted")
        return EXIT_INTERRUPTED
    except Exception:
        if this_process().world_size == 1:
            raise
        time.sleep(CAUSE_SECONDS)
        _print_lines(traceback.format_exc())
        return EXIT_FAILED
    return EXIT_DONE


def _code_of(end: SystemExit) -> int:
    if isinstance(end.code, str):
        _print_error(end.code)
        return EXIT_FAILED
    return end.code or EXIT_DONE


def _wait_for_rank_0() -> None:
    """Give rank 0 time to print the message and end all: most errors occur there too."""
    if not this_process().is_main:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # used by launchers to end other ranks
        time.sleep(PATIENCE_SECONDS)


def _refuse_several() -> None:
    raise UserError(
        f"{sys.argv[0]} runs in a single process, but {this_process().world_size} were started; "
        "start it without a launcher"
    )


def _print_error(text: str) -> None:
    with _perhaps_unread():
        print(as_message(_rank_prefix() + text), file=sys.stderr)


def _print_lines(text: str) -> None:
    with _perhaps_unread():
        say(*(_rank_prefix() + text).splitlines(), file=sys.stderr)


def _print_defect(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print a traceback with escaped characters: it may contain text from a file."""
    _print_lines("".join(traceback.format_exception(kind, error, trace)))


def _rank_prefix() -> str:
    return "" if this_process().is_main else f"rank {this_process().rank}: "
