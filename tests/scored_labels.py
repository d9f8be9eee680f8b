"""What detect.py --save-txt writes, scored as val.py scores, and why the figures differ.

    python -m tests.scored_labels --weights coco-yolov5n-v6.pt --data coco256.yaml --img 640

It prints the figures of val.py, then those with each difference of detect.py added in turn,
then those of the text files that detect.py wrote.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import backend
import detect
from utils.boxes import cxcywh_to_xyxy
from utils.data.image.letterbox import (
    fit_letterbox,
    fit_long_side,
    letterbox,
    resize,
    resize_to_detect,
)
from utils.data.loading.loader import ValLoader
from utils.data.loading.reading import pixel_boxes, read_ahead
from utils.data.sources.dataset import load_dataset
from utils.data.sources.samples import Sample
from utils.data.sources.splits import load_split
from utils.detections import Detections, GroundTruth
from utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from utils.evaluation.nms import SuppressionSettings
from utils.screen.text import say
from utils.state.checkpoint import Checkpoint
from utils.weights.load import load_weights

FIGURES = ("mean_precision", "mean_recall", "map50", "map")


class Thresholds(NamedTuple):
    """The flags that val.py and detect.py are both given."""

    image_size: int = 640
    confidence: float = 0.001
    iou: float = 0.6
    max_detections: int = 300

    @property
    def flags(self) -> list[str]:
        values = (self.image_size, self.confidence, self.iou, self.max_detections)
        names = ("--img", "--conf-thres", "--iou-thres", "--max-det")
        return [text for pair in zip(names, map(str, values), strict=True) for text in pair]


def figures(result: EvaluationResult) -> np.ndarray:
    """Return P, R, mAP50 and mAP50-95."""
    return np.array([getattr(result, name) for name in FIGURES])


def score_text(
    folder: Path, samples: Sequence[Sample], class_names: Sequence[str]
) -> EvaluationResult:
    """Score the files of --save-txt --save-conf in a folder; without a file nothing was found."""
    evaluator = DetectionEvaluator(class_names)
    for index, sample in enumerate(samples):
        path = folder / f"{sample.image_path.stem}.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        rows = np.array([line.split() for line in lines], np.float64).reshape(-1, 6)
        rows = rows[::-1]  # the highest score first
        sides = [sample.width, sample.height] * 2
        boxes_xyxy = cxcywh_to_xyxy(rows[:, 1:5] * sides)
        found = Detections(boxes_xyxy, rows[:, 5].astype(np.float32), rows[:, 0].astype(np.int64))
        evaluator.add(index, found, objects_of(sample))
    return evaluator.result()


def objects_of(sample: Sample) -> GroundTruth:
    return GroundTruth(sample.class_index, pixel_boxes(sample))


class Placed(NamedTuple):
    """An image of the split as the network takes it."""

    index: int
    view: Any  # a `View`


class Differences:
    """val.py's way of looking at a split, and detect.py's, and what lies between them."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        samples: Sequence[Sample],
        class_names: Sequence[str],
        thresholds: Thresholds,
        batch_size: int = 32,
    ) -> None:
        self.samples, self.class_names, self.thresholds = samples, class_names, thresholds
        self._checkpoint, self._batch_size = checkpoint, batch_size

    def ways(self) -> dict[str, Callable[[], np.ndarray]]:
        """Return what is detect.py's besides all before it, and what measures the figures then."""
        nearest = self.singles(fit_nearest, resize)
        bilinear = self.singles(fit_nearest, resize_to_detect)
        return {
            "val.py": partial(self._measure, self.val_batches, multi_label=True),
            "one class a box": partial(self._measure, self.val_batches),
            "least padding": partial(self._measure, self.singles(fit_long_side, resize)),
            "sides to the nearest pixel": partial(self._measure, nearest),
            "resized bilinearly": partial(self._measure, bilinear),
            "BatchNorm folded": partial(self._measure, bilinear, fold=True),
        }

    def _measure(
        self,
        batches: Callable[[], Iterator[list[Placed]]],
        multi_label: bool = False,
        fold: bool = False,
    ) -> np.ndarray:
        from models.inference.image_detector import ImageDetector
        from models.inference.predictor import make_predictor

        size, confidence, iou, max_detections = self.thresholds
        settings = SuppressionSettings(
            confidence, iou, max_detections=max_detections, multi_label=multi_label
        )
        predictor = make_predictor([self._checkpoint], "cpu", fold=fold)
        detector = ImageDetector(predictor, "cpu", size, settings)
        evaluator = DetectionEvaluator(self.class_names)
        for batch in batches():
            rows = detector.predict([view for _, view in batch])
            for (index, view), found in zip(batch, rows, strict=True):
                objects = objects_of(self.samples[index])
                evaluator.add(index, detector.finish_view(view, found), objects)
        return figures(evaluator.result())

    def val_batches(self) -> Iterator[list[Placed]]:
        """Yield the batches of val.py."""
        from utils.data.image.view import View

        size, batch_size = self.thresholds.image_size, self._batch_size
        with ValLoader(self.samples, size, batch_size, 0, self._stride) as loader:
            for batch in loader:
                images = batch.images.transpose(0, 2, 3, 1)
                placed = zip(batch.sample_indices.tolist(), images, batch.letterboxes, strict=True)
                yield [Placed(index, View(image, box)) for index, image, box in placed]

    def singles(
        self, fit: Callable[..., Any], resizing: Callable[..., np.ndarray]
    ) -> Callable[[], Iterator[list[Placed]]]:
        """Return what yields images one by one, padded to the next multiples of the stride."""
        from utils.data.image.view import View

        def batches() -> Iterator[list[Placed]]:
            for index, image in enumerate(read_ahead(self.samples)):
                long_side, size = self.thresholds.image_size, image.shape[:2]
                inner = fit(size, long_side, (long_side, long_side)).resized_size
                outer = tuple(-(-side // self._stride) * self._stride for side in inner)
                placement = fit(size, long_side, outer)
                yield [Placed(index, View(letterbox(image, placement, resizing), placement))]

        return batches

    @cached_property
    def _stride(self) -> int:
        from models.stored import detector_of_weights

        return detector_of_weights(self._checkpoint).stride


def fit_nearest(size: tuple[int, int], long_side: int, input_size: tuple[int, int]) -> Any:
    """Return detect.py's place of an image in an input, in the form of `fit_long_side`."""
    return fit_letterbox(size, input_size, long_side / max(size))


def save_text(weights: Path, source: Path, project: Path, thresholds: Thresholds, run: Any) -> Path:
    """Run detect.py on a source; return its folder of labels.

    Args:
        run: called with the command line.
    """
    run(["detect.py", "--weights", str(weights), "--source", str(source), "--device", "cpu",
         "--project", str(project), "--save-txt", "--save-conf", "--nosave",
         *thresholds.flags])  # fmt: skip
    return project / "exp" / "labels"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--img", type=int, default=640)
    parser.add_argument("--backend")
    flags = parser.parse_args()
    backend.use(flags.backend)
    thresholds = Thresholds(image_size=flags.img)
    dataset = load_dataset(flags.data, splits=("val",))
    samples = load_split(dataset, "val")
    weights = load_weights(str(flags.weights))
    ways = Differences(weights, samples, dataset.class_names, thresholds).ways()
    for name, measure in ways.items():
        tell(name, measure())

    def run(line: list[str]) -> None:
        sys.argv = line
        detect.main()

    with TemporaryDirectory() as folder:
        (images,) = dataset.val
        labels = save_text(flags.weights, images, Path(folder), thresholds, run)
        tell("text of detect.py", figures(score_text(labels, samples, dataset.class_names)))


def tell(name: str, values: np.ndarray) -> None:
    say(f"{name:<28}{' '.join(f'{value:.7f}' for value in values)}")


if __name__ == "__main__":
    main()
