"""A command as a function: keywords become its flags, and the process is left as it was."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from duet.backend import BackendError
from duet.backend.processes import this_process
from duet.utils.errors import UserError
from duet.utils.progress import begin_lines

SPELLED_SO = ("bbox_iou_optim", "multi_tensor_optimizer")  # flags that have no hyphens
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
OF_COMMANDS = ("nproc", "evolve")  # flags that start processes, from the command line alone


def call(name: str, work: Callable[[Sequence[str]], Any], flags: Mapping[str, Any]) -> Any:
    """Do the work of the command `duet NAME` with flags as keywords; return what it returns.

    Raises:
        UserError: what ends the command with exit code 2, with the same message.
    """
    several = "," in str(flags.get("device", "")) and this_process().world_size == 1
    refused = ["device"] if several else [flag for flag in OF_COMMANDS if flags.get(flag)]
    if refused:
        raise UserError(
            f"{refused[0]}={flags[refused[0]]!r} starts further processes: use the command "
            f"`duet {name}`, or start this program with a launcher"
        )
    words = words_of(flags)
    with _as_before(), _as_command([f"duet {name}", *words]):
        try:
            return work(words)
        except BackendError as error:
            raise UserError(str(error)) from error


def words_of(flags: Mapping[str, Any]) -> list[str]:
    """Return keywords as words of a command line.

    True is a switch; False and None leave a flag out; the values of a list follow their flag.
    """
    words = []
    for name, value in flags.items():
        flag = "--" + (name if name in SPELLED_SO else name.replace("_", "-"))
        if value is None or value is False:
            continue
        if isinstance(value, (list, tuple)):
            words += [flag, *map(str, value)]
        else:  # with "=", a value may begin with a hyphen
            words.append(flag if value is True else f"{flag}={value}")
    return words


@contextmanager
def _as_command(words: list[str]) -> Iterator[None]:
    """Have sys.argv name the command, for the lines that say how to go on."""
    before, sys.argv = sys.argv, words
    try:
        yield
    finally:
        sys.argv = before


@contextmanager
def _as_before() -> Iterator[None]:
    """Log as a command does in the block; afterwards handlers of signals and logs are as before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    signals = {number: signal.getsignal(number) for number in HANDLED}
    begin_lines("", logging.INFO)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)
        for number, handler in signals.items():
            signal.signal(number, handler)
