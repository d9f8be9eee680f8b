"""What objects each format's shapes become, what is left out, and what refuses an image."""

import base64
import io
import json
import math
import re
import zlib

import numpy as np
import pytest
from PIL import Image

from duet.utils.data.formats import labelme as labelme_format
from duet.utils.data.formats.outlines import ellipse_outline
from duet.utils.data.sources.annotations import annotated_images
from duet.utils.data.sources.formats.format import UNKNOWN
from duet.utils.data.sources.label_file import parse_labels
from duet.utils.errors import DatasetError
from tests.unit.data.formats.annotation_files import (
    CASES,
    CATEGORIES,
    CSV_HEADER,
    coco,
    coco_object,
    csv_row,
    cvat,
    cvat_box,
    cvat_file,
    labelme,
    labelme_shape,
    read_case,
    read_text,
    region,
    studio_box,
    task,
    voc,
    voc_box,
)

VOC, LABELME, CVAT, STUDIO, COCO, CSV = CASES
TRIANGLE = [[20, 10], [40, 10], [30, 30]]
FLAT = [number for point in TRIANGLE for number in point]
SAME_OUTLINE = {
    LABELME: labelme_shape("polygon", TRIANGLE),
    CVAT: '<polygon label="dog" points="20,10;40,10;30,30"></polygon>',
    STUDIO: region(points=[[10, 10], [20, 10], [15, 30]], polygonlabels=["dog"]),
    COCO: coco_object([20, 10, 20, 20], [FLAT]),
    VOC: voc_box(20, 10, 40, 30, more="<polygon><x1>20</x1><y1>10</y1><x2>40</x2><y2>10</y2>"
                                      "<x3>30</x3><y3>30</y3></polygon>"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_format_gives_identical_labels(tmp_path, name):
    objects = [CASES[name].box, *([SAME_OUTLINE[name]] if name in SAME_OUTLINE else [])]
    found = read_case(tmp_path, name, objects)
    assert not any(found.broken) and found.left_out == {}
    assert found.paths == (str(tmp_path / "a.jpg"), str(tmp_path / "b.jpg"))
    first, second = annotated_images(found, found.class_names, tmp_path)
    number = found.class_names.index("dog")
    lines = [f"{number} 0.25 0.4 0.3 0.4", f"{number} 0.1 0.1 0.2 0.1 0.15 0.3"][: len(objects)]
    for image, text in ((first, "\n".join(lines)), (second, f"{number} 0.2 0.25 0.2 0.3")):
        expected = parse_labels(text.encode(), len(found.class_names))
        labels = image.read_labels(len(found.class_names), (100, 200))
        assert labels.class_index.tolist() == expected.class_index.tolist()
        assert labels.boxes_cxcywh_norm.tobytes() == expected.boxes_cxcywh_norm.tobytes()
        assert (labels.polygons_norm is None) == (expected.polygons_norm is None)
        if expected.polygons_norm is not None:
            points = labels.polygons_norm.points_xy
            assert points.tobytes() == expected.polygons_norm.points_xy.tobytes()


def png(mask: np.ndarray, mode: str = "L") -> str:
    """A mask as labelme writes it."""
    file = io.BytesIO()
    Image.fromarray(mask.astype(np.uint8) * 255).convert(mode).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


HALF, ROOT = 10 * math.sqrt(2), 20 * math.sqrt(0.5)
WIDE, HIGH = 20 * math.sqrt(0.75) + 5, 10 + 10 * math.sqrt(0.75)
RING = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], bool)
# Of a format: a shape, its box, the number of points of its outline.
SHAPES = [
    (VOC, voc_box(30, 60, 10, 20), [10, 20, 30, 60], 0),  # corners in another order
    (VOC, voc_box(1, 2, 3, 4, more="<part><name>x</name><bndbox/></part>"), [1, 2, 3, 4], 0),
    (VOC, voc_box(1, 2, 3, 4, more="<polygon><x1>1</x1><y1>2</y1></polygon>"), [1, 2, 3, 4], 0),
    (LABELME, labelme_shape("rectangle", [[1, 2], [9, 2], [9, 8], [1, 8]]), [1, 2, 9, 8], 0),
    (LABELME, {"label": "dog", "points": TRIANGLE, "line_color": None}, [20, 10, 40, 30], 3),
    (LABELME, labelme_shape("rotation", TRIANGLE, direction=0.7), [20, 10, 40, 30], 3),
    (LABELME, labelme_shape("circle", [[50, 40], [53, 44]]), [45, 35, 55, 45], 0),
    (LABELME, labelme_shape("mask", [[30, 20], [33, 23]], mask=png(RING)), [30, 20, 33, 23], 10),
    (LABELME, labelme_shape("mask", [[3, 2], [6, 5]], mask=png(RING, "RGB")), [3, 2, 6, 5], 10),
    (CVAT, cvat_box(40, 20, 80, 40, 'rotation="90"'), [50, 10, 70, 50], 4),
    (CVAT, cvat_box(90, 40, 110, 60, 'rotation="45.0"'),
     [100 - HALF, 50 - HALF, 100 + HALF, 50 + HALF], 4),
    (CVAT, cvat_box(90, 40, 110, 60, 'rotation="0.0"'), [90, 40, 110, 60], 0),
    (CVAT, cvat_box(40, 20, 80, 40, 'rotation="30"'),
     [60 - WIDE, 30 - HIGH, 60 + WIDE, 30 + HIGH], 4),
    (CVAT, '<ellipse label="dog" cx="100" cy="50" rx="30" ry="10" rotation="90"/>',
     [90, 20, 110, 80], 64),
    # 6 x 4 px at (50, 30):  ......  .11...  .1....  ......
    (CVAT, '<mask label="dog" rle="7, 2, 4, 1, 10" left="50" top="30" width="6" height="4"/>',
     [51, 31, 53, 33], 6),
    # A run that goes on in the next row, and a run of no length:  ....11  11....
    (CVAT, '<mask label="dog" rle="4, 1, 0, 3, 4" left="0" top="0" width="6" height="2"/>',
     [0, 0, 6, 2], 10),
    # 60 x 40 px from (100, 20): a quarter turn leads 40 px to the left and 60 px down.
    (STUDIO, studio_box(50, 20, 30, 40, turn=90), [60, 20, 100, 80], 4),
    (STUDIO, studio_box(50, 20, 10, 20, turn=45), [100 - ROOT, 20, 100 + ROOT, 20 + 2 * ROOT], 4),
    # The left half of the square on its corner (0, 50) is outside.
    (STUDIO, studio_box(0, 50, 10, 20, turn=45), [0, 50, ROOT, 50 + 2 * ROOT], 5),
    (STUDIO, region(x=50, y=50, radiusX=10, radiusY=20, ellipselabels=["dog"]),
     [80, 30, 120, 70], 64),
    (STUDIO, region(x=50, y=50, radiusX=10, radiusY=30, rotation=90, ellipselabels=["dog"]),
     [70, 30, 130, 70], 64),
    (COCO, coco_object([2, 5, 1, 3], {"size": [100, 200], "counts": [205, 3, 19_792]}),
     [2, 5, 3, 8], 4),
    (COCO, coco_object([0, 0, 24, 24], [[0, 0, 4, 0, 4, 4], [9, 9, 24, 9, 24, 24], [1, 1, 2, 2]]),
     [0, 0, 24, 24], 8),
    (COCO, coco_object([0, 0, 4, 4], [0, 0, 4, 0, 4, 4]), [0, 0, 4, 4], 3),  # no list of pieces
    (COCO, coco_object([1, 1, 9, 9], None, 7.0, category_id=5.0, iscrowd=None), [1, 1, 10, 10], 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "box", "points"), SHAPES)
def test_shape_has_its_box_and_outline(tmp_path, name, shape, box, points):
    found = read_case(tmp_path, name, [shape])
    assert not any(found.broken) and not found.left_out and found.starts.tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.boxes_xyxy[0], box, atol=1e-9)
    assert found.polygons.num_points[0] == points
    if points:
        outline = found.polygons.outline(0)
        np.testing.assert_allclose([*outline.min(0), *outline.max(0)], box, atol=1e-9)


def test_rotated_box_turns_clockwise_on_screen(tmp_path):
    for name, shape in (
        (CVAT, cvat_box(40, 20, 80, 40, 'rotation="30"')),
        (STUDIO, studio_box(20, 20, 20, 20, turn=30)),
    ):
        folder = tmp_path / name
        outline = read_case(folder, name, [shape]).polygons.outline(0)
        right, left = outline[outline[:, 0].argmax()], outline[outline[:, 0].argmin()]
        assert right[1] > left[1]


# Of a format: shapes, and the kinds that are counted in place of objects.
LEFT_OUT = [
    (VOC, [voc_box(1, 1, 5, 5, more=f"<difficult>{value}</difficult>") for value in ("1", "true")],
     {"difficult objects": 2}),
    (LABELME, [labelme_shape(kind, TRIANGLE) for kind in ("point", "points", "line", "linestrip")]
     + [labelme_shape("polygon", TRIANGLE[:2])], {"lines and points": 5}),
    (LABELME, [labelme_shape("polygon", TRIANGLE, "__ignore__")], {"ignored shapes": 1}),
    (LABELME, [labelme_shape("rectangle", TRIANGLE, difficult=True)], {"difficult objects": 1}),
    (LABELME, [labelme_shape(kind, TRIANGLE) for kind in ("cuboid", ["polygon"])],
     {"shapes of other kinds": 2}),
    (CVAT, ['<polyline label="dog" points="1,1;2,2;3,5"/>', '<points label="knee" points="5,5"/>',
            '<cuboid label="dog" xtl1="1"/>', '<skeleton label="body"></skeleton>',
            '<tag label="night"/>', '<polygon label="dog" points="1,1;2,2"/>'],
     {"polylines": 1, "points": 1, "cuboids": 1, "skeletons": 1, "tags of images": 1,
      "shapes outside the image, or of fewer than 3 points": 1}),
    (STUDIO, [region(format="rle", rle=[0, 1, 1], brushlabels=["dog"]),
              region(x=1, y=1, width=0.5, keypointlabels=["dog"]),
              region(points=[[1, 1], [2, 2]], polygonlabels=["cat"]),
              studio_box(-20, 50, 10, 20, turn=135),
              region(x=1, y=1, width=5, height=5, rotation=0, rectanglelabels=[]) | {"id": "s"},
              region(choices=["good"]), {"type": "relation", "from_id": "a", "to_id": "b"}],
     {"brush strokes": 1, "keypoints": 1, "regions without a label": 1,
      "regions outside the image, or of fewer than 3 points": 2}),
    (COCO, [coco_object([0, 0, 9, 9], {"size": [1, 1], "counts": "damaged"}, iscrowd=1),
            coco_object([0, 0, 9, 9], image=99)], {"crowds": 1, "objects of unknown images": 1}),
    (CSV, [csv_row((0.1, 0.2, 0.4, 0.6), group=group) for group in (1, "true")], {"crowds": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes", "kinds"), LEFT_OUT)
def test_ignored_shapes_are_counted(tmp_path, name, shapes, kinds):
    found = read_case(tmp_path, name, shapes)
    assert not any(found.broken) and found.starts.tolist() == [0, 0, 1]
    assert found.left_out == kinds


HEADER = b"IHDR" + (20_000).to_bytes(4, "big") * 2 + b"\x08\0\0\0\0"
BOMB = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\0\0\0\r" + HEADER + zlib.crc32(HEADER).to_bytes(4, "big")
    + b"\0\0\0\0IDAT" + zlib.crc32(b"IDAT").to_bytes(4, "big")
).decode()  # fmt: skip
CVAT_MASK = '<mask label="dog" rle="{}" left="0" top="0" width="2" height="2"/>'
# Of a format: a shape, and why the image cannot be used.
BROKEN = [
    (VOC, voc_box("ten", 1, 2, 3), "a.xml: object 2: xmin is 'ten'; accepted: a number"),
    *((VOC, voc_box(value, 1, 2, 3), "xmin is ") for value in ("nan", "1e999", "9" * 999, "")),
    (VOC, "<object><name>dog</name></object>", "object 2: no bndbox"),
    (VOC, voc_box(1, 1, 2, 3, " "), "no name"),
    (VOC, "<object>", "line .*: invalid XML: mismatched tag"),
    (VOC, voc_box(1, 1, 2, 3, more="<polygon><x1>a</x1></polygon>"), "x1 is 'a'"),
    *((LABELME, labelme_shape("polygon", points), "a.json: shape 2: points are")
      for points in ([[1, 2], [3, "x"], [5, 6]], [[1, 2], [3], [5, 6]], [[1, 2, 3]] * 3,
                     [[1, math.nan]] * 3, [[1, 1e300]] * 3, {"x": 1})),
    (LABELME, labelme_shape("rectangle", [[1, 2]]), "a rectangle of 1 point"),
    (LABELME, labelme_shape("rectangle", TRIANGLE, None), "its label is None"),
    (LABELME, labelme_shape("rectangle", TRIANGLE, "\ud800"), "surrogates not allowed"),
    (LABELME, labelme_shape("mask", TRIANGLE), "its mask is None"),
    (LABELME, labelme_shape("mask", TRIANGLE, mask="aGVsbG8="), "its mask: not an image"),
    (LABELME, labelme_shape("mask", TRIANGLE, mask=BOMB), "20000x20000 px is too large"),
    (LABELME, labelme_shape("mask", TRIANGLE, mask=png(RING)[:60]), "its mask: "),
    (CVAT, cvat_box("x", 1, 2, 3), "image '0', box: xtl is 'x'; accepted: a number"),
    (CVAT, cvat_box(1, 1, 2, 3, label=""), "has no label"),
    (CVAT, cvat_box(1, 1, 2, 3, 'rotation="inf"'), "rotation is 'inf'"),
    (CVAT, '<polygon label="dog" points="1,2;3"/>', "points are '1,2;3'"),
    (CVAT, '<ellipse label="dog" cx="1" cy="2" rx="3"/>', "ry is None"),
    (CVAT, CVAT_MASK.format("1,2"), "do not fill 2x2"), (CVAT, CVAT_MASK.format("4"), "is empty"),
    (CVAT, CVAT_MASK.format(""), "rle is ''"), 
    (CVAT, CVAT_MASK.format(2**64), "runs of its mask"),
    (CVAT, CVAT_MASK.format("1,3").replace('"0"', '"0.5"', 1), "left is 0.5"),
    *((STUDIO, studio_box(1, 1, 9, 9) | change, f"task 41: {text}") for change, text in (
        ({"image_rotation": 90}, "the image was turned by 90 degrees"),
        ({"value": {"rectanglelabels": ["dog"], "x": [1]}}, r"x is \[1\]"),
        ({"value": {"rectanglelabels": ["dog"], "x": 1, "y": 1}}, "width is None"),
        ({"value": {"polygonlabels": ["dog"], "points": [[1, 2], [3]]}}, "points are"),
        ({"value": {"polygonlabels": ["dog"] * 21, "points": []}}, "a region has 21 labels"))),
    *((COCO, coco_object([1, 1, 9, 9]) | change, f"annotation 100: {text}") for change, text in (
        ({"category_id": 3}, "'categories' has no id 3"),
        ({"bbox": [1, 2, 3]}, r"bbox \[1, 2, 3\]; left, top, width, height"),
        *(({"bbox": box}, "bbox") for box in (
            None, [1, 2, "3", 4], [1, 2, -3, 4], [1, 2, math.nan, 4], [1, 2, 1e11, 4])),
        ({"iscrowd": 2}, "iscrowd 2"), ({"iscrowd": [0]}, "iscrowd"),
        ({"segmentation": [[1, 2, 3]]}, ".*x1, y1, x2, y2, ... are needed"),
        *(({"segmentation": value}, "its segmentation cannot be used") for value in (
            [[1, 2, 3, 4, 5, "6"]], [[1, 2, 3, 4, 5, [6]]], [[[[1, 2]]]], 7, "polygon")),
        ({"segmentation": [[1, 2, 3, 4, 5, 1e30]]}, ".*far beyond any image"),
        ({"segmentation": {"size": [4, 4], "counts": [1]}}, ".*do not fill 4x4 px"))),
    (COCO, coco_object([], id="seven"), "entry 1 of 'annotations': bbox"),
    *((CSV, row, "line 3: no box in 'a,x") for row in ("a,x,dog,1,0.1,abc,0,1", "a,x")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "reason"), BROKEN)
def test_unreadable_shape_refuses_only_its_image(tmp_path, name, shape, reason):
    found = read_case(tmp_path, name, [CASES[name].box, shape])
    assert 0 < len(found.broken[0]) < 300 and not any(found.broken[1:])
    assert re.search(reason, found.broken[0]), found.broken[0]
    assert found.starts[2] - found.starts[1] == 1
    assert found.boxes_xyxy[-1].tolist() in ([20, 10, 60, 40], [0.1, 0.1, 0.3, 0.4])


# Of a format: the whole of its file, and why it cannot be read.
BROKEN_FILES = [
    (CVAT, "<annotations><image", "line 1: invalid XML"),
    (CVAT, '<!DOCTYPE a [<!ENTITY b "c">]><annotations/>', "<!DOCTYPE is not supported"),
    (CVAT, cvat_file(), "has no element <image>"),
    (CVAT, cvat_file('<track id="0" label="car"/>'), "for video.*again, as 'CVAT for images 1.1'"),
    (STUDIO, '[{"annotations": [', "not JSON"),
    (STUDIO, '[{"annotations": []}, 5]', "not a list of Label Studio tasks"),
    (COCO, "[]", "is not a list in it"),
    *((COCO, json.dumps(coco([]) | change), text) for change, text in (
        ({"images": {}}, "'images' is not a list"), ({"annotations": None}, "'annotations' is not"),
        ({"images": [{"file_name": "a.png"}]}, "entry 0 of 'images' has no 'id'"),
        *(({"images": [{"id": 1, "file_name": value}]}, "file_name") for value in (
            3, "", "a\0b", "\ud800.png", "a" * 5000)),
        ({"images": [{"id": 1, "file_name": ".."}]}, r"called '\.\.'; no file can be"),
        ({"images": [{"id": 1, "file_name": "a.png", "width": -1}]}, "width -1"),
        ({"images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}]}, "image id 1"),
        *(({"categories": [{"id": 1, "name": name}]}, f"name {name} is no text; put it in quotes")
          for name in (None, 1.1, True)),
        ({"categories": [*CATEGORIES, CATEGORIES[0]]}, "category id 9"),
        ({"annotations": [{"category_id": 5}]}, "entry 0 of 'annotations' has no 'image_id'"),
        ({"annotations": [coco_object([], category_id="dog")]}, "'dog' is no whole number"),
        ({"annotations": [coco_object([], image=2**70)]}, "beyond 64 bits"))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "reason"), BROKEN_FILES)
def test_broken_file_is_an_error_that_names_it(tmp_path, name, text, reason):
    with pytest.raises(DatasetError, match=reason) as caught:
        read_text(tmp_path, name, text)
    assert str(tmp_path / CASES[name].file) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (VOC, voc([]).replace("<width>200</width>", "<width>0</width>")),
        (VOC, "<annotation><size><width>64</width></size></annotation>"),
        (VOC, "<annotation><size><width>1</width><height>1</height></size></annotation>"),
        (VOC, "<annotation></annotation>"),
        *((LABELME, labelme([], imageWidth=side)) for side in (None, 0, "9", 1e300, True, -3)),
        (CVAT, cvat_file(cvat([], more='subset="default"'))),
        (COCO, json.dumps(coco([], images=[{"id": 7.0, "file_name": "a.jpg", "width": None}]))),
    ],
)
def test_missing_size_is_unknown(tmp_path, name, text):
    found = read_text(tmp_path, name, text)
    assert found.sizes[0].tolist() == list(UNKNOWN) and not any(found.broken)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        (CVAT, cvat_file(cvat([], more='width="0" height="5"')), "0 x 5 px"),
        (CVAT, cvat_file(cvat([], more='width="5"')), "height is None"),
        *((STUDIO, json.dumps([task([studio_box(1, 1, 9, 9) | {"original_width": width}])]),
           "original_height and original_width are") for width in ("200", 0, 1e999)),
    ],
)  # fmt: skip
def test_impossible_size_is_refused(tmp_path, name, text, reason):
    assert reason in read_text(tmp_path, name, text).broken[0]


def test_original_voc_counts_pixels_from_one(tmp_path):
    """Of an image of 100 px, 1 to 100 are all pixels: from edge 0 to edge 100."""
    database = "The VOC2007 Database"
    text = voc([voc_box(1, 2, 100, 2)], database=database)
    assert read_text(tmp_path, VOC, text).boxes_xyxy.tolist() == [[0, 1, 100, 2]]
    text = voc([voc_box(0, 2, 9, 9), voc_box(1, 2, 9, 9)], database=database)  # only a copied name
    assert read_text(tmp_path, VOC, text).boxes_xyxy.tolist() == [[0, 2, 9, 9], [1, 2, 9, 9]]


def test_labelme_shapes_of_one_group_are_one_object(tmp_path):
    found = read_case(
        tmp_path,
        LABELME,
        [
            labelme_shape("polygon", TRIANGLE, group_id=1),
            labelme_shape("polygon", TRIANGLE, "cat", group_id=1),
            labelme_shape("polygon", [[50, 50], [60, 50], [55, 70]], group_id=1),
            labelme_shape("rectangle", [[10, 20], [30, 60]], "cat", group_id=2),
            labelme_shape("polygon", TRIANGLE),
            labelme_shape("rectangle", [[0, 0], [5, 5]], "cat", group_id=2),
        ],
    )
    assert [found.class_names[index] for index in found.class_index[:4]] == [
        "dog", "cat", "cat", "dog",
    ]  # fmt: skip
    assert found.boxes_xyxy[:4].tolist() == [
        [20, 10, 60, 70], [20, 10, 40, 30], [0, 0, 30, 60], [20, 10, 40, 30],
    ]  # fmt: skip
    assert found.polygons.num_points.tolist() == [8, 3, 0, 3, 0]


def test_labelme_masks_are_bounded(tmp_path, monkeypatch):
    shape = labelme_shape("mask", [[10, 5], [13, 8]], mask=png(RING))
    monkeypatch.setattr(labelme_format, "MAX_MASK_PIXELS", 20)
    assert not any(read_case(tmp_path, LABELME, [shape] * 2).broken)
    assert "3x3 px is too large" in read_case(tmp_path, LABELME, [shape] * 3).broken[0]
    monkeypatch.setattr(labelme_format, "MAX_RUNS", 3)
    assert "runs is noise" in read_case(tmp_path, LABELME, [shape]).broken[0]
    empty = labelme_shape("mask", [[10, 5], [13, 8]], mask=png(RING & False))
    left, top, right, bottom = read_case(tmp_path, LABELME, [empty]).boxes_xyxy[0]
    assert (left, top) == (right, bottom)


def test_label_studio_regions_share_ids_and_have_two_labels(tmp_path):
    place = {"x": 10, "y": 20, "width": 30, "height": 40, "rotation": 0}
    found = read_case(tmp_path, STUDIO, [region(**place), region(**place, labels=["cat", "red"])])
    assert [found.class_names[index] for index in found.class_index] == ["cat", "red", "dog"]
    assert found.boxes_xyxy[:2].tolist() == [[20, 20, 80, 60]] * 2 and found.left_out == {}


def test_label_studio_boxes_without_size_are_normalised(tmp_path):
    bare = {"id": "r", "value": studio_box(10, 20, 30, 40)["value"]}
    found = read_case(tmp_path, STUDIO, [bare])
    assert found.sizes[0].tolist() == [1, 1]
    np.testing.assert_allclose(found.boxes_xyxy[0], [0.1, 0.2, 0.4, 0.6])
    bare["value"]["rotation"] = 30
    assert "needs original_width" in read_case(tmp_path, STUDIO, [bare]).broken[0]


def test_label_studio_prefers_ground_truth_then_newest(tmp_path):
    def made(label, day, **more):
        return {"result": [studio_box(1, 1, 9, 9, label)], "updated_at": f"2024-05-{day}", **more}

    item = task([], "a.jpg")
    void = made("void", "09", was_cancelled=True)
    item["annotations"] = [made("old", "01"), made("new", "03"), void]
    assert read_text(tmp_path, STUDIO, [item]).class_names == ("new",)
    item["annotations"].insert(1, made("true", "02", ground_truth=True))
    assert read_text(tmp_path, STUDIO, [item]).class_names == ("true",)
    found = read_text(tmp_path, STUDIO, [task([], "b.jpg"), task([], "b.jpg", id=42)])
    assert all("task 41 and task 42 are both this file" in reason for reason in found.broken)
    item["annotations"] = [void]
    found = read_text(tmp_path, STUDIO, [task([], "b.jpg"), item, item | {"annotations": []}])
    assert (len(found), len(found.class_index)) == (1, 0)
    assert found.left_out == {"tasks that nobody has labelled": 2}


def test_label_studio_json_min_names_the_right_export(tmp_path):
    box = studio_box(10, 20, 30, 40)
    item = {"image": "a.jpg", "id": 1, "label": [box | box["value"]], "annotation_id": 5}
    with pytest.raises(DatasetError, match="task 1 has no 'data'; export .* as JSON, not JSON-MIN"):
        read_text(tmp_path, STUDIO, [item])


def test_coco_classes_are_ordered_by_id(tmp_path, caplog):
    categories = [*CATEGORIES, {"id": 1, "name": "dog"}, {"id": 30, "name": 7}]
    objects = [coco_object([1, 1, 9, 9], category_id=number) for number in (1, 5, 2, 30)]
    content = coco(objects, categories=categories)
    for order in (list(content), list(content)[::-1]):  # sections in any order
        found = read_text(tmp_path, COCO, {name: content[name] for name in order})
        assert found.class_names == ("dog", "cat", "owl", "7")
        assert found.class_index.tolist() == [0, 0, 1, 3]
    assert "categories of one name are taken for one class: ['dog']" in caplog.text


@pytest.mark.parametrize(
    ("supercategory", "object_of", "is_class"),
    [("pets", 2, False), ("pets", 0, True), ("others", 2, True)],
)
def test_roboflow_placeholder_category_is_no_class(tmp_path, supercategory, object_of, is_class):
    categories = [{"id": 0, "name": "pets", "supercategory": "none"}] + [
        {"id": number, "name": name, "supercategory": supercategory}
        for number, name in ((1, "cat"), (2, "dog"))
    ]
    objects = [coco_object([1, 1, 9, 9], category_id=object_of)]
    found = read_text(tmp_path, COCO, coco(objects, categories=categories))
    assert found.class_names == (("pets",) if is_class else ()) + ("cat", "dog")
    assert found.class_names[found.class_index[0]] == ("pets" if object_of == 0 else "dog")


def test_cvat_labels_and_openimages_names_give_the_classes(tmp_path, caplog):
    assert read_case(tmp_path / "cvat", CVAT, []).class_names == ("plate", "dog")
    rows = [csv_row((0, 0, 0.5, 0.5), label) for label in ("/m/1", "/m/2", "/m/3")]
    assert read_case(tmp_path, CSV, rows).class_names == ("/m/1", "/m/2", "/m/3", "dog")
    names = tmp_path / "class-descriptions-boxable.csv"
    names.write_text("LabelName,DisplayName\n/m/1,Man\n/m/2,Man\n/m/3,Fruit\n")
    found = read_case(tmp_path, CSV, rows)
    assert (found.class_names, found.class_index.tolist()) == (
        ("Fruit", "Man", "dog"),
        [1, 1, 0, 2],
    )
    names.write_bytes(b"/m/1,\xff\n")
    with pytest.raises(DatasetError, match="class names cannot be read"):
        read_case(tmp_path, CSV, rows)


def test_openimages_values_may_all_be_quoted(tmp_path):
    rows = [csv_row((0.1, 0.2, 0.4, 0.6)), csv_row((0, 0, 0.5, 0.5), group=1)]
    lines = "\n".join([CSV_HEADER, *rows]).split("\n")
    quoted = "\n".join(",".join(f'"{value}"' for value in line.split(",")) for line in lines)
    found = read_text(tmp_path, CSV, quoted)
    assert not any(found.broken) and found.left_out == {"crowds": 1, "images without a row": 1}
    np.testing.assert_array_equal(found.boxes_xyxy, [[0.1, 0.2, 0.4, 0.6]])


def test_ellipse_outline_includes_its_extreme_points():
    outline = ellipse_outline((10.0, 8.0), (6.0, 3.0))
    assert outline.min(0).tolist() == [4, 5] and outline.max(0).tolist() == [16, 11]
    distance = ((outline - (10, 8)) / (6, 3)) ** 2
    np.testing.assert_allclose(distance.sum(1), 1)
