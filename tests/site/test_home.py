"""The home page tells the figures that the pages of measurements have, in both languages."""

import re
from collections import Counter

import pytest

from utils.files.project import PROJECT

NUMBER = re.compile(r"(?<![\w.-])\d+\.\d+(?:e-\d+)?")
VERSIONS = {"2.13", "0.9", "3.10"}  # of PyTorch, OneFlow and Python


def figures(page: str) -> Counter[str]:
    """The numbers of a page and how often it has each."""
    return Counter(NUMBER.findall((PROJECT / "docs" / page).read_text(encoding="utf-8")))


def test_both_languages_have_the_same_figures():
    assert figures("en/index.md") == figures("zh/index.md")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_figure_was_measured(language):
    measured = figures("en/accuracy.md") | figures("en/compare.md")
    told = figures(f"{language}/index.md").keys() - VERSIONS
    assert len(told) >= 5 and told <= measured.keys()
