"""utils/state/work_record.py: equal batches in equal order hash alike, all others do not."""

import json

import numpy as np
import pytest

from utils.data.loading.batch import Batch, Targets
from utils.state.work_record import WorkRecord


def make_batch(seed=0, size=64, first_index=0):
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (2, 3, size, size), np.uint8)
    boxes = generator.random((3, 4), np.float32)
    targets = Targets(np.array([0, 0, 1]), np.array([1, 2, 0]), boxes)
    indices = np.array([first_index, first_index + 1])
    return Batch(images, targets, indices, (), indices)


def written(path, *batches):
    record = WorkRecord()
    for batch in batches:
        record.add_batch(batch)
    losses = [np.array([0.1, 0.2, number / 3]) for number in range(len(batches))]
    record.write(path / "work.json", "PyTorch", "cpu", {"precision": "float32"}, {}, losses)
    return json.loads((path / "work.json").read_text())


def brighter(batch):
    return batch._replace(images=np.minimum(batch.images, 250) + 5)


def moved_box(batch):
    boxes = batch.targets.boxes_cxcywh_norm.copy()
    boxes[2, 3] += 1e-6
    return batch._replace(targets=batch.targets._replace(boxes_cxcywh_norm=boxes))


def test_equal_batches_give_an_equal_record_and_the_losses_are_kept(tmp_path):
    batches = make_batch(0), make_batch(1)
    document = written(tmp_path, *batches)
    assert document == written(tmp_path, *batches)
    assert document["work"]["batches"] == 2 and document["work"]["precision"] == "float32"
    assert document["losses"] == [[0.1, 0.2, 0.0], [0.1, 0.2, pytest.approx(1 / 3, abs=1e-9)]]


def test_a_loss_that_is_not_finite_is_null(tmp_path):
    path = tmp_path / "work.json"
    WorkRecord().write(path, "PyTorch", "cpu", {}, {}, [np.array([0.5, np.nan, np.inf])])
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["losses"] == [[0.5, None, None]]


@pytest.mark.parametrize(
    "change",
    [
        lambda one, two: (two, one),
        lambda one, two: (one,),
        lambda one, two: (one, brighter(two)),
        lambda one, two: (one, moved_box(two)),
        lambda one, two: (one, two._replace(sample_indices=two.sample_indices[::-1])),
        lambda one, two: (one, two._replace(images=two.images.reshape(2, 3, 32, 128))),
    ],
    ids=["order", "number", "pixels", "box", "samples", "shape"],
)
def test_any_other_work_gives_another_hash(tmp_path, change):
    one, two = make_batch(0), make_batch(1)
    reference = written(tmp_path, one, two)["work"]["batches_sha1"]
    assert written(tmp_path, *change(one, two))["work"]["batches_sha1"] != reference


def test_a_record_that_was_stored_in_between_is_that_of_all_batches(tmp_path):
    batches = make_batch(0), make_batch(1), make_batch(2)
    first, second = WorkRecord(), WorkRecord()
    first.add_batch(batches[0])
    second.restore(json.loads(json.dumps(first.state())))
    for batch in batches[1:]:
        second.add_batch(batch)
    second.write(tmp_path / "resumed.json", "PyTorch", "cpu", {}, {}, [])
    found = json.loads((tmp_path / "resumed.json").read_text())["work"]
    whole = written(tmp_path, *batches)["work"]
    assert found == {name: whole[name] for name in ("batches", "batches_sha1")}
