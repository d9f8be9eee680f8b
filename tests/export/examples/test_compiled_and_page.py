"""docs/examples/export/cpp and browser find in a picture what detect.py finds with the weights."""

from functools import partial
from pathlib import Path

import pytest

from tests.export.examples.examples import (
    NOT_RESIZED,
    RESIZED,
    SIDE,
    TIE_IOU,
    TIE_SCORE,
    assert_same,
    build_program,
    by_python,
    example_page,
    parse_lines,
    run_export,
    run_program,
    tiny,
    with_nms,
    without_metadata,
)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return build_program(tmp_path_factory.mktemp("build"))


@pytest.fixture(scope="module")
def page():
    with example_page() as example:
        example.open()
        yield example


def by_program(program: Path, name: str):
    done = run_program(program, tiny().model, tiny().picture(name, "ppm"))
    assert (done.returncode, done.stderr) == (0, "")
    return parse_lines(done.stdout)


def by_page(page, name: str):
    page.choose("model", tiny().model)
    status = page.choose("picture", tiny().picture(name))
    found = parse_lines(page.text("found"))
    assert status.startswith(f"{len(found)} found in ")
    return found


@pytest.fixture(params=[by_program, by_page])
def find(request):
    """What finds the objects of a picture by its name."""
    example = {by_program: "program", by_page: "page"}[request.param]
    return partial(request.param, request.getfixturevalue(example))


@pytest.mark.parametrize("name", NOT_RESIZED)
def test_each_example_matches_detect(find, name):
    assert_same(find(name), tiny().found[name])


@pytest.mark.parametrize("name", RESIZED)
def test_each_example_resizes_like_python(find, name):
    assert_same(find(name), by_python(tiny(), name), TIE_SCORE, TIE_IOU)


# The program in C++.


def test_cpp_program_accepts_openvino_files(program):
    files = tiny()
    run_export(files.weights, SIDE, "--include", "openvino")
    (model,) = files.weights.parent.glob("*_openvino_model/*.xml")
    done = run_program(program, model, files.picture("square", "ppm"))
    assert_same(parse_lines(done.stdout), files.found["square"])


def test_cpp_program_refuses_a_file_with_nms(program):
    done = run_program(program, with_nms(), tiny().picture("square", "ppm"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: a file without --nms is needed\n"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"P3 1 1 255 1 2 3", "no binary PPM"), (b"P6 2 1 65535\n" + bytes(12), "8 bits"),
     (b"P6 99999 99999 255\n", "100,000,000 pixels"), (b"P6 2 # 3\n 1 255\n12345", "too early")],
)  # fmt: skip
def test_cpp_program_refuses_a_malformed_picture(program, tmp_path, content, complaint):
    path = tmp_path / "odd.ppm"
    path.write_bytes(content)
    done = run_program(program, tiny().model, path)
    assert (done.returncode, done.stdout) == (1, "")
    assert complaint in done.stderr and done.stderr.startswith("error: ")


# The page in a browser.


def test_page_refuses_a_file_with_nms(page):
    assert "without --nms" in page.choose("model", with_nms())


def test_page_refuses_a_file_of_another_program(page, tmp_path):
    status = page.choose("model", without_metadata(tiny().model, tmp_path / "foreign.onnx"))
    assert status.startswith("error: a file of export.py is needed")


@pytest.mark.parametrize("size", [0, 3000])
def test_page_refuses_damaged_files_without_showing_boxes(page, tmp_path, size):
    by_page(page, "square")
    assert page.text("found")
    path = tmp_path / f"{size}.onnx"
    path.write_bytes(tiny().model.read_bytes()[:size])
    assert page.choose("model", path).startswith("error: ")
    path = tmp_path / "cut.png"
    path.write_bytes(tiny().picture("square").read_bytes()[: size // 30])
    assert page.choose("picture", path) == "error: cut.png is neither an ONNX file nor a picture"
    assert page.text("found") == ""


def test_page_requests_nothing_outside_its_folder(page):
    page.open()
    by_page(page, "square")
    assert {address.split("/")[2] for address in page.page.requested()} == {page.site}
    assert page.page.complaints() == []
