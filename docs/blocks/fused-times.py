# Runs on torch and oneflow.
# Numbers differ from run to run.
# --8<-- [start:launch]
import time

import numpy as np

from duet import backend

backend.use()
from duet.backend import ops


def microseconds(work, times=200):
    """The median time of a call."""
    spent = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        spent.append(time.perf_counter() - start)
    return 1e6 * np.median(spent)


print("numbers     one addition")
for size in (1, 100, 10_000, 1_000_000):
    x = ops.tensor(np.ones(size, np.float32))
    print(f"{size:9,}{microseconds(lambda x=x: x + x):9.1f} us")
# --8<-- [end:launch]
# --8<-- [start:together]
from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml

model = Detector(read_model_yaml("models/yolov5n.yaml"))
model.initialize(seed=0)
weights = [x.astype(np.float32) for x in nn.state_arrays(model).values()]
average = [np.zeros_like(x) for x in weights]


def one_by_one(decay=0.9):
    for mean, x in zip(average, weights, strict=True):
        mean *= decay
        mean += (1 - decay) * x


packed = np.concatenate([x.ravel() for x in weights])
packed_average = np.zeros_like(packed)


def together(decay=0.9):
    packed_average[:] *= decay
    packed_average[:] += (1 - decay) * packed


one_by_one(), together()
whole = np.concatenate([x.ravel() for x in average])
print("bit for bit equal:", np.array_equal(whole, packed_average))
print(f"{len(weights)} arrays of {packed.size:,} numbers in all, and 1 array")
print(f"one by one {microseconds(one_by_one, 20):6.0f} us")
print(f"together   {microseconds(together, 20):6.0f} us")
# --8<-- [end:together]
