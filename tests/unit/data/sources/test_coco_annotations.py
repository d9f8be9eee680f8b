"""`coco_annotations.py` against pycocotools on the same file, and on broken files."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from duet.models.evaluation.validation import annotated_objects
from duet.utils.data.sources.coco_annotations import read_coco_annotations
from duet.utils.data.sources.samples import Sample
from duet.utils.errors import UserError

CLASS_NAMES = ("cat", "dog", "owl")
CATEGORY_IDS = {"dog": 18, "cat": 17, "owl": 3, "unused": 99}
IMAGE_IDS = (40, 7, 12, 900)


def sample(number):
    return Sample(
        Path(f"images/val/{number}.jpg"), 300, 400, np.zeros(0, np.int64), np.zeros((0, 4))
    )


SAMPLES = [sample(number) for number in range(len(IMAGE_IDS))]


def document():
    """Return objects of all sizes, a third of them crowds, areas of about half the boxes."""
    random = np.random.Generator(np.random.Philox(0))
    annotations = []
    for image_id in (*IMAGE_IDS, 1234):
        for _ in range(12):
            size = np.exp(random.uniform(2, 5.5, 2))
            box = [*(random.uniform(0, 1, 2) * 150).tolist(), *size.tolist()]
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image_id, "bbox": box,
                 "category_id": int(random.choice([3, 17, 18])),
                 "iscrowd": int(random.uniform() < 0.3),
                 "area": float(size.prod() * random.uniform(0.3, 0.8)), "segmentation": []}
            )  # fmt: skip
    names = [*(f"val/{number}.jpg" for number in range(len(IMAGE_IDS))), "elsewhere.jpg"]
    images = [
        {"id": image_id, "file_name": name, "height": 300, "width": 400}
        for image_id, name in zip((*IMAGE_IDS, 1234), names, strict=True)
    ]
    categories = [{"id": number, "name": name} for name, number in CATEGORY_IDS.items()]
    return {"info": {}, "images": images, "annotations": annotations, "categories": categories}


def write(folder, content):
    path = folder / "instances.json"
    path.write_text(json.dumps(content))
    return path


def test_objects_of_chosen_classes_keep_their_crowds_and_areas(tmp_path):
    annotations = read_coco_annotations(write(tmp_path, document()), SAMPLES, CLASS_NAMES)
    same = np.arange(len(CLASS_NAMES))
    objects, chosen = annotations.objects[0], annotated_objects(annotations, same, (0, 2), 0)
    rows = np.flatnonzero(objects.class_index != 1)
    assert 0 < len(rows) < len(objects.class_index)
    np.testing.assert_array_equal(chosen.area, objects.area[rows])
    np.testing.assert_array_equal(chosen.is_crowd, objects.is_crowd[rows])
    whole = annotated_objects(annotations, same, None, 0)
    assert whole.boxes_xyxy is objects.boxes_xyxy
    np.testing.assert_array_equal(whole.class_index, objects.class_index)


def test_what_a_file_leaves_out_is_no_crowd_and_the_area_of_the_box(tmp_path):
    content = document()
    content["annotations"] = [{"image_id": 7, "category_id": 3, "bbox": [1, 2, 30, 40]}]
    del content["images"][1]["height"]
    objects = read_coco_annotations(write(tmp_path, content), SAMPLES, CLASS_NAMES).objects
    np.testing.assert_array_equal(objects[1].boxes_xyxy, [[1, 2, 31, 42]])
    assert (objects[1].is_crowd.tolist(), objects[1].area.tolist()) == ([False], [1200.0])
    assert objects[0].boxes_xyxy.shape == (0, 4) and objects[0].is_crowd.dtype == bool


def test_images_of_one_name_are_distinguished_by_their_folders(tmp_path):
    content = document()
    for number, name in enumerate(("images/cam1/a.jpg", "cam2\\a.jpg", "a.jpg")):
        content["images"][number]["file_name"] = name
    places = [tmp_path / "images" / folder / "a.jpg" for folder in ("cam1", "cam2")]
    samples = [dataclasses.replace(SAMPLES[0], image_path=place) for place in places]
    with pytest.raises(UserError, match="several images are named 'a.jpg'"):
        read_coco_annotations(write(tmp_path, content), samples, CLASS_NAMES)
    del content["images"][2]
    found = read_coco_annotations(write(tmp_path, content), samples, CLASS_NAMES)
    assert found.image_ids == [IMAGE_IDS[0], IMAGE_IDS[1]]


def changed(*keys_and_value):
    """Return a file in which one entry has another value, or with `...` none."""
    *keys, last, value = keys_and_value
    content = document()
    entry = content
    for key in keys:
        entry = entry[key]
    if value is ...:
        del entry[last]
    else:
        entry[last] = value
    return content


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([], "'images' is not a list in it"),
        (changed("categories", {}), "'categories' is not a list"),
        (changed("images", 0, "id", "40"), "entry 0 of 'images': id '40' is no whole number"),
        (changed("images", 0, "file_name", "x.jpg"), "no image is named 0.jpg"),
        (changed("images", 2, "width", 300), "2.jpg has width 300 there, but 400"),
        (changed("categories", 1, "name", "lynx"), "no category is called 'cat'"),
        (changed("annotations", 5, "image_id", [7]), "image_id [7] is no whole number"),
        (changed("annotations", 5, "category_id", 99), "annotation 6: its category 'unused' is no"),
        (changed("annotations", 5, "bbox", [1, 2, 3, 10**400]), "JSON object: the number 1000"),
        (changed("categories", 1, "name", "\x1b[2J" * 60_000), "its categories: ['owl', '\\x1b[2J"),
        (changed("annotations", 5, "area", "big"), "area 'big'"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path, content, text):
    path = write(tmp_path, content)
    with pytest.raises(UserError) as caught:
        read_coco_annotations(path, SAMPLES, CLASS_NAMES)
    assert text in str(caught.value)
    assert f"--annotations {path}" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_missing_file_and_one_that_is_no_json_are_refused(tmp_path):
    path = tmp_path / "instances.json"
    with pytest.raises(UserError, match="No such file"):
        read_coco_annotations(path, SAMPLES, CLASS_NAMES)
    for content in (b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": 1, "a": 1}'):
        path.write_bytes(content)
        with pytest.raises(UserError, match="is not a valid JSON object"):
            read_coco_annotations(path, SAMPLES, CLASS_NAMES)
