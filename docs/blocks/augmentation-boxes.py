# --8<-- [start:page]
# Runs without a framework.
import numpy as np

from duet.utils.data.augment.geometry import Warp, warp_boxes, worth_keeping
from duet.utils.geometry.boxes import clip_boxes

warp = Warp(angle=10, zoom=1.2)
size = 256, 256  # (height, width) of canvas and output
before = np.array(
    [[96, 96, 160, 160], [220, 100, 250, 130], [4, 4, 30, 30]], float
)
warped = warp_boxes(before, warp.matrix(size, size))
after = clip_boxes(warped, size)
kept = worth_keeping(before * warp.zoom, after)
for old, new, stays in zip(before, after, kept, strict=True):
    moved = f"{old.astype(int).tolist()} -> {new.round(1).tolist()}"
    print(f"{moved}, kept: {bool(stays)}")
# --8<-- [end:page]

middle = after[0]
values = {
    "width_before": 64,
    "width_after": round(float(middle[2] - middle[0]), 1),
}
