"""Milliseconds for a batch of training samples on one core, and images per second.

    python -m benchmarks.loader --backend torch

The reference decodes whole images, pastes them onto a canvas and warps that. The fast path is that
of train.py: without a cache, with `--cache ram` once every image is in it, and with colours and
flips left to a GPU. All make the same samples, with the default hyper-parameters or those of --hyp
and --override, from 640 x 480 JPEGs drawn for this purpose, or from the training images of --data.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np

from benchmarks.paste_and_warp import plain_item
from benchmarks.side_by_side import Run, choose_device, finish, new_parser, time_in_turns
from duet.utils.cli.flags import from_one
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import TrainBatches, TrainRecipe, fill_images
from duet.utils.data.loading.image_cache import create_cache
from duet.utils.data.loading.order import Epoch
from duet.utils.data.randomness import sample_generator
from duet.utils.data.shapes.scene import draw_scene
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import Sample, table_of
from duet.utils.data.sources.splits import images_of, scan_samples
from duet.utils.memory import keep_freed_images
from duet.utils.processes.command import run_command

DRAWN_SIZE = (480, 640)
# Decoding takes as long as there is data. With grain of this standard deviation a JPEG has 160 KB
# and is decoded in 2.5 ms where photographs of COCO in this size, 180 KB on average, take 2.6.
GRAIN, QUALITY = 15.0, 92


def draw_images(folder: Path, number: int) -> list[Sample]:
    """Draw samples with the built-in dataset's shapes, as JPEGs of 640 x 480 pixels."""
    samples = []
    height, width = DRAWN_SIZE
    for index in range(number):
        generator = sample_generator(0, 0, index)
        scene = draw_scene(generator, DRAWN_SIZE)
        grain = GRAIN * np.sqrt(12) * (generator.random((*DRAWN_SIZE, 3)) - 0.5)
        path = folder / f"{index:05d}.jpg"
        image = (scene.image + grain).clip(0, 255).astype(np.uint8)
        if not cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY]):
            raise SystemExit(f"{path} could not be written")
        low, high = np.split(scene.boxes_xyxy / [width, height, width, height], 2, axis=1)
        boxes = np.concatenate(((low + high) / 2, high - low), axis=1).astype(np.float32)
        samples.append(Sample(path, height, width, scene.class_index, boxes))
    return samples


def plain_batch(samples: list[Sample], source: TrainBatches, number: int) -> Batch:
    """Return what `source.build` returns, made by the reference."""
    indices = source.indices(Epoch(0), number)
    images = np.empty(source.shape(number), np.uint8)
    recipe = source.recipe
    make = partial(plain_item, samples, recipe.image_size, recipe.augment, recipe.seed, 0)
    return Batch(images, fill_images(images, indices.tolist(), make), indices, (), indices)


def fast_batch(source: TrainBatches, number: int, leaves_pixels: bool = False) -> Batch:
    return source.shard_of(Epoch(0, leaves_pixels=leaves_pixels), number)


def require_equal_samples(plain: Batch, fast: Batch) -> None:
    """Raise SystemExit if the batches differ by more than repeated interpolation explains."""
    equal = all(
        one.shape == other.shape and np.allclose(one, other, rtol=0, atol=1e-6)
        for one, other in zip(plain.targets.arrays(), fast.targets.arrays(), strict=True)
    )
    # The tests compare away from the edges between images, and closely; this is a safeguard.
    difference = np.abs(plain.images.astype(np.int16) - fast.images).mean()
    if not equal or difference > 4:
        raise SystemExit(f"other samples (by {difference:.1f} grey values): unequal work")


def in_turn(make: Callable[[int], Batch], num_batches: int) -> Run:
    """Return a run that makes the next batch each time; after the last comes the first."""
    numbers = itertools.cycle(range(num_batches))
    return lambda: make(next(numbers))


def compare(samples: list[Sample], flags: argparse.Namespace, device: str) -> None:
    strengths = read_hyperparameters(flags.hyp, flags.override).augmentation()
    augment = dataclasses.replace(strengths, transforms=flags.albumentations)
    source = TrainBatches(table_of(samples), TrainRecipe(flags.img, flags.batch, augment))
    cache = create_cache("ram", source.image_sizes(), 0.5, "training")
    cached = dataclasses.replace(source, cache=cache)
    whole = len(samples) // flags.batch
    if whole == 0:
        raise SystemExit(f"--batch {flags.batch} is more than the images of --data")
    for number in range(len(source)):  # fills the cache with what these batches show
        batch = fast_batch(cached, number)
        require_equal_samples(plain_batch(samples, source, number), batch)
    candidates = {
        "reference": in_turn(partial(plain_batch, samples, source), whole),
        "fast": in_turn(partial(fast_batch, source), whole),
        "fast, --cache ram": in_turn(partial(fast_batch, cached), whole),
        "and --device-augment": in_turn(partial(fast_batch, cached, leaves_pixels=True), whole),
    }
    case = f"{flags.batch} samples, {flags.img} px"
    timings = time_in_turns(case, candidates, device, flags.repeats, images=flags.batch)
    finish(flags, timings, device)


def main() -> None:
    parser = new_parser("loader", "Milliseconds for a batch of samples on one core.", repeats=20)
    parser.add_argument("--img", type=from_one, default=640, help="side of the training images")
    parser.add_argument("--batch", type=from_one, default=8, help="images per timed run")
    parser.add_argument("--images", type=from_one, default=64, help="how many are drawn")
    parser.add_argument("--data", help="dataset YAML: its training images instead of drawn ones")
    parser.add_argument("--hyp", default=DEFAULT_HYPERPARAMETERS, help="hyper-parameter YAML")
    parser.add_argument("--override", nargs="+", default=(), metavar="KEY=VALUE")
    parser.add_argument("--albumentations", type=float, nargs="?", const=0.01, default=0.0)
    flags = parser.parse_args()
    if flags.device not in ("", "cpu"):
        parser.error(f"--device {flags.device}: the loader runs on the CPU alone")
    flags.device = "cpu"
    device = choose_device(flags)
    cv2.setNumThreads(0)  # as in a worker
    keep_freed_images()
    if flags.data:
        dataset = load_dataset(flags.data, splits=("train",))
        scanned = scan_samples(images_of(dataset, "train"), len(dataset.class_names))
        return compare(scanned.samples, flags, device)
    with TemporaryDirectory() as folder:
        compare(draw_images(Path(folder), flags.images), flags, device)


if __name__ == "__main__":
    run_command(main)
