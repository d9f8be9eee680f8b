"""Images, and what the model predicts in them: a file must predict the same.

Before: `job.py` built the model. After: `verify.py` runs a file on the same images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from backend import autograd, ops
from backend.checks import CPU
from models.detector import Detector, images_to_tensor
from utils.data.image.letterbox import Letterbox, fit_letterbox
from utils.data.image.resizing import letterbox, resize_to_detect
from utils.data.loading.reading import read_ahead
from utils.data.randomness import sample_generator
from utils.data.shapes.scene import draw_scene
from utils.data.sources.samples import Sample
from utils.errors import UserError
from utils.runtimes.metadata import PIXELS, Metadata
from utils.runtimes.runtime import Outputs

NUM_IMAGES = 8
# Times the network's size: `resize_to_detect` interpolates up to 2, and averages above it.
LARGER = 1.5, 2.5
DRAWN_SIDES = (320, 240), (240, 320)  # of images of the built-in dataset


class Trial(NamedTuple):
    """A batch of images of one size, and what the model predicts in them."""

    images: np.ndarray  # (B, 3, H, W) uint8 RGB
    outputs: Outputs  # of a file without NMS, (B, ...) each; boxes in pixels of the images
    is_resized: bool = False  # by the file itself, which rounds grey levels in its own way


def chosen_images(samples: Sequence[Sample] | None) -> list[np.ndarray]:
    """Return a few images (H, W, 3) uint8 RGB: evenly out of a split, else of the built-in dataset.

    Those of the built-in dataset are drawn here; nothing is written.
    """
    if samples is None:
        sizes = [DRAWN_SIDES[index % 2] for index in range(NUM_IMAGES)]
        generators = [sample_generator(0, 0, index) for index in range(NUM_IMAGES)]
        return [
            draw_scene(*drawn).image[..., ::-1] for drawn in zip(generators, sizes, strict=True)
        ]
    places = np.linspace(0, len(samples) - 1, min(NUM_IMAGES, len(samples))).round().astype(int)
    return list(read_ahead([samples[place] for place in places.tolist()]))


def make_trials(model: Detector, images: Sequence[np.ndarray], metadata: Metadata) -> list[Trial]:
    """Return batches of the images, of each size that a file is tried with.

    A file that resizes images gets them in the size of its network, which it leaves as they are,
    and then as they were, and larger than that size.

    Raises:
        UserError: the model's predictions are not finite, so no file can be compared with them.
    """
    trials = [Trial(batch, outputs_of(model, batch)) for batch in batches(images, metadata)]
    if metadata.image == PIXELS:
        larger = [enlarged(images[0], metadata.image_size, times) for times in LARGER]
        rows = [trial.outputs[0] for trial in trials]
        rows += [outputs_of(model, fitted([image], metadata.image_size))[0] for image in larger]
        pairs = zip((*images, *larger), rows, strict=True)
        trials += [resized_trial(image, found, metadata) for image, found in pairs]
    return trials


def resized_trial(image: np.ndarray, rows: np.ndarray, metadata: Metadata) -> Trial:
    """Return an image (H, W, 3) with its rows (1, N, 5 + C), for a file that resizes it."""
    rows = rows_in_image(rows, fit_letterbox(image.shape[:2], metadata.image_size))
    return Trial(image.transpose(2, 0, 1)[None], (rows,), is_resized=True)


def enlarged(image: np.ndarray, size: tuple[int, int], times: float) -> np.ndarray:
    """Return an image (H, W, 3) so large that it exceeds (height, width) these times."""
    sides = np.array(image.shape[:2])
    height, width = np.ceil(sides * min(size / sides) * times).astype(int).tolist()
    return resize_to_detect(image, (height, width))


def outputs_of(model: Detector, images: np.ndarray) -> Outputs:
    """Return what the model predicts in images (B, 3, H, W) uint8; errors as above."""
    with autograd.no_grad():
        outputs = model.head.exported(model(images_to_tensor(images, CPU)))
    found = tuple(map(ops.to_numpy, outputs))
    if not all(np.isfinite(output).all() for output in found):
        raise UserError(
            "the model's predictions are not finite (NaN or infinite); its weights are damaged, or "
            "its training diverged: export an earlier checkpoint"
        )
    return found


def rows_in_image(rows: np.ndarray, placement: Letterbox) -> np.ndarray:
    """Map the boxes of rows (..., 5 + C) from the network's input to pixels of the image."""
    (top, left), (vertical, horizontal) = placement.padding, placement.scale
    mapped = rows.copy()
    mapped[..., :2] -= np.array([left, top], np.float32)
    mapped[..., :4] /= np.array([horizontal, vertical, horizontal, vertical], np.float32)
    return mapped


def batches(images: Sequence[np.ndarray], metadata: Metadata) -> Iterator[np.ndarray]:
    """Yield images in the file's size and batch; of a dynamic file also in two others."""
    size = metadata.batch_size
    for start in range(0, len(images), size):
        yield fitted(images[start : start + size], metadata.image_size)
    if metadata.dynamic:
        stride, (height, width) = metadata.stride, metadata.image_size
        yield fitted(images[: size + 1], (max(stride, height // 2 // stride * stride), width))
        yield fitted(images[: size + 2], (height, width + stride))


def fitted(images: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """Return images (B, 3, H, W) uint8 of one size, padded as detect.py pads them."""
    placed = [(image, fit_letterbox(image.shape[:2], size)) for image in images]
    padded = [letterbox(image, placement, resize_to_detect) for image, placement in placed]
    return np.stack(padded).transpose(0, 3, 1, 2)
