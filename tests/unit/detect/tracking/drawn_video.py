"""A video of two photographs: a person who walks in front of a chair that is moved."""

from contextlib import closing
from pathlib import Path

import cv2
import numpy as np

from duet.utils.detect.media.video import VideoWriter

WIDTH, HEIGHT, RATE, NUM_FRAMES = 256, 160, 25, 24


def write_drawn_video(path: Path, photographs: Path) -> None:
    """Write the video from the images of coco256 in a folder."""
    person = _photograph(photographs, "000000004395", (104, 70))
    chair = _photograph(photographs, "000000004495", (96, 84), (slice(152, 325), slice(2, 154)))
    with closing(VideoWriter(path, (HEIGHT, WIDTH))) as video:
        for number in range(NUM_FRAMES):
            image = np.full((HEIGHT, WIDTH, 3), 120, np.uint8)
            _paste(image, chair, 60, 170 - 8 * number)
            _paste(image, person, 20, 2 + 8 * number)
            video.write(image, number / RATE)


def _photograph(
    folder: Path, name: str, size: tuple[int, int], part: tuple[slice, slice] = (slice(None),) * 2
) -> np.ndarray:
    (path,) = folder.glob(f"*/{name}.jpg")
    image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)[part]
    return cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)


def _paste(image: np.ndarray, part: np.ndarray, top: int, left: int) -> None:
    height, width = part.shape[:2]
    shown = slice(max(left, 0), min(left + width, WIDTH))
    image[top : top + height, shown] = part[:, shown.start - left : shown.stop - left]
