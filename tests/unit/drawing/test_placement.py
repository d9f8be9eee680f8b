"""`placement.py`: labels in the image, each beside its box, off each other where there is room."""

import numpy as np
import pytest

from utils.drawing.placement import LabelPlacer, Rectangle

SIZE = (480, 640)
HEIGHT, WIDTH = 18, 80


def place_all(boxes, size=SIZE, height=HEIGHT, width=WIDTH):
    placer = LabelPlacer(size, boxes, height)
    return [placer.place(box, width) for box in boxes]


def random_boxes(count, size=SIZE, longest=120):
    random = np.random.Generator(np.random.Philox(count))
    top, left = random.uniform(0, 1, (2, count)) * np.array(size)[:, None]
    sides = random.uniform(5, longest, (2, count))
    return [
        Rectangle(int(x), int(y), min(int(x + w) + 1, size[1]), min(int(y + h) + 1, size[0]))
        for x, y, (w, h) in zip(left, top, sides.T, strict=True)
    ]


def overlap(a, b):
    width = min(a.right, b.right) - max(a.left, b.left)
    height = min(a.bottom, b.bottom) - max(a.top, b.top)
    return max(width, 0) * max(height, 0)


def at(left, top):
    return Rectangle(left, top, left + WIDTH, top + HEIGHT)


def test_a_label_stands_above_its_box():
    assert place_all([Rectangle(100, 200, 300, 400)]) == [at(100, 200 - HEIGHT)]


def test_without_room_above_it_stands_inside():
    assert place_all([Rectangle(100, 10, 300, 400)]) == [at(100, 10)]


def test_without_room_above_and_in_a_small_box_it_stands_below():
    assert place_all([Rectangle(100, 10, 130, 40)]) == [at(100, 40)]


def test_at_the_right_border_it_is_moved_into_the_image():
    assert place_all([Rectangle(600, 200, 640, 400)]) == [at(640 - WIDTH, 200 - HEIGHT)]


def test_a_box_as_large_as_the_image_has_its_label_inside():
    assert place_all([Rectangle(0, 0, 640, 480)]) == [at(0, 0)]


def test_labels_of_one_box_found_as_several_classes_are_all_read():
    places = place_all([Rectangle(200, 200, 300, 300)] * 6)
    assert None not in places
    for index, place in enumerate(places):
        assert not any(overlap(place, other) for other in places[:index])
    assert places[:3] == [at(200, 200 - HEIGHT), at(200, 200), at(200, 300)]


def test_a_label_leaves_the_corner_of_another_box_free():
    box, other = Rectangle(100, 200, 300, 400), Rectangle(120, 190, 280, 260)
    placed, _ = place_all([box, other])
    assert placed == at(100, 200)  # inside: above, it would lie on the corner at (120, 190)


@pytest.mark.parametrize("count", [1, 10, 40])
def test_with_room_enough_no_label_lies_on_another(count):
    places = place_all(random_boxes(count))
    assert None not in places
    for index, place in enumerate(places):
        assert not any(overlap(place, other) for other in places[:index])


@pytest.mark.parametrize("size", [SIZE, (64, 90), (31, 2000), (3000, 4000)])
@pytest.mark.parametrize("count", [3, 300])
def test_no_label_leaves_the_image(size, count):
    height = max(min(size) // 30, 7)
    places = place_all(random_boxes(count, size), size, height, width=min(size[1], 5 * height))
    assert any(places)
    for place in filter(None, places):
        assert place.left >= 0 and place.top >= 0
        assert place.right <= size[1] and place.bottom <= size[0]
        assert (place.right - place.left, place.bottom - place.top) == (
            min(size[1], 5 * height), height,
        )  # fmt: skip


def test_in_a_crowd_labels_hide_a_quarter_of_the_image_and_less_than_half_of_each_other():
    boxes = random_boxes(2000)
    placer = LabelPlacer(SIZE, boxes, HEIGHT)
    covered, places = np.zeros(SIZE, bool), []
    for box in boxes:
        if placer.is_full:
            break
        if place := placer.place(box, WIDTH):
            covered[place.top : place.bottom, place.left : place.right] = True
            places.append(place)
    # The last label may go beyond the quarter; the raster has one row and column more.
    assert 1 / 4 <= covered.mean() < 1 / 4 + (WIDTH * HEIGHT + sum(SIZE)) / np.prod(SIZE)
    assert len(places) < len(boxes)
    for index, place in enumerate(places):
        earlier = sum(overlap(place, other) for other in places[:index])
        assert earlier < HEIGHT * WIDTH / 2


def test_boxes_at_one_place_get_as_many_labels_as_are_read():
    places = list(filter(None, place_all([Rectangle(200, 200, 300, 300)] * 1000)))
    assert 6 <= len(places) < 60


def test_places_are_the_same_each_time():
    boxes = random_boxes(200)
    assert place_all(boxes) == place_all(boxes)


def test_in_a_large_image_labels_keep_apart_but_for_a_fifteenth_of_themselves():
    size, height, width = (6000, 8000), 125, 600
    places = list(filter(None, place_all(random_boxes(30, size, 1500), size, height, width)))
    assert len(places) == 30
    for index, place in enumerate(places):
        for other in places[:index]:
            # Places are noted in cells of a sixteenth of the height, and cut off to cells.
            assert overlap(place, other) <= width * height / 15
