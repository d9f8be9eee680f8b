"""Where the time of an epoch goes, by results.csv of a run on each backend.

The seconds are in docs/stage-times.json, with the command and the machine.
"""

from __future__ import annotations

from docs.figures.bars import bars
from docs.figures.drawing import Figure
from duet.utils.files.json_files import read_json
from duet.utils.project import PROJECT
from duet.utils.report.results import STAGES

WORDS = {
    "en": ("Seconds of each stage of one epoch on each backend, on a CPU", "seconds",
           ("data", "to device", "forward", "loss", "backward", "optimizer", "EMA", "validation",
            "other")),
    "zh": ("两个后端在 CPU 上训练一轮各阶段的秒数", "秒",
           ("数据", "拷到设备", "前向", "损失", "反向", "优化器", "EMA", "验证", "其他")),
}  # fmt: skip
TITLES = {"torch": "PyTorch", "oneflow": "OneFlow"}
STAGE_TIMES = PROJECT / "docs" / "stage-times.json"


def draw(language: str) -> Figure:
    title, unit, labels = WORDS[language]
    found = read_json(STAGE_TIMES)["seconds"]
    for seconds in found.values():
        seconds["other"] = seconds["epoch"] - sum(seconds[stage] for stage in STAGES)
    rows = [
        (label, [seconds[stage] for seconds in found.values()])
        for stage, label in zip((*STAGES, "other"), labels, strict=True)
    ]
    names = [f"{TITLES[name]} {seconds['epoch']:.1f} s" for name, seconds in found.items()]
    return bars(title, language, unit, names, rows)
