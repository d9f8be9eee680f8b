"""The check finds every planted error and nothing else, in any format.

The errors are in a small dataset with one of each kind, and the list of them.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from duet.utils.data.check.checking import check_dataset
from duet.utils.data.check.corrected_copy import refuse_place, write_corrected
from duet.utils.data.check.inspection import read_rows
from duet.utils.data.check.report import (
    advice,
    check_page,
    class_table,
    recipe_text,
    small_text,
    summary_lines,
)
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.image_sources import ImageFile
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import DatasetError
from tests.unit.data.formats.annotation_files import voc, voc_box, write

SIZE_WH = 96, 64
GOOD = "0 0.5 0.5 0.25 0.5\n1 0.25 0.25 0.125 0.25\n"
PLANTED_YAML = """path: .
train: [train.txt]
val: images/val
names: [Cat, dog, "cat ", only train, only val, never]
"""
LABELS = {  # by image
    "train/good": GOOD + "2 0.5 0.5 0.5 0.5\n3 0.75 0.75 0.25 0.25\n",
    "train/polygon": "0 0.1 0.1 0.5 0.1 0.3 0.9\n",
    "train/rounded": "0 0.5 0.5 1.00001 1.00001\n",  # within the rounding of decimals
    "train/background": "",
    "train/words": f"{GOOD}cat 0.5 0.5 0.1 0.1\n0 0.5 0.5 0.1\n\n0 0.1 0.2 0.3 0.4 0.5\n",
    "train/bytes": b"\xff\xfe0",
    "train/class": f"{GOOD}6 0.5 0.5 0.1 0.1\n-1 0.5 0.5 0.1 0.1\n0.5 0.5 0.5 0.1 0.1\n",
    "train/pixels": f"{GOOD}0 48 32 24 16\n1 nan 0.5 0.1 0.1\n",
    "train/far": "0 0.9 0.5 0.4 0.2\n",  # training clips it
    "train/negative": "0 0.5 0.5 -0.2 0.2\n",
    "train/flat": f"{GOOD}0 0.5 0.5 0 0.25\n0 0.2 0.2 0.4 0.2 0.6 0.2\n",
    "train/unlisted": "this is not looked at, nor lost\n",
    "train/twice": f"{GOOD}{GOOD}",
    "train/over": f"{GOOD}0 0.9 0.5 0.21 0.25\n",
    "train/over_point": "0 1.005 0.5 0.9 0.1 0.9 0.9\n",
    "train/turned": GOOD,
    "train/short": GOOD,
    "train/behind_header": GOOD,
    "train/text": GOOD,
    "train/tiny": GOOD,
    "train/gone": GOOD,
    "train/lost": GOOD,
    "train/first": GOOD,
    "train/second": GOOD,
    "train/scene": GOOD,
    "train/scene2": GOOD,
    "val/good": "0 0.5 0.5 0.5 0.5\n1 0.5 0.5 0.5 0.5\n2 0.5 0.5 0.25 0.5\n4 0.5 0.5 0.5 0.25\n",
    "val/of_train": GOOD,
    "val/like_train": GOOD,
}
NOT_LISTED = ("lost", "unlisted")
EXPECTED = {  # kind, file, place
    ("no_outline", "planted", ""),
    ("unusable_image", "images/train/gone.jpg", ""),
    ("unusable_image", "images/train/text.jpg", ""),
    ("unusable_image", "images/train/short.jpg", ""),
    ("unusable_image", "images/train/behind_header.png", ""),
    ("unusable_image", "images/train/tiny.png", ""),
    ("broken_label", "labels/train/words.txt", "line 3"),
    ("broken_label", "labels/train/words.txt", "line 4"),
    ("broken_label", "labels/train/words.txt", "line 6"),
    ("broken_label", "labels/train/bytes.txt", ""),
    ("unknown_class", "labels/train/class.txt", "line 3"),
    ("unknown_class", "labels/train/class.txt", "line 4"),
    ("unknown_class", "labels/train/class.txt", "line 5"),
    ("out_of_range", "labels/train/pixels.txt", "line 3"),
    ("out_of_range", "labels/train/pixels.txt", "line 4"),
    ("out_of_range", "labels/train/far.txt", "line 1"),
    ("out_of_range", "labels/train/negative.txt", "line 1"),
    ("zero_area", "labels/train/flat.txt", "line 3"),
    ("zero_area", "labels/train/flat.txt", "line 4"),
    ("repeated_object", "labels/train/twice.txt", "line 3"),
    ("repeated_object", "labels/train/twice.txt", "line 4"),
    ("overshoot", "labels/train/over.txt", "line 3"),
    ("overshoot", "labels/train/over_point.txt", "line 1"),
    ("turned", "images/train/turned.jpg", ""),
    ("no_label_file", "images/train/unlabelled.jpg", ""),
    ("unused_image", "images/train/unlisted.jpg", ""),
    ("lost_labels", "labels/train/lost.txt", ""),
    ("repeated_image", "images/train/second.jpg", ""),
    ("alike", "images/train/scene2.jpg", ""),
    ("leak", "images/val/of_train.jpg", ""),
    ("near_leak", "images/val/like_train.jpg", ""),
    ("similar_names", "'Cat', 'cat '", ""),
    ("not_in_train", "class 4, 'only val'", ""),
}
# Left out by a training: the images that it cannot read, and those with a line that it refuses.
LEFT_OUT = {
    "gone.jpg", "text.jpg", "short.jpg", "behind_header.png", "tiny.png", "words.jpg", "bytes.jpg",
    "class.jpg", "pixels.jpg", "negative.jpg", "over_point.jpg",
}  # fmt: skip


def pattern(seed: int, size_wh: tuple[int, int] = SIZE_WH) -> Image.Image:
    """An image that looks like none of another seed."""
    cells = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(cells).resize(size_wh, Image.Resampling.BICUBIC)


def write_planted(folder: Path) -> Path:
    """Write the dataset; return its YAML."""
    for kind in ("images", "labels"):
        for split in ("train", "val"):
            (folder / kind / split).mkdir(parents=True)
    for seed, (name, labels) in enumerate(LABELS.items()):
        if name not in ("train/gone", "train/lost"):
            pattern(seed).save(folder / "images" / f"{name}.jpg", quality=95)
        content = labels if isinstance(labels, bytes) else labels.encode()
        (folder / "labels" / f"{name}.txt").write_bytes(content)
    _damage(folder / "images")
    (folder / "labels/train/classes.txt").write_text("Cat\ndog\n", encoding="utf-8")
    stems = [name.removeprefix("train/") for name in LABELS if name.startswith("train/")]
    names = [f"{stem}.jpg" for stem in [*stems, "unlabelled"] if stem not in NOT_LISTED]
    present = os.listdir(folder / "images/train")
    listed = [name for name in names if name in present or name == "gone.jpg"]
    listed += [name for name in present if name.endswith(".png")]
    lines = "".join(f"./images/train/{name}\n" for name in listed)
    (folder / "train.txt").write_text(lines, encoding="utf-8")
    path = folder / "planted.yaml"
    path.write_text(PLANTED_YAML, encoding="utf-8")
    return path


def _damage(images: Path) -> None:
    """Turn good images into those with the errors that their names tell."""
    train, val = images / "train", images / "val"
    upside_down = Image.Exif()
    upside_down[0x0112] = 3
    pattern(100).save(train / "turned.jpg", exif=upside_down)
    pattern(101).save(train / "unlabelled.jpg")
    whole = (train / "short.jpg").read_bytes()
    (train / "short.jpg").write_bytes(whole[: len(whole) // 2])
    (train / "text.jpg").write_text("<html>not found</html>", encoding="utf-8")
    for stem in ("behind_header", "tiny"):
        (train / f"{stem}.jpg").unlink()
    pattern(102).save(train / "behind_header.png")
    content = bytearray((train / "behind_header.png").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (train / "behind_header.png").write_bytes(content)
    pattern(103, (8, 40)).save(train / "tiny.png")
    pattern(106).save(train / "unlisted.jpg")
    pattern(104).save(train / "first.jpg")
    pattern(104).save(train / "second.jpg")
    pattern(105).save(train / "scene.jpg", quality=95)
    pattern(105).save(train / "scene2.jpg", quality=80)
    (val / "of_train.jpg").write_bytes((train / "good.jpg").read_bytes())
    Image.open(train / "polygon.jpg").save(val / "like_train.jpg", quality=70)


def write_dataset(folder: Path, labels: Mapping[str, str], yaml: str) -> Path:
    """Write a dataset with these label files, by the image's path below images/; return its YAML.

    A name without a suffix gets .png.
    """
    for number, (name, text) in enumerate(labels.items()):
        image = folder / "images" / name
        image = image if image.suffix else image.with_suffix(".png")
        before, _, after = f"images/{name}".rpartition("images/")
        label = (folder / f"{before}labels/{after}").with_suffix(".txt")
        for path in (image, label):
            path.parent.mkdir(parents=True, exist_ok=True)
        pattern(number).save(image)
        label.write_text(text, encoding="utf-8")
    (folder / "data.yaml").write_text(yaml)
    return folder / "data.yaml"


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def check(planted):
    return check_dataset(load_dataset(planted))


def findings_of(check, root):
    """Kind, file from the dataset's folder on, and place in it, of each finding."""
    found = []
    for finding in check.findings:
        where, _, place = finding.where.partition(".txt: ")
        where = f"{where}.txt" if place else where
        name = Path(where).relative_to(root).as_posix() if where.startswith(str(root)) else where
        found.append((finding.kind, name, place))
    return found


def test_check_finds_each_planted_error_once(check, planted):
    found = findings_of(check, planted.parent)
    assert set(found) == EXPECTED and len(found) == len(EXPECTED)


def test_check_leaves_out_the_same_images_as_training(check, planted):
    assert {image.source.path.name for image in check.images if not image.is_used} == LEFT_OUT
    dataset = load_dataset(planted)
    for split in ("train", "val"):
        used = [x.source.path for x in check.images if x.split == split and x.is_used]
        assert used == [sample.image_path for sample in load_split(dataset, split)]


YAML = "train: images/train\nval: images/val\nnames: [a]\n"
BOX = "0 0.5 0.5 0.5 0.5\n"


@pytest.mark.parametrize(
    ("labels", "yaml", "expected"),
    [
        ({"train/a": "x\n", "val/b": "9 9 9 9 9\n"}, YAML,
         [("broken_label", "line 1: 'x'; numbers"), ("unknown_class", "class 9")]),
        ({"a": BOX, "b": BOX}, "train: images\nval: images\nnames: [a]\n",
         [("leak", "in train: ")] * 2),
        ({"train/a": f"{BOX}0 0.1 0.1 0.5 0.1 0.3 0.9\n", "val/b": BOX}, YAML,
         [("no_outline", "2 of 3 objects")]),
        ({"train/a": BOX, "val/b": ""}, YAML, [("no_objects", "val: none of its images has an")]),
        ({"train/a": BOX, "val/b": BOX}, YAML.replace("a]", "a, '1']"),
         [("bare_number", "'1': 0 objects of it")]),
        ({"train/a": BOX, "val/b": BOX}, YAML.replace("a]", "'0', '1']"), []),
        ({"train/a": BOX, "val/b": BOX}, YAML, []),
    ],
)  # fmt: skip
def test_check_reports_dataset_wide_findings(tmp_path, labels, yaml, expected):
    check = check_dataset(load_dataset(write_dataset(tmp_path, labels, yaml)))
    found = [(x.kind, f"{x.where.rpartition('.txt: ')[2]}: {x.text}") for x in check.findings]
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    assert all(text in shown for (_, shown), (_, text) in zip(found, expected, strict=True))
    is_note = not expected or expected[0][0] in ("no_outline", "bare_number")
    assert check.has_problems != is_note
    assert {image.source.path.stem for image in check.images} == {"a", "b"}
    assert "CheckedImage" not in repr(check)  # a notebook shows it after `check(...)`
    assert check_page(check, 64) and list(summary_lines(check, 64))


def test_small_object_shares_use_the_training_size(tmp_path):
    # 96x64 px; at --img 48 half of it: sides of 24x8, 6x3 and 2x16 px.
    labels = {"a": "0 0.5 0.5 0.5 0.25\n1 0.5 0.5 0.125 0.09375\n", "b": "0 0.5 0.5 0.04 0.5\n"}
    data = write_dataset(tmp_path, labels, "train: images\nnames: [a, b, c]\n")
    check = check_dataset(load_dataset(data, splits=("train",)))
    # 3 is not below 3, nor 8 below 8.
    text = "Shorter side of the objects at --img 48: 33.3 % below 3 px, 66.7 % below 8 px"
    assert small_text(check, 48) == text
    assert recipe_text(check) == "2 images for training: try --hyp small"
    many = dataclasses.replace(check, images=[*check.images] * 1001)
    none = dataclasses.replace(
        check, images=[image._replace(split="val") for image in check.images]
    )
    assert recipe_text(many) == recipe_text(none) == ""
    assert class_table(check)[1] == [["0 a", "2", "2"], ["1 b", "1", "1"], ["2 c", "0", "0"]]


def test_duplicate_image_is_reported_once_as_its_worst_kind(tmp_path):
    """Two files equal a third; Roboflow's copies of one image are a leak in two splits alone."""
    names = ["train/a", "train/b", "val/c", "train/car_jpg.rf.0a", "train/car_jpg.rf.1b",
             "val/car_jpg.rf.2c"]  # fmt: skip
    yaml = "train: images/train\nval: images/val\nnames: [a, b]\n"
    data = write_dataset(tmp_path, {f"{name}.png": GOOD for name in names}, yaml)
    for name in names[1:3]:
        pattern(0).save(tmp_path / f"images/{name}.png")
    check = check_dataset(load_dataset(data))
    sources = [image.source.path.stem for image in check.images]
    assert [(x.kind, sources[x.image], sources[x.other]) for x in check.findings] == [
        ("leak", "c", "a"),
        ("near_leak", "car_jpg.rf.2c", "car_jpg.rf.0a"),
        ("repeated_image", "b", "a"),
    ]


def test_annotated_dataset_is_checked_like_label_files(tmp_path):
    write_voc(tmp_path)
    check = check_dataset(load_dataset(tmp_path))
    found = [(x.kind, Path(x.where.partition(": ")[0]).name, x.where.partition(": ")[2], x.split)
             for x in check.findings]  # fmt: skip
    assert found == [
        ("unusable_image", "gone.png", "", "train"),
        ("broken_label", "Annotations", "e.png", "train"),
        ("other_shape", "Annotations", "b.png", "train"),
        ("out_of_range", "Annotations", "c.png: object 1", "train"),
        ("zero_area", "Annotations", "a.png: object 3", "train"),
        ("repeated_object", "Annotations", "a.png: object 2", "train"),
        ("not_in_train", "class 0, 'cat'", "", "train"),
        ("overshoot", "Annotations", "a.png: object 4", "train"),
        ("unused_image", "nobody.png", "", ""),
    ]
    assert [image.is_used for image in check.images] == [True, *[False] * 4, True]
    lines = "\n".join(summary_lines(check, 640))
    assert re.search(r"xm(in|ax) -?\d+ of \d+ px", lines) and "the box, or find the image" in lines
    assert {"xmin -1 of 200 px", "xmax 210 of 200 px"} <= {x.text for x in check.findings}
    assert "fractions" not in lines and "centre x" not in lines + advice(check, "broken_label")
    for name in ("Annotations/new", "JPEGImages/new"):
        with pytest.raises(DatasetError, match=f"{name} would be inside"):
            refuse_place(check.dataset, tmp_path / name, tmp_path / "page")
    write_corrected(check, tmp_path / "fixed")
    copy = load_dataset(tmp_path / "fixed" / f"{tmp_path.resolve().stem}.yaml")
    (sample,) = load_split(copy, "train")
    assert copy.class_names == ("cat", "dog")
    assert sample.class_index.tolist() == [1, 1]
    boxes = [0.5, 0.5, 0.5, 0.5], [0.375, 0.5, 0.75, 0.5]
    assert sample.boxes_cxcywh_norm.tolist() == [pytest.approx(box) for box in boxes]


def write_voc(folder):
    """Write a VOC dataset whose images but the one of val have each a fault."""
    good = voc_box(50, 25, 150, 75)
    objects = {
        "a": [good, good, voc_box(9, 9, 9, 20, "cat"), voc_box(-1, 25, 150, 75)],
        "b": [good],
        "c": [voc_box(50, 25, 210, 75)],
        "gone": [good],
        "e": ["<object><name>dog</name></object>"],
        "d": [good, voc_box(9, 9, 40, 40, "cat")],
    }
    for number, (name, boxes) in enumerate(objects.items()):
        write(folder / f"Annotations/{name}.xml", voc(boxes, f"{name}.png"))
        (folder / "JPEGImages").mkdir(exist_ok=True)
        if name != "gone":
            size = (100, 200) if name == "b" else (200, 100)
            pattern(number, size).save(folder / f"JPEGImages/{name}.png")
    pattern(9).save(folder / "JPEGImages/nobody.png")
    write(folder / "ImageSets/Main/train.txt", "a\nb\nc\ngone\ne\n")
    write(folder / "ImageSets/Main/val.txt", "d\n")


def test_missing_xml_and_swapped_corners_are_findings(tmp_path):
    """An XML file that is missing or exchanges corners, junk of macOS."""
    write_voc(tmp_path)
    boxes = voc_box(50, 25, 150, 75), voc_box(9, 9, 40, 40, "cat"), voc_box(70, 40, 30, 50)
    write(tmp_path / "Annotations/d.xml", voc(boxes, "d.png"))
    (tmp_path / "ImageSets/Main/val.txt").write_text("d\nnobody\n")
    check = check_dataset(load_dataset(tmp_path))
    (absent,), (found,) = check.of_kind("no_label_file"), check.of_kind("exchanged_corners")
    assert absent.where.endswith("JPEGImages/nobody.png") and absent.split == "val"
    assert found.where.endswith("Annotations: d.png")
    assert found.text == "object 3, xmin 70, ymin 40, xmax 30, ymax 50"
    samples = load_split(load_dataset(tmp_path), "val")
    assert samples.remarks.numbers == {"exchanged_corners": 1}
    assert samples.num_objects.tolist() == [3, 0]


def test_unread_label_files_and_skipped_files_are_findings(tmp_path):
    yaml = "train: images\nnames: [a]\n"
    data = write_dataset(tmp_path, {"a": BOX, "b": BOX, "c": BOX}, yaml)
    (tmp_path / "labels/b.txt").rename(tmp_path / "labels/b.TXT")
    (tmp_path / "labels/c.txt").rename(tmp_path / "images/c.txt")
    (tmp_path / "images/._a.png").write_bytes(b"\0")
    check = check_dataset(load_dataset(data, splits=("train",)))
    found = findings_of(check, tmp_path)
    assert [x[:2] for x in found] == [
        ("near_label", "labels/b.TXT"), ("near_label", "images/c.txt"),
        ("missing_split", "data"), ("skipped", "images/._a.png"),
    ]  # fmt: skip
    assert check.has_problems and check.findings[2].text == "it has no images for val"
    assert check.findings[0].text == f"is not read; call it {tmp_path}/labels/b.txt"


SIZE = 100, 200


def kinds(rows):
    return [(row.place, row.kind, row.is_decided) for row in rows]


def test_nearly_equal_outlines_are_repeated_objects(tmp_path):
    triangles = "0 0.1 0.1 0.9 0.1 0.5 0.9", "0 0.1 0.1 0.9 0.1 0.50000000001 0.9"
    (tmp_path / "a.txt").write_text("\n".join(triangles))
    image = ImageFile(tmp_path / "a.jpg")
    assert image.read_labels(1, SIZE).removed["repeated_object"] == 1
    assert kinds(read_rows(image, 1, SIZE))[1] == ("line 2", "repeated_object", False)


def test_label_file_report_stops_at_1000_faults(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x\n" * 1_000_000)
    rows = read_rows(ImageFile(tmp_path / "a.jpg"), 2, SIZE)
    assert len(rows) == 1001 and rows[-1].fault.startswith("1,000 faults")
    assert (rows[0].place, rows[999].place, rows[1000].place) == ("line 1", "line 1000", "")
