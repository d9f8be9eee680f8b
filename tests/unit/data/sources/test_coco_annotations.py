"""The objects and masks of a COCO JSON, as pycocotools finds them; broken files are refused."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from duet.models.evaluation.validation import annotated_objects
from duet.utils.data.sources.coco_annotations import read_coco_annotations, read_mask_annotations
from duet.utils.data.sources.label_file import MOST_CROSSINGS
from duet.utils.data.sources.samples import Sample
from duet.utils.errors import UserError
from tests.coco_reference import runs_of
from tests.unit.data.formats.annotation_files import CATEGORIES, HEIGHT, WIDTH, coco, coco_object

CLASS_NAMES = ("cat", "dog", "owl")
UNUSED = {"id": 99, "name": "unused"}


def sample(name: str) -> Sample:
    nothing = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    return Sample(Path("images") / name, HEIGHT, WIDTH, *nothing)


NAMES = [f"val/{number}.jpg" for number in range(4)]
SAMPLES = [sample(name) for name in NAMES]


def document():
    """Return objects of all sizes, a third of them crowds, areas of about half the boxes."""
    random, objects = np.random.Generator(np.random.Philox(0)), []
    for image in range(7, 12):  # the last one is of another split
        for _ in range(12):
            size = np.exp(random.uniform(2, 4.5, 2))
            box = [*(random.uniform(0, 1, 2) * 50).tolist(), *size.tolist()]
            more = {"category_id": int(random.choice([2, 5, 9])),
                    "iscrowd": int(random.uniform() < 0.3),
                    "area": float(size.prod() * random.uniform(0.3, 0.8))}  # fmt: skip
            objects.append(coco_object(box, image=image, id=len(objects) + 1, **more))
    return coco(
        objects, [*NAMES, "elsewhere.jpg"], categories=list(map(dict, [*CATEGORIES, UNUSED]))
    )


def write(folder, content):
    path = folder / "instances.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "latin-1")
    return path


def test_chosen_objects_keep_their_crowds_and_areas(tmp_path):
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


def test_absent_crowd_and_area_get_defaults(tmp_path):
    content = document()
    content["annotations"] = [{"image_id": 8, "category_id": 9, "bbox": [1, 2, 30, 40]}]
    del content["images"][1]["height"]
    objects = read_coco_annotations(write(tmp_path, content), SAMPLES, CLASS_NAMES).objects
    np.testing.assert_array_equal(objects[1].boxes_xyxy, [[1, 2, 31, 42]])
    assert (objects[1].is_crowd.tolist(), objects[1].area.tolist()) == ([False], [1200.0])
    assert objects[0].boxes_xyxy.shape == (0, 4) and objects[0].is_crowd.dtype == bool


def test_coco_images_of_equal_name_differ_by_folder(tmp_path):
    content = document()
    for number, name in enumerate(("images/cam1/a.jpg", "cam2\\a.jpg", "a.jpg")):
        content["images"][number]["file_name"] = name
    places = [tmp_path / "images" / folder / "a.jpg" for folder in ("cam1", "cam2")]
    samples = [dataclasses.replace(SAMPLES[0], image_path=place) for place in places]
    with pytest.raises(UserError, match="several images are named 'a.jpg'"):
        read_coco_annotations(write(tmp_path, content), samples, CLASS_NAMES)
    del content["images"][2]
    found = read_coco_annotations(write(tmp_path, content), samples, CLASS_NAMES)
    assert found.image_ids == [7, 8]


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
        (None, "No such file"),
        *((text, "is not a valid JSON object")
          for text in ("{", "\xff\xfe", "[" * 100_000, '{"a": 1, "a": 1}')),
        (changed("images", 0, "file_name", "x.jpg"), "no image is named 0.jpg"),
        (changed("images", 2, "width", 150), "2.jpg has width 150 there, but 200"),
        (changed("categories", 1, "name", "lynx"), "no category is called 'cat'"),
        (changed("annotations", 5, "category_id", 99), "annotation 6: its category 'unused' is no"),
        (changed("annotations", 5, "bbox", [1, 2, 3, 10**400]), "JSON object: the number 1000"),
        (changed("categories", 1, "name", "\x1b[2J" * 60_000), "its categories: ['\\x1b[2J"),
        (changed("annotations", 5, "area", "big"), "area 'big'"),
    ],
)  # fmt: skip
def test_broken_annotation_file_is_refused_by_name(tmp_path, content, text):
    path = tmp_path / "instances.json" if content is None else write(tmp_path, content)
    with pytest.raises(UserError) as caught:
        read_coco_annotations(path, SAMPLES, CLASS_NAMES)
    assert text in str(caught.value)
    assert f"--annotations {path}" in str(caught.value)
    assert len(str(caught.value)) < 1000


MASKED = [sample(name) for name in ("a.jpg", "b.jpg")]

# COCO's decoder warns of NumPy 2's keyword `copy`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def compressed(mask):
    coded = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": list(mask.shape), "counts": coded["counts"].decode()}


def plain(mask):
    return {"size": list(mask.shape), "counts": runs_of([mask]).values.tolist()}


def polygon(random, points):
    return (random.uniform(-0.2, 1.2, (points, 2)) * (WIDTH, HEIGHT)).ravel().tolist()


def segmentations():
    """Of every form that COCO has; pieces overlap, touch the border and lie outside."""
    random = np.random.Generator(np.random.Philox(3))
    noise = random.uniform(size=(HEIGHT, WIDTH)) < 0.3
    single = [[polygon(random, 5)] for _ in range(20)]
    several = [[polygon(random, 4), polygon(random, 6), polygon(random, 3)] for _ in range(20)]
    masks = [plain(noise), compressed(noise), compressed(~noise), plain(noise & False)]
    return [*single, *several, *masks, [[5, 5, 30, 5, 30, 20, 5, 20], [10, 10, 20, 10, 20, 15]]]


def write_masks(folder, given, **entry):
    """A file whose second image has an object with each of these segmentations."""
    own = {"image": 8, "category_id": 2, "area": 5.5, **entry}
    return write(folder, coco(
        coco_object([10, 20, 30, 15], one, id=number, **own)
        for number, one in enumerate(given, start=1)
    ))  # fmt: skip


def read(path):
    return read_coco_annotations(path, MASKED, ["cat"], masks=True)


@pytest.mark.parametrize("is_crowd", [0, 1])
def test_masks_match_pycocotools(tmp_path, is_crowd):
    path = write_masks(tmp_path, segmentations(), iscrowd=is_crowd)
    found = read(path).ground_truth(1)
    truth = COCO(str(path))
    expected = [truth.annToMask(truth.anns[number]) for number in sorted(truth.anns)]
    wanted = runs_of(expected)
    assert found.masks.lengths.tolist() == wanted.lengths.tolist()
    np.testing.assert_array_equal(found.masks.values, wanted.values)
    assert found.is_crowd.tolist() == [bool(is_crowd)] * len(expected)
    assert (found.area == 5.5).all()


def test_object_without_segmentation_is_masked_by_its_box(tmp_path):
    for nothing in ([], None, [[1, 2, 3, 4]]):
        found = read(write_masks(tmp_path, [nothing], area=None)).ground_truth(1)
        box = np.zeros((HEIGHT, WIDTH), bool)
        box[20:35, 10:40] = True
        np.testing.assert_array_equal(found.masks.values, runs_of([box]).values)
        assert found.area.tolist() == [30 * 15]


def test_masks_are_read_only_when_requested(tmp_path):
    path = write_masks(tmp_path, [{"size": [1, 1], "counts": "damaged"}])
    found = read_coco_annotations(path, MASKED, ["cat"]).ground_truth(1)
    assert found.masks is None and found.area.tolist() == [5.5]


@pytest.mark.parametrize(("segmentation", "text"), [
    ({"size": [HEIGHT, WIDTH - 1], "counts": [HEIGHT * (WIDTH - 1)]}, "its mask is 199x100 px"),
    ({"size": [WIDTH, HEIGHT], "counts": [HEIGHT * WIDTH]}, "its mask is 100x200 px"),
    ([["a"] * 6], "cannot be used"),
])  # fmt: skip
def test_unusable_segmentation_is_named(tmp_path, segmentation, text):
    good = [[1, 1, 9, 1, 9, 9]]
    with pytest.raises(UserError, match=f"instances.json: annotation 2: .*{text}"):
        read(write_masks(tmp_path, [good, segmentation, good]))


def test_box_only_file_is_refused_for_mask_metrics(tmp_path):
    path = write_masks(tmp_path, [[], None, [[1, 2, 3, 4]]])
    text = "instances.json: none of its 3 objects has a segmentation, which masks require"
    with pytest.raises(UserError, match=text):
        read_mask_annotations(path, MASKED, ["cat"])
    runs = {"size": [HEIGHT, WIDTH], "counts": [HEIGHT * WIDTH]}
    for one in ([[1, 1, 9, 1, 9, 9]], runs):
        assert read_mask_annotations(write_masks(tmp_path, [[], one]), MASKED, ["cat"])
    assert len(read_mask_annotations(write_masks(tmp_path, []), MASKED, ["cat"]).objects) == 2


def test_endless_zigzag_pieces_are_refused(tmp_path):
    """As in label files; here several objects of one image are over the bound together."""
    there_and_back = [0, 0, WIDTH, HEIGHT] * ((MOST_CROSSINGS + 10) // 4)
    assert read(write_masks(tmp_path, [[there_and_back], [[1, 1, 9, 1, 9, 9]]])).objects
    text = "'b.jpg': outlines of 1,001,600 px in an image of 200x100; accepted: at most 1,000,000"
    with pytest.raises(UserError, match=text):
        read(write_masks(tmp_path, [[there_and_back], [there_and_back]]))
