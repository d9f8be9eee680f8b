"""docs/examples/export/browser finds in a picture what detect.py finds with the weights."""

from __future__ import annotations

import pytest

from tests.export.examples.examples import (
    NOT_RESIZED,
    RESIZED,
    TIE_IOU,
    TIE_SCORE,
    Exported,
    assert_same,
    by_python,
    example_page,
    parse_lines,
    tiny,
    with_nms,
    without_metadata,
)


@pytest.fixture(scope="module")
def page():
    with example_page() as example:
        example.open()
        yield example


def by_page(page, files: Exported, name: str):
    page.choose("model", files.model)
    status = page.choose("picture", files.picture(name))
    found = parse_lines(page.text("found"))
    assert status.startswith(f"{len(found)} found in ")
    return found


@pytest.mark.parametrize("name", NOT_RESIZED)
def test_the_page_finds_what_detect_finds(page, name):
    assert_same(by_page(page, tiny(), name), tiny().found[name])


@pytest.mark.parametrize("name", RESIZED)
def test_the_page_resizes_a_picture_as_python_does(page, name):
    expected = by_python(tiny(), name)
    assert_same(by_page(page, tiny(), name), expected, TIE_SCORE, TIE_IOU)


def test_a_file_with_nms_is_refused(page):
    assert "without --nms" in page.choose("model", with_nms())


def test_a_file_of_another_program_is_refused(page, tmp_path):
    status = page.choose("model", without_metadata(tiny().model, tmp_path / "foreign.onnx"))
    assert status.startswith("error: a file of export.py is needed")


@pytest.mark.parametrize("size", [0, 3000])
def test_the_page_refuses_a_damaged_file_and_shows_no_older_boxes(page, tmp_path, size):
    path = tmp_path / f"{size}.onnx"
    path.write_bytes(tiny().model.read_bytes()[:size])
    assert page.choose("model", path).startswith("error: ")
    path = tmp_path / "cut.png"
    path.write_bytes(tiny().picture("square").read_bytes()[: size // 30])
    assert page.choose("picture", path) == "error: cut.png is neither an ONNX file nor a picture"
    assert page.text("found") == ""


def test_the_page_asks_for_nothing_outside_its_folder(page):
    page.open()
    by_page(page, tiny(), "square")
    assert {address.split("/")[2] for address in page.page.requested()} == {page.site}
    assert page.page.complaints() == []
