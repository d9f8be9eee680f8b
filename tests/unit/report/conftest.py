"""Fonts that the tests of drawings and plots choose."""

import pytest

from tests.unit.report.drawing.stand_in_fonts import forget_fonts, use_folder


@pytest.fixture
def only_dejavu(tmp_path, monkeypatch):
    """A machine whose one font has Latin, Greek and Cyrillic letters."""
    folder = tmp_path / "fonts"
    folder.mkdir()
    use_folder(monkeypatch, folder)
    yield folder
    forget_fonts()
