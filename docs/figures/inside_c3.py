"""The inside of C3, of its bottlenecks and of SPPF, as models/blocks builds them."""

from collections.abc import Sequence

from docs.figures.drawing import Figure, Point

WORDS = {
    "en": ("input", "bottlenecks", "bottleneck", "max pool 5", "grey: channels; c: of the layer"),
    "zh": ("输入", "瓶颈块 × n", "瓶颈块", "最大池化 5", "灰字：输出通道数；c：该层的输出通道数"),
}
WIDE, HIGH, ROW, TOP = 96, 42, 58, 42
C3, AROUND, BOTTLENECK, SPPF = 50, 158, 276, 404  # middles of columns
CONV, CONV3 = "Conv 1 × 1", "Conv 3 × 3"


def draw_inside_c3(language: str) -> Figure:
    given, several, bottleneck, pool, channels = WORDS[language]
    figure = Figure(TOP + 6 * ROW + HIGH + 30, language)
    for x, name in ((104, "C3"), (BOTTLENECK, bottleneck), (SPPF, "SPPF")):
        figure.text(x, 24, name, "middle bold")
    figure.text(2, figure.height - 4, channels, "f-soft")

    start, left, right = _at(104, 0), _at(C3, 1), _at(AROUND, 1)
    inside, joined, last = _at(C3, 2), _at(104, 3), _at(104, 4)
    for points in ((start, left, inside, joined, last), (start, right, joined)):
        _arrows(figure, points)
    for at, name, hue, more in (
        (start, given, "line", ""), (left, CONV, "blue", "c / 2"), (right, CONV, "blue", "c / 2"),
        (inside, several, "green", "c / 2"), (joined, "Concat", "line", "c"),
        (last, CONV, "blue", "c"),
    ):  # fmt: skip
        _box(figure, at, name, hue, more)

    steps = [_at(BOTTLENECK, row) for row in range(4)]
    _arrows(figure, steps)
    _around(figure, steps[0], steps[3])
    names, hues = (given, CONV, CONV3, "+"), ("line", "blue", "blue", "line")
    for at, name, hue in zip(steps, names, hues, strict=True):
        _box(figure, at, name, hue, "" if name == given else "c / 2")

    steps = [_at(SPPF, row) for row in range(7)]
    _arrows(figure, steps)
    for row in (1, 2, 3):
        _around(figure, steps[row], steps[5])
    for at, name, hue, more in zip(
        steps,
        (given, CONV, pool, pool, pool, "Concat", CONV),
        ("line", "blue", "orange", "orange", "orange", "line", "blue"),
        ("", *("c / 2",) * 4, "2 c", "c"),
        strict=True,
    ):
        _box(figure, at, name, hue, more)
    return figure


def _at(x: float, row: int) -> Point:
    """Return the middle of a box."""
    return x, TOP + row * ROW + HIGH / 2


def _box(figure: Figure, at: Point, name: str, hue: str, channels: str) -> None:
    left, top = at[0] - WIDE / 2, at[1] - HIGH / 2
    figure.rectangle(left, top, WIDE, HIGH, "paper", 4)
    figure.rectangle(left, top, WIDE, HIGH, f"t-{hue} s-{hue}", 4)
    figure.text(at[0], at[1] + (-2 if channels else 5), name, "middle")
    figure.text(at[0], at[1] + 16, channels, "middle f-soft")


def _arrows(figure: Figure, points: Sequence[Point]) -> None:
    """Draw arrows from the foot of each box to the head of the next."""
    for (x, y), (to_x, to_y) in zip(points, points[1:], strict=False):
        figure.arrow([(x, y + HIGH / 2), (to_x, to_y - HIGH / 2)])


def _around(figure: Figure, start: Point, end: Point) -> None:
    """Draw the way from a box past others into a later one, at their right."""
    edge = start[0] + WIDE / 2
    figure.arrow([(edge, start[1]), (edge + 16, start[1]), (edge + 16, end[1]), (edge, end[1])],
                 hue="purple")  # fmt: skip
