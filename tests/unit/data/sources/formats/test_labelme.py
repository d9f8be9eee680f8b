"""LabelMe: what labelme and X-AnyLabeling write, as their documentation and files show it."""

import base64
import io
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from utils.data.sources.dataset import load_dataset
from utils.data.sources.formats import labelme
from utils.data.sources.formats.annotations import UNKNOWN, Annotations
from utils.data.sources.formats.format import AnnotatedFolder
from utils.data.sources.formats.labelme import LABELME

RECTANGLE = [[10.5, 20.0], [30.0, 60.25]]
TRIANGLE = [[1.0, 2.0], [9.0, 4.5], [3.0, 8.0]]


def shape(kind: str | None, points, label: str = "dog", **more) -> dict:
    """A shape as labelme 5 writes it."""
    return {
        "label": label, "points": points, "group_id": None, "description": "", "shape_type": kind,
        "flags": {}, "mask": None, **more,
    }  # fmt: skip


def document(*shapes: dict, image: str = "no such.png", **more) -> str:
    return json.dumps(
        {"version": "5.5.0", "flags": {}, "shapes": shapes, "imagePath": image, "imageData": None,
         "imageHeight": 80, "imageWidth": 100, **more}
    )  # fmt: skip


def write(path: Path, *shapes: dict, **more) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document(*shapes, **more), "utf-8")
    return path


def images(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def read(folder: Path) -> Annotations:
    return LABELME.read(AnnotatedFolder(LABELME.name, folder, folder))


def read_one(tmp_path: Path, *shapes: dict, **more) -> Annotations:
    images(tmp_path, "a.jpg")
    write(tmp_path / "a.json", *shapes, **more)
    return read(tmp_path)


def names(annotations: Annotations) -> list[str]:
    return [Path(path).name for path in annotations.paths]


def png(mask: np.ndarray, mode: str = "L") -> str:
    """A mask as labelme writes it."""
    file = io.BytesIO()
    Image.fromarray(mask.astype(np.uint8) * 255).convert(mode).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def filled(outline: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The pixels (H, W) whose middles lie in an outline, by the even-odd rule."""
    ys, xs = np.mgrid[: shape[0], : shape[1]] + 0.5
    inside = np.zeros(shape, bool)
    for (x1, y1), (x2, y2) in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        if y1 != y2:
            crosses = (ys > min(y1, y2)) & (ys < max(y1, y2))
            inside ^= crosses & (xs < x1 + (ys - y1) * (x2 - x1) / (y2 - y1))
    return inside


def area(outline: np.ndarray) -> float:
    """The area by the shoelace formula."""
    (x, y), (next_x, next_y) = outline.T, np.roll(outline, -1, axis=0).T
    return abs(float((x * next_y - y * next_x).sum())) / 2


def test_rectangles_are_boxes_whatever_their_corners(tmp_path):
    (left, top), (right, bottom) = RECTANGLE
    corners = [
        RECTANGLE,
        [[right, bottom], [left, top]],
        [[left, bottom], [right, top]],
        [[left, top], [right, top], [right, bottom], [left, bottom]],  # X-AnyLabeling's
    ]
    found = read_one(tmp_path, *(shape("rectangle", points) for points in corners))
    assert found.boxes_xyxy.tolist() == [[10.5, 20, 30, 60.25]] * 4
    assert len(found.polygons.points_xy) == 0 and found.sizes.tolist() == [[80, 100]]


def test_polygons_are_outlines(tmp_path):
    old = {"label": "cat", "points": TRIANGLE, "line_color": None, "fill_color": None}
    turned = [[10, 0], [20, 10], [10, 20], [0, 10]]
    found = read_one(
        tmp_path, shape("polygon", TRIANGLE), old, shape("rotation", turned, direction=0.78)
    )
    assert [found.class_names[index] for index in found.class_index] == ["dog", "cat", "dog"]
    assert found.boxes_xyxy.tolist() == [[1, 2, 9, 8], [1, 2, 9, 8], [0, 0, 20, 20]]
    assert found.polygons.outline(1).tolist() == TRIANGLE
    assert found.polygons.outline(2).tolist() == turned


def test_a_circle_is_the_box_around_it(tmp_path):
    """Its points are the middle and one on it: here 5 px away."""
    found = read_one(tmp_path, shape("circle", [[50, 40], [53, 44]]))
    assert found.boxes_xyxy.tolist() == [[45, 35, 55, 45]] and not len(found.polygons.points_xy)


def test_what_has_no_area_or_is_not_to_be_learned_is_left_out_and_counted(tmp_path):
    found = read_one(
        tmp_path,
        shape("point", [[1, 2]]),
        shape("points", [[1, 2]]),
        shape("line", RECTANGLE),
        shape("linestrip", TRIANGLE),
        shape("polygon", RECTANGLE),
        shape("polygon", TRIANGLE, "__ignore__"),
        shape("rectangle", RECTANGLE, difficult=True),
        shape("rectangle", RECTANGLE, difficult=False),
        shape("cuboid", TRIANGLE),
        shape(["polygon"], TRIANGLE),
    )
    assert len(found.class_index) == 1 and not found.broken
    assert found.left_out == {
        "lines and points": 5, "ignored shapes": 1, "difficult objects": 1,
        "shapes of other kinds": 2,
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["L", "1", "RGB"])
@pytest.mark.parametrize("corner", [False, True])
def test_a_mask_is_the_outline_of_its_pixels(tmp_path, mode, corner):
    mask = np.zeros((6, 9), bool)
    mask[1:5, 2:8] = mask[3:6, 4:6] = True
    mask[2, 4] = False  # a hole
    mask[0, 0] = corner  # so that its first run is inside, and it has two parts
    found = read_one(tmp_path, shape("mask", [[30.0, 20.0], [38.0, 25.0]], mask=png(mask, mode)))
    assert found.boxes_xyxy.tolist() == [[30, 20, 38, 26] if corner else [32, 21, 38, 26]]
    expected = np.zeros((80, 100), bool)
    expected[20:26, 30:39] = mask
    assert (filled(found.polygons.outline(0), (80, 100)) == expected).all()


def test_shapes_of_one_label_and_group_are_one_object(tmp_path):
    found = read_one(
        tmp_path,
        shape("polygon", TRIANGLE, group_id=1),
        shape("polygon", TRIANGLE, "cat", group_id=1),
        shape("polygon", [[50, 50], [60, 50], [55, 70]], group_id=1),
        shape("rectangle", RECTANGLE, "cat", group_id=2),
        shape("polygon", TRIANGLE),
        shape("rectangle", [[0, 0], [5, 5]], "cat", group_id=2),
    )
    labels = [found.class_names[index] for index in found.class_index]
    assert labels == ["dog", "cat", "cat", "dog"]
    assert found.boxes_xyxy.tolist() == [
        [1, 2, 60, 70], [1, 2, 9, 8], [0, 0, 30, 60.25], [1, 2, 9, 8],
    ]  # fmt: skip
    # 8 x 6 less 2 x 2.5, and 10 x 20, both halved: areas of the two triangles of the dog.
    assert area(found.polygons.outline(0)) == (43 + 200) / 2
    assert found.polygons.num_points.tolist()[1:] == [3, 0, 3]


def test_the_image_is_beside_the_file_or_where_its_path_ends(tmp_path):
    images(tmp_path, "a.jpg", "renamed.jpg", "images/deep/c.png", "d 猫.jpg")
    write(tmp_path / "a.json", image="old name.jpg")
    write(tmp_path / "b.json", image="..\\imgs\\renamed.jpg")
    write(tmp_path / "c.json", image="/home/me/c.png")
    write(tmp_path / "d 猫.json", image="../../../etc/passwd")
    write(tmp_path / "e.json", image="../../a.jpg")
    found = read(tmp_path)
    assert names(found) == ["a.jpg", "d 猫.jpg", "e.jpg", "c.png", "renamed.jpg"]
    assert all(Path(path).is_relative_to(tmp_path) for path in found.paths)


@pytest.mark.parametrize(
    "sizes",
    [{"imageHeight": None, "imageWidth": None}, {"imageHeight": 0}, {"imageWidth": "9"},
     {"imageWidth": 1e300}, {"imageWidth": True}, {"imageHeight": -3},
     {"imageHeight": 1, "imageWidth": 1}],
)  # fmt: skip
def test_a_size_that_is_not_told_is_unknown(tmp_path, sizes):
    found = read_one(tmp_path, shape("rectangle", RECTANGLE), **sizes)
    assert found.sizes.tolist() == [list(UNKNOWN)] and not found.broken


def test_the_text_of_the_image_is_not_kept(tmp_path):
    text = base64.b64encode(bytes(range(256)) * 4096).decode()
    found = read_one(tmp_path, shape("rectangle", RECTANGLE), imageData=text)
    assert len(found.class_index) == 1 and not found.broken


HEADER = b"IHDR" + (20_000).to_bytes(4, "big") * 2 + b"\x08\0\0\0\0"
BOMB = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\0\0\0\r" + HEADER + zlib.crc32(HEADER).to_bytes(4, "big")
    + b"\0\0\0\0IDAT" + zlib.crc32(b"IDAT").to_bytes(4, "big")
).decode()  # fmt: skip


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (shape("polygon", [[1, 2], [3, "x"], [5, 6]]), "shape 2: its points are"),
        (shape("polygon", [[1, 2], [3], [5, 6]]), "its points are"),
        (shape("polygon", [[1, 2, 3]] * 3), "its points are"),
        (shape("polygon", [[1, float("nan")]] * 3), "its points are"),
        (shape("polygon", [[1, 1e300]] * 3), "its points are"),
        (shape("polygon", {"x": 1}), "its points are"),
        (shape("rectangle", None), "its points are None"),
        (shape("rectangle", []), r"its points are \[\]"),
        (shape("rectangle", [[1, 2]]), "a rectangle of 1 point"),
        (shape("circle", [[1, 2]]), "a circle of 1 point"),
        (shape("rectangle", RECTANGLE, ""), "its label is ''"),
        (shape("rectangle", RECTANGLE, None), "its label is None"),
        (shape("rectangle", RECTANGLE, "\ud800"), "surrogates not allowed"),
        ("rectangle", "its label is None"),
        (shape("mask", RECTANGLE), "its mask is None"),
        (shape("mask", RECTANGLE, mask="%%%"), "shape 2: "),
        (shape("mask", RECTANGLE, mask="aGVsbG8="), "its mask: not an image"),
        (shape("mask", RECTANGLE, mask=BOMB), "20000x20000 px is too large"),
        (shape("mask", RECTANGLE, mask=png(np.ones((3, 3)))[:80]), "its mask: "),
    ],
)
def test_a_broken_shape_is_a_problem_of_its_image_alone(tmp_path, broken, reason):
    images(tmp_path, "b.jpg")
    write(tmp_path / "b.json", shape("rectangle", RECTANGLE))
    found = read_one(tmp_path, shape("rectangle", RECTANGLE), broken)
    assert names(found) == ["a.jpg", "b.jpg"] and set(found.broken) == {0}
    with pytest.raises(ValueError, match=reason):
        raise ValueError(found.broken[0])
    assert found.broken[0].startswith("a.json: ") and len(found.broken[0]) < 300


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, '{"shapes": [], "shapes": []}', "\0"])
def test_a_broken_file_is_a_problem_of_its_image_alone(tmp_path, content):
    images(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "a.json").write_text(content)
    assert set(read(tmp_path).broken) == {0}


def test_a_mask_that_is_empty_has_no_area(tmp_path):
    found = read_one(tmp_path, shape("mask", RECTANGLE, mask=png(np.zeros((3, 3)))))
    left, top, right, bottom = found.boxes_xyxy[0]
    assert (left, top) == (right, bottom)


def test_a_mask_of_noise_has_only_a_box(tmp_path, monkeypatch):
    monkeypatch.setattr(labelme, "MAX_RUNS", 50)
    noise = np.zeros((20, 30), bool)
    noise[2:16:2, 3:25:2] = True
    found = read_one(tmp_path, shape("mask", [[10, 5], [39, 24]], mask=png(noise)))
    assert found.boxes_xyxy.tolist() == [[13, 7, 34, 20]] and not len(found.polygons.points_xy)


def test_a_mask_is_bounded_and_all_of_a_file_together(tmp_path, monkeypatch):
    monkeypatch.setattr(labelme, "MAX_PIXELS_OF_MASKS", 20)
    one = shape("mask", RECTANGLE, mask=png(np.ones((3, 3))))
    assert not read_one(tmp_path, one, one).broken
    assert read_one(tmp_path, one, one, one).broken[0].endswith("a mask of 3x3 px is too large")
    monkeypatch.setattr(labelme, "MAX_MASK_PIXELS", 8)
    assert read_one(tmp_path, one).broken[0].endswith("a mask of 3x3 px is too large")


def test_other_json_beside_the_images_is_ignored(tmp_path):
    images(tmp_path, "a.jpg")
    write(tmp_path / "a.json", shape("rectangle", RECTANGLE))
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "list.json").write_text("[1]")
    found = read(tmp_path)
    assert names(found) == ["a.jpg"] and not found.broken
    (tmp_path / "a.json").write_text('{"name": "x"}')
    assert read(tmp_path).broken == {0: "a.json is not in the format LabelMe"}


@pytest.mark.parametrize(
    ("images_in", "files_in"),
    [(".", "."), ("images", "."), ("images", "json"), ("train", "train"),
     ("train/images", "train/json"), ("train/images", "train"), ("images", "json/train")],
)  # fmt: skip
def test_files_named_as_images_are_looked_into_first(tmp_path, images_in, files_in):
    images(tmp_path / images_in, "z.jpg")
    write(tmp_path / files_in / "z.json", shape("rectangle", RECTANGLE))
    for number in range(150):
        (tmp_path / files_in / f"a{number}.json").write_text('{"a": 1}')
    dataset = load_dataset(tmp_path, splits=("train",), train_part=0.5)
    assert [names(LABELME.read(folder)) for folder in dataset.train] == [["z.jpg"]]


def test_a_folder_is_looked_into_in_the_order_of_names(tmp_path):
    write(tmp_path / "a50.json", shape("rectangle", RECTANGLE))
    for number in range(10, 50):
        (tmp_path / f"a{number}.json").write_text('{"a": 1}')
    assert LABELME.accepts(tmp_path)


@pytest.mark.parametrize("folders", [(".", "."), ("images", "annotations"), ("img", "ann")])
def test_a_folder_is_one_set_to_be_divided(tmp_path, folders):
    images(tmp_path / folders[0], "a.jpg", "b.jpg")
    write(tmp_path / folders[1] / "a.json", shape("rectangle", RECTANGLE))
    (found,) = LABELME.find(tmp_path)[""]
    assert names(LABELME.read(found)) == ["a.jpg", "b.jpg"]
    assert load_dataset(tmp_path, train_part=0.5).class_names == ("dog",)


def test_folders_named_for_splits_are_splits(tmp_path):
    for split in ("train", "val"):
        images(tmp_path / split, f"{split}.jpg")
        write(tmp_path / split / f"{split}.json", shape("rectangle", RECTANGLE, split))
    dataset = load_dataset(tmp_path)
    assert dataset.class_names == ("train", "val")
    assert names(LABELME.read(*dataset.train)) == ["train.jpg"]
    assert names(LABELME.read(*dataset.val)) == ["val.jpg"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (document(), True),
        ("\ufeff\n " + document(), True),
        ('{"imageData": "' + "A" * 100_000 + '", "shapes": []}', True),
        ('{"images": [], "annotations": [], "categories": []}', False),  # COCO's
        ('[{"shapes": [], "tracks": []}]', False),  # a backup of CVAT
        ("", False),
    ],
)
def test_a_folder_is_recognised_by_a_file_in_it(tmp_path, content, expected):
    (tmp_path / "a.json").write_text(content, "utf-8")
    assert LABELME.accepts(tmp_path) == expected and not LABELME.accepts(tmp_path / "a.json")
    assert set(LABELME.find(tmp_path)) == ({""} if expected else set())
