"""An exported file, run in its runtime, must predict what the model does in the same images."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from backend import autograd, ops
from backend.checks import CPU
from backend.words import count
from models.detector import Detector, images_to_tensor
from models.inference.exported import ExportedPredictor
from models.inference.protocol import network_input
from utils.boxes import clip_boxes, pairwise_iou
from utils.cli.export_config import ExportConfig
from utils.data.image.letterbox import Letterbox, fit_letterbox, letterbox, resize_to_detect
from utils.data.loading.reading import read_ahead
from utils.data.randomness import sample_generator
from utils.data.shapes.scene import draw_scene
from utils.data.sources.samples import Sample
from utils.detections import Detections
from utils.errors import UserError
from utils.evaluation.nms import best_rows
from utils.export.metadata import DETECTIONS, LOGITS, MASK_ROWS, MASKS, PIXELS, ROWS, Metadata
from utils.export.outputs import Outputs, Runtime
from utils.masks.assemble import THRESHOLD, masks_at

NUM_IMAGES = 8
# Times the network's size: `resize_to_detect` interpolates up to 2, and averages above it.
LARGER = 1.5, 2.5
DRAWN_SIDES = (320, 240), (240, 320)  # of images of the built-in dataset
INT8 = "int8"
FEW = 10  # detections, of which 8 bits may lose any by chance
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
# Of a file that resizes images. Grey levels are rounded otherwise than by OpenCV, which moves rows
# by up to 0.054 and 16 px, and what is found by 0.02 and an overlap of 0.9.
RESIZED = Tolerance(0.3, np.inf, 0.05, 0.8, 8, np.inf, 0.9)


class Trial(NamedTuple):
    """A batch of images of one size, and what the model predicts in them."""

    images: np.ndarray  # (B, 3, H, W) uint8 RGB
    outputs: Outputs  # of a file without NMS, (B, ...) each; boxes in pixels of the images
    is_resized: bool = False  # by the file itself, which rounds grey levels in its own way


def chosen_images(samples: Sequence[Sample] | None) -> list[np.ndarray]:
    """Return a few images (H, W, 3) uint8 RGB: evenly out of a split, else of the built-in dataset.

    Those of the built-in dataset are drawn here; nothing is written.
    """
    if samples is None:
        drawn = ((sample_generator(0, 0, i), DRAWN_SIDES[i % 2]) for i in range(NUM_IMAGES))
        return [draw_scene(*each).image[..., ::-1] for each in drawn]
    places = np.linspace(0, len(samples) - 1, min(NUM_IMAGES, len(samples))).round().astype(int)
    return list(read_ahead([samples[place] for place in places.tolist()]))


def make_trials(model: Detector, images: Sequence[np.ndarray], metadata: Metadata) -> list[Trial]:
    """Return batches of the images, of each size that a file is tried with.

    A file that resizes images gets them in the size of its network, which it leaves as they are,
    and then as they were, and larger than that size.

    Raises:
        UserError: the model's predictions are not finite, so no file can be compared with them.
    """
    trials = [Trial(batch, outputs_of(model, batch)) for batch in batches(images, metadata)]
    if metadata.image != PIXELS:
        return trials
    size = metadata.image_size
    for image in (*images, *(enlarged(images[0], size, times) for times in LARGER)):
        (rows,) = outputs_of(model, fitted([image], size))
        rows = rows_in_image(rows, fit_letterbox(image.shape[:2], size))
        trials.append(Trial(image.transpose(2, 0, 1)[None], (rows,), is_resized=True))
    return trials


def batches(images: Sequence[np.ndarray], metadata: Metadata) -> Iterator[np.ndarray]:
    """Yield images in the file's size and batch; of a dynamic file also in two others."""
    size = metadata.batch_size
    for start in range(0, len(images), size):
        yield fitted(images[start : start + size], metadata.image_size)
    if metadata.dynamic:
        stride, (height, width) = metadata.stride, metadata.image_size
        yield fitted(images[: size + 1], (max(stride, height // 2 // stride * stride), width))
        yield fitted(images[: size + 2], (height, width + stride))


def fitted(images: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """Return images (B, 3, H, W) uint8 of one size, padded as detect.py pads them."""
    placed = [(image, fit_letterbox(image.shape[:2], size)) for image in images]
    padded = [letterbox(image, placement, resize_to_detect) for image, placement in placed]
    return np.stack(padded).transpose(0, 3, 1, 2)


def enlarged(image: np.ndarray, size: tuple[int, int], times: float) -> np.ndarray:
    """Return an image (H, W, 3) so large that it exceeds (height, width) these times."""
    sides = np.array(image.shape[:2])
    height, width = np.ceil(sides * min(size / sides) * times).astype(int).tolist()
    return resize_to_detect(image, (height, width))


def outputs_of(model: Detector, images: np.ndarray) -> Outputs:
    """Return what the model predicts in images (B, 3, H, W) uint8; errors as above."""
    with autograd.no_grad():
        outputs = model.head.exported(model(images_to_tensor(images, CPU)))
    found = tuple(map(ops.to_numpy, outputs))
    if not all(np.isfinite(output).all() for output in found):
        raise UserError(
            "the model's predictions are not finite (NaN or infinite); its weights are damaged, or "
            "its training diverged: export an earlier checkpoint"
        )
    return found


def rows_in_image(rows: np.ndarray, placement: Letterbox) -> np.ndarray:
    """Map the boxes of rows (..., 5 + C) from the network's input to pixels of the image."""
    (top, left), (vertical, horizontal) = placement.padding, placement.scale
    mapped = rows.copy()
    mapped[..., :2] -= np.array([left, top], np.float32)
    mapped[..., :4] /= np.array([horizontal, vertical, horizontal, vertical], np.float32)
    return mapped


@dataclass
class Verified:
    """How far a file is from the model, over all images.

    Attributes:
        largest: the largest differences by what differs, in the unit of `UNITS`; of rows where the
            file gives them, else of what both find.
        num_found: detections of the model or of the file, or images.
        num_matched: how many of them both have.
        things: what they are.
        fault: what is beyond the tolerance; "" if nothing is.
    """

    largest: dict[str, float] = field(default_factory=dict)
    num_found: int = 0
    num_matched: int = 0
    things: str = "detection"
    fault: str = ""

    def note(self, name: str, differences: np.ndarray) -> float:
        """Keep the largest difference of a name; return the largest of these, NaN if one is NaN."""
        difference = float(np.abs(differences).max(initial=0))
        self.largest[name] = max(self.largest.get(name, 0.0), difference)
        return difference

    @property
    def differences(self) -> str:
        parts = (f"{name} {value:.2g}{UNITS.get(name, '')}" for name, value in self.largest.items())
        return ", ".join(parts)

    @property
    def matches(self) -> str:
        return f"{self.num_matched:,} of {count(self.num_found, self.things)}"


def verify(
    runtime: Runtime, expected: Metadata, trials: Sequence[Trial], config: ExportConfig
) -> Verified:
    """Run a file on the images of the trials and compare with the model; stop at a fault.

    Args:
        expected: the metadata that the file must have.
    """
    result = Verified()
    if runtime.metadata != expected:
        result.fault = f"its metadata is {runtime.metadata}, not {expected}"
        return result
    tolerance = TOLERANCES[expected.precision]
    for trial in trials:
        if trial.is_resized:
            tolerance = max(tolerance, RESIZED)  # the first number decides
        batch = Batch(trial, predict(runtime, trial.images), expected, config, tolerance, result)
        if fault := COMPARISONS[expected.output](batch):
            images, (height, width) = count(len(trial.images), "image"), trial.images.shape[2:]
            result.fault = f"in {images} of {width} x {height} px, {fault}"
            return result
    result.fault = fault_of_matches(result, expected.precision, tolerance.matched)
    return result


def predict(runtime: Runtime, images: np.ndarray) -> list[Outputs]:
    """Return what a file predicts in each of the images (B, 3, H, W) uint8."""
    predictor = ExportedPredictor(runtime)
    return predictor(network_input(predictor, images, CPU))


def fault_of_matches(result: Verified, precision: str, least: float) -> str:
    """Return in words that a file and the model do not find the same things; else ""."""
    missed = result.num_found - result.num_matched
    few = FEW - 1 if precision == INT8 and result.num_found < FEW else 1  # a close call
    if missed <= max(few, (1 - least) * result.num_found):
        return ""
    return f"only {result.matches} are found by both it and the model; at least {least:.0%} must be"


class Batch(NamedTuple):
    """What a file predicts in the images of a trial, and how far it may be from the model."""

    trial: Trial
    found: Sequence[Outputs]  # of each image, without the batch
    metadata: Metadata
    config: ExportConfig
    tolerance: Tolerance
    result: Verified  # takes the differences

    @property
    def columns(self) -> int:
        """Of a row, those of a box and its classes."""
        return 5 + len(self.metadata.class_names)

    def find(self, rows: np.ndarray) -> tuple[Detections, np.ndarray]:
        """Return what NMS finds in the rows (N, 5 + C + M) of one image, and the row of each."""
        settings, top = self.config.suppression, self.config.top_per_class
        rows = np.ascontiguousarray(rows[:, : self.columns])
        if settings.class_agnostic:
            return best_rows(rows, settings)
        # As many as there are, so that those of one class do not keep another's away.
        found, index = best_rows(rows, dataclasses.replace(settings, max_detections=len(rows) or 1))
        of_class = (np.flatnonzero(found.class_index == one) for one in set(found.class_index))
        kept = np.sort(np.concatenate([places[:top] for places in of_class] or [index]))
        kept = kept[: settings.max_detections]
        return found.take(kept), index[kept]

    def match(self, found: Detections, expected: Detections) -> np.ndarray:
        """Count and note what both find in an image; return (K, 2) places in both of them."""
        pairs = np.array(list(self._pairs(found, expected)), np.int64).reshape(-1, 2)
        self.result.num_found += max(len(found.scores), len(expected.scores))
        self.result.num_matched += len(pairs)
        if self.metadata.output in (DETECTIONS, MASKS):
            theirs, ours = found.take(pairs[:, 0]), expected.take(pairs[:, 1])
            self.result.note(SCORES, theirs.scores - ours.scores)
            self.result.note(BOXES, theirs.boxes_xyxy - ours.boxes_xyxy)
        return pairs

    def _pairs(self, found: Detections, expected: Detections) -> Iterator[tuple[int, int]]:
        """Yield places of the same thing in both, each place once."""
        free = np.ones(len(found.scores), bool)
        overlaps = pairwise_iou(expected.boxes_xyxy, found.boxes_xyxy)
        for place, overlap in enumerate(overlaps):
            distance = np.abs(found.boxes_xyxy - expected.boxes_xyxy[place]).max(axis=1)
            same = (distance <= self.tolerance.pixels) | (overlap > self.tolerance.iou)
            same &= free & (found.class_index == expected.class_index[place])
            same &= np.abs(found.scores - expected.scores[place]) <= self.tolerance.scores
            if same.any():
                best = int(np.where(same, distance, np.inf).argmin())
                free[best] = False
                yield best, place


def compare_rows(batch: Batch) -> str:
    """Compare all rows, then what NMS finds in them; return what is too far apart.

    Of a model with masks also coefficients and prototypes.
    """
    rows, *maps = (np.stack(each) for each in zip(*batch.found, strict=True))
    ours, *our_maps = batch.trial.outputs
    if rows.shape != ours.shape:
        return f"it predicts rows of shape {rows.shape}, the model {ours.shape}"
    end, tolerance = batch.columns, batch.tolerance
    for name, columns, most in (
        (SCORES, slice(4, end), tolerance.row_scores),
        (BOXES, slice(0, 4), tolerance.row_pixels),
    ):
        difference = batch.result.note(name, rows[..., columns] - ours[..., columns])
        if not difference <= most:
            return f"{name} of rows differ by up to {difference:.6g}; at most {most:g} is accepted"
    pairs = zip((rows[..., end:], *maps), (ours[..., end:], *our_maps), strict=True)
    for name, (found, expected) in zip(("coefficients", "prototypes"), pairs, strict=False):
        largest = np.abs(expected).max(initial=np.finfo(np.float32).tiny)
        part = np.abs(found - expected).max(initial=0) / largest
        if not part <= tolerance.others:
            return f"its {name} differ from the model's by up to {part:.2g} of the largest"
    for found, expected in zip(rows, ours, strict=True):
        batch.match(batch.find(found)[0], batch.find(expected)[0])
    return ""


def compare_detections(batch: Batch) -> str:
    """Compare what a file with NMS finds, with its masks; return what is too far apart."""
    both = either = 0  # cells of masks
    for index, (output, *masks) in enumerate(batch.found):
        if not all(np.isfinite(each).all() for each in (output, *masks)):
            return f"image {index}: the file's outputs are not finite (NaN or infinite)"
        rows, *prototypes = (each[index] for each in batch.trial.outputs)
        expected, place = batch.find(rows)
        if batch.metadata.image == PIXELS:  # its boxes end at the image's edges
            size = batch.trial.images.shape[2:]
            expected = expected._replace(boxes_xyxy=clip_boxes(expected.boxes_xyxy, size))
        used = output[:, 4] != 0
        boxes, scores, classes = np.split(output[used], (4, 5), axis=1)
        found = Detections(boxes, scores[:, 0], classes[:, 0].astype(np.int64))
        pairs = batch.match(found, expected)
        if masks:
            theirs = masks[0][used][pairs[:, 0]] > THRESHOLD
            ours = our_masks(batch, expected, rows[place], prototypes[0])[pairs[:, 1]]
            both, either = both + int((theirs & ours).sum()), either + int((theirs | ours).sum())
    if (
        either
        and batch.result.note(MASKS_APART, np.array(1 - both / either)) > batch.tolerance.masks
    ):
        return f"its masks have an IoU of {both / either:.3f} with the model's"
    return ""


def our_masks(
    batch: Batch, found: Detections, rows: np.ndarray, prototypes: np.ndarray
) -> np.ndarray:
    """Return the model's masks (K, h, w) bool of detections, at the size of the prototypes."""
    height, width = prototypes.shape[1:]
    size = np.array((width, height) * 2) / (batch.trial.images.shape[:1:-1] * 2)
    boxes = (found.boxes_xyxy * size).astype(np.float32)
    return masks_at(prototypes, rows[:, batch.columns :], boxes, (height, width))


def compare_logits(batch: Batch) -> str:
    """Compare probabilities and the best class of each image; return what is too far apart."""
    result, most = batch.result, batch.tolerance.scores
    result.things = "image"
    for (logits,), expected in zip(batch.found, batch.trial.outputs[0], strict=True):
        theirs, ours = probabilities(logits), probabilities(expected)
        result.num_found += 1
        # Two classes may change places if they are as alike as probabilities may differ.
        result.num_matched += int(ours.max() - ours[theirs.argmax()] <= 2 * min(most, ALIKE))
        difference = result.note("probabilities", theirs - ours)
        if not difference <= most:
            return f"probabilities differ by up to {difference:.6g}; at most {most:g} is accepted"
    return ""


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the softmax of logits (C,), float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(powers / powers.sum())


# By the kind of output: notes how far a batch is from the model, and returns what is too far.
COMPARISONS: dict[str, Callable[[Batch], str]] = {
    ROWS: compare_rows,
    MASK_ROWS: compare_rows,
    DETECTIONS: compare_detections,
    MASKS: compare_detections,
    LOGITS: compare_logits,
}
