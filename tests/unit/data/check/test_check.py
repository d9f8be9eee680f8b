"""The check finds every planted error and nothing else, in any format."""

from pathlib import Path

import pytest

from tests.unit.data.check.planted import EXPECTED, LEFT_OUT, write_planted
from utils.data.check.checking import check_dataset
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def check(planted):
    return check_dataset(load_dataset(planted))


def found_in(check, root):
    """Kind, file from the dataset's folder on, and place in it, of each finding."""
    found = []
    for finding in check.findings:
        where, _, place = finding.where.partition(".txt: ")
        where = f"{where}.txt" if place else where
        name = Path(where).relative_to(root).as_posix() if where.startswith(str(root)) else where
        found.append((finding.kind, name, place))
    return found


def test_every_planted_error_is_found_once_and_nothing_else(check, planted):
    found = found_in(check, planted.parent)
    assert set(found) == EXPECTED and len(found) == len(EXPECTED)


def test_the_images_that_are_left_out_are_those_that_training_leaves_out(check, planted):
    assert {image.source.path.name for image in check.left_out} == LEFT_OUT
    dataset = load_dataset(planted)
    for split in ("train", "val"):
        used = [x.source.path for x in check.images if x.split == split and x.is_used]
        assert used == [sample.image_path for sample in load_split(dataset, split)]
