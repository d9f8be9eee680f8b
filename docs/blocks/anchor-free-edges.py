# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
import numpy as np

from duet.backend import ops
from duet.models.heads.distribution.rows import BINS, distances

# Logits of one edge, most likely 2 or 3 cells from the cell's centre.
logits = np.zeros((1, 4 * BINS), np.float32)
logits[0, 2:4] = 7.0, 6.0
probabilities = np.exp(logits[0, :BINS]) / np.exp(logits[0, :BINS]).sum()
print(
    "probabilities of 0 to 5 cells:",
    " ".join(f"{p:.3f}" for p in probabilities[:6]),
)
print(
    f"the edge is {ops.to_numpy(distances(ops.tensor(logits)))[0, 0]:.2f} cells away"
)

# The target of an edge 2.3 cells away: 2 with probability 0.7 and 3 with 0.3.
target = np.maximum(0, 1 - np.abs(np.arange(BINS) - 2.3))
print(
    "target:",
    {cells: round(float(p), 2) for cells, p in enumerate(target) if p},
)
print(f"cross-entropy: {-(np.log(probabilities) * target).sum():.3f}")
# --8<-- [end:page]
