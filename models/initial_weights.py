"""First weights of a detector, drawn in NumPy: a function of the seed and the tensor's place."""

from __future__ import annotations

import math

import numpy as np


def draw_weights(state: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Draw new values for convolutions and products among the named arrays; keep the rest.

    Weights and biases are uniform in +-1 / sqrt(fan-in), what both frameworks draw by default.
    BatchNorm starts as the framework made it: weight 1, bias 0, mean 0, variance 1.
    """
    bounds = {
        name.removesuffix("weight"): 1 / math.sqrt(np.prod(array.shape[1:]))
        for name, array in state.items()
        if name.endswith("weight") and array.ndim > 1
    }
    drawn = dict(state)
    for index, (name, array) in enumerate(state.items()):
        bound = bounds.get(name.removesuffix("weight").removesuffix("bias"))
        if bound is not None:
            generator = np.random.Generator(
                np.random.Philox(key=np.array([seed, index], np.uint64))
            )
            drawn[name] = generator.uniform(-bound, bound, array.shape).astype(np.float32)
    return drawn
