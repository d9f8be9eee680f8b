"""What PyTorch keeps in memory, and in which order: gradients, maps, and batches for a GPU."""

from __future__ import annotations

import importlib
import warnings
import weakref
from contextlib import nullcontext
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


class Runtime:
    """CUDA's runtime, which notes the memory that it is given."""

    def __init__(self, code: int = 0) -> None:
        self.code, self.registered = code, {}

    def cudaHostRegister(self, start, num_bytes, flags):
        self.registered[start] = num_bytes
        return self.code

    def cudaHostUnregister(self, start):
        del self.registered[start]
        return 0


@pytest.fixture
def modules(monkeypatch):
    """Return `ops` and `device` of the backend, whose page-locked memory is ordinary."""
    ops, device = (
        importlib.import_module(f"duet.backend.torch.{name}") for name in ("ops", "device")
    )
    empty = ops.torch.empty

    def stand_in(*shape, pin_memory=False, **options):
        return empty(*shape, **options)

    monkeypatch.setattr(ops.torch, "empty", stand_in)
    monkeypatch.setattr(ops, "present", lambda device: device)
    monkeypatch.setattr(ops, "copied_beside", lambda on_host, device: on_host)
    monkeypatch.setattr(device.torch.cuda, "device", lambda device: nullcontext())
    return ops, device


def use_runtime(monkeypatch, device, runtime: Runtime) -> Runtime:
    monkeypatch.setattr(device.torch.cuda, "cudart", lambda: runtime)
    return runtime


def test_a_batch_in_page_locked_memory_is_not_copied_on_the_host(modules, monkeypatch):
    ops, device = modules
    runtime = use_runtime(monkeypatch, device, Runtime())
    memory = np.arange(192, dtype=np.uint8)
    device.page_lock(memory, "cuda:0")
    assert list(runtime.registered.values()) == [192]
    images = memory[96:].reshape(4, 3, 2, 4)
    for part in (images, images[:2], images[2:]):
        found = ops.tensor(part, "cuda:0")
        assert np.shares_memory(found.numpy(), memory)
        np.testing.assert_array_equal(found.numpy(), part)
    monkeypatch.setattr(ops, "LARGE_COPY", 0)
    for part in (images[:, :1], images[::-1], np.arange(192, dtype=np.uint8)):
        found = ops.tensor(part, "cuda:0")
        assert not np.shares_memory(found.numpy(), part)
        np.testing.assert_array_equal(found.numpy(), part)
    del images, part, memory
    assert not runtime.registered


def test_where_memory_cannot_be_page_locked_batches_are_copied(modules, monkeypatch):
    ops, device = modules
    use_runtime(monkeypatch, device, Runtime(code=801))
    said = []
    monkeypatch.setattr(device.torch, "zeros", lambda *shape, device: said.append(device))
    monkeypatch.setattr(ops, "LARGE_COPY", 0)
    memory = np.arange(192, dtype=np.uint8)
    device.page_lock(memory, "cuda:0")
    assert said == ["cuda:0"]  # a kernel, which takes the error that CUDA keeps
    assert not np.shares_memory(ops.tensor(memory, "cuda:0").numpy(), memory)


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
    assert on_host.numpy().dtype == array.dtype.newbyteorder("=")
