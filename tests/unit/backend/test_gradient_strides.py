"""PyTorch's warning of gradients laid out otherwise than their weights: kept where it says much."""

import importlib
import warnings

import pytest

import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="only PyTorch warns so")

# As PyTorch 2.13 prints it of the last convolution of a model in channels-last.
WARNING = """Grad strides do not match bucket view strides. This may indicate grad was not created \
according to the gradient layout contract, or that the param's strides changed since DDP was \
constructed.  This is not an error, but may impair performance.
grad.sizes() = [30, 128, {side}, {side}], strides() = [128, 1, 128, 128]
bucket_view.sizes() = [30, 128, {side}, {side}], strides() = [128, 1, 1, 1]"""


@pytest.mark.parametrize(("side", "shown"), [(1, 0), (3, 1)])
def test_strides_of_one_element_are_not_warned_of(side, shown, monkeypatch):
    dist = importlib.import_module("backend.torch.dist")
    process = dist.this_process()
    monkeypatch.setattr(dist, "this_process", lambda: process._replace(world_size=2))
    monkeypatch.setattr(dist, "DistributedDataParallel", lambda module, **options: module)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.data_parallel(backend.nn.Conv2d(1, 1, 1))
        warnings.warn(WARNING.format(side=side), UserWarning, stacklevel=1)
    assert len(caught) == shown
