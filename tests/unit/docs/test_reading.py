"""The page that leads through the core names files that exist, and few enough for an afternoon."""

import re

import pytest

from duet.utils.project import PROJECT

FILE = re.compile(r"^\d+\. \[([\w./]+\.py)\]\(\.\./\.\./([\w./]+)\)", re.MULTILINE)
MOST_FILES, MOST_LINES = 18, 3600


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_way_through_the_core_is_read_in_an_afternoon(language):
    text = (PROJECT / "docs" / language / "reading.md").read_text(encoding="utf-8")
    links = FILE.findall(text)
    assert all(name == target for name, target in links)
    paths = [PROJECT / name for name, _ in links]
    assert 10 <= len(set(paths)) == len(paths) <= MOST_FILES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths) <= MOST_LINES


def test_both_languages_lead_through_the_same_files_in_order():
    english, chinese = (
        FILE.findall((PROJECT / "docs" / language / "reading.md").read_text(encoding="utf-8"))
        for language in ("en", "zh")
    )
    assert english == chinese
