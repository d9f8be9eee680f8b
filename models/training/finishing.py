"""Colours and flips of a batch on the device: the trial before it, and the operation.

The kernel of the user's GPU can only be tried there.
"""

import logging
import time
from collections.abc import Sequence

import numpy as np

from duet.backend import fused, ops
from duet.backend.contract import Tensor
from duet.utils.data.augment.sample import hsv_tables
from duet.utils.data.loading.batch import Finishing
from duet.utils.data.loading.batches import finished

ONE_LEVEL = 1.01 / 255

log = logging.getLogger("train")


def choose_finishing(
    asked: bool, size: Sequence[int], device: str, dtype: str, channels_last: bool
) -> bool:
    """Return whether the device finishes images of (height, width); log the outcome."""
    if not asked:
        return False
    start = time.perf_counter()
    problem = trial_problem(size, device, dtype, channels_last)
    how = f"on the device, compiled in {time.perf_counter() - start:.0f} s"
    if problem:
        how = f"OpenCV does it in the loader ({problem})"
    log.info("--device-augment: colours and flips: %s", how)
    return not problem


def trial_problem(size: Sequence[int], device: str, dtype: str, channels_last: bool) -> str:
    """Return why a device cannot finish images, or how they differ from OpenCV's; "" if it can."""
    if problem := fused.finish_problem(device):
        return problem
    random = np.random.Generator(np.random.Philox(0))
    images = random.integers(0, 256, (2, 3, *size), np.uint8)
    finishing = Finishing(random.uniform(0.5, 1.5, (2, 3)), np.array([[0, 1], [1, 0]], bool))
    try:
        found = ops.to_numpy(finish_images(images, finishing, device, dtype, channels_last))
    except Exception as error:  # the compiler is missing or broken
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    difference = float(np.abs(found - finished(images, finishing) / 255).max())
    return "" if difference <= ONE_LEVEL else f"pixels differ by {difference:.2g}"


def finish_images(
    images: np.ndarray, finishing: Finishing, device: str, dtype: str, channels_last: bool
) -> Tensor:
    """Return images (B, 3, H, W) uint8 RGB as network input, with the changes they still need."""
    gains, flips = finishing
    coloured = (gains != 1).any(axis=1, keepdims=True)
    numbers = hsv_tables(gains), np.concatenate([flips, coloured], axis=1)
    tables, changes = (ops.tensor(array, device) for array in numbers)
    return fused.finish_images(ops.tensor(images, device), tables, changes, dtype, channels_last)
