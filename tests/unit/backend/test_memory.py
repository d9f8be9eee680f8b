"""What is kept in memory: tensors of a model, and in PyTorch gradients and maps, in which order."""

import gc
import importlib
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

from duet import backend
from duet.backend import autograd, fused, nn
from duet.backend.updates import OfMemory, float_tensors


def test_memo_keeps_no_tensor_of_a_deleted_model():
    class Value:
        def is_floating_point(self):
            return True

    class Module:
        _buffers, _non_persistent_buffers_set = {}, frozenset()

        def __init__(self):
            self._parameters = {"weight": Value()}

        def modules(self):
            return [self]

    kept = OfMemory(lambda averages, values: (averages, values))
    average, model = Module(), Module()
    averages, values = float_tensors(average)(), float_tensors(model)()
    assert kept(averages, values) is kept(averages, values)
    gone = [weakref.ref(x) for x in (*averages, *values)]
    del averages, values, average, model
    gc.collect()
    assert [x() for x in gone] == [None, None]


def test_memo_keeps_nothing_of_a_failed_computation():
    kept = OfMemory(lambda averages, values: averages[0] / values[0])
    assert kept([2], [1]) == 2
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            kept([2], [0])


of_torch = pytest.mark.skipif(backend.use() != "torch", reason="about PyTorch's memory")

# As PyTorch 2.13 prints it of the last convolution of a model in channels-last.
WARNING = """Grad strides do not match bucket view strides. This may indicate grad was not created \
according to the gradient layout contract, or that the param's strides changed since DDP was \
constructed.  This is not an error, but may impair performance.
grad.sizes() = [30, 128, {side}, {side}], strides() = [128, 1, 128, 128]
bucket_view.sizes() = [30, 128, {side}, {side}], strides() = [128, 1, 1, 1]"""


@of_torch
@pytest.mark.parametrize(("side", "shown"), [(1, 0), (3, 1)])
def test_ddp_stride_warning_is_silenced_for_size_one_sides(side, shown, monkeypatch):
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


@of_torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fused_batch_norm_silu_does_not_keep_its_input(dtype: str) -> None:
    assert not input_is_kept(layer(dtype), dtype)
    assert not input_is_kept(layer(dtype, weight=-0.1, bias=9.0), dtype)
