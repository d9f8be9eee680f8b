# Runs on torch and oneflow.
from duet import backend

name = (
    backend.use()
)  # "torch" or "oneflow": the one that --backend or YOLO_BACKEND names
import numpy as np

from duet.backend import ops

print("what is imported  ", type(ops).__name__)
print(
    "what is called    ",
    ops.clamp.__module__.replace(name, "NAME"),
    ops.clamp.__qualname__,
)
print(
    "what it works on  ",
    type(ops.tensor(np.zeros(2))).__module__.replace(name, "NAME"),
)

x = ops.tensor(np.array([-1, 0.5, 2, np.nan], np.float32))
print("a number kept     ", ops.dtype_of(ops.where(x > 0.0, x, 0.0)))
print("mean of nothing   ", ops.to_numpy(ops.mean(x[:0])))
zero = ops.tensor(np.zeros(4, np.float32))
print("NaN stays         ", ops.to_numpy(ops.maximum(x, zero)))

for wrong in (
    lambda: ops.matmul(x, x),
    lambda: ops.no_such_name,
    lambda: backend.use("onnx"),
):
    try:
        wrong()
    except (ValueError, AttributeError, backend.BackendError) as error:
        print(f"{type(error).__name__}: {error}".replace(repr(name), "NAME"))
