"""docs/examples/export: each example finds in a picture what detect.py finds with the weights."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import export
from tests.export.example_programs import (
    PYTHON,
    build_program,
    example_page,
    run_program,
    run_python,
)
from tests.export.found_lines import assert_same, found_by_detect, parse_lines
from tests.shared_files import shared_path
from tests.tiny_weights import noise, write_tiny_weights
from utils.data.image.resizing import resize_to_detect

SIDE, REAL_SIDE = 64, 320
# (height, width); the first two need no resizing, the others become larger, smaller, far smaller.
SIZES = {"square": (64, 64), "wide": (48, 64), "small": (30, 41), "tall": (100, 61),
         "large": (150, 201)}  # fmt: skip
NOT_RESIZED = ("square", "wide")
REAL = ("000000000632", "000000001000")  # 640 x 483 and 640 x 480 pixels
# Of 20 real pictures, resized: our bilinear differs from OpenCV's, of 11 bits, by a level of 255.
REAL_SCORE, REAL_IOU = 0.02, 0.95


class Exported:
    """Weights with their file, pictures, and what detect.py finds in them."""

    def __init__(self, monkeypatch, folder: Path, weights: Path, pictures: dict, side: int) -> None:
        words = ["--weights", str(weights), "--imgsz", str(side), "--dynamic"]
        monkeypatch.setattr("sys.argv", ["export.py", *words])
        export.main()
        self.weights, self.model = weights, weights.with_suffix(".onnx")
        self.pictures = folder / "pictures"
        self.pictures.mkdir()
        for name, picture in pictures.items():
            for ending in ("png", "ppm"):
                picture.save(self.pictures / f"{name}.{ending}")
        self.found = found_by_detect(monkeypatch, weights, self.pictures, folder / "runs", side)
        assert all(self.found.values())

    def picture(self, name: str, ending: str = "png") -> Path:
        return self.pictures / f"{name}.{ending}"


@pytest.fixture(scope="module")
def patch():
    with pytest.MonkeyPatch.context() as context:
        yield context


@pytest.fixture(scope="module")
def tiny(patch, tmp_path_factory) -> Exported:
    folder = tmp_path_factory.mktemp("tiny")
    pictures = {name: Image.fromarray(noise(*SIZES[name], 3)) for name in SIZES}
    return Exported(patch, folder, write_tiny_weights(folder), pictures, SIDE)


@pytest.fixture(scope="module")
def real(patch, tmp_path_factory) -> Exported:
    folder = tmp_path_factory.mktemp("real")
    weights = folder / "n.pt"
    weights.write_bytes(shared_path("weights/coco-yolov5n-v6.pt").read_bytes())
    images = shared_path("data/coco256/images/val2017")
    pictures = {name: Image.open(images / f"{name}.jpg") for name in REAL}
    return Exported(patch, folder, weights, pictures, REAL_SIDE)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return build_program(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def page():
    with example_page() as example:
        example.open()
        yield example


def by_python(patch, files: Exported, name: str):
    return parse_lines(run_python(patch, PYTHON, files.model, files.picture(name)))


def by_program(program: Path, files: Exported, name: str):
    done = run_program(program, files.model, files.picture(name, "ppm"))
    assert (done.returncode, done.stderr) == (0, "")
    return parse_lines(done.stdout)


def by_page(page, files: Exported, name: str):
    page.choose("model", files.model)
    status = page.choose("picture", files.picture(name))
    found = parse_lines(page.text("found"))
    assert status.startswith(f"{len(found)} found in ")
    return found


@pytest.mark.parametrize("name", NOT_RESIZED)
def test_python_finds_what_detect_finds(patch, tiny, name):
    assert_same(by_python(patch, tiny, name), tiny.found[name])


@pytest.mark.parametrize("name", NOT_RESIZED)
def test_the_program_finds_what_detect_finds(program, tiny, name):
    assert_same(by_program(program, tiny, name), tiny.found[name])


@pytest.mark.parametrize("name", NOT_RESIZED)
def test_the_page_finds_what_detect_finds(page, tiny, name):
    assert_same(by_page(page, tiny, name), tiny.found[name])


@pytest.mark.parametrize("name", [name for name in SIZES if name not in NOT_RESIZED])
def test_program_and_page_resize_a_picture_as_python_does(patch, program, page, tiny, name):
    expected = by_python(patch, tiny, name)
    assert_same(by_program(program, tiny, name), expected)
    assert_same(by_page(page, tiny, name), expected)


def test_python_resizes_a_picture_as_detect_does_but_for_one_level(patch, tiny):
    patch.setattr("sys.argv", [str(PYTHON), str(tiny.model), str(tiny.picture("square"))])
    letterbox = runpy.run_path(str(PYTHON))["letterbox"]
    for height, width in ((30, 41), (1, 1), (2, 90), (100, 61), (64, 128), (150, 201), (1000, 7)):
        image = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
        pixels, corner, (after_width, after_height) = letterbox(image, np.array([64, 64]), 16)
        (left, top), levels = corner, pixels[0].transpose(1, 2, 0) * 255
        inside = levels[top : top + after_height, left : left + after_width]
        expected = resize_to_detect(image, (int(after_height), int(after_width)))
        assert max(after_height, after_width) == 64
        assert np.abs(inside - expected.astype(float)).max() < 1.001
        assert {side % 16 for side in levels.shape[:2]} == {0}
        outside = levels.sum() - inside.sum()
        assert outside == pytest.approx(114.0 * (levels.size - inside.size), rel=1e-4)


@pytest.mark.parametrize("name", REAL)
def test_all_find_in_a_real_picture_what_detect_finds(patch, program, page, real, name):
    expected = real.found[name]
    for found in (by_python(patch, real, name), by_program(program, real, name),
                  by_page(page, real, name)):  # fmt: skip
        assert_same(found, expected, REAL_SCORE, REAL_IOU)
