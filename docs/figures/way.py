"""How an image becomes a loss, and how an operation finds its framework: boxes that are links.

It is part of a page, so that its links work and can be reached by the keyboard. They are those of
a page beside the folder `tutorials`.
"""

from typing import NamedTuple

from docs.figures.drawing import Figure


class Stop(NamedTuple):
    """A box: what happens in a file, what comes out of it, and the page that tells more."""

    en: str
    zh: str
    result: str
    path: str
    page: str


WORDS = {
    "en": ("Two ways through the code, step by step; each box is a link to its page",
           "An image becomes a loss", "An operation finds its framework"),
    "zh": ("代码里的两条路径，逐步展示；每个方框都链接到对应页面",
           "图像怎样变成损失", "一个算子怎样找到它的框架"),
}  # fmt: skip
LOSS_STOPS = (
    Stop("read, decode", "读取、解码", "(H, W, 3) uint8", "utils/data/sources/samples.py",
         "tutorials/02-data"),
    Stop("augment", "数据增强", "+ (M, 4)", "utils/data/augment/sample.py",
         "tutorials/05-augmentation"),
    Stop("batch", "组成批次", "(B, 3, H, W) uint8", "utils/data/loading/loader.py",
         "tutorials/06-shapes-of-images"),
    Stop("step", "训练一步", "float", "models/training/step.py", "tutorials/04-one-step"),
    Stop("layers", "逐层计算", "P3, P4, P5", "models/detector.py", "tutorials/01-architecture"),
    Stop("head", "检测头", "(B, A, H, W, 5 + C)", "models/heads/anchor/head.py",
         "tutorials/01-architecture"),
    Stop("assign targets", "分配正样本", "(P,)", "models/heads/anchor/assign.py",
         "tutorials/04-one-step"),
    Stop("loss", "损失", "box + obj + cls", "models/heads/anchor/loss.py", "tutorials/07-iou"),
)  # fmt: skip
OPERATION_STOPS = (
    Stop("call", "调用", "ops.clamp(x, low=0.0)", "models/heads/anchor/boxes.py",
         "tutorials/07-iou"),
    Stop("name", "名字", "backend.ops", "backend/__init__.py", "architecture"),
    Stop("choose once", "只选一次", "torch | oneflow", "backend/select.py", "architecture"),
    Stop("the framework's", "框架的实现", "oneflow.clamp", "backend/oneflow/ops.py", "oneflow"),
    Stop("promise", "约定", "Ops", "backend/contract/training.py", "add-an-operation"),
    Stop("proof", "检验", "NumPy", "tests/conformance", "add-an-operation"),
)  # fmt: skip
LEFT, BOX_WIDTH, BOX_HEIGHT, ROW, HEADING = 4, 472, 48, 60, 40


def draw_way(language: str) -> Figure:
    title, *headings = WORDS[language]
    ways = (LOSS_STOPS, "blue"), (OPERATION_STOPS, "orange")
    height = sum(HEADING + ROW * len(stops) for stops, _ in ways)
    figure = Figure(height, language, title)
    top = 0
    for heading, (stops, hue) in zip(headings, ways, strict=True):
        figure.text(LEFT, top + 26, heading, "bold", size=18)
        top += HEADING
        for number, stop in enumerate(stops):
            if number:
                middle = LEFT + BOX_WIDTH / 2
                figure.arrow([(middle, top - ROW + BOX_HEIGHT), (middle, top)], "stroke", hue)
            _draw_stop(figure, stop, number + 1, top, hue)
            top += ROW
    return figure


def _draw_stop(figure: Figure, stop: Stop, number: int, top: float, hue: str) -> None:
    name = getattr(stop, figure.language)
    figure.raw(f'<a href="{stop.page}.html">')  # its words are its name
    figure.rectangle(LEFT, top, BOX_WIDTH, BOX_HEIGHT, "paper", 6)
    figure.rectangle(LEFT, top, BOX_WIDTH, BOX_HEIGHT, f"t-{hue} s-{hue} two", 6)
    figure.text(LEFT + 10, top + 20, f"{number}  {name}", "bold")
    figure.text(LEFT + BOX_WIDTH - 10, top + 20, stop.result, "end code")
    figure.text(LEFT + 10, top + 40, stop.path, "code f-soft")
    figure.raw("</a>")
