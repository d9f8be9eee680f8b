"""Packing what has its labels in annotations: the same samples packed, and unpacked again."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.records.packing import label_text
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import Sample
from duet.utils.data.sources.splits import load_split
from tests.unit.data.compared import EVERYTHING, assert_same_polygons, digest, make_polygons
from tests.unit.data.formats.annotation_files import HEIGHT, WIDTH, coco, coco_object, write
from tests.unit.data.records.test_dataset import run

SIZE = 60, 80  # height, width


def test_degenerate_outline_is_written_as_its_box():
    point = make_polygons([np.full((4, 2), 0.5)], np.float32)
    box = np.float32([[0.25, 0.5, 0.125, 0.75]])
    sample = Sample(Path("a.png"), *SIZE, np.zeros(1, np.int64), box, None, point)
    assert label_text(sample) == b"0 0.25 0.5 0.125 0.75\n"


@pytest.fixture
def dataset(tmp_path) -> Path:
    """Two splits of a COCO export: outlines of one part and several, boxes, backgrounds, crowds."""
    random = np.random.Generator(np.random.Philox(1))
    for split, number in (("train", 5), ("valid", 2)):
        objects, names = [], [f"{image} größe.png" for image in range(number)]
        for place in range(6 * (number - 1)):
            index = place % 6
            parts = random.uniform(0, 90, (1 + index % 2, 5, 2)).round(2)
            low, high = parts.min(axis=(0, 1)), parts.max(axis=(0, 1))
            outline = [] if index == 4 else parts.reshape(len(parts), -1).tolist()
            more = {"category_id": (2, 5)[index % 2], "iscrowd": int(index == 5)}
            box = [*low.tolist(), *(high - low).tolist()]
            objects.append(coco_object(box, outline, 7 + place // 6, **more))
        for name in names:
            (tmp_path / "cells" / split).mkdir(parents=True, exist_ok=True)
            pixels = random.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
            assert cv2.imwrite(str(tmp_path / "cells" / split / name), pixels)
        write(tmp_path / "cells" / split / "_annotations.coco.json", coco(objects, names))
    return tmp_path / "cells"


def test_packed_and_unpacked_batches_are_identical(dataset, tmp_path):
    packed, unpacked = tmp_path / "packed/cells.yaml", tmp_path / "unpacked/cells.yaml"
    run("pack", "--data", dataset, "--out", packed.parent)
    run("unpack", "--data", packed, "--out", unpacked.parent)
    digests = []
    for data in (dataset, packed, unpacked):
        spec = load_dataset(data)
        assert spec.class_names == ("cat", "dog", "owl")
        for split, number in (("train", 5), ("val", 2)):
            samples, expected = load_split(spec, split), load_split(load_dataset(dataset), split)
            assert len(samples) == number
            for ours, theirs in zip(samples, expected, strict=True):
                np.testing.assert_array_equal(ours.class_index, theirs.class_index)
                # The box of an outline is computed from it again, in float32.
                boxes = ours.boxes_cxcywh_norm, theirs.boxes_cxcywh_norm
                np.testing.assert_allclose(*boxes, atol=1e-6)
                if len(theirs.class_index):
                    assert len(theirs.class_index) == 5  # the crowd is no label
                    assert_same_polygons(ours.polygons_norm, theirs.polygons_norm)
                    plain = theirs.polygons_norm.num_points == 0
                    assert plain.any() and (boxes[0][plain] == boxes[1][plain]).all()
        samples = load_split(spec, "train")
        with TrainLoader(samples, TrainRecipe(64, 2, EVERYTHING, seed=3)) as loader:
            digests.append([digest(batch) for batch in loader.epoch(0)])
    assert digests[1] == digests[2] and len(set(digests[1])) == 3


def test_class_folders_keep_their_classes_when_packed(tmp_path):
    random = np.random.Generator(np.random.Philox(2))
    for split, name in (("train", "cat/1"), ("train", "Hund ü/1"), ("val", "Hund ü/1")):
        path = tmp_path / "pets" / split / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        encoded = cv2.imencode(".png", random.integers(0, 256, (*SIZE, 3), np.uint8))[1]
        path.write_bytes(encoded.tobytes())
    packed, unpacked = tmp_path / "packed/pets.yaml", tmp_path / "unpacked/pets.yaml"
    run("pack", "--data", tmp_path / "pets", "--out", packed.parent)
    run("unpack", "--data", packed, "--out", unpacked.parent)
    for data in (tmp_path / "pets", packed, unpacked):
        spec = load_dataset(data)
        assert spec.class_names == ("Hund ü", "cat")
        for split, classes in (("train", [0, 1]), ("val", [0])):
            samples = load_split(spec, split)
            assert samples.class_index.tolist() == classes
            assert samples.boxes_cxcywh_norm.tolist() == [[0.5, 0.5, 1, 1]] * len(classes)
    assert (tmp_path / "unpacked/train/cat/1.png").is_file()
