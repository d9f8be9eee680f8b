"""Graphs that several files of tests share."""

from importlib import import_module

import pytest


@pytest.fixture(scope="session")
def make(tmp_path_factory):
    """Return what makes the file of a name of `every_kind.py`, new each time."""
    every_kind = import_module("tests.export.every_kind")  # once the backend is chosen
    return every_kind.write_every_kind(tmp_path_factory.mktemp("graphs"))
