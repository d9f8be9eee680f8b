"""The cross-entropy of objectness and class: plain or, with `fl_gamma` above 0, focal.

Before: `loss.py`, with logits and what they should have been. Source of the focal loss: Lin et al.
2017, arXiv:1708.02002; soft targets take the mean of its two cases, by the public YOLOv5's stored
results.
"""

from __future__ import annotations

from backend import ops
from backend.contract import Tensor

FOCAL_ALPHA = 0.25  # of the paper: the weight of positives; negatives have the rest
FOCAL_EPS = 1e-12  # added to what a prediction misses: a power below 1 has no gradient at 0


def cross_entropy(
    logits: Tensor, truth: Tensor, positive_weight: float, focal_gamma: float
) -> Tensor:
    """Return the mean, 0-d.

    Args:
        truth: of the logits' shape, from 0 to 1; a constant.
        positive_weight: factor of the term of truth.
        focal_gamma: 0 for the plain one; above, how much less counts what is predicted well.
    """
    if focal_gamma == 0:
        return ops.bce_with_logits(logits, truth, positive_weight)
    scores = ops.sigmoid(logits)
    missed = truth * (1.0 - scores) + (1.0 - truth) * scores
    alpha = truth * FOCAL_ALPHA + (1.0 - truth) * (1.0 - FOCAL_ALPHA)
    terms = ops.bce_terms(logits, truth, positive_weight)
    return ops.mean(terms * alpha * (missed + FOCAL_EPS) ** focal_gamma)
