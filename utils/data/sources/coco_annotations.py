"""The objects of images from COCO's instances JSON, with crowds and areas that labels lack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from duet.utils.data.masks.runs import areas
from duet.utils.data.sources.dataset_yaml import DatasetSpec
from duet.utils.data.sources.formats.coco import COCO
from duet.utils.data.sources.formats.coco_file import (
    BrokenInstancesError,
    Instances,
    Segments,
    read_instances,
)
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.label_file import BrokenLabelError, require_drawable
from duet.utils.data.sources.samples import Sample
from duet.utils.detections import GroundTruth
from duet.utils.errors import UserError, brief
from duet.utils.polygons import Polygons, starts_of
from duet.utils.ragged import Ragged


@dataclass(frozen=True, eq=False)
class CocoAnnotations:
    """The annotations of some images and classes in an instances JSON, in the given order."""

    objects: list[GroundTruth]  # per image, in pixels; without masks
    image_ids: list[int]
    category_ids: list[int]  # per class
    segments: Segments | None = None  # if masks were requested
    rows: Sequence[np.ndarray] = ()  # per image, its objects among the segments
    sizes: Sequence[tuple[int, int]] = ()  # (height, width) of each image

    @property
    def num_segmentations(self) -> int:
        """Number of objects with a mask or an outline, if masks were requested."""
        return sum(self.segments.count(rows) for rows in self.rows) if self.segments else 0

    def ground_truth(self, image: int) -> GroundTruth:
        """Return the objects of an image, with masks if requested.

        Masks are made at each call: those of a whole dataset would fill the memory.
        """
        objects = self.objects[image]
        if self.segments is None:
            return objects
        pairs = zip(self.rows[image].tolist(), objects.boxes_xyxy, strict=True)
        runs = [self.segments.runs_of(row, box, self.sizes[image]) for row, box in pairs]
        masks = Ragged.of(runs, np.uint32)
        assert objects.area is not None
        area = np.where(np.isnan(objects.area), areas(masks), objects.area)
        return objects._replace(area=area, masks=masks)


def own_annotations(dataset: DatasetSpec, split: str) -> Path | None:
    """Return the instances JSON that holds a split's labels; None if they lie elsewhere.

    Unlike labels, it has crowds and the areas of outlines.
    """
    pool = "train" if dataset.train_part is not None and split == "val" else split
    entries = getattr(dataset, pool)
    if dataset.single_class or len(entries) != 1 or not isinstance(entries[0], AnnotatedFolder):
        return None
    return entries[0].annotations if entries[0].format == COCO.name else None


def read_coco_annotations(
    path: Path, samples: Sequence[Sample], class_names: Sequence[str], masks: bool = False
) -> CocoAnnotations:
    """Read the objects of the samples' images, found by file name; skip all other images.

    Crowds become regions in which no detection counts. The area, the outline's in COCO, decides
    how large an object is.

    Args:
        masks: read the segmentations too; an object without one counts as its box.

    Raises:
        UserError: no such file, no instances JSON, an image or class that it lacks, an image of
            another size, an object of these images that is not valid in COCO's format.
    """
    try:
        found = read_instances(path, segments=masks, of_crowds=True)
        images = _images(found, samples)
        class_of, category_ids = _classes(found, class_names)
        rows_of = found.rows_of_images()
        rows = [rows_of[image] for image in images]
        objects = [_ground_truth(found, mine, class_of) for mine in rows]
        image_ids = [found.image_ids[image] for image in images]
        if found.segments is None:
            return CocoAnnotations(objects, image_ids, category_ids)
        for sample, mine in zip(samples, rows, strict=True):
            _check_segments(found, found.segments, mine, sample)
    except OSError as error:
        raise UserError(f"--annotations {path}: {error.strerror}") from error
    except BrokenInstancesError as error:
        raise UserError(f"--annotations {path}: {error}") from error
    sizes = [(sample.height, sample.width) for sample in samples]
    return CocoAnnotations(objects, image_ids, category_ids, found.segments, rows, sizes)


def _images(found: Instances, samples: Sequence[Sample]) -> list[int]:
    """Return the index of each sample's image."""
    by_name = defaultdict(list)
    for index, name in enumerate(found.file_names):
        parts = PurePosixPath(name.replace("\\", "/")).parts
        by_name[parts[-1] if parts else ""].append((index, parts))
    images = [_image(found, sample, by_name[sample.image_path.name]) for sample in samples]
    if len(set(images)) < len(images):
        raise BrokenInstancesError("two images of the dataset have one name there")
    return images


def _image(
    found: Instances, sample: Sample, candidates: Sequence[tuple[int, tuple[str, ...]]]
) -> int:
    """Return the image of a sample among those of its name: the one in the same folders."""
    name, path = sample.image_path.name, sample.image_path.parts
    if not candidates:
        raise BrokenInstancesError(f"no image is named {name}; use the file of this split")
    if len(candidates) > 1:
        candidates = [(index, parts) for index, parts in candidates if path[-len(parts) :] == parts]
    if len(candidates) != 1:
        raise BrokenInstancesError(
            f"several images are named {brief(name)}, and their folders do not identify the one in "
            "the dataset; use unique names"
        )
    ((image, _),) = candidates
    sizes = zip(found.sizes[image].tolist(), (sample.height, sample.width), strict=True)
    for key, (given, side) in zip(("height", "width"), sizes, strict=True):
        if given not in (0, side):
            raise BrokenInstancesError(
                f"{name} has {key} {given} there, but {side} as it is decoded"
            )
    return image


def _classes(found: Instances, class_names: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """Return the class of each category, -1 for none, and the first category of each class."""
    names = found.category_names
    index_of = {name: index for index, name in enumerate(class_names)}
    class_of = np.array([index_of.get(name, -1) for name in names], np.int64)
    ids: dict[str, int] = {}
    for identity, name in sorted(zip(found.category_ids, names, strict=True)):
        ids.setdefault(name, identity)
    for name in class_names:
        if name not in ids:
            raise BrokenInstancesError(
                f"no category is called {brief(name)}; its categories: {brief(list(ids))}"
            )
    return class_of, [ids[name] for name in class_names]


def _ground_truth(found: Instances, rows: np.ndarray, class_of: np.ndarray) -> GroundTruth:
    for row in rows.tolist():
        if fault := found.faults.get(row) or found.area_faults.get(row):
            raise BrokenInstancesError(fault)
        if class_of[found.category[row]] < 0:
            name = found.category_names[found.category[row]]
            raise BrokenInstancesError(
                f"{found.named(row)}: its category {brief(name)} is no class of the dataset"
            )
    boxes_xyxy, area = found.boxes_ltwh[rows], found.area[rows]
    if found.segments is None:  # else that of the mask counts
        area = np.where(np.isnan(area), boxes_xyxy[:, 2] * boxes_xyxy[:, 3], area)
    boxes_xyxy[:, 2:] += boxes_xyxy[:, :2]
    return GroundTruth(class_of[found.category[rows]], boxes_xyxy, found.is_crowd[rows], area)


def _check_segments(found: Instances, segments: Segments, rows: np.ndarray, sample: Sample) -> None:
    """Raise BrokenInstancesError for a mask of another size, or outlines that fill the memory."""
    size = sample.height, sample.width
    for row in rows[(segments.sizes[rows] != size).any(axis=1)].tolist():
        height, width = segments.sizes[row].tolist()
        if height:
            raise BrokenInstancesError(
                f"{found.named(row)}: its mask is {width}x{height} px, but the image "
                f"{size[1]}x{size[0]} px as it is decoded"
            )
    pieces = segments.pieces_of(rows.tolist())
    points = np.concatenate([np.zeros((0, 2)), *pieces])
    try:
        require_drawable(Polygons(points, starts_of(np.array(list(map(len, pieces))))), size)
    except BrokenLabelError as error:
        raise BrokenInstancesError(f"{brief(sample.image_path.name)}: {error}") from error
