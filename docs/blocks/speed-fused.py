# Runs on torch and oneflow.
# Numbers differ from run to run.
import time

from duet import backend

backend.use()
import numpy as np

from duet.backend import autograd, fused, ops
from duet.models.heads.anchor.boxes import complete_iou

random = np.random.default_rng(0)
boxes, targets = (
    random.uniform(10, 90, (3000, 4)).astype(np.float32) for _ in range(2)
)


def gradient_of(form):
    pred = autograd.variable(boxes)
    (gradient,) = autograd.gradients(
        ops.sum(1 - form(pred, ops.tensor(targets))), [pred]
    )
    return ops.to_numpy(gradient)


def milliseconds(form):
    start = time.perf_counter()
    gradient_of(form)
    return 1000 * (time.perf_counter() - start)


forms = complete_iou, fused.complete_iou
apart = np.abs(gradient_of(forms[0]) - gradient_of(forms[1])).max()
print("gradients agree:", bool(apart < 1e-5))
pairs = []
for _ in range(15):  # in turns
    pairs.append([milliseconds(form) for form in forms])
plain, fast = np.median(pairs, axis=0)
ratios = np.divide(*np.transpose(pairs)[::-1])
print(f"plain {plain:.2f} ms, fused {fast:.2f} ms")
low, high = ratios.min(), ratios.max()
print(f"ratio {np.median(ratios):.2f} ({low:.2f} to {high:.2f})")
