"""Binds the backend that the tests judge; one process judges one backend."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from duet import backend
from duet.backend.select import ENVIRONMENT_VARIABLE, FRAMEWORKS
from duet.utils.files.array_cache import VARIABLE as CACHE_VARIABLE
from tests import environments
from tests.one_suite import CLAIMS, FolderSeconds, SharedFiles, is_left_out


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return is_left_out(collection_path, os.environ) or None


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background
    os.environ.setdefault(CACHE_VARIABLE, "")  # nothing is kept in the folder of who tests
    name = os.environ.get(ENVIRONMENT_VARIABLE)
    if not name:
        raise pytest.UsageError(
            f"set {ENVIRONMENT_VARIABLE} to the backend to test: {' or '.join(FRAMEWORKS)}"
        )
    try:
        backend.use(name)
    except backend.BackendError as error:
        raise pytest.UsageError(str(error)) from error
    gc.disable()  # until all is collected
    config.pluginmanager.register(FolderSeconds())
    if claims := os.environ.get(CLAIMS):
        config.pluginmanager.register(SharedFiles(Path(claims)))


def pytest_collection() -> None:
    environments.collecting = True


def pytest_collection_finish() -> None:
    environments.collecting = False
    gc.freeze()  # what is imported stays: the collector need not look through it again and again
    gc.enable()
    gc.set_threshold(20_000, 20, 20)  # looking for cycles as often as usual is a tenth of the time


@pytest.fixture(autouse=True)
def signals_come_back() -> Iterator[None]:
    """A command that a test runs in this process answers signals until it has ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
