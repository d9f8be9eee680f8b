"""Sample -> image and targets of a batch: the part of loading that depends on the task."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from duet.utils.data.augment.class_sample import (
    ClassAugmentation,
    augment_class,
    draw_class_augmentation,
    fill,
    shortest_side,
)
from duet.utils.data.augment.sample import augment, draw_augmentation
from duet.utils.data.image.decoding import LabelledImage, SourceImage
from duet.utils.data.image.letterbox import (
    Letterbox,
    centre_region,
    crop,
    fit_long_side,
    fitting_long_side,
    letterbox,
    resize,
)
from duet.utils.data.loading.batch import TargetMasks, Targets
from duet.utils.data.masks.raster import index_map, separate
from duet.utils.data.masks.runs import areas, runs_of_polygons
from duet.utils.data.sources.class_folders import fill_images
from duet.utils.data.sources.samples import Sample, SampleTable, ground_truth, objects_of
from duet.utils.errors import DatasetError
from duet.utils.geometry.boxes import (
    Polygons,
    corners_of,
    starts_of,
    without_outlines,
    xyxy_to_cxcywh,
)
from duet.utils.geometry.detections import GroundTruth, Ragged
from duet.utils.strengths import AugmentConfig
from duet.utils.text import count

log = logging.getLogger("data")


@dataclass(frozen=True)
class BoxItems:
    """Images with boxes: mosaics and other augmentations; letterboxed in a validation.

    Loaders send it to their workers. Other tasks derive from it.

    Attributes:
        has_rectangles: batches of a validation may be rectangles.
    """

    has_rectangles = True

    def with_masks(self, ratio: int, overlap: bool) -> BoxItems:
        """Return items with masks as --mask-ratio and --no-overlap ask for, if they have any."""
        return self

    def require_labels(self, samples: SampleTable, name: str, is_of_folders: bool) -> None:
        """Raise DatasetError if the labels of the dataset `name` belong to another task.

        is_of_folders: folder names are the labels.
        """
        if is_of_folders:  # labels of objects that fill their image are accepted
            raise DatasetError(
                f"{name}: its images are in folders named for their classes, and where an object "
                "lies is not labelled; they are for a classifier, trained with --task classify or "
                "--cfg yolov5s-cls.yaml"
            )

    def kept_size(self, size: tuple[int, int], image_size: int) -> tuple[int, int]:
        """Return the (height, width) at which a training image is cached: never enlarged."""
        return fit_long_side(size, min(image_size, max(size)), size).resized_size

    def draw(
        self, strengths: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
    ) -> Any:
        """Draw the augmentation of sample `index`, with as many draws for any strengths.

        `samples` of the result are those that the item shows.
        """
        return draw_augmentation(strengths, generator, index, num_samples)

    def make(
        self,
        drawn: Any,
        sources: Sequence[SourceImage],
        image_size: int,
        output_size: tuple[int, int],
    ) -> LabelledImage:
        """Return the training image of a draw, of output_size; `sources` are its samples."""
        return augment(drawn, sources, image_size, output_size)

    def place(
        self,
        size: tuple[int, int],
        image_size: int,
        input_size: tuple[int, int],
        is_fixed: bool = False,
    ) -> Letterbox:
        """Return where an image of a validation lies in the network's input.

        Args:
            size: (height, width) of the image.
            image_size: the value of --img.
            input_size: (height, width) of the batch.
            is_fixed: the network takes no other size than input_size.
        """
        long_side = fitting_long_side(size, input_size) if is_fixed else image_size
        return fit_long_side(size, long_side, input_size)

    def resize(self, image: np.ndarray, placement: Letterbox) -> np.ndarray:
        """Return a decoded image of a validation at `placement.resized_size`; caches keep that."""
        return resize(image, placement.resized_size)

    def fit(self, item: LabelledImage, placement: Letterbox) -> LabelledImage:
        """Put a resized image, with labels in pixels of the file, into the network's input."""
        return LabelledImage(letterbox(item.image, placement), *item.objects.placed(placement))

    def targets(self, item: LabelledImage) -> Targets:
        height, width = item.size
        boxes = xyxy_to_cxcywh(item.boxes_xyxy) / [width, height, width, height]
        image_index = np.zeros(len(item.class_index), np.int64)
        return Targets(image_index, item.class_index, boxes.astype(np.float32))

    def ground_truth(self, sample: Sample) -> GroundTruth:
        """Return a sample's labels as the evaluator takes them, in pixels of its image."""
        return ground_truth(sample)


@dataclass(frozen=True)
class MaskItems(BoxItems):
    """Images of `BoxItems`, whose targets have masks; without an outline, the mask is the box."""

    ratio: int = 4  # image side / map side
    overlap: bool = True  # one map an image, the smaller objects on top; else one an object

    def with_masks(self, ratio: int, overlap: bool) -> MaskItems:
        return MaskItems(ratio, overlap)

    def require_labels(self, samples: SampleTable, name: str, is_of_folders: bool) -> None:
        super().require_labels(samples, name, is_of_folders)
        if samples.polygons_norm is None:
            raise DatasetError(
                f"{name}: its labels are boxes, but masks need polygons: a line 'class x1 y1 x2 y2 "
                "x3 y3 ...' per object; add polygons, or train a detector with --task detect or "
                "--cfg yolov5s.yaml"
            )
        num_objects = len(samples.class_index)
        if missing := num_objects - int(np.count_nonzero(samples.polygons_norm.num_points)):
            text = "%s: %s of %s have no outline: their boxes count as their masks"
            log.info(text, name, f"{missing:,}", count(num_objects, "object"))

    def targets(self, item: LabelledImage) -> Targets:
        targets = super().targets(item)
        outlines = complete_outlines(item.polygons, item.boxes_xyxy)
        num_objects = len(outlines)
        if self.overlap:
            numbers, value = index_map(outlines, item.size, self.ratio)
            masks = TargetMasks(numbers[None], np.zeros(num_objects, np.int64), value)
        else:
            maps = separate(outlines, item.size, self.ratio)
            masks = TargetMasks(maps, np.arange(num_objects), np.ones(num_objects, np.int64))
        return targets._replace(masks=masks)

    def ground_truth(self, sample: Sample) -> GroundTruth:
        """Return the labels with the pixels that pycocotools gives their outlines; an object
        without one is its box.
        """
        labels = super().ground_truth(sample)
        outlines = complete_outlines(objects_of(sample).polygons, labels.boxes_xyxy)
        size = sample.height, sample.width
        rows = [runs_of_polygons([outlines.outline(i)], size) for i in range(len(outlines))]
        masks = Ragged.of(rows, np.uint32)
        return labels._replace(area=areas(masks), masks=masks)


def complete_outlines(polygons: Polygons | None, boxes_xyxy: np.ndarray) -> Polygons:
    """Return an outline of each object: its own, or its box (M, 4) of the same unit."""
    num_objects = len(boxes_xyxy)
    polygons = polygons or without_outlines(num_objects)
    missing = polygons.num_points == 0
    num_points = np.where(missing, 4, polygons.num_points)
    is_corner = np.repeat(missing, num_points)
    points = np.empty((len(is_corner), 2))
    points[~is_corner] = polygons.points_xy
    points[is_corner] = corners_of(boxes_xyxy[missing]).reshape(-1, 2)
    return Polygons(points, starts_of(num_points))


@dataclass(frozen=True)
class ClassItems(BoxItems):
    """Images of one class each: random crops for training, centre crops for validation.

    They are squares of --img pixels; the targets are one box each, which fills the image.
    """

    has_rectangles = False

    def require_labels(self, samples: SampleTable, name: str, is_of_folders: bool) -> None:
        if not fill_images(samples):
            raise DatasetError(
                f"{name}: its labels are objects in parts of images, but a classifier needs one "
                "class per image: folders named for classes, such as train/cat and val/cat; or "
                "train a detector with --task detect or --cfg yolov5s.yaml"
            )

    def kept_size(self, size: tuple[int, int], image_size: int) -> tuple[int, int]:
        scale = min(1, image_size / shortest_side(size))  # then no crop is enlarged
        return math.ceil(size[0] * scale), math.ceil(size[1] * scale)

    def draw(
        self, strengths: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
    ) -> ClassAugmentation:
        return draw_class_augmentation(strengths, generator, index)

    def make(
        self,
        drawn: ClassAugmentation,
        sources: Sequence[SourceImage],
        image_size: int,
        output_size: tuple[int, int],
    ) -> LabelledImage:
        return augment_class(drawn, sources[0], output_size)

    def place(
        self,
        size: tuple[int, int],
        image_size: int,
        input_size: tuple[int, int],
        is_fixed: bool = False,
    ) -> Letterbox:
        """Return how the middle of an image fills the input, as if there were no more of it."""
        output_size = input_size if is_fixed else (image_size, image_size)
        return centre_region(size, output_size).placement(output_size)

    def resize(self, image: np.ndarray, placement: Letterbox) -> np.ndarray:
        output_size = placement.resized_size
        return crop(image, centre_region(image.shape[:2], output_size), output_size)

    def fit(self, item: LabelledImage, placement: Letterbox) -> LabelledImage:
        return fill(item.image, item.class_index)


BOXES = BoxItems()
MASKS = MaskItems()
CLASSES = ClassItems()
