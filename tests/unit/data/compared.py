"""Polygons, samples and batches of tests: made, and compared across processes and environments.

`python -m tests.unit.data.compared DATA SEED` prints a digest of each of the first batches.
"""

import dataclasses
import hashlib
import sys
from collections.abc import Sequence
from itertools import islice

import numpy as np

from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import TrainRecipe, ValRecipe
from duet.utils.data.loading.items import CLASSES, MaskItems
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.image_sources import list_images
from duet.utils.data.sources.samples import Sample
from duet.utils.data.sources.splits import scan_samples
from duet.utils.geometry.boxes import Polygons, starts_of
from duet.utils.strengths import AugmentConfig


def make_polygons(outlines: Sequence[np.ndarray], dtype: type = np.float64) -> Polygons:
    """Return the outlines (K, 2) of some objects; K is 0 of one without a polygon."""
    points = [np.reshape(np.asarray(outline, dtype), (-1, 2)) for outline in outlines]
    return Polygons(np.concatenate(points), starts_of(np.array([len(part) for part in points])))


def assert_same_polygons(found: Polygons, expected: Polygons) -> None:
    for name in ("points_xy", "starts"):
        value, wanted = getattr(found, name), getattr(expected, name)
        assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape), name
        np.testing.assert_array_equal(value, wanted, err_msg=name)


def assert_same_samples(found: Sequence[Sample], expected: Sequence[Sample]) -> None:
    """Require the same fields of each, in type, dtype, shape and value."""
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        for field in dataclasses.fields(Sample):
            value, wanted = getattr(mine, field.name), getattr(theirs, field.name)
            assert type(value) is type(wanted), field.name
            if isinstance(wanted, Polygons):
                assert_same_polygons(value, wanted)
                continue
            np.testing.assert_array_equal(value, wanted, err_msg=field.name)
            if isinstance(wanted, np.ndarray):
                assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)


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
        for batch in islice(ValLoader(samples, ValRecipe(image_size, 8)), 3):
            print("val", image_size, digest(batch))
        recipe = TrainRecipe(image_size, 8, OF_CLASSES, int(seed), items=CLASSES)
        for batch in islice(TrainLoader(samples, recipe).epoch(0), 3):
            print("classes", image_size, digest(batch))
        for batch in islice(ValLoader(samples, ValRecipe(image_size, 8, items=CLASSES)), 2):
            print("val of classes", image_size, digest(batch))


if __name__ == "__main__":
    main(*sys.argv[1:])
