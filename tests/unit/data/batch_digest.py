"""Digests of the first batches of a dataset, to compare across processes and environments.

`python -m tests.unit.data.batch_digest DATA SEED` prints one line for each batch.
"""

import dataclasses
import hashlib
import sys
from itertools import islice

from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.items import CLASSES, MaskItems
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.image_sources import list_images
from duet.utils.data.sources.splits import scan_samples
from duet.utils.strengths import AugmentConfig

EVERYTHING = AugmentConfig(
    hsv_h=0.015, hsv_s=0.7, hsv_v=0.4, degrees=10, translate=0.1, scale=0.5, shear=5,
    perspective=0.0005, flipud=0.3, fliplr=0.5, mosaic=0.7, mixup=0.3, copy_paste=0.5,
)  # fmt: skip
OF_CLASSES = dataclasses.replace(EVERYTHING, scale=0.92)


def digest(batch: Batch) -> str:
    """Return SHA-256 over every array of a batch, with its dtype and shape."""
    total = hashlib.sha256(repr(batch.letterboxes).encode())
    for array in (
        batch.images,
        *batch.targets.arrays(),
        batch.sample_indices,
        batch.global_indices,
        *(batch.finishing or ()),
    ):
        total.update(f"{array.dtype} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def main(data: str, seed: str) -> None:
    dataset = load_dataset(data)
    samples = scan_samples(list_images(dataset.train), len(dataset.class_names)).samples
    for image_size in (96, 160):
        loader = TrainLoader(samples, TrainRecipe(image_size, 8, EVERYTHING, int(seed)))
        for batch in (*islice(loader.epoch(0), 3), *islice(loader.epoch(7), 3)):
            print("train", image_size, digest(batch))
        transformed = dataclasses.replace(EVERYTHING, transforms=0.5)
        loader = TrainLoader(samples, TrainRecipe(image_size, 8, transformed, int(seed)))
        for batch in islice(loader.epoch(0), 2):
            print("transformed", image_size, digest(batch))
        recipe = TrainRecipe(image_size, 8, transformed, int(seed), items=MaskItems())
        loader = TrainLoader(samples, recipe)
        for batch in islice(loader.epoch(0), 2):
            print("masks", image_size, digest(batch))
        for batch in islice(ValLoader(samples, image_size, 8, workers=0), 3):
            print("val", image_size, digest(batch))
        recipe = TrainRecipe(image_size, 8, OF_CLASSES, int(seed), items=CLASSES)
        for batch in islice(TrainLoader(samples, recipe).epoch(0), 3):
            print("classes", image_size, digest(batch))
        for batch in islice(ValLoader(samples, image_size, 8, workers=0, items=CLASSES), 2):
            print("val of classes", image_size, digest(batch))


if __name__ == "__main__":
    main(*sys.argv[1:])
