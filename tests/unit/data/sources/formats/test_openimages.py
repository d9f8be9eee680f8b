"""OpenImages's CSV files, as its page of data formats shows them."""

import logging
from pathlib import Path

import numpy as np
import pytest

from utils.data.sources.formats.openimages import accepts, find, read
from utils.errors import DatasetError

HEADER = (
    "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
    "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
)
ROWS = """\
0001eeaf4aed83f9,xclick,/m/0cmf2,1,0.022673031,0.9642005,0.07103825,0.80054647,0,0,0,0,0
000595fe6fee6369,xclick,/m/02xwb,1,0.45655376,0.6097202,0.20399113,0.50554323,0,0,1,0,0
00075905539074f2,xclick,/m/04yx4,1,0.020477816,0.32935154,0.0956023,0.665392,0,0,0,1,0
0001eeaf4aed83f9,xclick,/m/04yx4,1,0.5,0.75,0.25,0.5,0,0,-1,0,0
"""
NAMES = "/m/0cmf2,Airplane\n/m/02xwb,Fruit\n/m/04yx4,Man\n"


def write(folder: Path, rows=ROWS, images=("0001eeaf4aed83f9", "000595fe6fee6369"), split="train"):
    for name in images:
        path = folder / split / f"{name}.jpg"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    file = folder / f"{split}-annotations-bbox.csv"
    file.write_text(f"{HEADER}\n{rows}")
    (folder / "class-descriptions-boxable.csv").write_text(NAMES)
    return file


def read_split(folder: Path, split="train"):
    (annotated,) = find(folder)[split]
    return read(annotated)


def test_rows_of_the_images_that_are_there_are_read_and_groups_left_out(tmp_path):
    assert accepts(write(tmp_path))
    found = read_split(tmp_path)
    names = ("0001eeaf4aed83f9", "000595fe6fee6369")
    assert found.paths == tuple(str(tmp_path / "train" / f"{name}.jpg") for name in names)
    assert found.class_names == ("Airplane", "Man")
    assert found.starts.tolist() == [0, 2, 2]
    assert found.class_index.tolist() == [0, 1]
    np.testing.assert_array_equal(
        found.boxes_xyxy,
        [[0.022673031, 0.07103825, 0.9642005, 0.80054647], [0.5, 0.25, 0.75, 0.5]],
    )
    assert found.sizes.tolist() == [[1, 1]] * 2
    assert found.left_out == {"crowds": 1}
    assert len(found.polygons) == 2


def test_an_image_without_a_row_is_left_out_and_counted(tmp_path):
    write(tmp_path, images=("0001eeaf4aed83f9", "ffffffffffffffff"))
    found = read_split(tmp_path)
    assert [Path(path).stem for path in found.paths] == ["0001eeaf4aed83f9"]
    assert found.left_out == {"images without a row": 1}


def test_a_row_that_may_be_of_two_files_refuses_its_image(tmp_path):
    write(tmp_path)
    again = tmp_path / "train/again/0001eeaf4aed83f9.png"
    again.parent.mkdir()
    again.touch()
    (tmp_path / "train/again/ffffffffffffffff.png").touch()
    (tmp_path / "train/ffffffffffffffff.png").touch()
    found = read_split(tmp_path)
    stems = [Path(path).stem for path in found.paths]
    assert stems == ["0001eeaf4aed83f9", "000595fe6fee6369"]
    assert list(found.broken) == [0]
    first = tmp_path / "train/0001eeaf4aed83f9.jpg"
    assert found.broken[0].startswith(f"2 files have its name, {first} and {again} among them")
    assert found.left_out["images without a row"] == 1


NAMED = "class-descriptions-boxable.csv"


@pytest.mark.parametrize(
    ("file", "names", "image", "split"),
    [
        ("oidv6-train-annotations-bbox.csv", NAMED, "train/{}.jpg", "train"),
        (
            "csv_folder/validation-annotations-bbox.csv",
            f"csv_folder/{NAMED}",
            "Dataset/validation/Fruit/{}.jpg",
            "val",
        ),
        ("test/labels/detections.csv", "test/metadata/classes.csv", "test/data/{}.jpg", "test"),
        (
            "annotations/Train-annotations-bbox.csv",
            "annotations/class-descriptions.csv",
            "images/Train/{}.png",
            "train",
        ),
        ("boxes.csv", NAMED, "images/{}.JPG", ""),
    ],
)
def test_layouts_of_the_tools_that_download_or_export_it(tmp_path, file, names, image, split):
    image = image.format("000595fe6fee6369")
    for name, text in (
        (file, f"{HEADER}\n{ROWS.replace(',0,0,1,0,0', ',0,0,0,0,0')}"),
        (names, "LabelName,DisplayName\n" + NAMES),
        (image, ""),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(find(tmp_path)) == [split]
    found = read_split(tmp_path, split)
    assert found.paths == (str(tmp_path / image),)
    assert found.class_names == ("Fruit",)


def test_columns_may_stand_in_another_order_and_rows_in_any(tmp_path):
    (tmp_path / "a.jpg").touch()
    (tmp_path / "b.jpg").touch()
    (tmp_path / "boxes.csv").write_bytes(
        b"\xef\xbb\xbfXMin,YMin,XMax,YMax,LabelName,ImageID\r\n"
        b"0.1,0.2,0.3,0.4,cat,b\r\n0.5,0.6,0.7,0.8,dog,a\r\n\r\n0,0,1,1,cat,b\r\n"
    )
    found = read_split(tmp_path, "")
    assert found.class_names == ("cat", "dog")
    assert found.starts.tolist() == [0, 1, 3]
    assert found.class_index.tolist() == [1, 0, 0]
    assert found.boxes_xyxy.tolist() == [[0.5, 0.6, 0.7, 0.8], [0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1]]


@pytest.mark.parametrize(
    "row", ["0001eeaf4aed83f9,x,/m/0cmf2,1,0.1,abc,0,1", "0001eeaf4aed83f9,x", "0001eeaf4aed83f9"]
)
def test_a_broken_row_refuses_its_image_alone(tmp_path, row):
    write(tmp_path, ROWS + row, ("0001eeaf4aed83f9", "00075905539074f2"))
    found = read_split(tmp_path)
    assert list(found.broken) == [0]
    assert found.broken[0].startswith("line 6: no box in '0001eeaf")
    assert found.starts.tolist() == [0, 2, 3]


def test_a_label_without_a_name_stands_for_itself_and_is_told(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write(tmp_path)
    (tmp_path / "class-descriptions-boxable.csv").unlink()
    assert read_split(tmp_path).class_names == ("/m/04yx4", "/m/0cmf2")
    assert "no class-descriptions-boxable.csv names the class '/m/04yx4'" in caplog.text


def test_two_labels_of_one_name_are_one_class(tmp_path):
    write(tmp_path)
    (tmp_path / "class-descriptions-boxable.csv").write_text("/m/0cmf2,Man\n/m/04yx4,Man\n")
    found = read_split(tmp_path)
    assert (found.class_names, found.class_index.tolist()) == (("Man",), [0, 0])


def test_other_csv_files_are_not_taken(tmp_path):
    for name, text in (
        ("train-annotations-human-imagelabels.csv", "ImageID,Source,LabelName,Confidence\n"),
        ("train-annotations-object-segmentation.csv", "MaskPath,ImageID,LabelName,BoxID,BoxXMin\n"),
        ("empty.csv", ""),
        ("holes.csv", "\0" * 100_000),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "folder.csv").mkdir()
    assert find(tmp_path) == {}


def test_class_names_that_cannot_be_read_are_an_error(tmp_path):
    write(tmp_path)
    (tmp_path / "class-descriptions-boxable.csv").write_bytes(b"/m/0cmf2,\xff\n")
    with pytest.raises(DatasetError, match="class names cannot be read"):
        read_split(tmp_path)


def test_a_file_of_one_endless_line_costs_no_more_memory_than_a_line(tmp_path):
    write(tmp_path, "0001eeaf4aed83f9," * 200_000)
    assert read_split(tmp_path).broken[0].startswith("line 2: ")
