# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
import numpy as np

from duet.models.graph import read_model_yaml
from duet.models.heads.anchor.assign import assign_targets
from duet.utils.data.loading.batch import Targets

SIDE, STRIDES = 320, (8, 16, 32)
pixels = np.array(
    read_model_yaml("models/yolov5n.yaml").document["anchors"]
).reshape(3, 3, 2)

# One image with one object: 66 x 33 px, its centre at (150, 98).
box = np.array([[150, 98, 66, 33]], np.float32) / SIDE
targets = Targets(np.array([0]), np.array([2]), box)

anchors = pixels / np.reshape(STRIDES, (3, 1, 1))  # in cells of each level
grids = [(SIDE // stride, SIDE // stride) for stride in STRIDES]
levels = assign_targets(targets, anchors, grids, max_side_ratio=4.0)

for stride, level, sizes in zip(STRIDES, levels, pixels, strict=True):
    print(f"stride {stride}: {len(level.row)} positives")
    for row, column, anchor, target in zip(
        level.row,
        level.column,
        level.anchor_index,
        level.boxes_cxcywh,
        strict=True,
    ):
        width, height = sizes[anchor].astype(int)
        x, y = target[:2]
        print(
            f"  cell ({column}, {row}), anchor {width} x {height},", end=" "
        )
        print(f"centre {x:+.2f} {y:+.2f}")
# --8<-- [end:page]

values = {
    "positives": sum(len(level.row) for level in levels),
    "cells": sum(3 * height * width for height, width in grids),
}
