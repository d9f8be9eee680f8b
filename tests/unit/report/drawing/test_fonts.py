"""Every name is drawn, or its number and a log line; 80 colours are distinguishable."""

import logging

import cv2
import numpy as np
import pytest

from duet.utils.colours import class_colour, ink_on
from duet.utils.report.drawing import drawable_name, font_for
from tests.unit.report.conftest import DEJAVU, make_font


@pytest.mark.parametrize("name", ["person", "Fußgänger", "автомобиль", "Ελλάδα", "a 'b' $c$"])
def test_common_scripts_are_drawn_without_installed_fonts(only_dejavu, name):
    assert drawable_name(name, 3) == name


def test_names_without_a_font_become_numbers_with_a_remedy(only_dejavu, caplog):
    caplog.set_level(logging.INFO)
    assert [drawable_name(name, 7) for name in ("红细胞", "자전거", "हाथी")] == ["class 7"] * 3
    (line,) = caplog.messages
    assert "fonts-noto-cjk" in line and "fonts-noto-core" in line


def test_font_must_cover_all_letters_of_a_name(only_dejavu):
    (only_dejavu / "a.ttf").write_bytes(b"no font")
    (only_dejavu / "b.ttf").write_bytes(DEJAVU.read_bytes()[:5000])
    (only_dejavu / "c.ttc").write_bytes(b"ttcf" + bytes(40))
    (only_dejavu / "d.ttf").mkdir()
    make_font("红细胞0123456789. ").save(only_dejavu / "e.ttf")
    assert drawable_name("红细胞", 0) == "红细胞"
    assert font_for("红细胞 0.87") == str(only_dejavu / "e.ttf")
    assert font_for("person 0.87") == str(DEJAVU)
    assert drawable_name("红白", 5) == "class 5"


@pytest.mark.parametrize(("name", "drawn"), [
    ("\x1b[31m", r"\x1b[31m"), ("a\nb", r"a\nb"), ("\u202eab", r"\u202eab"), ("e\u0301", "é"),
    ("\udce9", r"\xe9"),
])  # fmt: skip
def test_name_is_drawn_as_it_would_be_printed(only_dejavu, name, drawn):
    assert drawable_name(name, 0) == drawn


PALETTE = [class_colour(index) for index in range(80)]


def lab_distances() -> np.ndarray:
    """Distances of CIE 1976 between the colours, another space than they are chosen in."""
    pixels = np.array([PALETTE], np.float32) / 255
    lab = cv2.cvtColor(pixels, cv2.COLOR_RGB2LAB)[0]
    return np.linalg.norm(lab[:, None] - lab[None], axis=2)


def luminance(colour: tuple[int, int, int]) -> float:
    """The relative luminance of WCAG 2.1."""
    channels = [value / 255 for value in colour]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: tuple[int, int, int], b: tuple[int, int, int]) -> float:
    darker, lighter = sorted((luminance(a), luminance(b)))
    return (lighter + 0.05) / (darker + 0.05)


def test_any_two_of_80_colours_are_distinguishable():
    # A difference of 2.3 is just noticed (Mahy et al. 1994); 10 is seen side by side at a glance.
    distances = lab_distances() + 1000 * np.eye(80)
    assert distances.min() > 10


def test_ink_is_readable_on_every_grey_and_class_colour():
    for colour in [*PALETTE, *((level, level, level) for level in range(256))]:
        assert contrast(colour, ink_on(colour)) >= 4.5
