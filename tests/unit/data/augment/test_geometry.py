"""The random warp against stored images and boxes of the public implementation, and arithmetic."""

import numpy as np
import pytest

from benchmarks.paste_and_warp import warp_image
from duet.utils.data.augment.geometry import Warp, warp_boxes, worth_keeping
from tests.environments import shared_path

# The draws behind the stored results. They are not stored: they were recovered by a
# least-squares fit of all boxes that touch no border, and lie inside the options' ranges.
RECOVERED = {
    "rp0": Warp(zoom=0.78242615161, centre_xy=(0.425674473642, 0.469677849612)),
    "rp1": Warp(
        angle=-6.679262671294,
        zoom=1.082766697983,
        shear_xy=(0.779387634517, 1.901329196964),
        centre_xy=(0.510611900636, 0.476708812312),
    ),
    "rp2": Warp(
        angle=-2.249866649891,
        zoom=0.501779328939,
        shear_xy=(0.946046729655, 0.706637628836),
        centre_xy=(0.656871831851, 0.334775530274),
        perspective_xy=(1.39426778729e-4, -4.74989377287e-4),
    ),
    "rp3": Warp(zoom=0.962532262937, centre_xy=(0.490637849194, 0.499654441010)),
}
# The fit leaves 3e-5 pixels: the stored boxes are float32 of up to 640.
BOX_PIXELS = 1e-4


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(shared_path("golden/images/augment.npz")) as arrays:
        return dict(arrays)


def warped_boxes(stored, name):
    """Return all boxes under a recovered warp, clipped, and which of them are kept."""
    warp, boxes = RECOVERED[name], stored["rp_targets"][:, 1:].astype(np.float64)
    height, width = stored[f"{name}_im"].shape[:2]
    matrix = warp.matrix(stored["rp_im"].shape[:2], (height, width))
    found = warp_boxes(boxes, matrix).clip(0, [width, height, width, height])
    return found, worth_keeping(boxes * warp.zoom, found), matrix


@pytest.mark.parametrize("name", RECOVERED)
def test_warped_boxes_and_selection_match_stored_values(stored, name):
    found, keep, _ = warped_boxes(stored, name)
    expected = stored[f"{name}_t"]
    np.testing.assert_array_equal(stored["rp_targets"][keep, 0], expected[:, 0])
    np.testing.assert_allclose(found[keep], expected[:, 1:], rtol=0, atol=BOX_PIXELS)
    # One of the four crops the image to a quarter, as after a mosaic, and loses boxes by it.
    assert keep.sum() == (9 if name == "rp3" else 12)


@pytest.mark.parametrize("name", RECOVERED)
def test_warped_pixels_match_stored_values(stored, name):
    _, _, matrix = warped_boxes(stored, name)
    expected = stored[f"{name}_im"].astype(int)
    found = warp_image(stored["rp_im"], matrix, expected.shape[:2])
    difference = np.abs(found - expected)
    # The stored pixels come from OpenCV 5.0, which rounds the weights of the warp differently from
    # 4.11: measured, at most 4 grey values, in at most 7.6 % of the values. A shift by a fiftieth
    # of a pixel would make it 8 and more.
    assert difference.max() <= 4
    assert (difference > 0).mean() < 0.08


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ([0, 0, 2.0, 50], False),  # sides must exceed 2 pixels
        ([0, 0, 2.1, 50], True),
        ([0, 0, 50, 2.0], False),
        ([0, 0, 10, 10], False),  # exactly a tenth of the area is too little
        ([0, 0, 10.1, 10], True),
        ([0, 0, 300, 3], False),  # an aspect ratio of 100 is too much
        ([0, 0, 299, 3], True),
        ([0, 0, 3, 300], False),
        ([0, 0, 3, 299], True),
        ([5, 5, 5, 5], False),
    ],
)
def test_selection_keeps_boxes_up_to_its_limits(after, kept):
    before = np.array([[0.0, 0.0, 50.0, 20.0]])
    assert worth_keeping(before, np.array([after], np.float64)).tolist() == [kept]
