"""The errors that more than one room raises or answers."""

from __future__ import annotations


class UserError(ValueError):
    """A mistake in a flag, a file or a dataset.

    Its text names the value, what is accepted and the next step. A command prints it and ends
    with exit code 2 (`processes/command.py::run_command`); any other exception is a defect of ours
    and keeps its traceback.
    """


class DatasetError(UserError):
    """A dataset that cannot be used as it is; the text says what to change."""


class LoaderError(RuntimeError):
    """A worker of the loader failed or died; the text says which and how."""
