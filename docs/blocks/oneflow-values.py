# --8<-- [start:page]
# Runs on oneflow.
from duet import backend

backend.use()

import numpy as np
import oneflow

from duet.backend import ops

x, nan = oneflow.tensor([1.0, 2.0]), oneflow.tensor([float("nan"), 1.0])
bright = oneflow.full((1,), 200, dtype=oneflow.uint8)
print(
    "[1, 2] * 1.5:     ",
    (oneflow.tensor([1, 2]) * oneflow.tensor(1.5)).tolist(),
)
print(
    "-3 % 2, -3 // 2:  ",
    (oneflow.tensor([-3]) % 2).item(),
    (oneflow.tensor([-3]) // 2).item(),
)
print("where(c, x, 0.0): ", oneflow.where(x > 1, x, 0.0).dtype)
print("mean of nothing:  ", oneflow.zeros(0).mean().item())
print("minimum(nan, 1):  ", oneflow.minimum(nan[:1], x[:1]).item())
print("minimum(1, nan):  ", oneflow.minimum(x[:1], nan[:1]).item())
print(
    "6 & 3:            ", (oneflow.tensor([6]) & oneflow.tensor([3])).item()
)
print("uint8 200 + 200:  ", (bright + bright).item())

print("with backend.ops:")
print("where(c, x, 0.0): ", ops.dtype_of(ops.where(x > 1, x, 0.0)))
print(
    "mean of nothing:  ",
    ops.to_numpy(ops.mean(ops.tensor(np.zeros(0, np.float32)))),
)
print("minimum(nan, 1):  ", ops.to_numpy(ops.minimum(nan[:1], x[:1]))[0])
# --8<-- [end:page]
