"""What PyTorch keeps in memory, and in which order: gradients, maps, and batches for a GPU."""

from __future__ import annotations

import importlib
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

from duet import backend
from duet.backend import amp, autograd, fused, nn

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="about PyTorch's memory")

# As PyTorch 2.13 prints it of the last convolution of a model in channels-last.
WARNING = """Grad strides do not match bucket view strides. This may indicate grad was not created \
according to the gradient layout contract, or that the param's strides changed since DDP was \
constructed.  This is not an error, but may impair performance.
grad.sizes() = [30, 128, {side}, {side}], strides() = [128, 1, 128, 128]
bucket_view.sizes() = [30, 128, {side}, {side}], strides() = [128, 1, 1, 1]"""


@pytest.mark.parametrize(("side", "shown"), [(1, 0), (3, 1)])
def test_strides_of_one_element_are_not_warned_of(side, shown, monkeypatch):
    dist = importlib.import_module("duet.backend.torch.dist")
    process = dist.this_process()
    monkeypatch.setattr(dist, "this_process", lambda: process._replace(world_size=2))
    monkeypatch.setattr(dist, "DistributedDataParallel", lambda module, **options: module)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.data_parallel(backend.nn.Conv2d(1, 1, 1))
        warnings.warn(WARNING.format(side=side), UserWarning, stacklevel=1)
    assert len(caught) == shown


def input_is_kept(norm: Any, dtype: str = "float32") -> bool:
    """Return whether the input of a layer still exists when its result does."""
    variable = autograd.variable(np.ones((2, 4, 3, 3), dtype) * np.arange(3, dtype=dtype))
    x = variable * 1.0
    alive = weakref.ref(x)
    y = fused.batch_norm_silu(norm, x)
    del x
    assert y.requires_grad
    return alive() is not None


def layer(dtype: str = "float32", **arrays: float) -> Any:
    norm = nn.place(nn.BatchNorm2d(4), "cpu", dtype)
    state = nn.state_arrays(norm)
    for name, value in arrays.items():
        state[name][1] = value
    nn.load_state_arrays(norm, state)
    return norm


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_in_training_the_input_is_not_kept(dtype: str) -> None:
    assert not input_is_kept(layer(dtype), dtype)
    assert not input_is_kept(layer(dtype, weight=-0.1, bias=9.0), dtype)


def test_weights_near_zero_keep_the_input() -> None:
    assert input_is_kept(layer(weight=0.0))
    assert input_is_kept(layer(weight=0.01, bias=1.01))
    assert input_is_kept(layer(weight=float("nan")))
    assert input_is_kept(layer(weight=1e-39)) and not input_is_kept(layer(weight=1e-14))


def test_bfloat16_maps_keep_their_eight_bits_of_input() -> None:
    convolution, norm, kept = nn.Conv2d(4, 4, 1, bias=False), layer(), []
    with amp.autocast("cpu", "bfloat16"):
        x = convolution(autograd.variable(np.ones((2, 4, 3, 3), "float32")))
        kept.append(weakref.ref(x))
        y = fused.batch_norm_silu(norm, x)
    del x
    assert kept[0]() is not None and y.requires_grad


@pytest.fixture
def modules(monkeypatch):
    """Return `ops` and `device` of the backend, whose page-locked tensors are ordinary ones."""
    ops, device = (
        importlib.import_module(f"duet.backend.torch.{name}") for name in ("ops", "device")
    )
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
