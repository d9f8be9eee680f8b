"""Which states stay, and what last and best are; how equal data and batches are known again."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.loading.batch import Batch, Targets
from duet.utils.data.sources.samples import Sample
from duet.utils.errors import UserError
from duet.utils.geometry.boxes import Polygons
from duet.utils.state.files import StateFiles
from duet.utils.state.job import TrainData, describe_samples, require_equal_data
from duet.utils.state.run import WorkRecord
from duet.utils.weights.checkpoint import Checkpoint, load_checkpoint
from tests.unit.weights.test_checkpoint import HEADER


def state(number):
    header = dataclasses.replace(HEADER, batch_number=number)
    arrays = {"weight": np.full(3, number, np.float32)}
    return Checkpoint(header, arrays, arrays, {})


def numbers(folder):
    found = {}
    for path in sorted((folder / "weights").iterdir()):
        found[path.name.removesuffix(".safetensors")] = load_checkpoint(path).header.batch_number
    return found


@pytest.fixture(params=["links", "copies"])
def link_support(request, monkeypatch):
    """Hard links, or a file system that refuses them."""

    def refuse(*paths):
        raise OSError(1, "Operation not permitted")

    if request.param == "copies":
        monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("link_support")
@pytest.mark.parametrize(
    ("keep", "saved", "best", "left"),
    [
        (2, (1, 2, 3, 4), 2, {"best": 2, "last": 4, "state-00000003": 3, "state-00000004": 4}),
        # States of a future that a run has gone back from.
        (2, (7, 8, 3), None, {"last": 3, "state-00000003": 3}),
    ],
)
def test_newest_states_are_kept_and_best_outlives_its_state(tmp_path, keep, saved, best, left):
    files = StateFiles(tmp_path, keep)
    for number in saved:
        files.save(state(number), is_best=number == best)
    assert numbers(tmp_path) == left
    newest = [path.name for path in files.newest_first()]
    assert newest == [f"{name}.safetensors" for name in sorted(left, reverse=True) if "-" in name]


@pytest.mark.usefixtures("link_support")
def test_state_of_equal_number_replaces_the_earlier_one(tmp_path):
    files = StateFiles(tmp_path, keep=2)
    files.save(state(5), is_best=True)
    later = dataclasses.replace(state(5), optimizer={"momentum": np.arange(2)})
    files.save(later, is_best=False)
    found = {path.stem: load_checkpoint(path) for path in (tmp_path / "weights").iterdir()}
    kept = {name: len(checkpoint.optimizer) for name, checkpoint in found.items()}
    assert kept == {"best": 0, "last": 1, "state-00000005": 1}


@pytest.mark.usefixtures("link_support")
def test_state_with_an_extra_name_outlives_its_state(tmp_path):
    files = StateFiles(tmp_path, keep=1)
    files.save(state(3), is_best=False, also="epoch0")
    files.save(state(6), is_best=False)
    assert numbers(tmp_path) == {"epoch0": 3, "last": 6, "state-00000006": 6}
    files.remove_all()
    assert numbers(tmp_path) == {"epoch0": 3, "last": 6}


def test_failed_save_names_the_folder_and_the_intact_state(tmp_path, monkeypatch):
    files = StateFiles(tmp_path, keep=1)
    files.save(state(1), is_best=True)

    def refuse(*arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UserError) as error:
        files.save(state(2), is_best=True)
    for part in (
        str(files.folder / "state-00000002.safetensors"),
        "Read-only file system",
        "state-00000001",
        "--resume",
    ):
        assert part in str(error.value)
    monkeypatch.undo()
    assert numbers(tmp_path) == {"best": 1, "last": 1, "state-00000001": 1}


BOXES = np.array([[0.5, 0.5, 0.25, 0.25]], np.float32)
OUTLINE = Polygons(np.array([[0.4, 0.4], [0.6, 0.4], [0.5, 0.6]], np.float32), np.array([0, 3]))
FIRST = Sample(Path("a/1.jpg"), 40, 60, np.array([1]), BOXES, polygons_norm=OUTLINE)


def test_data_digest_ignores_folders():
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


def test_run_resumes_only_with_its_own_data():
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
    record.write(path / "work.json", {"device": "cpu"}, {"precision": "float32"}, losses)
    return json.loads((path / "work.json").read_text(), parse_constant=pytest.fail)


def test_equal_batches_give_equal_records(tmp_path):
    batches = make_batch(0), make_batch(1)
    losses = [np.array([0.1, 1 / 3]), np.array([np.nan, np.inf])]
    document = written(tmp_path, batches, losses)
    assert document == written(tmp_path, batches, losses)
    assert document["work"]["batches"] == 2 and document["work"]["precision"] == "float32"
    assert document["losses"] == [[0.1, pytest.approx(1 / 3, abs=1e-9)], [None, None]]


def test_different_work_gives_another_hash(tmp_path):
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
