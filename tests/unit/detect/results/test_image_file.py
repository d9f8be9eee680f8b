"""Images as files: colours, kinds, and what a kind cannot hold."""

import os

import cv2
import numpy as np
import pytest

from duet.utils.data.image.image_file import LONGEST_SIDES, save_image
from duet.utils.errors import UserError
from tests.unit.detect.results.made import make_result

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
