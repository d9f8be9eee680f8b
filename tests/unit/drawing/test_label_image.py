"""`label_image.py`: text in two colours, of one height, never wider than it may be."""

import shutil

import numpy as np
import pytest

from tests.unit.drawing.stand_in_fonts import DEJAVU, forget_fonts, make_font, use_folders
from utils.drawing.label_image import label_height, label_image

YELLOW, BLUE = (240, 228, 66), (0, 114, 178)


@pytest.fixture(autouse=True)
def squares(tmp_path, monkeypatch):
    """DejaVu, and a font that draws each of three characters as a square of 0.8 em."""
    shutil.copy(DEJAVU, tmp_path)
    make_font("红细胞").save(tmp_path / "some.ttf")
    use_folders(monkeypatch, tmp_path)
    yield
    forget_fonts()


def ink_of(label: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """Which pixels (h, w) are not of the field's colour."""
    return (label != np.array(colour)).any(axis=2)


@pytest.mark.parametrize(("colour", "ink"), [(YELLOW, 0), (BLUE, 255)])
def test_letters_are_black_on_a_light_and_white_on_a_dark_colour(colour, ink):
    label = label_image("H", 40, colour, 500)
    assert (label[0] == colour).all() and (label[:, 0] == colour).all()
    assert (label == ink).all(axis=2).sum() > 100  # the two stems of an H of 40 pixels
    low, high = np.minimum(colour, ink), np.maximum(colour, ink)
    assert ((label >= low) & (label <= high)).all()


def test_characters_of_another_font_are_drawn_in_place_and_size():
    label = label_image("红 细", 50, BLUE, 500)
    ink = ink_of(label, BLUE)
    # Squares of 40 x 40 on a baseline 48 pixels down (0.95 em), 50 apart, and a space of 0.3 em.
    assert ink[9:47].any(axis=1).all() and not ink[50:].any() and not ink[:6].any()
    edges = np.flatnonzero(np.diff(ink[30].astype(int)))
    np.testing.assert_allclose(np.diff(edges), [40, 25, 40], atol=1)  # rounded to pixels


@pytest.mark.parametrize("size", [10, 14, 29, 101])
def test_labels_are_of_one_height_in_any_font(size):
    texts = ["x", "Åg|", "红细胞 0.87", "", " ", "person 0.87"]
    assert {label_image(text, size, BLUE, 4000).shape[0] for text in texts} == {label_height(size)}
    assert 1.1 * size < label_height(size) < 1.4 * size


def test_each_letter_is_whole_at_the_upper_and_lower_end():
    ink = ink_of(label_image("ÅÉgjpqy|()[]{}", 40, BLUE, 4000), BLUE)
    assert not ink[0].any() and not ink[-1].any()


@pytest.mark.parametrize("max_width", [8, 30, 60, 100, 200])
def test_a_long_text_ends_in_dots_within_its_width(max_width):
    label = label_image("a very long name of a class 0.87", 14, BLUE, max_width)
    assert label.shape[1] <= max_width
    if max_width < 30:
        return
    assert label.shape[1] > max_width - 16  # another letter, the widest of which has 0.9 em
    dots = ink_of(label, BLUE)[:, -8:]
    assert dots.any() and not dots[: label_height(14) // 2].any()  # at the baseline


def test_a_name_of_a_million_characters_takes_no_time():
    assert label_image("ab" * 500_000, 14, BLUE, 640).shape[1] <= 640
    assert label_image("w " * 500_000, 14, BLUE, 640).shape[1] <= 640


def test_the_same_label_comes_out_again_and_can_be_written_to():
    first = label_image("person 0.87", 14, BLUE, 500)
    before = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(label_image("person 0.87", 14, BLUE, 500), before)
