"""A ring all-reduce of four ranks step by step: how many ranks each part is the sum of."""

import numpy as np

from docs.figures.drawing import Figure, Point

WORDS = {
    "en": ("start", "add up", "hand out", "column: rank", "row: part", "a rank sends"),
    "zh": ("起始", "累加", "分发", "列：rank", "行：分块", "每个 rank 发送"),
}
RANKS = 4
CELL, PANEL, ROW_HEIGHT, TOP = 25, 119, 176, 50


def states() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return after each step how many ranks each part sums, and which parts have just come.

    Both are (part, rank). In step s rank r sends part r - s to its right neighbour, which adds it
    to its own; in the second half part r + 1 - s, which replaces the neighbour's.
    """
    sums = np.ones((RANKS, RANKS), np.int64)
    found = [(sums.copy(), np.zeros_like(sums, bool))]
    for step in range(2 * (RANKS - 1)):
        adds, turn = step < RANKS - 1, step % (RANKS - 1)
        received, before = np.zeros_like(sums, bool), sums.copy()
        for rank in range(RANKS):
            part, right = (rank - turn + (not adds)) % RANKS, (rank + 1) % RANKS
            sums[part, right] = before[part, rank] + (before[part, right] if adds else 0)
            received[part, right] = True
        found.append((sums.copy(), received))
    return found


def draw_ring(language: str) -> Figure:
    start, add_up, hand_out, columns, rows, cost = WORDS[language]
    figure = Figure(TOP + 2 * ROW_HEIGHT - 22, language)
    for step, (sums, received) in enumerate(states()):
        row, column = (0, step) if step < RANKS else (1, step - RANKS + 1)
        x, y = 8 + column * PANEL, TOP + row * ROW_HEIGHT
        word = start if step == 0 else add_up if step < RANKS else hand_out
        figure.text(x, y - 28, f"{step} {word}" if step else word, "bold")
        _draw_state(figure, sums, received, (x, y))
    x, y = 8, TOP + ROW_HEIGHT
    per_rank = 2 * (RANKS - 1) / RANKS
    lines = columns, rows, cost, "2 M (N − 1) / N", f"N = {RANKS}: {per_rank:g} M"
    for line, text in enumerate(lines):
        style = "f-soft" if line < 2 else "" if line == 2 else "bold"
        figure.text(x, y - 28 + 29 * line, text, style)
    return figure


def _draw_state(figure: Figure, sums: np.ndarray, received: np.ndarray, at: Point) -> None:
    x, y = at
    for rank in range(RANKS):
        figure.text(x + CELL * (rank + 0.5), y - 6, str(rank), "middle f-soft")
        for part in range(RANKS):
            left, top = x + CELL * rank, y + CELL * part
            complete = sums[part, rank] == RANKS
            hue = "green" if complete else "blue" if sums[part, rank] > 1 else "line"
            figure.rectangle(left, top, CELL, CELL, f"t-{hue} s-line")
            style = "middle bold" if received[part, rank] else "middle"
            figure.text(left + CELL / 2, top + 18, str(sums[part, rank]), style)
            if received[part, rank]:
                figure.rectangle(left + 2, top + 2, CELL - 4, CELL - 4, f"stroke s-{hue}")
