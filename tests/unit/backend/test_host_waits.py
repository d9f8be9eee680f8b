"""How often the host waits for a GPU: PyTorch's warnings, made up here, counted and not shown."""

from __future__ import annotations

import importlib
import warnings

import pytest

import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow counts no waits")

WAIT = "called a synchronizing CUDA operation"


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the modes that are set, beside a PyTorch that warns of each, as it does once."""
    cuda, found = importlib.import_module("torch.cuda"), list[object]()

    def set_mode(mode: object) -> None:
        found.append(mode)
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=2)

    monkeypatch.setattr(cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(cuda, "set_sync_debug_mode", set_mode)
    return found


def test_only_waits_are_counted_and_no_warning_is_shown(modes: list[object]) -> None:
    def run() -> None:
        for text in (WAIT, "something else", WAIT):
            warnings.warn(text, stacklevel=1)

    assert backend.device.host_waits(run, "cuda:0") == 2  # a warning that is shown is an error here
    assert modes == ["warn", 0]


def test_the_mode_is_set_back_after_an_error(modes: list[object]) -> None:
    with pytest.raises(ZeroDivisionError):
        backend.device.host_waits(lambda: 1 / 0, "cuda:0")
    assert modes == ["warn", 0]
