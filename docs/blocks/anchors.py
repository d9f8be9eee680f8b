# Runs without a framework.
# --8<-- [start:sizes]
import numpy as np

# Widths and heights of 600 labels at 640 px: cars, people and signs.
generator = np.random.default_rng(3)
kinds = [(90, 45, 0.5), (30, 80, 0.4), (18, 18, 0.3)]
sizes = np.concatenate(
    [
        np.array([width, height])
        * np.exp(spread * generator.normal(size=(200, 2)))
        for width, height, spread in kinds
    ]
)
print("mean width and height", sizes.mean(axis=0).round(1).tolist())


# --8<-- [end:sizes]
# --8<-- [start:fit]
def ratio(sizes, anchors):
    """(N, A): the smaller of the ratios of widths and heights, at most 1."""
    ratios = sizes[:, None] / anchors[None]
    return np.minimum(ratios, 1 / ratios).min(axis=2)


def best_possible_recall(sizes, anchors, anchor_t=4.0):
    """Share of the labels that at least one anchor may predict."""
    return (ratio(sizes, anchors).max(axis=1) > 1 / anchor_t).mean()


coco = np.array(
    [[10, 13], [16, 30], [33, 23], [30, 61], [62, 45], [59, 119]]
    + [[116, 90], [156, 198], [373, 326]],
    float,
)
print(f"COCO's anchors: recall {best_possible_recall(sizes, coco):.3f}")
small = sizes / 6  # the same labels, photographed from far away
print(f"  objects of 1/6: recall {best_possible_recall(small, coco):.3f}")


# --8<-- [end:fit]
# --8<-- [start:means]
def shape_iou(sizes, anchors):
    """IoU (N, A) of boxes and anchors laid on the same corner."""
    shared = np.minimum(sizes[:, None], anchors[None]).prod(axis=2)
    area, other = sizes.prod(axis=1)[:, None], anchors.prod(axis=1)[None]
    return shared / (area + other - shared)


def k_means(sizes, number, rounds=50):
    """Anchors (number, 2): cluster by 1 - IoU, then take the mean sizes."""
    order = np.argsort(sizes.prod(axis=1))
    anchors = sizes[order[np.linspace(0, len(order) - 1, number, dtype=int)]]
    for _ in range(rounds):
        nearest = (1 - shape_iou(sizes, anchors)).argmin(axis=1)
        anchors = np.array(
            [
                sizes[nearest == cluster].mean(axis=0)
                if (nearest == cluster).any()
                else anchors[cluster]
                for cluster in range(number)
            ]
        )
    return anchors[np.argsort(anchors.prod(axis=1))]


fitted = k_means(small, 9)
print("k-means:", ", ".join(f"{w:.0f} x {h:.0f}" for w, h in fitted))
print(f"recall {best_possible_recall(small, fitted):.3f}")


# --8<-- [end:means]
# --8<-- [start:evolve]
def fitness(sizes, anchors, anchor_t=4.0):
    """Mean ratio of a label and its best anchor; 0 beyond the limit."""
    best = ratio(sizes, anchors).max(axis=1)
    return np.where(best > 1 / anchor_t, best, 0).mean()


def evolve(sizes, anchors, generations=1000):
    """Change all sides a little at random, and keep what is fitter."""
    best = fitness(sizes, anchors)
    for _ in range(generations):
        change = 1 + 0.1 * generator.normal(size=anchors.shape)
        mutant = np.maximum(anchors * change.clip(0.3, 3), 2)
        if fitness(sizes, mutant) > best:
            anchors, best = mutant, fitness(sizes, mutant)
    return anchors


evolved = evolve(small, fitted)
for name, anchors in (("k-means", fitted), ("evolved", evolved)):
    print(f"{name}: fitness {fitness(small, anchors):.3f}")
# --8<-- [end:evolve]
# --8<-- [start:agree]
from duet.utils.data.anchors import fit_anchors, measure_fit

fit = measure_fit(small, coco, threshold=4.0)
assert fit.best_possible_recall == best_possible_recall(small, coco)
ours = fit_anchors(small, number=9, threshold=4.0, seed=0)
print(f"Duet: fitness {fitness(small, ours):.3f}")
print("  " + ", ".join(f"{w:.0f} x {h:.0f}" for w, h in ours))
# --8<-- [end:agree]

values = {"far": f"{best_possible_recall(small, coco):.2f}"}
