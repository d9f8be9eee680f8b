"""A script on an emulated GPU: batches in the memory of workers, copied as late as a GPU may.

`lent_batches.py DATA.yaml` under `program.py` prints how often the host waited for copies. With a
second argument the memory cannot be page-locked.
"""

import sys
from unittest import mock

import numpy as np

from duet import backend
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from tests.emulated.gpu import RUNTIME
from tests.emulated.streams import GPU

PIECE = 1  # images, as with --micro-batch


def main() -> None:
    is_locked = len(sys.argv) == 2
    register = RUNTIME.cudaHostRegister if is_locked else refuse
    samples = load_split(load_dataset(sys.argv[1]), "train")
    with (
        mock.patch.object(RUNTIME, "cudaHostRegister", register),
        TrainLoader(samples, TrainRecipe(64, 2), workers=2) as loader,
    ):
        expected = [batch.images for batch in loader.epoch(0, is_last=True)]
        loader.lend_to("cuda:0")
        found, in_place, waits = [], [], GPU.waits
        for batch in loader.epoch(0, is_last=True):
            for piece in batch.pieces(PIECE):
                in_place.append(backend.device.is_page_locked(piece.images))
                found.append(backend.ops.tensor(piece.images, "cuda:0"))
        waits = GPU.waits - waits
    assert {*in_place} == {is_locked}
    arrays = [backend.ops.to_numpy(copied) for copied in found]
    np.testing.assert_array_equal(np.concatenate(arrays), np.concatenate(expected))
    print(waits)


def refuse(*memory: int) -> int:
    return 801  # cudaErrorNotSupported


if __name__ == "__main__":
    main()
