"""The objects of images from COCO's instances JSON, with crowds and areas that labels lack."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from duet.backend.system import collector_paused
from duet.utils.data.masks.runs import areas
from duet.utils.data.sources.dataset_yaml import DatasetSpec
from duet.utils.data.sources.formats.coco import COCO
from duet.utils.data.sources.formats.coco_file import (
    BrokenInstancesError,
    Instance,
    Instances,
    Segmentation,
    read_instances,
)
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.label_file import BrokenLabelError, require_drawable
from duet.utils.data.sources.samples import Sample
from duet.utils.errors import UserError, brief
from duet.utils.geometry.boxes import Polygons, starts_of
from duet.utils.geometry.detections import GroundTruth, Ragged
from duet.utils.text import count


@dataclass(frozen=True, eq=False)
class CocoAnnotations:
    """The annotations of some images and classes in an instances JSON, in the given order."""

    objects: list[GroundTruth]  # per image, in pixels; without masks
    image_ids: list[int]
    category_ids: list[int]  # per class
    segmentations: Sequence[Sequence[Segmentation]] | None = None  # per image, if requested
    sizes: Sequence[tuple[int, int]] = ()  # (height, width) of each image

    def ground_truth(self, image: int) -> GroundTruth:
        """Return the objects of an image; masks are made at each call, to save memory."""
        objects = self.objects[image]
        if self.segmentations is None:
            return objects
        pairs = zip(self.segmentations[image], objects.boxes_xyxy, strict=True)
        runs = [segmentation.runs_over(self.sizes[image], box) for segmentation, box in pairs]
        masks = Ragged.of(runs, np.uint32)
        assert objects.area is not None
        area = np.where(np.isnan(objects.area), areas(masks), objects.area)
        return objects._replace(area=area, masks=masks)


def own_annotations(dataset: DatasetSpec, split: str) -> Path | None:
    """Return the instances JSON with a split's labels, crowds and areas; None if there is none."""
    pool = "train" if dataset.train_part is not None and split == "val" else split
    entries = getattr(dataset, pool)
    if dataset.single_class or dataset.merge or len(entries) != 1:
        return None
    if not isinstance(entries[0], AnnotatedFolder):
        return None
    return entries[0].annotations if entries[0].format == COCO.name else None


@collector_paused()
def read_coco_annotations(
    path: Path, samples: Sequence[Sample], class_names: Sequence[str], masks: bool = False
) -> CocoAnnotations:
    """Read the objects of the samples' images, found by file name; skip all other images.

    Crowds become regions in which no detection counts. The area, the outline's in COCO, decides
    how large an object is.

    masks: read the segmentations too; an object without one counts as its box.

    UserError: no such file, no instances JSON, an image or class that it lacks, an image of
    another size, an object of these images that is not valid in COCO's format.
    """
    try:
        found = read_instances(path)
        places = _images(found, samples)
        class_of, category_ids = _classes(found, class_names)
        of_images = [found.objects[place] for place in places]
        objects = [_ground_truth(found, mine, class_of, masks) for mine in of_images]
        image_ids = [found.images[place].id for place in places]
        if not masks:
            return CocoAnnotations(objects, image_ids, category_ids)
        segmentations = list(map(_segmentations, of_images, samples))
    except OSError as error:
        raise UserError(f"--annotations {path}: {error.strerror}") from error
    except BrokenInstancesError as error:
        raise UserError(f"--annotations {path}: {error}") from error
    sizes = [(sample.height, sample.width) for sample in samples]
    return CocoAnnotations(objects, image_ids, category_ids, segmentations, sizes)


def _images(found: Instances, samples: Sequence[Sample]) -> list[int]:
    by_name = defaultdict(list)
    for index, listed in enumerate(found.images):
        parts = PurePosixPath(listed.name.replace("\\", "/")).parts
        by_name[parts[-1] if parts else ""].append((index, parts))
    images = [_image(found, sample, by_name[sample.image_path.name]) for sample in samples]
    if len(set(images)) < len(images):
        raise BrokenInstancesError("two images of the dataset have one name there")
    return images


def _image(
    found: Instances, sample: Sample, candidates: Sequence[tuple[int, tuple[str, ...]]]
) -> int:
    """Return the image of a sample among images of its name: the one in the same folders."""
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
    sizes = zip(found.images[image].size, (sample.height, sample.width), strict=True)
    for key, (given, side) in zip(("height", "width"), sizes, strict=True):
        if given not in (0, side):
            raise BrokenInstancesError(
                f"{name} has {key} {given} there, but {side} as it is decoded"
            )
    return image


def _classes(found: Instances, class_names: Sequence[str]) -> tuple[dict[int, int], list[int]]:
    """Return the class of each category that has one, by id, and the first id of each class."""
    ids: dict[str, int] = {}
    for category in sorted(found.categories):
        ids.setdefault(category.name, category.id)
    for name in class_names:
        if name not in ids:
            raise BrokenInstancesError(
                f"no category is called {brief(name)}; its categories: {brief(list(ids))}"
            )
    index_of = {name: index for index, name in enumerate(class_names)}
    class_of = {
        category.id: index_of[category.name]
        for category in found.categories
        if category.name in index_of
    }
    return class_of, [ids[name] for name in class_names]


def _ground_truth(
    found: Instances, objects: Sequence[Instance], class_of: Mapping[int, int], masks: bool
) -> GroundTruth:
    for one in objects:
        if one.category_id not in class_of:
            names = {category.id: category.name for category in found.categories}
            name = brief(names.get(one.category_id, one.category_id))
            raise one.unusable(f"its category {name} is no class of the dataset")
    boxes = np.array([one.box_ltwh() for one in objects], np.float64).reshape(-1, 4)
    area = np.array([one.area() for one in objects], np.float64)
    if not masks:  # else the mask's area counts
        area = np.where(np.isnan(area), boxes[:, 2] * boxes[:, 3], area)
    boxes[:, 2:] += boxes[:, :2]
    class_index = np.array([class_of[one.category_id] for one in objects], np.int64)
    is_crowd = np.array([one.is_crowd() for one in objects], bool)
    return GroundTruth(class_index, boxes, is_crowd, area)


def _segmentations(objects: Sequence[Instance], sample: Sample) -> list[Segmentation]:
    """Return the segmentation of each object of an image.

    BrokenInstancesError: a mask of another size, or outlines that fill the memory.
    """
    size = sample.height, sample.width
    found = [one.segmentation() for one in objects]
    for one, segmentation in zip(objects, found, strict=True):
        if segmentation.runs is not None and segmentation.size != size:
            height, width = segmentation.size
            raise one.unusable(
                f"its mask is {width}x{height} px, but the image {size[1]}x{size[0]} px as it is "
                "decoded"
            )
    pieces = [piece for segmentation in found for piece in segmentation.pieces]
    points = np.concatenate([np.zeros((0, 2)), *pieces])
    try:
        require_drawable(Polygons(points, starts_of(np.array(list(map(len, pieces))))), size)
    except BrokenLabelError as error:
        raise BrokenInstancesError(f"{brief(sample.image_path.name)}: {error}") from error
    return found


def read_mask_annotations(
    path: Path, samples: Sequence[Sample], class_names: Sequence[str]
) -> CocoAnnotations:
    """Read annotations with masks; UserError also if no object has one."""
    found = read_coco_annotations(path, samples, class_names, masks=True)
    num_objects = sum(len(objects.class_index) for objects in found.objects)
    if num_objects and not any(map(any, found.segmentations or ())):
        raise UserError(
            f"--annotations {path}: none of its {count(num_objects, 'object')} has a "
            "segmentation, which masks require; use a file with segmentations, or omit the flag"
        )
    return found
