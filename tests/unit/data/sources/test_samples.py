"""Samples as a table, the labels that each task needs of it, and the images of samples."""

import dataclasses
import logging
import pickle
import zlib
from contextlib import nullcontext
from pathlib import Path

import cv2
import numpy as np
import pytest

from duet.utils.data.image.decoding import choose_reduction
from duet.utils.data.sources.class_folders import FULL_BOX
from duet.utils.data.sources.image_sources import RecordPlace
from duet.utils.data.sources.samples import Sample, SampleTable, decode, table_of
from duet.utils.errors import DatasetError
from duet.utils.tasks import TASKS
from tests.unit.data.compared import assert_same_samples, make_polygons


def make_sample(number: int, num_boxes: int) -> Sample:
    boxes = np.arange(4 * num_boxes, dtype=np.float32).reshape(-1, 4) / 100 + number / 10
    classes = np.arange(num_boxes, dtype=np.int64) + number
    return Sample(Path(f"folder {number}") / "ä.jpg", 10 + number, 20 + number, classes, boxes)


def test_sample_table_keeps_polygons_beside_plain_boxes():
    outlines = np.arange(14, dtype=np.float32).reshape(7, 2) / 14
    polygons = {1: [outlines[:3], outlines[:0]], 3: [outlines[3:]]}
    samples = [make_sample(number, num_boxes) for number, num_boxes in enumerate((1, 2, 0, 1, 2))]
    for number, of_sample in polygons.items():
        found = make_polygons(of_sample, np.float32)
        samples[number] = dataclasses.replace(samples[number], polygons_norm=found)
    table = table_of(samples)
    assert_same_samples(table, samples)
    assert_same_samples(pickle.loads(pickle.dumps(table)), samples)  # as it is sent to a worker


@pytest.mark.parametrize("name", ["图.jpg", "é\udcff.jpg", "\ud800.jpg"])
def test_name_outside_the_locale_survives_the_table(name):
    (named,) = table_of([dataclasses.replace(make_sample(0, 1), image_path=Path(name))])
    assert named.image_path == Path(name)  # of a record file, which is written elsewhere


def with_everything() -> list[Sample]:
    """Samples with polygons, without objects, in record files and not."""
    samples = [make_sample(number, num_boxes) for number, num_boxes in enumerate((2, 0, 3, 1, 0))]
    outlines = make_polygons([np.full((3, 2), 0.5), np.zeros((0, 2))], np.float32)
    samples[0] = dataclasses.replace(samples[0], polygons_norm=outlines)
    for number, file in ((1, "a.ffr"), (3, "b.ffr"), (4, "a.ffr")):
        place = RecordPlace(Path("/records") / file, number, 2**40 + number, 7, 2**32 - 1)
        samples[number] = dataclasses.replace(samples[number], record=place)
    return samples


@pytest.mark.parametrize("chosen", [slice(1, 4), slice(None, None, -1), slice(0, 0), slice(2, 99)])
def test_slice_of_a_table_is_a_table(chosen):
    samples = with_everything()
    assert_same_samples(table_of(samples), samples)
    part = table_of(samples)[chosen]
    assert isinstance(part, SampleTable)
    assert_same_samples(part, samples[chosen])
    assert_same_samples(table_of(list(part)), samples[chosen])
    assert table_of(part) is part


def test_table_keeps_selected_objects():
    samples = with_everything()
    table = table_of(samples)
    kept = table.with_objects(np.array([False, True, True, False, True, False]))
    assert kept.num_objects.tolist() == [1, 0, 2, 0, 0]
    assert kept.image_of_object.tolist() == [0, 2, 2]
    assert kept.polygons_norm is None  # the only outline was of the first object
    np.testing.assert_array_equal(kept[2].class_index, samples[2].class_index[[0, 2]])
    np.testing.assert_array_equal(kept[2].boxes_cxcywh_norm, samples[2].boxes_cxcywh_norm[[0, 2]])
    assert kept[3].record == samples[3].record


PART = (0.5, 0.5, 0.2, 0.4)
TRIANGLE = np.array([[0.4, 0.3], [0.6, 0.3], [0.5, 0.7]], np.float32)


def samples(*boxes_of_images, outlined: bool = False) -> SampleTable:
    """Samples of one class; each object has these boxes, and a triangle if it is outlined."""
    return table_of([
        Sample(
            Path("set") / "images" / f"{number}.jpg", 40, 60, np.zeros(len(boxes), np.int64),
            np.array(boxes, np.float32).reshape(-1, 4),
            polygons_norm=make_polygons([TRIANGLE] * len(boxes), np.float32) if outlined else None,
        )
        for number, boxes in enumerate(boxes_of_images)
    ])  # fmt: skip


FULL, MIXED = samples([FULL_BOX], [FULL_BOX]), samples([FULL_BOX], [PART])
CLASSES_ASKED = "--task classify or --cfg yolov5s-cls.yaml"
BOXES_ASKED = "--task detect or --cfg yolov5s.yaml"


@pytest.mark.parametrize(
    ("task", "table", "is_of_folders", "refusal"),
    [
        ("detect", FULL, True, CLASSES_ASKED),
        ("segment", FULL, True, CLASSES_ASKED),
        # Annotations of any format, or records, may say that an object fills its image.
        ("detect", FULL, False, ""),
        ("segment", samples([FULL_BOX], outlined=True), False, ""),
        *((task, table, False, BOXES_ASKED if task == "classify" else "")
          for task in ("classify", "detect")
          for table in (MIXED, samples([PART]), samples([FULL_BOX], []), samples([FULL_BOX] * 2))),
        ("classify", FULL, False, ""),
        ("segment", samples([PART], [PART]), False, "polygons.*--task detect"),
        ("segment", samples([PART], outlined=True), False, ""),
    ],
)  # fmt: skip
def test_task_refuses_labels_it_cannot_learn_from(task, table, is_of_folders, refusal):
    with pytest.raises(DatasetError, match=f"pets: .*{refusal}") if refusal else nullcontext():
        TASKS[task].check_labels(table, "pets", is_of_folders=is_of_folders)


def test_segmentation_logs_how_many_objects_are_boxes(caplog):
    outlined = samples([PART], [PART, FULL_BOX], outlined=True)
    mixed = make_polygons([TRIANGLE[:0], TRIANGLE, TRIANGLE[:0]], np.float32)
    with caplog.at_level(logging.INFO):
        TASKS["segment"].check_labels(dataclasses.replace(outlined, polygons_norm=mixed), "pets")
        TASKS["segment"].check_labels(outlined, "pets")
    assert caplog.messages == [
        "pets: 2 of 3 objects have no outline: their boxes count as their masks"
    ]


@pytest.mark.parametrize(
    ("size", "long_side", "reduction"),
    [
        ((480, 640), 640, 1), ((480, 1279), 640, 1), ((1280, 480), 640, 2), ((480, 640), 320, 2),
        ((3000, 4000), 640, 4), ((6000, 9000), 640, 8), ((100, 100), 640, 1),
    ],
)  # fmt: skip
def test_reduction_keeps_the_needed_size(size, long_side, reduction):
    assert choose_reduction(size, long_side) == reduction


@pytest.mark.parametrize(
    ("packed", "message"),
    [(False, "was scanned; start again"), (True, "was packed; pack the dataset again")],
)
def test_changed_image_size_error_says_what_to_do(tmp_path, packed, message):
    path, image = tmp_path / "a.ffr", np.zeros((200, 133, 3), np.uint8)
    content = cv2.imencode(".jpg", image)[1].tobytes()
    path.write_bytes(content)
    place = RecordPlace(path, 0, 0, len(content), zlib.crc32(content)) if packed else None
    sample = Sample(path, 190, 133, *[np.zeros(0)] * 2, place)
    with pytest.raises(DatasetError, match=f"{path}: .*133x190 px when the dataset {message}"):
        decode(sample)


@pytest.mark.parametrize("reduction", [1, 2])
@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff no image"], ids=["empty", "broken"])
def test_undecodable_image_is_named(tmp_path, reduction, content):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    sample = Sample(path, 200, 133, np.zeros(0, np.int64), np.zeros((0, 4), np.float32))
    with pytest.raises(DatasetError, match=f"{path}: the image cannot be decoded"):
        decode(sample, reduction)
