"""Weights exported for the examples, pictures, and what detect.py finds in them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import onnx
import pytest
from PIL import Image

import export
from tests.export.examples.example_programs import PYTHON, run_python
from tests.export.examples.found_lines import Found, found_by_detect, parse_lines
from tests.shared_files import shared_path
from tests.tiny_weights import noise, write_tiny_weights

SIDE, REAL_SIDE = 64, 320
# (height, width); the first two need no resizing, the others become larger, smaller, far smaller.
SIZES = {"square": (64, 64), "wide": (48, 64), "small": (30, 41), "tall": (100, 61),
         "large": (150, 201)}  # fmt: skip
NOT_RESIZED, RESIZED = ("square", "wide"), ("small", "tall", "large")
REAL = "000000001000"  # 640 x 480 pixels, nine people
# A value between two levels may become either: a tiny model is sensitive to one.
TIE_SCORE, TIE_IOU = 0.01, 0.98
# Of 20 real pictures, resized: our bilinear differs from OpenCV's, of 11 bits, by a level of 255.
REAL_SCORE, REAL_IOU = 0.02, 0.95


def run_export(weights: Path, side: int, *flags: str) -> Path:
    """Run export.py in this process; returns its file."""
    with pytest.MonkeyPatch.context() as patch:
        words = ["export.py", "--weights", str(weights), "--imgsz", str(side), *flags]
        patch.setattr("sys.argv", words)
        export.main()
    return weights.with_suffix(".onnx")


class Exported:
    """Weights with their file, pictures, and what detect.py finds in them."""

    def __init__(
        self, folder: Path, weights: Path, pictures: dict[str, Image.Image], side: int
    ) -> None:
        self.weights = weights
        self.model = run_export(weights, side, "--dynamic")
        self.pictures = folder / "pictures"
        self.pictures.mkdir()
        for name, picture in pictures.items():
            for ending in ("png", "ppm"):
                picture.save(self.pictures / f"{name}.{ending}")
        self.found = found_by_detect(weights, self.pictures, folder / "runs", side)
        assert all(self.found.values())

    def picture(self, name: str, ending: str = "png") -> Path:
        return self.pictures / f"{name}.{ending}"


def by_python(files: Exported, name: str) -> list[Found]:
    return parse_lines(run_python(PYTHON, files.model, files.picture(name)))


def _new_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="duet-examples-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


# Not fixtures: exporting takes seconds, and is done once for the modules that test an example each.
@cache
def tiny() -> Exported:
    """The smallest model with a picture of each of SIZES."""
    folder = _new_folder()
    pictures = {name: Image.fromarray(noise(*SIZES[name], 3)) for name in SIZES}
    return Exported(folder, write_tiny_weights(folder), pictures, SIDE)


@cache
def real() -> Exported:
    """The public YOLOv5n with a picture of COCO."""
    folder = _new_folder()
    weights = folder / "n.pt"
    weights.write_bytes(shared_path("weights/coco-yolov5n-v6.pt").read_bytes())
    image = Image.open(shared_path("data/coco256/images/val2017") / f"{REAL}.jpg")
    return Exported(folder, weights, {REAL: image}, REAL_SIDE)


@cache
def with_nms() -> Path:
    """A file of the smallest model that letterboxes, decodes and suppresses."""
    flags = ("--nms", "--letterbox", "--topk-all", "300")
    return run_export(write_tiny_weights(_new_folder()), SIDE, *flags)


def with_names(model: Path, text: str, path: Path) -> Path:
    """A copy of an ONNX file, whose class names are a JSON text."""
    document = onnx.load_model(model)
    for entry in document.metadata_props:
        if entry.key == "class_names":
            entry.value = text
    onnx.save_model(document, path)
    return path


def without_metadata(model: Path, path: Path) -> Path:
    """A copy of an ONNX file as another program would write it."""
    document = onnx.load_model(model)
    del document.metadata_props[:]
    onnx.helper.set_model_props(document, {"author": "another program", "stride": "32"})
    onnx.save_model(document, path)
    return path
