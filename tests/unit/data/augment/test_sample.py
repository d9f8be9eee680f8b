"""Augmentation: the draws, their effect on image and boxes, and --albumentations."""

import dataclasses
import hashlib

import numpy as np
import pytest

from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.augment import sample as augment_module
from duet.utils.data.augment.geometry import Warp
from duet.utils.data.augment.sample import (
    Augmentation,
    MixedScene,
    change_hsv,
    draw_augmentation,
    mix,
)
from duet.utils.data.augment.transforms import transform
from duet.utils.data.image.decoding import LabelledImage, SourceImage
from duet.utils.data.randomness import sample_generator
from duet.utils.errors import UserError
from duet.utils.geometry.boxes import cxcywh_to_xyxy
from duet.utils.strengths import AugmentConfig
from tests.environments import shared_path

GREY = 114
NOTHING = Augmentation((0,), (1.0, 1.0), Warp(), (1.0, 1.0, 1.0), False, False)


def plain_image(value: int, size: tuple[int, int], boxes=((0, 0, 1, 1),)) -> LabelledImage:
    """Return an image of one colour; boxes are fractions (left, top, right, bottom)."""
    height, width = size
    pixels = np.array(boxes, np.float64).reshape(-1, 4) * [width, height, width, height]
    image = np.full((*size, 3), value, np.uint8)
    return LabelledImage(image, np.full(len(pixels), value, np.int64), pixels)


def augment(draw: Augmentation, items: list[LabelledImage], image_size: int) -> LabelledImage:
    """Augment images that are in memory already."""
    sources = [
        SourceImage(item.size, item.objects, item.size, lambda item=item: item.image)
        for item in items
    ]
    return augment_module.augment(draw, sources, image_size)


def draws(config: AugmentConfig, number: int) -> list[Augmentation]:
    return [
        draw_augmentation(config, sample_generator(5, 2, index), index, 100)
        for index in range(number)
    ]


def test_hsv_matches_stored_pixels():
    with np.load(shared_path("golden/images/augment.npz")) as stored:
        # The gains behind them are not stored, only their limits: they were recovered as the
        # draws of NumPy's generator from these two seeds, and then every pixel is equal.
        for name, seed in (("hsv0", 60), ("hsv1", 61)):
            draw = np.random.RandomState(seed).uniform(-1, 1, 3)
            gains = tuple((1 + draw * stored[f"{name}_gains"]).tolist())
            found = change_hsv(stored["rp_im"], gains)
            np.testing.assert_array_equal(found, stored[f"{name}_im"])
        assert stored["hsv2_gains"].tolist() == [0, 0, 0]
        found = change_hsv(stored["rp_im"], (1.0, 1.0, 1.0))
        np.testing.assert_array_equal(found, stored["hsv2_im"])


def test_mixup_adds_the_other_scene_with_its_objects():
    first, second = plain_image(200, (64, 64)), plain_image(100, (64, 64), [(0, 0, 0.5, 1)])
    mixed = MixedScene((1,), (1.0, 1.0), Warp(centre_xy=(1.0, 0.5)), ratio=0.25)
    found = augment(dataclasses.replace(NOTHING, mixed=mixed), [first, second], 64)
    # The second image lies half a side to the right, with grey on its left.
    assert (found.image[:, :32] == int(200 * 0.25 + GREY * 0.75)).all()
    assert (found.image[:, 32:] == int(200 * 0.25 + 100 * 0.75)).all()
    assert found.class_index.tolist() == [200, 100]
    np.testing.assert_allclose(found.boxes_xyxy, [[0, 0, 64, 64], [32, 0, 64, 64]])


def test_mosaic_only_settings_without_mosaic_are_reported():
    config = AugmentConfig(mixup=0.1, flipud=1)
    assert config.without_effect() == ("mixup",)
    assert dataclasses.replace(config, mosaic=0.1).without_effect() == ()
    assert AugmentConfig(flipud=1).without_effect() == ()


NOISE = (np.random.Generator(np.random.Philox(0)).random((64, 64, 3)) * 255).astype(np.uint8)


def item(image=NOISE) -> LabelledImage:
    return LabelledImage(image.copy(), np.array([3]), np.array([[8.0, 8, 40, 32]]))


def test_bare_albumentations_flag_uses_public_probability():
    assert parse_train_flags([]).albumentations == 0
    assert parse_train_flags(["--albumentations"]).albumentations == 0.01
    assert parse_train_flags(["--albumentations", "0.2"]).albumentations == 0.2
    for wrong in ("mine.yaml", "1.5"):
        with pytest.raises(UserError, match=f"--albumentations.*{wrong}"):
            parse_train_flags(["--albumentations", wrong])


@pytest.mark.parametrize(("p", "lowest", "highest"), [(0, 0, 0), (1, 200, 200), (0.25, 112, 162)])
def test_p_is_the_probability_of_each_transform(p, lowest, highest):
    """Of 200 samples, 1 - 0.75**4 change: 137, with a standard deviation of 6.6."""
    done = sum((transform(item(), p, seed).image != NOISE).any() for seed in range(200))
    assert lowest <= done <= highest


def test_transform_is_deterministic_and_keeps_boxes():
    first = [transform(item(), 0.5, seed) for seed in range(20)]
    second = [transform(item(), 0.5, seed) for seed in reversed(range(20))][::-1]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.image, other.image)
        np.testing.assert_array_equal(one.boxes_xyxy, item().boxes_xyxy)
    assert len({one.image.tobytes() for one in first}) > 10
    digest = hashlib.sha256(b"".join(one.image.tobytes() for one in first)).hexdigest()
    assert digest[:12] == "2a5f73b53039"  # stored


def stored(name: str) -> dict[str, np.ndarray]:
    with np.load(shared_path(f"golden/recipe/{name}.npz")) as arrays:
        return dict(arrays)


def labelled(image: np.ndarray, labels: np.ndarray) -> LabelledImage:
    """Return an image with labels (M, 5): class, and box as fractions cxcywh."""
    height, width = image.shape[:2]
    boxes = cxcywh_to_xyxy(labels[:, 1:].astype(np.float64)) * [width, height, width, height]
    return LabelledImage(image, labels[:, 0].astype(np.int64), boxes)


@pytest.mark.parametrize("case", ["c0", "c1", "c2"])
def test_mixup_matches_stored_pixels_and_labels(case):
    arrays = stored("mixup")
    first, second = (labelled(arrays[f"image_{x}"], arrays[f"labels_{x}"]) for x in ("a", "b"))
    found = mix(first, second, float(arrays[f"{case}_ratio"]))
    np.testing.assert_array_equal(found.image, arrays[f"{case}_image"])
    expected = labelled(found.image, arrays[f"{case}_labels"])
    np.testing.assert_array_equal(found.class_index, expected.class_index)
    np.testing.assert_array_equal(found.boxes_xyxy, expected.boxes_xyxy)
