"""Run a command as a function: keywords become flags, and process-wide state is restored.

Nothing that other threads use is replaced: neither sys.argv nor the main module.
"""

import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from duet.backend import BackendError
from duet.backend.processes import this_process
from duet.utils.cli.flags import FlagValues, UnknownFlagError, words_of_flags
from duet.utils.errors import UserError
from duet.utils.processes.start import called_as, set_handlers
from duet.utils.processes.suspend import HANDLED
from duet.utils.progress import begin_lines

WITH_UNDERSCORES = ("bbox_iou_optim", "multi_tensor_optimizer")  # flags without hyphens
AUTOMATIC = ("--bbox_iou_optim", "--multi_tensor_optimizer", "--device-augment")  # a third state
COMMAND_LINE_ONLY = ("nproc", "evolve")  # flags that start processes


def call(name: str, work: Callable[[Sequence[str]], object], flags: FlagValues) -> Any:
    """Run the command `duet NAME` with flags as keywords; return its result.

    Raises:
        TypeError: an unknown keyword.
        UserError: for errors that end the command with exit code 2, with the same message.
    """
    several = "," in str(flags.get("device", "")) and this_process().world_size == 1
    refused = ["device"] if several else [flag for flag in COMMAND_LINE_ONLY if flags.get(flag)]
    if refused:
        raise UserError(
            f"{refused[0]}={flags[refused[0]]!r} would start more processes; use the command "
            f"`duet {name}`, or start this program with a launcher"
        )
    with _handling_signals_as_before(), _output, called_as(f"duet {name}"):
        try:
            return work(words_of(flags))
        except UnknownFlagError as error:
            raise TypeError(f"duet.{name}(): {error}") from None
        except BackendError as error:
            raise UserError(str(error)) from error


def words_of(flags: FlagValues) -> list[str]:
    hyphens = {name: name.replace("_", "-") for name in flags if name not in WITH_UNDERSCORES}
    named = {f"--{hyphens.get(name, name)}": x for name, x in flags.items()}
    return words_of_flags(named, AUTOMATIC)


@contextmanager
def _handling_signals_as_before() -> Iterator[None]:
    signals = {number: signal.getsignal(number) for number in HANDLED}
    try:
        yield
    finally:
        set_handlers(signals)


class _Output:
    """Logging and standard streams as a command has them, until the last of overlapping calls ends.

    Each call on its own would restore what another one has set.
    """

    def __init__(self) -> None:
        self._lock, self._calls, self._changes = threading.Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._calls == 0:
                self._changes.enter_context(_having_streams())
                self._changes.enter_context(_writing_like_a_command())
            self._calls += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._calls -= 1
            if self._calls == 0:
                self._changes.close()


_output = _Output()


@contextmanager
def _having_streams() -> Iterator[None]:
    """Discard output where a stream is None, as in a program of Windows without a console."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, ExitStack() as changes:
        if sys.stdout is None:
            changes.enter_context(redirect_stdout(nowhere))
        if sys.stderr is None:
            changes.enter_context(redirect_stderr(nowhere))
        yield


@contextmanager
def _writing_like_a_command() -> Iterator[None]:
    root, show = logging.getLogger(), warnings.showwarning
    handlers, level = root.handlers[:], root.level
    streams = [x for x in (sys.stdout, sys.stderr) if isinstance(x, io.TextIOWrapper)]
    escapes = [stream.errors for stream in streams]
    begin_lines("", logging.INFO)
    captures = warnings.showwarning is not show  # the caller may have asked for it before
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        if captures:
            logging.captureWarnings(False)
        for stream, how in zip(streams, escapes, strict=True):
            if not stream.closed:
                stream.reconfigure(errors=how)
