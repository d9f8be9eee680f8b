"""The built-in dataset of classification: one shape per image, in folders named for the classes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from utils.data.randomness import sample_generator
from utils.data.shapes.dataset import draw_once, random_size, write_jpeg
from utils.data.shapes.scene import OUTLINES, draw_one_shape

_VERSION = 1  # of the drawing
HUES = {"cold": (80, 130), "warm": (-20, 30)}  # of OpenCV's 180: green to blue, red to yellow


class ShapeClass(NamedTuple):
    """A class: a shape in warm or cold colours. A model needs both to tell it."""

    colour: str  # of HUES
    shape: str  # of OUTLINES

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"


CLASSES = [ShapeClass(colour, shape) for colour in HUES for shape in sorted(OUTLINES)]


@dataclass(frozen=True)
class ClassShapesConfig:
    """What is drawn; each class is in all images equally often."""

    num_train: int = 1000
    num_val: int = 200
    image_side: int = 96  # pixels; height and width vary by a quarter around it
    seed: int = 0


_DEFAULTS = ClassShapesConfig()


def draw_class_dataset(folder: Path, config: ClassShapesConfig = _DEFAULTS) -> Path:
    """Draw the dataset unless it is there already, as `draw_dataset`; return its YAML's path."""
    recipe = {"classes_version": _VERSION, **dataclasses.asdict(config)}
    document = {"train": "train", "val": "val", "drawn": recipe}
    return draw_once(folder / "shapes-cls.yaml", document, config, partial(_draw_one, config))


def _draw_one(config: ClassShapesConfig, folder: Path, index: int, split: str) -> None:
    generator = sample_generator(config.seed, 1, index)  # epoch 0 are the images of detection
    size = random_size(generator, config.image_side)
    drawn = CLASSES[index % len(CLASSES)]
    image = draw_one_shape(generator, size, OUTLINES[drawn.shape], HUES[drawn.colour])
    write_jpeg(folder / split / drawn.name / f"{index:05d}.jpg", image)
