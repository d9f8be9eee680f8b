"""`fonts.py`: every name is drawn, or its number with a word about it; no file stops the search."""

import logging

import pytest

from tests.unit.drawing.stand_in_fonts import DEJAVU, forget_fonts, make_font, use_folder
from utils.drawing.fonts import drawable_name, font_files, font_for


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of fonts, beside which there is only DejaVu."""
    use_folder(monkeypatch, tmp_path)
    yield tmp_path
    forget_fonts()


@pytest.mark.parametrize("name", ["person", "Fußgänger", "автомобиль", "Ελλάδα", "a 'b' $c$"])
def test_latin_greek_and_cyrillic_names_are_drawn_with_no_font_installed(folder, name):
    assert drawable_name(name, 3) == name


@pytest.mark.parametrize(("name", "package"), [
    ("红细胞", "fonts-noto-cjk"), ("자전거", "fonts-noto-cjk"), ("हाथी", "fonts-noto-core"),
])  # fmt: skip
def test_a_name_that_no_font_has_is_its_number_and_one_line_says_what_helps(
    folder, caplog, name, package
):
    caplog.set_level(logging.INFO)
    assert [drawable_name(name, 7), drawable_name(f"{name} (large)", 8)] == ["class 7", "class 8"]
    (line,) = caplog.messages
    assert name[0] in line and package in line


def test_a_font_with_all_letters_and_figures_of_a_name_is_taken(folder):
    (folder / "a.ttf").write_bytes(b"no font")
    (folder / "b.ttf").write_bytes(DEJAVU.read_bytes()[:5000])
    (folder / "c.ttc").write_bytes(b"ttcf" + bytes(40))
    (folder / "d.ttf").mkdir()
    make_font("红细胞0123456789. ").save(folder / "e.ttf")
    assert drawable_name("红细胞", 0) == "红细胞"
    assert font_for("红细胞 0.87") == str(folder / "e.ttf")
    assert font_for("person 0.87") == str(DEJAVU)
    assert drawable_name("红白", 5) == "class 5"


@pytest.mark.parametrize(("name", "drawn"), [
    ("\x1b[31m", r"\x1b[31m"), ("a\nb", r"a\nb"), ("\u202eab", r"\u202eab"), ("e\u0301", "é"),
    ("\udce9", r"\xe9"),
])  # fmt: skip
def test_a_name_is_drawn_as_it_would_be_printed(folder, name, drawn):
    assert drawable_name(name, 0) == drawn


def test_the_first_font_is_the_one_that_every_machine_has():
    assert font_files()[0] == str(DEJAVU)
    assert len(set(font_files())) == len(font_files()) <= 200
