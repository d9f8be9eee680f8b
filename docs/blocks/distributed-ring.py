# --8<-- [start:page]
# Runs without a framework.
import numpy as np


def ring_all_reduce(arrays):
    """Give each rank the sum of all arrays; return it, and the bytes that rank 0 has sent."""
    ranks, sent = len(arrays), 0
    arrays = [array.copy() for array in arrays]
    parts = [
        np.array_split(array, ranks) for array in arrays
    ]  # views: part p of rank r
    for step in range(2 * (ranks - 1)):
        messages = [
            parts[rank][(rank - step) % ranks].copy() for rank in range(ranks)
        ]
        for rank, message in enumerate(
            messages
        ):  # all of them travel at the same time
            mine = parts[(rank + 1) % ranks][(rank - step) % ranks]
            if step < ranks - 1:
                mine += message
            else:
                mine[:] = message
        sent += messages[0].nbytes
    return arrays, sent


for ranks in (2, 4, 8, 64):
    gradients = (
        np.random.default_rng(0)
        .integers(-9, 10, (ranks, 6400))
        .astype(np.float32)
    )
    summed, sent = ring_all_reduce(gradients)
    assert all((array == gradients.sum(0)).all() for array in summed)
    print(
        f"{ranks:2} ranks: {2 * (ranks - 1):3} messages, "
        f"{sent / gradients[0].nbytes:.4f} times the array"
    )
# --8<-- [end:page]
