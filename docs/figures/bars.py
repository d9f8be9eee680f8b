"""Bar charts: of tables of the pages, and of docs/stage-times.json, which has its command."""

from collections.abc import Sequence

import numpy as np

from docs.figures.drawing import LETTERS, WIDTH, Axes, Figure, number, text_width
from duet.utils.files.json_files import read_json
from duet.utils.project import PROJECT
from duet.utils.report.results import STAGES

PER_EPOCH = {
    "en": "seconds per epoch, two cores of an AMD EPYC",
    "zh": "每轮的秒数，AMD EPYC 的两个核",
}
PER_IMAGE = {"en": "ms per image", "zh": "每张图像的毫秒数"}
SECONDS = {"en": "seconds", "zh": "秒"}
STAGE_NAMES = {
    "en": ("data", "to device", "forward", "loss", "backward", "optimizer", "EMA", "validation",
           "other"),
    "zh": ("数据", "拷到设备", "前向", "损失", "反向", "优化器", "EMA", "验证", "其他"),
}  # fmt: skip
BAR, GAP, BELOW, ABOVE = 20, 14, 44, 30
HUES = ("blue", "orange", "green")
Row = tuple[str, Sequence[float]]  # label, and a value per bar


def table_below(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading of docs/en, without its first lines."""
    text = (PROJECT / "docs" / "en" / page).read_text(encoding="utf-8")
    lines = text[text.index(f"# {heading}\n") :].splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def bars(language: str, unit: str, names: Sequence[str], rows: Sequence[Row]) -> Figure:
    """Draw a group of bars per row.

    names: of the bars of a group, for the legend.
    """
    left = max(text_width(label) for label, _ in rows) + 12
    tall = len(names) * BAR + GAP
    height = ABOVE + tall * len(rows) + BELOW
    figure = Figure(height, language)
    largest = max(value for _, values in rows for value in values)
    area = (left, ABOVE, WIDTH - left - 44, tall * len(rows))
    axes = Axes(figure, area, (0, largest), (0, 1))
    x = left
    for name, hue in zip(names, HUES, strict=False):
        figure.rectangle(x, 4, 14, 14, f"f-{hue}")
        figure.text(x + 20, 16, name)
        x += 36 + text_width(name)
    for place, (label, values) in enumerate(rows):
        top = ABOVE + place * tall + GAP / 2
        figure.text(left - 8, top + (tall - GAP + LETTERS) / 2 - 3, label, "end")
        for turn, value in enumerate(values):
            end, _ = axes.at(value, 0)
            y = top + turn * BAR
            figure.rectangle(left, y, end - left, BAR - 3, f"f-{HUES[turn]}")
            figure.text(end + 6, y + LETTERS - 1, number(value), "f-soft")
    figure.line([(left, ABOVE), (left, ABOVE + tall * len(rows))], "stroke thin s-line")
    figure.text(WIDTH, height - 12, unit, "end f-soft")
    return figure


def draw_beside_yolov5(language: str) -> Figure:
    """Seconds of an epoch beside YOLOv5 7.0, means of the rounds."""
    rows = []
    for name, ours, theirs, *_ in table_below("measurements.md", "Beside the public YOLOv5"):
        means = [
            round(np.mean([float(one) for one in cell.split(", ")]), 1) for cell in (ours, theirs)
        ]
        precision = "float32" if "float32" in name else "bfloat16"
        rows.append((f"YOLOv5{name[0]}, {precision}", means))
    return bars(language, PER_EPOCH[language], ("Duet", "YOLOv5 7.0, float32"), rows)


def draw_epoch_stages(language: str) -> Figure:
    """Where the time of an epoch goes, by results.csv of a run on each backend."""
    found = read_json(PROJECT / "docs" / "stage-times.json")["seconds"]
    for seconds in found.values():
        seconds["other"] = seconds["epoch"] - sum(seconds[stage] for stage in STAGES)
    rows = [
        (label, [seconds[stage] for seconds in found.values()])
        for stage, label in zip((*STAGES, "other"), STAGE_NAMES[language], strict=True)
    ]
    titles = {"torch": "PyTorch", "oneflow": "OneFlow"}
    names = [f"{titles[name]} {seconds['epoch']:.1f} s" for name, seconds in found.items()]
    return bars(language, SECONDS[language], names, rows)


def draw_export_times(language: str) -> Figure:
    """Milliseconds per image of all sizes and formats."""
    table = table_below("export.md", "All sizes")
    rows = [(name, [float(value) for value in values]) for name, *values in table]
    return bars(language, PER_IMAGE[language], ("PyTorch", "ONNX", "ONNX, INT8"), rows)
