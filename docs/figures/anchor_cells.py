"""A target on the grid: the cells and anchors that must predict it, as `anchor/assign.py` says."""

from __future__ import annotations

import numpy as np

from docs.figures.drawing import Figure
from duet.models.graph import read_model_yaml
from duet.models.heads.anchor.assign import Assignment, assign_targets
from duet.models.heads.anchor.head import anchors_in_cells
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.data.loading.batch import Targets
from duet.utils.project import PROJECT

WORDS = {
    "en": ("Which cells and which anchors must predict a target",
           "stride 16: three cells", "sides within ×4 are used"),
    "zh": ("由哪些网格单元、哪些锚框预测一个目标",
           "步长 16：三个网格单元", "边长比小于 4 才使用"),
}  # fmt: skip
IMAGE = 640  # pixels
STRIDES = (8, 16, 32)
TARGET_XYWH = 291.0, 218.0, 58.0, 92.0  # pixels
SHOWN, CELL = 1, 32  # the level on the grid, units of a cell
COLUMNS, ROWS = 7, 8  # cells that are seen
LEFT, TOP = 8, 40


def draw(language: str) -> Figure:
    title, grid_title, anchors_title = WORDS[language]
    figure = Figure(TOP + ROWS * CELL + 20, title, language)
    anchors = read_model_yaml(PROJECT / "models" / "yolov5n.yaml").document["anchors"]
    limit = read_hyperparameters(DEFAULT_HYPERPARAMETERS).anchor_t
    box = np.array([TARGET_XYWH], np.float32) / IMAGE
    targets = Targets(np.zeros(1, np.int64), np.zeros(1, np.int64), box)
    grids = [(IMAGE // value, IMAGE // value) for value in STRIDES]
    found = assign_targets(targets, anchors_in_cells(anchors, STRIDES), grids, limit)
    figure.text(LEFT, 24, grid_title, "bold")
    _draw_grid(figure, found[SHOWN])
    figure.text(252, 24, anchors_title, "bold")
    for level, (sides, assignment) in enumerate(zip(anchors, found, strict=True)):
        top = TOP + 6 + level * 88
        figure.text(246, top + 34, f"/{STRIDES[level]}", "bold")
        used = set(assignment.anchor_index.tolist())
        _draw_anchors(figure, np.reshape(sides, (3, 2)), used, top)
    return figure


def _draw_grid(figure: Figure, found: Assignment) -> None:
    stride = STRIDES[SHOWN]
    x, y, width, height = (value / stride for value in TARGET_XYWH)
    first_column, first_row = int(x) - COLUMNS // 2, int(y) - ROWS // 2

    def at(column: float, row: float) -> tuple[float, float]:
        return LEFT + (column - first_column) * CELL, TOP + (row - first_row) * CELL

    for row, column in sorted(set(zip(found.row.tolist(), found.column.tolist(), strict=True))):
        figure.rectangle(*at(column, row), CELL, CELL, "t-blue strong")
    for column in range(COLUMNS + 1):
        x_line = LEFT + column * CELL
        figure.line([(x_line, TOP), (x_line, TOP + ROWS * CELL)], "stroke thin s-line")
    for row in range(ROWS + 1):
        y_line = TOP + row * CELL
        figure.line([(LEFT, y_line), (LEFT + COLUMNS * CELL, y_line)], "stroke thin s-line")
    corner = at(x - width / 2, y - height / 2)
    figure.rectangle(*corner, width * CELL, height * CELL, "stroke wide s-orange")
    figure.dot(*at(x, y), 5, "f-orange")


def _draw_anchors(figure: Figure, sides_wh: np.ndarray, used: set[int], top: float) -> None:
    """Draw the anchors of a level over the target, which is dashed; all in one scale."""
    target_wh = np.array(TARGET_XYWH[2:])
    scale = 60 / max(sides_wh.max(), target_wh.max())
    for index, anchor_wh in enumerate(sides_wh):
        middle = 306 + 70 * index
        ratio = target_wh / anchor_wh
        worst = float(np.maximum(ratio, 1 / ratio).max())
        hue = "blue" if index in used else "line"
        for side_wh, style in (
            (anchor_wh, f"t-{hue} s-{hue} two"),
            (target_wh, "stroke s-orange dashed"),
        ):
            width, height = side_wh * scale
            figure.rectangle(middle - width / 2, top + 30 - height / 2, width, height, style)
        style = "middle bold f-blue" if index in used else "middle f-soft"
        figure.text(middle, top + 78, f"×{worst:.1f}", style)
