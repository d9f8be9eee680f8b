# Runs without a framework.
import numpy as np

from duet.utils.detections import Detections, GroundTruth

# Two images with objects of one class: left, top, right, bottom in pixels.
objects = [
    [[10, 10, 50, 50], [34, 10, 74, 50]],
    [[20, 20, 80, 80], [100, 10, 140, 50]],
]
# What a model found in them, each with its score.
found = [
    [[12, 10, 52, 50, 0.90], [21, 10, 61, 50, 0.80], [10, 90, 40, 120, 0.60]],
    [[100, 70, 130, 90, 0.75], [24, 26, 84, 86, 0.70], [20, 20, 78, 76, 0.50]],
]


def truth_of(image):
    boxes = np.array(objects[image], np.float32)
    return GroundTruth(np.zeros(len(boxes), np.int64), boxes)


def detections_of(image):
    rows = np.array(found[image], np.float32)
    return Detections(rows[:, :4], rows[:, 4], np.zeros(len(rows), np.int64))
