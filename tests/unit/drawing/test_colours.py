"""`colours.py`: 80 colours that the eye tells apart, and ink that is read on each."""

import zlib

import cv2
import numpy as np
import pytest

from utils.drawing.colours import COLOURS, class_colour, ink_on, to_oklab

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


def test_any_two_of_80_colours_are_told_apart():
    # A difference of 2.3 is just noticed (Mahy et al. 1994); 10 is seen side by side at a glance.
    distances = lab_distances() + 1000 * np.eye(80)
    assert distances.min() > 10


def test_neighbours_and_the_first_twenty_differ_more():
    distances = lab_distances() + 1000 * np.eye(80)
    assert np.diag(distances, k=1).min() > 20
    assert distances[:20, :20].min() > 20


def test_the_first_colours_are_those_of_plots():
    assert ["#{:02X}{:02X}{:02X}".format(*colour) for colour in PALETTE[:7]] == list(COLOURS)


def test_colours_are_the_same_on_every_machine():
    """A stored sum: both environments have another NumPy, and a video is drawn over weeks."""
    assert zlib.crc32(bytes(np.array(PALETTE, np.uint8))) == 283290550


def test_colours_repeat_after_80():
    assert [class_colour(index) for index in (80, 163, 80_000_000)] == [PALETTE[0], PALETTE[3],
                                                                        PALETTE[0]]  # fmt: skip


def test_no_colour_is_nearly_black_white_or_grey():
    for colour in PALETTE:
        assert max(colour) > 80 and min(colour) < 235 and max(colour) - min(colour) > 30


@pytest.mark.parametrize("colour", [*PALETTE[::9], (0, 0, 0), (255, 255, 255), (118, 118, 118)])
def test_ink_is_read_on_its_colour(colour):
    assert ink_on(colour) in ((0, 0, 0), (255, 255, 255))
    assert contrast(colour, ink_on(colour)) >= 4.5


def test_ink_is_read_on_every_grey_and_every_class():
    for colour in [*PALETTE, *((level, level, level) for level in range(256))]:
        assert contrast(colour, ink_on(colour)) >= 4.5


def test_oklab_gives_the_published_values():
    # Of Ottosson's page and CSS Color 4: white, sRGB red and blue.
    found = to_oklab(np.array([(255, 255, 255), (255, 0, 0), (0, 0, 255)]))
    expected = [(1, 0, 0), (0.62796, 0.22486, 0.12585), (0.45201, -0.03246, -0.31153)]
    np.testing.assert_allclose(found, expected, atol=2e-5)  # they have five digits
