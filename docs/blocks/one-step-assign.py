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
positives = sum(len(level.row) for level in levels)
# --8<-- [start:written]


def assign(boxes, anchors, height, width, limit=4.0):
    """Rows (anchor, row, column, target) of a level; units are cells."""
    found = []
    for target, (x, y, w, h) in enumerate(boxes):
        cells = [(int(y), int(x))]
        if x % 1 < 0.5 and x > 1:
            cells.append((int(y), int(x) - 1))
        if y % 1 < 0.5 and y > 1:
            cells.append((int(y) - 1, int(x)))
        if x % 1 > 0.5 and width - x > 1:
            cells.append((int(y), int(x) + 1))
        if y % 1 > 0.5 and height - y > 1:
            cells.append((int(y) + 1, int(x)))
        for anchor, (aw, ah) in enumerate(anchors):
            if max(w / aw, aw / w, h / ah, ah / h) < limit:
                found += [(anchor, *cell, target) for cell in cells]
    return found


# 300 objects anywhere, of 4 to 300 px.
random = np.random.default_rng(0)
centres = random.uniform(0.01, 0.99, (300, 2))
sides = np.exp(random.uniform(np.log(4), np.log(300), (300, 2))) / SIDE
many = np.concatenate([centres, sides], axis=1).astype(np.float32)
index = np.arange(300)
several = Targets(0 * index, 0 * index, many)
levels = assign_targets(several, anchors, grids, max_side_ratio=4.0)
for level, sizes, (height, width) in zip(levels, anchors, grids, strict=True):
    cells = many * np.float32([width, height, width, height])
    ours = set(zip(level.anchor_index, level.row, level.column, strict=True))
    plain = assign(cells, sizes.astype(np.float32), height, width)
    assert len(plain) == len(level.row)
    assert {row[:3] for row in plain} == ours
print([len(level.row) for level in levels], "positives, as Duet's")
# --8<-- [end:written]

values = {
    "positives": positives,
    "cells": sum(3 * height * width for height, width in grids),
}
