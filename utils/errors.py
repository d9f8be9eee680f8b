"""Errors raised or handled in more than one folder."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_TEXT = 200


class UserError(ValueError):
    """An error in a flag, a file or a dataset.

    The message gives the value, what is accepted and the next step. Commands print it and exit
    with code 2 (`processes/command.py::run_command`); any other exception is a bug and keeps its
    traceback.
    """


class _Bounded(reprlib.Repr):
    """A bounded repr that fits one line of a message."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 80, 80
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 10

    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to convert numbers with thousands of digits.
        return repr(x) if x.bit_length() <= 128 else f"a number of {x.bit_length()} bits"


_BOUNDED = _Bounded()


def brief(value: object) -> str:
    """Return the repr of a value from a file for a message, cut to 200 characters.

    The time is bounded too, even for values that nest the same list many times.
    """
    text = _BOUNDED.repr(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."


def os_fault(error: OSError) -> str:
    """Return what the system refused, without its number: "a/b.txt: No space left on device"."""
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text


@contextmanager
def as_user_error(text: str, *kinds: type[Exception]) -> Iterator[None]:
    """Turn errors of these kinds into a UserError of a text and what they say."""
    try:
        yield
    except kinds as error:
        raise UserError(f"{text}: {brief(str(error))}") from error


@contextmanager
def naming_weights(path: object) -> Iterator[None]:
    """Turn the errors of reading a weights file into a UserError that names it."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--weights {path}: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"--weights {path}: it does not fit into memory") from error
    except UserError as error:
        text = str(error)
        named = text if text.startswith("--weights") else f"--weights {path}: {text}"
        raise UserError(named) from error


class DatasetError(UserError):
    """A dataset that cannot be used; the message gives the fix."""


class BrokenSourceError(Exception):
    """An image, video or stream that cannot be read, or not to its end; the message says why."""


class WorkerError(RuntimeError):
    """A child process failed or died.

    The message names it and the cause, often with its traceback. Commands print it without their
    own traceback and exit with code 1.
    """
