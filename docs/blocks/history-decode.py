# --8<-- [start:page]
# Runs without a framework.
import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def yolov2_to_v4(t, cell, anchor, stride):
    centre = (sigmoid(t[:2]) + cell) * stride
    return [*centre, *(anchor * np.exp(t[2:4]))]


def yolov5(t, cell, anchor, stride):
    centre = (2 * sigmoid(t[:2]) - 0.5 + cell) * stride
    return [*centre, *(anchor * (2 * sigmoid(t[2:4])) ** 2)]


def yolov8(logits, cell, stride):
    """logits (4, 16): of the distances to left, top, right, bottom."""
    parts = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    left, top, right, bottom = parts @ np.arange(16)
    x, y = cell + 0.5
    corners = np.array([x - left, y - top, x + right, y + bottom])
    low, high = corners[:2] * stride, corners[2:] * stride
    return [*((low + high) / 2), *(high - low)]


cell, anchor, stride = np.array([10, 6]), np.array([30, 61]), 16
for logit in (-4, 0, 4, 8):
    t = np.full(4, float(logit))
    old = yolov2_to_v4(t, cell, anchor, stride)
    new = yolov5(t, cell, anchor, stride)
    print(
        f"logits {logit:2}: v2 to v4 {old[0]:5.1f} {old[2]:8.1f} px wide,",
        f"v5 {new[0]:5.1f} {new[2]:6.1f} px wide",
    )
peak = np.where(np.arange(16) == 3, 8.0, 0.0)
box = np.round(yolov8(np.stack([peak] * 4), cell, stride), 1)
print("v8, each edge about 3 cells away:", box.tolist())
# --8<-- [end:page]
