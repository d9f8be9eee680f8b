"""docs/examples/export/python finds in a picture what detect.py finds with the weights."""

from __future__ import annotations

import ast
import runpy

import numpy as np
import pytest

from duet.utils.data.image.letterbox import resize_linear
from tests.export.examples.examples import (
    NOT_RESIZED,
    PYTHON,
    assert_same,
    by_python,
    run_python,
    tiny,
    with_nms,
)


@pytest.mark.parametrize("name", NOT_RESIZED)
def test_python_finds_what_detect_finds(name):
    assert_same(by_python(tiny(), name), tiny().found[name])


def test_python_resizes_a_picture_as_detect_does_but_for_one_level(monkeypatch):
    monkeypatch.setattr("sys.argv", [str(PYTHON), str(tiny().model), str(tiny().picture("square"))])
    letterbox = runpy.run_path(str(PYTHON))["letterbox"]
    for height, width in ((30, 41), (1, 1), (2, 90), (100, 61), (64, 128), (150, 201), (1000, 7)):
        image = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
        pixels, corner, (after_width, after_height) = letterbox(image, np.array([64, 64]), 16)
        (left, top), levels = corner, pixels[0].transpose(1, 2, 0) * 255
        inside = levels[top : top + after_height, left : left + after_width]
        expected = resize_linear(image, (int(after_height), int(after_width)))
        assert max(after_height, after_width) == 64
        assert np.abs(inside - expected.astype(float)).max() < 1.001
        assert {side % 16 for side in levels.shape[:2]} == {0}
        outside = levels.sum() - inside.sum()
        assert outside == pytest.approx(114.0 * (levels.size - inside.size), rel=1e-4)


def test_the_example_in_python_imports_nothing_of_duet():
    nodes = list(ast.walk(ast.parse(PYTHON.read_text(encoding="utf-8"))))
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert names == {"json", "sys", "numpy", "onnxruntime", "PIL"}


def test_a_file_of_the_other_kind_is_refused():
    with pytest.raises(SystemExit, match="or one with NMS"):
        run_python(PYTHON, with_nms(), tiny().picture("square"))


def test_what_cannot_be_opened_is_one_message(tmp_path):
    weights = tmp_path / "x.pt"
    weights.write_bytes(b"no graph")
    absent = tmp_path / "absent.jpg"
    for files in ((), (tiny().model,), (tiny().model, absent), (weights, absent)):
        with pytest.raises(SystemExit, match="^usage: .* FILE PICTURE; "):
            run_python(PYTHON, *files)
