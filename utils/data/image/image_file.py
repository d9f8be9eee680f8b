"""Write images in the format given by the file name."""

from pathlib import Path

import cv2
import numpy as np

from duet.utils.errors import UserError
from duet.utils.files.atomic import atomic_file

# The longest side in pixels by suffix.
_ANY_SIDE = 1 << 31
LONGEST_SIDES = dict.fromkeys((".bmp", ".png", ".tif", ".tiff"), _ANY_SIDE)
LONGEST_SIDES |= {".jpeg": 65500, ".jpg": 65500, ".webp": 16383}
# WebP would be lossless otherwise, and take seconds for a large image.
_OPTIONS = {".webp": [cv2.IMWRITE_WEBP_QUALITY, 95]}


def suffix_that_holds(suffix: str, image: np.ndarray) -> str:
    """Return the suffix if an image (H, W, 3) can be written in that kind; else .jpg or .png."""
    return next(kind for kind in (suffix, ".jpg", ".png") if _holds(kind, image))


def _holds(suffix: str, image: np.ndarray) -> bool:
    return max(image.shape[:2]) <= LONGEST_SIDES.get(suffix.lower(), 0)


def save_image(path: Path, image: np.ndarray) -> None:
    """Write an image (H, W, 3) uint8 RGB in the format of the path's suffix.

    Raises:
        UserError: the format holds no image of this size.
        OSError: the file cannot be written; the error names it.
    """
    if not _holds(path.suffix, image):
        height, width = image.shape[:2]
        raise UserError(
            f"{path}: an image of {width}x{height} px cannot be saved; its name must end in "
            f"{', '.join(sorted(LONGEST_SIDES))}, and .jpg holds up to 65500 px per side, "
            ".webp 16383"
        )
    with atomic_file(path, synced=False) as file:
        file.write(encode_image(path.suffix, image))


def encode_image(suffix: str, image: np.ndarray) -> bytes:
    """Return the bytes of a file with an image (H, W, 3) uint8 RGB that the kind holds."""
    kind = suffix.lower()
    pixels = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    done, encoded = cv2.imencode(kind, pixels, _OPTIONS.get(kind, []))
    assert done, f"{image.shape} as {kind}"
    return encoded.tobytes()
