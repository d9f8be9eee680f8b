"""Images that are classified wrongly with the most confidence, side by side.

Before: `evaluation/classes/metric.py`. After: mistakes.jpg.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from utils.data.sources.samples import Sample
from utils.drawing.fonts import drawable_name
from utils.evaluation.classes.metric import Mistake
from utils.report.plots.images import framed, read_tile, write_tiles
from utils.report.plots.style import cut


def plot_mistakes(
    mistakes: Sequence[Mistake], samples: Sequence[Sample], class_names: Sequence[str], path: Path
) -> None:
    """Write a JPEG of images with their true class, and the class that they are taken for.

    Without mistakes there is no file.
    """
    tiles = []
    for mistake in mistakes:
        sample = samples[mistake.image_id]
        true, predicted = (
            cut(drawable_name(class_names[index], index))
            for index in (mistake.true, mistake.predicted)
        )
        tile, _ = read_tile(sample)
        tiles.append(framed(tile, sample, f"{true}, not {predicted} {mistake.score:.2f}"))
    if tiles:
        write_tiles(tiles, path)
