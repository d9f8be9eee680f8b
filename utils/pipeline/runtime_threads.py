"""How many threads run an exported file, whose runtime knows nothing of the framework's.

Before: --weights names such a file. After: `models/inference/lanes.py` runs it.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend.cores import cores_of_rank
from backend.openmp import default_threads
from utils.data.image.tiling import Tiling
from utils.media.source import Source
from utils.pipeline.background import MOST_THREADS


def usable_threads() -> int:
    """Return how many threads the runtimes of this process may have: its cores.

    Where OMP_NUM_THREADS asks for fewer, it holds for them as for the framework.
    """
    return min(default_threads(), cores_of_rank())


def runtime_lanes() -> int:
    """Return how many batches to have in a runtime at once, if several come.

    A batch on one thread waits for no other: of YOLOv5n at 640 px four at once on four cores take
    two thirds of the processor time that one after the other takes on four threads.
    """
    return min(usable_threads(), MOST_THREADS)


def runtime_threads(side_by_side: bool) -> int:
    """Return how many threads a call of a runtime may take.

    side_by_side: other calls run at the same time, in `runtime_lanes`.
    """
    return usable_threads() // runtime_lanes() if side_by_side else usable_threads()


def are_several(sources: Sequence[Source], tiling: Tiling | None) -> bool:
    """Return whether batches can be computed side by side.

    All cores are for each tile, one batch after another, and for an only image.
    """
    is_one_image = len(sources) == 1 and sources[0].kind == "image"
    return tiling is None and not is_one_image
