"""Which images and classes of a split a training sees."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.small import write_small_dataset
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import choose_part, load_split
from utils.errors import DatasetError, UserError

NAMES = [Path(f"folder/{number:06}.jpg") for number in range(4000)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_small_dataset(tmp_path_factory.mktemp("data"))


def test_a_fraction_is_about_that_part_in_the_old_order():
    for fraction in (0.05, 0.3, 0.9):
        chosen = choose_part(NAMES, fraction)
        # Five standard deviations of a binomial.
        allowed = 5 * np.sqrt(len(NAMES) * fraction * (1 - fraction))
        assert abs(len(chosen) - fraction * len(NAMES)) < allowed
        assert list(chosen) == sorted(chosen)
    assert choose_part(NAMES, 1.0) == NAMES


def test_an_image_stays_chosen_whatever_comes_or_goes():
    chosen = set(choose_part(NAMES, 0.4))
    assert set(choose_part(NAMES[::3], 0.4)) == chosen & set(NAMES[::3])
    moved = [Path("elsewhere", path.name) for path in NAMES]
    assert {path.name for path in choose_part(moved, 0.4)} == {path.name for path in chosen}
    assert chosen < set(choose_part(NAMES, 0.5))


def test_a_fraction_of_nothing_is_refused():
    with pytest.raises(UserError, match="--fraction 1e-09: none of 5 images is left; use a larger"):
        choose_part(NAMES[:5], 1e-9)


def test_a_split_is_read_in_part_when_asked(data):
    dataset = load_dataset(data)
    whole = [sample.image_path for sample in load_split(dataset, "train")]
    part = [sample.image_path for sample in load_split(dataset, "train", fraction=0.5)]
    assert part == choose_part(whole, 0.5) and 0 < len(part) < len(whole)


def test_one_class_keeps_an_only_name_and_takes_labels_of_any_class(data):
    document = yaml.safe_load(data.read_text())
    path = data.parent / "one.yaml"
    path.write_text(yaml.safe_dump({**document, "names": ["shape"]}))
    dataset = load_dataset(path, single_class=True)
    assert dataset.class_names == ("shape",)
    samples, whole = load_split(dataset, "train"), load_split(load_dataset(data), "train")
    assert not samples.class_index.any() and whole.class_index.max() > 0
    np.testing.assert_array_equal(samples.boxes_cxcywh_norm, whole.boxes_cxcywh_norm)
    assert load_dataset(data, single_class=True).class_names == ("item",)
    with pytest.raises(DatasetError, match=r"class \d, but the dataset's classes are 0 to 0"):
        load_split(load_dataset(path), "train")
