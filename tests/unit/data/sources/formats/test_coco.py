"""`--data` on COCO's instances JSON, in each layout, and on what is wrong with such files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.outlines import assert_same_polygons, make_polygons
from utils.data.sources.dataset import load_dataset
from utils.data.sources.formats.coco import COCO, ROBOFLOW
from utils.data.sources.formats.coco_file import SECTIONS
from utils.data.sources.formats.format import AnnotatedFolder
from utils.data.sources.splits import load_split
from utils.errors import DatasetError

WIDTH, HEIGHT = 64, 48
CATEGORIES = [{"id": 9, "name": "owl"}, {"id": 2, "name": "cat"}, {"id": 5, "name": "dog"}]


def annotation(image_id: int, category_id: int, box: list, segmentation=(), **more) -> dict:
    return {
        "id": 100, "image_id": image_id, "category_id": category_id, "bbox": box,
        "area": 1.0, "iscrowd": 0, "segmentation": segmentation, **more,
    }  # fmt: skip


def document(names: list[str], annotations: list[dict] | None = None, **sections) -> dict:
    """Return a file of images with the ids 7, 8, ...; without annotations one object on each."""
    images = [
        {"id": 7 + number, "file_name": name, "width": WIDTH, "height": HEIGHT}
        for number, name in enumerate(names)
    ]
    if annotations is None:
        annotations = [annotation(image["id"], 5, [8, 12, 16, 24]) for image in images]
    return {
        "info": {"year": 2017}, "images": images, "annotations": annotations,
        "categories": CATEGORIES, **sections,
    }  # fmt: skip


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def add_images(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.Generator(np.random.Philox(number))
        assert cv2.imwrite(str(path), noise.integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8))


def read(folder: Path, content: object):
    return COCO.read(AnnotatedFolder(COCO.name, write(folder / "a.json", content), folder))


def names_of(dataset, split: str) -> list[str]:
    return [str(sample.image_path) for sample in load_split(dataset, split)]


def test_classes_are_in_the_order_of_their_ids_and_boxes_in_pixels(tmp_path):
    objects = [
        annotation(8, 9, [1, 2, 30, 40]),
        annotation(7, 2, [0.5, 0, 10.25, 20], [[0, 0, 10, 0, 10, 20]]),
        annotation(8, 5, [3, 4, 5, 6]),
    ]
    found = read(tmp_path, document(["a.png", "b.png", "c.png"], objects))
    assert found.class_names == ("cat", "dog", "owl")
    assert found.paths == tuple(str(tmp_path / name) for name in ("a.png", "b.png", "c.png"))
    assert found.sizes.tolist() == [[HEIGHT, WIDTH]] * 3
    assert found.starts.tolist() == [0, 1, 3, 3]  # an image without annotations has no objects
    assert found.class_index.tolist() == [0, 2, 1]
    expected = [[0.5, 0, 10.75, 20], [1, 2, 31, 42], [3, 4, 8, 10]]
    np.testing.assert_array_equal(found.boxes_xyxy, expected)
    outlines = make_polygons([np.array([[0, 0], [10, 0], [10, 20]]), np.zeros((0, 2)), []])
    assert_same_polygons(found.polygons, outlines)
    assert (found.broken, found.left_out) == ({}, {})


@pytest.mark.parametrize("order", [SECTIONS, SECTIONS[::-1], ("annotations", "images")])
def test_sections_may_come_in_any_order(tmp_path, order):
    content = document(["a.png", "b.png"])
    content = {**{name: content[name] for name in order}, **content}
    assert read(tmp_path, content).class_index.tolist() == [1, 1]


def test_crowds_are_left_out_and_other_masks_become_outlines(tmp_path):
    runs = {"size": [HEIGHT, WIDTH], "counts": [HEIGHT * 2 + 5, 3, HEIGHT * (WIDTH - 2) - 8]}
    parts = [[0, 0, 4, 0, 4, 4], [20, 20, 24, 20, 24, 24], [1, 1, 2, 2]]
    objects = [
        annotation(7, 2, [0, 0, 9, 9], {"size": [1, 1], "counts": "damaged"}, iscrowd=1),
        annotation(7, 2, [2, 5, 1, 3], runs),
        annotation(7, 5, [0, 0, 24, 24], parts),
        annotation(7, 5, [0, 0, 4, 4], parts[0]),  # not in a list of parts
        annotation(99, 5, [0, 0, 24, 24]),
    ]
    found = read(tmp_path, document(["a.png"], objects))
    assert found.left_out == {"crowds": 1, "objects of unknown images": 1}
    assert found.class_index.tolist() == [0, 1, 1]
    pixels = found.polygons.outline(0)
    assert sorted(map(tuple, pixels.tolist())) == [(2, 5), (2, 8), (3, 5), (3, 8)]
    joined = set(map(tuple, found.polygons.outline(1).tolist()))
    assert joined == {(0, 0), (4, 0), (4, 4), (20, 20), (24, 20), (24, 24)}
    assert found.polygons.num_points.tolist()[2] == 3


def test_categories_of_one_name_are_one_class(tmp_path, caplog):
    categories = [*CATEGORIES, {"id": 1, "name": "dog"}, {"id": 30, "name": 7}]
    objects = [annotation(7, number, [1, 1, 9, 9]) for number in (1, 5, 2, 30)]
    found = read(tmp_path, document(["a.png"], objects, categories=categories))
    assert found.class_names == ("dog", "cat", "owl", "7")
    assert found.class_index.tolist() == [0, 0, 1, 3]
    assert "categories of one name are taken for one class: ['dog']" in caplog.text


@pytest.mark.parametrize(
    ("supercategory", "object_of", "is_class"),
    [("pets", 2, False), ("pets", 0, True), ("others", 2, True)],
)
def test_roboflows_first_category_is_no_class(tmp_path, supercategory, object_of, is_class):
    categories = [{"id": 0, "name": "pets", "supercategory": "none"}] + [
        {"id": number, "name": name, "supercategory": supercategory}
        for number, name in ((1, "cat"), (2, "dog"))
    ]
    objects = [annotation(7, object_of, [1, 1, 9, 9])]
    found = read(tmp_path, document(["a.png"], objects, categories=categories))
    assert found.class_names == (("pets",) if is_class else ()) + ("cat", "dog")
    assert found.class_names[found.class_index[0]] == ("pets" if object_of == 0 else "dog")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"category_id": 3}, "annotation 100: 'categories' has no id 3"),
        ({"bbox": [1, 2, 3]}, r"bbox \[1, 2, 3\]; left, top, width, height"),
        ({"bbox": None}, "bbox None"),
        ({"bbox": [1, 2, "3", 4]}, "bbox"),
        ({"bbox": [1, 2, -3, 4]}, "bbox"),
        ({"bbox": [1, 2, float("nan"), 4]}, "bbox"),
        ({"bbox": [1, 2, 1e11, 4]}, "bbox"),
        ({"iscrowd": 2}, "iscrowd 2"),
        ({"iscrowd": [0]}, "iscrowd"),
        ({"segmentation": [[1, 2, 3]]}, "x1, y1, x2, y2, ... are needed"),
        ({"segmentation": [[1, 2, 3, 4, 5, "6"]]}, "segmentation cannot be used"),
        ({"segmentation": [[1, 2, 3, 4, 5, [6]]]}, "segmentation cannot be used"),
        ({"segmentation": [[[[1, 2]]]]}, "segmentation cannot be used"),
        ({"segmentation": [[1, 2, 3, 4, 5, 1e30]]}, "far beyond any image"),
        ({"segmentation": [[1, 2, 3, 4, 5, float("nan")], [0, 0, 1, 1, 2, 2]]}, "far beyond"),
        ({"segmentation": 7}, "segmentation cannot be used: 7"),
        ({"segmentation": "polygon"}, "segmentation cannot be used"),
        ({"segmentation": {"size": [4, 4], "counts": [1]}}, "do not fill 4x4 px"),
        ({"id": "seven", "bbox": []}, "entry 1 of 'annotations': bbox"),
    ],
)
def test_a_broken_object_costs_its_image_alone(tmp_path, change, text):
    objects = [annotation(8, 5, [1, 1, 9, 9]), annotation(7, 5, [1, 1, 9, 9]) | change]
    found = read(tmp_path, document(["a.png", "b.png"], objects))
    assert list(found.broken) == [0]
    with pytest.raises(AssertionError, match=text):
        raise AssertionError(found.broken[0])
    assert found.starts[-1] - found.starts[1] == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (None, "is not a valid JSON object"),
        ({"images": {}}, "'images' is not a list"),
        ({"categories": 3}, "'categories' is not a list"),
        ({"annotations": None}, "'annotations' is not a list"),
        ({"images": [{"file_name": "a.png"}]}, "entry 0 of 'images' has no 'id'"),
        ({"images": [{"id": 1}]}, "entry 0 of 'images' has no 'file_name'"),
        ({"images": [{"id": 1, "file_name": 3}]}, "file_name 3"),
        ({"images": [{"id": 1, "file_name": ""}]}, "file_name ''"),
        ({"images": [{"id": 1, "file_name": ".."}]}, "called '..'; no file can be"),
        ({"images": [{"id": 1, "file_name": "a\0b"}]}, "file_name"),
        ({"images": [{"id": 1, "file_name": "\ud800.png"}]}, "file_name"),
        ({"images": [{"id": 1, "file_name": "a" * 5000}]}, "file_name"),
        ({"images": [{"id": 1, "file_name": "a.png", "width": -1}]}, "width -1"),
        ({"images": [{"id": 1, "file_name": "a.png", "width": "9"}]}, "width '9'"),
        ({"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]}, "image id 1"),
        ({"images": [7]}, "entry 0 of 'images' has no 'id'"),
        ({"categories": [{"id": 1, "name": None}]}, "name None"),
        ({"categories": [*CATEGORIES, CATEGORIES[0]]}, "category id 9"),
        ({"annotations": [{"category_id": 5}]}, "entry 0 of 'annotations' has no 'image_id'"),
        ({"annotations": [annotation(7, "dog", [])]}, "category_id 'dog' is no whole number"),
        ({"annotations": [annotation(2**70, 5, [])]}, "beyond 64 bits"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path, change, text):
    content = [] if change is None else document(["a.png"]) | change
    with pytest.raises(DatasetError) as caught:
        read(tmp_path, content)
    assert text in str(caught.value) and str(tmp_path / "a.json") in str(caught.value)


def test_images_of_one_file_are_all_refused_and_the_others_are_not(tmp_path):
    content = document(["a.png", "b.png"], [annotation(7, 5, [1, 1, 9, 9])])
    content["images"].append({"id": 90, "file_name": "./a.png"})
    found = read(tmp_path, content)
    assert list(found.broken) == [0, 2]
    assert "'a.png' and './a.png' are both" in found.broken[0] == found.broken[2]


def test_ids_written_as_decimals_and_sides_that_are_absent_are_taken(tmp_path):
    content = document(["a.png"], [annotation(7.0, 5.0, [1, 1, 9, 9], None, iscrowd=None)])
    content["images"] = [{"id": 7.0, "file_name": "a.png", "width": None}]
    found = read(tmp_path, content)
    assert (found.sizes.tolist(), found.class_index.tolist()) == ([[0, 0]], [1])


def test_a_file_cut_short_anywhere_is_refused(tmp_path):
    whole = json.dumps(document(["a.png", "b.png"]))
    for end in range(0, len(whole), 7):
        (tmp_path / "a.json").write_text(whole[:end])
        with pytest.raises(DatasetError, match="a.json: "):
            COCO.read(AnnotatedFolder(COCO.name, tmp_path / "a.json", tmp_path))


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("a.png", "a.png"),
        ("sub/a.png", "sub/a.png"),
        ("images/sub/a.png", "sub/a.png"),
        ("sub\\a.png", "sub/a.png"),
        ("C:\\data\\sub\\a.png", "sub/a.png"),
        ("/home/me/data/images/a.png", "a.png"),
        ("../images/a.png", "a.png"),
        ("../../../sub/a.png", "sub/a.png"),
        ("a/../../sub/a.png", "sub/a.png"),
        ("https://host/data/a.png", "a.png"),
        ("größe 1 🦉.png", "größe 1 🦉.png"),
    ],
)
def test_names_with_folders_are_found_in_the_image_folder_and_nowhere_else(tmp_path, name, place):
    folder = tmp_path / "data" / "images"
    add_images(folder, "a.png", "sub/a.png", place)
    add_images(tmp_path / "sub", "a.png")
    found = read(folder, document([name]))
    assert found.paths == (str(folder / place),)


def test_an_image_that_is_absent_is_told_by_the_scan(tmp_path, caplog):
    add_images(tmp_path, "a.png")
    long = "a" * 2000 + ".png"  # longer than a name can be
    file = write(tmp_path / "a.json", document(["a.png", "gone.png", long]))
    dataset = load_dataset(file, splits=("train",))
    assert names_of(dataset, "train") == [str(tmp_path / "a.png")]
    assert "gone.png: left out" in caplog.text and "aaaa.png: left out" in caplog.text


def test_a_yaml_names_images_and_annotations(tmp_path):
    for split, names in (("train", ["a.png", "b.png"]), ("val", ["c.png"])):
        add_images(tmp_path / "pictures" / split, *names)
        write(tmp_path / f"labels/{split}.json", document(names))
    entry = "{images: pictures/%s, annotations: labels/%s.json}"
    yaml = "".join(f"{split}: {entry % (split, split)}\n" for split in ("train", "val"))
    (tmp_path / "data.yaml").write_text(yaml)
    dataset = load_dataset(tmp_path / "data.yaml")
    assert dataset.class_names == ("cat", "dog", "owl")
    assert [len(load_split(dataset, split)) for split in ("train", "val")] == [2, 1]
    (sample,) = load_split(dataset, "val")
    expected = [[16 / WIDTH, 24 / HEIGHT, 16 / WIDTH, 24 / HEIGHT]]
    np.testing.assert_array_equal(sample.boxes_cxcywh_norm, np.float32(expected))


def test_a_list_names_some_of_the_images(tmp_path):
    objects = [
        annotation(9, 2, [1, 1, 9, 9], iscrowd=1), annotation(8, 5, [1, 1, 9, 9]),
        annotation(9, 9, [2, 2, 9, 9]), annotation(7, 3, [1, 1, 9, 9]),
        annotation(9, 2, [3, 3, 9, 9]), annotation(10, 3, [1, 1, 9, 9]),
    ]  # fmt: skip
    names = ["a.png", "b.png", "c.png", "d.png"]
    file = write(tmp_path / "a.json", document(names, objects))
    add_images(tmp_path, *names)
    (tmp_path / "some.txt").write_text("images/b.png\nc\nd.png\n")
    found = COCO.read(AnnotatedFolder(COCO.name, file, tmp_path, tmp_path / "some.txt"))
    assert [Path(path).name for path in found.paths] == ["b.png", "c.png", "d.png"]
    assert found.sizes.shape == (3, 2) and found.starts.tolist() == [0, 1, 3, 3]
    assert found.class_index.tolist() == [1, 2, 0]
    assert (list(found.broken), found.left_out) == ([2], {"crowds": 1})


def test_lists_of_two_folders_divide_their_images(tmp_path):
    names = ["cam1/1.png", "cam2/1.png"]
    add_images(tmp_path, *names)
    write(tmp_path / "a.json", document(names))
    yaml = ""
    for split, text in (("train", "cam1/1.png"), ("val", "cam2/1.png"), ("test", "cam3/1.png")):
        (tmp_path / f"{split}.txt").write_text(text)
        yaml += f"{split}: {{images: ., annotations: a.json, list: {split}.txt}}\n"
    (tmp_path / "data.yaml").write_text(yaml)
    dataset = load_dataset(tmp_path / "data.yaml", splits=("train", "val", "test"))
    assert names_of(dataset, "train") == [str(tmp_path / "cam1/1.png")]
    assert names_of(dataset, "val") == [str(tmp_path / "cam2/1.png")]
    with pytest.raises(DatasetError, match=r"a\.json: none of its images is in .*test\.txt"):
        load_split(dataset, "test")
    (tmp_path / "a.json").write_text(json.dumps(document([], [])))
    with pytest.raises(DatasetError, match=r"a\.json: has no images"):
        load_split(load_dataset(tmp_path / "a.json", splits=("train",)), "train")


def test_a_roboflow_export_is_a_dataset(tmp_path):
    for folder, names in (("train", ["a.png", "b.png"]), ("valid", ["c.png"]), ("test", ["d.png"])):
        add_images(tmp_path / folder, *names)
        write(tmp_path / folder / ROBOFLOW, document(names))
    dataset = load_dataset(tmp_path, splits=("train", "val", "test"))
    for split, folder, number in (("train", "train", 2), ("val", "valid", 1), ("test", "test", 1)):
        found = names_of(dataset, split)
        assert len(found) == number and all(Path(name).parent.name == folder for name in found)
    alone = load_dataset(tmp_path / "train", splits=("train",))
    assert names_of(alone, "train") == names_of(dataset, "train")


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("train2017", "val2017"), ("images/train2017", "images/val2017"), ("train", "val"),
        ("images/train", "images/val"), ("images", "images"), ("train/images", "valid/images"),
    ],
)  # fmt: skip
def test_the_layout_of_the_public_coco_is_a_dataset(tmp_path, train, val):
    for tag, folder, names in (("train", train, ["a.png"]), ("val", val, ["b.png", "c.png"])):
        add_images(tmp_path / folder, *names)
        write(tmp_path / f"annotations/instances_{tag}2017.json", document(names))
        write(tmp_path / f"annotations/captions_{tag}2017.json", {"annotations": []})
    dataset = load_dataset(tmp_path)
    assert names_of(dataset, "train") == [str(tmp_path / train / "a.png")]
    assert names_of(dataset, "val") == [str(tmp_path / val / name) for name in ("b.png", "c.png")]


def test_a_year_without_its_images_is_no_split(tmp_path):
    add_images(tmp_path / "val2017", "b.png")
    write(tmp_path / "annotations/instances_train2014.json", document(["a.png"]))
    write(tmp_path / "annotations/instances_val2017.json", document(["b.png"]))
    assert set(COCO.find(tmp_path)) == {"val"}
    with pytest.raises(DatasetError, match="has no images for 'train'"):
        load_dataset(tmp_path)


def test_a_cvat_export_is_one_undivided_set(tmp_path):
    names = [f"{number}.png" for number in range(12)]
    add_images(tmp_path / "images/default", *names)
    write(tmp_path / "annotations/instances_default.json", document(names))
    dataset = load_dataset(tmp_path, train_part=0.5)
    train, val = names_of(dataset, "train"), names_of(dataset, "val")
    assert sorted(train + val) == sorted(str(tmp_path / "images/default" / name) for name in names)
    assert train and val


@pytest.mark.parametrize(
    ("file", "images"),
    [
        ("a.json", "."), ("a.json", "images"), ("annotations/a.json", "images"),
        ("annotations/instances_val2017.json", "val2017"), ("annotations/train.json", "."),
    ],
)  # fmt: skip
def test_a_single_file_finds_its_images(tmp_path, file, images):
    add_images(tmp_path / images, "a.png", "b.png")
    dataset = load_dataset(write(tmp_path / file, document(["a.png", "b.png"])), splits=("train",))
    assert names_of(dataset, "train") == [
        str(tmp_path / images / name) for name in ("a.png", "b.png")
    ]


@pytest.mark.parametrize(
    ("name", "content", "accepted"),
    [
        ("a.json", b'{"images": [], "annotations": [], "categories": []}', True),
        ("a.JSON", b'\xef\xbb\xbf \n{"categories" : [\n]', True),
        ("a.json", b'{"imagePath": "a.png", "shapes": []}', False),
        ("a.json", b'[{"annotations": []}]', False),
        ("a.json", b"", False),
        ("a.json", b"\0" * 100, False),
        ("a.txt", b'{"images": []', False),
    ],
)
def test_a_file_is_known_by_its_beginning(tmp_path, name, content, accepted):
    (tmp_path / name).write_bytes(content)
    assert COCO.accepts(tmp_path / name) is accepted


def test_what_is_no_file_is_not_accepted(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").mkdir()
    for name in ("a.json", "b.json", "none.json"):
        assert not COCO.accepts(tmp_path / name)
    assert COCO.find(tmp_path) == {}
