"""utils/geometry/boxes.py against stored arrays and hand-computed values."""

import numpy as np
import pytest

from duet.utils.geometry.boxes import clip_boxes, cxcywh_to_xyxy, pairwise_iou, xyxy_to_cxcywh
from tests.environments import shared_path

# float32 rounds coordinates of up to 1000 pixels to 6e-5; two operations each.
PIXELS = {"rtol": 1e-6, "atol": 1e-4}


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(shared_path("golden/nms/boxes.npz")) as arrays:
        return dict(arrays)


def test_conversions_match_stored_boxes(stored):
    boxes = stored["boxes"]
    # The stored corners are those of the absolute values, so that every size is one.
    found = cxcywh_to_xyxy(np.abs(boxes))
    np.testing.assert_allclose(found, stored["xywh2xyxy"], **PIXELS)
    np.testing.assert_allclose(xyxy_to_cxcywh(boxes), stored["xyxy2xywh"], **PIXELS)


@pytest.mark.parametrize("convert", [cxcywh_to_xyxy, xyxy_to_cxcywh])
@pytest.mark.parametrize("shape", [(0, 4), (4,), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_conversions_keep_shape_and_dtype(convert, shape, dtype):
    converted = convert(np.ones(shape, dtype))
    assert converted.shape == shape and converted.dtype == dtype


def test_clip_matches_stored_boxes(stored):
    np.testing.assert_array_equal(clip_boxes(stored["boxes"], (480, 640)), stored["clip"])


def test_pairwise_iou_matches_stored_values(stored):
    boxes_a, boxes_b = (cxcywh_to_xyxy(stored[name]) for name in ("iou_a", "iou_b"))
    stored_iou = stored["box_iou_40x60_of_iou_a_xyxy"]
    # The stored values add 1e-7 to denominators, were computed in float32 in the first case, and
    # took corners in float64 in the second.
    found = pairwise_iou(boxes_a[:40], boxes_a[:60])
    np.testing.assert_allclose(found, stored_iou, atol=2e-6)
    paired = np.diagonal(pairwise_iou(boxes_a, boxes_b))
    np.testing.assert_allclose(paired, stored["iou_fp64"], atol=2e-6)


def test_pairwise_iou_of_known_boxes_is_exact():
    boxes_a = np.array([[0, 0, 2, 2], [0, 0, 0, 2]], np.float32)
    boxes_b = np.array([[0, 0, 2, 2], [1, 1, 3, 3], [2, 0, 4, 2], [0, 0, 0, 2]], np.float32)
    expected = [[1, 1 / 7, 0, 0], [0, 0, 0, 0]]
    iou = pairwise_iou(boxes_a, boxes_b)
    assert iou.dtype == np.float64
    # One correctly rounded division of small integers each.
    np.testing.assert_array_equal(iou, expected)


def test_pairwise_iou_without_boxes_keeps_the_pair_shape():
    none, some = np.zeros((0, 4), np.float32), np.ones((3, 4), np.float32)
    assert pairwise_iou(none, some).shape == (0, 3)
    assert pairwise_iou(some, none).shape == (3, 0)
