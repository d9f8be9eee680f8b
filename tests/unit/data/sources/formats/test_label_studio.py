"""Label Studio's exports, as its documentation shows them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from utils.data.sources.formats.format import AnnotatedFolder
from utils.data.sources.formats.label_studio import NAME, accepts, find, read
from utils.errors import DatasetError

SIZE = {"original_width": 200, "original_height": 100, "image_rotation": 0}


def box(label="Car", x=10.0, y=20.0, width=30.0, height=40.0, rotation=0, **more):
    value = {"x": x, "y": y, "width": width, "height": height, "rotation": rotation}
    return {
        **SIZE,
        "id": "Dx_aB91ISN",
        "from_name": "label",
        "to_name": "image",
        "type": "rectanglelabels",
        "value": {**value, "rectanglelabels": [label]},
        **more,
    }


def region(**value):
    return {**SIZE, "type": "x", "value": value}


def task(*results, image="/data/upload/1/0a1b2c3d-a.jpg", number=1, **annotation):
    made = {"id": 7, "was_cancelled": False, "ground_truth": False, "result": list(results)}
    return {
        "id": number,
        "annotations": [{**made, **annotation}],
        "predictions": [{"result": [box("Ghost")]}],
        "data": {"image": image},
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.jpg").touch()
    return tmp_path


def read_tasks(folder: Path, *tasks):
    file = folder / "project-1.json"
    file.write_text(json.dumps(tasks), encoding="utf-8")
    assert accepts(file)
    (annotated,) = find(folder)[""]
    assert annotated == AnnotatedFolder(NAME, file, folder / "images")
    return read(annotated)


def test_a_box_in_percent_is_in_pixels_of_the_image_and_predictions_are_no_labels(folder):
    found = read_tasks(folder, task(box()))
    assert found.class_names == ("Car",)
    assert found.paths == (str(folder / "images/a.jpg"),)
    assert found.sizes.tolist() == [[100, 200]]
    assert found.boxes_xyxy.tolist() == [[20, 20, 80, 60]]
    assert found.polygons.starts.tolist() == [0, 0]
    assert found.left_out == {} and found.broken == {}


def test_a_turned_box_turns_clockwise_about_its_left_and_top_corner(folder):
    # 60 x 40 px from (100, 20): a quarter turn leads 40 px to the left and 60 px down.
    quarter = box(x=50, y=20, width=30, height=40, rotation=90)
    found = read_tasks(folder, task(quarter))
    np.testing.assert_allclose(found.boxes_xyxy, [[60, 20, 100, 80]])
    assert found.polygons.starts.tolist() == [0, 4]
    eighth = read_tasks(folder, task(box(x=50, y=20, width=10, height=20, rotation=45)))
    side = 20 * math.sqrt(0.5)  # of 20 x 20 px, on its corner
    np.testing.assert_allclose(eighth.boxes_xyxy, [[100 - side, 20, 100 + side, 20 + 2 * side]])


def test_a_turned_box_that_reaches_out_of_the_image_is_cut_at_its_edge(folder):
    found = read_tasks(folder, task(box(x=0, y=50, width=10, height=20, rotation=45)))
    side = 20 * math.sqrt(0.5)
    # The left half of the square on its corner (0, 50) is outside.
    np.testing.assert_allclose(found.boxes_xyxy, [[0, 50, side, 50 + 2 * side]], atol=1e-9)
    far = read_tasks(folder, task(box(x=-1, y=50, width=10, height=20, rotation=135)))
    assert len(far.boxes_xyxy) == 0
    assert sum(far.left_out.values()) == 1


def test_polygons_and_ellipses_have_outlines_and_other_shapes_are_counted(folder):
    found = read_tasks(
        folder,
        task(
            region(points=[[10, 10], [20, 10], [15, 30]], polygonlabels=["Cat"]),
            region(x=50, y=50, radiusX=10, radiusY=20, rotation=0, ellipselabels=["Dog"]),
            region(x=50, y=50, radiusX=10, radiusY=30, rotation=90, ellipselabels=["Dog"]),
            region(format="rle", rle=[0, 1, 1], brushlabels=["Dog"]),
            region(x=1, y=1, width=0.5, keypointlabels=["Dog"]),
            region(points=[[1, 1], [2, 2]], polygonlabels=["Cat"]),
            region(x=1, y=1, width=5, height=5, rotation=0, rectanglelabels=[]),
            region(choices=["good"]),
            {"type": "relation", "from_id": "a", "to_id": "b"},
        ),
    )
    assert found.class_names == ("Cat", "Dog")
    assert found.polygons.outline(0).tolist() == [[20, 10], [40, 10], [30, 30]]
    np.testing.assert_allclose(
        found.boxes_xyxy, [[20, 10, 40, 30], [80, 30, 120, 70], [70, 30, 130, 70]]
    )
    radii = (found.polygons.outline(1) - (100, 50)) / 20
    np.testing.assert_allclose(np.hypot(*radii.T), 1)
    assert found.left_out == {
        "brush strokes": 1,
        "keypoints": 1,
        "regions outside the image, or of fewer than 3 points": 1,
        "regions without a label": 1,
    }


def test_a_box_and_its_label_in_two_regions_of_one_id_are_one_object(folder):
    place = {"x": 10, "y": 20, "width": 30, "height": 40, "rotation": 0}
    drawn = {**region(**place), "id": "r1", "type": "rectangle"}
    named = {**region(**place, labels=["Car"]), "id": "r1", "type": "labels"}
    found = read_tasks(folder, task(drawn, named))
    assert found.boxes_xyxy.tolist() == [[20, 20, 80, 60]]
    assert found.left_out == {}


def test_a_region_of_two_labels_is_an_object_of_each(folder):
    both = box()
    both["value"]["rectanglelabels"] = ["Car", "Red"]
    found = read_tasks(folder, task(both))
    assert [found.class_names[index] for index in found.class_index] == ["Car", "Red"]


def test_without_the_size_of_the_image_coordinates_are_normalised(folder):
    bare = box()
    for name in SIZE:
        del bare[name]
    found = read_tasks(folder, task(bare))
    assert found.sizes.tolist() == [[1, 1]]
    np.testing.assert_allclose(found.boxes_xyxy, [[0.1, 0.2, 0.4, 0.6]])
    bare["value"]["rotation"] = 30
    assert "original_width" in read_tasks(folder, task(bare)).broken[0]


def test_of_several_annotations_ground_truth_counts_then_the_newest_not_cancelled(folder):
    def made(label, when, **more):
        return {"result": [box(label)], "updated_at": f"2024-05-{when}T10:00:00Z", **more}

    annotations = [made("old", "01"), made("new", "03"), made("void", "09", was_cancelled=True)]
    item = {"id": 1, "data": {"image": "a.jpg"}, "annotations": annotations}
    assert read_tasks(folder, item).class_names == ("new",)
    annotations.insert(1, made("true", "02", ground_truth=True))
    assert read_tasks(folder, item).class_names == ("true",)


def test_a_labelled_image_without_regions_is_a_background_and_an_unlabelled_one_is_left_out(folder):
    void = task(box(), number=2, was_cancelled=True)
    bare = {"id": 3, "data": {"image": "a.jpg"}, "annotations": []}
    found = read_tasks(folder, task(), void, bare)
    assert (len(found), len(found.class_index)) == (1, 0)
    assert found.left_out == {"tasks that nobody has labelled": 2}


def test_of_several_tasks_of_an_image_the_best_annotation_counts(folder):
    def labelled(label, number, day, **more):
        image = f"/data/upload/{number}/{number:08x}-a.jpg"
        when = f"2024-05-{day}T10:00:00Z"
        return task(box(label), image=image, number=number, updated_at=when, **more)

    old, new = labelled("old", 1, "01"), labelled("new", 2, "02")
    for tasks in ((old, new), (new, old)):
        found = read_tasks(folder, *tasks)
        assert (found.class_names, len(found), dict(found.broken)) == (("new",), 1, {})
        assert found.left_out == {"other annotations of an image": 1}
    found = read_tasks(folder, labelled("true", 3, "01", ground_truth=True), new)
    assert found.class_names == ("true",)


def test_tasks_of_two_images_are_not_both_one_file(folder):
    images = ("s3://bucket/cam1/a.jpg", "s3://bucket/cam2/a.jpg")
    tasks = (task(box(), image=image, number=n) for n, image in enumerate(images))
    found = read_tasks(folder, *tasks)
    assert list(found.broken) == [0, 1]
    assert "task 0 and task 1 are both" in found.broken[0]


def test_json_min_is_read_and_the_newest_annotation_of_a_task_counts(folder):
    def item(label, when, number=1, image="/data/upload/1/0a1b2c3d-a.jpg"):
        value = {"x": 10, "y": 20, "width": 30, "height": 40, "rotation": 0}
        label = {**value, "rectanglelabels": [label], **SIZE}
        return {
            "image": image,
            "id": number,
            "label": [label],
            "annotator": 1,
            "annotation_id": 5,
            "updated_at": f"2024-05-{when}T10:00:00Z",
        }

    found = read_tasks(folder, item("new", "02"), item("old", "01"), item("Dog", "01", 2, "b.jpg"))
    assert found.class_names == ("Dog", "new")
    assert found.boxes_xyxy.tolist() == [[20, 20, 80, 60]] * 2
    assert found.paths == (str(folder / "images/a.jpg"), str(folder / "images/b.jpg"))


@pytest.mark.parametrize(
    "image",
    [
        "/data/upload/1/0a1b2c3d-a.jpg",
        "/data/local-files/?d=some%2Ffolder/a.jpg",
        "/data/local-files/?d=C:\\pictures\\a.jpg",
        "s3://bucket/folder/a.jpg",
        "https://host/x/a.jpg?X-Amz-Credential=b%2Fc",
        "a.jpg",
    ],
)
def test_the_image_is_found_by_its_name_wherever_label_studio_has_it(folder, image):
    found = read_tasks(folder, task(box(), image=image))
    assert found.paths == (str(folder / "images/a.jpg"),) and not found.broken


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("my cat (1).jpg", "/data/upload/1/0a1b2c3d-my_cat_1.jpg"),
        ("0a1b2c3d-b.jpg", "/data/upload/1/0a1b2c3d-b.jpg"),
        ("图 🐈#50%.jpg", "s3://bucket/图 🐈#50%.jpg"),
        ("图.jpg", "https://host/%E5%9B%BE.jpg"),
        ("deadbeef-c.jpg", "deadbeef-c.jpg"),
    ],
)
def test_names_that_an_upload_changes_are_found(folder, name, image):
    (folder / "images" / name).touch()
    found = read_tasks(folder, task(box(), image=image))
    assert found.paths == (str(folder / "images" / name),) and not found.broken


def test_of_files_of_one_name_the_folder_decides_or_the_image_is_refused(folder):
    for place in ("cam1", "cam2"):
        (folder / "images" / place).mkdir()
        (folder / "images" / place / "b.jpg").touch()
    found = read_tasks(
        folder,
        task(box(), image="s3://bucket/cam2/b.jpg"),
        task(box(), image="b.jpg"),
    )
    assert found.paths[0] == str(folder / "images/cam2/b.jpg")
    assert list(found.broken) == [1]
    assert "2 files have its name" in found.broken[1]


def test_an_image_that_is_absent_is_no_file_of_another_folder(folder):
    (folder / "images/cam2").mkdir()
    (folder / "images/cam2/b.jpg").touch()
    found = read_tasks(
        folder,
        task(box(), image="s3://bucket/cam1/b.jpg"),
        task(box(), image="s3://bucket/cam2/b.jpg"),
        task(box(), image="/data/local-files/?d=cam3/b.jpg"),
    )
    names = [Path(path).relative_to(folder / "images") for path in found.paths]
    assert list(map(str, names)) == ["s3:/bucket/cam1/b.jpg", "cam2/b.jpg", "cam3/b.jpg"]
    assert not found.broken


def test_an_upload_is_found_in_any_folder(folder):
    (folder / "images/cam2").mkdir()
    (folder / "images/cam2/b.jpg").touch()
    for image in ("/data/upload/1/0a1b2c3d-b.jpg", "https://host/data/upload/0a1b2c3d-b.jpg"):
        found = read_tasks(folder, task(box(), image=image))
        assert found.paths == (str(folder / "images/cam2/b.jpg"),) and not found.broken


def test_the_image_may_have_another_name_in_the_task(folder):
    item = task(box())
    item["data"] = {"text": "a fine day", "photo": "https://host/a.jpg?sig=1"}
    assert read_tasks(folder, item).paths == (str(folder / "images/a.jpg"),)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"image_rotation": 90}, "turned by 90 degrees"),
        ({"original_width": "200"}, "original_height and original_width are"),
        ({"original_width": 0}, "original_height and original_width are"),
        ({"original_width": 1e999}, "original_height and original_width are"),
        ({"value": {"rectanglelabels": ["Car"], "x": "1"}}, "x is '1'"),
        ({"value": {"rectanglelabels": ["Car"], "x": 1, "y": float("nan")}}, "y is nan"),
        ({"value": {"rectanglelabels": ["Car"], "x": 1, "y": 1}}, "width is None"),
        ({"value": {"polygonlabels": ["Car"], "points": [[1, 2], [3]]}}, "points are"),
        ({"value": {"polygonlabels": ["Car"], "points": 5}}, "points are 5"),
        ({"value": {"polygonlabels": ["Car"] * 21, "points": []}}, "has 21 labels; at most 20"),
        ({"value": {"polygonlabels": ["Car"], "points": [1, 2, 3, 4]}}, "points are"),
    ],
)
def test_a_region_that_cannot_be_read_refuses_its_image_alone(folder, change, part):
    found = read_tasks(folder, task(box(**change), number=41), task(box(), image="b.jpg"))
    assert list(found.broken) == [0]
    assert "task 41: " in found.broken[0] and part in found.broken[0]
    assert found.boxes_xyxy.tolist() == [[20, 20, 80, 60]]


@pytest.mark.parametrize("image", ["", None, 5, "data:image/png;base64,AAAA", "x" * 5000 + ".jpg"])
def test_a_task_without_the_name_of_a_file_is_refused(folder, image):
    found = read_tasks(folder, task(box(), image=image))
    assert "the name of a file is needed" in found.broken[0]
    assert len(found.broken[0]) < 300


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('[{"annotations": [', "not JSON"),
        ('[{"annotations": []}, 5]', "a list of Label Studio's tasks"),
        ('[{"annotations": []}] x', "not JSON"),
    ],
)
def test_a_broken_file_is_an_error(folder, content, part):
    (folder / "x.json").write_text(content)
    (annotated,) = find(folder)[""]
    with pytest.raises(DatasetError, match=part) as caught:
        read(annotated)
    assert str(folder / "x.json") in str(caught.value)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"annotations": []}', '[{"image_id": 1, "bbox": []}]', "[1]", "\0"]
)
def test_other_json_is_not_taken_for_an_export(folder, content):
    (folder / "x.json").write_text(content)
    assert not accepts(folder / "x.json")
    assert find(folder) == {}


def test_two_exports_in_one_folder_are_an_error_and_those_of_two_splits_are_not(folder):
    text = json.dumps([task(box())])
    for name in ("train.json", "val.json"):
        (folder / name).write_text(text)
    assert {split: part[0].annotations.name for split, part in find(folder).items()} == {
        "train": "train.json",
        "val": "val.json",
    }
    (folder / "train-2.json").write_text(text)
    with pytest.raises(DatasetError, match=r"train-2\.json and .*train\.json are both"):
        find(folder)


def test_a_list_says_which_images_are_meant(folder):
    (folder / "images/b.jpg").touch()
    (folder / "list.txt").write_text("images/b.jpg\n")
    read_tasks(folder, task(box()), task(box(), image="b.jpg"))
    annotated = find(folder)[""][0]._replace(image_list=folder / "list.txt")
    assert read(annotated).paths == (str(folder / "images/b.jpg"),)
