"""The line of an image on screen."""

import json
import re

import numpy as np
import pytest

from tests.shared_files import shared_path
from tests.unit.results.made import make_result
from utils.results.summary import summary
from utils.results.words import count_by_class

BOX = (1, 2, 3, 4, 0.5)


def stored_lines() -> list[str]:
    return json.loads(shared_path("golden/inference/detect.json").read_text())["console"]


@pytest.mark.parametrize("number", range(4))
def test_the_words_are_the_stored_ones(number):
    """The stored counts, planted in reverse, come out in the stored words and order."""
    _, line = stored_lines()[number].split(": ")
    height, width = map(int, re.match(r"(\d+)x(\d+)", line).groups())
    found = re.findall(r"(\d+) ([a-z ]+?)(?:s\b)?(?=,|$)", line.split(" ", 1)[1])
    names = tuple(name for _, name in found)
    counts = [int(count) for count, _ in found]
    rows = [(*BOX, index) for index, count in enumerate(counts) for _ in range(count)]
    result = make_result("a.jpg", *rows[::-1], class_names=names)
    assert summary(result, (height, width)) == line


def test_without_detections_it_says_so_beside_the_size_of_the_image():
    assert summary(make_result("a.jpg", size=(50, 40))) == "50x40 (no detections)"
    assert summary(make_result("a.jpg", (*BOX, 2))) == "40x60 1 cat"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("car", "2 cars"), ("skis", "2 skis"), ("wine glass", "2 wine glass"), ("车", "2 车")],
)
def test_a_plural_is_made_only_where_an_s_makes_one(name, shown):
    assert count_by_class(np.zeros(2, np.int64), [name]) == shown
