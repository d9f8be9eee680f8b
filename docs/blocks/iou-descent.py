# Runs on torch and oneflow.
# Numbers agree to 1e-2.
from duet import backend

backend.use()
import numpy as np

from docs.figures.convergence import STEPS, TARGET, paths
from docs.figures.iou_family import values as measures

print(f"IoU after 0, {STEPS // 2} and {STEPS} steps")
for name, path in paths().items():  # of each measure, (STEPS + 1, 4): the box after each step
    boxes = path[[0, STEPS // 2, STEPS]]
    found = measures(boxes, np.repeat(TARGET[None], 3, axis=0))["IoU"]
    print(f"{name}: " + ", ".join(f"{value:.2f}" for value in found))
