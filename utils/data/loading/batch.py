"""A batch: images as one array, targets as one table.

Before: `batches.py`. After: the training step, and validation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from utils.data.image.letterbox import Letterbox


class Targets(NamedTuple):
    """The objects of a batch, image by image."""

    image_index: np.ndarray  # (T,) int64, position in the batch, ascending
    class_index: np.ndarray  # (T,) int64
    boxes_cxcywh_norm: np.ndarray  # (T, 4) float32, fractions of the batch's images


class Batch(NamedTuple):
    """What a loader yields: a rank's shard of a batch, which may be empty."""

    images: np.ndarray  # (B, 3, H, W) uint8, RGB
    targets: Targets
    sample_indices: np.ndarray  # int64, of the samples in the images: (B,), with --quad (4B,)
    letterboxes: tuple[Letterbox, ...]  # how to map boxes back; empty in training
    global_indices: np.ndarray  # int64, the sample indices of the whole batch, over all ranks
