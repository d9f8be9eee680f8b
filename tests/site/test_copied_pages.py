"""What a reader copies from the built pages runs, and prints what they show below it."""

import re
import unicodedata

import pytest

from tests.docs_blocks.blocks import code_blocks
from tests.docs_blocks.pages import names, problems_of, read_page, run_page, unshown

WIDEST = 78  # characters of a line that fits into the column at 1,280 px, in any system's font
COMMENT = re.compile(r"\s*(?<!\S)#.*")
TUTORIALS = [name for name in names() if name.startswith("tutorials/")]


@pytest.mark.parametrize("name", [*names(), *unshown()])
def test_page_runs_top_to_bottom_and_prints_its_outputs(name, site):
    page = read_page(name, site)
    run_page(page)
    assert problems_of(page) == []


@pytest.mark.parametrize("name", TUTORIALS)
def test_both_languages_of_a_tutorial_show_the_same_code(name, site):
    english, chinese = (
        [
            (block.language, block.file, COMMENT.sub("", block.text))
            for block in code_blocks((site / f"{folder}{name}.html").read_text(encoding="utf-8"))
        ]
        for folder in ("", "zh/")
    )
    assert english == chinese


def width_of(line):
    """The characters of a line as a column counts them: Chinese ones are twice as wide."""
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in line)


@pytest.mark.parametrize("folder", ["", "zh/"])
def test_no_tutorial_line_is_wider_than_its_column(folder, site):
    wide = [
        (name, line)
        for name in TUTORIALS
        for block in code_blocks((site / f"{folder}{name}.html").read_text(encoding="utf-8"))
        for line in block.text.splitlines()
        if width_of(line) > WIDEST
    ]
    assert wide == []
