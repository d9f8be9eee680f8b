"""Training from packed records, from a folder of Pascal VOC, and from images that --split drew."""

import logging
import shutil

import pytest
import yaml

import val
from duet.models.evaluation import validation
from duet.utils.cli.val_config import parse_val_flags
from duet.utils.data.records import __main__ as records
from duet.utils.errors import UserError
from duet.utils.processes.suspend import Suspended
from duet.utils.processes.world import ALONE
from duet.utils.state.job import describe_samples
from duet.utils.state.resume import load_state
from tests.environments import shared_path
from tests.small import write_small_dataset
from tests.train.short_runs import StopAt, rows, short_flags, start


def test_records_give_the_losses_and_metrics_of_files(tmp_path, monkeypatch):
    flags = [*short_flags(tmp_path), "--epochs", "1"]
    packed = tmp_path / "packed"
    monkeypatch.setattr("sys.argv", ["records", "pack", "--data", flags[1], "--out", str(packed)])
    records.main()
    files = start([*flags, "--name", "files"])
    found = start([*flags, "--name", "records", "--data", str(packed / "shapes.yaml")])
    assert float(rows(files)[0]["train/box_loss"]) > 0
    assert rows(found) == rows(files)


def test_real_voc_folder_trains_for_an_epoch(tmp_path):
    """The first images of bccd's lists, with its own XML files."""
    source, root = shared_path("data/bccd/voc"), tmp_path / "bccd"
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / folder).mkdir(parents=True)
    for split, number in (("train", 4), ("val", 2)):
        stems = (source / f"ImageSets/Main/{split}.txt").read_text().split()[:number]
        (root / f"ImageSets/Main/{split}.txt").write_text("\n".join(stems))
        for stem in stems:
            shutil.copy(source / f"JPEGImages/{stem}.jpg", root / "JPEGImages")
            shutil.copy(source / f"Annotations/{stem}.xml", root / "Annotations")
    run = start([*short_flags(tmp_path), "--epochs", "1", "--data", str(root), "--name", "run"])
    (row,) = rows(run)
    assert float(row["train/box_loss"]) > 0 and float(row["val/cls_loss"]) > 0


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """Of a run on 12 images of a dataset that has only images to train on."""
    folder = tmp_path_factory.mktemp("drawn")
    document = yaml.safe_load(write_small_dataset(folder).read_text())
    data = folder / "shapes" / "whole.yaml"
    data.write_text(yaml.safe_dump({"train": "images/train", "names": document["names"]}))
    return [*short_flags(folder), "--epochs", "1", "--data", str(data), "--split", "0.6"]


def drawn_lines(caplog):
    return [text for text in caplog.messages if "by --split" in text]


def test_val_and_resumed_run_use_the_images_of_the_run(flags, tmp_path, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    run = [*flags, "--project", str(tmp_path)]
    with pytest.raises(Suspended):
        start(run, StopAt(1))
    folder = tmp_path / "exp"
    assert yaml.safe_load((folder / "opt.yaml").read_text())["train_part"] == 0.6
    train_line, val_line = drawn_lines(caplog)
    assert train_line.startswith("train: ") and val_line.startswith("val: ")

    with pytest.raises(UserError, match=r"train_part is 0.5 instead of 0.6"):
        start([*run, "--resume", "--split", "0.5"])
    caplog.clear()
    start([*run, "--resume"])  # its samples are compared with those of the run
    assert drawn_lines(caplog) == [train_line, val_line]

    seen = []
    monkeypatch.setattr(validation, "run_validation", lambda *x: seen.extend(x[2]))
    weights = ["--weights", str(folder / "weights" / "last.safetensors")]
    val.run(parse_val_flags(["--data", flags[-3], *weights, "--split", "0.6"]), ALONE)
    assert drawn_lines(caplog)[-1] == val_line
    assert val_line.startswith(f"val: {len(seen)} of 12 images")
    assert describe_samples(seen) == load_state(weights[1]).header.progress["data"]["val"]
