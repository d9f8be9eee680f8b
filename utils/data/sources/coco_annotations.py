"""The objects of images from COCO's instances JSON, with crowds and areas that labels lack.

Before: the samples of `labels.py`. After: a validation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from utils.data.sources.dataset_yaml import DatasetSpec
from utils.data.sources.formats.coco import COCO
from utils.data.sources.formats.coco_file import BrokenInstancesError, Instances, read_instances
from utils.data.sources.formats.coco_segments import Segments
from utils.data.sources.formats.format import AnnotatedFolder
from utils.data.sources.label_file import BrokenLabelError, require_drawable
from utils.data.sources.samples import Sample
from utils.detections import GroundTruth
from utils.errors import UserError, brief
from utils.masks.runs import areas
from utils.polygons import Polygons
from utils.ragged import Ragged


@dataclass(frozen=True, eq=False)
class CocoAnnotations:
    """What an instances JSON says of some images and classes, each in the order given."""

    objects: list[GroundTruth]  # of each image, pixels of the image; without masks
    image_ids: list[int]
    category_ids: list[int]  # of each class
    masks_of: Callable[[int], Ragged] | None = None  # those of the objects of an image
    num_segmentations: int = 0  # objects with one, where masks were asked for

    def ground_truth(self, image: int) -> GroundTruth:
        """Return the objects of an image, with masks if they were asked for.

        Masks are made at each call: those of a whole dataset would fill the memory.
        """
        objects = self.objects[image]
        if self.masks_of is None:
            return objects
        masks = self.masks_of(image)
        assert objects.area is not None
        area = np.where(np.isnan(objects.area), areas(masks), objects.area)
        return objects._replace(area=area, masks=masks)


def own_annotations(dataset: DatasetSpec, split: str) -> Path | None:
    """Return the instances JSON that holds a split's labels; None if they lie elsewhere.

    It says more than labels do: of crowds, and of the areas of outlines.
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
            another size, an object of these images that is not what COCO's format says.
    """
    try:
        instances = read_instances(path, outlines=False, segments=masks)
    except OSError as error:
        raise UserError(f"--annotations {path}: {error.strerror}") from error
    except BrokenInstancesError as error:
        raise UserError(f"--annotations {path}: {error}") from error
    return _View(path, instances).annotations(samples, class_names)


@dataclass(frozen=True)
class _View:
    """A file's content, with what its error texts need."""

    path: Path
    instances: Instances

    def annotations(self, samples: Sequence[Sample], class_names: Sequence[str]) -> CocoAnnotations:
        images = self._images(samples)
        class_of, category_ids = self._classes(class_names)
        rows_of = self._rows_of_images()
        objects = [self._ground_truth(rows_of(image), class_of) for image in images]
        image_ids = [self.instances.image_ids[image] for image in images]
        segments = self.instances.segments
        if segments is None:
            return CocoAnnotations(objects, image_ids, category_ids)
        num_segmentations = 0
        for sample, image in zip(samples, images, strict=True):
            rows = rows_of(image)
            self._check_masks(segments, rows, (sample.height, sample.width))
            self._check_pieces(segments, rows, sample)
            num_segmentations += segments.count(rows)

        def masks_of(place: int) -> Ragged:
            size = samples[place].height, samples[place].width
            rows = rows_of(images[place]).tolist()
            of_boxes = zip(rows, objects[place].boxes_xyxy, strict=True)
            return Ragged.of([segments.runs_of(row, box, size) for row, box in of_boxes], np.uint32)

        return CocoAnnotations(objects, image_ids, category_ids, masks_of, num_segmentations)

    def _error(self, text: str) -> UserError:
        return UserError(f"--annotations {self.path}: {text}")

    def _images(self, samples: Sequence[Sample]) -> list[int]:
        """Return the index of each sample's image."""
        by_name = defaultdict(list)
        for index, name in enumerate(self.instances.file_names):
            by_name[PurePosixPath(name.replace("\\", "/")).name].append(index)
        found = [self._image(sample, by_name[sample.image_path.name]) for sample in samples]
        if len(set(found)) < len(found):
            raise self._error("two images of the dataset have one name there")
        return found

    def _image(self, sample: Sample, candidates: Sequence[int]) -> int:
        """Return the image of a sample among those of its name: the one in the same folders."""
        if not candidates:
            raise self._error(
                f"no image is called {sample.image_path.name}; give the file of this split"
            )
        if len(candidates) > 1:
            path = sample.image_path.parts
            parts = [
                PurePosixPath(self.instances.file_names[index].replace("\\", "/")).parts
                for index in candidates
            ]
            candidates = [
                index
                for index, names in zip(candidates, parts, strict=True)
                if path[-len(names) :] == names
            ]
        if len(candidates) != 1:
            raise self._error(
                f"several images are called {brief(sample.image_path.name)}, and their folders do "
                "not tell which is that of the dataset; each name must differ"
            )
        self._check_size(sample, candidates[0])
        return candidates[0]

    def _check_size(self, sample: Sample, image: int) -> None:
        sizes = zip(
            self.instances.sizes[image].tolist(), (sample.height, sample.width), strict=True
        )
        for key, (said, side) in zip(("height", "width"), sizes, strict=True):
            if said not in (0, side):
                raise self._error(
                    f"{sample.image_path.name} has {key} {said} there, but {side} as it is decoded"
                )

    def _check_masks(self, segments: Segments, rows: np.ndarray, size: tuple[int, int]) -> None:
        for row in rows[(segments.sizes[rows] != size).any(axis=1)].tolist():
            height, width = segments.sizes[row].tolist()
            if height:
                raise self._error(
                    f"{self.instances.named(row)}: its mask is {width}x{height} px, but the image "
                    f"{size[1]}x{size[0]} px as it is decoded"
                )

    def _check_pieces(self, segments: Segments, rows: np.ndarray, sample: Sample) -> None:
        """Raise an error for pieces whose pixels would take minutes and gigabytes."""
        pieces = segments.pieces_of(rows).moved((1 / sample.width, 1 / sample.height))
        try:
            require_drawable(Polygons(pieces.points_xy.clip(0, 1), pieces.starts))
        except BrokenLabelError as error:
            raise self._error(f"{brief(sample.image_path.name)}: {error}") from error

    def _classes(self, class_names: Sequence[str]) -> tuple[np.ndarray, list[int]]:
        """Return the class of each category, -1 for none, and the first category of each class."""
        names = self.instances.category_names
        index_of = {name: index for index, name in enumerate(class_names)}
        class_of = np.array([index_of.get(name, -1) for name in names], np.int64)
        ids: dict[str, int] = {}
        for identity, name in sorted(zip(self.instances.category_ids, names, strict=True)):
            ids.setdefault(name, identity)
        for name in class_names:
            if name not in ids:
                raise self._error(
                    f"no category is called {brief(name)}; its categories: {brief(list(ids))}"
                )
        return class_of, [ids[name] for name in class_names]

    def _rows_of_images(self) -> Callable[[int], np.ndarray]:
        """Return what returns the objects of an image, in the file's order."""
        order = np.argsort(self.instances.image, kind="stable")
        sorted_images = self.instances.image[order]

        def rows_of(image: int) -> np.ndarray:
            first, end = np.searchsorted(sorted_images, (image, image + 1))
            return order[first:end]

        return rows_of

    def _ground_truth(self, rows: np.ndarray, class_of: np.ndarray) -> GroundTruth:
        found = self.instances
        for row in rows.tolist():
            if fault := found.faults.get(row) or found.area_faults.get(row):
                raise self._error(fault)
            if class_of[found.category[row]] < 0:
                name = found.category_names[found.category[row]]
                raise self._error(
                    f"{found.named(row)}: its category {brief(name)} is no class of the dataset"
                )
        boxes_xyxy, area = found.boxes_ltwh[rows], found.area[rows]
        if found.segments is None:  # else that of the mask counts
            area = np.where(np.isnan(area), boxes_xyxy[:, 2] * boxes_xyxy[:, 3], area)
        boxes_xyxy[:, 2:] += boxes_xyxy[:, :2]
        return GroundTruth(class_of[found.category[rows]], boxes_xyxy, found.is_crowd[rows], area)
