"""The errors that more than one folder raises or handles."""

from __future__ import annotations

import reprlib
from typing import Any

LONGEST_TEXT = 200


class UserError(ValueError):
    """A mistake in a flag, a file or a dataset.

    Its text names the value, what is accepted and the next step. A command prints it and ends
    with exit code 2 (`processes/command.py::run_command`); any other exception is a defect of ours
    and keeps its traceback.
    """


class _Bounded(reprlib.Repr):
    """The standard library's bounded repr, with bounds for one line of a message."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 80, 80
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 10

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write a number of thousands of digits, for the time that it takes.
        return repr(x) if x.bit_length() <= 128 else f"a number of {x.bit_length()} bits"


_BOUNDED = _Bounded()


def brief(value: Any) -> str:
    """Return a value out of a file for a message: its repr, cut to 200 characters.

    It takes no more time than those need, whatever the value: a list may hold one list many times,
    and that one again.
    """
    text = _BOUNDED.repr(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


class DatasetError(UserError):
    """A dataset that cannot be used as it is; the text says what to change."""


class WorkerError(RuntimeError):
    """A process that this one started failed or died.

    Its text says which and how, often by the traceback of that process: a command prints it without
    one of its own, and ends with exit code 1.
    """


class LoaderError(WorkerError):
    """A loader worker failed or died; the text says which and how."""
