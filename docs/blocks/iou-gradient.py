# Runs on torch and oneflow.
# Numbers agree to 1e-3.
from duet import backend

backend.use()
import numpy as np

from duet.backend import autograd, fused, ops
from duet.models.heads.anchor.boxes import complete_iou

target = ops.tensor(np.array([[38, 52, 48, 48]], np.float32))
for name, box in (("apart", [78, 92, 20, 20]), ("other shape", [50, 52, 72, 32])):
    for form in (complete_iou, fused.complete_iou):
        pred = autograd.variable(np.array([box], np.float32))
        (gradient,) = autograd.gradients(ops.sum(1 - form(pred, target)), [pred])
        numbers = ", ".join(f"{value:+.4f}" for value in ops.to_numpy(gradient)[0])
        print(f"{name}, {'plain' if form is complete_iou else 'fused'}: {numbers}")
