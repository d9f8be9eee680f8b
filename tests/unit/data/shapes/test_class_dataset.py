"""The built-in dataset of classification: complete, repeatable, and shown as it is labelled."""

import cv2
import numpy as np
import pytest

from tests.unit.data.shapes.test_dataset import contents
from utils.data.randomness import sample_generator
from utils.data.shapes.dataset import (
    CLASSES,
    HUES,
    ClassShapesConfig,
    draw_class_dataset,
)
from utils.data.shapes.scene import OUTLINES, draw_one_shape
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split
from utils.errors import DatasetError

SMALL = ClassShapesConfig(num_train=20, num_val=10, image_side=48)


def test_the_set_is_an_ordinary_dataset_of_class_folders(tmp_path, monkeypatch):
    monkeypatch.setattr(draw_class_dataset, "__defaults__", (SMALL,))
    dataset = load_dataset("shapes-cls", image_root=tmp_path)
    assert dataset.name == "shapes-cls"
    assert dataset.class_names == tuple(sorted(each.name for each in CLASSES))
    assert len(dataset.class_names) == 10
    for split, each in (("train", 2), ("val", 1)):
        samples = load_split(dataset, split)
        assert np.bincount(samples.class_index).tolist() == [each] * 10
        assert samples.sizes.min() >= 36 and samples.sizes.max() <= 60
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert load_dataset("shapes-cls", image_root=tmp_path) == dataset
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_the_same_seed_draws_the_same_files(tmp_path):
    for name in ("a", "b"):
        draw_class_dataset(tmp_path / name, SMALL)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    draw_class_dataset(tmp_path / "set", SMALL)
    with pytest.raises(DatasetError, match="it was drawn as"):
        draw_class_dataset(tmp_path / "set")


def test_an_image_shows_a_large_shape_in_the_colours_of_its_class():
    parts = []
    for index in range(40):
        each = CLASSES[index % len(CLASSES)]
        size = 80 + index % 7, 90
        image = draw_one_shape(
            sample_generator(0, 1, index), size, OUTLINES[each.shape], HUES[each.colour]
        )
        assert image.shape == (*size, 3) and image.dtype == np.uint8
        hue, saturation, value = cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2HSV))
        strong = (saturation > 130) & (value > 60)
        # At least 0.4 of the side across, of which a star or a cross fills about a third.
        assert strong.mean() > 0.02
        low, high = HUES[each.colour]
        inside = (hue.astype(int) - low) % 180 <= high - low
        parts.append(inside[strong].mean())
    # What is left are the scribbles of the background, in any colour.
    assert np.mean(parts) > 0.8
