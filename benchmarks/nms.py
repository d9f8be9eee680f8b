"""Milliseconds of NMS among 30,000 candidates of one image.

    OMP_NUM_THREADS=1 python -m benchmarks.nms --backend torch --device cpu

On each scene the plain rule, one kept box at a time, and the search in a sorted list take turns;
both must keep the same rows. The last rows are whole images, decoded predictions of which each
gives as many candidates, one after the other and together. All of it is NumPy on the host, under
either backend.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

from collections.abc import Mapping, Sequence

import numpy as np

from backend.checks import CPU
from backend.words import count
from benchmarks.side_by_side import Run, choose_device, finish, keep, new_parser, time_in_turns
from utils.boxes import pairwise_iou
from utils.cli.flags import from_one
from utils.detections import Detections
from utils.evaluation.greedy_nms import suppress_greedily
from utils.evaluation.nms import SuppressionSettings, best_rows, best_rows_of_images
from utils.processes.command import run_command

IOU_THRESHOLD = float(np.float32(0.6))
IMAGE_SIDE = 640
IMAGES = 4  # in a batch


def scattered(random: np.random.Generator, count: int) -> np.ndarray:
    """Draw (count, 4) boxes anywhere: hardly one overlaps another enough to remove it."""
    centre, size = random.uniform(0, IMAGE_SIDE, (count, 2)), random.uniform(10, 200, (count, 2))
    return np.concatenate((centre, size), axis=1)


def heaped(random: np.random.Generator, count: int, objects: int = 100) -> np.ndarray:
    """Draw (count, 4) boxes around a few objects, as a trained detector predicts them."""
    chosen = random.integers(0, objects, count)
    centre = random.uniform(0, IMAGE_SIDE, (objects, 2))[chosen]
    size = np.exp(random.uniform(2.5, 5, (objects, 2)))[chosen]
    centre = centre + random.normal(0, 4, centre.shape)
    size = size * random.uniform(0.9, 1.1, size.shape)
    return np.concatenate((centre, size), axis=1)


def heaped_on_few(random: np.random.Generator, count: int) -> np.ndarray:
    """Draw (count, 4) boxes; so many of them overlap that max_kept is never reached."""
    return heaped(random, count, objects=20)


def to_xyxy(boxes_cxcywh: np.ndarray) -> np.ndarray:
    half_size = boxes_cxcywh[:, 2:] / 2
    corners = (boxes_cxcywh[:, :2] - half_size, boxes_cxcywh[:, :2] + half_size)
    return np.concatenate(corners, axis=1).astype(np.float32)


def require_equal_rows(candidates: Mapping[str, Run]) -> None:
    """Raise SystemExit if the candidates keep different rows."""
    results = {name: run() for name, run in candidates.items()}
    for name, rows in results.items():
        if not np.array_equal(rows, next(iter(results.values()))):
            raise SystemExit(f"{name} keeps other rows: the times compare unequal work")


def one_by_one(
    boxes_xyxy: np.ndarray, group: np.ndarray, iou_threshold: float, max_kept: int
) -> np.ndarray:
    """Apply the plain rule: keep the best box that is left, remove what overlaps it."""
    kept: list[int] = []
    left = np.arange(len(boxes_xyxy))
    while len(left) > 0 and len(kept) < max_kept:
        best, left = left[0], left[1:]
        kept.append(best)
        iou = pairwise_iou(boxes_xyxy[[best]], boxes_xyxy[left])[0]
        left = left[(iou <= iou_threshold) | (group[left] != group[best])]
    return np.array(kept, np.int64)


def suppression(boxes_xyxy: np.ndarray, group: np.ndarray, max_kept: int) -> dict[str, Run]:
    """Return the plain rule and the fast form on the same boxes."""
    return {
        "reference": lambda: one_by_one(boxes_xyxy, group, IOU_THRESHOLD, max_kept),
        "sorted": lambda: suppress_greedily(boxes_xyxy, group, IOU_THRESHOLD, max_kept),
    }


def whole(random: np.random.Generator, count: int, max_kept: int) -> dict[str, Run]:
    """Return NMS of images of 25,200 predictions of 80 classes with so many candidates each."""
    boxes_cxcywh, scores = heaped(random, 25200), random.uniform(0, 1, (25200, 81))
    scores[:, 0] = 1
    limit = np.sort(scores[:, 1:], axis=None)[-count]
    decoded = np.concatenate((boxes_cxcywh, scores), axis=1).astype(np.float32)

    settings = SuppressionSettings(float(limit), IOU_THRESHOLD, max_detections=max_kept)
    images = [decoded] * IMAGES
    return {
        "one by one": lambda: boxes_of([best_rows(image, settings) for image in images]),
        "together": lambda: boxes_of(best_rows_of_images(images, settings)),
    }


def boxes_of(found: Sequence[tuple[Detections, np.ndarray]]) -> np.ndarray:
    """Return the boxes of all images (K, 4)."""
    return np.concatenate([image.boxes_xyxy for image, _ in found])


SCENES = ((scattered, 1), (scattered, 80), (heaped, 1), (heaped, 80), (heaped_on_few, 1))


def main() -> None:
    parser = new_parser("nms", "Milliseconds of NMS.", repeats=10)
    parser.add_argument("--candidates", type=from_one, default=30000)
    parser.add_argument("--max-det", type=from_one, default=300)
    flags = parser.parse_args()
    if flags.device not in ("", CPU):
        parser.error(f"--device {flags.device}: NMS runs on the CPU alone")
    flags.device = CPU
    choose_device(flags)
    timings = []
    for draw, num_classes in SCENES:
        random = np.random.Generator(np.random.Philox(0))
        boxes_xyxy = to_xyxy(draw(random, flags.candidates))
        group = random.integers(0, num_classes, flags.candidates)
        both = suppression(boxes_xyxy, group, flags.max_det)
        require_equal_rows(both)
        scene = f"{draw.__name__}, {count(num_classes, 'class', 'classes')}"
        timings += time_in_turns(scene, both, CPU, flags.repeats, warm_up=1)
        keep(flags, timings, CPU)
    random = np.random.Generator(np.random.Philox(0))
    both = whole(random, flags.candidates, flags.max_det)
    require_equal_rows(both)
    timings += time_in_turns(f"{IMAGES} whole images", both, CPU, flags.repeats, warm_up=1)
    finish(flags, timings, CPU)


if __name__ == "__main__":
    run_command(main)
