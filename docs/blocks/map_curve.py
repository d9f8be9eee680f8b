# --8<-- [start:page]
# Runs without a framework.
import numpy as np
from map_example import objects
from map_match import match


def average_precision(threshold, shown=False):
    right = np.array([iou is not None for _, iou in match(threshold)])
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    recall = np.cumsum(right) / sum(map(len, objects))
    best = np.maximum.accumulate(precision[::-1])[::-1]  # at this recall or any higher one
    if shown:
        print("detections  recall  precision  best from here on")
        for number, row in enumerate(zip(recall, precision, best, strict=True), start=1):
            print("{:10}{:8.2f}{:11.2f}{:19.2f}".format(number, *row))
    grid = np.linspace(0, 1, 101)
    reached = np.searchsorted(recall, grid)  # the first detection that reaches each recall
    return np.append(best, 0)[reached].mean()  # 0 beyond the last recall


ap50 = average_precision(0.5, shown=True)
by_threshold = []
for threshold in np.linspace(0.5, 0.95, 10):
    by_threshold.append(average_precision(threshold))
    print(f"AP at IoU {threshold:.2f}: {by_threshold[-1]:.4f}")
print(f"AP50 {ap50:.4f}, AP50-95 {np.mean(by_threshold):.4f}")
# --8<-- [end:page]

values = {"ap50": f"{ap50:.4f}", "ap": f"{np.mean(by_threshold):.4f}"}
