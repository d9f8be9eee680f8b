"""The samples of a split, with checked labels: each rank reads a shard, and all ranks get all.

Images whose labels or bytes are broken are left out, with a remark.
"""

import dataclasses
import logging
import os
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from duet.utils.data.image.decoding import read_as
from duet.utils.data.image.header import BrokenImageError
from duet.utils.data.sources.annotations import annotated_images, read_annotations
from duet.utils.data.sources.class_folders import ClassFolders, class_images
from duet.utils.data.sources.dataset_yaml import DatasetSpec
from duet.utils.data.sources.drawn_split import choose_part, drawn_part
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.image_sources import ImageSource, list_images
from duet.utils.data.sources.label_file import REPEATED, ZERO_AREA, BrokenLabelError, Labels
from duet.utils.data.sources.remarks import Remark, Remarks, first_lines
from duet.utils.data.sources.samples import Places, SampleTable, encode_paths
from duet.utils.data.sources.scan import Memory, require_same_names, scan_shards
from duet.utils.errors import DatasetError
from duet.utils.files.array_cache import Arrays
from duet.utils.geometry.boxes import Polygons, join_polygons, starts_of, without_outlines
from duet.utils.image_limits import MAX_PIXELS
from duet.utils.processes.world import ALONE, World
from duet.utils.text import count

LABEL_CLASSES = 2**31  # number of classes in label files whose classes are ignored
MOST_NAMED = 100  # remarks with a line each, per split; all are counted by kind
_SHOWN_PROBLEMS = 5
_REMOVED = {
    ZERO_AREA: ("object without an area", "objects without an area"),
    REPEATED: ("repeated object", "repeated objects"),
}

log = logging.getLogger("data")


def load_split(
    dataset: DatasetSpec,
    split: str,
    world: World = ALONE,
    max_pixels: int = MAX_PIXELS,
    fraction: float = 1.0,
) -> SampleTable:
    """Return the usable samples of a split, the same on all ranks; rank 0 logs what is left out.

    Each rank reads a shard. Results are cached until an image changes.

    Args:
        max_pixels: limit per image; larger ones are skipped.
        fraction: read about this fraction of the images, as `choose_part` does.
    """
    listed = Remarks(split)
    images = images_of(dataset, split, world, listed)
    paths = images if fraction == 1 else choose_part(images, fraction)
    num_classes = LABEL_CLASSES if dataset.single_class else len(dataset.names_in_labels)
    places = [os.path.abspath(str(entry)) for entry in dataset.entries]
    settings = places, split, dataset.train_part, fraction, num_classes, max_pixels
    memory = Memory.of("labels", *settings)
    work = f"reading the labels of {split}"
    try:
        samples, found = scan_samples(paths, num_classes, max_pixels, world, memory, work=work)
    except DatasetError as error:
        raise DatasetError(f"{split}: {error}") from error
    shown = [*listed.lines(), *first_lines(found, MOST_NAMED)]
    listed.num_images = len(paths)
    for remark in found:
        listed.add(*remark)
    for line in [*shown, listed.head()] if shown and world.process.is_main else ():
        log.warning("%s", line)
    labels = samples.class_index
    classes = np.zeros_like(labels) if dataset.single_class else dataset.class_of(labels)
    return dataclasses.replace(samples, remarks=listed, class_index=classes)


def images_of(
    dataset: DatasetSpec, split: str, world: World = ALONE, remarks: Remarks | None = None
) -> list[ImageSource]:
    """Return the images of a split, in the order in which they are numbered.

    All ranks call it: drawing a split takes them all.

    remarks: collects what is left out.

    DatasetError: an entry cannot be read, or holds no image; a drawn split would be empty.
    """
    pool = "train" if dataset.train_part is not None and split == "val" else split
    remarks = Remarks() if remarks is None else remarks
    images: list[ImageSource] = []
    for entry in getattr(dataset, pool):
        if isinstance(entry, AnnotatedFolder):
            annotations = dataset.annotations.pop(entry, None)
            if annotations is None:
                annotations = read_annotations(entry)
            if not len(annotations):
                place = entry.image_list or entry.images
                raise DatasetError(
                    f"{entry.annotations}: has no images, or none of those in {place}; a list has "
                    f"the name of an image on each line, with its folders in {entry.images}"
                )
            for kind, number in sorted(annotations.left_out.items()):
                remarks.add(kind, f"left out of {entry.annotations}", number)
            names = annotations.class_names if dataset.single_class else dataset.names_in_labels
            images += annotated_images(annotations, names, entry.annotations)
        elif isinstance(entry, ClassFolders):
            images += class_images(entry, dataset.names_in_labels, remarks)
        else:
            images += list_images([entry], dataset.root, remarks)
    if dataset.train_part is None or split == "test":
        return images
    return drawn_part(images, dataset.train_part, split, world)


def only_classes(samples: SampleTable, classes: Sequence[int] | None) -> SampleTable:
    """Return the samples with the labels of these classes; None: all."""
    if classes is None:
        return samples
    return samples.with_objects(np.isin(samples.class_index, classes))


class ScanReport(NamedTuple):
    """The usable samples, in the order of the images, and remarks on the others."""

    samples: SampleTable
    remarks: list[Remark]

    @property
    def problems(self) -> list[str]:
        return [remark.text for remark in self.remarks]


# Scan result of an image: (height, width) in pixels, labels, and remarks. An image that is left out
# has no labels and size 0.
_Scanned = tuple[tuple[int, int], Labels | None, list[Remark]]


def _arrays_of(results: Sequence[_Scanned]) -> Arrays:
    """Return the results of N images with T objects as arrays: to be sent, kept and joined."""
    usable = [labels for _, labels, _ in results if labels is not None]
    counts = [0 if found is None else len(found.class_index) for _, found, _ in results]
    parts = [(labels.polygons_norm, len(labels.class_index)) for labels in usable]
    polygons = join_polygons(parts) or without_outlines(sum(counts))
    fields = (field for _, _, remarks in results for remark in remarks for field in remark)
    text = "".join(str(field).replace("\0", "") + "\0" for field in fields)
    no_boxes = np.zeros((0, 4), np.float32)
    return {
        "sizes": np.array([size for size, _, _ in results], np.int64).reshape(-1, 2),
        "num_objects": np.array(counts, np.int64),
        "class_index": np.concatenate([np.zeros(0, np.int64), *(x.class_index for x in usable)]),
        "boxes": np.concatenate([no_boxes, *(x.boxes_cxcywh_norm for x in usable)]),
        "num_points": polygons.num_points,
        "points": polygons.points_xy,
        "remarks": np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8),
    }


def _remarks_of(text: np.ndarray) -> list[Remark]:
    fields = text.tobytes().decode("utf-8", "surrogatepass").split("\0")[:-1]
    rows = zip(fields[0::3], fields[1::3], fields[2::3], strict=True)
    return [Remark(kind, text, int(number)) for kind, text, number in rows]


def scan_samples(
    images: Sequence[ImageSource],
    num_classes: int,
    max_pixels: int = MAX_PIXELS,
    world: World = ALONE,
    memory: Memory | None = None,
    needs_objects: bool = True,
    work: str = "reading the labels",
) -> ScanReport:
    """Read the header and labels of every image; each rank reads a shard for all.

    Images that are broken or have a broken label line are left out; repeated objects and those
    without an area are removed. Each is a remark with the file and the reason. An image without a
    label file is a background.

    Args:
        images: the same ones on all ranks, in the same order.
        max_pixels: limit per image; larger ones are skipped.
        memory: where the result is kept for the next run; None for nowhere.
        work: description for the progress.

    DatasetError: no image is usable, or none has a required object, or the ranks have different
    images.
    """
    if world.process.world_size > 1:
        require_same_names([image.path.name for image in images], world)

    scan_one = partial(_scan_one, num_classes=num_classes, max_pixels=max_pixels)

    def scan_all() -> Arrays:
        return scan_shards(work, images, scan_one, _arrays_of, world)

    def is_old(kept: Arrays) -> bool:
        left_out = np.flatnonzero(kept["sizes"][:, 0] == 0).tolist()
        return any(scan_one(images[index])[1] is not None for index in left_out)

    def state(image: ImageSource, now_ns: int) -> bytes | None:
        return image.state(now_ns)

    found = memory.recall(images, state, is_old, scan_all, world) if memory else scan_all()
    report = _report(images, found)
    if needs_objects and not len(report.samples.class_index):
        first = images[0]
        remarks = sorted(report.remarks, key=lambda one: one.kind != "near_label")
        raise DatasetError(
            f"no labelled object in {count(len(report.samples), 'usable image')}; the "
            f"labels of {first.path} belong in {first.labels_at}"
            + (", before it is packed" if first.place else "")
            + (f"; {remarks[0].text}" if remarks else "")
        )
    return report


def _report(images: Sequence[ImageSource], found: Arrays) -> ScanReport:
    """Return the report of these images; raise DatasetError when none is usable."""
    remarks, sizes = _remarks_of(found["remarks"]), found["sizes"]
    usable = np.flatnonzero(sizes[:, 0])
    if not len(usable):
        text = f"0 of {count(len(images), 'image')} usable:"
        raise DatasetError("\n".join([text, *first_lines(remarks, _SHOWN_PROBLEMS)]))
    sources = [images[index] for index in usable.tolist()]
    polygons = Polygons(found["points"], starts_of(found["num_points"]))
    samples = SampleTable(
        encode_paths([source.path for source in sources]),
        Places.of(source.place for source in sources),
        sizes[usable].astype(np.int32),
        starts_of(found["num_objects"][usable]),
        found["class_index"],  # an image that is left out has none
        found["boxes"],
        polygons if len(polygons.points_xy) else None,
    )
    return ScanReport(samples, remarks)


def _scan_one(image: ImageSource, num_classes: int, max_pixels: int) -> _Scanned:
    try:
        size, lacks_end = read_as(image.path, partial(image.check, max_pixels))
        found = image.read_labels(num_classes, size)
    except BrokenImageError as error:
        return (0, 0), None, [Remark("unusable_image", f"{image.path}: left out: {error}")]
    except BrokenLabelError as error:
        text = f"{image.path}: left out: {image.labels_at}: {error}"
        return (0, 0), None, [Remark(error.kind, text)]
    remarks = [
        Remark(kind, f"{image.labels_at}: {count(number, *_REMOVED[kind])} removed", number)
        for kind, number in found.removed.items()
        if number
    ]
    if lacks_end:
        remarks.append(Remark("no_end_mark", f"{image.path}: it is read without its end mark"))
    return size, found, [*remarks, *image.remarks(len(found.class_index))]
