"""--split, --fraction, --single-cls: which images and classes a training sees, whatever comes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from duet.utils.data.image.fingerprint import Fingerprint
from duet.utils.data.records.packing import pack_samples
from duet.utils.data.sources import drawn_split
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.drawn_split import choose_part, draw_training, group_copies
from duet.utils.data.sources.image_sources import ImageFile, list_images
from duet.utils.data.sources.splits import images_of, load_split
from duet.utils.errors import DatasetError, UserError
from tests.rank_threads import run_rank_threads
from tests.small import write_small_dataset
from tests.unit.data.sources.test_scan import noted

NAMES = [f"image {number}.jpg" for number in range(4000)]


def unlike(number):
    """Fingerprints of images that do not look alike: random looks differ in 32 bits or so."""
    looks = np.random.default_rng(1).integers(1, 1 << 63, number).tolist()
    return [Fingerprint(index + 1, look) for index, look in enumerate(looks)]


def alike(number):
    return [Fingerprint(1_000_000 + index, 1 << 40) for index in range(number)]


def draw(names, prints, part):
    return draw_training(names, group_copies(names, prints), part)


def sides(names, prints, part=0.8):
    return dict(zip(names, draw(names, prints, part).tolist(), strict=True))


def test_image_without_duplicates_never_changes_side():
    prints = dict(zip(NAMES, unlike(len(NAMES)), strict=True))
    whole = sides(NAMES, list(prints.values()))
    allowed = 5 * np.sqrt(len(NAMES) * 0.8 * 0.2)  # of a binomial's deviations
    assert abs(sum(whole.values()) - 0.8 * len(NAMES)) < allowed
    for some in (NAMES[::3], NAMES[::-1], NAMES[:50]):
        assert sides(some, [prints[name] for name in some]) == {name: whole[name] for name in some}


def test_each_image_validates_in_exactly_one_fold():
    prints = dict(zip(NAMES, unlike(len(NAMES)), strict=True))
    folds = [sides(NAMES, list(prints.values()), f"{fold}/5") for fold in range(1, 6)]
    in_val = np.array([[not fold[name] for name in NAMES] for fold in folds])
    assert (in_val.sum(axis=0) == 1).all()
    allowed = 5 * np.sqrt(len(NAMES) * 0.2 * 0.8)  # of a binomial's deviations
    assert (abs(in_val.sum(axis=1) - 0.2 * len(NAMES)) < allowed).all()
    some = NAMES[::-7]
    found = sides(some, [prints[name] for name in some], "3/5")
    assert found == {name: folds[2][name] for name in some}


@pytest.mark.parametrize(("part", "fraction"), [(0.8, 0.8), ("2/3", 2 / 3)])
def test_duplicate_groups_stay_together_at_the_same_rate(part, fraction):
    """Whatever their size: no vote of their images, which the larger side would win."""
    names = [f"{group} {number}.jpg" for group in range(500) for number in range(7)]
    prints = [print for print in unlike(500) for _ in range(7)]
    drawn = draw(names, prints, part).reshape(500, 7)
    assert (drawn == drawn[:, :1]).all()
    allowed = 5 * np.sqrt(500 * fraction * (1 - fraction))  # of a binomial's deviations
    assert abs(drawn[:, 0].sum() - 500 * fraction) < allowed


def test_added_duplicate_joins_and_rarely_moves_its_group():
    others, prints = NAMES[:100], unlike(100)
    moved = 0
    for trial in range(60):
        group = [f"frame {trial} {number}.jpg" for number in range(6)]
        before = sides(group[:5] + others, alike(5) + prints)
        after = sides([*group, *others], alike(6) + prints)
        assert len({after[name] for name in group}) == 1
        assert {name: after[name] for name in others} == {name: before[name] for name in others}
        moved += before[group[0]] != after[group[0]]
    # It has its way with 1 in 6, and wants the other side with 2 x 0.8 x 0.2: 3.2 of 60.
    assert 0 < moved < 3.2 + 5 * np.sqrt(3.2)


def test_augmented_copies_share_the_side_of_their_original():
    copies = [f"street 7_png.rf.{number:032x}.jpg" for number in range(5)]
    names = ["street 7.png", *copies, "street_7.png", "street 7.jpg", "x.rf..jpg", *NAMES[:200]]
    groups = group_copies(names, unlike(len(names)))
    assert groups.tolist() == [0] * 6 + list(range(6, len(names)))
    drawn = sides(names, unlike(len(names)))
    assert len({drawn[name] for name in names[:6]}) == 1
    alone = sides([copies[0], *NAMES[:200]], unlike(201))
    assert alone[copies[0]] == drawn["street 7.png"]


@pytest.mark.parametrize(("part", "side"), [(0.999, "validation"), (0.001, "training")])
def test_empty_side_is_an_error(part, side):
    with pytest.raises(DatasetError) as caught:
        draw(NAMES[:4], unlike(4), part)
    assert f"--split {part} leaves no image for {side}: 4 images, 4 when" in str(caught.value)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A dataset of 18 images without a split, two of them near-duplicates of each other."""
    folder = tmp_path_factory.mktemp("drawn")
    document = yaml.safe_load(write_small_dataset(folder).read_text())
    root = folder / "shapes"
    for kind in ("images", "labels"):
        for number, path in enumerate(sorted((root / kind / "val").iterdir())):
            shutil.move(path, root / kind / "train" / f"more {number}{path.suffix}")
    first = sorted((root / "images/train").iterdir())[0]
    image = cv2.resize(cv2.imread(str(first)), None, fx=1.5, fy=1.5)
    cv2.imwrite(str(root / "images/train/larger copy.jpg"), image)
    path = root / "whole.yaml"
    path.write_text(yaml.safe_dump({"train": "images/train", "names": document["names"]}))
    return path, first.name


def names_of(images):
    return [image.path.name for image in images]


def test_dataset_without_val_is_split_in_two(data, caplog):
    caplog.set_level("INFO")
    dataset = load_dataset(data[0], train_part=0.7)
    train, val = (names_of(images_of(dataset, split)) for split in ("train", "val"))
    assert sorted(train + val) == sorted(names_of(list_images(dataset.train)))
    assert train and val and not set(train) & set(val)
    assert ("larger copy.jpg" in train) == (data[1] in train)
    assert f"val: {len(val)} of 19 images, by --split 0.7; 1 stay" in caplog.text
    assert names_of(images_of(dataset, "train")) == train
    assert [x.image_path.name for x in load_split(dataset, "val")] == val


def test_fraction_is_independent_of_the_split():
    """The two hashes are independent: else 0.5 of 0.8 would be 0.625 of it."""
    train = [
        name for name, mine in zip(NAMES, draw(NAMES, unlike(len(NAMES)), 0.8), strict=True) if mine
    ]
    half = choose_part([ImageFile(Path(name)) for name in train], 0.5)
    assert abs(len(half) / len(train) - 0.5) < 5 * np.sqrt(0.25 / len(train))


def test_packed_dataset_splits_like_its_files(data, tmp_path):
    whole = load_dataset(data[0], splits=("train",))
    samples = {"train": load_split(whole, "train")}
    pack_samples(samples, whole.class_names, tmp_path / "out" / "packed.yaml", 1 << 30)
    for split in ("train", "val"):
        packed = images_of(load_dataset(tmp_path / "out" / "packed.yaml", train_part=0.7), split)
        files = images_of(load_dataset(data[0], train_part=0.7), split)
        assert names_of(packed) == names_of(files)


def test_all_ranks_draw_the_single_process_split(data, monkeypatch):
    dataset = load_dataset(data[0], train_part=0.7)
    expected = images_of(dataset, "val")
    read = noted(monkeypatch, drawn_split, "read_fingerprint")
    found = run_rank_threads(5, lambda world: images_of(dataset, "val", world))
    assert found == [expected] * 5
    assert sorted(read) == sorted(names_of(list_images(dataset.train)))  # each by one rank


def test_unreadable_images_still_get_a_side(tmp_path):
    (tmp_path / "gone.jpg").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    images = [ImageFile(path) for path in sorted(tmp_path.iterdir())]
    prints = drawn_split.read_fingerprints(images)
    assert [x.look for x in prints] == [0, 0, 0]
    assert prints[images.index(ImageFile(tmp_path / "gone.jpg"))].content == 0
    assert group_copies(names_of(images), prints).tolist() == [0, 1, 2]


def test_dataset_with_val_is_not_split(tmp_path):
    path = write_small_dataset(tmp_path)
    message = "--split 0.8: shapes has .*; --split and folds need a dataset without one"
    with pytest.raises(DatasetError, match=message):
        load_dataset(path, train_part=0.8)


IMAGES = [ImageFile(Path(f"folder/{number:06}.jpg")) for number in range(4000)]


@pytest.fixture(scope="module")
def small_data(tmp_path_factory):
    return write_small_dataset(tmp_path_factory.mktemp("data"))


def test_fraction_keeps_about_that_share_in_order():
    for fraction in (0.05, 0.3, 0.9):
        chosen = choose_part(IMAGES, fraction)
        # Five standard deviations of a binomial.
        allowed = 5 * np.sqrt(len(IMAGES) * fraction * (1 - fraction))
        assert abs(len(chosen) - fraction * len(IMAGES)) < allowed
        assert names_of(chosen) == sorted(names_of(chosen))
    assert choose_part(IMAGES, 1.0) == IMAGES


def test_image_choice_is_independent_of_other_images():
    chosen = set(choose_part(IMAGES, 0.4))
    assert set(choose_part(IMAGES[::3], 0.4)) == chosen & set(IMAGES[::3])
    moved = [ImageFile(Path("elsewhere", image.path.name)) for image in IMAGES]
    assert set(names_of(choose_part(moved, 0.4))) == set(names_of(chosen))
    assert chosen < set(choose_part(IMAGES, 0.5))


def test_image_choice_is_independent_of_the_locale():
    text = (
        "import numpy\nfrom duet.utils.data.sources.drawn_split import draw_training, place_of\n"
        "names = [f'\\u56fe {number}.jpg' for number in range(40)]\n"
        "print([place_of(name) for name in names])\n"
        "print(draw_training(names, numpy.arange(40), 0.5).nonzero()[0].tolist())"
    )
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", text]
    ascii_, utf8 = (
        subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout
        for env in (plain, {**os.environ, "PYTHONUTF8": "1"})
    )
    assert ascii_ == utf8 and utf8.count(b",") > 40  # names of a record file, written elsewhere


def test_fraction_that_leaves_no_image_is_refused():
    with pytest.raises(UserError, match="--fraction 1e-09: none of 5 images is left; use a larger"):
        choose_part(IMAGES[:5], 1e-9)


def test_fraction_of_a_split_is_read_on_request(small_data):
    dataset = load_dataset(small_data)
    whole = list_images(dataset.train)
    part = [sample.image_path for sample in load_split(dataset, "train", fraction=0.5)]
    assert part == [image.path for image in choose_part(whole, 0.5)]
    assert 0 < len(part) < len(whole)


def test_single_class_keeps_a_lone_name_and_merges_labels(small_data):
    document = yaml.safe_load(small_data.read_text())
    path = small_data.parent / "one.yaml"
    path.write_text(yaml.safe_dump({**document, "names": ["shape"]}))
    dataset = load_dataset(path, single_class=True)
    assert dataset.class_names == ("shape",)
    samples, whole = load_split(dataset, "train"), load_split(load_dataset(small_data), "train")
    assert not samples.class_index.any() and whole.class_index.max() > 0
    np.testing.assert_array_equal(samples.boxes_cxcywh_norm, whole.boxes_cxcywh_norm)
    assert load_dataset(small_data, single_class=True).class_names == ("item",)
    with pytest.raises(DatasetError, match=r"class \d; accepted: 0\n"):
        load_split(load_dataset(path), "train")
