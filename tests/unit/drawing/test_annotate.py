"""`annotate.py`: boxes where they are, in their colours, on images and boxes of any kind."""

import threading

import numpy as np
import pytest

from utils.drawing.annotate import default_font_size, default_line_width, draw_boxes
from utils.drawing.colours import class_colour


def drawn_on(image, boxes, labels=None, **settings):
    table = np.array(boxes, np.float32).reshape(-1, 4)
    classes = np.arange(len(table))
    return draw_boxes(image, table, classes, labels or [""] * len(table), **settings)


def grey(height=480, width=640, level=128):
    return np.full((height, width, 3), level, np.uint8)


@pytest.mark.parametrize("level", [0, 128, 255])
def test_an_outline_is_in_the_colour_of_its_class_at_the_edges_of_its_box(level):
    drawn = drawn_on(grey(level=level), [(100, 50, 300, 250), (400, 300, 500, 400)])
    for (left, top, right, bottom), index in (((100, 50, 300, 250), 0), ((400, 300, 500, 400), 1)):
        colour = class_colour(index)
        middle_x, middle_y = (left + right) // 2, (top + bottom) // 2
        for edge in (drawn[middle_y, left], drawn[middle_y, right - 1],
                     drawn[top, middle_x], drawn[bottom - 1, middle_x]):  # fmt: skip
            assert tuple(edge) == colour
        assert (drawn[top + 3 : bottom - 3, left + 3 : right - 3] == level).all()
    assert (drawn[:47] == level).all() and (drawn[:, :97] == level).all()


@pytest.mark.parametrize("class_index", [0, 6], ids=["dark blue", "light yellow"])
def test_an_outline_is_set_off_from_an_image_of_its_own_colour(class_index):
    image = np.zeros((200, 200, 3), np.uint8) + np.array(class_colour(class_index), np.uint8)
    boxes = np.array([(50, 50, 150, 150)], np.float32)
    drawn = draw_boxes(image, boxes, np.array([class_index]), [""]).astype(int)
    assert (np.abs(drawn[100] - image[100]).max(axis=1) > 60).sum() >= 2


def test_the_image_and_the_boxes_stay_as_they_are():
    image, boxes = grey(), np.array([(-5, 20, 900, 200)], np.float32)
    drawn = draw_boxes(image, boxes, np.array([3]), ["person 0.87"])
    assert (image == 128).all() and (boxes == [[-5, 20, 900, 200]]).all()
    assert drawn.shape == image.shape and drawn.dtype == np.uint8
    assert (drawn != image).any()


def test_no_boxes_change_nothing():
    np.testing.assert_array_equal(drawn_on(grey(), []), grey())


@pytest.mark.parametrize("box", [
    (-50, -50, -10, -10), (700, 10, 800, 20), (10, 500, 30, 600), (np.nan, 0, 9, 9),
    (0, 0, np.inf, 9), (-np.inf, 0, 9, 9), (10, np.nan, np.nan, 20),
], ids=str)  # fmt: skip
def test_a_box_outside_of_the_image_or_not_finite_is_left_out(box):
    np.testing.assert_array_equal(drawn_on(grey(), [box], ["x 0.5"]), grey())


@pytest.mark.parametrize("box", [
    (0, 0, 640, 480), (-1e9, -1e9, 1e9, 1e9), (639.9, 479.9, 641, 481), (100, 100, 100, 100),
    (100, 100, 100.2, 300), (200, 100, 100, 50), (0, 0, 0.1, 0.1), (600, -3e38, 3e38, 10),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("line_width", [None, 1, 10**9])
def test_any_other_box_is_drawn(box, line_width):
    drawn = drawn_on(grey(), [box], ["x 0.5"], line_width=line_width)
    assert (drawn == class_colour(0)).all(axis=2).any()


@pytest.mark.parametrize("size", [(1, 1), (1, 700), (700, 1), (2, 3), (0, 5), (5, 0)])
def test_an_image_of_any_size_is_drawn_on(size):
    height, width = size
    drawn = drawn_on(grey(height, width), [(0, 0, width, height)], ["person 0.87"])
    assert drawn.shape == (height, width, 3)


@pytest.mark.parametrize("image", [
    grey()[::-1, ::-1], grey(640, 480).transpose(1, 0, 2), grey()[:, :, ::-1], grey()[::2, ::2],
])  # fmt: skip
def test_images_in_any_memory_layout_are_drawn_on(image):
    plain = np.ascontiguousarray(image)
    boxes, labels = [(20, 30, 120, 90)], ["person 0.87"]
    np.testing.assert_array_equal(drawn_on(image, boxes, labels), drawn_on(plain, boxes, labels))
    image.flags.writeable = False
    np.testing.assert_array_equal(drawn_on(image, boxes, labels), drawn_on(plain, boxes, labels))


def test_a_label_is_on_a_field_of_its_colour_above_the_box():
    drawn = drawn_on(grey(), [(100, 100, 300, 300)], ["person 0.87"])
    field = drawn[100 - default_font_size((480, 640)) // 2, 100:140]
    assert (field == class_colour(0)).all(axis=1).sum() > 5
    assert (field > 240).all(axis=1).any()  # white letters on blue
    assert (drawn_on(grey(), [(100, 100, 300, 300)])[:97] == 128).all()


def test_a_small_image_is_not_covered_by_labels():
    boxes, labels = [(4, 4, 28, 28), (10, 2, 20, 30)], ["person 0.87", "dog 0.50"]
    image = grey(32, 32)
    np.testing.assert_array_equal(drawn_on(image, boxes, labels), drawn_on(image, boxes))
    changed = (drawn_on(image, boxes) != image).any(axis=2)
    assert changed.mean() < 0.5


def test_labels_of_many_boxes_leave_most_of_the_image_seen():
    random = np.random.Generator(np.random.Philox(2))
    corner = random.uniform(0, 100, (300, 2))
    boxes = np.concatenate([corner, corner + 12], axis=1)
    with_labels = drawn_on(grey(120, 120), boxes, ["person 0.87"] * 300)
    changed = (with_labels != drawn_on(grey(120, 120), boxes)).any(axis=2)
    assert 0 < changed.mean() < 0.36  # a quarter, and the last label


def test_lines_and_letters_follow_the_size_of_the_image():
    sizes = [(32, 32), (480, 640), (1080, 1920), (6000, 8000)]
    assert [default_line_width(size) for size in sizes] == [1, 2, 4, 21]  # 0.3 % of the mean side
    letters = [default_font_size(size) for size in sizes]
    assert letters == sorted(letters) and letters[0] == 10
    for (height, _), size in zip(sizes[1:], letters[1:], strict=True):
        assert 0.01 < size / height < 0.04
    # Of a strip the short side counts, along which letters stand.
    assert default_font_size((100, 30_000)) == default_font_size((300, 300))


@pytest.mark.parametrize("line_width", [1, 3, 8])
def test_the_line_is_as_wide_as_asked_for(line_width):
    drawn = drawn_on(grey(), [(100, 100, 300, 300)], line_width=line_width)
    row = (drawn[200] == class_colour(0)).all(axis=1)
    assert row[:200].sum() == row[200:].sum() == line_width


def test_a_small_box_in_a_large_image_is_not_filled_by_its_outline():
    drawn = drawn_on(grey(4000, 6000), [(1000, 1000, 1012, 1012)])
    assert (drawn[1003:1009, 1003:1009] == 128).all()
    assert tuple(drawn[1005, 1000]) != (128, 128, 128)


def test_the_first_box_lies_on_top_of_the_others():
    box = (100, 100, 300, 300)
    assert tuple(drawn_on(grey(), [box, box])[200, 100]) == class_colour(0)


def test_hostile_labels_are_drawn_as_text():
    labels = ["\x1b[2J\n" * 50, "\u202e" * 3, "x" * 100_000, "\udcff", " ", "\0"]
    boxes = [(50 * index, 100, 50 * index + 40, 200) for index in range(6)]
    drawn = drawn_on(grey(), boxes, labels)
    assert drawn.shape == (480, 640, 3)


def test_threads_draw_what_one_draws_alone():
    boxes = [(20 * index, 40 + 30 * index, 200, 400) for index in range(8)]
    texts = [[f"class {index} 0.{thread}{index}" for index in range(8)] for thread in range(4)]
    drawn = {}

    def draw(thread):
        for _ in range(5):
            drawn[thread] = drawn_on(grey(), boxes, texts[thread])

    threads = [threading.Thread(target=draw, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for thread in range(4):
        np.testing.assert_array_equal(drawn[thread], drawn_on(grey(), boxes, texts[thread]))
