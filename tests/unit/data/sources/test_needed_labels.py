"""Which datasets a task takes."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.sources.class_folders import FULL_BOX
from duet.utils.data.sources.needed_labels import check_labels
from duet.utils.data.sources.samples import Sample, SampleTable, table_of
from duet.utils.errors import DatasetError
from duet.utils.polygons import Polygons

PART = (0.5, 0.5, 0.2, 0.4)


def samples(*boxes_of_images, polygons: bool = False) -> SampleTable:
    return table_of(
        [
            Sample(
                Path("set") / "images" / f"{number}.jpg",
                40,
                60,
                np.zeros(len(boxes), np.int64),
                np.array(boxes, np.float32).reshape(-1, 4),
                polygons_norm=triangles(len(boxes)) if polygons else None,
            )
            for number, boxes in enumerate(boxes_of_images)
        ]
    )


def triangles(number: int) -> Polygons:
    points = np.tile(np.array([[0.4, 0.3], [0.6, 0.3], [0.5, 0.7]], np.float32), (number, 1))
    return Polygons(points, 3 * np.arange(number + 1))


@pytest.mark.parametrize("task", ["detect", "segment"])
def test_what_looks_for_objects_refuses_class_folders(task):
    with pytest.raises(DatasetError, match=r"pets: .*--task classify, or --cfg yolov5s-cls.yaml"):
        check_labels(task, samples([FULL_BOX], [FULL_BOX]), "pets", is_of_folders=True)


def test_labels_that_say_that_an_object_fills_its_image_are_detections():
    """They may be annotations of any format, or lie in records: no label file tells it."""
    check_labels("detect", samples([FULL_BOX], [FULL_BOX]), "frames")
    check_labels("segment", samples([FULL_BOX], polygons=True), "frames")


@pytest.mark.parametrize(
    "boxes", [([PART],), ([FULL_BOX], [PART]), ([FULL_BOX], []), ([FULL_BOX, FULL_BOX],)]
)
def test_a_classifier_refuses_boxes_and_detection_takes_them(boxes):
    with pytest.raises(DatasetError, match=r"pets: .*--task detect or --cfg yolov5s.yaml"):
        check_labels("classify", samples(*boxes), "pets")
    check_labels("detect", samples(*boxes), "pets")


def test_a_classifier_takes_images_that_one_object_fills():
    check_labels("classify", samples([FULL_BOX], [FULL_BOX]), "pets")


def test_segmentation_needs_one_polygon_at_least():
    with pytest.raises(DatasetError, match=r"pets: .*polygons.*--task detect"):
        check_labels("segment", samples([PART], [PART]), "pets")
    check_labels("segment", samples([PART], polygons=True), "pets")


def test_segmentation_tells_how_many_objects_are_boxes(caplog):
    mixed = samples([PART], [PART, FULL_BOX], polygons=True)
    polygons = Polygons(mixed.polygons_norm.points_xy[:3], np.array([0, 0, 3, 3]))
    with caplog.at_level(logging.INFO):
        check_labels("segment", dataclasses.replace(mixed, polygons_norm=polygons), "pets")
        check_labels("segment", mixed, "pets")
    assert caplog.messages == [
        "pets: 2 of 3 objects have no outline: their boxes count as their masks"
    ]
