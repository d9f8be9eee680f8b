"""The sizes that --multi-scale draws for the first batches of a run, of the real draws."""

from __future__ import annotations

from docs.figures.drawing import Axes, Figure
from duet.models.training.multi_scale import MultiScale

WORDS = {
    "en": (
        "The size of each of the first 40 batches with --multi-scale and --img 640",
        "pixels, long side",
        "batch",
    ),
    "zh": ("使用 --multi-scale 与 --img 640 时前 40 个批次的尺寸", "长边像素", "批次"),
}
IMAGE_SIZE, STRIDE, SEED, BATCHES = 640, 32, 0, 40


def draw(language: str) -> Figure:
    title, pixels, batch = WORDS[language]
    scale = MultiScale.of_model(IMAGE_SIZE, STRIDE, SEED)
    sizes = scale.sizes()
    figure = Figure(270, title, language)
    axes = Axes(figure, (48, 36, 420, 180), (-0.5, BATCHES - 0.5), (0, 1100))
    figure.text(8, 20, f"{pixels}  {sizes[0]} … {sizes[-1]}", "bold")
    ticks = [(float(value), str(value)) for value in (0, sizes[0], IMAGE_SIZE, sizes[-1])]
    axes.frame([(float(x), str(x)) for x in range(0, BATCHES, 10)], ticks)
    for number in range(BATCHES):
        size = scale.draw(number)
        left, top = axes.at(number - 0.35, size)
        right, bottom = axes.at(number + 0.35, 0)
        figure.rectangle(left, top, right - left, bottom - top, "f-blue")
    axes.curve((-0.5, BATCHES - 0.5), (IMAGE_SIZE, IMAGE_SIZE), "s-orange dashed")
    figure.text(468, 262, batch, "end bold")
    return figure
