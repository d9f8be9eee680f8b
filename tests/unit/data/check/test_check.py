"""The check finds every planted error and nothing else, in any format."""

import dataclasses
import re
from pathlib import Path

import pytest

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
from tests.unit.data.check.planted import (
    EXPECTED,
    GOOD,
    LEFT_OUT,
    pattern,
    write_dataset,
    write_planted,
)
from tests.unit.data.formats.annotation_files import voc, voc_box, write


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
