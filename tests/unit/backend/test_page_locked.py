"""Copies on the way from NumPy to a GPU, counted without one: page-locked memory is the host's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow has no such memory")


@pytest.fixture
def modules(monkeypatch):
    """Return `ops` and `device` of the backend, whose page-locked tensors are ordinary ones."""
    ops, device = (importlib.import_module(f"backend.torch.{name}") for name in ("ops", "device"))
    empty, locked = ops.torch.empty, set()

    def stand_in(*shape, pin_memory=False, **options):
        made = empty(*shape, **options)
        if pin_memory:
            locked.add(made.data_ptr())
        return made

    monkeypatch.setattr(ops.torch, "empty", stand_in)
    monkeypatch.setattr(ops.Tensor, "is_pinned", lambda x: x.data_ptr() in locked)
    return ops, device


def test_a_batch_in_page_locked_memory_is_not_copied_on_the_host(modules):
    ops, device = modules
    images = device.host_bytes((2, 3, 4, 4), "cuda:0")
    images[...] = np.arange(96).reshape(images.shape)
    on_host = ops.page_locked(images)
    assert np.shares_memory(on_host.numpy(), images)
    np.testing.assert_array_equal(on_host.numpy(), images)
    assert on_host.is_pinned()


def test_a_part_of_it_is_copied_since_its_place_tells_no_end_of_the_reading(modules):
    ops, device = modules
    images = device.host_bytes((4, 3, 4, 4), "cuda:0")
    images[...] = np.arange(192).reshape(images.shape)
    for part in (images[:2], images[2:], images[:, :1], images.transpose(0, 2, 3, 1), images[::-1]):
        on_host = ops.page_locked(part)
        assert on_host.is_pinned() and not np.shares_memory(on_host.numpy(), images)
        np.testing.assert_array_equal(on_host.numpy(), part)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0)[::-1], np.arange(6, dtype=">i8"), np.zeros((0, 3), np.float32),
        np.array([True, False]), np.arange(6, dtype=np.uint8).reshape(2, 3).T,
    ],
)  # fmt: skip
def test_any_other_array_is_copied_once(modules, array):
    ops, _ = modules
    on_host = ops.page_locked(array)
    np.testing.assert_array_equal(on_host.numpy(), array)
    assert on_host.is_pinned() and on_host.numpy().dtype == array.dtype.newbyteorder("=")


def test_beside_a_cpu_memory_is_ordinary(modules):
    _, device = modules
    assert device.host_bytes((2, 3), "cpu").base is None
