"""The sizes that --multi-scale draws, and the batches that come of them."""

import json
from collections import Counter

import numpy as np
import pytest

from duet.backend import ops
from duet.models.training.multi_scale import MultiScale
from duet.utils.errors import UserError
from tests.environments import shared_path


@pytest.fixture(scope="module")
def golden():
    return json.loads(shared_path("golden/recipe/info.json").read_text())["multi_scale"]


def test_multi_scale_sizes_and_shapes_match_public_values(golden):
    assert len(golden) == 21
    for case in golden:
        scale = MultiScale(case["imgsz"], case["grid"], seed=0)
        assert scale.sizes() == case["sizes"]
        for text, expected in case["batch_shape_after"].items():
            size_hw = tuple(map(int, text.split("x")))
            assert [list(scale.shape(size_hw, size)) for size in case["sizes"]] == expected
            assert list(scale.largest((5, 3, *size_hw))) == [5, 3, *max(expected)]


def test_multi_scale_frequencies_match_public_weights(golden):
    for case in golden[::4]:
        scale, draws = MultiScale(case["imgsz"], case["grid"], seed=9), 3000
        found = Counter(scale.draw(number) for number in range(draws))
        weights = np.array(case["weights"]) / sum(case["weights"])
        assert found.keys() == set(case["sizes"])
        parts = np.array([found[size] for size in case["sizes"]]) / draws
        # Five standard deviations.
        assert (np.abs(parts - weights) < 5 * np.sqrt(weights * (1 - weights) / draws)).all()


def test_multi_scale_size_depends_only_on_seed_and_batch():
    first, other = (MultiScale(640, 32, seed) for seed in (0, 1))
    drawn = [first.draw(number) for number in range(40)]
    assert drawn == [MultiScale(640, 32, 0).draw(number) for number in range(40)]
    assert drawn != [other.draw(number) for number in range(40)]
    assert first.draw(2**40) in first.sizes()


def test_multi_scale_resizes_linearly():
    scale = MultiScale(64, 32, seed=0)
    numbers = {scale.draw(number): number for number in range(50)}
    # Along each row the values are those of the pixels' centres, in 64ths of the width.
    row = (np.arange(64, dtype=np.float32) + 0.5) / 64
    images = ops.tensor(np.broadcast_to(row, (2, 3, 64, 64)).copy())
    for size in (32, 96):
        found = ops.to_numpy(scale.resize(images, numbers[size]))
        assert found.shape == (2, 3, size, size)
        centres = (np.arange(size) + 0.5) / size
        inside = slice(1, -1)  # outermost centres lie beyond those of the old pixels
        expected = np.broadcast_to(centres[inside], found[..., inside].shape)
        np.testing.assert_allclose(found[..., inside], expected, atol=1e-6)  # float32
    assert scale.resize(images, numbers[64]) is images


def test_rank_without_images_gets_the_drawn_size():
    scale = MultiScale(64, 32, seed=0)
    number = next(number for number in range(50) if scale.draw(number) == 96)
    nothing = ops.tensor(np.zeros((0, 3, 64, 32), np.float32))
    assert tuple(scale.resize(nothing, number).shape) == (0, 3, 96, 64)


@pytest.mark.parametrize(
    ("size", "stride", "fitting"), [(64, 32, 128), (96, 32, 128), (32, 8, 128), (192, 64, 256)]
)
def test_sizes_of_one_cell_are_refused(size, stride, fitting):
    message = f"--multi-scale with --img {size} .* stride {stride}; use --img {fitting} or more"
    with pytest.raises(UserError, match=message):
        MultiScale.of_model(size, stride, 0)
    assert MultiScale.of_model(fitting, stride, 0).sizes()[0] >= 2 * stride
    assert MultiScale.of_model(64, 8, 0).sizes() == [32, 64, 96]  # a fine stride: the public grid
