"""Test-time augmentation gives the stored predictions, and what it does can be reckoned."""

import numpy as np
import pytest

from backend import autograd, ops
from models.heads.anchor.head import AnchorHead
from models.heads.base import Pass, brought_back, used_levels
from models.inference.predictors import Augmented, view
from tests.golden_models import drawn_input, drawn_model, info, stored
from tests.presence_head import PresenceHead
from utils.errors import UserError

# Float32 sums of a whole network in another order, relative to the largest value; 2e-6 was
# measured for OneFlow.
NETWORK_TOLERANCE = 2e-5
PASSES = AnchorHead.passes


def all_rows(predictor, images):
    with autograd.no_grad():
        return np.stack(predictor.decode_above(predictor(ops.tensor(images)), 0.0))


def assert_near(found, wanted):
    assert found.dtype == np.float32 and found.shape == wanted.shape
    for columns in (np.s_[..., :4], np.s_[..., 4:]):  # pixels, then scores
        largest = np.abs(wanted[columns]).max()
        np.testing.assert_allclose(
            found[columns], wanted[columns], rtol=0, atol=NETWORK_TOLERANCE * largest
        )


@pytest.mark.parametrize("name", ["tta_p5", "tta_p6"])
def test_predictions_are_the_stored_ones(name):
    case = info("inference")[name]
    folder = "hub/" if name == "tta_p6" else ""
    model = Augmented(drawn_model(folder + case["yaml"], case["gain"]))
    found = all_rows(model, drawn_input(case["input"]))
    assert found.shape[1] == case["rows"]
    assert_near(found, stored(f"inference/{name}")["decoded"])


@pytest.mark.parametrize("name", ["s0.83_gs32", "s0.67_gs64"])
def test_a_scaled_image_is_the_stored_one(name):
    scale, stride = name[1:].split("_gs")
    images = ops.tensor(drawn_input([1, 3, 96, 128]))
    found = ops.to_numpy(view(images, Pass(float(scale), False, None), int(stride)))
    # Two interpolations of numbers below 1, each place rounded.
    np.testing.assert_allclose(found[:, :1], stored("inference/scale_image")[name], atol=2e-6)


def test_a_mirrored_image_is_padded_on_the_right():
    pixels = np.zeros((1, 3, 4, 8), np.float32)
    pixels[..., 0] = 1  # the left column
    seen = ops.to_numpy(view(ops.tensor(pixels), Pass(0.83, True, None), 8))
    assert seen.shape == (1, 3, 8, 8)  # 3.3 and 6.6 px, up to 8
    # The centre of the last of six columns is at 5.5 * 8 / 6 - 0.5 = 6.83, between 0 and 1.
    np.testing.assert_allclose(seen[0, 0, :3, 5], 5 / 6, rtol=1e-5)
    np.testing.assert_allclose(seen[0, 0, :3, :5], 0, atol=1e-5)
    np.testing.assert_allclose(seen[0, 0, 0, 6:], 0.447)


def test_boxes_return_to_where_they_were_seen():
    # In an image 100 px wide, a box around (30, 40), 20 by 10 px, half as large and mirrored.
    seen = np.float32([[(100 - 30) / 2, 20, 10, 5, 0.9, 0.8]])
    found = brought_back(seen, Pass(0.5, True, None), 100)
    np.testing.assert_allclose(found, [[30, 40, 20, 10, 0.9, 0.8]], rtol=1e-6)
    assert found.dtype == np.float32
    np.testing.assert_allclose(seen[0, :4], [35, 20, 10, 5])  # as it was


@pytest.mark.parametrize("strides", [(8, 16, 32), (32, 16, 8), (8, 16, 32, 64), (4, 8)])
def test_the_largest_view_lacks_the_coarsest_map_and_the_smallest_the_finest(strides):
    largest, middle, smallest = (
        [strides[level] for level in used_levels(one, strides)] for one in PASSES
    )
    assert set(strides) - set(largest) == {max(strides)}
    assert middle == list(strides)
    assert set(strides) - set(smallest) == {min(strides)}


def test_a_head_without_boxes_is_refused():
    class Present:
        head, stride = PresenceHead(5, 8, 8), 8
        fixed_size, takes_arrays = None, False

    with pytest.raises(UserError, match="--augment: models to presence cannot join .*leave it out"):
        Augmented(Present())
