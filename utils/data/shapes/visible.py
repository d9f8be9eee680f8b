"""The outlines of what is seen of the objects of a scene, as a person would draw them.

Before: `scene.py`. After: `dataset.py`, which writes them to label files. A hidden part is left
out; where that cuts an object into pieces, all of them are one outline. A hole, which an object
makes that lies within another one, is not drawn.
"""

from __future__ import annotations

import cv2
import numpy as np

from utils.data.shapes.scene import Scene
from utils.polygons import join_parts

_FINER = 8  # times as many pixels a side: an outline is right to an eighth of a pixel
# How far, in these pixels, a drawn object reaches beyond the points that OpenCV was given: pixels
# of which it covers half or more, measured at 300 objects.
_BEYOND = 4
_MIN_PIECE = 4 * _FINER**2  # of these pixels: four whole ones; nobody draws less


def visible_outlines(scene: Scene) -> list[np.ndarray]:
    """Return the outline (K, 2) float64 of each object, pixels of the image."""
    size_wh = np.array(scene.image.shape[1::-1])
    found = []
    for index, outline in enumerate(scene.outlines):
        first = (np.floor(outline.min(axis=0)) - 1).clip(0)
        end = np.minimum(np.ceil(outline.max(axis=0)) + 2, size_wh)
        width, height = (_FINER * (end - first)).astype(int).tolist()
        mask = np.zeros((height, width), np.uint8)
        _draw(mask, outline - first, 1)
        for cover in scene.outlines[index + 1 :]:
            _draw(mask, cover - first, 0)
        found.append(first + (_border(mask) + 0.5) / _FINER)
    return found


def _draw(mask: np.ndarray, outline: np.ndarray, shade: int) -> None:
    # The centre of a pixel is at a whole number for OpenCV, and half a pixel on in a label.
    corners = np.rint((outline + 0.5) * _FINER - 0.5).astype(np.int32)
    cv2.fillPoly(mask, [corners], (shade,))
    cv2.polylines(mask, [corners], True, (shade,), 2 * _BEYOND)


def _border(mask: np.ndarray) -> np.ndarray:
    """Return the outer border (K, 2) of all pieces, without points that lie within a pixel."""
    borders, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    areas = [cv2.contourArea(border) for border in borders]
    pieces = [
        cv2.approxPolyDP(border, 1.0, True).reshape(-1, 2).astype(np.float64)
        for border, area in zip(borders, areas, strict=True)
        if area >= min(_MIN_PIECE, max(areas))  # all there is of a tiny object
    ]
    return join_parts(pieces)
