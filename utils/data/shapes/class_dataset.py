"""The built-in dataset of classification: one shape per image, in folders named for the classes.

Before: `sources/dataset.py`. After: `sources/class_folders.py`, which reads it like any other.
"""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from utils.data.randomness import sample_generator
from utils.data.shapes.dataset import draw_once, write_jpeg
from utils.data.shapes.scene import OUTLINES, draw_one_shape
from utils.files.yaml import write_yaml

YAML_NAME = "shapes-cls.yaml"
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
    """Draw the dataset unless it is there already, and return the path of its YAML.

    Raises:
        DatasetError: the folder cannot be written, or holds something else.
    """
    recipe = {"classes_version": _VERSION, **dataclasses.asdict(config)}
    return draw_once(folder / YAML_NAME, recipe, partial(_draw, config=config, recipe=recipe))


def _draw(folder: Path, config: ClassShapesConfig, recipe: dict[str, int]) -> None:
    splits = ["train"] * config.num_train + ["val"] * config.num_val
    for split in ("train", "val"):
        for each in CLASSES:
            (folder / split / each.name).mkdir(parents=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # As a list, so that a failure is raised here.
        list(pool.map(lambda item: _draw_one(folder, config, *item), enumerate(splits)))
    # Of its folders, whose names are the classes.
    write_yaml(folder / YAML_NAME, {"train": "train", "val": "val", "drawn": recipe})


def _draw_one(folder: Path, config: ClassShapesConfig, index: int, split: str) -> None:
    generator = sample_generator(config.seed, 1, index)  # epoch 0 are the images of detection
    height, width = (config.image_side * (0.75 + 0.5 * generator.random(2))).astype(int).tolist()
    drawn = CLASSES[index % len(CLASSES)]
    outline, hue = OUTLINES[drawn.shape], HUES[drawn.colour]
    image = draw_one_shape(generator, (height, width), outline, hue)
    write_jpeg(folder / split / drawn.name / f"{index:05d}.jpg", image)
