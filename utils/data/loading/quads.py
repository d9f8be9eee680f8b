"""Four images joined into one of twice the side, as --quad does.

Source: the public YOLOv5 recipe.
"""

from __future__ import annotations

import cv2
import numpy as np

from duet.utils.data.loading.batch import TargetMasks, Targets
from duet.utils.data.randomness import quad_generator

QUAD = 4  # images
ENLARGED_PART = 0.5  # fraction of the groups
# Positions of the four images in a tile, (right, down).
PLACES_XY = np.array([(0, 0), (0, 1), (1, 0), (1, 1)])


def draw_enlarged(seed: int, epoch: int, first_draws: np.ndarray) -> np.ndarray:
    """Draw which groups show only their first image, (G,) bool.

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
        targets: the targets of these images.
        enlarged: (G,) bool: the first image at twice its size, instead of a tile of all four.
        images: (G, 3, 2H, 2W) uint8, overwritten.
    """
    fours = singles.reshape(len(images), QUAD, *singles.shape[1:])
    height, width = singles.shape[2:]
    for four, alone, image in zip(fours, enlarged, images, strict=True):
        if alone:
            for channel, output in zip(four[0], image, strict=True):
                # Bilinear, rounded down as the public recipe is; exact in float32: sums of
                # products of bytes and sixteenths.
                output[:] = cv2.resize(channel.astype(np.float32), (2 * width, 2 * height))
            continue
        for single, (right, down) in zip(four, PLACES_XY.tolist(), strict=True):
            image[:, down * height :, right * width :][:, :height, :width] = single
    group, position = np.divmod(targets.image_index, QUAD)
    kept = ~enlarged[group] | (position == 0)
    targets, group, position = targets.take(kept), group[kept], position[kept]
    boxes = targets.boxes_cxcywh_norm
    tiled = ~enlarged[group]
    boxes[tiled, :2] += PLACES_XY[position[tiled]]
    boxes[tiled] /= 2
    masks = targets.masks
    if masks is not None:
        masks = _join_masks(masks, position, tiled)
    return Targets(group, targets.class_index, boxes, masks)


def _join_masks(masks: TargetMasks, position: np.ndarray, tiled: np.ndarray) -> TargetMasks:
    """Put each map at the place of its image, or enlarge it with it.

    Args:
        masks: masks of the T visible objects.
        position: (T,) of each one's image among its four.
        tiled: (T,) bool: the image is one of four.
    """
    seen, first, map_index = np.unique(masks.map_index, return_index=True, return_inverse=True)
    height, width = masks.maps.shape[1:]
    maps = np.zeros((len(seen), 2 * height, 2 * width), masks.maps.dtype)
    for joined, number, target in zip(maps, seen.tolist(), first.tolist(), strict=True):
        single = masks.maps[number]
        if tiled[target]:
            right, down = PLACES_XY[position[target]].tolist()
            joined[down * height :, right * width :][:height, :width] = single
        else:
            joined[:] = single.repeat(2, axis=0).repeat(2, axis=1)
    return TargetMasks(maps, map_index.reshape(-1), masks.value)
