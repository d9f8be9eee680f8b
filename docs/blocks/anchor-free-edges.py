# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
import numpy as np

from duet.backend import ops
from duet.models.heads.distribution.rows import BINS, distances

# The logits of one edge: most probable are 2 and 3 cells from the cell's centre.
logits = np.zeros((1, 4 * BINS), np.float32)
logits[0, 2:4] = 7.0, 6.0
shares = np.exp(logits[0, :BINS]) / np.exp(logits[0, :BINS]).sum()
print(
    "shares of 0 to 5 cells:",
    " ".join(f"{share:.3f}" for share in shares[:6]),
)
print(
    f"the edge is {ops.to_numpy(distances(ops.tensor(logits)))[0, 0]:.2f} cells away"
)

# Of an edge 2.3 cells away, the loss wants 2 with a share of 0.7 and 3 with one of 0.3.
wanted = np.maximum(0, 1 - np.abs(np.arange(BINS) - 2.3))
print(
    "wanted:",
    {
        cells: round(float(share), 2)
        for cells, share in enumerate(wanted)
        if share
    },
)
print(f"cross-entropy: {-(np.log(shares) * wanted).sum():.3f}")
# --8<-- [end:page]
