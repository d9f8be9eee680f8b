"""A training on polygons with every augmentation, interrupted and resumed; transforms of a file."""

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.processes.suspend import Suspended
from tests.small import write_small_dataset
from tests.train.short_runs import StopAt, assert_equal_runs, folder_of, short_flags, start


def as_diamond(line):
    """Return the polygon between the middles of a box's sides; its box is the same."""
    number, *box = line.split()
    x, y, width, height = map(float, box)
    corners = np.array([[0, -height], [width, 0], [0, height], [-width, 0]]) / 2 + [x, y]
    return f"{number} " + " ".join(f"{value:.6f}" for value in corners.clip(0, 1).ravel())


@pytest.fixture
def flags(tmp_path):
    """train.py's flags: three epochs, the last without mosaics, of six batches of two images."""
    data = write_small_dataset(tmp_path)
    for path in (data.parent / "labels" / "train").glob("*.txt"):
        path.write_text("\n".join(map(as_diamond, path.read_text().splitlines())))
    strengths = "mixup=0.7", "flipud=0.5", "degrees=10", "copy_paste=0.5"
    more = ("--batch", 2, "--epochs", 3, "--close-mosaic", 1, "--override", *strengths)
    return short_flags(tmp_path, *more, "--albumentations", 0.5, data=data)


def test_resuming_with_every_augmentation_is_exact(flags, tmp_path, caplog):
    start([*flags, "--name", "whole"])
    for stop in (3, 8):  # in the middle of the first and of the second epoch
        with pytest.raises(Suspended):
            start([*flags, "--name", "cut", "--resume", "auto"], StopAt(stop))
    start(["--project", str(tmp_path), "--name", "cut", "--resume", "auto"])
    folder = folder_of(flags[:-2], "cut")
    assert_equal_runs(folder, folder_of(flags[:-2], "whole"))
    assert "nothing is pasted" not in caplog.text


def test_run_does_not_resume_with_other_transforms(flags, tmp_path):
    with pytest.raises(Suspended):
        start([*flags, "--name", "cut"], StopAt(2))
    with pytest.raises(UserError, match="albumentations is .*0.4.* instead of .*0.5"):
        start([*flags, "--albumentations", "0.4", "--name", "cut", "--resume", "auto"])
