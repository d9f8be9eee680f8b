# Runs without a framework.
import dataclasses

from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    read_hyperparameters,
)
from duet.utils.data.augment.sample import draw_augmentation
from duet.utils.data.randomness import sample_generator

mild = read_hyperparameters(DEFAULT_HYPERPARAMETERS).augmentation()
turned = dataclasses.replace(mild, degrees=10.0)
drawn = [
    draw_augmentation(
        strengths, sample_generator(0, 0, 64), 64, num_samples=400
    )
    for strengths in (mild, turned)
]
for name, one in zip(("degrees 0", "degrees 10"), drawn, strict=True):
    gains = ", ".join(f"{gain:.2f}" for gain in one.hsv_gains)
    angle, zoom = one.warp.angle, one.warp.zoom
    print(f"{name}: angle {angle:+.2f}, zoom {zoom:.2f}, colours ({gains})")
