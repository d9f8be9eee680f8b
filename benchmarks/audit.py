"""How many planted label errors an audit finds, at which precision, by kind.

    python -m benchmarks.audit --weights coco-yolov5n-v6.pt --data coco256.yaml --img 640

A fraction of the labels is deleted, another gets a wrong class, another is moved and scaled until
its IoU with the original is from 0.2 to 0.6; as many labels of other images are added where no
label is. The lowest scores worth looking at are chosen on the images of even number: half of what
is found there is planted. The figures are those of the images of odd number, over several seeds.
What is wrong in the data itself counts as a false alarm: the precision that a person would see is
higher.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.side_by_side import choose_device, machine, new_parser
from benchmarks.split import add_batch_flags, batches_of
from utils.boxes import clip_boxes, cxcywh_to_xyxy, pairwise_iou, xyxy_to_cxcywh
from utils.data.audit.classes import share_classes
from utils.data.audit.findings import (
    KINDS,
    MISPLACED,
    NOTHING,
    OVERLOOKED,
    SWAPPED,
    UNSEEN,
    Auditor,
    Findings,
)
from utils.data.audit.worth import WORTH
from utils.data.loading.reading import pixel_boxes
from utils.data.sources.dataset import load_dataset
from utils.data.sources.samples import Sample
from utils.data.sources.splits import load_split
from utils.detections import Detections, GroundTruth
from utils.files.atomic import atomic_text_file
from utils.processes.command import run_command
from utils.weights.load import load_weights

SPLITS = ("train", "val")
PRECISIONS = (0.3, 0.5, 0.7)
AIM = 0.5  # precision at which a finding is worth looking at
IOU_OF_MOVED = (0.2, 0.6)
CLEAR = 0.1  # IoU with all labels below which an added one is where nothing is
SAME_OBJECT = 0.5  # IoU of a finding and a deleted label
TRIES = 100
LEAST = 0.05  # score of a finding that is looked at


class Image(NamedTuple):
    """An image, what the model finds in it, and its labels."""

    size: tuple[int, int]
    found: Detections
    labels: GroundTruth


class Planted(NamedTuple):
    """An image's labels with errors planted."""

    labels: GroundTruth
    error: np.ndarray  # (M,) int64, index into KINDS of what is wrong with each; NOTHING
    deleted: GroundTruth


class Curve(NamedTuple):
    """Findings of a kind, the highest score first."""

    scores: np.ndarray  # (F,)
    is_planted: np.ndarray  # (F,) bool
    num_planted: int

    def precision(self) -> np.ndarray:
        """Return the precision of the first 1, 2, ... findings."""
        return np.cumsum(self.is_planted) / np.arange(1, len(self.scores) + 1)

    def recall_at(self, precision: float) -> float:
        """Return the highest recall with at least this precision."""
        recall = np.cumsum(self.is_planted) / max(self.num_planted, 1)
        return float(recall[self.precision() >= precision].max(initial=0))

    def lowest_at(self, precision: float) -> float:
        """Return the lowest score down to which there is this precision."""
        return float(self.scores[self.precision() >= precision].min(initial=1))

    def above(self, score: float) -> tuple[int, float, float]:
        """Return number, precision and recall of the findings from a score on."""
        rows = self.is_planted[self.scores >= score]
        return (
            len(rows),
            float(rows.sum() / max(len(rows), 1)),
            float(rows.sum() / max(self.num_planted, 1)),
        )


class Planter:
    """Plants errors into the labels of images, each kind into a fraction of them."""

    def __init__(self, images: Sequence[Image], rate: float, num_classes: int, seed: int) -> None:
        self._rate, self._num_classes = rate, num_classes
        self._random = np.random.default_rng(seed)
        self._class_index = np.concatenate([image.labels.class_index for image in images])
        sizes = [
            xyxy_to_cxcywh(image.labels.boxes_xyxy)[:, 2:] / image.size[::-1] for image in images
        ]
        self._sizes_wh = np.concatenate(sizes)

    def plant(self, image: Image) -> Planted:
        """Return the labels of an image with errors."""
        class_index = image.labels.class_index.copy()
        boxes = image.labels.boxes_xyxy.copy()
        error = np.full(len(class_index), NOTHING)
        draws = (self._random.random(len(class_index)) / self._rate).astype(int)
        for row in np.flatnonzero(draws == KINDS.index(SWAPPED)):
            other = self._random.integers(self._num_classes - 1)
            class_index[row] = other + (other >= class_index[row])
            error[row] = KINDS.index(SWAPPED)
        for row in np.flatnonzero(draws == KINDS.index(MISPLACED)):
            moved = self._moved(boxes[row], image.size)
            if moved is not None:
                boxes[row], error[row] = moved, KINDS.index(MISPLACED)
        is_deleted = draws == KINDS.index(OVERLOOKED)
        added = list(self._added(image, int((draws == KINDS.index(UNSEEN)).sum())))
        labels = GroundTruth(
            np.append(class_index[~is_deleted], [label for label, _ in added]).astype(np.int64),
            np.concatenate([boxes[~is_deleted], *(box[None] for _, box in added)]),
        )
        error = np.append(error[~is_deleted], [KINDS.index(UNSEEN)] * len(added)).astype(np.int64)
        deleted = GroundTruth(class_index[is_deleted], boxes[is_deleted])
        return Planted(labels, error, deleted)

    def _moved(self, box_xyxy: np.ndarray, size: tuple[int, int]) -> np.ndarray | None:
        box = xyxy_to_cxcywh(box_xyxy)
        lowest, highest = IOU_OF_MOVED
        for _ in range(TRIES):
            centre = box[:2] + self._random.uniform(-0.5, 0.5, 2) * box[2:]
            sides = box[2:] * np.exp(self._random.uniform(-0.7, 0.7, 2))
            moved = clip_boxes(cxcywh_to_xyxy(np.concatenate([centre, sides])), size)
            if lowest <= pairwise_iou(box_xyxy[None], moved[None])[0, 0] <= highest:
                return moved
        return None

    def _added(self, image: Image, number: int) -> Iterator[tuple[int, np.ndarray]]:
        size_wh = np.array(image.size[::-1])
        for _ in range(number):
            for _ in range(TRIES):
                row = self._random.integers(len(self._class_index))
                sides = self._sizes_wh[row] * size_wh
                corner = self._random.random(2) * (size_wh - sides)
                box = np.concatenate([corner, corner + sides])
                if (pairwise_iou(box[None], image.labels.boxes_xyxy) < CLEAR).all():
                    yield int(self._class_index[row]), box
                    break


def audited(images: Sequence[Image], planted: Sequence[Planted], is_known: np.ndarray) -> Findings:
    """Return what an audit finds in planted labels."""
    auditor = Auditor(dict.fromkeys(KINDS, LEAST), is_known)
    for index, (image, given) in enumerate(zip(images, planted, strict=True)):
        auditor.add(index, image.found, given.labels, image.size)
    return auditor.result()


def planted_rows(findings: Findings, planted: Sequence[Planted]) -> np.ndarray:
    """Return which findings (F,) are planted errors of their kind; a deleted label counts once."""
    left = [list(range(len(given.deleted.class_index))) for given in planted]
    hits = []
    for image, kind, _, label, seen, _, box in zip(*findings, strict=True):
        if KINDS[kind] != OVERLOOKED:
            hits.append(planted[image].error[label] == kind)
            continue
        class_index, boxes, *_ = planted[image].deleted
        iou = pairwise_iou(box[None], boxes)[0]
        same = [row for row in left[image] if class_index[row] == seen and iou[row] >= SAME_OBJECT]
        hits.append(bool(same))
        if same:
            left[image].remove(max(same, key=iou.__getitem__))
    return np.array(hits, bool)


def curves(images: Sequence[Image], is_known: np.ndarray, rate: float, seeds: int) -> list[Curve]:
    """Return a curve for each of KINDS, of the findings of all seeds together."""
    parts: list[list[Curve]] = [[] for _ in KINDS]
    for seed in range(seeds):
        planter = Planter(images, rate, len(is_known), seed)
        planted = [planter.plant(image) for image in images]
        findings = audited(images, planted, is_known)
        hits = planted_rows(findings, planted)
        for kind, of_kind in enumerate(parts):
            rows = findings.kind == kind
            number = sum(int((given.error == kind).sum()) for given in planted)
            if KINDS[kind] == OVERLOOKED:
                number = sum(len(given.deleted.class_index) for given in planted)
            of_kind.append(Curve(findings.scores[rows], hits[rows], number))
    return list(map(_pooled, parts))


def _pooled(parts: Sequence[Curve]) -> Curve:
    scores = np.concatenate([part.scores for part in parts])
    order = np.argsort(-scores, kind="stable")
    is_planted = np.concatenate([part.is_planted for part in parts])
    return Curve(scores[order], is_planted[order], sum(part.num_planted for part in parts))


def read_images(flags: argparse.Namespace, device: str) -> tuple[list[Image], np.ndarray]:
    """Return all images of the dataset with what the model finds, and the classes that it knows."""
    from models.audit import EVIDENCE
    from models.evaluation import evaluate
    from models.inference.predictor import class_names_of, make_predictor

    weights = load_weights(flags.weights)
    model = make_predictor([weights], device)
    dataset = load_dataset(flags.data, splits=SPLITS)
    names = dataset.class_names
    known = class_names_of(weights, model.head.num_classes)
    classes = share_classes(flags.data, names, flags.weights, known, model.head.num_classes)
    images: list[Image] = []
    for split in SPLITS:
        samples = load_split(dataset, split)
        seen = _Seen()
        with batches_of(samples, flags, model.stride) as loader:
            evaluate(model, loader, samples, known, device, EVIDENCE, sinks=[seen])
        images += [
            Image(_size(sample), classes.of_dataset(seen.found[index]), _labels(sample))
            for index, sample in enumerate(samples)
        ]
    return images, classes.in_model != NOTHING


class _Seen:
    """Keeps what is found in each image."""

    def __init__(self) -> None:
        self.found: dict[int, Detections] = {}

    def add(self, image_id: int, found: Detections, truth: GroundTruth) -> None:
        """Keep the detections of an image."""
        self.found[image_id] = found


def _size(sample: Sample) -> tuple[int, int]:
    return sample.height, sample.width


def _labels(sample: Sample) -> GroundTruth:
    return GroundTruth(sample.class_index, pixel_boxes(sample))


def rows_of(tuned: Sequence[Curve], held_out: Sequence[Curve]) -> list[dict[str, object]]:
    """Return the figures of each kind."""
    rows: list[dict[str, object]] = []
    for kind, chosen, curve in zip(KINDS, tuned, held_out, strict=True):
        number, precision, recall = curve.above(WORTH[kind])
        rows.append({
            "kind": kind, "planted": curve.num_planted, "chosen": chosen.lowest_at(AIM),
            "used": WORTH[kind], "found": number, "precision": precision, "recall": recall,
            **{f"recall at {aim:g}": curve.recall_at(aim) for aim in PRECISIONS},
        })  # fmt: skip
    return rows


def main() -> None:
    parser = new_parser("audit", "Planted errors of labels that an audit finds.", repeats=10)
    add = parser.add_argument
    add("--weights", required=True, metavar="F")
    add("--data", required=True, metavar="D", help="its splits train and val")
    add_batch_flags(parser, img=640, batch=8)
    add("--rate", type=float, default=0.05, metavar="F", help="fraction of the labels, per kind")
    flags = parser.parse_args()
    device = choose_device(flags)
    images, is_known = read_images(flags, device)
    tuned, held_out = (
        curves(images[first::2], is_known, flags.rate, flags.repeats) for first in (0, 1)
    )
    rows = rows_of(tuned, held_out)
    print("".join(f"{name:>14}" for name in rows[0]))
    for row in rows:
        print("".join(f"{x:>14.3f}" if isinstance(x, float) else f"{x:>14}" for x in row.values()))
    if flags.json is not None:
        document = {"machine": machine(device), "command": sys.argv, "rows": rows}
        with atomic_text_file(flags.json) as file:
            json.dump(document, file, indent=1)


if __name__ == "__main__":
    run_command(main)
