"""What the tests of exported files leave as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backend import device


@pytest.fixture(autouse=True)
def _threads_stay() -> Iterator[None]:
    """The runtime of TorchScript sets how many threads PyTorch has, in this process too."""
    before = device.host_threads()
    yield
    device.set_host_threads(before)
