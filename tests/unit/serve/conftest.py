"""One server for all tests that only ask it something."""

from collections.abc import Iterator

import pytest

from tests.unit.serve.running import Server, running

TIMEOUT = 1.5
MAX_BYTES = 100_000
MAX_PIXELS = 40_000
MAX_QUEUE = 2
MODELS = ("plain", "slow", "stuck", "bad", "lost", "defect")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    limits = ["--timeout", TIMEOUT, "--max-bytes", MAX_BYTES, "--max-pixels", MAX_PIXELS,
              "--max-queue", MAX_QUEUE, "--conf", 0.4]  # fmt: skip
    with running("--weights", *(f"{name}=x" for name in MODELS), *limits) as found:
        yield found
