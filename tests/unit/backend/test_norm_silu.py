"""How many maps PyTorch keeps of a BatchNorm and its SiLU until the backward pass."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import backend
from backend import amp, autograd, fused, nn

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="OneFlow keeps two maps, always")


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


def test_statistics_of_all_ranks_take_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    norm, seen = layer(), []
    nn.synchronize_batch_norm(norm)
    monkeypatch.setattr(type(norm), "forward", lambda norm, x: seen.append(norm.over_ranks) or x)
    input_is_kept(norm)
    assert seen == [True]


def test_bfloat16_maps_keep_their_eight_bits_of_input() -> None:
    convolution, norm, kept = nn.Conv2d(4, 4, 1, bias=False), layer(), []
    with amp.autocast("cpu", "bfloat16"):
        x = convolution(autograd.variable(np.ones((2, 4, 3, 3), "float32")))
        kept.append(weakref.ref(x))
        y = fused.batch_norm_silu(norm, x)
    del x
    assert kept[0]() is not None and y.requires_grad
