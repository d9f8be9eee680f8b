"""The boxes that NMS compares, which may reach beyond the image."""

import numpy as np
import pytest

from models.heads.anchor.head import AnchorHead
from models.heads.mask.head import MaskHead, MaskRows
from utils.data.image.letterbox import Letterbox
from utils.detections import SuppressionSettings

# An image of 50 x 100 pixels, as wide as it is and 25 pixels below the upper edge of the input.
PLACEMENT = Letterbox((50, 100), (50, 100), (25, 0), (100, 100))
KEEP_ALL = SuppressionSettings(0.25, 1.0)
# cx, cy, w, h, objectness, scores of two classes; each a match of score 0.5, 0.9 and 0.1.
ROWS = np.float32(
    [[10, 50, 40, 20, 1, 0.5, 0], [50, 30, 20, 40, 1, 0, 0.9], [50, 50, 20, 20, 1, 0.1, 0]]
)


@pytest.mark.parametrize("head", [AnchorHead, MaskHead])
def test_they_are_those_of_what_is_found_before_they_are_cut_to_the_image(head):
    coefficients, prototypes = np.ones((3, 4), np.float32), np.ones((4, 25, 25), np.float32)
    decoded = ROWS
    if head is MaskHead:
        decoded = MaskRows(np.hstack((ROWS, coefficients)), prototypes)
    made = head.without_network(2)
    assert made.compared_boxes(decoded, KEEP_ALL).tolist() == [[40, 10, 60, 50], [-10, 40, 30, 60]]
    found = made.finish(decoded, PLACEMENT, KEEP_ALL)
    assert found.boxes_xyxy.tolist() == [[40, 0, 60, 25], [0, 15, 30, 35]]
