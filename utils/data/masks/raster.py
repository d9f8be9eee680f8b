"""Outlines -> the pixels of a batch's objects, as the loss of a mask head takes them.

Both encodings agree bit for bit with the reference arrays: the corners of an outline are cut down
to whole pixels, its border belongs to it, and a map is made smaller by bilinear interpolation.
"""

import cv2
import numpy as np

from duet.utils.data.masks.runs import Window
from duet.utils.geometry.boxes import Polygons

MAX_SMALL = 255  # objects whose numbers fit into a byte


def index_map(
    polygons: Polygons, size: tuple[int, int], ratio: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw all objects of an image into one map, the smaller ones over the larger ones.

    Args:
        polygons: M outlines, pixels of an image (height, width); without points, no pixel.
        ratio: image side / map side.

    Returns:
        The map (h, w), uint8 or int64 for more than 255 objects, 0 for background; and (M,) int64,
        the value of each object in it, from 1 up by decreasing area in the map.
    """
    num_objects = len(polygons)
    areas = np.zeros(num_objects, np.int64)
    # One object at a time: hundreds of large ones would not lie in memory together.
    owner = np.zeros(_reduced(size, ratio), np.int32)  # from 1 up, in the order of the objects
    smallest = np.full(owner.shape, owner.size, np.int64)  # area of the owner
    for index in range(num_objects):
        part = _draw(polygons.outline(index), size, ratio)
        areas[index] = part.pixels.sum(dtype=np.int64)
        is_on_top = (part.pixels > 0) & (areas[index] <= part.of(smallest))
        part.of(owner)[is_on_top] = index + 1
        part.of(smallest)[is_on_top] = areas[index]
    value = np.empty(num_objects, np.int64)
    value[np.argsort(-areas, kind="stable")] = np.arange(1, num_objects + 1)
    dtype = np.uint8 if num_objects <= MAX_SMALL else np.int64
    return np.append(0, value).astype(dtype)[owner], value


def separate(polygons: Polygons, size: tuple[int, int], ratio: int) -> np.ndarray:
    """Draw each object into its own map, (M, h, w) uint8: 1 in the object; arguments as above."""
    masks = np.zeros((len(polygons), *_reduced(size, ratio)), np.uint8)
    for index, mask in enumerate(masks):
        part = _draw(polygons.outline(index), size, ratio)
        part.of(mask)[:] = part.pixels
    return masks


def _reduced(size: tuple[int, int], ratio: int) -> tuple[int, int]:
    return size[0] // ratio, size[1] // ratio


def _draw(outline: np.ndarray, size: tuple[int, int], ratio: int) -> Window:
    """Draw an object and reduce it, only in the part of the map that it can reach, uint8."""
    # float32 like stored labels, so that a corner on the edge of a pixel stays there.
    corners = outline.astype(np.float32).astype(np.int32)
    side_wh = np.array(size[::-1])
    first, end = np.zeros(2, np.int64), side_wh
    if not len(corners):
        end = first
    elif not (side_wh % ratio).any():  # else no part has pixels that begin where the image's do
        first = corners.min(axis=0).clip(0, side_wh - 1) // ratio * ratio
        end = (corners.max(axis=0).clip(0, side_wh - 1) // ratio + 1) * ratio
    whole = np.zeros((end - first)[::-1], np.uint8)
    if len(corners):
        cv2.fillPoly(whole, [corners], (1,), offset=(-first).tolist())
    width, height = ((end - first) // ratio).tolist()
    left, top = (first // ratio).tolist()
    if min(height, width) < 1:
        return Window(top, left, np.zeros((height, width), np.uint8))
    return Window(top, left, cv2.resize(whole, (width, height), interpolation=cv2.INTER_LINEAR))
