"""Files that blocks of the guide need: their pages begin where a reader has them already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from tests.small import write_small_dataset
from tests.tiny_tasks import write_tiny_classifier, write_tiny_segmenter
from tests.tiny_weights import noise, write_tiny_weights


def write_images(folder: Path) -> None:
    """Write a folder of two images."""
    folder.mkdir()
    for name in ("1.jpg", "2.jpg"):
        Image.fromarray(noise(60, 90)).save(folder / name)


# Writes a file that a block needs, by its name.
NEEDED: dict[str, Callable[[Path], Any]] = {
    "best.safetensors": lambda path: write_tiny_weights(path.parent).rename(path),
    "best-seg.safetensors": lambda path: write_tiny_segmenter(path.parent).rename(path),
    "best-cls.safetensors": lambda path: write_tiny_classifier(path.parent).rename(path),
    "bus.jpg": lambda path: Image.fromarray(noise(60, 90)).save(path),
    "images": write_images,
    "shapes": lambda path: write_small_dataset(path.parent),
}
