"""Polygons clipped by a warp's output, and copied to other places by copy-paste."""

import numpy as np
import pytest

from duet.utils.data.augment.copy_paste import (
    CopyPaste,
    choose_copies,
    choose_objects,
    paste,
    why_nothing_is_pasted,
)
from duet.utils.data.augment.geometry import Warp, boxes_within, warp_objects, warp_polygons
from duet.utils.data.image.decoding import Objects, join_objects
from tests.environments import shared_path
from tests.unit.data.compared import make_polygons

IDENTITY = np.eye(3)


def random_star(random: np.random.Generator, low: float, high: float) -> np.ndarray:
    """Return a polygon (K, 2) with corners around a point between low and high."""
    angles = np.sort(random.random(random.integers(3, 30))) * 2 * np.pi
    radii = (high - low) * (0.1 + 0.6 * random.random(len(angles)))
    centre = low + (high - low) * random.random(2)
    return centre + radii[:, None] * np.stack((np.cos(angles), np.sin(angles)), axis=1)


def inside(outline: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return (H, W) bool: which pixels have their centres in a polygon, by the crossed edges."""
    rows, columns = np.indices(size) + 0.5
    crossed = np.zeros(size, np.int64)
    for (x, y), (next_x, next_y) in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        if y != next_y:
            at = x + (rows - y) / (next_y - y) * (next_x - x)
            crossed += ((y <= rows) != (next_y <= rows)) & (columns < at)
    return crossed % 2 == 1


def test_points_behind_the_viewer_are_clipped():
    matrix = np.array([[1, 0, 0], [0, 1, 0], [-0.1, 0, 1]])  # x from 10 on is behind
    found = warp_polygons(make_polygons([[[4, 0], [40, 0], [40, 5], [4, 5]]]), matrix, (90, 30))
    # x = 4 is seen at 4 / 0.6; it reaches to infinity, so that the output is full to its right.
    np.testing.assert_allclose(boxes_within(found, (90, 30)), [[4 / 0.6, 0, 30, 5 / 0.25]])
    behind = warp_polygons(make_polygons([[[11, 0], [40, 0], [40, 5]]]), matrix, (90, 30))
    assert behind.num_points.tolist() == [0]


@pytest.mark.parametrize("perspective", [0, 0.001])
def test_clipped_polygon_covers_the_same_output_pixels(perspective):
    random = np.random.Generator(np.random.Philox(3))
    size, compared = (64, 80), 0
    for _ in range(60):
        outline = random_star(random, -20, 120)
        warp = Warp(
            angle=360 * random.random(),
            zoom=0.5 + random.random(),
            shear_xy=(20 * random.random(), 0),
            perspective_xy=(perspective, -perspective),
        )
        matrix = warp.matrix((100, 100), size)
        points = np.concatenate((outline, np.ones((len(outline), 1))), axis=1) @ matrix.T
        expected = inside(points[:, :2] / points[:, 2:], size)
        for margin in (0, 2):
            found = warp_polygons(make_polygons([outline]), matrix, size, margin)
            np.testing.assert_array_equal(inside(found.outline(0), size), expected)
        compared += expected.any()
    assert compared > 40


def test_clipped_box_ignores_corner_outside_the_polygon():
    # A hook around the corner (0, 0): only its end at the left is seen.
    hook = [[-5, 3], [4, 3], [4, 6], [-9, 6], [-9, -9], [9, -9], [9, -2], [-5, -2]]
    polygons = warp_polygons(make_polygons([hook]), IDENTITY, (10, 10), margin=2)
    assert boxes_within(polygons, (10, 10)).tolist() == [[0, 3, 4, 6]]


def stored_objects(stored) -> Objects:
    labels = stored["labels"].astype(np.float64)
    polygons = make_polygons([stored[f"segment_{number}"] for number in range(4)])
    return Objects(labels[:, 0].astype(np.int64), labels[:, 1:], polygons)


@pytest.mark.parametrize("border", ["b0", "bneg"])
@pytest.mark.parametrize("case", range(6))
def test_boxes_of_warped_polygons_match_stored_values(case, border):
    with np.load(shared_path("golden/recipe/perspective_segments.npz")) as stored:
        objects, name = stored_objects(stored), f"c{case}_{border}"
        matrix, shape = stored[f"{name}_matrix"], stored[f"{name}_shape"]
        warp = Warp(zoom=float(stored["draws"][case, 3]))
        found = warp_objects(objects, warp, matrix, (int(shape[0]), int(shape[1])))
        expected = stored[f"{name}_det_labels"]
        assert found.class_index.tolist() == expected[:, 0].tolist()
        # The stored ones are around 1000 points of each outline. A box here is around the outline
        # itself, which is as far from them as one such step is long, or less.
        edges = [np.diff(stored[f"segment_{i}"], axis=0, append=np.nan) for i in range(4)]
        steps = [len(edge) * np.nanmax(np.hypot(*edge.T)) / 999 for edge in edges]
        np.testing.assert_allclose(
            found.boxes_xyxy, expected[:, 1:], rtol=0, atol=1.1 * warp.zoom * max(steps)
        )


@pytest.mark.parametrize("case", range(5))
def test_copy_paste_matches_stored_image_and_labels(case):
    with np.load(shared_path("golden/segment/copy_paste.npz")) as stored:
        objects, image = stored_objects(stored), stored["image"].copy()
        width = image.shape[1]
        chosen = choose_copies(stored[f"c{case}_choice"], objects, width)
        copies = objects.select(chosen).mirrored(0, width)
        polygons = copies.polygons
        found, expected = join_objects(objects, copies), stored[f"c{case}_labels"]
        assert found.class_index.tolist() == expected[:, 0].tolist()
        # Float32 of values up to 128.
        np.testing.assert_allclose(found.boxes_xyxy, expected[:, 1:], rtol=0, atol=2e-5)
        for number in range(len(chosen)):
            outline = stored[f"c{case}_new_segment_{number}"]
            np.testing.assert_allclose(polygons.outline(number), outline, rtol=0, atol=2e-5)
        paste(image, stored["image"][:, ::-1], polygons)
        differs = (image != stored[f"c{case}_image"]).any(axis=2)
        # The stored outlines are truncated to whole pixels: up to one pixel off, all around.
        perimeter = sum(
            np.hypot(*np.diff(polygons.outline(i), axis=0, append=polygons.outline(i)[:1]).T).sum()
            for i in range(len(polygons))
        )
        assert differs.sum() <= perimeter
        assert (image != stored["image"]).any() == bool(len(chosen))


def objects_of(boxes: list, with_polygons: bool = True) -> Objects:
    corners = [[[a, b], [c, b], [c, d], [a, d]] for a, b, c, d in boxes]
    polygons = make_polygons(corners) if with_polygons else None
    return Objects(np.arange(len(boxes)), np.array(boxes, np.float64).reshape(-1, 4), polygons)


def test_pasted_copy_hides_under_30_percent_of_an_object():
    # The mirrored box of the first is (80, 0, 100, 20); of the second it covers that part.
    for part, is_copied in ((0.29, True), (0.31, False)):
        objects = objects_of([[0, 0, 20, 20], [80 - 10 * (1 - part), 0, 80 + 10 * part, 20]])
        assert choose_copies(np.array([0]), objects, 100).tolist() == [0] * is_copied


def test_pasted_copies_do_not_overlap():
    objects = objects_of([[0, 0, 20, 20], [5, 0, 25, 20]])
    # Each may go alone; the second would cover the copy of the first.
    assert choose_copies(np.array([1]), objects, 100).tolist() == [1]
    assert choose_copies(np.array([0, 1]), objects, 100).tolist() == [0]


def test_copy_paste_draws_its_share_of_outlined_objects():
    objects = objects_of([[i, 0, i + 1, 1] for i in range(40)])
    outlines = [objects.polygons.outline(i)[: 4 * (i % 2)] for i in range(40)]
    objects = objects._replace(polygons=make_polygons(outlines))  # of each second one
    found = choose_objects(CopyPaste(0.3, 7), objects)
    assert len(found) == 6  # of 20
    assert (found % 2 == 1).all()
    assert len(set(found.tolist())) == 6
    np.testing.assert_array_equal(found, choose_objects(CopyPaste(0.3, 7), objects))
    assert found.tolist() != choose_objects(CopyPaste(0.3, 8), objects).tolist()
    assert len(choose_objects(CopyPaste(1.0, 7), objects)) == 20
    assert len(choose_objects(CopyPaste(1.0, 7), objects._replace(polygons=None))) == 0


@pytest.mark.parametrize(
    ("share", "has_mosaics", "has_polygons", "reason"),
    [
        (0.3, True, True, ""),
        (0.0, False, False, ""),
        (0.3, False, True, "copies are pasted into mosaics only"),
        (0.3, True, False, "no label of the training images is a polygon"),
    ],
)
def test_impossible_pasting_gives_a_reason(share, has_mosaics, has_polygons, reason):
    found = why_nothing_is_pasted(share, has_mosaics, has_polygons)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)
