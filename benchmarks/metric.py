"""Seconds to evaluate the detections of a large set, and those of pycocotools if it is installed.

    OMP_NUM_THREADS=1 python -m benchmarks.metric --images 5000
    OMP_NUM_THREADS=1 python -m benchmarks.metric --images 500 --masks

Both get the same detections and objects, drawn from a fixed seed, and must agree on COCO's 12
figures. Ours is timed from the arrays that NMS leaves, image by image; pycocotools from the lists
of annotations that it takes. Its time includes reading and indexing them, as in a real run.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import contextlib
import gc
import io
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from backend.words import count
from benchmarks.side_by_side import bare_parser, host, rows_of, write_json
from utils.cli.flags import from_one
from utils.detections import Detections, GroundTruth, Segmentations
from utils.evaluation.coco.metric import DetectionEvaluator, ObjectMetric
from utils.evaluation.overlap import MASKS
from utils.masks.runs import areas, runs_of_polygons, to_text
from utils.processes.command import run_command
from utils.ragged import Ragged

Image = tuple[Detections | Segmentations, GroundTruth]
TOLERANCE = 1e-9  # both sum the same float64 numbers, in another order
SIDE = 640  # pixels of an image
ELLIPSE = np.linspace(0, 2 * np.pi, 32, endpoint=False)


def draw_images(num_images: int, num_detections: int, num_classes: int) -> list[Image]:
    """Draw images of 640 x 640 pixels with COCO's mean of about 7 objects.

    Half of the detections lie near an object and mostly carry its class, the others anywhere.
    """
    random = np.random.Generator(np.random.Philox(0))
    images = []
    for _ in range(num_images):
        num_objects = int(random.poisson(6)) + 1
        objects = _draw_boxes(random, num_objects)
        labels = random.integers(0, num_classes, num_objects)
        boxes_xyxy = _draw_boxes(random, num_detections)
        class_index = random.integers(0, num_classes, num_detections)
        near = random.integers(0, num_objects, num_detections // 2)
        size = np.tile(objects[near, 2:] - objects[near, :2], 2)
        boxes_xyxy[: len(near)] = objects[near] + size * random.normal(0, 0.1, size.shape)
        boxes_xyxy[:, 2:] = np.maximum(boxes_xyxy[:, 2:], boxes_xyxy[:, :2])
        same_class = random.uniform(size=len(near)) < 0.7
        class_index[: len(near)][same_class] = labels[near][same_class]
        scores = np.sort(random.uniform(0.001, 1, num_detections).astype(np.float32))[::-1]
        shuffled = random.permutation(num_detections)
        found = Detections(boxes_xyxy[shuffled].astype(np.float32), scores, class_index[shuffled])
        images.append((found, GroundTruth(labels, objects)))
    return images


def _draw_boxes(random: np.random.Generator, num_boxes: int) -> np.ndarray:
    size = np.exp(random.uniform(np.log(8), np.log(400), (num_boxes, 2)))
    corner = random.uniform(0, 1, (num_boxes, 2)) * (SIDE - size)
    return np.concatenate((corner, corner + size), axis=1)


def with_masks(image: Image) -> Image:
    """Return an image with an ellipse of 32 points in each box."""
    found, objects = image
    masks, truth = (_ellipses(x.boxes_xyxy) for x in (found, objects))
    return Segmentations(*found[:3], masks), objects._replace(area=areas(truth), masks=truth)


def _ellipses(boxes_xyxy: np.ndarray) -> Ragged:
    centre, radii = (boxes_xyxy[:, :2] + boxes_xyxy[:, 2:]) / 2, np.diff(boxes_xyxy[:, ::2]) / 2
    radii = np.concatenate((radii, np.diff(boxes_xyxy[:, 1::2]) / 2), axis=1)
    circle = np.stack((np.cos(ELLIPSE), np.sin(ELLIPSE)), axis=1)
    outlines = centre[:, None] + radii[:, None] * circle
    return Ragged.of([runs_of_polygons([x], (SIDE, SIDE)) for x in outlines], np.uint32)


def evaluate(images: list[Image], num_classes: int) -> list[float]:
    """Return COCO's 12 figures, computed by this project: of masks where the images have them."""
    names = [str(index) for index in range(num_classes)]
    of_masks = bool(images) and images[0][1].masks is not None
    evaluator = ObjectMetric(names, MASKS) if of_masks else DetectionEvaluator(names)
    for image_id, (found, objects) in enumerate(images):
        evaluator.add(image_id, found, objects)
    return list(evaluator.result().summary().values())


def evaluate_by_pycocotools(
    dataset: dict[str, list], results: list[dict[str, object]]
) -> list[float]:
    """Return COCO's 12 figures, computed by pycocotools."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = dataset
        truth.createIndex()
        kind = "segm" if "segmentation" in results[0] else "bbox"
        reference = COCOeval(truth, truth.loadRes([dict(row) for row in results]), kind)
        reference.evaluate()
        reference.accumulate()
        reference.summarize()
    return reference.stats.tolist()


def to_coco(images: list[Image], num_classes: int) -> tuple[dict[str, list], list[dict]]:
    """Return the dataset and the results in COCO's form."""
    annotations, results = [], []
    for image_id, (found, objects) in enumerate(images):
        for box, label in zip(_left_top_size(objects.boxes_xyxy), objects.class_index, strict=True):
            annotations.append(
                {"id": len(annotations) + 1, "image_id": image_id, "category_id": int(label),
                 "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
            )  # fmt: skip
        _add_masks(annotations, objects.masks)
        for box, score, label in zip(
            _left_top_size(found.boxes_xyxy), found.scores, found.class_index, strict=True
        ):
            results.append(
                {"image_id": image_id, "category_id": int(label), "bbox": box,
                 "score": float(score)}
            )  # fmt: skip
        _add_masks(results, getattr(found, "masks", None))
    size = {"height": SIDE, "width": SIDE}
    dataset = {
        "info": {},
        "images": [{"id": image_id, **size} for image_id in range(len(images))],
        "categories": [{"id": index} for index in range(num_classes)],
        "annotations": annotations,
    }
    return dataset, results


def _add_masks(rows: list[dict], masks: Ragged | None) -> None:
    """Give the last rows masks, if there are any, and their areas, in place of boxes."""
    if masks is None:
        return
    of_masks = rows[len(rows) - masks.num_rows :]
    for row, runs, area in zip(of_masks, masks.rows(), areas(masks).tolist(), strict=True):
        row.pop("bbox")
        counts = to_text(runs)
        row |= {"segmentation": {"size": [SIDE, SIDE], "counts": counts}, "area": area}


def _left_top_size(boxes_xyxy: np.ndarray) -> list[list[float]]:
    corner = boxes_xyxy[:, :2].astype(np.float64)
    return np.concatenate((corner, boxes_xyxy[:, 2:] - corner), axis=1).tolist()


def seconds_of(run: Callable[[], list[float]], repeats: int) -> tuple[list[float], list[float]]:
    """Return the result of the last run, and the seconds of each."""
    seconds = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        figures = run()
        seconds.append(time.perf_counter() - start)
    return figures, seconds


def print_row(name: str, seconds: list[float]) -> None:
    """Print median and spread of one candidate."""
    print(
        f"{name:<14}{statistics.median(seconds):>9.2f}{min(seconds):>9.2f}{max(seconds):>9.2f}"
        f"{len(seconds):>6}"
    )


def write_seconds(
    flags: argparse.Namespace, case: str, spent: Mapping[str, Sequence[float]], reference: str
) -> None:
    """Write the rows as JSON, if asked for it; ratios refer to one of the candidates."""
    if flags.json is not None:
        milliseconds = {name: [1000 * x for x in seconds] for name, seconds in spent.items()}
        write_json(flags.json, host(), rows_of(case, milliseconds, reference))


def main() -> None:
    parser = bare_parser("metric", "Seconds to evaluate a large set of detections.", repeats=5)
    parser.add_argument("--images", type=from_one, default=5000)
    parser.add_argument("--detections", type=from_one, default=300, help="of each image")
    parser.add_argument("--classes", type=from_one, default=80)
    parser.add_argument("--masks", action="store_true", help="an ellipse in each box, in its place")
    parser.add_argument("--reference-repeats", type=int, default=1, help="0: no pycocotools")
    flags = parser.parse_args()
    images = draw_images(flags.images, flags.detections, flags.classes)
    images = list(map(with_masks, images)) if flags.masks else images
    classes = count(flags.classes, "class", "classes")
    case = f"{count(flags.images, 'image')} x {flags.detections} detections, {classes}"
    case += ", masks" if flags.masks else ""
    print(case)
    print(f"{'seconds':<14}{'median':>9}{'fastest':>9}{'slowest':>9}{'runs':>6}")
    figures, seconds = seconds_of(lambda: evaluate(images, flags.classes), flags.repeats)
    print_row("utils.evaluation.coco.metric", seconds)
    spent = {"utils.evaluation.coco.metric": seconds}
    if flags.reference_repeats:
        spent |= compare(images, flags.classes, flags.reference_repeats, figures)
    write_seconds(flags, case, spent, "pycocotools")


def compare(
    images: list[Image], num_classes: int, repeats: int, figures: list[float]
) -> dict[str, list[float]]:
    """Time pycocotools and check that its figures are the same; return its seconds by its name."""
    try:
        import pycocotools  # noqa: F401
    except ImportError:
        print("pycocotools     not installed: pip install pycocotools")
        return {}
    dataset, results = to_coco(images, num_classes)
    expected, seconds = seconds_of(lambda: evaluate_by_pycocotools(dataset, results), repeats)
    print_row("pycocotools", seconds)
    difference = float(np.abs(np.nan_to_num(figures, nan=-1.0) - np.array(expected)).max())
    print(f"largest difference of COCO's 12 figures: {difference:.1e}")
    if difference > TOLERANCE:
        raise SystemExit(f"they differ by more than {TOLERANCE}: the times compare unequal work")
    return {"pycocotools": seconds}


if __name__ == "__main__":
    run_command(main)
