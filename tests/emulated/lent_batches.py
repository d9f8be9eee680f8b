"""A process of its own: batches in the memory of workers, copied as late as a GPU may.

`lent_batches.py DATA.yaml` prints how often the host waited for copies. With a second argument the
memory cannot be page-locked.
"""

from __future__ import annotations

import sys

import numpy as np

from duet import backend
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from tests.emulated.gpu import RUNTIME, emulated_gpu
from tests.emulated.streams import GPU

PIECE = 1  # images, as with --micro-batch


def main() -> None:
    is_locked = len(sys.argv) == 2
    if not is_locked:
        RUNTIME.cudaHostRegister = lambda *memory: 801  # cudaErrorNotSupported
    with emulated_gpu():
        backend.use("torch")
        samples = load_split(load_dataset(sys.argv[1]), "train")
        with TrainLoader(samples, TrainRecipe(64, 2), workers=2) as loader:
            expected = [batch.images for batch in loader.epoch(0, is_last=True)]
            loader.lend_to("cuda:0")
            found, in_place = [], []
            for batch in loader.epoch(0, is_last=True):
                for piece in batch.pieces(PIECE):
                    in_place.append(backend.device.is_page_locked(piece.images))
                    found.append(backend.ops.tensor(piece.images, "cuda:0"))
            waits = GPU.waits
        assert {*in_place} == {is_locked}
        arrays = [backend.ops.to_numpy(copied) for copied in found]
        np.testing.assert_array_equal(np.concatenate(arrays), np.concatenate(expected))
        print(waits)


if __name__ == "__main__":
    main()
