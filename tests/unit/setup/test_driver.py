"""What a machine's GPU driver says of itself, with stand-ins for its library."""

from __future__ import annotations

import ctypes

import pytest

from utils.setup import driver


def library(version: int):
    """A stand-in for libcuda that serves CUDA up to this version, as 13000."""

    def answer(pointer) -> int:
        pointer._obj.value = version
        return 0

    return lambda name: type("Library", (), {"cuDriverGetVersion": staticmethod(answer)})


@pytest.mark.parametrize(("version", "cuda"), [(13000, (13, 0)), (12080, (12, 8))])
def test_the_driver_says_which_cuda_it_serves(monkeypatch, version, cuda):
    monkeypatch.setattr(ctypes, "CDLL", library(version))
    assert driver.newest_cuda() == cuda
    assert driver.sees_driver()


@pytest.mark.parametrize("name", ["libabsent.so.1", "libc.so.6"])  # libc is no driver
def test_without_its_library_there_is_no_driver(monkeypatch, tmp_path, name):
    monkeypatch.setattr(driver, "NVIDIA_DRIVER", name)
    monkeypatch.setattr(driver, "AMD_DRIVER", tmp_path / "kfd")
    assert driver.newest_cuda() is None
    assert not driver.sees_driver()
    (tmp_path / "kfd").touch()
    assert driver.sees_driver()
