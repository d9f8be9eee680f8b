# --8<-- [start:page]
# Runs on oneflow.
# Numbers differ from run to run.
from duet import backend

backend.use()

import numpy as np
import oneflow

from duet.backend import nn, ops


def largest_error(layer, images):
    """Compare a layer in training with the definition of BatchNorm in float64."""
    exact = images.astype(np.float64)
    mean, variance = (
        take(exact, (0, 2, 3), keepdims=True) for take in (np.mean, np.var)
    )
    exact = (exact - mean) / np.sqrt(variance + 1e-5)
    return np.abs(ops.to_numpy(layer(ops.tensor(images))) - exact).max()


noise = np.random.default_rng(0).standard_normal((8, 4, 16, 16))
print("mean / std    oneflow's own      Duet's")
for mean in (0, 1, 10, 100):
    images = (noise + mean).astype(np.float32)
    layers = oneflow.nn.BatchNorm2d(4), nn.BatchNorm2d(4)
    print(
        f"{mean:10}",
        *(f"{largest_error(layer, images):15.0e}" for layer in layers),
    )
# --8<-- [end:page]
