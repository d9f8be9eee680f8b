"""Datasets that are no label files train too: packed records, and a folder of Pascal VOC."""

import shutil

from duet.utils.data.records import __main__ as records
from tests.equal_runs import rows
from tests.shared_files import shared_path
from tests.train.short_runs import short_flags, start


def test_an_epoch_from_records_has_the_losses_and_metrics_of_one_from_files(tmp_path, monkeypatch):
    flags = [*short_flags(tmp_path), "--epochs", "1"]
    packed = tmp_path / "packed"
    monkeypatch.setattr("sys.argv", ["records", "pack", "--data", flags[1], "--out", str(packed)])
    records.main()
    files = start([*flags, "--name", "files"])
    found = start([*flags, "--name", "records", "--data", str(packed / "shapes.yaml")])
    assert float(rows(files)[0]["train/box_loss"]) > 0
    assert rows(found) == rows(files)


def test_an_epoch_trains_from_a_real_voc_folder(tmp_path):
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
