"""Mixup and cutout against stored results of the public implementation, and arithmetic."""

import numpy as np
import pytest

from duet.utils.boxes import cxcywh_to_xyxy
from duet.utils.data.augment.sample import DRAWS_A_HOLE, NUM_CUTOUT_DRAWS, cut_out, draw_ratio, mix
from duet.utils.data.image.decoding import LabelledImage
from duet.utils.data.randomness import sample_generator
from tests.shared_files import shared_path


def stored(name: str) -> dict[str, np.ndarray]:
    with np.load(shared_path(f"golden/recipe/{name}.npz")) as arrays:
        return dict(arrays)


def labelled(image: np.ndarray, labels: np.ndarray) -> LabelledImage:
    """Return an image with labels (M, 5): class, and box as fractions cxcywh."""
    height, width = image.shape[:2]
    boxes = cxcywh_to_xyxy(labels[:, 1:].astype(np.float64)) * [width, height, width, height]
    return LabelledImage(image, labels[:, 0].astype(np.int64), boxes)


@pytest.mark.parametrize("case", ["c0", "c1", "c2"])
def test_mixup_agrees_with_the_stored_pixels_and_labels(case):
    arrays = stored("mixup")
    first, second = (labelled(arrays[f"image_{x}"], arrays[f"labels_{x}"]) for x in ("a", "b"))
    found = mix(first, second, float(arrays[f"{case}_ratio"]))
    np.testing.assert_array_equal(found.image, arrays[f"{case}_image"])
    expected = labelled(found.image, arrays[f"{case}_labels"])
    np.testing.assert_array_equal(found.class_index, expected.class_index)
    np.testing.assert_array_equal(found.boxes_xyxy, expected.boxes_xyxy)


def test_ratios_are_those_of_the_public_beta_distribution():
    ratios = np.array([draw_ratio(sample_generator(0, 0, index)) for index in range(4000)])
    first, second = stored("mixup")["beta_parameters"]
    total = first + second
    deviation = np.sqrt(first * second / (total**2 * (total + 1)))  # 0.062
    # Mean and deviation of 4000 draws deviate by 0.001 and 0.0007; 5 times that.
    assert abs(ratios.mean() - first / total) < 0.005
    assert abs(ratios.std() - deviation) < 0.0035


@pytest.mark.parametrize("case", [f"c{number}" for number in range(6)])
def test_cutout_agrees_with_the_stored_pixels_and_labels(case):
    arrays = stored("cutout")
    low, high, value = arrays[f"{case}_draws_low_high_value"].T
    draws = (value - low + 0.5) / (high - low + 1)  # the middle of what gives this number
    found = cut_out(labelled(arrays["image"], arrays["labels"]), draws.tolist())
    np.testing.assert_array_equal(found.image, arrays[f"{case}_image"])
    expected = labelled(found.image, arrays[f"{case}_labels"])
    np.testing.assert_array_equal(found.class_index, expected.class_index)
    np.testing.assert_array_equal(found.boxes_xyxy, expected.boxes_xyxy)
    # In the last case a hole covers an object.
    assert len(found.class_index) == (3 if case == "c5" else 4)


def one_hole(height: float, width: float, centre_x: float, centre_y: float) -> list[float]:
    """Return draws of one large hole; all others are one pixel in a corner."""
    draws = np.zeros((NUM_CUTOUT_DRAWS // DRAWS_A_HOLE, DRAWS_A_HOLE))
    draws[0] = height, width, centre_x, centre_y, 0.5, 0.5, 0.5
    return draws.ravel().tolist()


def test_an_object_vanishes_where_one_hole_covers_three_fifths_of_it():
    image = np.zeros((100, 100, 3), np.uint8)
    # The hole is 50 high and wide, around (50, 50): from 25 to 75.
    boxes = np.array([[25, 25, 75, 75], [25, 25, 75, 109], [25, 25, 75, 108], [80, 80, 99, 99]])
    item = LabelledImage(image, np.arange(4), boxes.astype(np.float64))
    found = cut_out(item, one_hole(0.999, 0.999, 0.5, 0.5))
    assert (found.image[25:75, 25:75] == 128).all()  # 64 to 191, the middle
    assert found.image[75:].max() == 0
    # 50 of 84 rows are 0.595 of the second box, 50 of 83 are 0.602 of the third.
    assert found.class_index.tolist() == [1, 3]
    assert image.max() == 0  # the given image stays
