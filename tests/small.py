"""Datasets and models small enough for a test to train on either backend, and their weights.

The weights find something in any image with some structure.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import yaml

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset
from duet.utils.weights.checkpoint import Checkpoint, Header, save_checkpoint

SMALL_SHAPES = ShapesConfig(num_train=12, num_val=6, image_side=64)

# Of detection's results.csv.
RESULT_COLUMNS = (
    "epoch", "train/box_loss", "train/obj_loss", "train/cls_loss",
    "metrics/precision", "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95",
    "val/box_loss", "val/obj_loss", "val/cls_loss", "x/lr0", "x/lr1", "x/lr2", "seconds/epoch",
    "seconds/data_wait", "seconds/to_device", "seconds/forward", "seconds/loss",
    "seconds/backward", "seconds/optimizer", "seconds/ema", "seconds/validation",
)  # fmt: skip

TINY = """
nc: 5
depth_multiple: 1.0
width_multiple: 1.0
anchors: [[10, 13, 16, 30, 33, 23], [30, 61, 62, 45, 59, 119]]
backbone:
  - [-1, 1, Conv, [8, 6, 4, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, C3, [16]]
  - [-1, 1, Conv, [16, 3, 2]]
head:
  - [[2, 3], 1, Detect, [nc, anchors]]
"""

TINY_SEGMENTER = TINY.replace("Detect, [nc, anchors]", "Segment, [nc, anchors, 6, 64]")

TINY_ANCHOR_FREE = TINY.replace("Detect, [nc, anchors]", "DetectAnchorFree, [nc]")

TINY_CLASSIFIER = """
nc: 3
depth_multiple: 1.0
width_multiple: 1.0
backbone:
  - [-1, 1, Conv, [8, 6, 4, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
head:
  - [-1, 1, Classify, [nc]]
"""
COLOURS = ("blue", "green", "red")
COLOUR_SIDE = 40  # pixels


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def write_small_dataset(folder: Path, class_names: Sequence[str] = ()) -> Path:
    """Draw a few small images of shapes, with other class names if given; return the YAML."""
    return with_names(draw_dataset(folder / "shapes", SMALL_SHAPES), class_names)


def with_names(data: Path, class_names: Sequence[str]) -> Path:
    """Give a dataset YAML other class names, unless there are none; return it."""
    document = yaml.safe_load(data.read_text(encoding="utf-8"))
    names = list(class_names) or document["names"]
    return written(data, yaml.safe_dump({**document, "names": names}))


def write_outlined_dataset(folder: Path) -> Path:
    """Draw the images of the small dataset with outlines as labels; return its YAML."""
    config = dataclasses.replace(SMALL_SHAPES, outlines=True)
    return draw_dataset(folder / "outlines", config)


def write_small_model(folder: Path, name: str = "yolov5n") -> Path:
    """Write a YOLOv5 of an eighth of the width; return its YAML."""
    document = yaml.safe_load(Path(f"models/{name}.yaml").read_text(encoding="utf-8"))
    path = folder / f"narrow{name.removeprefix('yolov5n')}.yaml"
    return written(path, yaml.safe_dump({**document, "width_multiple": 0.125}))


def write_tiny_model(folder: Path) -> Path:
    """Write the smallest detector with every kind of tensor of a YOLOv5; return its YAML."""
    return written(folder / "tiny.yaml", TINY)


def write_tiny_anchor_free(folder: Path) -> Path:
    """Write the smallest detector without anchors; return its YAML."""
    lines = [line for line in TINY_ANCHOR_FREE.splitlines() if not line.startswith("anchors")]
    return written(folder / "tiny-free.yaml", "\n".join(lines))


def write_segmenter_yaml(folder: Path) -> Path:
    """Write the smallest model of masks; return its YAML."""
    return written(folder / "tiny-seg.yaml", TINY_SEGMENTER)


def write_class_folders(
    folder: Path, train: int = 12, val: int = 6, names: Sequence[str] = COLOURS
) -> Path:
    """Draw noise of one of three colours for each class in turn; return the folder."""
    for split, number in (("train", train), ("val", val)):
        for index in range(number):
            random = np.random.default_rng((len(split), index))
            image = random.integers(0, 128, (COLOUR_SIDE, COLOUR_SIDE + 8, 3), np.uint8)
            image[..., index % len(COLOURS)] += 127
            path = folder / split / names[index % len(names)] / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), image)
    return folder


def write_classifier_yaml(folder: Path) -> Path:
    """Write the smallest classifier; return its YAML."""
    return written(folder / "tiny-cls.yaml", TINY_CLASSIFIER)


# Weights.

CLASS_NAMES = ("circle", "square", "star", "étoile", "三角")
STRIDE = 16
SCORE_GAIN = 2000  # without it all scores are nearly a quarter
BOX_GAIN = 100  # without it all boxes of an anchor have one size


def tiny_checkpoint(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights whose scores lie far apart, by what an image shows."""
    model = initial_model(write_tiny_model(folder), seed)
    gains = [BOX_GAIN] * 4 + [SCORE_GAIN] * (1 + len(CLASS_NAMES))
    arrays = with_gains(model, gains)
    return untrained(model, CLASS_NAMES, arrays)


def initial_model(path: Path, seed: int, num_classes: int | None = None) -> Detector:
    """Return a new model of a YAML."""
    model = Detector(read_model_yaml(path, num_classes))
    model.initialize(seed)
    return model


def with_gains(model: Detector, gains: Sequence[float]) -> dict[str, np.ndarray]:
    """Return the arrays of a model of three anchors a cell, each output times its gain.

    gains: of the outputs of an anchor; biases become 0.
    """
    arrays = nn.state_arrays(model)
    gain = np.array([*gains] * 3, np.float32)[:, None, None, None]
    for name in arrays:
        if name.startswith(f"{model.head_name}m."):
            arrays[name] = arrays[name] * (gain if name.endswith(".weight") else np.float32(0))
    return arrays


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> Path:
    save_checkpoint(path, checkpoint)
    return path


def untrained(
    model: Detector, class_names: Sequence[str], arrays: dict[str, np.ndarray] | None = None
) -> Checkpoint:
    """Return a checkpoint of a model that nobody has trained, with its arrays or others."""
    header = Header(model.spec.document, tuple(class_names))
    arrays = nn.state_arrays(model) if arrays is None else arrays
    return Checkpoint(header, arrays, arrays, {})


def with_trained_size(checkpoint: Checkpoint, size: object) -> Checkpoint:
    """Return the checkpoint as if it had been trained with images of this size; None: unknown."""
    header = dataclasses.replace(checkpoint.header, settings={"image_size": size} if size else {})
    return dataclasses.replace(checkpoint, header=header)


def write_tiny_weights(folder: Path, seed: int = 0, trained_size: int | None = None) -> Path:
    """Write such weights; return their file."""
    checkpoint = with_trained_size(tiny_checkpoint(folder, seed), trained_size)
    return write_checkpoint(folder / f"tiny{seed}.safetensors", checkpoint)


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return an image (H, W, 3) uint8 of coloured blocks."""
    blocks = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    rows, columns = np.arange(height) * 8 // height, np.arange(width) * 8 // width
    return np.ascontiguousarray(blocks[rows][:, columns])


MASK_GAIN = 3000  # without it no place is surer than another
CLASS_GAIN = 20_000  # without it all classes are nearly a fifth
EDGE_GAIN, FREE_SCORE_GAIN = 10_000, 15_000  # for boxes of many sizes, and scores far apart
NUM_MASKS = 4
SEGMENTER = TINY.replace("Detect, [nc, anchors]", f"Segment, [nc, anchors, {NUM_MASKS}, 8]")
CLASSIFIER = TINY_CLASSIFIER.replace("head", "  - [-1, 1, C3, [16]]\nhead").replace(": 3", ": 5")


def tiny_segmenter(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights whose masks have edges within their boxes, which are large."""
    model = initial_model(written(folder / "tiny-seg.yaml", SEGMENTER), seed)
    gains = [BOX_GAIN] * 4 + [SCORE_GAIN] * (1 + len(CLASS_NAMES)) + [MASK_GAIN] * NUM_MASKS
    arrays = with_gains(model, gains)
    name = f"{model.head_name}proto.cv3.conv.weight"
    arrays[name] = arrays[name] * np.float32(MASK_GAIN)
    return untrained(model, CLASS_NAMES, arrays)


def tiny_anchor_free(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights of the smallest detector without anchors, whose scores lie far apart."""
    model = initial_model(write_tiny_anchor_free(folder), seed)
    arrays = nn.state_arrays(model)
    for branch, gain in (("cv2", EDGE_GAIN), ("cv3", FREE_SCORE_GAIN)):
        for level in range(len(model.head.strides)):
            prefix = f"{model.head_name}{branch}.{level}.2."
            arrays[f"{prefix}weight"] = arrays[f"{prefix}weight"] * np.float32(gain)
            arrays[f"{prefix}bias"] = arrays[f"{prefix}bias"] * np.float32(0)
    return untrained(model, CLASS_NAMES, arrays)


def tiny_classifier(folder: Path, seed: int = 0) -> Checkpoint:
    """Return weights whose best class depends on the image."""
    model = initial_model(written(folder / "tiny-cls.yaml", CLASSIFIER), seed)
    arrays = nn.state_arrays(model)
    name = f"{model.head_name}linear.weight"
    arrays[name] = arrays[name] * np.float32(CLASS_GAIN)
    return untrained(model, CLASS_NAMES, arrays)


def write_tiny_segmenter(folder: Path, seed: int = 0) -> Path:
    """Write such weights; return their file."""
    return write_checkpoint(folder / f"segmenter{seed}.safetensors", tiny_segmenter(folder, seed))


def write_tiny_free_weights(folder: Path, seed: int = 0) -> Path:
    """Write such weights; return their file."""
    path = folder / f"free{seed}.safetensors"
    return write_checkpoint(path, tiny_anchor_free(folder, seed))


def write_tiny_classifier(folder: Path, trained_at: int | None = None, seed: int = 0) -> Path:
    """Write such weights; return their file.

    trained_at: the size of the images that their header tells.
    """
    weights = with_trained_size(tiny_classifier(folder, seed), trained_at)
    return write_checkpoint(folder / f"classifier{seed}.safetensors", weights)


def with_polygons(data: Path) -> None:
    """Make a diamond of each second box of a dataset."""
    for path in (data.parent / "labels").glob("*/*.txt"):
        lines = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
            label, *box = line.split()
            x, y, width, height = map(float, box)
            corners = np.array([[0, -height], [width, 0], [0, height], [-width, 0]]) / 2 + [x, y]
            corners = " ".join(f"{value:.6f}" for value in corners.clip(0, 1).ravel())
            lines.append(f"{label} {corners}" if number % 2 else line)
        path.write_text("\n".join(lines), encoding="utf-8")
