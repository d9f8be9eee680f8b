"""docs/examples/export: each example finds in a picture what detect.py finds with the weights."""

from __future__ import annotations

import ast
import base64
import json
import runpy
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import export
from tests.browser.onnxruntime_web import WEB_RUNTIME
from tests.export.example_programs import (
    EXAMPLES,
    PYTHON,
    PYTHON_NMS,
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
REAL = "000000001000"  # 640 x 480 pixels, nine people
# A value between two levels may become either: a tiny model is sensitive to one.
TIE_SCORE, TIE_IOU = 0.01, 0.98
# Of 20 real pictures, resized: our bilinear differs from OpenCV's, of 11 bits, by a level of 255.
REAL_SCORE, REAL_IOU = 0.02, 0.95


def run_export(monkeypatch, weights: Path, side: int, *flags: str) -> Path:
    words = ["export.py", "--weights", str(weights), "--imgsz", str(side), *flags]
    monkeypatch.setattr("sys.argv", words)
    export.main()
    return weights.with_suffix(".onnx")


class Exported:
    """Weights with their file, pictures, and what detect.py finds in them."""

    def __init__(self, monkeypatch, folder: Path, weights: Path, pictures: dict, side: int) -> None:
        self.weights = weights
        self.model = run_export(monkeypatch, weights, side, "--dynamic")
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
def with_nms(patch, tmp_path_factory) -> Path:
    weights = write_tiny_weights(tmp_path_factory.mktemp("nms"))
    return run_export(patch, weights, SIDE, "--nms", "--letterbox", "--topk-all", "300")


@pytest.fixture(scope="module")
def real(patch, tmp_path_factory) -> Exported:
    folder = tmp_path_factory.mktemp("real")
    weights = folder / "n.pt"
    weights.write_bytes(shared_path("weights/coco-yolov5n-v6.pt").read_bytes())
    images = shared_path("data/coco256/images/val2017")
    pictures = {REAL: Image.open(images / f"{REAL}.jpg")}
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
    assert_same(by_program(program, tiny, name), expected, TIE_SCORE, TIE_IOU)
    assert_same(by_page(page, tiny, name), expected, TIE_SCORE, TIE_IOU)


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


def test_all_find_in_a_real_picture_what_detect_finds(patch, program, page, real):
    for found in (by_python(patch, real, REAL), by_program(program, real, REAL),
                  by_page(page, real, REAL)):  # fmt: skip
        assert_same(found, real.found[REAL], REAL_SCORE, REAL_IOU)


def test_the_file_with_nms_and_letterbox_needs_no_more_than_its_own_example(patch, tiny, with_nms):
    # Of a square picture this file, of one size, sees what the other sees.
    found = parse_lines(run_python(patch, PYTHON_NMS, with_nms, tiny.picture("square")))
    assert_same(found, tiny.found["square"])


def test_a_file_of_the_other_kind_is_refused(patch, program, page, tiny, with_nms):
    with pytest.raises(SystemExit, match="onnx_detect_nms.py"):
        run_python(patch, PYTHON, with_nms, tiny.picture("square"))
    with pytest.raises(SystemExit, match="onnx_detect.py"):
        run_python(patch, PYTHON_NMS, tiny.model, tiny.picture("square"))
    done = run_program(program, with_nms, tiny.picture("square", "ppm"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: a file without --nms and --letterbox is needed\n"
    assert "without --nms and --letterbox" in page.choose("model", with_nms)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"", "no binary PPM"), (b"P3 1 1 255 1 2 3", "no binary PPM"), (b"P6", "8 bits"),
     (b"P6 -1 1 255\n", "8 bits"), (b"P6 2 1 65535\n" + bytes(12), "8 bits"),
     (b"P6 99999 99999 255\n", "100,000,000 pixels"), (b"P6 2 # 3\n 1 255\n12345", "too early")],
)  # fmt: skip
def test_the_program_refuses_what_is_no_picture(program, tiny, tmp_path, content, complaint):
    path = tmp_path / "odd.ppm"
    path.write_bytes(content)
    done = run_program(program, tiny.model, path)
    assert (done.returncode, done.stdout) == (1, "")
    assert complaint in done.stderr and done.stderr.startswith("error: ")


def test_the_program_wants_two_files(program, tiny, tmp_path):
    assert "usage" in run_program(program).stderr
    assert "absent" in run_program(program, tmp_path / "absent.onnx", tiny.model).stderr


@pytest.mark.parametrize("size", [0, 1, 40, 3000])
def test_the_page_refuses_a_damaged_file_and_shows_no_older_boxes(page, tiny, tmp_path, size):
    path = tmp_path / f"{size}.onnx"
    path.write_bytes(tiny.model.read_bytes()[:size])
    assert page.choose("model", path).startswith("error: ")
    path = tmp_path / "cut.png"
    path.write_bytes(tiny.picture("square").read_bytes()[: size // 30])
    assert page.choose("picture", path) == "error: cut.png is neither an ONNX file nor a picture"
    assert page.text("found") == ""


def test_the_page_asks_for_nothing_outside_its_folder(page, tiny):
    page.open()
    by_page(page, tiny, "square")
    assert {address.split("/")[2] for address in page.page.requested()} == {page.site}
    assert page.page.complaints() == []


DROP = """(async () => {
    const files = new DataTransfer();
    for (const [name, text] of %s)
        files.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
    document.getElementById("status").textContent = "";
    document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, dataTransfer: files }));
})()"""


def test_files_may_be_dropped_on_the_page(page, tiny):
    page.open()
    files = (tiny.picture("wide"), tiny.model)
    page.page.evaluate(DROP % json.dumps([(f.name, in_base64(f)) for f in files]))
    page.wait()
    assert_same(parse_lines(page.text("found")), tiny.found["wide"])


def in_base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


# The colours of the middles of the left and right edges of a box.
EDGES = """(() => {
    const context = document.getElementById("canvas").getContext("2d");
    const at = (x) => Array.from(context.getImageData(x, %(y)d, 1, 1).data).join();
    return [at(%(left)d), at(%(right)d)];
})()"""


def test_the_page_draws_the_best_box_over_all_others(page, tiny):
    best = by_page(page, tiny, "square")[0]
    left, top, right, bottom = best.box_xyxy
    places = {"y": (top + bottom) / 2, "left": left, "right": min(right, SIDE - 1)}
    edges = page.page.evaluate(EDGES % places)
    assert edges[0] == edges[1]  # the picture is noise
    size = "[canvas.width, canvas.height, canvas.hidden]"
    assert page.page.evaluate(size) == [SIDE, SIDE, False]


def test_the_page_is_used_by_keyboard_and_fits_a_telephone(page, tiny):
    page.open(width=390, dark=True)
    by_page(page, tiny, "large")
    reached = []
    for _ in range(2):
        for kind in ("keyDown", "keyUp"):
            page.page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                           windowsVirtualKeyCode=9)  # fmt: skip
        reached.append(page.page.evaluate("document.activeElement.id"))
    assert reached == ["model", "picture"]
    assert page.page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("script", [PYTHON, PYTHON_NMS])
def test_the_examples_in_python_import_nothing_of_duet(script):
    nodes = list(ast.walk(ast.parse(script.read_text(encoding="utf-8"))))
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert names == {"json", "sys", "numpy", "onnxruntime", "PIL"}


def test_examples_are_short():
    lines = {p.name: len(p.read_text().splitlines()) for p in EXAMPLES.rglob("*") if p.is_file()}
    assert lines["onnx_detect.py"] < 80 and lines["detect.cpp"] < 200


def test_the_page_is_tested_with_the_runtime_that_its_package_names():
    package = json.loads((EXAMPLES / "browser" / "package.json").read_text(encoding="utf-8"))
    assert package["dependencies"] == {WEB_RUNTIME.name: WEB_RUNTIME.version}
