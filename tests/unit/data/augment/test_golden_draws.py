"""The draws of today, by field, are those of the version that stored them: runs go on equally."""

import dataclasses
import hashlib
import json

import pytest

from duet.utils.data.augment.class_sample import draw_class_augmentation
from duet.utils.data.augment.sample import draw_augmentation
from duet.utils.data.randomness import Stream, epoch_order, generator_of, sample_generator
from duet.utils.strengths import STRENGTHS, AugmentConfig

# No two strengths are equal, so that none can stand in for another.
CONFIG = AugmentConfig(
    hsv_h=0.1, hsv_s=0.7, hsv_v=0.4, degrees=30, translate=0.15, scale=0.55, shear=10,
    perspective=0.0005, flipud=0.3, fliplr=0.6, mosaic=0.5, mixup=0.45, copy_paste=0.35,
    transforms=0.2,
)  # fmt: skip
# Of 64 samples each. Who adds a draw gives it a stream of its own, and its field a line.
BOXES = {
    "tiles": "269fb5ee8979",
    "mosaic_centre_xy": "74a6149a55fd",
    "warp": "5c405a4fdff2",
    "copy_paste": "1faabe2926a5",
    "hsv_gains": "505b8d7a9161",
    "flip_up_down": "88e95f0b244e",
    "flip_left_right": "f6402f96d1e6",
    "transforms": "50dd1c099173",
    "transforms_seed": "476af3661f37",
    "mixed": "f47ad579b47c",
}
CLASSES = {
    "hsv_gains": "4bb184bbe46e",
    "flip_up_down": "530c21f355e3",
    "flip_left_right": "5c975fdf6554",
    "transforms": "50dd1c099173",
    "transforms_seed": "a25b2bb5427a",
    "index": "ccf91e2b960f",
    "scale": "805e7a01392b",
    "tries": "666afeb98c5f",
}
OTHERS = {
    "drawn order": "b33172feba28",
    "batch": "7b41a28540d4",
    "dropout": "2483de4100c2",
    "anchors": "3ca8657ec69a",
    "order": "c0fc6299d659",
}


def digest(values):
    return hashlib.sha256(json.dumps(values, default=float).encode()).hexdigest()[:12]


def digests(drawn):
    """By field of draws, a digest of all their values."""
    documents = [dataclasses.asdict(one) for one in drawn]
    return {name: digest([one[name] for one in documents]) for name in documents[0]}


def draws_of_boxes(config=CONFIG):
    generators = [sample_generator(1, 2, index) for index in range(64)]
    return [draw_augmentation(config, one, index, 1000) for index, one in enumerate(generators)]


def draws_of_classes(config=CONFIG):
    generators = [sample_generator(1, 2, index) for index in range(64)]
    return [draw_class_augmentation(config, one, index) for index, one in enumerate(generators)]


def test_draws_of_detection_images_match_stored_digests():
    drawn = draws_of_boxes()
    assert sum(one.mixed is not None for one in drawn) == 8
    assert digests(drawn) == BOXES


def test_draws_of_class_images_match_stored_digests():
    assert digests(draws_of_classes()) == CLASSES


def test_draws_of_batches_and_epochs_match_stored_digests():
    generators = {
        "drawn order": generator_of(Stream.DRAWN_ORDER, 1, 2),
        "batch": generator_of(Stream.BATCH, 1, index=2),
        "dropout": generator_of(Stream.DROPOUT, 1, index=2),
        "anchors": generator_of(Stream.ANCHORS, 1),
    }
    found = {name: digest(one.random(64).tolist()) for name, one in generators.items()}
    assert {**found, "order": digest(epoch_order(1, 2, 64).tolist())} == OTHERS


@pytest.mark.parametrize("draw", [draws_of_boxes, draws_of_classes])
def test_strength_does_not_shift_other_draws(draw):
    """With all but one strength at 0, the fields that it does not touch are those of all at 0."""
    nothing = digests(draw(AugmentConfig()))
    for name in STRENGTHS:
        found = digests(draw(AugmentConfig(**{name: getattr(CONFIG, name)})))
        changed = {field for field in found if found[field] != nothing[field]}
        assert len(changed) <= 1 or name == "mosaic", (name, changed)
