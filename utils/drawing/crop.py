"""What a box shows, cut out of its image.

Before: `utils/results/result.py`. After: files, a caller.
"""

from __future__ import annotations

import numpy as np

from utils.boxes import clip_boxes, cxcywh_to_xyxy, xyxy_to_cxcywh


def crop_box(
    image: np.ndarray, box_xyxy: np.ndarray, gain: float, pad: float, square: bool
) -> np.ndarray:
    """Return a copy of the part of an image (H, W, 3) in a box and a margin around it.

    Args:
        box_xyxy: (4,), pixels; it may reach beyond the image, what is returned does not.
        gain: by which the sides of the box are multiplied.
        pad: pixels that are added to each side afterwards, half of them at either end.
        square: make both sides of the box as long as its longer one before.

    Source: `results.save_crop` of the public YOLOv5, by what it writes.
    """
    box_cxcywh = xyxy_to_cxcywh(np.asarray(box_xyxy, np.float64))
    if square:
        box_cxcywh[2:] = box_cxcywh[2:].max()
    box_cxcywh[2:] = box_cxcywh[2:] * gain + pad
    size = image.shape[0], image.shape[1]
    left, top, right, bottom = clip_boxes(cxcywh_to_xyxy(box_cxcywh), size).astype(int).tolist()
    return image[top:bottom, left:right].copy()
