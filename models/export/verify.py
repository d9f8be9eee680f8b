"""Verify that an exported file predicts the same as the model on the same images."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.backend import autograd, ops
from duet.backend.checks import CPU
from duet.models.detector import Detector, images_to_tensor
from duet.models.export.exported import ExportedPredictor, form_of, probabilities
from duet.models.export.raw import maps_by_name
from duet.models.inference.predictors import network_input
from duet.utils.data.image.decoding import decode_bytes
from duet.utils.data.image.header import check_file
from duet.utils.data.image.letterbox import fit_letterbox, letterbox, resize_linear
from duet.utils.data.masks.assemble import THRESHOLD, prototype_masks
from duet.utils.data.randomness import sample_generator
from duet.utils.data.shapes.scene import draw_scene
from duet.utils.data.sources.samples import Sample, read_ahead, read_image_bytes
from duet.utils.errors import UserError
from duet.utils.evaluation.nms import best_rows_of_images
from duet.utils.export.config import ExportConfig
from duet.utils.export.metadata import DETECTIONS, LOGITS, MASKS, RAW, Metadata, Outputs, Runtime
from duet.utils.geometry.boxes import pairwise_iou
from duet.utils.geometry.detections import Detections
from duet.utils.project import PROJECT
from duet.utils.text import count

NUM_IMAGES = 8
PHOTOS = PROJECT / "data" / "images"  # COCO's classes are not in drawn shapes
DRAWN_SIDES = (320, 240), (240, 320)  # image sizes of the built-in dataset
INT8 = "int8"
SCORES, BOXES, MASKS_APART = "scores", "boxes", "1 - IoU of masks"
RELATIVE = "maps, relative"
ALIKE = 0.02  # int8 may swap two classes whose probabilities are this close
UNITS = {BOXES: " px"}
TINY = np.finfo(np.float32).tiny


class Tolerance(NamedTuple):
    row_scores: float  # scores of any row
    row_pixels: float  # centre and size of any box
    scores: float  # scores of detections
    iou: float  # boxes match if their IoU is above this,
    pixels: float  # or if their sides are this close: thin boxes hardly overlap
    others: float  # coefficients and prototypes, relative to the largest
    matched: float  # fraction of detections that both must find
    masks: float = 1.0  # 1 - IoU of all masks together


# Measured on coco256 with the public YOLOv5n at 640 px. In float32 rows differ by up to 1e-5 and
# 0.01 px; another compiler may differ ten times as much. In float16 they differ by 0.018 and 13 px,
# the latter for low-scoring boxes as wide as the image; detections differ by up to 0.01 and 1.5 px,
# with an IoU above 0.97. Int8 is evaluated on --data; correct files of the public YOLOv5n had 19 of
# 20 and 31 of 32 detections, broken ones 0 of 20.
TOLERANCES = {
    "float32": Tolerance(1e-3, 0.1, 1e-3, 0.99, 0.1, 1e-3, 0.98, 0.02),
    "float16": Tolerance(0.1, 64, 0.02, 0.9, 4, 0.1, 0.9, 0.1),
    INT8: Tolerance(1, np.inf, 1, 0.5, 16, np.inf, 0.5),
}


class Trial(NamedTuple):
    """A batch of images of one size, and the model's predictions."""

    images: np.ndarray  # (B, 3, H, W) uint8 RGB
    outputs: Outputs  # like a file without NMS, (B, ...) each; boxes in pixels of the images


def chosen_images(samples: Sequence[Sample] | None) -> list[np.ndarray]:
    """Return a few images (H, W, 3) uint8 RGB, evenly spaced in a split.

    Without one, they are photographs and, drawn in memory, images of the built-in dataset.
    """
    if samples is None:
        photos = [
            decode_bytes(read_image_bytes(path, None), check_file(path).size)[..., ::-1]
            for path in sorted(PHOTOS.glob("*.jpg"))
        ]
        sides = DRAWN_SIDES * NUM_IMAGES
        drawn = ((sample_generator(0, 0, i), sides[i]) for i in range(NUM_IMAGES - len(photos)))
        return [*photos, *(draw_scene(*each).image[..., ::-1] for each in drawn)]
    return list(read_ahead(evenly(samples, NUM_IMAGES)))


def evenly(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Return at most this many samples, evenly spaced from first to last."""
    places = np.linspace(0, len(samples) - 1, min(most, len(samples))).round().astype(int)
    return [samples[place] for place in places.tolist()]


def make_trials(model: Detector, images: Sequence[np.ndarray], metadata: Metadata) -> list[Trial]:
    """Return batches of images, of three sizes if dynamic; UserError for infinite predictions."""
    size, number = metadata.image_size, metadata.batch_size
    batches = [fitted(images[i : i + number], size) for i in range(0, len(images), number)]
    if metadata.dynamic:
        stride, (height, width) = metadata.stride, size
        lower = max(stride, height // 2 // stride * stride)
        batches.append(fitted(images[: number + 1], (lower, width)))
        batches.append(fitted(images[: number + 2], (height, width + stride)))
    return [Trial(batch, outputs_of(model, batch, metadata)) for batch in batches]


def fitted(images: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """Letterbox images to one size as in detect.py, (B, 3, H, W) uint8."""
    placed = [(image, fit_letterbox(image.shape[:2], size)) for image in images]
    padded = [letterbox(image, placement, resize_linear) for image, placement in placed]
    return np.stack(padded).transpose(0, 3, 1, 2)


def outputs_of(model: Detector, images: np.ndarray, metadata: Metadata) -> Outputs:
    """Run the model on images (B, 3, H, W) uint8; errors as `make_trials`."""
    with autograd.no_grad():
        pixels = images_to_tensor(images, CPU)
        if metadata.output == RAW:
            outputs = tuple(maps_by_name(model, pixels, metadata.raw["form"]).values())
        else:
            outputs = form_of(model.head).outputs(model.head, model(pixels))
    found = tuple(map(ops.to_numpy, outputs))
    if not all(np.isfinite(output).all() for output in found):
        raise UserError(
            "the model's predictions are not finite (NaN or infinite): its weights are damaged or "
            "training diverged; export an earlier checkpoint"
        )
    return found


def verify(
    runtime: Runtime, expected: Metadata, trials: Sequence[Trial], config: ExportConfig
) -> Comparison:
    """Run a file on the trials, and compare it and its metadata; stop at the first fault."""
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
    """The differences between a file and the model, over all images."""

    def __init__(self, metadata: Metadata, config: ExportConfig) -> None:
        self._metadata, self._config = metadata, config
        self._tolerance = TOLERANCES[metadata.precision]
        self._columns = 5 + len(metadata.class_names)  # box and classes of a row
        # The largest differences by quantity, in `UNITS`: of rows, else of matching detections.
        self.largest: dict[str, float] = {}
        self.num_found = self.num_matched = 0  # detections of either side, or images
        self.fault = ""  # the difference beyond the tolerance

    @property
    def differences(self) -> str:
        parts = (f"{name} {value:.2g}{UNITS.get(name, '')}" for name, value in self.largest.items())
        return ", ".join(parts)

    @property
    def matches(self) -> str:
        things = "image" if self._metadata.output in (LOGITS, RAW) else "detection"
        return f"{self.num_matched:,} of {count(self.num_found, things)}"

    def fault_in(self, trial: Trial, found: Sequence[Outputs]) -> str:
        """Compare a file's outputs for a trial; return what exceeds the tolerance."""
        if self._metadata.output == LOGITS:
            return self._compare_logits(trial, found)
        if self._metadata.output in (DETECTIONS, MASKS):
            return self._compare_detections(trial, found)
        if self._metadata.output == RAW:
            return self._compare_maps(trial, found)
        return self._compare_rows(trial, found)

    def fault_of_matches(self) -> str:
        """Describe that the file and the model find different objects; "" if they do not."""
        missed, least = self.num_found - self.num_matched, self._tolerance.matched
        if missed <= max(1, (1 - least) * self.num_found):
            return ""
        return f"only {self.matches} match the model's; accepted: at least {least:.0%}"

    def _fault(self, name: str, differences: np.ndarray, most: float) -> str:
        """Update the largest difference of a name; describe one that is above most, or NaN."""
        difference = float(np.abs(differences).max(initial=0))
        self.largest[name] = max(self.largest.get(name, 0.0), difference)
        if difference <= most:
            return ""
        return f"{name} differ by up to {difference:.6g}; accepted: at most {most:g}"

    def _compare_rows(self, trial: Trial, outputs: Sequence[Outputs]) -> str:
        rows, *maps = (np.stack(each) for each in zip(*outputs, strict=True))
        ours, *our_maps = trial.outputs
        if rows.shape != ours.shape:
            return f"it returns rows of shape {rows.shape}, the model {ours.shape}"
        tolerance, end = self._tolerance, self._columns
        for name, columns, most in (
            (SCORES, slice(4, end), tolerance.row_scores),
            (BOXES, slice(0, 4), tolerance.row_pixels),
        ):
            if fault := self._fault(name, rows[..., columns] - ours[..., columns], most):
                return fault
        pairs = zip((rows[..., end:], *maps), (ours[..., end:], *our_maps), strict=True)
        for name, (found, expected) in zip(("coefficients", "prototypes"), pairs, strict=False):
            if maps:
                part = (found - expected) / np.abs(expected).max(initial=TINY)
                if fault := self._fault(name, part, tolerance.others):
                    return fault
        for found, expected in zip(rows, ours, strict=True):
            self._match(self._find(found)[0], self._find(expected)[0])
        return ""

    def _compare_detections(self, trial: Trial, outputs: Sequence[Outputs]) -> str:
        both = either = 0  # cells of masks
        size_wh = trial.images.shape[:1:-1]
        for index, (output, *masks) in enumerate(outputs):
            if not all(np.isfinite(each).all() for each in (output, *masks)):
                return f"image {index}: the file's outputs are not finite (NaN or infinite)"
            rows, *prototypes = (each[index] for each in trial.outputs)
            expected, place = self._find(rows)
            used = output[:, 4] != 0
            boxes, scores, classes = np.split(output[used], (4, 5), axis=1)
            found = Detections(boxes, scores[:, 0], classes[:, 0].astype(np.int64))
            theirs, ours = self._match(found, expected)
            matched = expected.take(ours)
            self._fault(SCORES, found.scores[theirs] - matched.scores, np.inf)
            self._fault(BOXES, found.boxes_xyxy[theirs] - matched.boxes_xyxy, np.inf)
            if masks:
                scale = np.divide(prototypes[0].shape[:0:-1], size_wh)
                at = (matched.boxes_xyxy * (*scale, *scale)).astype(np.float32)
                coefficients = rows[place[ours], self._columns :]
                cells = prototype_masks(prototypes[0], coefficients, at)
                seen = masks[0][used][theirs] > THRESHOLD
                both, either = both + int((seen & cells).sum()), either + int((seen | cells).sum())
        if either and self._fault(MASKS_APART, np.array(1 - both / either), self._tolerance.masks):
            return f"its masks have an IoU of {both / either:.3f} with the model's"
        return ""

    def _compare_maps(self, trial: Trial, outputs: Sequence[Outputs]) -> str:
        """Compare raw maps, relative to the largest value of each."""
        for expected, *images in zip(trial.outputs, *outputs, strict=True):
            part = (np.stack(images) - expected) / np.abs(expected).max(initial=TINY)
            if fault := self._fault(RELATIVE, part, self._tolerance.others):
                return fault
        self.num_found += len(outputs)
        self.num_matched += len(outputs)
        return ""

    def _compare_logits(self, trial: Trial, outputs: Sequence[Outputs]) -> str:
        most = self._tolerance.scores
        for (logits,), expected in zip(outputs, trial.outputs[0], strict=True):
            theirs, ours = probabilities(logits), probabilities(expected)
            self.num_found += 1
            # Two classes may swap if they are as close as probabilities may differ.
            self.num_matched += int(ours.max() - ours[theirs.argmax()] <= 2 * min(most, ALIKE))
            if fault := self._fault("probabilities", theirs - ours, most):
                return fault
        return ""

    def _find(self, rows: np.ndarray) -> tuple[Detections, np.ndarray]:
        """Return the detections in rows (N, 5 + C + M) of an image, and the row of each."""
        settings, seen = self._config.suppression, Counter[int]()
        most = len(rows) if settings.class_agnostic else self._config.top_per_class
        # No limit at first, so that no class displaces another.
        unlimited = dataclasses.replace(settings, max_detections=len(rows) or 1)
        own = np.ascontiguousarray(rows[:, : self._columns])
        ((found, index),) = best_rows_of_images([own], unlimited)
        kept = []
        for place, number in enumerate(found.class_index.tolist()):
            seen[number] += 1
            kept += [place] if seen[number] <= most else []
        chosen = np.array(kept[: settings.max_detections], np.int64)
        return found.take(chosen), index[chosen]

    def _match(self, found: Detections, expected: Detections) -> tuple[np.ndarray, np.ndarray]:
        """Match the detections in an image; return the indices of each pair, (K,) and (K,)."""
        tolerance, pairs = self._tolerance, []
        free = np.ones(len(found.scores), bool)
        for place, overlap in enumerate(pairwise_iou(expected.boxes_xyxy, found.boxes_xyxy)):
            distance = np.abs(found.boxes_xyxy - expected.boxes_xyxy[place]).max(axis=1)
            same = (distance <= tolerance.pixels) | (overlap > tolerance.iou)
            same &= free & (found.class_index == expected.class_index[place])
            same &= np.abs(found.scores - expected.scores[place]) <= tolerance.scores
            if same.any():
                best = int(np.where(same, distance, np.inf).argmin())
                free[best] = False
                pairs.append((best, place))
        self.num_found += max(len(found.scores), len(expected.scores))
        self.num_matched += len(pairs)
        theirs, ours = np.array(pairs, np.int64).reshape(-1, 2).T
        return theirs, ours
