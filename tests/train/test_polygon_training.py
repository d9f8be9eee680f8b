"""A training on polygons with copy-paste: it resumes, and says when nothing is pasted."""

import dataclasses
import json

import numpy as np
import pytest
import yaml

import train
from tests.equal_runs import assert_equal_runs
from tests.small import write_small_dataset, write_tiny_model
from tests.train.short_runs import StopAt, folder_of, start
from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS
from utils.errors import UserError
from utils.processes.suspend import Suspended
from utils.state.checkpoint import load_checkpoint, save_checkpoint


def write_hyperparameters(folder, name, **changes):
    document = yaml.safe_load(DEFAULT_HYPERPARAMETERS.read_text(encoding="utf-8"))
    path = folder / name
    path.write_text(yaml.safe_dump({**document, **changes}), encoding="utf-8")
    return str(path)


def as_diamond(line):
    """Return the polygon between the middles of a box's sides; its box is the same."""
    number, *box = line.split()
    x, y, width, height = map(float, box)
    corners = np.array([[0, -height], [width, 0], [0, height], [-width, 0]]) / 2 + [x, y]
    return f"{number} " + " ".join(f"{value:.6f}" for value in corners.clip(0, 1).ravel())


def write_polygons(data):
    """Replace the boxes of a dataset's training images."""
    for path in (data.parent / "labels" / "train").glob("*.txt"):
        lines = path.read_text(encoding="utf-8").splitlines()
        path.write_text("\n".join(map(as_diamond, lines)), encoding="utf-8")


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    data, cfg = write_small_dataset(folder), write_tiny_model(folder)
    write_polygons(data)
    hyp = write_hyperparameters(folder, "hyp.yaml", copy_paste=0.5, degrees=20.0)
    return [
        "--data", str(data), "--cfg", str(cfg), "--hyp", hyp, "--img", "64", "--batch", "2",
        "--workers", "0", "--device", "cpu", "--epochs", "1", "--project", str(folder),
        "--noplots",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    start([*flags, "--name", "whole"])
    return folder_of(flags, "whole")


def test_a_suspended_run_on_polygons_ends_as_the_undisturbed_one(flags, whole, caplog):
    with pytest.raises(Suspended):
        start([*flags, "--name", "cut"], StopAt(3))
    start([*flags, "--name", "cut", "--resume", "auto"])
    assert_equal_runs(folder_of(flags, "cut"), whole)
    assert "nothing is pasted" not in caplog.text


def test_a_run_that_began_with_boxes_does_not_go_on_with_polygons(flags, tmp_path):
    run = [*flags, "--project", str(tmp_path)]
    with pytest.raises(Suspended):
        start(run, StopAt(2))
    (path,) = (tmp_path / "exp" / "weights").glob("state-*")
    stored = load_checkpoint(path)
    progress = json.loads(json.dumps(stored.header.progress))
    assert progress["data"]["val"]["polygons"] == ""
    del progress["data"]["train"]["polygons"]  # as states of an earlier version are
    header = dataclasses.replace(stored.header, progress=progress)
    save_checkpoint(path, dataclasses.replace(stored, header=header))
    with pytest.raises(UserError, match="split train, are polygons, and the run began with only"):
        start([*run, "--resume"])


def test_other_points_of_a_polygon_are_other_data(flags, tmp_path, monkeypatch):
    run = [*flags, "--project", str(tmp_path)]
    with pytest.raises(Suspended):
        start(run, StopAt(1))
    load_split = train.load_split

    def with_moved_point(*arguments):
        first, *others = load_split(*arguments)
        if first.polygons_norm is not None:  # the validation images have boxes alone
            points = first.polygons_norm.points_xy + np.float32(1e-3)
            moved = dataclasses.replace(first.polygons_norm, points_xy=points)
            first = dataclasses.replace(first, polygons_norm=moved)
        return [first, *others]

    monkeypatch.setattr(train, "load_split", with_moved_point)
    with pytest.raises(UserError, match="images or labels of --data, split train"):
        start([*run, "--resume"])


def test_one_line_says_that_boxes_cannot_be_pasted(flags, tmp_path, caplog):
    data = write_small_dataset(tmp_path)
    with pytest.raises(Suspended):
        start([*flags, "--data", str(data), "--project", str(tmp_path)], StopAt(1))
    assert caplog.text.count("copy_paste 0.5: nothing is pasted: no label") == 1
