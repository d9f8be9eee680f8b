"""The images of --data -> inputs of a file, from which the ranges of its 8 bits are chosen.

Before: `job.py` has the samples. After: `utils/export/ranges.py` runs the graph on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from utils.data.image.view import View, whole_view
from utils.data.loading.reading import read_ahead
from utils.data.sources.samples import Sample
from utils.export.formats import Calibration
from utils.runtimes.metadata import PIXELS, Metadata

MOST_IMAGES = 64  # of a split; ranges of 128 gain nothing, see docs/en/export.md


def batch_of(metadata: Metadata) -> int:
    """Return the fewest images that a call of the file takes: all their maps are held at once."""
    return 1 if metadata.dynamic else metadata.batch_size


def calibration_images(
    samples: Sequence[Sample], metadata: Metadata, view: Callable[..., View] = whole_view
) -> Calibration:
    """Return what yields images of a split, chosen evenly, each time the same.

    They are as the file takes them: (B, 3, H, W) float32, as detect.py views them, in batches of
    `batch_of`, the last one filled with its last image; or (H, W, 3) uint8 where the graph does
    that.

    Args:
        view: `Task.view`.
    """
    number = min(MOST_IMAGES, len(samples))
    places = np.linspace(0, len(samples) - 1, number).round().astype(int)
    chosen = [samples[place] for place in places.tolist()]

    def images() -> Iterator[np.ndarray]:
        if metadata.image == PIXELS:
            yield from read_ahead(chosen)
            return
        size, sides = batch_of(metadata), metadata.image_size
        for start in range(0, number, size):
            batch = list(read_ahead(chosen[start : start + size]))
            batch += batch[-1:] * (size - len(batch))
            views = [view(image, max(sides), metadata.stride, sides).pixels for image in batch]
            yield np.stack(views).transpose(0, 3, 1, 2) / np.float32(255)

    return images
