"""Learning rate, warm-up and EMA over a run.

They are those of `models/training/optimizer.py`.
"""

import numpy as np

from docs.figures.drawing import Axes, Figure
from duet.models.training.optimizer import Schedule, decay_after
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters

WORDS = {
    "en": ("learning rate", "linear", "cosine", "warm-up", "biases", "weights",
           "batches an update", "EMA decay", "epoch", "updates"),
    "zh": ("学习率", "线性", "余弦", "预热", "偏置", "权重", "每次更新的批次数", "EMA 衰减系数",
           "轮次", "更新次数"),
}  # fmt: skip
EPOCHS, BATCHES, BATCH_SIZE = 100, 100, 16
WARM_EPOCHS = 5
AREA_LEFT, AREA_WIDTH, AREA_HEIGHT = 56, 412, 120
TOPS = (40, 234, 428)


def schedule(cosine: bool) -> Schedule:
    """Return the schedule of the figure's run."""
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    return Schedule(hyp, EPOCHS, BATCHES, BATCH_SIZE, cosine)


def draw_learning_rate(language: str) -> Figure:
    rate, linear, cosine, warm, biases, weights, accumulate, decay, epoch, updates = WORDS[language]
    figure = Figure(596, language)
    _draw_run(figure, rate, (linear, cosine), epoch)
    _draw_warm_up(figure, warm, (biases, weights, accumulate), epoch)
    _draw_decay(figure, decay, updates)
    return figure


def _axes(figure: Figure, place: int, x_end: float, y_end: float, label: str, unit: str) -> Axes:
    top = TOPS[place]
    figure.text(8, top - 14, label, "bold")
    figure.text(468, top + AREA_HEIGHT + 36, unit, "end f-soft")
    return Axes(figure, (AREA_LEFT, top, AREA_WIDTH, AREA_HEIGHT), (0, x_end), (0, y_end))


def _draw_run(figure: Figure, label: str, names: tuple[str, str], unit: str) -> None:
    axes = _axes(figure, 0, EPOCHS, 0.0104, label, unit)
    axes.frame(range(0, EPOCHS + 1, 25), (0, 0.005, 0.01))
    for name, is_cosine, hue, at in zip(names, (False, True), ("blue", "orange"),
                                        ((24, 0.0058), (52, 0.0074)), strict=True):  # fmt: skip
        batches = range(0, EPOCHS * BATCHES, 50)
        rates = [schedule(is_cosine).at(batch).weight_rate for batch in batches]
        axes.curve([batch / BATCHES for batch in batches], rates, f"s-{hue}")
        figure.text(*axes.at(*at), name, f"f-{hue} bold")


def _draw_warm_up(figure: Figure, label: str, names: tuple[str, ...], unit: str) -> None:
    axes = _axes(figure, 1, WARM_EPOCHS, 0.104, label, unit)
    axes.frame(range(WARM_EPOCHS + 1), (0, 0.05, 0.1))
    batches = range(0, WARM_EPOCHS * BATCHES, 5)
    settings = [schedule(False).at(batch) for batch in batches]
    epochs = [batch / BATCHES for batch in batches]
    most = max(one.accumulate for one in settings)
    for name, hue, values, at in zip(
        names,
        ("blue", "orange", "green"),
        ([one.bias_rate for one in settings], [one.weight_rate for one in settings],
         [0.1 * one.accumulate / most for one in settings]),
        ((0.55, 0.088), (0.7, 0.018), (2.62, 0.072)),
        strict=True,
    ):  # fmt: skip
        axes.curve(epochs, values, f"s-{hue}")
        more = f" 1–{most}" if hue == "green" else ""
        figure.text(*axes.at(*at), name + more, f"f-{hue} bold")


def _draw_decay(figure: Figure, label: str, unit: str) -> None:
    axes = _axes(figure, 2, 10_000, 1.04, label, unit)
    axes.frame((0, 2_500, 5_000, 7_500), (0, 0.5, 1))
    steps = np.arange(0, 10_001, 100)
    axes.curve(steps, [decay_after(int(step)) for step in steps], "s-purple wide")
