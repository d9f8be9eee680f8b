"""CVAT's XML for images, as its documentation shows it."""

import math
from pathlib import Path

import numpy as np
import pytest

from utils.data.sources.dataset import load_dataset
from utils.data.sources.formats.cvat import accepts, find, read
from utils.errors import DatasetError

META = """<meta><task><id>4</id><name>cars</name><size>2</size><mode>annotation</mode><labels>
<label><name>plate</name><color>#c06060</color><type>any</type><attributes>
<attribute><name>model</name><values>a\nb</values></attribute></attributes></label>
<label><name>car</name><attributes></attributes></label>
<label><name>night</name><type>tag</type></label>
<label><name>body</name><type>skeleton</type></label>
<label><name>knee</name><type>points</type><parent>body</parent></label>
</labels></task></meta>"""


def box(label="car", place=(20, 10, 60, 40), more=""):
    left, top, right, bottom = place
    return (
        f'<box label="{label}" occluded="0" source="manual" xtl="{left}" ytl="{top}" '
        f'xbr="{right}" ybr="{bottom}" z_order="4" {more}>'
        '<attribute name="model">a</attribute></box>'
    )


def image(*shapes, name="a.jpg", more='width="200" height="100"'):
    return f'<image id="0" name="{name}" {more}>{"".join(shapes)}</image>'


def write(
    folder: Path, *parts, meta=META, name="annotations.xml", images=("images/a.jpg",)
) -> Path:
    for path in images:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    text = f'<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>{META}'
    file.write_text(f"{text}{''.join(parts)}</annotations>", encoding="utf-8")
    return file


def read_only(folder: Path):
    (annotated,) = find(folder)[""]
    return read(annotated)


def test_boxes_are_read_and_labels_keep_their_order(tmp_path):
    assert accepts(write(tmp_path, image(box(), box("plate", (1.5, 2.25, 3, 4)))))
    found = read_only(tmp_path)
    assert found.class_names == ("plate", "car")
    assert found.class_index.tolist() == [1, 0]
    assert found.boxes_xyxy.tolist() == [[20, 10, 60, 40], [1.5, 2.25, 3, 4]]
    assert found.sizes.tolist() == [[100, 200]]
    assert found.paths == (str(tmp_path / "images/a.jpg"),)
    assert found.broken == {} and found.left_out == {}


def test_a_turned_box_turns_clockwise_about_its_middle(tmp_path):
    write(
        tmp_path,
        image(
            box(place=(40, 20, 80, 40), more='rotation="90"'),
            box(place=(90, 40, 110, 60), more='rotation="45.0"'),
            box(place=(90, 40, 110, 60), more='rotation="0.0"'),
            box(place=(40, 20, 80, 40), more='rotation="30"'),
        ),
    )
    found = read_only(tmp_path)
    half = 10 * math.sqrt(2)
    sine, cosine = 0.5, math.sqrt(0.75)
    wide, high = 20 * cosine + 10 * sine, 20 * sine + 10 * cosine
    np.testing.assert_allclose(
        found.boxes_xyxy,
        [
            [50, 10, 70, 50],
            [100 - half, 50 - half, 100 + half, 50 + half],
            [90, 40, 110, 60],
            [60 - wide, 30 - high, 60 + wide, 30 + high],
        ],
    )
    assert found.polygons.num_points.tolist() == [4, 4, 0, 4]
    # Clockwise on the screen, the right end of the box goes down.
    right = found.polygons.outline(3)[np.argmax(found.polygons.outline(3)[:, 0])]
    assert right[1] > 30


def test_polygons_ellipses_and_masks_are_objects_and_the_rest_is_counted(tmp_path):
    write(
        tmp_path,
        image(
            '<polygon label="car" points="10.5,20;30,20;30,40.25" z_order="1"></polygon>',
            '<ellipse label="car" cx="100" cy="50" rx="30" ry="10" rotation="90"/>',
            # 6 x 4 px at (50, 30):  ......  .11...  .1....  ......
            '<mask label="plate" rle="7, 2, 4, 1, 10" left="50" top="30" width="6" height="4"/>',
            # A run that goes on in the next row, and a run of no length:  ....11  11....
            '<mask label="plate" rle="4, 1, 0, 3, 4" left="0" top="0" width="6" height="2"/>',
            '<polyline label="car" points="1,1;2,2;3,5"/>',
            '<points label="knee" points="5,5"/>',
            '<cuboid label="car" xtl1="1"/>',
            '<skeleton label="body"><points label="knee" points="1,1"/></skeleton>',
            '<tag label="night"/>',
            '<polygon label="car" points="1,1;2,2"/>',
        ),
    )
    found = read_only(tmp_path)
    np.testing.assert_allclose(
        found.boxes_xyxy,
        [[10.5, 20, 30, 40.25], [90, 20, 110, 80], [51, 31, 53, 33], [0, 0, 6, 2]],
    )
    assert found.polygons.outline(0).tolist() == [[10.5, 20], [30, 20], [30, 40.25]]
    assert found.left_out == {
        "polylines": 1,
        "points": 1,
        "cuboids": 1,
        "skeletons": 1,
        "tags of images": 1,
        "shapes outside the image, or of fewer than 3 points": 1,
    }


def test_masks_have_the_box_and_the_outline_of_their_pixels(tmp_path):
    random = np.random.default_rng(3)
    masks = [random.random((5, 7)) < share for share in (0.05, 0.2, 0.5, 0.95) for _ in range(20)]
    masks = [mask for mask in masks if mask.any()]

    def runs(mask):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.ravel(), [0]]).astype(int)))
        return np.diff(np.concatenate([[0], edges, [mask.size]]))

    shapes = (
        f'<mask label="car" rle="{", ".join(map(str, runs(mask)))}" left="10" top="20" '
        'width="7" height="5"/>'
        for mask in masks
    )
    write(tmp_path, image(*shapes))
    expected = []
    for mask in masks:
        rows, columns = np.nonzero(mask)
        expected.append([10 + columns.min(), 20 + rows.min(), 11 + columns.max(), 21 + rows.max()])
    found = read_only(tmp_path)
    assert found.boxes_xyxy.tolist() == expected
    for index, mask in enumerate(masks):
        assert _covered(found.polygons.outline(index) - (10.5, 20.5), mask.shape) == mask.tolist()


def _covered(outline, size):
    """Return which whole points lie inside, by the number of sides to the right of each."""
    first, second = outline, np.roll(outline, -1, axis=0)
    rows, columns = np.indices(size)
    inside = np.zeros(size, int)
    for (x0, y0), (x1, y1) in zip(first, second, strict=True):
        if y0 != y1:
            crossing = x0 + (rows - y0) * (x1 - x0) / (y1 - y0)
            inside += ((y0 > rows) != (y1 > rows)) & (crossing > columns)
    return (inside % 2 == 1).tolist()


def test_subsets_are_splits(tmp_path):
    def of(name, subset):
        return image(box(), name=name, more=f'subset="{subset}" width="200" height="100"')

    write(
        tmp_path,
        of("a.jpg", "Train"),
        of("deep/b.jpg", "Validation"),
        of("a.jpg", "Validation"),
        of("c.jpg", "Test"),
        of("d.jpg", "Train"),
        images=("images/Train/a.jpg", "images/Validation/deep/b.jpg", "images/Validation/a.jpg"),
    )
    found = find(tmp_path)
    paths = {split: read(*folders).paths for split, folders in found.items()}
    images = tmp_path / "images"
    assert paths == {
        "train": (str(images / "Train/a.jpg"), str(images / "Train/d.jpg")),
        "val": (str(images / "Validation/deep/b.jpg"), str(images / "Validation/a.jpg")),
        "test": (str(images / "Test/c.jpg"),),
    }


def test_labels_of_an_absent_image_go_to_no_image_of_other_folders_or_subsets(tmp_path):
    def of(name, subset):
        return image(box(), name=name, more=f'subset="{subset}" width="200" height="100"')

    one = write(
        tmp_path / "one",
        image(box("plate"), name="cam1/1.jpg"),
        image(box(), name="cam2/1.jpg"),
        images=("images/cam2/1.jpg",),
    ).parent
    assert read_only(one).paths == (str(one / "images/cam1/1.jpg"), str(one / "images/cam2/1.jpg"))
    two = write(
        tmp_path / "two", of("1.jpg", "Train"), of("1.jpg", "default"),
        images=("images/Train/1.jpg",),
    ).parent  # fmt: skip
    paths = {split: read(*folders).paths for split, folders in find(two).items()}
    assert paths["train"] == (str(two / "images/Train/1.jpg"),)
    assert paths[""] == (str(two / "images/default/1.jpg"),)


def test_two_images_on_one_file_are_both_refused(tmp_path):
    write(tmp_path, image(box(), name="t1/a.jpg"), image(box(), name="t2/a.jpg"))
    found = read_only(tmp_path)
    assert list(found.broken) == [0, 1]
    assert "'t1/a.jpg' and image '0', 't2/a.jpg' are both" in found.broken[0] == found.broken[1]


def test_the_default_subset_is_no_folder_that_must_be_there(tmp_path):
    write(tmp_path, image(more='subset="default"'), images=("imgs/a.jpg",))
    assert read_only(tmp_path).paths == (str(tmp_path / "imgs/a.jpg"),)


def test_a_task_in_one_subset_of_another_name_is_not_divided(tmp_path):
    write(tmp_path, image(box(), more='subset="default" width="200" height="100"'))
    assert len(read_only(tmp_path)) == 1


@pytest.mark.parametrize("place", ["images/{}", "{}", "data/{}"])
def test_images_lie_beside_the_file_or_below(tmp_path, place):
    (tmp_path / "images").mkdir()
    write(tmp_path, image(name="sub/a.jpg"), images=(place.format("sub/a.jpg"),))
    assert read_only(tmp_path).paths == (str(tmp_path / place.format("sub/a.jpg")),)


def test_tasks_in_folders_of_splits_or_in_files_named_for_them_are_splits(tmp_path):
    write(tmp_path / "one", image(), name="train/annotations.xml", images=("train/images/a.jpg",))
    write(tmp_path / "one", image(), name="valid/annotations.xml", images=("valid/images/a.jpg",))
    write(tmp_path / "two", image(), name="train.xml")
    write(tmp_path / "two", image(), name="val.xml")
    for folder in ("one", "two"):
        assert set(find(tmp_path / folder)) == {"train", "val"}
    (valid,) = find(tmp_path / "one")["val"]
    assert read(valid).paths == (str(tmp_path / "one/valid/images/a.jpg"),)


def test_a_file_that_a_user_names_is_undivided_whatever_it_is_called(tmp_path):
    file = write(tmp_path, image(box()), name="my-test.xml", images=("test/a.jpg",))
    assert list(find(file)) == [""]
    assert read(*find(file)[""]).paths == (str(tmp_path / "test/a.jpg"),)
    assert load_dataset(file, splits=("train",)).train == tuple(find(file)[""])


def test_an_image_name_never_leads_out_of_the_folder(tmp_path):
    write(tmp_path, image(name="../../secret.jpg"), image(name="/etc/passwd"))
    images = tmp_path / "images"
    assert read_only(tmp_path).paths == (str(images / "secret.jpg"), str(images / "etc/passwd"))


def test_an_export_for_video_is_refused_with_the_next_step(tmp_path):
    track = '<track id="0" label="car"><box frame="0" outside="0" xtl="1"/></track>'
    write(tmp_path, track)
    with pytest.raises(DatasetError, match="for video.*export .* again, as 'CVAT for images 1.1'"):
        read_only(tmp_path)


def test_an_export_without_images_is_an_error(tmp_path):
    write(tmp_path)
    with pytest.raises(DatasetError, match="has no element <image>"):
        read_only(tmp_path)


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        (box(place=("x", 1, 2, 3)), "box: xtl is 'x'; a number is needed"),
        (box(place=("nan", 1, 2, 3)), "xtl is 'nan'"),
        (box(label=""), "has no label"),
        (box(more='rotation="inf"'), "rotation is 'inf'"),
        ('<polygon label="car" points="1,2;3"/>', "points are '1,2;3'"),
        ('<polygon label="car" points="1,2;3,nan;1,1"/>', "points are"),
        ('<polygon label="car"/>', "points are ''"),
        ('<ellipse label="car" cx="1" cy="2" rx="3"/>', "ry is None"),
        (
            '<mask label="car" rle="1,2" left="0" top="0" width="2" height="2"/>',
            "do not fill 2x2 px",
        ),
        ('<mask label="car" rle="4" left="0" top="0" width="2" height="2"/>', "mask: is empty"),
        (
            '<mask label="car" rle="" left="0" top="0" width="0" height="0"/>',
            "rle is ''",
        ),
        (
            '<mask label="car" rle="-1,5" left="0" top="0" width="2" height="2"/>',
            "do not fill 2x2 px",
        ),
        (f'<mask label="car" rle="{"9" * 5000}" left="0" top="0" width="2" height="2"/>', "rle is"),
        (
            f'<mask label="car" rle="{2**64}" left="0" top="0" width="2" height="2"/>',
            "runs of its mask",
        ),
        ('<mask label="car" rle="1,3" left="0.5" top="0" width="2" height="2"/>', "left is 0.5"),
    ],
)
def test_a_shape_that_cannot_be_read_refuses_its_image_alone(tmp_path, shape, part):
    write(tmp_path, image(shape), image(box(), name="b.jpg"))
    found = read_only(tmp_path)
    assert list(found.broken) == [0]
    assert part in found.broken[0] and len(found.broken[0]) < 400
    assert found.boxes_xyxy[found.starts[1] :].tolist() == [[20, 10, 60, 40]]


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ('width="0" height="5"', "0 x 5 px"),
        ('width="5"', "height is None"),
        ('width="a" height="5"', "width is 'a'"),
    ],
)
def test_an_image_of_no_size_is_refused(tmp_path, more, part):
    write(tmp_path, image(box(), more=more))
    assert part in read_only(tmp_path).broken[0]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("<annotations><image", "line 1: no valid XML"),
        ('<annotations><image name="a.jpg"></annotations>', "line 1: no valid XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><annotations/>', "document type"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(tmp_path, text, part):
    (tmp_path / "annotations.xml").write_text(text)
    with pytest.raises(DatasetError, match=part) as caught:
        read_only(tmp_path)
    assert str(tmp_path / "annotations.xml") in str(caught.value)


@pytest.mark.parametrize("text", ["", "<annotation><object/></annotation>", "<a/>", "x"])
def test_other_xml_is_not_taken(tmp_path, text):
    (tmp_path / "annotations.xml").write_text(text)
    assert find(tmp_path) == {}
    assert find(tmp_path / "absent.xml") == {}
