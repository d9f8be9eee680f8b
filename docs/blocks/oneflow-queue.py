# --8<-- [start:page]
# Runs on oneflow.
# Numbers differ from run to run.
import time

from duet import backend

backend.use()

import numpy as np
import oneflow

from duet.backend import device, ops

layer = oneflow.nn.Conv2d(32, 32, 3, padding=1)
images = oneflow.ones(4, 32, 64, 64)
device.synchronize("cpu")
start = time.perf_counter()
outputs = [layer(images) for _ in range(5)]
queued = time.perf_counter() - start
device.synchronize("cpu")
print(f"five convolutions: queued after {1000 * queued:.1f} ms")
print(
    f"                   done after {1000 * (time.perf_counter() - start):.0f} ms"
)


def wrong_sums(take):
    """Add 1 to ones, and reuse their memory at once: how many of 20 sums are not 2?"""
    wrong = 0
    for _ in range(20):
        memory = np.ones(500_000, np.float32)
        summed = take(memory) + 1.0
        memory[:] = 5
        wrong += bool((ops.to_numpy(summed) != 2).any())
    return wrong


print(
    f"oneflow.from_numpy: {wrong_sums(oneflow.from_numpy)} of 20 sums are wrong"
)
print(f"ops.tensor:         {wrong_sums(ops.tensor)} of 20 sums are wrong")
# --8<-- [end:page]
