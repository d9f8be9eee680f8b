"""The errors of everything between the dataset YAML and a batch."""

from __future__ import annotations

from utils.errors import UserError


class DatasetError(UserError):
    """A dataset that cannot be used as it is; the text says what to change."""


class LoaderError(RuntimeError):
    """A worker of the loader failed or died; the text says which and how."""
