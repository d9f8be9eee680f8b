"""`style.py`: names that can be drawn, colours that can be seen, files without side effects."""

import logging
import subprocess
import sys

import numpy as np
import pytest

from tests.unit.report.plots.drawn import NAMES, black_squares, read_rgb, result_of
from utils.drawing.colours import COLOURS
from utils.files.project import PROJECT
from utils.report.plots import style
from utils.report.plots.curves import plot_precision_recall


def test_names_in_any_script_are_written_in_a_figure(tmp_path, has_font):
    plot_precision_recall(result_of(NAMES), tmp_path / "pr.png")
    # Letters are 8 pixels high at least.
    assert (black_squares(read_rgb(tmp_path / "pr.png"), 6) > 0) == has_font


def test_a_name_without_a_font_is_its_number_and_a_line_says_so(only_dejavu, caplog):
    with caplog.at_level(logging.WARNING):
        names = [style.figure_name(NAMES, index) for index in (0, 1, 2, 2)]
    assert names == ["cell", r"\$\bad\$ formula", "class 2", "class 2"]
    (line,) = caplog.messages
    assert line.startswith("no font of this machine has 红 ") and "fonts-noto-cjk" in line


@pytest.mark.parametrize(("name", "expected"), [
    ("", ""),
    ("x" * 24, "x" * 24),
    ("x" * 25, "x" * 22 + ".."),
    ("红" * 12, "红" * 12),
    ("红" * 13, "红" * 11 + ".."),
    ("x红" * 9, "x红" * 7 + "x.."),
    ("e\u0301" * 24, "e\u0301" * 24),
    ("x" * 100_000, "x" * 22 + ".."),
])  # fmt: skip
def test_a_long_name_is_cut_at_the_width_of_24_letters(name, expected):
    assert style.cut(name) == expected


def test_the_classes_with_the_most_labels_have_names():
    assert style.named_classes(np.array([0, 5, 0])) == [1]
    assert style.named_classes(np.arange(20)) == [13, 14, 15, 16, 17, 18, 19]
    assert style.named_classes(np.ones(20, int)) == [0, 1, 2, 3, 4, 5, 6]
    assert style.named_classes(np.zeros(0, int)) == []


def contrast_with_white(colour):
    """WCAG 2.1's, of sRGB in [0, 1]."""
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in colour]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def test_a_line_of_every_class_is_seen_on_white_in_its_hue():
    for index in range(80):
        colour, line = style.colour_of(index), style.line_colour(index)
        assert contrast_with_white(line) > 2
        factors = np.array(line)[np.array(colour) > 0] / np.array(colour)[np.array(colour) > 0]
        np.testing.assert_allclose(factors, factors[0])
        assert factors[0] <= 1
    for index, known in enumerate(COLOURS[:4]):  # dark enough as they are
        assert tuple(round(255 * x) for x in style.line_colour(index)) == tuple(
            bytes.fromhex(known[1:])
        )


def test_importing_draws_in_no_drawing_package_and_drawing_leaves_pyplot_alone(tmp_path):
    program = f"""
import sys
from pathlib import Path
from utils.evaluation.coco.metric import DetectionEvaluator
from utils.report.plots import confusion, curves, images, label_statistics, results
assert "matplotlib" not in sys.modules, "imported with utils.report.plots"
result = DetectionEvaluator([]).result()
curves.plot_precision_recall(result, Path({str(tmp_path / "pr.png")!r}))
assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
