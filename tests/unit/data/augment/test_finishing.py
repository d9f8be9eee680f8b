"""Mixup against stored results of the public implementation, and arithmetic."""

import numpy as np
import pytest

from duet.utils.data.augment.sample import draw_ratio, mix
from duet.utils.data.image.decoding import LabelledImage
from duet.utils.data.randomness import sample_generator
from duet.utils.geometry.boxes import cxcywh_to_xyxy
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
