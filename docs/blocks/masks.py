# Runs on torch and oneflow.
# Numbers agree to 1e-3.
# --8<-- [start:assemble]
import numpy as np

# Four prototypes of 12 x 28 cells; a network learns 32 such maps.
rows, columns = np.mgrid[0:12, 0:28]
away = np.hypot(rows - 5.5, columns - 13.5)
prototypes = np.stack(
    [
        np.ones((12, 28)),  # the same everywhere
        (columns - 13.5) / 4,  # right of the middle
        (rows - 5.5) / 2,  # below the middle
        5 - away,  # round the middle
    ]
).astype(np.float32)

# Two objects: a box in cells, and a coefficient for each prototype.
boxes = np.array([[2, 0, 15, 12], [13, 0, 26, 12]], np.float32)
coefficients = np.array([[0, -1, 0, 1], [0.5, 1, 1, 0]], np.float32)


def masks_of(prototypes, coefficients, boxes):
    """Masks (K, h, w): a weighted sum, a threshold, and a box."""
    sums = np.einsum("km,mhw->khw", coefficients, prototypes)
    scores = 1 / (1 + np.exp(-sums))
    left, top, right, bottom = boxes.T[:, :, None]  # (K, 1) each
    height, width = prototypes.shape[1:]
    x, y = np.arange(width), np.arange(height)
    in_columns = (x >= left) & (x < right)  # (K, w)
    in_rows = (y >= top) & (y < bottom)  # (K, h)
    return (scores > 0.5) & in_rows[:, :, None] & in_columns[:, None, :]


first, second = masks_of(prototypes, coefficients, boxes)
for line in np.where(first, "1", np.where(second, "2", ".")):
    print("".join(line))
# --8<-- [end:assemble]
# --8<-- [start:agree]
from duet.utils.data.masks.assemble import prototype_masks

generator = np.random.default_rng(0)
maps = generator.normal(size=(32, 40, 40)).astype(np.float32)
weights = generator.normal(size=(50, 32)).astype(np.float32)
corners = generator.uniform(0, 30, (50, 2)).astype(np.float32)
places = np.concatenate([corners, corners + 9.5], axis=1)
ours = prototype_masks(maps, weights, places)
assert np.array_equal(masks_of(maps, weights, places), ours)
print(f"{len(ours)} masks, {ours.sum()} cells, all equal")


# --8<-- [end:agree]
# --8<-- [start:enlarge]
def enlarge(map, times):
    """Bilinear interpolation of a square map, by rows and by columns."""
    side = len(map)
    at = (np.arange(side * times) + 0.5) / times - 0.5
    weights = [np.interp(at, range(side), unit) for unit in np.eye(side)]
    weights = np.stack(weights, axis=1)  # (side * times, side)
    return weights @ map @ weights.T


def disc(cells, radius=0.3):
    """A round object in a square of so many cells, as logits."""
    y, x = (np.mgrid[0:cells, 0:cells] + 0.5) / cells - 0.5
    return (radius - np.hypot(y, x)) * 40


truth = disc(160) > 0
scores = 1 / (1 + np.exp(-disc(40)))
for name, mask in (
    ("threshold, then enlarge", np.kron(scores > 0.5, np.ones((4, 4))) > 0),
    ("enlarge, then threshold", enlarge(scores, 4) > 0.5),
):
    iou = (mask & truth).sum() / (mask | truth).sum()
    print(f"{name}: IoU {iou:.3f} with the object")


# --8<-- [end:enlarge]
# --8<-- [start:loss]
def mask_loss(prototypes, coefficients, truth, box):
    """Cross-entropy inside the box, divided by the box's area."""
    left, top, right, bottom = np.ceil(box).astype(int)
    inside = slice(top, bottom), slice(left, right)
    logits = np.einsum("m,mhw->hw", coefficients, prototypes)[inside]
    costs = np.maximum(logits, 0) - logits * truth[inside]
    costs += np.log1p(np.exp(-abs(logits)))
    return costs.sum() / ((box[2] - box[0]) * (box[3] - box[1]))


small = mask_loss(maps, weights[0] / 8, maps[0] > 0, (4, 4, 10, 10))
large = mask_loss(maps, weights[0] / 8, maps[0] > 0, (4, 4, 36, 36))
print(f"a small object {small:.2f}, a large one {large:.2f}")
from duet import backend

backend.use()
from duet.backend import ops
from duet.models.heads.mask.loss import SegmentationLoss
from duet.utils.data.loading.batch import TargetMasks, Targets
from duet.utils.strengths import LossGains

# One image of one object, whose box is cells 4 to 36 of 40; one level.
box = np.array([[0.5, 0.5, 0.8, 0.8]], np.float32)
one = np.ones(1, int)
shown = TargetMasks((maps[:1] > 0).astype(np.uint8), 0 * one, one)
targets = Targets(0 * one, 0 * one, box, shown)
raw = np.zeros((1, 1, 10, 10, 6 + 32), np.float32)
raw[..., 6:] = weights[0] / 8  # each cell has these coefficients
gains = LossGains(1, 1, 1, 1, 1, max_side_ratio=4, focal_gamma=0)
loss = SegmentationLoss(np.array([[[8, 8]]], np.float32), 1, gains)
terms = loss([ops.tensor(raw), ops.tensor(maps[None])], targets)
theirs = float(ops.to_numpy(terms.by_name["mask"]))
print(f"Duet's term for the large one: {theirs:.2f}")
assert abs(theirs - large) < 1e-4
# --8<-- [end:loss]
