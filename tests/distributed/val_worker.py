"""val.py as one of several ranks; before it validates, training batches come from a shared cache.

`python -m tests.distributed.val_worker FOLDER, and the flags of val.py` under a launcher.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

import val
from duet import backend
from duet.backend.processes import this_process
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.processes.command import run_command
from duet.utils.processes.world import World
from tests.unit.data.batch_digest import EVERYTHING


def digest_training(samples: Any, world: World, cache: str) -> list[str]:
    """Return digests of the images of every batch of two epochs, of all ranks together."""
    digests = []
    with TrainLoader(samples, TrainRecipe(64, 3, EVERYTHING), 1, cache, world) as loader:
        for epoch in range(2):
            for batch in loader.epoch(epoch):
                images = np.concatenate(world.all_gather(batch.images))
                digests.append(hashlib.sha256(images.tobytes()).hexdigest())
    return digests


def main() -> None:
    folder = Path(sys.argv.pop(1))
    backend.use()
    from duet.models.evaluation import validation

    evaluate = validation.evaluate

    def train_first(model: Any, loader: Any, samples: Any, *others: Any, **options: Any) -> Any:
        digests = digest_training(samples, loader.world, "ram")
        (folder / f"rank{this_process().rank}.txt").write_text("\n".join(digests))
        return evaluate(model, loader, samples, *others, **options)

    validation.evaluate = train_first
    val.main()


if __name__ == "__main__":
    assert os.environ["YOLO_BACKEND"]
    run_command(main, several=True)
