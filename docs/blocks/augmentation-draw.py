# --8<-- [start:page]
# Runs without a framework.
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    read_hyperparameters,
)
from duet.utils.data.augment.sample import draw_augmentation
from duet.utils.data.randomness import sample_generator

strengths = read_hyperparameters(DEFAULT_HYPERPARAMETERS).augmentation()


def draw(epoch, index, strengths=strengths):
    return draw_augmentation(
        strengths, sample_generator(0, epoch, index), index, num_samples=4
    )


def show(title, drawn):
    x, y = drawn.mosaic_centre_xy
    hue, saturation, value = drawn.hsv_gains
    print(title)
    print(f"  tiles {drawn.tiles}, centre ({x:.2f}, {y:.2f})", end="")
    print(f", zoom {drawn.warp.zoom:.2f}")
    print(f"  colours x ({hue:.2f}, {saturation:.2f}, {value:.2f})", end="")
    print(f", flip {drawn.flip_left_right}")


first = draw(epoch=11, index=2)
show("photograph 2, epoch 11", first)
show("photograph 2, epoch 11, drawn again", draw(epoch=11, index=2))
show("photograph 2, epoch 12", draw(epoch=12, index=2))
# --8<-- [end:page]

values = {
    "zoom": round(first.warp.zoom, 2),
    "saturation": round(first.hsv_gains[1], 2),
}
