"""Upsampling under a GPU's autocast, which interpolates in float32, as one on a CPU does not."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import backend
from backend import amp, ops

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow has no autocast")


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_map_keeps_its_dtype_and_can_be_joined_with_others(monkeypatch, channels_last):
    module = importlib.import_module("backend.torch.ops")
    interpolate = module.functional.interpolate

    def as_on_a_gpu(x, **options):
        full = module.torch.is_autocast_enabled(x.device.type)
        return interpolate(x.float() if full else x, **options)

    monkeypatch.setattr(module.functional, "interpolate", as_on_a_gpu)
    numbers = np.random.default_rng(0).normal(size=(1, 2, 40, 40)).astype(np.float32)
    with amp.autocast("cpu", "bfloat16"):
        x = ops.tensor(numbers).to(module.torch.bfloat16)
        x = ops.channels_last(x) if channels_last else x
        doubled = ops.upsample_nearest_2x(x)
        joined = ops.cat([doubled, doubled], dim=1)
    assert ops.dtype_of(doubled) == ops.dtype_of(joined) == "bfloat16"
    assert (ops.channels_last(doubled).stride() == doubled.stride()) is channels_last
    rounded = ops.to_numpy(ops.cast(x, "float32"))
    wanted = rounded.repeat(2, axis=2).repeat(2, axis=3)
    np.testing.assert_array_equal(ops.to_numpy(ops.cast(doubled, "float32")), wanted)
