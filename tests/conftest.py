"""Binds the backend that the tests judge; one process judges one backend."""

import os
import signal
from collections.abc import Iterator

import pytest

import backend
from backend.select import ENVIRONMENT_VARIABLE, FRAMEWORKS
from utils.files.array_cache import VARIABLE as CACHE_VARIABLE

# What runs in one of the two suites alone, so that both take about as long. These start the
# backends that they judge in processes of their own, or run exported files, which are the same from
# both; the site has no backend. What the last one needs is in .venv/torch.
IN_ONE_SUITE = {
    "oneflow": [
        "export/examples/test_page_example.py",
        "parity/test_backends_agree.py",
        "unit/data/test_environments.py",
    ],
    "torch": [
        "export/examples/test_cpp_example.py",
        "conformance/test_onnx_backend.py",
        "parity/test_optimizer_state_crosses.py",
        "parity/test_parity_command.py",
        "parity/test_resume_crosses.py",
        "train/test_compare_backends.py",
        "site",
        "unit/docs/test_example_schemas.py",
    ],
}
collect_ignore = [
    path
    for name, paths in IN_ONE_SUITE.items()
    for path in paths
    if name != os.environ.get(ENVIRONMENT_VARIABLE)
]


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


@pytest.fixture(autouse=True)
def signals_come_back() -> Iterator[None]:
    """A command that a test runs in this process answers signals until it has ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
