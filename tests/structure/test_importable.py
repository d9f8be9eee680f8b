"""Every module can be imported in the environment of either backend, under its Python."""

import importlib
import sys

import pytest

from duet.utils.project import PROJECT
from tests.structure.test_imports import FILES

# `utils/setup/lock.py` is for who maintains the pins, under Python 3.11 or newer.
FOR_A_NEWER_PYTHON = {"duet.utils.setup.lock"} if sys.version_info < (3, 11) else set()


@pytest.mark.parametrize("room", ["utils", "models"])
def test_every_module_imports_under_this_python(room):
    modules = [name for name, path in FILES.items() if path.is_relative_to(PROJECT / room)]
    for name in modules:
        if not name.endswith("__main__") and name not in FOR_A_NEWER_PYTHON:
            importlib.import_module(name)
    assert len(modules) > 50
