"""Copy-paste: objects of a mosaic, cut out along their polygons and pasted mirrored.

Source: Ghiasi et al. 2021, arXiv:2012.07177.
"""

from typing import NamedTuple

import cv2
import numpy as np

from duet.utils.data.image.decoding import Objects
from duet.utils.geometry.boxes import Polygons, covered_parts

MAX_COVERED = 0.3  # fraction of another object's box, as in the public recipe
_SUBPIXEL_BITS = 4  # for the corners given to OpenCV


class CopyPaste(NamedTuple):
    """The random draws for a sample's copies."""

    share: float = 0.0  # fraction of the objects with a polygon
    key: int = 0  # seed of the order in which they are tried, at least 0


def why_nothing_is_pasted(share: float, has_mosaics: bool, has_polygons: bool) -> str:
    """Return why training pastes nothing; "" if it does paste, or is not asked to."""
    if not share:
        return ""
    if not has_mosaics:
        return "copies are pasted into mosaics only, and this run has none"
    if not has_polygons:
        return "no label of the training images is a polygon (class x1 y1 x2 y2 x3 y3 ...)"
    return ""


def choose_objects(drawn: CopyPaste, objects: Objects) -> np.ndarray:
    """Return the indices of the objects to copy, in the order in which they are tried.

    Objects without a polygon, or outside the canvas, are no candidates.
    """
    if objects.polygons is None:
        return np.zeros(0, np.int64)
    candidates = np.flatnonzero(objects.polygons.num_points)
    order = np.random.Generator(np.random.Philox(key=drawn.key)).random(len(candidates))
    number = round(drawn.share * len(candidates))
    return candidates[np.argsort(order, kind="stable")][:number]


def choose_copies(candidates: np.ndarray, objects: Objects, width: float) -> np.ndarray:
    """Return the candidates whose mirrored boxes hardly cover another object or copy.

    Args:
        candidates: indices of objects, in the order in which they are tried.
        objects: pixels of a canvas of this width.
    """
    taken, accepted = objects.boxes_xyxy, []
    copies = objects._replace(polygons=None).select(candidates).mirrored(0, width)
    for index, copy in zip(candidates.tolist(), copies.boxes_xyxy, strict=True):
        if (covered_parts(taken, copy[None]) < MAX_COVERED).all():
            accepted.append(index)
            taken = np.concatenate((taken, copy[None]))
    return np.array(accepted, np.int64)


def paste(image: np.ndarray, other: np.ndarray, polygons: Polygons) -> None:
    """Overwrite an image (H, W, 3) uint8 with another one within polygons in its pixels."""
    mask = np.zeros(image.shape[:2], np.uint8)
    for index in range(len(polygons)):
        # The centre of a pixel is at a whole number in OpenCV, and half a pixel on in a polygon.
        corners = np.rint((polygons.outline(index) - 0.5) * (1 << _SUBPIXEL_BITS)).astype(np.int32)
        if len(corners):
            cv2.fillPoly(mask, [corners], (255,), shift=_SUBPIXEL_BITS)
    cv2.copyTo(other, mask, image)
