"""A target on the grid: the cells and anchors that must predict it, as `anchor/assign.py` says."""

import numpy as np

from docs.figures.drawing import WIDTH, Figure
from docs.figures.pictures import on_picture, photograph
from duet.models.graph import read_model_yaml
from duet.models.heads.anchor.assign import Assignment, assign_targets
from duet.models.heads.anchor.head import anchors_in_cells
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.data.loading.batch import Targets
from duet.utils.project import PROJECT

WORDS = {
    "en": ("stride 32: three cells predict the cup", "anchors, and their worst side ratio",
           "stride"),
    "zh": ("步长 32：三个单元预测杯子", "锚框，较大的边长比", "步长"),
}  # fmt: skip
SIDE = 320  # pixels, the long side of the image in the input
STRIDES = (8, 16, 32)
SHOWN = 2  # the level on the grid
SCALE = WIDTH / SIDE
TOP, BELOW, ROW = 32, 44, 84


def draw_anchor_cells(language: str) -> Figure:
    grid_title, anchors_title, stride_word = WORDS[language]
    photo = photograph("cup.jpg")
    scale = SIDE / photo.size[1]
    box = photo.objects.boxes_xyxy[0] * scale
    target_wh = box[2:] - box[:2]
    anchors = read_model_yaml(PROJECT / "models" / "yolov5n.yaml").document["anchors"]
    limit = read_hyperparameters(DEFAULT_HYPERPARAMETERS).anchor_t
    centre_and_sides = np.concatenate([(box[:2] + box[2:]) / 2, target_wh])[None] / SIDE
    targets = Targets(np.zeros(1, np.int64), np.zeros(1, np.int64), np.float32(centre_and_sides))
    grids = [(SIDE // value, SIDE // value) for value in STRIDES]
    found = assign_targets(targets, anchors_in_cells(anchors, STRIDES), grids, limit)
    tall = photo.size[0] * scale
    below = TOP + tall * SCALE + BELOW
    figure = Figure(below + ROW + 32, language)
    figure.text(0, 22, grid_title, "bold")
    figure.image(photo.decode(), 0, TOP, WIDTH, tall * SCALE)
    _draw_grid(figure, found[SHOWN], tall)
    on_picture(figure, box, 1, (0, TOP), SCALE)
    x, y = (box[:2] + box[2:]) / 2 * SCALE + [0, TOP]
    figure.dot(x, y, 6, "stroke halo")
    figure.dot(x, y, 5, "light")
    figure.text(0, below - 12, f"{anchors_title} (< {limit:g})", "bold")
    for level, (sides, assignment) in enumerate(zip(anchors, found, strict=True)):
        used = set(assignment.anchor_index.tolist())
        left = level * WIDTH / 3
        _draw_anchors(figure, np.reshape(sides, (3, 2)), target_wh, used, (left, below))
        figure.text(left + 75, below + ROW + 24, f"{stride_word} {STRIDES[level]}", "middle f-soft")
    return figure


def _draw_grid(figure: Figure, found: Assignment, tall: float) -> None:
    """Draw the cells over the image, those that predict the target filled."""
    cell = STRIDES[SHOWN] * SCALE
    bottom = TOP + tall * SCALE
    for row, column in sorted(set(zip(found.row.tolist(), found.column.tolist(), strict=True))):
        figure.rectangle(column * cell, TOP + row * cell, cell, cell, "f-blue strong")
    for number in range(1, SIDE // STRIDES[SHOWN]):
        figure.line([(number * cell, TOP), (number * cell, bottom)], "stroke thin light-line")
        if number * cell < tall * SCALE:
            y = TOP + number * cell
            figure.line([(0, y), (WIDTH, y)], "stroke thin light-line")


def _draw_anchors(
    figure: Figure,
    sides_wh: np.ndarray,
    target_wh: np.ndarray,
    used: set[int],
    at: tuple[float, float],
) -> None:
    """Draw the anchors of a level over the target, which is dashed; all in one scale."""
    scale = 44 / max(sides_wh.max(), target_wh.max())
    for index, anchor_wh in enumerate(sides_wh):
        middle = at[0] + 26 + 49 * index
        ratio = target_wh / anchor_wh
        worst = float(np.maximum(ratio, 1 / ratio).max())
        hue = "blue" if index in used else "line"
        for side_wh, style in (
            (anchor_wh, f"t-{hue} s-{hue} two"),
            (target_wh, "stroke s-orange dashed"),
        ):
            width, height = side_wh * scale
            y = at[1] + 32 - height / 2
            figure.rectangle(middle - width / 2, y, width, height, style)
        style = "middle bold f-blue" if index in used else "middle f-soft"
        figure.text(middle, at[1] + 82, f"×{worst:.1f}", style)
