"""How much a model computes, counted from its plans: nothing is made or run."""

from __future__ import annotations

from collections.abc import Sequence

from models.registry import ONCE, Cost, LayerPlan

# By the tool that the public tables were made with, in multiply-adds.
NORMALIZATION = 4  # a value that BatchNorm normalizes
SOFTMAX = 3  # a value, less one a row


def count_gflops(plans: Sequence[LayerPlan], image_size: int = 640, folded: bool = False) -> float:
    """Return 10^9 floating-point operations for a square image, two for each multiply-add.

    As the public tables count: convolutions, products and softmaxes, and BatchNorm unless it is
    folded into the convolutions; neither activations nor what the head decodes.
    """
    parts = [
        (1 if stride == ONCE else (image_size / stride) ** 2, cost)
        for plan in plans
        for stride, cost in plan.costs
    ]
    return 2e-9 * sum(_multiply_adds(cells, cost, folded) for cells, cost in parts)


def _multiply_adds(cells: float, cost: Cost, folded: bool) -> float:
    """Return those of a block for a map of so many cells."""
    normalization = 0 if folded else NORMALIZATION * cost.normalized
    attention = cost.attended * cells + cost.heads * (SOFTMAX * cells - 1)
    return cells * (cost.weights + normalization + attention)
