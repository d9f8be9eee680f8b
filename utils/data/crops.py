"""A grid of images with boxes on a page, each cut out and made small, as data URIs."""

import base64
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import cv2
import numpy as np

from duet.utils.colours import RGB
from duet.utils.data.sources.samples import Sample, decode
from duet.utils.errors import DatasetError
from duet.utils.files.html import Html, text
from duet.utils.geometry.boxes import clip_boxes

LONG_SIDE = 640  # pixels, when enlarged; a thumbnail has about 160
QUALITY = 78  # WebP quality, 0 to 100
CONTEXT = 1.0  # margin around an object, as a fraction of its long side
MIN_VIEW = 64  # image pixels; a smaller view does not show where an object lies
LINE = 4  # pixels of a crop


class Crop(NamedTuple):
    """An image on a page, or a part of it, with words below."""

    image: np.ndarray | None  # (H, W, 3) uint8 RGB; None if it cannot be shown
    title: str
    detail: str
    boxes: Sequence[tuple[Sequence[float], RGB]] = ()  # xyxy in pixels of the image; last on top
    focus: Sequence[float] | None = (
        None  # xyxy of the part to show with its surroundings; None: all
    )


def shown_image(sample: Sample) -> np.ndarray | None:
    """Return the image of a sample, (H, W, 3) uint8 RGB; None if it can no longer be read."""
    try:
        return decode(sample)[..., ::-1]
    except DatasetError:
        return None


def crop_grid(crops: Iterable[Crop]) -> Html:
    """Return crops side by side, as many as the width allows; "" of none."""
    shown = "".join(map(_figure, crops))
    return Html(f'<div class="crops">{shown}</div>' if shown else "")


def _figure(crop: Crop) -> str:
    image = '<div class="none">no image</div>'
    if crop.image is not None:
        content = base64.b64encode(_encoded(crop.image, crop)).decode()
        picture = f'<img alt="{text(crop.title)}" src="data:image/webp;base64,{content}">'
        image = f'<label><input type="checkbox" aria-label="enlarge">{picture}</label>'
    return (
        f'<figure class="crop">{image}<figcaption><b>{text(crop.title)}</b>'
        f"<span>{text(crop.detail)}</span></figcaption></figure>"
    )


def _encoded(image: np.ndarray, crop: Crop) -> bytes:
    size = image.shape[0], image.shape[1]
    left, top, right, bottom = (0, 0, size[1], size[0]) if crop.focus is None else around(
        crop.focus, size
    )  # fmt: skip
    part = image[top:bottom, left:right]
    scale = LONG_SIDE / max(part.shape[:2])
    size_wh = max(round(part.shape[1] * scale), 1), max(round(part.shape[0] * scale), 1)
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    drawn = cv2.resize(part[..., ::-1], size_wh, interpolation=method)
    for box, colour in crop.boxes:
        corners = clip_boxes(np.nan_to_num(np.array([box], np.float64)), size)[0]
        ends = np.rint((corners - [left, top, left, top]) * scale).astype(int).tolist()
        cv2.rectangle(drawn, ends[:2], ends[2:], colour[::-1], LINE)
    return cv2.imencode(".webp", drawn, [cv2.IMWRITE_WEBP_QUALITY, QUALITY])[1].tobytes()


def around(box_xyxy: Sequence[float], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of a square around an object, moved into the image.

    Args:
        box_xyxy: pixels, clipped to the image.
        size: (height, width) of the image; the square is no larger.
    """
    left, top, right, bottom = clip_boxes(np.nan_to_num(np.array([box_xyxy], np.float64)), size)[0]
    side = max((1 + 2 * CONTEXT) * max(right - left, bottom - top), MIN_VIEW)
    view = []
    for middle, length in (((left + right) / 2, size[1]), ((top + bottom) / 2, size[0])):
        start = int(min(max(middle - side / 2, 0), max(length - side, 0)))
        view.append((start, min(start + int(np.ceil(side)), length)))
    return view[0][0], view[1][0], view[0][1], view[1][1]
