"""Results for other programs: plain values, JSON, pandas, image files."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest

from duet.utils.data.image.image_file import LONGEST_SIDES, save_image
from duet.utils.detect.results.result import Result
from duet.utils.errors import UserError
from tests.unit.detect.results.made import make_result

BOXES = [[10.5, 20.25, 80, 100], [1, 2, 3, 4], [5, 6, 60, 50]]
SCORES = [0.75, 0.5, 0.25]
NAMES = ("person", "自行车", "bus")


def result(source="street.jpg", number=None, found=3):
    rows = [
        (*box, score, index) for box, score, index in zip(BOXES, SCORES, (0, 1, 0), strict=True)
    ]
    return make_result(source, *rows[:found], size=(120, 160), number=number, class_names=NAMES)


def test_a_result_as_plain_values():
    assert result(Path("a/street.jpg"), 7).to_dict() == {
        "source": "a/street.jpg",
        "frame": 7,
        "seconds": 0.875,
        "height": 120,
        "width": 160,
        "detections": [
            {"box_xyxy": box, "score": score, "class_index": index, "name": NAMES[index]}
            for box, score, index in zip(BOXES, SCORES, (0, 1, 0), strict=True)
        ],
    }
    assert result(found=0).to_dict()["detections"] == []


def test_a_result_is_a_sequence():
    found = result()
    assert isinstance(found, Sequence) and len(found) == 3
    assert (found[0].name, found[-1].score) == ("person", 0.25)
    assert found[:2] == [found[0], found[1]] and [*reversed(found)] == [*found][::-1]
    assert found[1] in found
    with pytest.raises(IndexError):
        result(found=0)[0]


def test_the_summary_of_a_result_is_one_line_whatever_the_classes_are_called():
    found = make_result("a.jpg", (*BOXES[0], 0.5, 0), size=(96, 112), class_names=("a\n\x1b[31m",))
    assert found.summary() == r"96x112 1 a\n\x1b[31m"
    assert found.summary((64, 96)) == r"64x96 1 a\n\x1b[31m"


def test_a_result_as_json_is_utf8_of_any_name():
    text = result(os.fsdecode(b"caf\xe9 \xe8\xa1\x97.jpg")).to_json()
    assert "自行车" in text and "\n" not in text
    found = json.loads(text.encode("utf-8"))
    assert found["source"] == r"caf\udce9 街.jpg"
    assert found["detections"][0]["box_xyxy"] == BOXES[0]


def test_a_tracked_result_has_its_ids_everywhere():
    plain = result()
    tracked = Result(plain.frame, plain.detections, NAMES, np.array([3, -1, 12]))
    assert [found.track_id for found in tracked] == [3, -1, 12]
    assert [record["track_id"] for record in tracked.to_dict()["detections"]] == [3, -1, 12]
    assert [found.track_id for found in plain] == [None] * 3


def test_a_result_as_a_table():
    pytest.importorskip("pandas")
    table = result().to_pandas()
    assert list(table.columns) == ["xmin", "ymin", "xmax", "ymax", "confidence", "class", "name"]
    np.testing.assert_array_equal(table.iloc[:, :4], BOXES)
    assert table["confidence"].tolist() == SCORES
    assert table["class"].tolist() == [0, 1, 0]
    assert table["name"].tolist() == ["person", "自行车", "person"]
    empty = result(found=0).to_pandas()
    assert list(empty.columns) == list(table.columns) and len(empty) == 0
    assert (empty.dtypes == table.dtypes).all()


LOSSY = {".jpg": 3, ".jpeg": 3, ".webp": 6}  # grey values; measured 1, 1 and 3


@pytest.mark.parametrize("suffix", [*LONGEST_SIDES, ".JPG"])
def test_an_image_comes_back_in_its_colours(tmp_path, suffix):
    image = np.zeros((20, 30, 3), np.uint8)
    image[:] = (200, 120, 40)
    save_image(tmp_path / f"a{suffix}", image)
    found = cv2.imread(str(tmp_path / f"a{suffix}"))[:, :, ::-1].astype(int)
    assert np.abs(found - image).max() <= LOSSY.get(suffix.lower(), 0)


@pytest.mark.parametrize("name", ["a.gif", "a", "a.txt", "a.webp"])
def test_a_name_that_says_no_fitting_kind_is_answered_with_those_that_do(tmp_path, name):
    with pytest.raises(UserError, match=r"20000x1 px .*\.bmp, \.jpeg, \.jpg, \.png"):
        save_image(tmp_path / name, np.zeros((1, 20_000, 3), np.uint8))
    assert os.listdir(tmp_path) == []


def test_a_result_saves_its_labels(tmp_path):
    result = make_result("a.jpg", (0, 10, 30, 30, 0.5, 1), (0, 0, 60, 40, 0.25, 0))
    result.save_txt(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "0 0.5 0.5 1 1\n1 0.25 0.5 0.5 0.5\n"
    result.save_txt(str(tmp_path / "a.txt"), scores=True)
    assert (tmp_path / "a.txt").read_text() == "0 0.5 0.5 1 1 0.25\n1 0.25 0.5 0.5 0.5 0.5\n"
    make_result("a.jpg").save_txt(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == ""
