"""The examples of docs/examples/export, run as a user runs them, and held against detect.py."""

from __future__ import annotations

import atexit
import io
import json
import mimetypes
import os
import runpy
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from PIL import Image

import detect
import export
from duet.utils.project import PROJECT
from tests.browser.chromium import Page, chromium
from tests.browser.install import WEB_RUNTIME, WEB_RUNTIME_FILES, installed_folder
from tests.small import noise, write_tiny_weights
from tests.unit.data.fetch.conftest import loopback_site

EXAMPLES = PROJECT / "docs" / "examples" / "export"
PYTHON = EXAMPLES / "python" / "onnx_detect.py"
SECONDS = 60  # a limit against hanging
NO_COMPILER = "c++, cmake and the package openvino are needed to build the example in C++"
NO_WEB_RUNTIME = "no onnxruntime-web: python3 -m tests.browser.install"


def run_python(script: Path, *files: Path) -> str:
    """What a script prints; in this process, whose imports it need not wait for."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
        patch.setattr("sys.argv", [str(script), *map(str, files)])
        runpy.run_path(str(script), run_name="__main__")
    return printed.getvalue()


def build_program(folder: Path) -> Path:
    """The program in C++; without a compiler the test is skipped, or fails: REQUIRE_COMPILER=1."""
    openvino = find_spec("openvino")
    if not (shutil.which("c++") and shutil.which("cmake") and openvino and openvino.origin):
        if os.environ.get("REQUIRE_COMPILER") == "1":
            pytest.fail(NO_COMPILER)
        pytest.skip(NO_COMPILER)
    configuration = Path(openvino.origin).parent / "cmake"  # what get_cmake_path() returns
    for words in (
        ["-S", EXAMPLES / "cpp", "-B", folder, "-D", f"OpenVINO_DIR={configuration}",
         "-D", "CMAKE_BUILD_TYPE=Debug", "-D", "CMAKE_CXX_FLAGS=-Wall -Wextra -Werror"],
        ["--build", folder],
    ):  # fmt: skip
        done = subprocess.run(["cmake", *words], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "detect"


def run_program(program: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *files], capture_output=True, text=True, timeout=SECONDS)


class Found(NamedTuple):
    """An object: x1, y1, x2, y2 in pixels of the picture."""

    label: str
    score: float
    box_xyxy: tuple[float, ...]


def parse_lines(text: str) -> list[Found]:
    """Read lines of `label score x1 y1 x2 y2`; a label may have spaces."""
    found = []
    for line in text.splitlines():
        label, *numbers = line.rsplit(" ", 5)
        score, *box = map(float, numbers)
        found.append(Found(label, score, tuple(box)))
    return found


def found_by_detect(
    weights: Path, folder: Path, project: Path, size: int
) -> dict[str, list[Found]]:
    """What detect.py finds in the pictures of a folder, by the stem of their names."""
    flags = ("--img", size, "--device", "cpu", "--nosave", "--save-json", "--project", project)
    words = ["detect.py", "--weights", weights, "--source", folder / "*.png", *flags]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", list(map(str, words)))
        detect.main()
    (file,) = project.glob("*/detections.json")
    return {
        image["name"]: [
            Found(each["name"], each["score"], tuple(each["box_xyxy"]))
            for each in image["detections"]
        ]
        for image in json.loads(file.read_text(encoding="utf-8"))["images"]
    }


def assert_same(
    found: list[Found], expected: list[Found], score: float = 1e-3, iou: float = 0.99
) -> None:
    """As many, the best first, of the same classes, with scores and boxes that agree."""
    assert [each.score for each in found] == sorted((e.score for e in found), reverse=True)
    assert sorted(each.label for each in found) == sorted(each.label for each in expected)
    left = list(found)
    for one in expected:
        same = max(left, key=lambda other: (other.label == one.label, iou_of(one, other)))
        left.remove(same)
        assert same.label == one.label
        assert iou_of(one, same) > iou, (one, same)
        assert abs(one.score - same.score) < score, (one, same)


def iou_of(one: Found, other: Found) -> float:
    a, b = np.array(one.box_xyxy), np.array(other.box_xyxy)
    common = np.prod(np.clip(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0, None))
    return float(common / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - common))


@contextmanager
def example_page() -> Iterator[ExamplePage]:
    """The page in a browser, from a site that has nothing else than its folder."""
    runtime = installed_folder(WEB_RUNTIME.name, WEB_RUNTIME)
    if not runtime.exists():
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(NO_WEB_RUNTIME)
        pytest.skip(NO_WEB_RUNTIME)
    files = {f"/{name}": EXAMPLES / "browser" / name for name in ("index.html", "detect.js")}
    modules = "/node_modules/onnxruntime-web/dist"
    files |= {f"{modules}/{name}": runtime / name for name in WEB_RUNTIME_FILES}
    with chromium() as page, loopback_site() as site:
        for address, path in files.items():
            site.put(address, path.read_bytes())
            site.types[address] = mimetypes.guess_type(path.name)[0] or ""
        yield ExamplePage(page, f"{site.root}/index.html")


class ExamplePage:
    """The page, and what a user does with it."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.site = address.split("/")[2]
        self.chosen: dict[str, Path] = {}

    def open(self, width: int = 1100, dark: bool = False) -> None:
        self.chosen.clear()
        self.page.open(self.address, width, dark=dark)

    def choose(self, kind: str, path: Path) -> str:
        """Choose a file for the input of a kind: "model" or "picture"; returns the status."""
        if self.chosen.get(kind) == path:
            return self.text("status")  # to choose a file again is no change
        self.chosen[kind] = path
        self.page.evaluate("document.getElementById('status').textContent = ''")
        self.page.choose_file(f"#{kind}", path)
        return self.wait()

    def wait(self) -> str:
        """The status once nothing is being done."""
        deadline = time.monotonic() + SECONDS
        while True:
            status = self.text("status")
            if status and "…" not in status:
                return status
            assert time.monotonic() < deadline, (status, self.page.complaints())
            time.sleep(0.02)

    def text(self, name: str) -> str:
        return self.page.evaluate(f"document.getElementById('{name}').textContent")


SIDE = 64
# (height, width); the first two need no resizing, the others become larger, smaller, far smaller.
SIZES = {"square": (64, 64), "wide": (48, 64), "small": (30, 41), "tall": (100, 61),
         "large": (150, 201)}  # fmt: skip
NOT_RESIZED, RESIZED = ("square", "wide"), ("small", "tall", "large")
# A value between two levels may become either: a tiny model is sensitive to one.
TIE_SCORE, TIE_IOU = 0.01, 0.98


def run_export(weights: Path, side: int, *flags: str) -> Path:
    """Run export.py in this process; returns its file."""
    export.run(["--weights", str(weights), "--imgsz", str(side), *flags])
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
def with_nms() -> Path:
    """A file of the smallest model that suppresses."""
    return run_export(write_tiny_weights(_new_folder()), SIDE, "--nms")


def without_metadata(model: Path, path: Path) -> Path:
    """A copy of an ONNX file as another program would write it."""
    document = onnx.load_model(model)
    del document.metadata_props[:]
    onnx.helper.set_model_props(document, {"author": "another program", "stride": "32"})
    onnx.save_model(document, path)
    return path
