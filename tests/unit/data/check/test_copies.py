"""Which images are told to be copies of which, and as what."""

from tests.unit.data.check.planted import GOOD, pattern
from utils.data.check.checking import check_dataset
from utils.data.check.copies import find_copies
from utils.data.image.fingerprint import NO_FINGERPRINT, Fingerprint
from utils.data.sources.dataset import load_dataset

LOOKS = (0x0F0F_3C3C_55AA_1234, 0x6996_C3A5_0FF0_8421)


def found(*images):
    """Kind, image and other, for (split, name, content, look) of each image."""
    splits, names, contents, looks = zip(*images, strict=True)
    prints = [Fingerprint(*pair) for pair in zip(contents, looks, strict=True)]
    return [(x.kind, x.image, x.other) for x in find_copies(splits, prints, names)]


def test_a_copy_is_told_once_as_the_worst_that_it_is():
    one, other = LOOKS
    assert found(
        ("train", "a.jpg", 1, one),
        ("train", "b.jpg", 1, one),  # equal to a
        ("train", "c.jpg", 2, one ^ 1),  # like a
        ("train", "d.jpg", 3, other),
        ("val", "e.jpg", 1, one),  # equal to a
        ("val", "f.jpg", 1, one),
        ("val", "g.jpg", 4, one ^ 2),  # like a
        ("test", "h.jpg", 3, other),
    ) == [
        ("repeated_image", 1, 0),
        ("leak", 4, 0),
        ("leak", 5, 0),
        ("leak", 7, 3),
        ("near_leak", 6, 0),
        ("alike", 2, 0),
    ]


def test_augmented_copies_are_a_leak_in_two_splits_alone():
    one, other = LOOKS
    assert found(
        ("train", "x/car_jpg.rf.0a1b.jpg", 1, one),
        ("train", "x/car_jpg.rf.2c3d.jpg", 2, other),
        ("val", "y/car_jpg.rf.4e5f.jpg", 3, 0x00FF_00FF_FF00_F0F0),
    ) == [("near_leak", 2, 0)]


def test_images_that_cannot_be_read_or_show_nothing_are_no_copies():
    none = tuple(NO_FINGERPRINT)
    assert found(("train", "a", *none), ("val", "b", *none), ("val", "c", 7, 0)) == []
    assert find_copies([], [], []) == []


def test_a_drawn_split_has_no_leak(tmp_path):
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    for number in range(24):  # each twice, encoded anew
        for copy, quality in (("a", 95), ("b", 70)):
            pattern(number).save(tmp_path / f"images/{copy}{number}.jpg", quality=quality)
            (tmp_path / f"labels/{copy}{number}.txt").write_text(GOOD)
    (tmp_path / "d.yaml").write_text("train: images\nnames: [a, b]\n")
    check = check_dataset(load_dataset(tmp_path / "d.yaml", train_part=0.6))
    assert {x.kind for x in check.findings} == {"alike"} and len(check.findings) == 24
    assert len({image.split for image in check.images}) == 2
