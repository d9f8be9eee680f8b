"""docs/examples/export/cpp finds in a picture what detect.py finds with the weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.export.examples.example_programs import EXAMPLES, build_program, run_program
from tests.export.examples.exported_weights import (
    NOT_RESIZED,
    REAL,
    REAL_IOU,
    REAL_SCORE,
    RESIZED,
    SIDE,
    TIE_IOU,
    TIE_SCORE,
    Exported,
    by_python,
    real,
    run_export,
    tiny,
    with_names,
    with_nms,
    without_metadata,
)
from tests.export.examples.found_lines import assert_same, parse_lines
from tests.tiny_weights import CLASS_NAMES


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return build_program(tmp_path_factory.mktemp("build"))


def by_program(program: Path, files: Exported, name: str):
    done = run_program(program, files.model, files.picture(name, "ppm"))
    assert (done.returncode, done.stderr) == (0, "")
    return parse_lines(done.stdout)


@pytest.mark.parametrize("name", NOT_RESIZED)
def test_the_program_finds_what_detect_finds(program, name):
    assert_same(by_program(program, tiny(), name), tiny().found[name])


@pytest.mark.parametrize("name", RESIZED)
def test_the_program_resizes_a_picture_as_python_does(program, name):
    expected = by_python(tiny(), name)
    assert_same(by_program(program, tiny(), name), expected, TIE_SCORE, TIE_IOU)


def test_the_program_finds_in_a_real_picture_what_detect_finds(program):
    assert_same(by_program(program, real(), REAL), real().found[REAL], REAL_SCORE, REAL_IOU)


def test_the_program_takes_files_of_openvino_too(program):
    files = tiny()
    run_export(files.weights, SIDE, "--include", "openvino")
    (model,) = files.weights.parent.glob("*_openvino_model/*.xml")
    done = run_program(program, model, files.picture("square", "ppm"))
    assert_same(parse_lines(done.stdout), files.found["square"])


def test_the_program_prints_names_as_they_are(program, tmp_path):
    names = ["circle", 'a "b" \\', "star", "étoile", "三角 \U0001f600"]
    written = 'circle", "a \\"b\\" \\\\", "star", "\\u00e9toile", "\\u4e09角 \\ud83d\\ude00'
    assert json.loads(f'["{written}"]') == names
    model = with_names(tiny().model, f'["{written}"]', tmp_path / "names.onnx")
    done = run_program(program, model, tiny().picture("square", "ppm"))
    labels = dict(zip(CLASS_NAMES, names, strict=True))
    found = sorted(each.label for each in parse_lines(done.stdout))
    assert found == sorted(labels[each.label] for each in tiny().found["square"])


def test_a_file_with_nms_is_refused(program):
    done = run_program(program, with_nms(), tiny().picture("square", "ppm"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: a file without --nms and --letterbox is needed\n"


def test_a_file_of_another_program_is_refused(program, tmp_path):
    model = without_metadata(tiny().model, tmp_path / "foreign.onnx")
    done = run_program(program, model, tiny().picture("square", "ppm"))
    assert (done.returncode, done.stderr) == (1, "error: no file of export.py\n")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"P3 1 1 255 1 2 3", "no binary PPM"), (b"P6 2 1 65535\n" + bytes(12), "8 bits"),
     (b"P6 99999 99999 255\n", "100,000,000 pixels"), (b"P6 2 # 3\n 1 255\n12345", "too early")],
)  # fmt: skip
def test_the_program_refuses_what_is_no_picture(program, tmp_path, content, complaint):
    path = tmp_path / "odd.ppm"
    path.write_bytes(content)
    done = run_program(program, tiny().model, path)
    assert (done.returncode, done.stdout) == (1, "")
    assert complaint in done.stderr and done.stderr.startswith("error: ")


def test_the_program_is_short():
    assert len((EXAMPLES / "cpp" / "detect.cpp").read_text(encoding="utf-8").splitlines()) < 200
