"""docs/examples/export/cpp finds in a picture what detect.py finds with the weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.export.examples.examples import (
    NOT_RESIZED,
    RESIZED,
    SIDE,
    TIE_IOU,
    TIE_SCORE,
    Exported,
    assert_same,
    build_program,
    by_python,
    parse_lines,
    run_export,
    run_program,
    tiny,
    with_nms,
)


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


def test_the_program_takes_files_of_openvino_too(program):
    files = tiny()
    run_export(files.weights, SIDE, "--include", "openvino")
    (model,) = files.weights.parent.glob("*_openvino_model/*.xml")
    done = run_program(program, model, files.picture("square", "ppm"))
    assert_same(parse_lines(done.stdout), files.found["square"])


def test_a_file_with_nms_is_refused(program):
    done = run_program(program, with_nms(), tiny().picture("square", "ppm"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: a file without --nms is needed\n"


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
