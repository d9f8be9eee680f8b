"""Outlines of turned boxes and ellipses, cut at the edges of an image."""

import cv2
import numpy as np
import pytest

from utils.data.sources.formats.outlines import box_outline, ellipse_outline, turned, within

SIZE = 40, 60  # height, width


def area(outline):
    x, y = outline.T
    return abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2


def test_an_outline_inside_stays_as_it_is():
    outline = turned(box_outline(20, 10, 10, 8), (20, 10), 20)
    assert within(outline, SIZE) is outline


@pytest.mark.parametrize("seed", range(30))
def test_what_is_cut_has_the_area_that_opencv_finds(seed):
    random = np.random.default_rng(seed)
    left, top, width, height = random.uniform([-20, -20, 5, 5], [60, 40, 50, 50])
    outline = turned(box_outline(left, top, width, height), (left, top), random.uniform(0, 360))
    found = within(outline, SIZE)
    image = np.float32(box_outline(0, 0, SIZE[1], SIZE[0]))
    expected, _ = cv2.intersectConvexConvex(np.float32(outline), image)
    assert area(found) if len(found) else pytest.approx(expected, abs=0.01) == 0
    if len(found):
        assert found.min() >= -1e-9 and (found <= np.array([60, 40]) + 1e-9).all()


def test_an_outline_outside_has_no_points_left():
    assert within(box_outline(-20, 5, 10, 10), SIZE).shape == (0, 2)


def test_an_outline_around_the_image_is_the_image():
    found = within(box_outline(-5, -5, 100, 100), SIZE)
    assert sorted(map(tuple, found.tolist())) == [(0, 0), (0, 40), (60, 0), (60, 40)]


def test_an_ellipse_touches_its_box_and_keeps_its_form_when_turned():
    outline = ellipse_outline((30, 20), (12, 5))
    assert (outline.min(0).tolist(), outline.max(0).tolist()) == ([18, 15], [42, 25])
    x, y = (turned(outline, (30, 20), -30) - (30, 20)).T
    back = np.cos(np.pi / 6), np.sin(np.pi / 6)
    form = ((x * back[0] - y * back[1]) / 12) ** 2 + ((x * back[1] + y * back[0]) / 5) ** 2
    np.testing.assert_allclose(form, 1)
