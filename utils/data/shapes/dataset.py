"""The built-in datasets: drawn into a folder on first use, in the layout of any other dataset.

`shapes` has boxes, `shapes-seg` the same images with outlines, and `shapes-cls` one shape per image
in folders named for the classes.
"""

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from duet.utils.data.randomness import sample_generator
from duet.utils.data.shapes.scene import (
    OUTLINES,
    Scene,
    draw_one_shape,
    draw_scene,
    visible_outlines,
)
from duet.utils.errors import DatasetError, UserError, brief
from duet.utils.files.atomic import new_folder
from duet.utils.files.json_files import Document
from duet.utils.files.yaml_files import read_yaml, write_yaml
from duet.utils.geometry.boxes import xyxy_to_cxcywh

YAML_NAME = "shapes.yaml"
_VERSION = 1  # version of the drawing code; sets of different versions are never mixed
_CLASSES_VERSION = 1  # likewise, of the set for classification
_JPEG_QUALITY = 92
HUES = {"cold": (80, 130), "warm": (-20, 30)}  # OpenCV hues, 0 to 180: green to blue, red to yellow
# A class is a shape in warm or cold colours, by its name. A model needs both to recognise it.
CLASSES = {
    f"{colour} {shape}": (OUTLINES[shape], hue)
    for colour, hue in HUES.items()
    for shape in sorted(OUTLINES)
}


@dataclass(frozen=True)
class ShapesConfig:
    num_train: int = 400
    num_val: int = 100
    image_side: int = 320  # pixels; height and width vary by a quarter around it
    seed: int = 0
    outlines: bool = False  # labels are polygons instead of boxes


_DEFAULTS = ShapesConfig()
_CLASS_DEFAULTS = ShapesConfig(num_train=1000, num_val=200, image_side=96)


def draw_dataset(folder: Path, config: ShapesConfig = _DEFAULTS) -> Path:
    """Draw the dataset unless it is there already, and return the path of its YAML.

    DatasetError: the folder cannot be written, or holds something else.
    """
    recipe: dict[str, object] = {"version": _VERSION, **dataclasses.asdict(config)}
    if not config.outlines:
        del recipe["outlines"]  # sets of boxes were drawn before there were any
    document = {
        "path": ".",
        "train": "images/train",
        "val": "images/val",
        "names": dict(enumerate(OUTLINES)),
        "drawn": recipe,
    }
    return _draw_once(folder / YAML_NAME, document, config, partial(_draw_one, config))


def _draw_once(
    yaml: Path,
    document: Document,
    config: ShapesConfig,
    draw: Callable[[Path, int, str], None],
) -> Path:
    """Return the YAML of a dataset; draw it into its folder, as a whole, unless it is there.

    Args:
        document: content of the YAML; `drawn` defines the images.
        config: has the number of images of each split.
        draw: draws an image into a folder, from its number over both splits and its split.
    """
    folder = yaml.parent
    if not folder.exists():
        splits = ["train"] * config.num_train + ["val"] * config.num_val
        try:
            with new_folder(folder, "built-in dataset") as drawn:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    # list() raises a failure here.
                    list(pool.map(lambda item: draw(drawn, *item), enumerate(splits)))
                write_yaml(drawn / yaml.name, document)
        except DatasetError:
            if not folder.exists():  # else another process was faster
                raise
    try:
        found = read_yaml("--data", yaml, "").get("drawn")
    except UserError:
        found = None
    if found != document["drawn"]:
        raise DatasetError(
            f"{folder} is in the way of the built-in dataset: it was drawn as {brief(found)}, "
            f"needed is {document['drawn']}; move it away, and it is drawn again"
        )
    return yaml


def _random_size(generator: np.random.Generator, side: int) -> tuple[int, int]:
    """Draw (height, width), each up to a quarter smaller or larger than a side."""
    height, width = (side * (0.75 + 0.5 * generator.random(2))).astype(int).tolist()
    return height, width


def draw_file(config: ShapesConfig, index: int) -> Scene:
    """Return image `index` of a dataset, counted over both splits, before it is a JPEG."""
    generator = sample_generator(config.seed, 0, index)
    return draw_scene(generator, _random_size(generator, config.image_side))


def _draw_one(config: ShapesConfig, folder: Path, index: int, split: str) -> None:
    scene = draw_file(config, index)
    _write_jpeg(folder / "images" / split / f"{index:05d}.jpg", scene.image)
    side_wh = np.array(scene.image.shape[1::-1])
    if config.outlines:
        rows = [outline / side_wh for outline in visible_outlines(scene)]
    else:
        rows = list(xyxy_to_cxcywh(scene.boxes_xyxy).reshape(-1, 2, 2) / side_wh)
    lines = (
        f"{number} " + " ".join(f"{x:.6f}" for x in row.reshape(-1).tolist()) + "\n"
        for number, row in zip(scene.class_index.tolist(), rows, strict=True)
    )
    labels = folder / "labels" / split / f"{index:05d}.txt"
    labels.parent.mkdir(parents=True, exist_ok=True)
    labels.write_text("".join(lines), encoding="utf-8")


def draw_class_dataset(folder: Path, config: ShapesConfig = _CLASS_DEFAULTS) -> Path:
    """As `draw_dataset`."""
    recipe = {"classes_version": _CLASSES_VERSION, **dataclasses.asdict(config)}
    del recipe["outlines"]
    document = {"train": "train", "val": "val", "drawn": recipe}
    return _draw_once(folder / "shapes-cls.yaml", document, config, partial(_draw_class, config))


def _draw_class(config: ShapesConfig, folder: Path, index: int, split: str) -> None:
    generator = sample_generator(config.seed, 1, index)  # epoch 0 are the images of detection
    size = _random_size(generator, config.image_side)
    name = list(CLASSES)[index % len(CLASSES)]
    image = draw_one_shape(generator, size, *CLASSES[name])
    _write_jpeg(folder / split / name / f"{index:05d}.jpg", image)


def _write_jpeg(path: Path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _, content = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    path.write_bytes(content.tobytes())
