"""From weights to files of other programs: what is made of what, as the table of formats says."""

from docs.figures.drawing import Figure
from duet.utils.export.formats import FORMATS, GRAPH, TRACE

WORDS = {
    "en": ("weights", "the model runs once", "under backend/onnx", "under PyTorch", "files",
           "compared with the model, then named"),
    "zh": ("权重", "模型运行一次", "backend/onnx 后端", "PyTorch 后端", "文件",
           "与原模型比对通过后才命名"),
}  # fmt: skip
HUE = {GRAPH: "blue", TRACE: "orange"}
MIDDLE = {GRAPH: 122.0, TRACE: 362.0}  # of the column
BOX_WIDTH, BOX_HEIGHT, ROW = 200, 34, 46


def draw_export_path(language: str) -> Figure:
    weights, runs, under_onnx, under_torch, files, checked = WORDS[language]
    rows = {source: [row.title for row in FORMATS if row.source == source] for source in HUE}
    first = 250
    bottom = first + ROW * max(map(len, rows.values()))
    figure = Figure(bottom + 62, language)
    _box(figure, 242, 12, weights, "line", 150)
    figure.text(242, 86, runs, "middle f-soft")
    for source, under in ((GRAPH, under_onnx), (TRACE, under_torch)):
        middle, hue = MIDDLE[source], HUE[source]
        figure.line([(242, 46), (242, 62), (middle, 62), (middle, 96)], f"stroke s-{hue}")
        figure.text(middle, 116, under, "middle")
        figure.arrow([(middle, 124), (middle, 146)], "stroke", hue)
        _box(figure, middle, 146, source, hue)
        figure.arrow([(middle, 180), (middle, first - 18)], "stroke", hue)
        for place, name in enumerate(rows[source]):
            _box(figure, middle, first + ROW * place - 10, name, hue, BOX_WIDTH - 40, "dashed")
    figure.text(242, first - 30, files, "middle f-soft")
    _box(figure, 242, bottom + 8, checked, "green", 400)
    return figure


def _box(
    figure: Figure, middle: float, top: float, label: str, hue: str, width: float = BOX_WIDTH,
    more: str = "",
) -> None:  # fmt: skip
    figure.rectangle(middle - width / 2, top, width, BOX_HEIGHT, f"t-{hue} s-{hue} two {more}", 6)
    figure.text(middle, top + 22, label, "middle bold")
