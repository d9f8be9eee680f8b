"""Four images joined into one of twice the side, as --quad does.

Before: `batches.py::fill_images`. After: the `Batch`. Source: the public YOLOv5 recipe.
"""

from __future__ import annotations

import cv2
import numpy as np

from utils.data.loading.batch import Targets
from utils.data.randomness import quad_generator

QUAD = 4  # images
ENLARGED_PART = 0.5  # of the groups
# Where the four images of a tile lie, in (right, down).
PLACES_XY = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])


def draw_enlarged(seed: int, epoch: int, first_draws: np.ndarray) -> np.ndarray:
    """Draw which groups show their first image alone, (G,) bool.

    Args:
        first_draws: (G,) the number of the first image of each group, as `order.draws_of` has it.
    """
    draws = [quad_generator(seed, epoch, index).random() for index in first_draws.tolist()]
    return np.array(draws) < ENLARGED_PART


def join_quads(
    singles: np.ndarray, targets: Targets, enlarged: np.ndarray, images: np.ndarray
) -> Targets:
    """Join each four images of a batch into one, and return the targets of these.

    Args:
        singles: (4G, 3, H, W) uint8.
        targets: of these.
        enlarged: (G,) bool: the first image at twice its size, instead of a tile of all four.
        images: (G, 3, 2H, 2W) uint8, overwritten.
    """
    fours = singles.reshape(len(images), QUAD, *singles.shape[1:])
    for four, alone, image in zip(fours, enlarged, images, strict=True):
        if alone:
            _enlarge(four[0], image)
        else:
            _tile(four, image)
    group, position = np.divmod(targets.image_index, QUAD)
    kept = ~enlarged[group] | (position == 0)
    group, position = group[kept], position[kept]
    boxes = targets.boxes_cxcywh_norm[kept]
    tiled = ~enlarged[group]
    boxes[tiled, :2] += PLACES_XY[position[tiled]]
    boxes[tiled] /= 2
    return Targets(group, targets.class_index[kept], boxes)


def _enlarge(image: np.ndarray, output: np.ndarray) -> None:
    """Double an image (3, H, W) by bilinear interpolation, rounded down as the public recipe is."""
    size_wh = output.shape[2], output.shape[1]
    for channel, enlarged in zip(image, output, strict=True):
        # Exact in float32: sums of products of bytes and sixteenths.
        enlarged[:] = cv2.resize(channel.astype(np.float32), size_wh)


def _tile(four: np.ndarray, output: np.ndarray) -> None:
    height, width = four.shape[2:]
    for image, (right, down) in zip(four, PLACES_XY.tolist(), strict=True):
        top, left = down * height, right * width
        output[:, top : top + height, left : left + width] = image
