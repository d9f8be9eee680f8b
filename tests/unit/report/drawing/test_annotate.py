"""Boxes where they are, in their colours, on images and boxes of any kind."""

import numpy as np
import pytest

from duet.utils.colours import class_colour
from duet.utils.data.masks.runs import runs_of_mask
from duet.utils.geometry.detections import Ragged
from duet.utils.report.drawing import (
    default_font_size,
    draw_boxes,
    draw_lines,
    draw_masks,
    label_height,
    label_image,
    place_labels,
)
from tests.unit.report.conftest import forget_fonts, make_font, use_folder

BLUE = (0, 114, 178)
HEIGHT = label_height(default_font_size((480, 640)))


def drawn_on(image, boxes, labels=None, **settings):
    table = np.array(boxes, np.float32).reshape(-1, 4)
    classes = np.arange(len(table))
    return draw_boxes(image, table, classes, labels or [""] * len(table), **settings)


def grey(height=480, width=640, level=128):
    return np.full((height, width, 3), level, np.uint8)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_box_outline_has_its_class_colour_at_the_edges(level):
    drawn = drawn_on(grey(level=level), [(100, 50, 300, 250), (400, 300, 500, 400)])
    for (left, top, right, bottom), index in (((100, 50, 300, 250), 0), ((400, 300, 500, 400), 1)):
        colour = class_colour(index)
        middle_x, middle_y = (left + right) // 2, (top + bottom) // 2
        for edge in (drawn[middle_y, left], drawn[middle_y, right - 1],
                     drawn[top, middle_x], drawn[bottom - 1, middle_x]):  # fmt: skip
            assert tuple(edge) == colour
        assert (drawn[top + 3 : bottom - 3, left + 3 : right - 3] == level).all()
    assert (drawn[:48] == level).all() and (drawn[:, :98] == level).all()


@pytest.mark.parametrize("box", [
    (-50, -50, -10, -10), (700, 10, 800, 20), (10, 500, 30, 600), (np.nan, 0, 9, 9),
    (0, 0, np.inf, 9), (-np.inf, 0, 9, 9), (10, np.nan, np.nan, 20),
], ids=str)  # fmt: skip
def test_outside_or_non_finite_box_is_left_out(box):
    np.testing.assert_array_equal(drawn_on(grey(), [box], ["x 0.5"]), grey())


@pytest.mark.parametrize("box", [
    (0, 0, 640, 480), (-1e9, -1e9, 1e9, 1e9), (639.9, 479.9, 641, 481), (100, 100, 100, 100),
    (100, 100, 100.2, 300), (200, 100, 100, 50), (0, 0, 0.1, 0.1), (600, -3e38, 3e38, 10),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("line_width", [None, 1, 10**9])
def test_every_other_box_is_drawn(box, line_width):
    drawn = drawn_on(grey(), [box], ["x 0.5"], line_width=line_width)
    assert (drawn == class_colour(0)).all(axis=2).any()


@pytest.mark.parametrize("size", [(1, 1), (1, 700), (700, 1), (2, 3), (0, 5), (5, 0)])
def test_image_of_any_size_can_be_drawn_on(size):
    height, width = size
    for drawn in (
        drawn_on(grey(height, width), [(0, 0, width, height)], ["person 0.87"]),
        draw_lines(grey(height, width), ["person 0.87"], [BLUE]),
    ):
        assert drawn.shape == (height, width, 3)


@pytest.mark.parametrize(("box", "top", "left"), [
    ((100, 100, 300, 300), 100 - HEIGHT, 100),  # above
    ((100, 5, 300, 300), 300, 100),  # no room above: below
    ((100, 5, 300, 479), 480 - HEIGHT, 100),  # nor below: inside, at the lower edge
    ((620, 100, 640, 300), 100 - HEIGHT, None),  # up to the right border
], ids=str)  # fmt: skip
def test_label_stands_above_its_box_or_in_free_room(box, top, left):
    label = label_image("person 0.87", default_font_size((480, 640)), class_colour(0), 640)
    left = 640 - label.shape[1] if left is None else left
    drawn = drawn_on(grey(), [box], ["person 0.87"])
    np.testing.assert_array_equal(drawn[top : top + HEIGHT, left : left + label.shape[1]], label)
    without = drawn_on(grey(), [box])
    drawn[top : top + HEIGHT, left : left + label.shape[1]] = 0
    without[top : top + HEIGHT, left : left + label.shape[1]] = 0
    np.testing.assert_array_equal(drawn, without)


def test_name_in_another_script_uses_a_suitable_font(tmp_path, monkeypatch):
    make_font("红细胞0123456789. ").save(tmp_path / "some.ttf")
    use_folder(monkeypatch, tmp_path)
    ink = (label_image("红", 50, BLUE, 500) != np.array(BLUE)).any(axis=2)
    forget_fonts()
    # A square of 40 x 40 on a baseline 48 pixels down (0.95 em).
    assert ink[9:47].any(axis=1).all() and not ink[50:].any() and not ink[:6].any()
    assert ink[30].sum() == pytest.approx(40, abs=2)


@pytest.mark.parametrize("max_width", [8, 30, 60, 100, 200])
def test_long_label_ends_in_dots_within_its_width(max_width):
    label = label_image("a very long name of a class 0.87", 14, BLUE, max_width)
    assert label.shape[1] <= max_width
    if max_width >= 30:
        assert label.shape[1] > max_width - 16  # another letter, the widest of which has 0.9 em
        dots = (label[:, -8:] != np.array(BLUE)).any(axis=2)
        assert dots.any() and not dots[: label_height(14) // 2].any()  # at the baseline


def test_class_lines_stand_in_the_upper_half_in_own_colours():
    colours = [class_colour(index) for index in range(5)]
    drawn = draw_lines(grey(), [f"0.{index} dog" for index in range(5)], colours)
    for index, colour in enumerate(colours):
        assert tuple(drawn[HEIGHT * index, 0]) == colour
    small = draw_lines(grey(60, 100), ["dog"] * 5, colours)
    assert tuple(small[0, 0]) == colours[0] and (small[30:] == 128).all()


GREY = 100


def drawn(masks, class_index):
    """A grey image with masks (K, H, W) drawn on it."""
    image = np.full((*masks.shape[1:], 3), GREY, np.uint8)
    runs = Ragged.of([runs_of_mask(mask) for mask in masks], np.uint32)
    draw_masks(image, runs, np.array(class_index, np.int64))
    return image


def tint(index):
    return np.rint((GREY + np.array(class_colour(index))) / 2).astype(int).tolist()


def test_mask_is_tinted_and_outlined():
    masks = np.zeros((1, 30, 40), bool)
    masks[0, 5:20, 10:30] = True
    image = drawn(masks, [3])
    inside = np.zeros((30, 40), bool)
    inside[6:19, 11:29] = True
    assert (image[inside] == tint(3)).all()
    assert (image[masks[0] & ~inside] == class_colour(3)).all()
    assert (image[~masks[0]] == GREY).all()


def test_first_of_overlapping_masks_shows():
    masks = np.zeros((3, 30, 40), bool)
    masks[0, 5:20, 5:20] = masks[1, 10:28, 10:30] = masks[2] = True
    image = drawn(masks, [7, 1, 2])
    assert [image[15, 15].tolist(), image[25, 20].tolist(), image[2, 35].tolist()] == [
        tint(7), tint(1), tint(2)
    ]  # fmt: skip


def test_crowded_labels_overlap_no_label_and_few_heads():
    """People side by side and behind each other, as in a photograph of a team."""
    heights = [150, 90, 170, 100, 140, 80, 160, 120]
    boxes = np.array([(30 + 70 * i, 300 - h, 120 + 70 * i, 320 + h) for i, h in enumerate(heights)])
    sizes = [(25, 110)] * len(boxes)
    found = np.array(place_labels(boxes, sizes, (480, 700)))
    for index, (left, top) in enumerate(found.tolist()):
        others = np.delete(found, index, axis=0)
        assert not ((abs(others[:, 0] - left) < 110) & (abs(others[:, 1] - top) < 25)).any()
    plain = np.stack((boxes[:, 0], boxes[:, 1] - 25), axis=1)  # each above its box

    def covered(places):
        """Pixels of labels on the upper quarter of a box."""
        heads = np.zeros((480, 700), bool)
        for left, top, right, bottom in boxes.tolist():
            heads[top : top + (bottom - top) // 4, left:right] = True
        return sum(heads[max(y, 0) : y + 25, x : x + 110].sum() for x, y in places.tolist())

    assert covered(found) < 0.5 * covered(plain)
    assert (found >= 0).all() and (found + (110, 25) <= (700, 480)).all()
