"""The layers of YOLOv5n, as `models/graph.py` plans them of models/yolov5n.yaml."""

from collections.abc import Mapping, Sequence

from docs.figures.drawing import Figure
from duet.models.blocks.registry import LayerPlan
from duet.models.graph import ModelSpec, plan_layers, read_model_yaml
from duet.utils.files.model_yamls import scale_depth
from duet.utils.project import PROJECT

WORDS = {
    "en": ("backbone", "neck, up", "neck, down", "stride"),
    "zh": ("主干网络", "颈部：放大", "颈部：缩小", "步长"),
}
SHORT = {"nn.Upsample": "Upsample"}
ROW, BOX, TOP = 33, 26, 62
COLUMN_WIDTH = 113
COLUMNS = (60, 192, 324)  # left edges
HEAD_LEFT, HEAD_WIDTH = 452, 22


def draw_network(language: str) -> Figure:
    backbone, up, down, stride = WORDS[language]
    spec = read_model_yaml(PROJECT / "models" / "yolov5n.yaml")
    plans = plan_layers(spec)
    layers = range(len(plans) - 1)  # all but the head
    columns = _columns(spec, plans)
    rows, bands = _rows(plans, columns)
    bottom = TOP + ROW * sum(count for _, count in bands)
    figure = Figure(bottom + 34, language)
    for x, label in zip(COLUMNS, (backbone, up, down), strict=True):
        figure.text(x + COLUMN_WIDTH / 2, 24, label, "middle bold")
    _draw_bands(figure, bands, stride)
    for index in layers:
        for source in spec.layers[index].sources:
            if source >= 0:
                _connect(figure, columns, rows, source, index)
    _draw_head(figure, spec.layers[-1].sources, columns, rows, bottom)
    for index in layers:
        layer, plan = spec.layers[index], plans[index]
        repeats = scale_depth(layer.number, spec.depth_multiple)
        name = SHORT.get(layer.block, layer.block) + (f" ×{repeats}" if repeats > 1 else "")
        x, y = COLUMNS[columns[index]], rows[index]
        hue = _hue(layer.block)
        figure.rectangle(x, y, COLUMN_WIDTH, BOX, "paper", 4)
        figure.rectangle(x, y, COLUMN_WIDTH, BOX, f"t-{hue} s-{hue}", 4)
        figure.text(x + 5, y + 18, str(index), "f-soft", size=15)
        figure.text(x + 26, y + 18, name)
        if layer.block != "nn.Upsample":
            figure.text(x + COLUMN_WIDTH - 5, y + 18, str(plan.out_channels), "end f-soft")
    return figure


def _columns(spec: ModelSpec, plans: Sequence[LayerPlan]) -> list[int]:
    """Return the column of each layer but the head: 0 backbone, 1 the way up, 2 the way down."""
    num_backbone = len(spec.document["backbone"])
    last_upsample = max(i for i, layer in enumerate(spec.layers) if layer.block == "nn.Upsample")
    first_down = next(
        i for i in range(last_upsample, len(plans)) if plans[i].stride > plans[i - 1].stride
    )
    return [0 if i < num_backbone else 1 if i < first_down else 2 for i in range(len(plans) - 1)]


def _rows(
    plans: Sequence[LayerPlan], columns: Sequence[int]
) -> tuple[dict[int, float], list[tuple[int, int]]]:
    """Return the top of each layer's box, and the bands (stride, rows) from above."""
    strides = sorted({plan.stride for plan in plans[:-1]})
    rows, bands, begin = {}, [], 0
    for stride in strides:
        members = [
            [i for i, c in enumerate(columns) if c == column and plans[i].stride == stride]
            for column in range(3)
        ]
        count = max(map(len, members))
        for column, found in enumerate(members):
            ordered = found[::-1] if column == 1 else found
            shift = (count - len(found)) if column == 1 else 0
            for place, index in enumerate(ordered):
                rows[index] = TOP + ROW * (begin + shift + place) + (ROW - BOX) / 2
        bands.append((stride, count))
        begin += count
    return rows, bands


def _draw_bands(figure: Figure, bands: list[tuple[int, int]], stride: str) -> None:
    figure.text(4, TOP - 8, stride, "f-soft")
    top = TOP
    for number, (value, count) in enumerate(bands):
        height = ROW * count
        if number % 2 == 0:
            figure.rectangle(0, top, figure.width, height, "t-line")
        figure.text(8, top + height / 2 + 5, f"/{value}", "bold")
        top += height


def _connect(
    figure: Figure, columns: Sequence[int], rows: Mapping[int, float], source: int, index: int
) -> None:
    """Draw the arrow from a layer to the one that takes it."""
    from_left, to_left = COLUMNS[columns[source]], COLUMNS[columns[index]]
    from_y, to_y = rows[source] + BOX / 2, rows[index] + BOX / 2
    if columns[source] == columns[index]:
        middle = from_left + COLUMN_WIDTH / 2
        down = to_y > from_y
        edge = BOX / 2 if down else -BOX / 2
        figure.line([(middle, from_y + edge), (middle, to_y - edge)], "stroke s-soft")
    else:
        right = from_left + COLUMN_WIDTH
        next_layer = index == source + 1
        points = [(right, from_y), (to_left, to_y)]
        figure.arrow(points, "stroke", "ink" if next_layer else "purple")


def _draw_head(
    figure: Figure,
    sources: Sequence[int],
    columns: Sequence[int],
    rows: Mapping[int, float],
    bottom: float,
) -> None:
    tops = [rows[source] for source in sources]
    figure.rectangle(HEAD_LEFT, min(tops) - 6, HEAD_WIDTH, bottom - min(tops) + 4, "t-red s-red", 4)
    middle = HEAD_LEFT + HEAD_WIDTH / 2
    figure.text(HEAD_LEFT + HEAD_WIDTH, bottom + 20, "24 Detect", "end bold")
    for source, top in zip(sources, tops, strict=True):
        right = COLUMNS[columns[source]] + COLUMN_WIDTH
        figure.arrow([(right, top + BOX / 2), (HEAD_LEFT, top + BOX / 2)], "stroke", "red")
    figure.line([(middle, bottom - 2), (middle, bottom + 4)], "stroke s-red")


def _hue(block: str) -> str:
    return {"Conv": "blue", "C3": "green", "SPPF": "orange"}.get(block, "line")
