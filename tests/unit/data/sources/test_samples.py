"""A table of samples gives back the samples it was made of."""

import dataclasses
import pickle
from pathlib import Path

import numpy as np

from tests.outlines import assert_same_polygons, make_polygons
from utils.data.sources.samples import Sample, table_of
from utils.polygons import Polygons


def make_sample(number: int, num_boxes: int) -> Sample:
    boxes = np.arange(4 * num_boxes, dtype=np.float32).reshape(-1, 4) / 100 + number / 10
    classes = np.arange(num_boxes, dtype=np.int64) + number
    return Sample(Path(f"folder {number}") / "ä.jpg", 10 + number, 20 + number, classes, boxes)


def test_every_field_of_every_sample_comes_back():
    samples = [make_sample(number, num_boxes) for number, num_boxes in enumerate((2, 0, 3, 0))]
    assert_same_samples(table_of(samples), samples)


def test_polygons_come_back_beside_samples_without_any():
    outlines = np.arange(14, dtype=np.float32).reshape(7, 2) / 14
    polygons = {1: [outlines[:3], outlines[:0]], 3: [outlines[3:]]}
    samples = [make_sample(number, num_boxes) for number, num_boxes in enumerate((1, 2, 0, 1, 2))]
    for number, of_sample in polygons.items():
        found = make_polygons(of_sample, np.float32)
        samples[number] = dataclasses.replace(samples[number], polygons_norm=found)
    table = table_of(samples)
    assert_same_samples(table, samples)
    assert_same_samples(pickle.loads(pickle.dumps(table)), samples)  # as it is sent to a worker


def assert_same_samples(table, samples):
    assert len(table) == len(samples)
    for index, sample in enumerate(samples):
        for field in dataclasses.fields(Sample):
            expected, found = getattr(sample, field.name), getattr(table[index], field.name)
            assert type(found) is type(expected), field.name
            if isinstance(expected, Polygons):
                assert_same_polygons(found, expected)
                continue
            np.testing.assert_array_equal(found, expected, err_msg=field.name)
            if isinstance(expected, np.ndarray):
                assert found.dtype == expected.dtype


def test_samples_without_any_object_have_tables_too():
    table = table_of([make_sample(0, 0)])
    assert table[0].boxes_cxcywh_norm.shape == (0, 4)
    assert table[0].class_index.shape == (0,)
