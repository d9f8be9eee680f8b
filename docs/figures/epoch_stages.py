"""Where the time of an epoch goes, by results.csv of a run on each backend.

The seconds are in docs/stage-times.json, with the command and the machine.
"""

from __future__ import annotations

from docs.figures.drawing import Figure
from duet.utils.files.json_files import read_json
from duet.utils.project import PROJECT
from duet.utils.report.stage_timer import STAGES

WORDS = {
    "en": ("Seconds of each stage of one epoch on each backend, on a CPU", "seconds",
           ("data", "to device", "forward", "loss", "backward", "optimizer", "EMA", "validation",
            "other")),
    "zh": ("两个后端在 CPU 上一个轮次各阶段的秒数", "秒",
           ("数据", "拷到设备", "前向", "损失", "反向", "优化器", "EMA", "验证", "其他")),
}  # fmt: skip
TITLES = {"torch": "PyTorch", "oneflow": "OneFlow"}
HUE = {"torch": "blue", "oneflow": "orange"}
LEFT, BAR, ROW, TOP = 96, 13, 38, 66
LONGEST = 300  # units
STAGE_TIMES = PROJECT / "docs" / "stage-times.json"


def measured() -> dict[str, dict[str, float]]:
    """Return seconds by backend and stage, and "epoch"."""
    return read_json(STAGE_TIMES)["seconds"]


def draw(language: str) -> Figure:
    title, unit, labels = WORDS[language]
    found = measured()
    rows = [
        {**seconds, "other": seconds["epoch"] - sum(seconds[stage] for stage in STAGES)}
        for seconds in found.values()
    ]
    stages = (*STAGES, "other")
    scale = LONGEST / max(seconds[stage] for seconds in rows for stage in stages)
    figure = Figure(TOP + ROW * len(stages) + 4, title, language)
    x = 8.0
    for name, seconds in found.items():
        figure.rectangle(x, 12, 14, 14, f"f-{HUE[name]}")
        figure.text(x + 20, 24, f"{TITLES[name]}  {seconds['epoch']:.1f} s", "bold")
        x += 180
    figure.text(472, 50, unit, "end f-soft")
    for row, (stage, label) in enumerate(zip(stages, labels, strict=True)):
        y = TOP + ROW * row
        figure.text(LEFT - 8, y + 19, label, "end")
        for place, (name, seconds) in enumerate(zip(found, rows, strict=True)):
            top, width = y + place * (BAR + 2), seconds[stage] * scale
            figure.rectangle(LEFT, top, max(width, 1), BAR, f"f-{HUE[name]}")
            figure.text(LEFT + width + 6, top + 12, f"{seconds[stage]:.2f}")
    return figure
