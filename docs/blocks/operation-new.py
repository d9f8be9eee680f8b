# Runs on torch and oneflow.
from duet import backend

backend.use()

import numpy as np

from duet.backend import ops
from tests.conformance.judging import (
    SHAPES,
    Backend,
    assert_gradient,
    assert_values,
    uniform,
)


def softplus(x):
    """Return log(1 + e^x): the cross-entropy of a logit against 0, which is there."""
    return ops.bce_terms(x, x.detach() * 0.0)


def through_numpy(x):
    values = ops.to_numpy(x)
    return ops.tensor(np.asarray(reference(values), values.dtype))


def silu(x):
    return ops.silu(x)


def reference(x):
    return np.logaddexp(0, x)


def check(function):
    """What a check of tests/conformance asks: each shape and dtype, its extremes, its gradient."""
    b = Backend()
    for shape in SHAPES:
        for dtype in ("float32", "float64"):
            assert_values(b, function, reference, uniform(shape, dtype))
    for dtype in ("float32", "float64"):
        assert_values(
            b, function, reference, np.array([-1000, 0, 1000], dtype)
        )
    assert_gradient(b, function, reference, uniform((2, 3), low=-8, high=8))


for candidate in (softplus, through_numpy, silu):
    try:
        check(candidate)
        print(candidate.__name__, "passes")
    except AssertionError as error:
        print(
            candidate.__name__, "fails:", str(error).strip().splitlines()[0]
        )
