# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
import numpy as np

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.utils.tasks import ClassRows
from duet.utils.weights.transfer import (
    match_classes,
    transfer_arrays,
)

PATH, OLD, NEW = (
    "models/yolov5n.yaml",
    ("person", "dog", "cat", "bus"),
    ("cat", "lorry"),
)


def arrays_of(num_classes, seed):
    model = Detector(read_model_yaml(PATH, num_classes=num_classes))
    model.initialize(seed)
    return nn.state_arrays(model)


given, own = arrays_of(len(OLD), seed=1), arrays_of(len(NEW), seed=0)

plain = transfer_arrays(own, given)
print(f"by name and shape: {plain.taken}/{len(own)} tensors; not taken:")
for line in plain.left:
    print(" ", line.partition(" in the weights")[0])

fits = {
    name: array
    for name, array in given.items()
    if name in own and own[name].shape == array.shape
}
assert len(fits) == plain.taken  # this is all there is to it

rows = ClassRows(
    ("model.24.m.",), before=5
)  # of each anchor: four of the box and objectness
by_class = transfer_arrays(
    own, given, rows=rows, classes=match_classes(NEW, OLD)
)
print(f"class by class: {by_class.taken}/{len(own)} tensors")

print("rows of the second anchor of level 0, and where they come from:")
head, old_head = (
    by_class.state["model.24.m.0.weight"],
    given["model.24.m.0.weight"],
)
names = ("x", "y", "width", "height", "objectness", *NEW)
for output, name in enumerate(names):
    row = 1 * len(names) + output
    same = [
        index
        for index, old in enumerate(old_head)
        if np.array_equal(old, head[row])
    ]
    print(
        f"  row {row:2} {name:11}",
        f"row {same[0]} of the weights" if same else "the seed",
    )
# --8<-- [end:page]

values = {"taken": plain.taken, "tensors": len(own), "left": len(plain.left)}
