"""`style.py`: names that can be drawn, colours that can be seen, files without side effects."""

import logging

import pytest

from duet.utils.report.plots import style
from tests.unit.report.plots.drawn import NAMES


def test_a_name_without_a_font_is_its_number_and_a_line_reports_it(only_dejavu, caplog):
    with caplog.at_level(logging.WARNING):
        names = [style.figure_name(NAMES, index) for index in (0, 1, 2, 2)]
    assert names == ["cell", r"\$\bad\$ formula", "class 2", "class 2"]
    (line,) = caplog.messages
    assert line.startswith("no installed font has ") and "fonts-noto-cjk" in line


@pytest.mark.parametrize(("name", "expected"), [
    ("", ""),
    ("x" * 24, "x" * 24),
    ("x" * 25, "x" * 22 + ".."),
    ("x" * 100_000, "x" * 22 + ".."),
])  # fmt: skip
def test_a_long_name_is_cut_at_24_letters(name, expected):
    assert style.cut(name) == expected
