"""The samples of a split: each rank reads a shard, and all ranks get all samples."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from duet.utils.data.sources.annotated_images import annotated_images
from duet.utils.data.sources.annotations import read_annotations
from duet.utils.data.sources.class_folders import ClassFolders, class_images
from duet.utils.data.sources.dataset_yaml import DatasetSpec
from duet.utils.data.sources.drawn_split import (
    draw_training,
    group_copies,
    place_of,
    read_fingerprints,
)
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.image_files import list_images
from duet.utils.data.sources.image_source import ImageSource, image_of
from duet.utils.data.sources.labels import scan_samples
from duet.utils.data.sources.samples import SampleTable
from duet.utils.data.sources.scan_memory import Memory
from duet.utils.errors import DatasetError, UserError
from duet.utils.image_limits import MAX_PIXELS
from duet.utils.processes.world import ALONE, World
from duet.utils.text import count, printable

LABEL_CLASSES = 2**31  # number of classes in label files whose classes are ignored

log = logging.getLogger("data")


def load_split(
    dataset: DatasetSpec,
    split: str,
    world: World = ALONE,
    max_pixels: int = MAX_PIXELS,
    fraction: float = 1.0,
) -> SampleTable:
    """Return the usable samples of a split; list and count on screen what is left out.

    Each rank reads its shard, and all return the same; only rank 0 logs. What
    a scan found is kept in the user's cache folder: an image is read again when it was changed.

    Args:
        max_pixels: limit per image; larger ones are skipped.
        fraction: about this fraction of the images is read, as `choose_part` does.
    """
    paths = choose_part(images_of(dataset, split, world), fraction)
    num_classes = LABEL_CLASSES if dataset.single_class else len(dataset.class_names)
    places = [os.path.abspath(str(entry)) for entry in dataset.entries]
    settings = places, split, dataset.train_part, fraction, num_classes, max_pixels
    memory = Memory.of("labels", *settings)
    work = f"reading the labels of {split}"
    samples, problems = scan_samples(paths, num_classes, max_pixels, world, memory, work=work)
    if world.process.is_main and problems:
        for problem in problems:
            log.warning("%s", printable(problem))
        numbers = count(len(paths), "image"), count(len(problems), "problem")
        log.warning("%s: %d of %s usable, %s listed above", split, len(samples), *numbers)
    if dataset.single_class:
        return dataclasses.replace(samples, class_index=np.zeros_like(samples.class_index))
    return samples


def images_of(dataset: DatasetSpec, split: str, world: World = ALONE) -> list[Path | ImageSource]:
    """Return the images of a split, in the order in which they are numbered.

    All ranks of the world call it: they look for near-duplicates together where it is drawn.

    Raises:
        DatasetError: an entry cannot be read, or holds no image; a drawn split would be empty.
    """
    pool = "train" if dataset.train_part is not None and split == "val" else split
    images: list[Path | ImageSource] = []
    for entry in getattr(dataset, pool):
        if isinstance(entry, AnnotatedFolder):
            annotations = read_annotations(entry)
            if not len(annotations):
                place = entry.image_list or entry.images
                raise DatasetError(
                    f"{entry.annotations}: has no images, or none of those in {place}; a list has "
                    f"the name of an image on each line, with its folders in {entry.images}"
                )
            if world.process.is_main and annotations.left_out:
                kinds = [f"{kind} ({n:,})" for kind, n in sorted(annotations.left_out.items())]
                text = f"{pool}: left out of {entry.annotations}: {', '.join(kinds)}"
                log.info("%s", printable(text))
            names = annotations.class_names if dataset.single_class else dataset.class_names
            images += annotated_images(annotations, names, entry.annotations)
        elif isinstance(entry, ClassFolders):
            images += class_images(entry, dataset.class_names)
        else:
            images += list_images([entry])
    if dataset.train_part is None or split == "test":
        return images
    return _drawn_part(images, dataset.train_part, split, world)


def _drawn_part(
    images: Sequence[Path | ImageSource], train_part: float, split: str, world: World
) -> list[Path | ImageSource]:
    """Return the images that were drawn for training, or the rest, for validation."""
    names = [image_of(image).path.name for image in images]
    groups = group_copies(names, read_fingerprints(images, world))
    is_train = draw_training(names, groups, train_part)
    drawn = [images[index] for index in np.flatnonzero(is_train == (split == "train")).tolist()]
    if world.process.is_main:
        total = count(len(images), "image")
        num_alike = len(groups) - len(np.unique(groups))
        alike = f"; {num_alike:,} stay with another that looks alike" if num_alike else ""
        log.info("%s: %d of %s, by --split %g%s", split, len(drawn), total, train_part, alike)
    return drawn


def choose_part(
    images: Sequence[Path | ImageSource], fraction: float
) -> Sequence[Path | ImageSource]:
    """Return about this fraction of the images, in their order: those of the lowest hashes.

    Whether an image belongs to it depends only on the name of its file, not on other images.

    Raises:
        UserError: no image is left.
    """
    if fraction == 1:
        return images
    chosen = [image for image in images if place_of(image_of(image).path.name) < fraction]
    if not chosen:
        raise UserError(
            f"--fraction {fraction:g}: none of {count(len(images), 'image')} is left; use a larger "
            "one"
        )
    return chosen


def only_classes(
    samples: SampleTable, classes: Sequence[int] | None, num_classes: int
) -> SampleTable:
    """Return the samples with the labels of these classes; of all classes when None.

    Raises:
        UserError: a class that the dataset does not have.
    """
    if classes is None:
        return samples
    unknown = [number for number in classes if not 0 <= number < num_classes]
    if unknown:
        raise UserError(f"--classes {unknown[0]}: the dataset's classes are 0 to {num_classes - 1}")
    return samples.with_objects(np.isin(samples.class_index, classes))
