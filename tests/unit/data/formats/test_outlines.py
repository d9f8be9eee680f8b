"""Outlines of turned boxes and of ellipses, and what of them lies inside the image."""

import cv2
import numpy as np

from utils.data.formats.outlines import box_outline, ellipse_outline, turned, within

SIZE = (20, 30)  # height, width


def area_of(outline: np.ndarray) -> float:
    return float(cv2.contourArea(outline.astype(np.float32)))


def test_what_is_cut_has_the_area_that_opencv_finds():
    corners = np.array([[0, 0], [30, 0], [30, 20], [0, 20]], np.float32)
    random = np.random.Generator(np.random.Philox(0))
    for _ in range(50):
        left, top = random.uniform(-20, 30, 2)
        box = left, top, left + random.uniform(1, 30), top + random.uniform(1, 30)
        outline = turned(box_outline(box), (left, top), random.uniform(0, 360))
        expected, _ = cv2.intersectConvexConvex(outline.astype(np.float32), corners)
        cut = within(outline, SIZE)
        found = area_of(cut) if len(cut) >= 3 else 0.0
        assert np.isclose(found, expected, rtol=1e-3, atol=1e-3)  # OpenCV computes in float32
        assert (cut >= -1e-9).all() and (cut <= np.array(SIZE[::-1]) + 1e-9).all()


def test_an_outline_inside_stays_and_one_outside_has_no_points_left():
    assert (within(inside := box_outline((2, 3, 12, 8)), SIZE) == inside).all()
    for box in ((-20, 5, -10, 15), (31, 5, 41, 15)):
        assert within(box_outline(box), SIZE).shape == (0, 2)


def test_an_ellipse_has_its_outermost_points():
    outline = ellipse_outline((10.0, 8.0), (6.0, 3.0))
    assert outline.min(0).tolist() == [4, 5] and outline.max(0).tolist() == [16, 11]
    distance = ((outline - (10, 8)) / (6, 3)) ** 2
    np.testing.assert_allclose(distance.sum(1), 1)
