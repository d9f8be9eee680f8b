"""Labels and table lines as the public detection writes them."""

import csv
import json

import numpy as np
import pytest

from tests.shared_files import shared_path
from tests.unit.results.made import make_detections
from utils.results.text_lines import label_lines, table_lines

BOX = (10, 20, 30, 40, 0.5, 2)


@pytest.fixture(scope="module")
def stored():
    return json.loads(shared_path("golden/inference/info.json").read_text())["save_txt"]


@pytest.mark.parametrize(
    ("scores", "key"), [(False, "lines_in_file_order"), (True, "lines_with_confidence")]
)
def test_labels_are_the_stored_lines_in_their_order(stored, scores, key):
    detections = make_detections(*stored["detections_x1y1x2y2_conf_class"])
    height, width, _ = stored["image_hwc"]
    assert label_lines(detections, (height, width), scores=scores) == stored[key]


def test_a_track_id_ends_the_line_and_large_whole_numbers_keep_their_digits():
    detections = make_detections(BOX, BOX)
    ids = np.array([12345678, 3])
    lines = label_lines(detections, (100, 100), ids, scores=True)
    assert lines == ["2 0.2 0.3 0.2 0.2 0.5 3", "2 0.2 0.3 0.2 0.2 0.5 12345678"]
    assert label_lines(detections, (100, 100), ids)[1] == "2 0.2 0.3 0.2 0.2 12345678"


def test_nothing_found_is_no_line():
    nothing = make_detections()
    assert label_lines(nothing, (10, 10), scores=True) == []
    assert table_lines("a.jpg", [], nothing.scores) == ""


def test_a_table_has_the_lowest_score_first_and_two_decimals():
    lines = table_lines("a.jpg", ["cat", "person"], np.float32([0.875, 0.125]))
    assert lines == "a.jpg,person,0.12\na.jpg,cat,0.88\n"
    ids = np.array([7, -1])
    lines = table_lines("a.jpg", ["cat", "person"], np.float32([0.875, 0.125]), ids)
    assert lines == "a.jpg,person,0.12,-1\na.jpg,cat,0.88,7\n"


def test_names_with_commas_and_quotes_come_back_from_the_table():
    row = ['a,"b.jpg', 'say "hi", cat', "0.50"]
    lines = table_lines(row[0], [row[1]], np.float32([0.5]))
    assert list(csv.reader([lines])) == [row]


def test_a_row_is_one_line_that_steers_no_terminal():
    lines = table_lines("a\n\x1b[31m\udce9.jpg", ["c\rat", "人"], np.float32([0.5, 0.25]))
    assert lines == "a\\n\\x1b[31m\\xe9.jpg,人,0.25\na\\n\\x1b[31m\\xe9.jpg,c\\rat,0.50\n"
    lines.encode("utf-8")
