"""utils/state/work_record.py: equal batches in equal order hash alike, all others do not."""

import json

import numpy as np
import pytest

from duet.utils.data.loading.batch import Batch, Targets
from duet.utils.state.work_record import WorkRecord


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
