"""How a run knows equal data again, and a comparison equal batches: by their digests."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.loading.batch import Batch, Targets
from duet.utils.data.sources.samples import Sample
from duet.utils.errors import UserError
from duet.utils.polygons import Polygons
from duet.utils.state.job import TrainData, describe_samples, require_equal_data
from duet.utils.state.run import WorkRecord
from tests.unit.weights.test_checkpoint import HEADER

BOXES = np.array([[0.5, 0.5, 0.25, 0.25]], np.float32)
OUTLINE = Polygons(np.array([[0.4, 0.4], [0.6, 0.4], [0.5, 0.6]], np.float32), np.array([0, 3]))
FIRST = Sample(Path("a/1.jpg"), 40, 60, np.array([1]), BOXES, polygons_norm=OUTLINE)


def test_a_digest_is_of_names_sizes_labels_and_outlines_but_not_of_folders():
    found = describe_samples([FIRST])
    assert describe_samples([dataclasses.replace(FIRST, image_path=Path("b/1.jpg"))]) == found
    moved = dataclasses.replace(OUTLINE, points_xy=OUTLINE.points_xy + np.float32(1e-3))
    changes = {
        "image_path": Path("a/2.jpg"), "height": 41, "class_index": np.array([2]),
        "boxes_cxcywh_norm": BOXES + np.float32(1e-3), "polygons_norm": moved,
    }  # fmt: skip
    for name, value in changes.items():
        other = describe_samples([dataclasses.replace(FIRST, **{name: value})])
        assert other != found
        assert (other["sha256"] == found["sha256"]) == (name == "polygons_norm")
    assert describe_samples([dataclasses.replace(FIRST, polygons_norm=None)])["polygons"] == ""


def test_a_run_goes_on_with_its_own_data_alone():
    data = TrainData(HEADER.class_names, [FIRST], [FIRST])
    header = dataclasses.replace(HEADER, progress={"data": data.digests})
    require_equal_data(header, data)
    with pytest.raises(UserError, match="classes of --data have changed"):
        require_equal_data(header, TrainData(("other",), [FIRST], [FIRST]))
    with pytest.raises(UserError, match=r"split val, .* \(2 images now, 1 then\)"):
        require_equal_data(header, TrainData(HEADER.class_names, [FIRST], [FIRST, FIRST]))


def make_batch(seed):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (2, 3, 64, 64), np.uint8)
    boxes = generator.random((3, 4), np.float32)
    targets = Targets(np.array([0, 0, 1]), np.array([1, 2, 0]), boxes)
    return Batch(images, targets, np.array([0, 1]), (), np.array([0, 1]))


def written(path, batches, losses=()):
    """The file of a run that was resumed after its first batch."""
    record = WorkRecord()
    for batch in batches:
        record, before = WorkRecord(), record
        record.restore(json.loads(json.dumps(before.state())))
        record.add_batch(batch)
    record.write(path / "work.json", "PyTorch", "cpu", {"precision": "float32"}, {}, losses)
    return json.loads((path / "work.json").read_text(), parse_constant=pytest.fail)


def test_equal_batches_give_an_equal_record_and_losses_are_null_where_not_finite(tmp_path):
    batches = make_batch(0), make_batch(1)
    losses = [np.array([0.1, 1 / 3]), np.array([np.nan, np.inf])]
    document = written(tmp_path, batches, losses)
    assert document == written(tmp_path, batches, losses)
    assert document["work"]["batches"] == 2 and document["work"]["precision"] == "float32"
    assert document["losses"] == [[0.1, pytest.approx(1 / 3, abs=1e-9)], [None, None]]


def test_any_other_work_gives_another_hash(tmp_path):
    one, two = make_batch(0), make_batch(1)
    boxes = two.targets.boxes_cxcywh_norm.copy()
    boxes[2, 3] += 1e-6
    others = {
        "order": (two, one),
        "number": (one,),
        "pixels": (one, two._replace(images=np.minimum(two.images, 250) + 5)),
        "box": (one, two._replace(targets=two.targets._replace(boxes_cxcywh_norm=boxes))),
        "samples": (one, two._replace(sample_indices=two.sample_indices[::-1])),
        "shape": (one, two._replace(images=two.images.reshape(2, 3, 32, 128))),
    }
    reference = written(tmp_path, (one, two))["work"]["batches_sha1"]
    for name, batches in others.items():
        assert written(tmp_path, batches)["work"]["batches_sha1"] != reference, name
