"""Run a command as a function: keywords become flags, and process-wide state is restored."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from duet.backend import BackendError
from duet.backend.processes import this_process
from duet.utils.cli.flags import words_of_flags
from duet.utils.errors import UserError
from duet.utils.progress import begin_lines

# Flags without hyphens, each with a third state: automatic.
WITH_UNDERSCORES = ("bbox_iou_optim", "multi_tensor_optimizer")
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
COMMAND_LINE_ONLY = ("nproc", "evolve")  # flags that start processes


def call(name: str, work: Callable[[Sequence[str]], Any], flags: Mapping[str, Any]) -> Any:
    """Run the command `duet NAME` with flags as keywords; return its result.

    Raises:
        UserError: for errors that end the command with exit code 2, with the same message.
    """
    several = "," in str(flags.get("device", "")) and this_process().world_size == 1
    refused = ["device"] if several else [flag for flag in COMMAND_LINE_ONLY if flags.get(flag)]
    if refused:
        raise UserError(
            f"{refused[0]}={flags[refused[0]]!r} would start more processes; use the command "
            f"`duet {name}`, or start this program with a launcher"
        )
    words = words_of(flags)
    with _restoring_handlers(), _as_command([f"duet {name}", *words]):
        try:
            return work(words)
        except BackendError as error:
            raise UserError(str(error)) from error


def words_of(flags: Mapping[str, Any]) -> list[str]:
    """Convert keywords to command-line arguments."""
    hyphens = {name: name.replace("_", "-") for name in flags if name not in WITH_UNDERSCORES}
    named = {f"--{hyphens.get(name, name)}": x for name, x in flags.items()}
    return words_of_flags(named, [f"--{name}" for name in WITH_UNDERSCORES])


@contextmanager
def _as_command(words: list[str]) -> Iterator[None]:
    """Set sys.argv to the command, for messages that show how to continue.

    Loader workers do not import the caller's program, so it needs no `__main__` guard.
    """
    before, sys.argv = sys.argv, words
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.argv, sys.modules["__main__"] = before, main


@contextmanager
def _restoring_handlers() -> Iterator[None]:
    """Log like a command inside the block; restore signal and log handlers afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = {number: signal.getsignal(number) for number in HANDLED if in_main_thread}
    begin_lines("", logging.INFO)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)
        for number, handler in signals.items():
            signal.signal(number, handler)
