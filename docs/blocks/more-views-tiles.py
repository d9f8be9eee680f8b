# --8<-- [start:page]
# Runs without a framework.
import numpy as np

from duet.utils.evaluation.joining import AGREEMENT, join_views
from duet.utils.evaluation.nms import suppress_overlapping
from duet.utils.geometry.detections import Detections, SuppressionSettings
from duet.utils.geometry.tiling import Tiling


def found(*rows):
    """Detections of one view: left, top, right, bottom, score; its pixels."""
    table = np.array(rows, np.float32).reshape(-1, 5)
    return Detections(
        table[:, :4], table[:, 4], np.zeros(len(table), np.int64)
    )


corners = Tiling(640).corners((640, 1152))
tiles = [(left, top, left + 640, top + 640) for top, left in corners]
print("tiles, from left to right:", [(tile[0], tile[2]) for tile in tiles])

# A bus from x = 400 to x = 800, which no tile shows whole, and its wheel.
views = [
    found([400, 200, 640, 400, 0.85], [540, 350, 580, 390, 0.75]),
    found(
        [0, 200, 800 - 512, 400, 0.80], [540 - 512, 350, 580 - 512, 390, 0.70]
    ),
]
regions = np.array(tiles)
settings = SuppressionSettings()

shifts = np.tile(
    regions[:, :2], 2
)  # of each tile, for left and top, right and bottom
boxes = np.concatenate(
    [one.boxes_xyxy + shift for one, shift in zip(views, shifts, strict=True)]
)
scores = np.concatenate([one.scores for one in views])
everything = Detections(
    boxes.astype(np.float32), scores, np.zeros(len(scores), np.int64)
)
for name, joined in (
    ("NMS alone", suppress_overlapping(everything, settings)),
    ("joined", join_views(views, regions, settings)),
):
    print(name)
    for box, score in zip(joined.boxes_xyxy, joined.scores, strict=True):
        print(f"  {score:.2f}", box.tolist())
# --8<-- [end:page]

common = [max(tile[0] for tile in tiles), min(tile[2] for tile in tiles)]
values = {
    "common_left": common[0],
    "common_right": common[1],
    "agreement": AGREEMENT,
    "overlap": f"{Tiling.overlap:.0%}",
}
