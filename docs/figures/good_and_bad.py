"""Four kinds of runs by their losses; drawn curves that show a shape, not measured ones."""

import numpy as np

from docs.figures.drawing import Axes, Figure

WORDS = {
    "en": (("good", "overfits", "rate too high", "too short"), "training", "validation"),
    "zh": (("正常", "过拟合", "学习率过高", "训练太短"), "训练", "验证"),
}
PANEL_WH = 200, 110
EPOCHS = 60


def curves() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return training and validation losses of each kind."""
    t = np.linspace(0, 1, EPOCHS)
    fall = 0.15 + 0.75 * np.exp(-5 * t)
    wave = np.random.default_rng(4).normal(size=(2, EPOCHS))
    high = 0.72 + 0.1 * wave[0] - 0.1 * t, 0.75 + 0.13 * wave[1]
    slow = 0.9 - 0.45 * t
    rise = 0.22 + 0.7 * np.exp(-6 * t) + 0.45 * np.maximum(t - 0.35, 0)
    return [
        (fall, fall + 0.07 + 0.01 * wave[0]),
        (0.04 + 0.86 * np.exp(-5 * t), rise + 0.008 * wave[1]),
        (high[0], np.clip(high[1], 0, 1)),
        (slow, slow + 0.05 + 0.01 * wave[0]),
    ]


def draw_good_and_bad(language: str) -> Figure:
    names, training, validation = WORDS[language]
    figure = Figure(360, language)
    for x, name, hue in ((36, training, "blue"), (196, validation, "orange")):
        figure.line([(x, 14), (x + 26, 14)], f"stroke wide s-{hue}")
        figure.text(x + 34, 19, name)
    for place, (name, both) in enumerate(zip(names, curves(), strict=True)):
        left, top = 30 + 232 * (place % 2), 60 + 156 * (place // 2)
        figure.text(left, top - 8, name, "bold")
        axes = Axes(figure, (left, top, *PANEL_WH), (0, EPOCHS - 1), (0, 1))
        axes.frame()
        for losses, hue in zip(both, ("blue", "orange"), strict=True):
            axes.curve(range(EPOCHS), losses, f"s-{hue}")
    return figure
