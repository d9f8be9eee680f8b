# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
import numpy as np

from duet.backend import ops
from duet.models.heads.anchor.boxes import complete_iou
from duet.models.heads.distribution.assign import (
    assign_cells,
    find_candidates,
)
from duet.utils.data.loading.batch import Targets

SIDE, STRIDES, CLASSES = 320, (8, 16, 32), 3
grids = [(SIDE // stride, SIDE // stride) for stride in STRIDES]

# One image with one object of class 2: 66 x 33 px, centred at (150, 98).
box = np.array([150, 98, 66, 33], np.float32)
targets = Targets(np.array([0]), np.array([2]), box[None] / SIDE)
found = find_candidates(targets, grids, STRIDES, "float32")
print(found.num_pairs, "cells have their centre inside the object")

# Made-up predictions: boxes and class scores get worse with distance from the object.
centres = np.concatenate(
    [
        (
            np.stack(np.meshgrid(np.arange(w), np.arange(h)), -1).reshape(
                -1, 2
            )
            + 0.5
        )
        * stride
        for (h, w), stride in zip(grids, STRIDES, strict=True)
    ]
).astype(np.float32)
offset = (centres - box[:2]) / 4
boxes = np.concatenate(
    [box[:2] + offset, np.tile(box[2:], (len(centres), 1))], axis=1
)
rows = np.zeros((len(centres), 64 + CLASSES), np.float32)
rows[:, 64 + 2] = 1 - np.abs(offset).sum(axis=1) / 4

chosen = assign_cells(
    found, ops.tensor(boxes), ops.tensor(rows), complete_iou
)
cells, scores = ops.to_numpy(chosen.cell), ops.to_numpy(chosen.scores)
order = np.lexsort(
    (cells, -scores.round(2))
)  # the order of ties differs by framework
for cell, score in zip(cells[order], scores[order], strict=True):
    x, y = centres[cell]
    print(
        f"cell centred at ({x:g}, {y:g}): target score {score:.2f} for class 2"
    )
# --8<-- [end:page]

values = {"candidates": found.num_pairs, "positives": int((scores > 0).sum())}
