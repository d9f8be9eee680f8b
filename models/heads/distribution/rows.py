"""Rows of raw maps: per cell 64 edge logits, then the classes.

Source: Li et al. 2020, Generalized Focal Loss, arXiv:2006.04388, section 3.2.
"""

from collections.abc import Sequence

from duet.backend import ops
from duet.backend.contract import Tensor

BINS = 16  # distances 0, 1, ... 15 cells
EDGES = 4  # left, top, right, bottom
EDGE_LOGITS = EDGES * BINS  # in each row, before the classes


def rows_of_maps(raw: Sequence[Tensor]) -> Tensor:
    """Convert raw maps (B, 64 + C, H, W) to (B, N, 64 + C), levels concatenated, row-major."""
    rows = []
    for x in raw:
        batch, outputs, height, width = x.shape
        # This order needs no copy for channels-last maps.
        rows.append(x.permute(0, 2, 3, 1).reshape(batch, height * width, outputs))
    return ops.cat(rows, dim=1)


def distances(edge_logits: Tensor) -> Tensor:
    """Map (..., 64) to the means of the distributions, (..., 4), 0 to 15 cells."""
    shape = tuple(edge_logits.shape[:-1])
    bins = ops.arange(BINS, ops.dtype_of(edge_logits), ops.device_of(edge_logits))
    probabilities = ops.softmax(edge_logits.reshape(-1, BINS))
    means = ops.matmul(probabilities, bins.reshape(BINS, 1))
    return means.reshape(*shape, EDGES)


def boxes_of_rows(edge_logits: Tensor, centres: Tensor) -> Tensor:
    """Convert logits (..., 64) and cell centres (..., 2) to boxes (..., 4) cxcywh in cells."""
    found = distances(edge_logits)
    low, high = found[..., :2], found[..., 2:]
    return ops.cat([centres + (high - low) / 2, low + high], dim=found.ndim - 1)
