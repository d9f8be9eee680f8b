"""Images -> between which numbers the 8 bits of each map of an ONNX graph lie.

Before: `models/export/calibration.py` yields the images. After: `quantization.py` writes the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from utils.errors import UserError
from utils.optional import import_optional

BINS = 2048
MOST_VALUES = 2**16  # that count of each map of an image: evenly chosen, enough for the tails
OUTSIDE = 1e-5  # of the values, at either end; measured, see docs/en/export.md
LEAST_SPAN = 1e-6  # of a map that is the same everywhere

Calibration = Callable[[], Iterator[np.ndarray]]  # images, as a graph takes them
Ranges = Mapping[str, tuple[np.float32, np.float32]]


def find_ranges(model: Any, names: Sequence[str], images: Calibration) -> Ranges:
    """Run a graph twice on images: for the extremes of its maps, and for what lies between.

    Args:
        model: an onnx.ModelProto.
        names: of the maps.
        images: yields them as the graph takes them, at least one and the same each time.

    Returns:
        Lowest and highest value of each map, 0 within, but for the outermost `OUTSIDE`.

    Raises:
        UserError: a map is not finite.
    """
    run = runner(model, names)
    extremes: dict[str, tuple[float, float]] = {}
    for batch in images():
        for name, values in run(batch).items():
            extremes[name] = _wider(name, extremes.get(name, (0.0, 0.0)), values)
    counts = {name: np.zeros(BINS, np.int64) for name in names}
    for batch in images():
        for name, values in run(batch).items():
            counts[name] += histogram(values, *extremes[name])
    return {name: _trimmed(counts[name], *extremes[name]) for name in names}


def runner(model: Any, names: Sequence[str]) -> Callable[[np.ndarray], dict[str, np.ndarray]]:
    """Return what computes maps of a graph from one input."""
    onnx = import_optional("onnx", "--int8")
    runtime = import_optional("onnxruntime", "--int8")
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    source = shown.graph.input[0].name
    computed = [name for name in names if name != source]
    del shown.graph.output[:]
    shown.graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, computed))
    session = runtime.InferenceSession(
        shown.SerializeToString(), providers=["CPUExecutionProvider"]
    )

    def run(images: np.ndarray) -> dict[str, np.ndarray]:
        maps = dict(zip(computed, session.run(computed, {source: images}), strict=True))
        return {name: maps.get(name, images) for name in names}

    return run


def _wider(name: str, extremes: tuple[float, float], values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    if not np.isfinite((low, high)).all():
        raise UserError(
            f"--int8: what the model computes is not finite (map {name}, {low:g} to {high:g}); "
            "its weights are damaged, or were when it was trained"
        )
    return min(low, extremes[0]), max(high, extremes[1])


def histogram(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return how many of the values, or of `MOST_VALUES` of them, lie in each of `BINS` bins."""
    flat = values.ravel()
    step = max(1, flat.size // MOST_VALUES)
    while math.gcd(step, flat.size) > 1:  # or it would leave out some columns
        step += 1
    chosen = flat[::step]
    scale = BINS / max(high - low, LEAST_SPAN)
    bins = ((chosen - low) * scale).astype(np.int64)
    return np.bincount(np.minimum(bins, BINS - 1), minlength=BINS)


def _trimmed(counts: np.ndarray, low: float, high: float) -> tuple[np.float32, np.float32]:
    """Return the range without `OUTSIDE` of the values at either end."""
    below = np.cumsum(counts) / counts.sum()
    first, last = np.searchsorted(below, (OUTSIDE, 1 - OUTSIDE))
    edges = np.linspace(low, max(high, low + LEAST_SPAN), BINS + 1)
    return np.float32(min(0, edges[first])), np.float32(max(0, edges[last + 1]))
