"""Fonts that the tests of plots choose."""

import pytest

from tests.unit.drawing.stand_in_fonts import forget_fonts, make_font, use_folder


@pytest.fixture
def only_dejavu(tmp_path, monkeypatch):
    """A machine whose one font has Latin, Greek and Cyrillic letters."""
    folder = tmp_path / "fonts"
    folder.mkdir()
    use_folder(monkeypatch, folder)
    yield folder
    forget_fonts()


@pytest.fixture(params=["one font", "a font for every name"])
def has_font(request, only_dejavu):
    """Without and with a font that draws Chinese characters, as black squares of 0.8 em."""
    if request.param == "a font for every name":
        make_font("红细胞0123456789. lp").save(only_dejavu / "squares.ttf")
        forget_fonts()
    return request.param == "a font for every name"
