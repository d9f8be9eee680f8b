"""An exported file, run in its runtime, must predict what the model does in the same images."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from duet.backend import autograd, ops
from duet.backend.checks import CPU
from duet.models.detector import Detector
from duet.models.export.exported import ExportedPredictor
from duet.models.export.exported_heads import exported_outputs
from duet.models.inference.predictors import network_input
from duet.models.inputs import images_to_tensor
from duet.utils.boxes import pairwise_iou
from duet.utils.data.image.letterbox import fit_letterbox, letterbox, resize_linear
from duet.utils.data.loading.reading import read_ahead
from duet.utils.data.masks.assemble import THRESHOLD, masks_at
from duet.utils.data.randomness import sample_generator
from duet.utils.data.shapes.scene import draw_scene
from duet.utils.data.sources.samples import Sample
from duet.utils.detections import Detections
from duet.utils.errors import UserError
from duet.utils.evaluation.nms import best_rows
from duet.utils.export.config import ExportConfig
from duet.utils.export.metadata import DETECTIONS, LOGITS, MASKS, Metadata, Outputs, Runtime
from duet.utils.text import count

NUM_IMAGES = 8
DRAWN_SIDES = (320, 240), (240, 320)  # of images of the built-in dataset
INT8 = "int8"
SCORES, BOXES, MASKS_APART = "scores", "boxes", "1 - IoU of masks"
ALIKE = 0.02  # probabilities of two classes that 8 bits may exchange
UNITS = {BOXES: " px"}


class Tolerance(NamedTuple):
    """How far a file may be from the model."""

    row_scores: float  # scores of any row
    row_pixels: float  # centre and size of any box
    scores: float  # of what is found
    iou: float  # above it, two boxes are one,
    pixels: float  # as they are with sides as close as this: thin boxes hardly overlap
    others: float  # coefficients and prototypes, as a part of the largest of them
    matched: float  # part of what is found that must be found by both
    masks: float = 1.0  # 1 - IoU of all masks together


# Measured on coco256 with the public YOLOv5n at 640 px. In float32 rows differ by up to 1e-5 and
# 0.01 px; another compiler of the same layers may do ten times worse. In float16 it is 0.018 and
# 13 px, of boxes with low scores as wide as the image; what is found differs by up to 0.01 and
# 1.5 px, and overlaps by more than 0.97. Int8 is judged by its figures on --data; right files of
# the public YOLOv5n had 19 of 20 and 31 of 32 detections, ruined ones 0 of 20.
TOLERANCES = {
    "float32": Tolerance(1e-3, 0.1, 1e-3, 0.99, 0.1, 1e-3, 0.98, 0.02),
    "float16": Tolerance(0.1, 64, 0.02, 0.9, 4, 0.1, 0.9, 0.1),
    INT8: Tolerance(1, np.inf, 1, 0.5, 16, np.inf, 0.5),
}


class Trial(NamedTuple):
    """A batch of images of one size, and what the model predicts in them."""

    images: np.ndarray  # (B, 3, H, W) uint8 RGB
    outputs: Outputs  # of a file without NMS, (B, ...) each; boxes in pixels of the images


def chosen_images(samples: Sequence[Sample] | None) -> list[np.ndarray]:
    """Return a few images (H, W, 3) uint8 RGB: evenly out of a split, else of the built-in dataset.

    Those of the built-in dataset are drawn here; nothing is written.
    """
    if samples is None:
        drawn = ((sample_generator(0, 0, i), DRAWN_SIDES[i % 2]) for i in range(NUM_IMAGES))
        return [draw_scene(*each).image[..., ::-1] for each in drawn]
    return list(read_ahead(evenly(samples, NUM_IMAGES)))


def evenly(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Return so many samples at most, evenly chosen from the first to the last."""
    places = np.linspace(0, len(samples) - 1, min(most, len(samples))).round().astype(int)
    return [samples[place] for place in places.tolist()]


def make_trials(model: Detector, images: Sequence[np.ndarray], metadata: Metadata) -> list[Trial]:
    """Return batches of the images, of each size that a file is tried with.

    A dynamic file also gets two other sizes and batches.

    Raises:
        UserError: the model's predictions are not finite, so no file can be compared with them.
    """
    size, number = metadata.image_size, metadata.batch_size
    batches = [fitted(images[i : i + number], size) for i in range(0, len(images), number)]
    if metadata.dynamic:
        stride, (height, width) = metadata.stride, size
        lower = max(stride, height // 2 // stride * stride)
        batches.append(fitted(images[: number + 1], (lower, width)))
        batches.append(fitted(images[: number + 2], (height, width + stride)))
    return [Trial(batch, outputs_of(model, batch)) for batch in batches]


def fitted(images: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """Return images (B, 3, H, W) uint8 of one size, padded as detect.py pads them."""
    placed = [(image, fit_letterbox(image.shape[:2], size)) for image in images]
    padded = [letterbox(image, placement, resize_linear) for image, placement in placed]
    return np.stack(padded).transpose(0, 3, 1, 2)


def outputs_of(model: Detector, images: np.ndarray) -> Outputs:
    """Return what the model predicts in images (B, 3, H, W) uint8; errors as `make_trials`."""
    with autograd.no_grad():
        outputs = exported_outputs(model.head, model(images_to_tensor(images, CPU)))
    found = tuple(map(ops.to_numpy, outputs))
    if not all(np.isfinite(output).all() for output in found):
        raise UserError(
            "the model's predictions are not finite (NaN or infinite); its weights are damaged, or "
            "its training diverged: export an earlier checkpoint"
        )
    return found


def verify(
    runtime: Runtime, expected: Metadata, trials: Sequence[Trial], config: ExportConfig
) -> Comparison:
    """Run a file on the images of the trials and compare with the model; stop at a fault.

    Args:
        expected: the metadata that the file must have.
    """
    result = Comparison(expected, config)
    if runtime.metadata != expected:
        result.fault = f"its metadata is {runtime.metadata}, not {expected}"
        return result
    predictor = ExportedPredictor(runtime)
    for trial in trials:
        found = predictor(network_input(predictor, trial.images, CPU))
        if fault := result.fault_in(trial, found):
            images, (height, width) = count(len(trial.images), "image"), trial.images.shape[2:]
            result.fault = f"in {images} of {width} x {height} px, {fault}"
            return result
    result.fault = result.fault_of_matches()
    return result


class Comparison:
    """How far a file is from the model, over all images.

    Attributes:
        largest: the largest differences by what differs, in the unit of `UNITS`; of rows where the
            file gives them, else of what both find.
        num_found: detections of the model or of the file, or images.
        num_matched: how many of them both have.
        fault: what is beyond the tolerance; "" if nothing is.
    """

    def __init__(self, metadata: Metadata, config: ExportConfig) -> None:
        self._metadata, self._config = metadata, config
        self._tolerance = TOLERANCES[metadata.precision]
        self._columns = 5 + len(metadata.class_names)  # of a row: a box and its classes
        self.largest: dict[str, float] = {}
        self.num_found = self.num_matched = 0
        self.fault = ""

    @property
    def differences(self) -> str:
        parts = (f"{name} {value:.2g}{UNITS.get(name, '')}" for name, value in self.largest.items())
        return ", ".join(parts)

    @property
    def matches(self) -> str:
        things = "image" if self._metadata.output == LOGITS else "detection"
        return f"{self.num_matched:,} of {count(self.num_found, things)}"

    def fault_in(self, trial: Trial, found: Sequence[Outputs]) -> str:
        """Compare what a file predicts in each image of a trial; return what is too far apart."""
        if self._metadata.output == LOGITS:
            return self._compare_logits(trial, found)
        if self._metadata.output in (DETECTIONS, MASKS):
            return self._compare_detections(trial, found)
        return self._compare_rows(trial, found)

    def fault_of_matches(self) -> str:
        """Return in words that a file and the model do not find the same things; else ""."""
        missed, least = self.num_found - self.num_matched, self._tolerance.matched
        if missed <= max(1, (1 - least) * self.num_found):
            return ""
        text = f"only {self.matches} are found by both it and the model"
        return f"{text}; at least {least:.0%} must be"

    def _note(self, name: str, differences: np.ndarray) -> float:
        """Keep the largest difference of a name; return the largest of these, NaN if one is NaN."""
        difference = float(np.abs(differences).max(initial=0))
        self.largest[name] = max(self.largest.get(name, 0.0), difference)
        return difference

    def _compare_rows(self, trial: Trial, outputs: Sequence[Outputs]) -> str:
        """Compare all rows, with masks also the prototypes, then what NMS finds in the rows."""
        rows, *maps = (np.stack(each) for each in zip(*outputs, strict=True))
        ours, *our_maps = trial.outputs
        if rows.shape != ours.shape:
            return f"it predicts rows of shape {rows.shape}, the model {ours.shape}"
        end, tolerance = self._columns, self._tolerance
        for name, columns, most in (
            (SCORES, slice(4, end), tolerance.row_scores),
            (BOXES, slice(0, 4), tolerance.row_pixels),
        ):
            difference = self._note(name, rows[..., columns] - ours[..., columns])
            if not difference <= most:
                text = f"{name} of rows differ by up to {difference:.6g}"
                return f"{text}; at most {most:g} is accepted"
        pairs = zip((rows[..., end:], *maps), (ours[..., end:], *our_maps), strict=True)
        for name, (found, expected) in zip(("coefficients", "prototypes"), pairs, strict=False):
            largest = np.abs(expected).max(initial=np.finfo(np.float32).tiny)
            part = np.abs(found - expected).max(initial=0) / largest
            if not part <= tolerance.others:
                return f"its {name} differ from the model's by up to {part:.2g} of the largest"
        for found, expected in zip(rows, ours, strict=True):
            self._match(self._find(found)[0], self._find(expected)[0])
        return ""

    def _compare_detections(self, trial: Trial, outputs: Sequence[Outputs]) -> str:
        """Compare what a file with NMS finds, with its masks."""
        both = either = 0  # cells of masks
        for index, (output, *masks) in enumerate(outputs):
            if not all(np.isfinite(each).all() for each in (output, *masks)):
                return f"image {index}: the file's outputs are not finite (NaN or infinite)"
            rows, *prototypes = (each[index] for each in trial.outputs)
            expected, place = self._find(rows)
            size = trial.images.shape[2:]
            used = output[:, 4] != 0
            boxes, scores, classes = np.split(output[used], (4, 5), axis=1)
            found = Detections(boxes, scores[:, 0], classes[:, 0].astype(np.int64))
            pairs = self._match(found, expected)
            theirs, ours = found.take(pairs[:, 0]), expected.take(pairs[:, 1])
            self._note(SCORES, theirs.scores - ours.scores)
            self._note(BOXES, theirs.boxes_xyxy - ours.boxes_xyxy)
            if masks:
                height, width = prototypes[0].shape[1:]
                scale = np.array((width, height) * 2) / (size[::-1] * 2)
                at = (ours.boxes_xyxy * scale).astype(np.float32)
                coefficients = rows[place[pairs[:, 1]], self._columns :]
                cells = masks_at(prototypes[0], coefficients, at, (height, width))
                seen = masks[0][used][pairs[:, 0]] > THRESHOLD
                both, either = both + int((seen & cells).sum()), either + int((seen | cells).sum())
        if either and self._note(MASKS_APART, np.array(1 - both / either)) > self._tolerance.masks:
            return f"its masks have an IoU of {both / either:.3f} with the model's"
        return ""

    def _compare_logits(self, trial: Trial, outputs: Sequence[Outputs]) -> str:
        """Compare probabilities and the best class of each image."""
        most = self._tolerance.scores
        for (logits,), expected in zip(outputs, trial.outputs[0], strict=True):
            theirs, ours = probabilities(logits), probabilities(expected)
            self.num_found += 1
            # Two classes may change places if they are as alike as probabilities may differ.
            self.num_matched += int(ours.max() - ours[theirs.argmax()] <= 2 * min(most, ALIKE))
            difference = self._note("probabilities", theirs - ours)
            if not difference <= most:
                text = f"probabilities differ by up to {difference:.6g}"
                return f"{text}; at most {most:g} is accepted"
        return ""

    def _find(self, rows: np.ndarray) -> tuple[Detections, np.ndarray]:
        """Return what NMS finds in the rows (N, 5 + C + M) of one image, and the row of each."""
        settings, top = self._config.suppression, self._config.top_per_class
        rows = np.ascontiguousarray(rows[:, : self._columns])
        if settings.class_agnostic:
            return best_rows(rows, settings)
        # As many as there are, so that those of one class do not keep another's away.
        found, index = best_rows(rows, dataclasses.replace(settings, max_detections=len(rows) or 1))
        of_class = (np.flatnonzero(found.class_index == one) for one in set(found.class_index))
        kept = np.sort(np.concatenate([places[:top] for places in of_class] or [index]))
        kept = kept[: settings.max_detections]
        return found.take(kept), index[kept]

    def _match(self, found: Detections, expected: Detections) -> np.ndarray:
        """Count what both find in an image; return (K, 2) places of the same thing in both."""
        pairs = np.array(list(self._pairs(found, expected)), np.int64).reshape(-1, 2)
        self.num_found += max(len(found.scores), len(expected.scores))
        self.num_matched += len(pairs)
        return pairs

    def _pairs(self, found: Detections, expected: Detections) -> Iterator[tuple[int, int]]:
        """Yield places of the same thing in both, each place once."""
        free = np.ones(len(found.scores), bool)
        overlaps = pairwise_iou(expected.boxes_xyxy, found.boxes_xyxy)
        for place, overlap in enumerate(overlaps):
            distance = np.abs(found.boxes_xyxy - expected.boxes_xyxy[place]).max(axis=1)
            same = (distance <= self._tolerance.pixels) | (overlap > self._tolerance.iou)
            same &= free & (found.class_index == expected.class_index[place])
            same &= np.abs(found.scores - expected.scores[place]) <= self._tolerance.scores
            if same.any():
                best = int(np.where(same, distance, np.inf).argmin())
                free[best] = False
                yield best, place


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits (C,), float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(powers / powers.sum())
