"""Scanning a dataset: usable samples, reports on the others, and annotations as labels."""

import re
import unicodedata
from pathlib import Path, PureWindowsPath

import cv2
import numpy as np
import pytest

from duet.utils.data.sources.annotations import annotated_images
from duet.utils.data.sources.formats.format import (
    NORMALISED,
    UNKNOWN,
    FileNotes,
    ImageLabels,
    collect,
)
from duet.utils.data.sources.image_sources import ImageFile
from duet.utils.data.sources.label_file import (
    BrokenLabelError,
    Labels,
    label_path,
    parse_labels,
    require_drawable,
)
from duet.utils.data.sources.samples import Sample, table_of
from duet.utils.data.sources.splits import scan_samples
from duet.utils.errors import DatasetError
from duet.utils.geometry.boxes import Polygons


def add_image(folder: Path, name: str, labels: str | None = "0 0.5 0.5 0.25 0.5\n") -> Path:
    path = folder / "images" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    generator = np.random.Generator(np.random.Philox(key=1))
    assert cv2.imwrite(str(path), generator.integers(0, 256, (30, 40, 3), np.uint8))
    if labels is not None:
        label = label_path(path)
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text(labels, encoding="utf-8")
    return path


def scan_with_good_one(folder: Path, path: Path):
    """Scan a path together with a usable one; return the samples and problems of the former."""
    good = add_image(folder, "good.png")
    report = scan_samples([ImageFile(good), ImageFile(path)], num_classes=3)
    assert report.samples[0].image_path == good
    return report.samples[1:], report.problems


def test_image_sizes_and_label_boxes_are_read(tmp_path):
    path = add_image(tmp_path, "a.jpg", "2 0.5 0.25 0.125 0.5\n0 0.1 0.2 0.2 0.4\n")
    (sample,) = scan_samples([ImageFile(path)], num_classes=3).samples
    assert (sample.height, sample.width) == (30, 40)
    assert sample.class_index.tolist() == [2, 0]
    assert sample.class_index.dtype == np.int64
    expected = np.array([[0.5, 0.25, 0.125, 0.5], [0.1, 0.2, 0.2, 0.4]], np.float32)
    np.testing.assert_array_equal(sample.boxes_cxcywh_norm, expected)
    assert sample.boxes_cxcywh_norm.dtype == np.float32


def test_labels_beside_images_are_read_without_label_folder(tmp_path):
    image = add_image(tmp_path, "train/a.jpg", None)
    beside = image.with_suffix(".txt")
    beside.write_text("1 0.5 0.5 0.5 0.5\n")
    (sample,) = scan_samples([ImageFile(image)], num_classes=2).samples
    assert sample.class_index.tolist() == [1]
    beside.write_text("5 0.5 0.5 0.5 0.5\n")
    with pytest.raises(DatasetError, match=f"{re.escape(str(beside))}: line 1: class 5"):
        scan_samples([ImageFile(image)], num_classes=2)
    other = label_path(image)
    other.parent.mkdir(parents=True)
    with pytest.raises(DatasetError, match="no labelled object in"):
        scan_samples([ImageFile(image)], num_classes=2)  # a background, with some text beside it
    other.write_text("0 0.5 0.5 0.5 0.5\n")
    (sample,) = scan_samples([ImageFile(image)], num_classes=2).samples
    assert sample.class_index.tolist() == [0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0 0.5 0.5 0.25", "4 columns"),
        ("0 0.5 0.5 a 0.25", "'0 0.5 0.5 a 0.25'; numbers are needed"),
        ("3 0.5 0.5 0.25 0.25", "class 3; accepted: 0 to 2"),
        ("0.5 0.5 0.5 0.25 0.25", "class 0.5"),
        ("0 0.5 1.01 0.25 0.25", "coordinate 1.01"),
        ("0 0.5 0.5 nan 0.25", "coordinate nan"),
        ("0 0.5 0.5 inf 0.25", "coordinate inf"),
        ("0 0.5 0.5 0.5 0.5 0.9", "6 columns: a score or track id too many; omit"),
        ("0 0.5 0.5 0.5 0.5 0.9 12", "7 columns: a score and track id too many"),
        ("0 0.2 0.3 0.1 0.1 0.9 1", "7 columns: a score and track id too many"),
        ("0 0.1 0.1 0.5 0.1 0.9 0.9 0.9 2", "9 columns: a score and track id too many"),
        ("0 0.1 0.1 0.5 nan 0.9 0.2", "coordinate nan"),
        ("0 0.1 0.1 0.5 0.1 1.2 0.9", "coordinate 1.2"),
        ("0 10 20 30 40 50 60", "coordinate 10; accepted: normalised"),
    ],
)
def test_broken_line_leaves_the_image_out_with_a_reason(tmp_path, line, reason):
    path = add_image(tmp_path, "a.png", f"1 0.5 0.5 0.5 0.5\n{line}\n")
    samples, (problem,) = scan_with_good_one(tmp_path, path)
    assert len(samples) == 0
    assert str(path) in problem
    assert f"{label_path(path)}: line 2: " in problem
    assert reason in problem


ROW = "0 0.5 0.5 0.25 0.5\n"
# A label file, or None; the classes and boxes that are used, and what is reported.
USED = [
    *((text, [], [], "") for text in (None, "", "\n  \n")),
    ("0 1.00001 -0.00001 0.5 1.00009\n", [0], [[1, 0, 0.5, 1]], ""),  # rounding errors
    (f"{ROW}1{ROW[1:]}{ROW}0 0.50 0.5 0.250 0.5\n", [0, 1], [[0.5, 0.5, 0.25, 0.5]] * 2,
     "2 repeated objects removed"),
    *((f"{ROW}{empty}\n2 0.5 0.5 0.5 0.5\n", [0, 2], [[0.5, 0.5, 0.25, 0.5], [0.5] * 4],
       "1 object without an area removed") for empty in ("0 0.4 0.4 0 0.1", "1 0 0 .5 0 1 0")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "classes", "boxes", "problem"), USED)
def test_image_is_used_with_its_valid_objects(tmp_path, text, classes, boxes, problem):
    path = add_image(tmp_path, "a.png", text)
    (sample,), problems = scan_with_good_one(tmp_path, path)
    assert sample.class_index.tolist() == classes
    np.testing.assert_array_equal(sample.boxes_cxcywh_norm, np.float32(boxes).reshape(-1, 4))
    assert problems == ([f"{label_path(path)}: {problem}"] if problem else [])


def test_jpeg_without_end_mark_is_used_and_reported(tmp_path):
    path = add_image(tmp_path, "a.jpg")
    path.write_bytes(path.read_bytes()[:-2])
    samples, (problem,) = scan_with_good_one(tmp_path, path)
    assert len(samples) == 1 and problem == f"{path}: it is read without its end mark"


def test_box_around_one_outline_is_a_repeated_object():
    lower, upper = "0 0.25 0.25 0.75 0.75 0.25 0.75", "0 0.25 0.25 0.75 0.25 0.75 0.75"
    box, other = "0 0.5 0.5 0.5 0.5", "1 0.5 0.5 0.5 0.5"
    found = parse_labels("\n".join([box, other, lower, upper, lower]).encode(), 2)
    assert found.class_index.tolist() == [1, 0, 0]
    assert found.polygons_norm.num_points.tolist() == [0, 3, 3]
    assert found.removed["repeated_object"] == 2


def test_triangle_at_the_lower_edge_is_not_a_tracked_box():
    found = parse_labels(b"0 0.1 0.5 0.9 0.5 0.5 1", 1)  # as a box it would leave the image
    assert found.polygons_norm.num_points.tolist() == [3]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_windows_labels_are_read_and_other_encodings_named(encoding):
    assert parse_labels("0 0.5 0.5 0.5 0.5\r\n".encode(encoding), 1).class_index.tolist() == [0]
    with pytest.raises(BrokenLabelError, match="line 2: the byte 0x.. is not UTF-8; save the file"):
        parse_labels("0 0.5 0.5 0.5 0.5\n细胞".encode("gbk"), 1)


@pytest.mark.parametrize("name", ["labels/a.TXT", "labels/a.png.txt", "images/a.txt"])
def test_label_file_under_another_name_is_reported(tmp_path, name):
    path = add_image(tmp_path, "a.png", None)
    (tmp_path / "labels").mkdir()
    (tmp_path / name).write_text("a photo of a cat, with words\n")
    assert scan_with_good_one(tmp_path, path)[1] == []
    (tmp_path / name).write_text("0 0.5 0.5 0.5 0.5\n")
    (sample,), (problem,) = scan_with_good_one(tmp_path, path)
    assert not len(sample.class_index)
    assert problem == f"{tmp_path / name}: is not read; call it {label_path(path)}"


def test_label_file_in_another_unicode_form_is_reported(tmp_path):
    """Copied from macOS, names may be NFD where the labels' are NFC: they look the same."""
    path = add_image(tmp_path, unicodedata.normalize("NFD", "고양이 é.png"), None)
    (tmp_path / "labels").mkdir()
    label = tmp_path / "labels" / unicodedata.normalize("NFC", "고양이 é.txt")
    label.write_text("0 0.5 0.5 0.5 0.5\n")
    (sample,), (problem,) = scan_with_good_one(tmp_path, path)
    assert not len(sample.class_index)
    assert problem.startswith(f"{label}: is not read; call it {label_path(path)}")
    assert problem.endswith(", which is in another Unicode normalization form (NFC, NFD)")


def test_unicode_twin_labels_belong_to_their_own_image(tmp_path):
    """The two names look the same; one image has the labels, the other is a background."""
    of_label, background = (unicodedata.normalize(form, "é.png") for form in ("NFD", "NFC"))
    add_image(tmp_path, of_label, "0 0.5 0.5 0.5 0.5\n")
    _, problems = scan_with_good_one(tmp_path, add_image(tmp_path, background, None))
    assert problems == []


def test_polygon_points_are_kept_beside_plain_boxes(tmp_path):
    box, triangle = "1 0.5 0.5 0.25 0.25\n", "0 0.25 0.5 0.5 0.125 0.75 0.5\n"
    square = "2 0 0 1.00005 0 1 1 -0.00005 1\n"  # a rounding error outside, clipped
    path = add_image(tmp_path, "a.png", box + triangle + box + square)
    (sample,), _ = scan_with_good_one(tmp_path, path)
    assert sample.class_index.tolist() == [1, 0, 2]  # without the repeated box
    # x from 0.25 to 0.75, y from 0.125 to 0.5; all of these are exact in binary.
    assert sample.boxes_cxcywh_norm[1].tolist() == [0.5, 0.3125, 0.5, 0.375]
    assert len(sample.polygons_norm) == 3
    assert sample.polygons_norm.num_points.tolist() == [0, 3, 4]
    assert sample.polygons_norm.points_xy.dtype == np.float32
    assert sample.polygons_norm.outline(1).tolist() == [[0.25, 0.5], [0.5, 0.125], [0.75, 0.5]]
    assert sample.polygons_norm.outline(2).tolist() == [[0, 0], [1, 0], [1, 1], [0, 1]]


def test_broken_images_are_reported_with_the_reason(tmp_path):
    whole = add_image(tmp_path, "whole.jpg").read_bytes()
    png = add_image(tmp_path, "whole.png").read_bytes()
    contents = {
        "truncated.jpg": (whole[:-100], "truncated: the JPEG file"),
        "empty.png": (png[:33] + png[-12:], "truncated or damaged PNG file"),  # without pixels
        "damaged.png": (png[:-30] + bytes(10) + png[-20:], "bad header checksum in b'IDAT'"),
        "text.jpg": (b"hello", "not an image"),
        "empty.jpg": (b"", "the file is empty"),
        "header.jpg": (whole[:10], "left out"),
    }
    for name, (content, reason) in contents.items():
        path = tmp_path / "images" / name
        path.write_bytes(content)
        samples, (problem,) = scan_with_good_one(tmp_path, path)
        assert len(samples) == 0
        assert problem.startswith(f"{path}: left out: ")
        assert reason in problem
    samples, (problem,) = scan_with_good_one(tmp_path, tmp_path / "images/absent.jpg")
    assert len(samples) == 0
    assert "No such file" in problem


def test_dataset_without_usable_images_is_an_error(tmp_path):
    paths = [add_image(tmp_path, f"{i}.png", "7 0.5 0.5 0.1 0.1") for i in range(7)]
    with pytest.raises(DatasetError, match="0 of 7 images usable:") as caught:
        scan_samples(list(map(ImageFile, paths)), num_classes=3)
    assert str(paths[0]) in str(caught.value)
    assert "... and 2 more" in str(caught.value)


def test_dataset_without_objects_names_the_label_path(tmp_path):
    path = add_image(tmp_path, "a.png", None)
    with pytest.raises(DatasetError, match="labelled object") as caught:
        scan_samples([ImageFile(path)], num_classes=3)
    assert str(tmp_path / "labels/a.txt") in str(caught.value)
    broken = add_image(tmp_path, "b.png", "0 0.5 0.5 0,1 0.1")
    with pytest.raises(DatasetError, match="in 1 usable image; .*b.png: left out: .*b.txt: line 1"):
        scan_samples([ImageFile(path), ImageFile(broken)], num_classes=3)


@pytest.mark.parametrize(
    ("image", "labels"),
    [
        ("a/images/b.jpg", "a/labels/b.txt"),
        ("/images/images/train/x.tar.gz", "/images/labels/train/x.tar.txt"),
        ("images/.jpg", "labels/.jpg.txt"),
        ("images.d/n.", "images.d/n..txt"),
        ("images", "images.txt"),
        ("/x.jpg", "/x.txt"),
        ("my images/ä 图.PNG", "my images/ä 图.txt"),
    ],
)
def test_label_path_replaces_the_images_folder(image, labels):
    assert label_path(Path(image)) == Path(labels)


def test_windows_path_has_its_labels_in_the_labels_folder():
    image = PureWindowsPath("D:\\images\\images\\train\\a.jpg")
    assert label_path(image) == Path("D:/images/labels/train/a.txt")
    assert ImageFile(image).labels_at == "D:/images/labels/train/a.txt"
    none = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    assert table_of([Sample(image, 10, 10, *none)]).paths == [image.as_posix()]


@pytest.mark.parametrize(("side", "points", "most"), [
    (100, 20_000, "500,000"), (8000, 4000, "8,388,608"),
])  # fmt: skip
def test_zigzag_outline_of_excessive_length_is_damaged(side, points, most):
    """Those of large images would take half a minute, or gigabytes, to draw."""

    def zigzag(points: int) -> Polygons:
        x = np.arange(points) % 2 * side
        return Polygons(np.stack([x, np.linspace(0, side, points)], axis=1), np.array([0, points]))

    require_drawable(zigzag(1000), (side, side))
    with pytest.raises(BrokenLabelError, match=f"image of {side}x{side}; accepted: at most {most}"):
        require_drawable(zigzag(points), (side, side))


SIZE = 50, 200  # height, width


def labels_of(*objects, annotated=SIZE, size=SIZE, names=("cat", "dog")) -> Labels:
    labels = ImageLabels(Path("a.jpg"), annotated)
    for name, box in objects:
        add = labels.add_outline if isinstance(box, np.ndarray) else labels.add
        add(name, box)
    (image,) = annotated_images(collect([labels], FileNotes()), names, Path("all.json"))
    return image.read_labels(len(names), size)


@pytest.mark.parametrize(
    ("annotated", "box"),
    [
        (NORMALISED, (0.25, 0.25, 0.5, 0.75)),
        (UNKNOWN, (50, 12.5, 100, 37.5)),
        ((100, 400), (100, 25, 200, 75)),  # labelled on a copy of twice the size
    ],
)
def test_coordinates_are_relative_to_the_annotated_size(annotated, box):
    found = labels_of(("dog", box), annotated=annotated)
    assert found.boxes_cxcywh_norm.tolist() == [[0.375, 0.5, 0.25, 0.5]]


def test_image_labelled_sideways_is_refused():
    text = "labelled as an image of 50x200 px, and has 200x50; find the image"
    with pytest.raises(BrokenLabelError, match=text):
        labels_of(("dog", (1, 1, 9, 9)), annotated=(200, 50))


def test_slight_overshoot_is_clipped_and_large_refused():
    found = labels_of(("dog", (-1, 0, 201.5, 50.25)))
    assert found.boxes_cxcywh_norm.tolist() == [[0.5, 0.5, 1, 1]]
    for box in ((0, 0, 203, 50), (-3, 0, 50, 50), (0, 0, float("nan"), 50)):
        with pytest.raises(BrokenLabelError, match="outside the image"):
            labels_of(("dog", box))


def test_empty_and_repeated_objects_are_removed_and_counted():
    box = (10, 10, 20, 20)
    found = labels_of(
        ("dog", box), ("cat", box), ("dog", box), ("cat", (5, 5, 5, 9)), ("cat", (9, 5, 5, 9))
    )
    assert found.class_index.tolist() == [1, 0]
    assert found.removed == {"zero_area": 2, "repeated_object": 1}


def test_class_missing_from_the_dataset_is_an_error():
    with pytest.raises(DatasetError, match=r"class 'dog', and .* are \['cat'\]; add it to 'names'"):
        labels_of(("dog", (0, 0, 9, 9)), names=("cat",))


def test_first_fault_is_kept_and_ignored_objects_counted():
    image, notes = ImageLabels(Path("b.jpg"), left_out=["crowds", "crowds"]), FileNotes()
    image.refuse("no size")
    image.refuse("no box either")
    notes.left_out["tasks"] = 1
    found = collect([ImageLabels(Path("a.jpg")), image], notes)
    assert found.broken[1] == "no size" and not found.broken[0]
    assert found.left_out == {"crowds": 2, "tasks": 1}


def test_images_sharing_a_file_are_all_refused():
    images = [
        *(ImageLabels(Path(f"{name}.jpg"), called=f"task {i}") for i, name in enumerate("aba")),
        ImageLabels(Path("b.jpg"), broken="it may be b.jpg"),
        ImageLabels(Path("a.jpg"), broken="no size"),
    ]
    found = collect(images, FileNotes())
    assert list(map(bool, found.broken)) == [True, False, True, True, True]
    assert "task 0 and task 2 are both" in found.broken[0] == found.broken[2]
    assert (found.broken[3], found.broken[4]) == ("it may be b.jpg", "no size")
