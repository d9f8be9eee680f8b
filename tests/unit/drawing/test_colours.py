"""`colours.py`: 80 colours that the eye tells apart, and ink that is read on each."""

import cv2
import numpy as np

from utils.drawing.colours import class_colour, ink_on

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


def test_ink_is_read_on_every_grey_and_every_class():
    for colour in [*PALETTE, *((level, level, level) for level in range(256))]:
        assert contrast(colour, ink_on(colour)) >= 4.5
