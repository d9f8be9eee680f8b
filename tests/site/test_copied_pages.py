"""What a reader copies from the built pages runs, and prints what they show below it."""

from __future__ import annotations

import pytest

from tests.docs_blocks.pages import names, problems_of, read_page, run_page, unshown

WIDEST = 78  # characters of a line that fits into the column at 1,280 px, in any system's font


@pytest.mark.parametrize("name", [*names(), *unshown()])
def test_a_page_runs_top_to_bottom_and_prints_what_it_shows(name, site):
    page = read_page(name, site)
    run_page(page)
    assert problems_of(page) == []
