# --8<-- [start:page]
# Runs without a framework.
import numpy as np

losses = [
    np.full(30, 0.2),
    np.full(2, 1.0),
]  # of the positives of rank 0 and of rank 1
whole_batch = np.concatenate(losses).mean()
of_means = np.mean([x.mean() for x in losses])

positives = sum(len(x) for x in losses)  # summed over the ranks
weighed = [len(losses) * x.sum() / positives for x in losses]

print(f"one process:                      {whole_batch:.3f}")
print(f"average of the ranks' means:      {of_means:.3f}")
print(f"average of the weighed losses:    {np.mean(weighed):.3f}")
# --8<-- [end:page]
values = {
    "whole": f"{whole_batch:.3f}",
    "means": f"{of_means:.3f}",
    "positives": positives,
    "few": len(losses[1]),
}
