# Runs on torch and oneflow.
# --8<-- [start:page]
import numpy as np


def ciou_and_gradient(box, target):
    """CIoU (N,), and its gradient (N, 4) by box, of boxes (N, 4) cxcywh."""
    centre, size = box[:, :2], box[:, 2:]
    centre_t, size_t = target[:, :2], target[:, 2:]
    low, high = centre - size / 2, centre + size / 2
    low_t, high_t = centre_t - size_t / 2, centre_t + size_t / 2

    overlap = np.minimum(high, high_t) - np.maximum(low, low_t)
    overlap = overlap.clip(0)
    shared = overlap.prod(axis=1, keepdims=True)
    areas = size.prod(axis=1, keepdims=True) + size_t.prod(1, keepdims=True)
    union = areas - shared
    iou = shared / union

    hull = np.maximum(high, high_t) - np.minimum(low, low_t)
    diagonal = (hull**2).sum(axis=1, keepdims=True)  # squared
    apart = centre - centre_t
    far = (apart**2).sum(axis=1, keepdims=True) / diagonal

    angle = np.arctan(size_t[:, :1] / size_t[:, 1:])
    angle = angle - np.arctan(size[:, :1] / size[:, 1:])
    v = 4 / np.pi**2 * angle**2
    alpha = v / (1 - iou + v)
    value = (iou - far - alpha * v)[:, 0]

    # By the edges: an edge of the box counts only where it bounds the
    # overlap (it is the inner one) or the hull (it is the outer one).
    by_overlap = overlap[:, ::-1] * (1 + iou) / union * (shared > 0)
    by_hull = 2 * hull * far / diagonal
    by_high = by_overlap * (high < high_t) + by_hull * (high > high_t)
    by_low = -by_overlap * (low > low_t) - by_hull * (low < low_t)
    by_centre = by_high + by_low - 2 * apart / diagonal
    by_size = (by_high - by_low) / 2
    by_size -= iou / union * size[:, ::-1]  # the box's own area
    turn = alpha * 8 / np.pi**2 * angle / (size**2).sum(1, keepdims=True)
    by_size += turn * np.stack([size[:, 1], -size[:, 0]], axis=1)
    return value, np.concatenate([by_centre, by_size], axis=1)


from duet import backend

backend.use()
from duet.backend import autograd, ops
from duet.models.heads.anchor.boxes import complete_iou

random = np.random.default_rng(0)
box, target = random.uniform(10, 90, (2, 5000, 4))
value, by_box = ciou_and_gradient(box, target)

pred = autograd.variable(box)
ours = complete_iou(pred, ops.tensor(target))
(theirs,) = autograd.gradients(ops.sum(ours), [pred])
assert np.abs(ops.to_numpy(ours) - value).max() < 1e-6
assert np.abs(ops.to_numpy(theirs) - by_box).max() < 1e-6
meet = (abs(box - target)[:, :2] < (box + target)[:, 2:] / 2).all(axis=1)
print(
    f"5,000 pairs, {(~meet).sum()} of them apart: values and gradients agree"
)
pull = np.abs(by_box[~meet]).sum(axis=1).min()
print(f"the smallest pull on a box that is apart: {pull:.5f}")
# --8<-- [end:page]
